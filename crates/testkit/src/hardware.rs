// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording of Intel PT by perf, of a program whose run is known: made by our encoders, since no machine here has the unit.

use crate::elf;
use rtscope_hardware::perfdata::encode::PerfEncoder;
use rtscope_hardware::perfdata::{EventAttribute, SampleId};
use rtscope_hardware::pt::{ExecMode, Ip, IpBytes, Packet, Tnt, encode};

/// Where the program is.
pub const BASE: u64 = 0x40_1000;

/// main calls work, which calls leaf; then main calls outer, which jumps to leaf; and main returns.
#[must_use]
pub fn code() -> Vec<u8> {
    let mut code = vec![0x90; 0x61];
    let mut put = |at: usize, bytes: &[u8]| code[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &[0xe8, 0x1b, 0, 0, 0]); // call work
    put(0x05, &[0xe8, 0x36, 0, 0, 0]); // call outer
    put(0x0a, &[0xc3]);
    put(0x20, &[0xe8, 0x3b, 0, 0, 0]); // call leaf
    put(0x25, &[0xc3]);
    put(0x40, &[0xe9, 0x1b, 0, 0, 0]); // jmp leaf
    put(0x60, &[0xc3]);
    code
}

/// The program's functions.
pub const FUNCTIONS: [elf::Function<'_>; 4] =
    [("main", 0, 0x0b), ("work", 0x20, 6), ("outer", 0x40, 5), ("leaf", 0x60, 1)];

/// An address that is not shortened.
#[must_use]
pub fn full(address: u64) -> Ip {
    Ip { bytes: IpBytes::Full, payload: address }
}

/// One branch that was taken, or a return to its call.
#[must_use]
pub fn taken() -> Packet {
    Packet::Tnt8(Tnt { bits: 1, count: 1 })
}

/// Packets as bytes.
#[must_use]
pub fn packets(packets: &[Packet]) -> Vec<u8> {
    let mut stream = Vec::new();
    packets.iter().for_each(|packet| encode::packet(*packet, &mut stream));
    stream
}

/// A synchronisation at this TSC.
#[must_use]
pub fn beginning(tsc: u64) -> Vec<Packet> {
    let mode = Packet::ModeExec { mode: ExecMode::Bits64, interrupts_enabled: true };
    vec![Packet::Psb, Packet::Tsc { ticks: tsc }, mode, Packet::PsbEnd]
}

/// The program from its begin to its end, with a time before each return.
#[must_use]
pub fn whole_run() -> Vec<u8> {
    let mut stream = beginning(1000);
    stream.extend([
        Packet::TipPge(full(BASE)),
        Packet::Tsc { ticks: 1100 },
        taken(),
        Packet::Tsc { ticks: 1200 },
        taken(),
        Packet::Tsc { ticks: 1300 },
        Packet::Ptw { payload: 0x2a, wide: false, ip: true },
        Packet::Fup(full(BASE + 0x05)),
        Packet::Tsc { ticks: 1400 },
        taken(),
        Packet::Tsc { ticks: 1500 },
        Packet::TipPgd(full(0x50_0000)),
    ]);
    packets(&stream)
}

fn id(time: u64, (pid, tid): (u32, u32)) -> SampleId {
    SampleId { pid: Some(pid), tid: Some(tid), time: Some(time), cpu: Some(2), id: Some(1) }
}

/// A recording of CPU 2, on which thread 41 of process 40 runs; TSC ticks are nanoseconds.
#[must_use]
pub fn recording(stream: &[u8]) -> Vec<u8> {
    // TID, TIME, CPU, IDENTIFIER.
    let sample_type = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16;
    let event = EventAttribute {
        pmu: 8,
        sample_type,
        sample_id_all: true,
        ids: vec![1],
        ..EventAttribute::default()
    };
    let mut encoder = PerfEncoder::new(vec![event]);
    encoder
        .auxtrace_info(1, &[8, 0, 1, 0, 1, 0x400, 0x800, 1, 0, 1, 0x200, 0x3c000, 0, 0, 2, 24, 0])
        .mmap2(40, (BASE, 0x1000, elf::CODE_OFFSET), "/opt/program", &id(10, (40, 41)))
        .switch(false, (0, 0), &id(900, (40, 41)))
        .aux(0, stream.len() as u64, 0, &id(1600, (40, 41)))
        .auxtrace(stream, 0, (0, None, Some(2)));
    encoder.file()
}

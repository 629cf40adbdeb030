// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel PT: packets of our encoder and of real captures; and the flow of a real program that ran in an emulator.

use super::{Case, capture, repeated};
use anyhow::Result;
use rtscope_hardware::Lost;
use rtscope_hardware::pt::{
    Block, ClockConfig, Decoder, Event, Flow, FlowDecoder, FlowSink, Memory, Packet, Place, Sink, SpaceId,
    Stamp, Tnt, Tracer, TracerConfig, encode,
};
use rtscope_testkit::emulated::Program;
use rtscope_testkit::random::Random;
use std::sync::OnceLock;

/// libipt's loop needs 2 to 7 ns for each byte of such streams.
const PACKETS_LIMIT: f64 = 4.0;

/// libipt's block decoder with time needs 43 ns for each byte of this stream, on a virtual machine of two CPUs.
const FLOW_LIMIT: f64 = 25.0;

/// The program's memory, for the function that decodes.
static MEMORY: OnceLock<Memory> = OnceLock::new();

/// Counts, and looks at what packets say.
#[derive(Default)]
struct Count {
    items: u64,
    sum: u64,
}

impl Sink for Count {
    #[inline]
    fn packet(&mut self, _: Place, packet: Packet) {
        self.items += 1;
        match packet {
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => self.sum = self.sum.wrapping_add(tnt.bits),
            Packet::Tip(ip) => self.sum = self.sum.wrapping_add(ip.payload),
            _ => {}
        }
    }

    fn lost(&mut self, lost: Lost) {
        self.sum = self.sum.wrapping_add(lost.bytes);
    }
}

impl FlowSink for Count {
    #[inline]
    fn block(&mut self, block: &Block, _: &Stamp) {
        self.items += 1;
        self.sum = self.sum.wrapping_add(block.address);
    }

    fn event(&mut self, event: Event, _: &Stamp) {
        assert!(!matches!(event, Event::Failed { .. } | Event::Lost(_)), "{event:?}");
    }
}

fn packets(bytes: &[u8]) -> (u64, u64) {
    let (mut decoder, mut count) = (Decoder::new(), Count::default());
    for piece in bytes.chunks(64 << 10) {
        decoder.push(piece, &mut count);
    }
    decoder.finish(&mut count);
    (count.items, count.sum)
}

fn flow(bytes: &[u8]) -> (u64, u64) {
    let clock = ClockConfig { mtc_frequency: 3, tsc_per_crystal: Some((100, 1)), nominal_ratio: Some(30) };
    let mut flow = Flow::new(clock);
    flow.change(SpaceId::FIRST, |memory| memory.clone_from(MEMORY.get_or_init(Memory::new)));
    let (mut decoder, mut count) = (FlowDecoder::new(flow), Count::default());
    for piece in bytes.chunks(64 << 10) {
        decoder.push(piece, &mut count);
    }
    decoder.finish(&mut count);
    (count.items, count.sum)
}

/// Mostly branches, some targets, as of a program without timing.
fn mix(at_least: usize) -> (Vec<u8>, u64) {
    let (mut random, mut stream, mut packets, mut last) = (Random(1), Vec::new(), 1, 0);
    encode::packet(Packet::Psb, &mut stream);
    while stream.len() < at_least {
        let any = random.next();
        let packet = if any % 8 == 0 {
            let target = 0x40_0000 + (any >> 8) % 0x2_0000;
            let ip = encode::shortest_ip(target, last);
            last = target;
            Packet::Tip(ip)
        } else {
            Packet::Tnt8(Tnt { bits: any >> 8 & 63, count: 6 })
        };
        encode::packet(packet, &mut stream);
        packets += 1;
    }
    (stream, packets)
}

/// A real program's stream, with a PSB each 16 KiB and an MTC with its CYC each 3200 instructions.
fn program(rounds: &str) -> Result<(Vec<u8>, u64)> {
    let directory = tempfile::tempdir()?;
    let program = Program::branches(directory.path())?;
    let mut memory = Memory::new();
    for (address, bytes) in &program.code {
        memory.add(*address, bytes.as_slice().into());
    }
    let _ = MEMORY.set(memory.clone());
    let mut tracer = Tracer::new(TracerConfig::default());
    let (mut before, mut executed, mut next_psb, mut next_mtc, mut known) = (None, 0_u64, 0, 800, true);
    program.run(rounds, |address| {
        match before {
            None => {
                tracer.synchronise(None, &[]);
                tracer.enable(address);
            }
            // A string instruction again.
            Some(before) if before == address => return,
            Some(before) => known &= tracer.executed(before, address, &mut memory).is_ok(),
        }
        let ticks = executed / 4;
        if ticks >= next_mtc {
            tracer.timing(Packet::Cyc { cycles: 800 });
            tracer.timing(Packet::Mtc { ctc: (ticks / 800) as u8 });
            next_mtc += 800;
        }
        if tracer.bytes() >= next_psb {
            next_psb = tracer.bytes() + (16 << 10);
            let time = [
                Packet::Tsc { ticks },
                Packet::Tma { ctc: (ticks / 100) as u16, fast_counter: (ticks % 100) as u16 },
                Packet::Cbr { ratio: 30 },
            ];
            tracer.synchronise(Some(address), &time);
        }
        executed += 1;
        before = Some(address);
    })?;
    anyhow::ensure!(known, "the program left its file");
    tracer.disable();
    let branches = tracer.branches();
    Ok((tracer.finish(), branches))
}

pub(super) fn cases(at_least: usize) -> Vec<Case> {
    let (bytes, count) = mix(at_least);
    let what = "PT: packets of our encoder".to_string();
    let mut cases = vec![Case { what, bytes, packets: Some(count), decode: packets, limit: PACKETS_LIMIT }];
    for path in ["pt/quipper/aux/q414-aux1-idx3-cpu3.bin", "pt/dynamorio-hello/pt.bin"] {
        if let Some(bytes) = capture(path) {
            let (what, bytes) = (format!("PT: packets of {path}"), repeated(&bytes, at_least));
            cases.push(Case { what, bytes, packets: None, decode: packets, limit: PACKETS_LIMIT });
        }
    }
    // Ten million branches take the emulator a minute.
    let rounds = if at_least > 4 << 20 { "2200" } else { "20" };
    match program(rounds) {
        Ok((bytes, branches)) => {
            let what = format!("PT: flow of {branches} branches of a program");
            cases.push(Case { what, bytes, packets: None, decode: flow, limit: FLOW_LIMIT });
        }
        Err(error) => eprintln!("PT: no flow of a program: {error}"),
    }
    cases
}

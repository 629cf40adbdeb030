// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A perf.data with AUX data and branch stacks, decoded as `rtscope hardware decode` does it: shown, and made a trace.

use rtscope_hardware::decode::{Findings, SeenPacket, Settings};
use rtscope_hardware::perfdata::encode::PerfEncoder;
use rtscope_hardware::perfdata::{Branch, EventAttribute, SampleId};
use rtscope_hardware::trace::HardwareEvent;
use rtscope_hardware::{Lost, spe};
use rtscope_session::Failure;
use rtscope_session::hardware::{Decoding, FindingsSink};
use std::fmt::{Display, Write};
use std::fs;

/// Whatever is found has a text.
#[derive(Default)]
struct Shown {
    text: String,
    items: usize,
}

impl Shown {
    fn show(&mut self, what: &dyn Display) {
        self.text.clear();
        self.items += 1;
        write!(self.text, "{what}").unwrap();
    }
}

impl Findings for Shown {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        self.show(packet.text);
    }

    fn flow(&mut self, _: Option<u64>, text: &dyn Display) {
        self.show(text);
    }

    fn event(&mut self, _: HardwareEvent) {
        self.items += 1;
    }

    fn lost(&mut self, _: Lost) {
        self.items += 1;
    }
}

impl FindingsSink for Shown {
    fn stream(&mut self, name: &str, unit: &str, _: u64) {
        self.show(&format_args!("{name} {unit}"));
    }

    fn wants_more(&self) -> bool {
        true
    }
}

pub fn decode(data: &[u8]) -> Option<()> {
    let dir = tempfile::tempdir().unwrap();
    let (file, target) = (dir.path().join("perf.data"), dir.path().join("trace"));
    fs::write(&file, data).unwrap();
    let mut decoding = Decoding::open(&file, &Settings::default()).ok()?;
    let mut shown = Shown::default();
    decoding.decode(&mut shown).ok()?;
    let _ = (decoding.report.has_losses(), decoding.judge(true));
    let mut decoding = Decoding::open(&file, &Settings::default()).unwrap();
    match decoding.write(&target, 0, None) {
        Ok(()) => {
            let written = decoding.report.trace.as_ref().unwrap().events;
            assert_eq!(crate::ctf::events_of_ours(&target), written);
        }
        // Without a time there is no trace.
        Err(Failure::Usage(_)) => {}
        Err(failure) => panic!("{failure}"),
    }
    (shown.items > 0).then_some(())
}

/// IP, TID, TIME, CPU and IDENTIFIER.
const FIELDS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16;
const BRANCH_STACK: u64 = 1 << 11;
/// The numbers of units in perf's headers.
const PT: u32 = 1;
const BTS: u32 = 2;
const ETM: u32 = 3;
const SPE: u32 = 4;

fn encoder(sample_type: u64) -> PerfEncoder {
    let event =
        EventAttribute { sample_type, sample_id_all: true, ids: vec![7], ..EventAttribute::default() };
    PerfEncoder::new(vec![event])
}

fn id(time: u64) -> SampleId {
    SampleId { pid: Some(40), tid: Some(41), time: Some(time), cpu: Some(3), id: Some(7) }
}

/// Each unit, and branch stacks; as a file and as a pipe.
pub fn seeds() -> Vec<Vec<u8>> {
    let pt = crate::pt::seeds("pt").concat();
    let bts: Vec<u8> = [0x40_1000_u64, 0x40_2000, 0x10].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut of_spe = spe::Encoder::new();
    of_spe.address(spe::AddressKind::Instruction, 1).events(3, 2).context(1, 5).timestamp(7).end();
    let frames = crate::arm::frame_seeds().remove(0).split_off(3);
    let etm = [0, 8 << 32 | 1, 0, 0x4040_4040_4040_4040, 3, 0xc1, 1, 0x2800_0ea1, 0x4100_f403, 0x488, 0, 0];
    let units: [(u32, &[u64], Vec<u8>); 4] = [
        (PT, &[8, 0, 1, 0, 1, 0x400, 0x800, 1, 0, 1, 0x200, 0x3c000, 308, 2, 2, 24, 0], pt),
        (BTS, &[9, 31, 1_076_264_588, 5, 1, 0], bts),
        (ETM, &etm, frames),
        (SPE, &[10, 0], of_spe.finish()),
    ];
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (kind, words, stream) in units {
        let mut encoder = encoder(FIELDS);
        encoder.auxtrace_info(kind, words).comm(40, 41, "loop", &id(50)).mmap2(
            40,
            (0x40_0000, 4096, 0),
            "/bin/loop",
            &id(60),
        );
        encoder.switch(false, (0, 0), &id(70)).aux(0, stream.len() as u64, 1, &id(100));
        encoder.auxtrace(&stream, 0, (0, None, Some(3))).lost(2, &id(110)).finished_round();
        seeds.extend([encoder.file(), encoder.pipe()]);
    }
    let mut stacks = encoder(FIELDS | BRANCH_STACK);
    let branch = Branch { from: 0x40_1000, to: 0x40_2000, flags: 1 | 77 << 4 };
    stacks.sample(&id(10), 5, &[branch; 3]).sample(&id(20), 6, &[]);
    seeds.push(stacks.file());
    // What the kernel claims to have written, and nothing of it is there.
    let mut claims = encoder(FIELDS);
    claims.auxtrace_info(BTS, &[9, 31, 1, 5, 1, 0]);
    claims.aux(0, u64::MAX, 1, &id(100)).aux(u64::MAX, u64::MAX, 1, &id(200));
    seeds.push(claims.file());
    seeds
}

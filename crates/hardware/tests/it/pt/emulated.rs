// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real program in an emulator that tells each instruction; traced by our encoder, followed by our decoder.

use rtscope_hardware::pt::{
    Block, ClockConfig, Event, ExecMode, Flow, FlowDecoder, FlowSink, Memory, Packet, SpaceId, Stamp, Tracer,
    TracerConfig,
};
use rtscope_testkit::emulated::Program;
use rtscope_testkit::skip;

/// Addresses in their order, as one number and a count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sequence {
    count: u64,
    digest: u64,
}

impl Sequence {
    fn add(&mut self, address: u64) {
        self.count += 1;
        self.digest = (self.digest.rotate_left(5) ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

struct Followed {
    memory: Memory,
    /// A repeated string instruction is executed once for the trace, and told for each repetition by the emulator.
    last: u64,
    sequence: Sequence,
    failed: Vec<(Event, Stamp)>,
}

impl FlowSink for Followed {
    fn block(&mut self, block: &Block, _: &Stamp) {
        for instruction in self.memory.instructions(block, ExecMode::Bits64) {
            let (address, _) = instruction.unwrap();
            self.sequence.add(address);
            self.last = address;
        }
    }

    fn event(&mut self, event: Event, stamp: &Stamp) {
        if matches!(event, Event::Failed { .. } | Event::Lost(_)) {
            self.failed.push((event, *stamp));
        }
    }
}

#[test]
fn a_real_program_is_followed_instruction_by_instruction() {
    if rtscope_testkit::skip::without_tool(rtscope_testkit::emulated::QEMU) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = match Program::branches(directory.path()) {
        Ok(program) => program,
        Err(error) => skip!("gcc makes no static program: {error}"),
    };
    let mut memory = Memory::new();
    for (address, bytes) in &program.code {
        memory.add(*address, bytes.as_slice().into());
    }
    // Some 10 branches for each 50 instructions; the long form has ten million of them.
    let (rounds, branches_at_least) =
        if rtscope_testkit::full() { ("2200", 10_000_000) } else { ("20", 100_000) };
    let mut traced = memory.clone();
    let mut tracer = Tracer::new(TracerConfig::default());
    let (mut before, mut executed, mut next_psb) = (None, Sequence::default(), 0);
    program
        .run(rounds, |address| {
            match before {
                None => {
                    tracer.synchronise(None, &[]);
                    tracer.enable(address);
                }
                // The string instruction again.
                Some(before) if before == address => return,
                Some(before) => tracer.executed(before, address, &mut traced).unwrap(),
            }
            if tracer.bytes() >= next_psb {
                next_psb = tracer.bytes() + (16 << 10);
                tracer.synchronise(Some(address), &[Packet::Tsc { ticks: executed.count }]);
            }
            executed.add(address);
            before = Some(address);
        })
        .unwrap();
    // The last one ends the process.
    tracer.disable();
    let branches = tracer.branches();
    let stream = tracer.finish();

    let mut flow = Flow::new(ClockConfig::default());
    flow.change(SpaceId::FIRST, |there| *there = memory.clone());
    let mut decoder = FlowDecoder::new(flow);
    let mut followed = Followed { memory, last: 0, sequence: Sequence::default(), failed: Vec::new() };
    for piece in stream.chunks(4096) {
        decoder.push(piece, &mut followed);
    }
    decoder.finish(&mut followed);
    assert_eq!(followed.failed, []);
    assert_eq!(followed.sequence, executed, "the last at {:x}", followed.last);
    assert!(branches >= branches_at_least, "{branches} branches");
    println!("{} instructions, {branches} branches, {} bytes", executed.count, stream.len());
}

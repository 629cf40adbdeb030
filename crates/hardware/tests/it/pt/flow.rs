// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flow of real captures: the instructions and events of libipt's `ptxed`.
//!
//! The programs are small, and their instructions are in what `ptxed` printed; so their code is here as bytes.

use std::fmt::Write;

use rtscope_hardware::pt::{
    Block, ClockConfig, Event, Flow, FlowDecoder, FlowSink, Packet, SpaceId, Stamp, Tnt, encode,
};

use crate::captures::{self, capture};

/// Prints what happens as `ptxed` does.
#[derive(Default)]
struct Printed {
    blocks: Vec<Block>,
    /// Events and blocks in their order: a block is a number.
    lines: Vec<Result<Block, String>>,
}

impl FlowSink for Printed {
    fn block(&mut self, block: &Block, _: &Stamp) {
        self.blocks.push(*block);
        self.lines.push(Ok(*block));
    }

    fn event(&mut self, event: Event, stamp: &Stamp) {
        let mut line = String::from("[");
        if let Some(time) = stamp.time {
            write!(line, "{:016x}  ", time.ticks).unwrap();
        }
        match event {
            Event::Enabled { ip, resumed: false } => write!(line, "enabled, ip: {ip:016x}"),
            Event::Enabled { ip, resumed: true } => write!(line, "resumed, ip: {ip:016x}"),
            Event::Disabled { at: Some(at), .. } => write!(line, "disabled, at: {at:016x}"),
            Event::Disabled { at: None, .. } => write!(line, "disabled"),
            Event::Mode { .. } | Event::Synchronised { .. } | Event::Frequency { .. } | Event::Lost(_) => {
                return;
            }
            other => write!(line, "{other:?}"),
        }
        .unwrap();
        self.lines.push(Err(line + "]"));
    }
}

/// Addresses and events, in order.
fn printed(stream: &[u8], code: (u64, &[u8]), config: ClockConfig) -> Vec<String> {
    let mut flow = Flow::new(config);
    flow.change(SpaceId::FIRST, |memory| memory.add(code.0, code.1.into()));
    let (mut decoder, mut printed) = (FlowDecoder::new(flow), Printed::default());
    for piece in stream.chunks(97) {
        decoder.push(piece, &mut printed);
    }
    decoder.finish(&mut printed);
    let memory = decoder.flow.memory(SpaceId::FIRST);
    let mut lines = Vec::new();
    for line in printed.lines {
        match line {
            Ok(block) => {
                let instructions = memory.instructions(&block, decoder.flow.mode());
                lines.extend(instructions.map(|instruction| format!("{:016x}", instruction.unwrap().0)));
            }
            Err(line) => lines.push(line),
        }
    }
    lines
}

/// What `ptxed` printed: addresses without the instructions' text, events without those that tell of the mode.
fn of_ptxed(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.contains("exec mode"))
        .map(|line| match line.strip_prefix('[') {
            Some(_) => line.to_owned(),
            None => line.split_whitespace().next().unwrap().to_owned(),
        })
        .collect()
}

/// The time that begins an event's line, apart from the rest.
fn apart(line: &str) -> (Option<u64>, &str) {
    let Some(inner) = line.strip_prefix('[') else { return (None, line) };
    match inner.split_once("  ") {
        Some((time, rest)) => (Some(u64::from_str_radix(time, 16).unwrap()), rest),
        None => (None, inner),
    }
}

fn row(capture: &str, what: &str, count: usize) {
    let (unit, oracle, compared) = ("Intel PT", "libipt 2.3, ptxed", &[(what, count, count)][..]);
    captures::Row { capture, unit, oracle, compared, bytes: None, notes: "" }.print();
}

#[test]
fn instructions_and_times_of_a_skylake_x_are_those_of_ptxed() {
    let stream = std::fs::read(capture!("pt/dynamorio-hello/pt.bin")).unwrap();
    let code = [
        &[0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0][..],
        &[0x48, 0xbe, 0, 0x20, 0x40, 0, 0, 0, 0, 0, 0xba, 0x0e, 0, 0, 0, 0x0f, 5],
        &[0xb8, 0x3c, 0, 0, 0, 0xbf, 0, 0, 0, 0, 0x0f, 5],
    ]
    .concat();
    let config = ClockConfig { mtc_frequency: 3, tsc_per_crystal: Some((308, 2)), nominal_ratio: Some(37) };
    let ours = printed(&stream, (0x40_1000, &code), config);
    let theirs =
        of_ptxed(&std::fs::read_to_string(capture!("expected/ptxed-2.3/dynamorio-hello.txt")).unwrap());
    assert_eq!(ours.len(), theirs.len(), "{ours:#?}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let ((our_time, our_line), (their_time, their_line)) = (apart(ours), apart(theirs));
        assert_eq!(our_line, their_line);
        let difference = our_time.unwrap_or(0).abs_diff(their_time.unwrap_or(0));
        // Two cycles of 3.08 ticks.
        assert!(difference <= 6, "{ours} but {theirs}");
    }
    row("dynamorio-hello", "instructions, events", ours.len());
}

#[test]
fn instructions_of_a_broadwell_are_those_of_ptxed() {
    let stream = std::fs::read(capture!("pt/lldb-single/3842849.trace")).unwrap();
    let code = [
        &[0xc7, 0x45, 0xfc, 0, 0, 0, 0, 0xc7, 0x45, 0xf8, 0, 0, 0, 0, 0xeb, 8][..],
        &[0x83, 0x75, 0xfc, 1, 0x83, 0x45, 0xf8, 1, 0x83, 0x7d, 0xf8, 3, 0x7e, 0xf2],
    ]
    .concat();
    let ours = printed(&stream, (0x40_0511, &code), ClockConfig::default());
    assert_eq!(
        ours,
        of_ptxed(&std::fs::read_to_string(capture!("expected/ptxed-2.3/lldb-single.txt")).unwrap())
    );
    assert_eq!(ours.iter().filter(|line| !line.starts_with('[')).count(), 21);
    row("lldb-single", "instructions, events", ours.len());
}

/// The failures of a program (at 0x1000) with a stream that begins at its first instruction.
fn failures(code: &[u8], packets: &[Packet]) -> Vec<String> {
    let mut stream = Vec::new();
    let begin = [Packet::Psb, Packet::PsbEnd, Packet::TipPge(encode::shortest_ip(0x1000, 0))];
    for packet in begin.iter().chain(packets) {
        encode::packet(*packet, &mut stream);
    }
    let lines = printed(&stream, (0x1000, code), ClockConfig::default());
    lines.into_iter().filter(|line| line.contains("Failed")).collect()
}

#[test]
fn a_packet_that_the_program_cannot_make_is_an_error_where_it_is() {
    let tnt = |bits| Packet::Tnt8(Tnt { bits, count: 1 });
    let tip = Packet::Tip(encode::shortest_ip(0x1000, 0x1000));
    let failed = |error: &str| vec![format!("[Failed {{ error: {error}, ip: 4096 }}]")];
    // JE, JMP RAX, RET, JMP to itself, UD2, and a byte that begins no instruction in 64-bit code.
    assert_eq!(failures(&[0x74, 0, 0xff, 0xe0], &[tip]), failed("TargetForCondition"));
    assert_eq!(failures(&[0xff, 0xe0], &[tnt(1), tnt(1)]), failed("TargetMissing"));
    assert_eq!(failures(&[0xff, 0xe0], &[tip, tip]), Vec::<String>::new());
    assert_eq!(failures(&[0xeb, 0xfe], &[tnt(1)]), failed("Endless"));
    assert_eq!(failures(&[0x0f, 0x0b], &[tnt(1)]), failed("Undefined"));
    assert_eq!(failures(&[0x06], &[tnt(1)]), failed("Code(NoInstruction(4096))"));
    assert_eq!(failures(&[], &[tnt(1)]), failed("Code(Unknown(4096))"));
    // CALL to a RET that is traced as not taken.
    let lines = failures(&[0xe8, 1, 0, 0, 0, 0x90, 0xc3], &[tnt(0)]);
    assert_eq!(lines, ["[Failed { error: ReturnNotTaken, ip: 4102 }]"]);
}

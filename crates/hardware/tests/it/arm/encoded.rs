// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that our encoders make of a run whose instructions are known: the decoders find the same instructions. These tests
//! need no capture.

use super::program::{End, Program, Step};
use rtscope_hardware::Lost;
use rtscope_hardware::coresight::{Deformatter, Formatter, FrameSink, Framing};
use rtscope_hardware::etm::isa::Isa;
use rtscope_hardware::etm::{At, Element, ElementSink, Fault, Image, Isa32, Sink, Spaces, ptm, v3, v4};
use rtscope_testkit::random::Random;

/// A range: first address, address after the last instruction, how many, whether taken.
type Ran = (u64, u64, u32, bool);

#[derive(Default)]
struct Elements {
    ranges: Vec<Ran>,
    exceptions: Vec<(u16, Option<u64>)>,
    times: Vec<u64>,
    cycles: u64,
    gaps: usize,
}

impl ElementSink for Elements {
    fn element(&mut self, _: u64, element: &Element) {
        match *element {
            Element::Range(range) => {
                self.ranges.push((range.start, range.end, range.instructions, range.taken));
                self.cycles += u64::from(range.cycles.unwrap_or(0));
            }
            Element::Exception { number, return_address } => self.exceptions.push((number, return_address)),
            Element::Timestamp { value, .. } => self.times.push(value),
            Element::Cycles(Some(cycles)) => self.cycles += u64::from(cycles),
            Element::Gap(_) | Element::NoMemory { .. } => self.gaps += 1,
            _ => {}
        }
    }
}

fn image(program: &Program) -> Image {
    let mut image = Image::new();
    image.add(Spaces::ANY, program.base, program.code.clone());
    image
}

/// Gives a stream in pieces of all sizes, and checks the account of its bytes.
macro_rules! decode {
    ($unit:ident, $config:expr, $program:expr, $stream:expr) => {{
        let mut flow = $unit::Flow::new($config, image($program), Elements::default());
        let mut packets = $unit::Packets::new($config);
        let (mut place, mut size) = (0, 1);
        while place < $stream.len() {
            let end = $stream.len().min(place + size);
            packets.push(place as u64, &$stream[place..end], &mut flow);
            place = end;
            size = size % 17 + 1;
        }
        packets.finish(&mut flow);
        assert!(packets.counts().balanced(), "{:?}", packets.counts());
        assert_eq!(packets.counts().lost_bytes, 0);
        assert_eq!(packets.counts().input, $stream.len() as u64);
        flow
    }};
}

fn size(isa: Isa) -> u64 {
    if isa == Isa::T32 { 2 } else { 4 }
}

/// The waypoints of a run.
fn ranges(program: &Program, steps: &[Step]) -> Vec<Ran> {
    let ran = |step: &Step| match *step {
        Step::Block { index, taken, .. } => {
            let block = &program.blocks[index];
            (block.start, block.end, block.instructions, taken)
        }
        Step::Exception { index, instructions, .. } => {
            let start = program.blocks[index].start;
            (start, start + u64::from(instructions) * size(program.isa), instructions, true)
        }
    };
    steps.iter().map(ran).collect()
}

fn is_indirect(end: End) -> bool {
    matches!(end, End::Return | End::Register)
}

/// Returns that a return stack foresees.
#[derive(Default)]
struct Returns(Vec<u64>);

impl Returns {
    /// Whether the target of this step needs an address.
    fn needs_address(&mut self, program: &Program, index: usize, next: usize) -> bool {
        let block = &program.blocks[index];
        match block.how {
            End::Call(_) => {
                self.0.push(block.end);
                self.0 = self.0.split_off(self.0.len().saturating_sub(16));
                false
            }
            End::Return | End::Register => match self.0.pop() {
                Some(address) if address == program.blocks[next].start => false,
                // The unit's stack does not fit: it gives the address, and keeps its entry.
                Some(address) => {
                    self.0.push(address);
                    true
                }
                None => true,
            },
            _ => false,
        }
    }
}

fn atom(encoder: &mut v4::Encoder, taken: bool, speculate: bool, random: &mut Random) {
    if speculate && random.below(10) == 0 {
        // A path that was not: cancelled, or only its direction was wrong.
        encoder.atom(true);
        encoder.atom(false);
        encoder.cancel(2, false);
    }
    if speculate && random.below(10) == 0 {
        encoder.atom(!taken);
        encoder.mispredict();
    } else {
        encoder.atom(taken);
    }
}

fn etm4(isa: Isa, config: &v4::Config, seed: u64, speculate: bool) {
    let mut random = Random(seed + 1);
    let base = if isa == Isa::A64 { 0xFFFF_8000_0008_0000 } else { 0x8000_8000 };
    let program = Program::new(isa, base, &mut random);
    let steps = program.run(3000, true, &mut random);
    let context =
        v4::Context { level: 1, is_64_bit: isa == Isa::A64, non_secure: true, ..v4::Context::default() };
    let is1 = isa == Isa::T32;
    let mut encoder = v4::Encoder::new(config);
    encoder.synchronise(v4::TraceInfo::default());
    encoder.trace_on();
    encoder.address_context(program.blocks[0].start, is1, &context);
    let (mut times, mut exceptions, mut returns) = (Vec::new(), Vec::new(), Returns::default());
    let mut pending = 0;
    for (step, _) in steps.iter().zip(0u64..) {
        match *step {
            Step::Block { index, taken, next } => {
                atom(&mut encoder, taken, speculate, &mut random);
                pending += 1;
                let target = program.blocks[next].start;
                if config.return_stack() {
                    if returns.needs_address(&program, index, next) {
                        encoder.address(target, is1);
                    }
                } else if is_indirect(program.blocks[index].how) {
                    encoder.address(target, is1);
                }
            }
            Step::Exception { index, instructions, handler } => {
                let back = program.blocks[index].start + u64::from(instructions) * size(isa);
                encoder.exception(0xE, false);
                encoder.address(back, is1);
                encoder.address(program.blocks[handler].start, is1);
                exceptions.push((0xE, Some(back)));
                pending += 1;
            }
        }
        if speculate && (pending >= 3 || random.below(3) == 0) {
            encoder.commit(pending);
            pending = 0;
        }
        if random.below(40) == 0 {
            let value = times.last().map_or(1 << 40, |last| last + random.below(1 << 20));
            encoder.timestamp(value, None);
            times.push(value);
        }
        if random.below(300) == 0 {
            if pending > 0 && speculate {
                encoder.commit(std::mem::take(&mut pending));
            }
            encoder.event(3);
        }
    }
    if pending > 0 && speculate {
        encoder.commit(pending);
    }
    let stream = encoder.finish();
    let mut flow = decode!(v4, config, &program, stream);
    flow.finish();
    let found = flow.into_sink();
    assert_eq!(found.gaps, 0);
    assert_eq!(found.exceptions, exceptions);
    assert_eq!(found.times, times);
    assert_eq!(found.ranges, ranges(&program, &steps));
}

#[test]
fn etmv4_runs_are_found_in_each_instruction_set() {
    for isa in [Isa::A64, Isa::A32, Isa::T32] {
        for seed in 0..5 {
            etm4(isa, &v4::Config::default(), seed, false);
        }
    }
}

/// Paths of which not every instruction is known.
#[derive(Default)]
struct UnknownPaths(Vec<Element>);

impl ElementSink for UnknownPaths {
    fn element(&mut self, _: u64, element: &Element) {
        self.0.extend(matches!(element, Element::UnknownPath { .. }).then_some(*element));
    }
}

#[test]
fn instructions_after_a_return_whose_target_nobody_says_are_told() {
    // Q elements with a count; no return stack.
    let config = v4::Config { idr0: v4::Config::default().idr0 | 0b01 << 15, ..v4::Config::default() };
    let mut image = Image::new();
    // NOP, RET of A64.
    image.add(Spaces::ANY, 0x1000, [0xD503_201Fu32.to_le_bytes(), 0xD65F_03C0u32.to_le_bytes()].concat());
    let mut encoder = v4::Encoder::new(&config);
    encoder.synchronise(v4::TraceInfo::default());
    encoder.trace_on();
    encoder.address_context(
        0x1000,
        false,
        &v4::Context { level: 1, is_64_bit: true, ..v4::Context::default() },
    );
    encoder.atom(true);
    encoder.q(5, 0x1004, false);
    // And from a place that is known, with more instructions than lead there.
    encoder.q(7, 0x1000, false);
    let stream = encoder.finish();
    let mut flow = v4::Flow::new(&config, image, UnknownPaths::default());
    let mut packets = v4::Packets::new(&config);
    packets.push(0, &stream, &mut flow);
    packets.finish(&mut flow);
    flow.finish();
    let path = |start, end, count| Element::UnknownPath { start, end, instructions: Some(count) };
    assert_eq!(flow.into_sink().0, [path(None, 0x1004, 5), path(Some(0x1004), 0x1000, 7)]);
}

#[test]
fn etmv4_returns_without_an_address_are_found_by_the_return_stack() {
    let config = v4::Config { configr: 1 << 12, ..v4::Config::default() };
    for seed in 0..5 {
        etm4(Isa::A64, &config, seed, false);
        etm4(Isa::T32, &config, seed, false);
    }
}

#[test]
fn ete_speculation_is_committed_cancelled_and_turned() {
    let config =
        v4::Config { devarch: Some(0x4770_5A13), idr1: 0x4100_FFF0, idr8: 16, ..v4::Config::default() };
    for seed in 0..5 {
        etm4(Isa::A64, &config, seed, true);
    }
}

fn isa32(isa: Isa) -> Isa32 {
    if isa == Isa::T32 { Isa32::T32 } else { Isa32::A32 }
}

fn run_ptm(isa: Isa, config: &ptm::Config, seed: u64) {
    let mut random = Random(seed + 1);
    let program = Program::new(isa, 0x8000_8000, &mut random);
    let steps = program.run(3000, false, &mut random);
    let mut encoder = ptm::Encoder::new(config);
    encoder.synchronise(program.blocks[0].start as u32, isa32(isa), ptm::Reason::TraceOn, 7);
    let (mut returns, mut times, mut cycles) = (Returns::default(), Vec::new(), 0);
    for step in &steps {
        let Step::Block { index, taken, next } = *step else { unreachable!() };
        let own = random.below(1000) as u32;
        cycles += if config.is_cycle_accurate() { u64::from(own) } else { 0 };
        let needed = returns.needs_address(&program, index, next);
        if is_indirect(program.blocks[index].how) && (needed || !config.return_stack()) {
            encoder.branch(program.blocks[next].start as u32, isa32(isa), None, own);
        } else {
            encoder.atom(taken, own);
        }
        if random.below(40) == 0 {
            let value = times.last().map_or(1 << 40, |last| last + random.below(1 << 20));
            encoder.timestamp(value, 0);
            times.push(value);
        }
    }
    let stream = encoder.finish();
    let found = decode!(ptm, config, &program, stream).into_sink();
    assert_eq!((found.gaps, found.cycles), (0, cycles));
    assert_eq!(found.times, times);
    assert_eq!(found.ranges, ranges(&program, &steps));
}

#[test]
fn ptm_runs_are_found_with_and_without_cycles_and_return_stack() {
    for isa in [Isa::A32, Isa::T32] {
        for seed in 0..5 {
            run_ptm(isa, &ptm::Config::default(), seed);
            run_ptm(isa, &ptm::Config { control: 1 << 12, ..ptm::Config::default() }, seed);
            run_ptm(isa, &ptm::Config { control: 1 << 29 | 3 << 14, ..ptm::Config::default() }, seed);
        }
    }
}

fn run_etm3(isa: Isa, config: &v3::Config, seed: u64) {
    let mut random = Random(seed + 1);
    let program = Program::new(isa, 0x8000_8000, &mut random);
    let steps = program.run(1000, true, &mut random);
    let mut encoder = v3::Encoder::new(config);
    encoder.synchronise(program.blocks[0].start as u32, isa32(isa), ptm::Reason::TraceOn, 7);
    let mut expected = Vec::new();
    let mut exceptions = Vec::new();
    for step in &steps {
        let (index, plain) = match *step {
            Step::Block { index, .. } => (index, program.blocks[index].instructions - 1),
            Step::Exception { index, instructions, .. } => (index, instructions),
        };
        let block = &program.blocks[index];
        for place in 0..u64::from(plain) {
            let start = block.start + place * size(isa);
            expected.push((start, start + size(isa), 1, true));
            encoder.instruction(true);
        }
        match *step {
            Step::Block { taken, next, .. } => {
                expected.push((block.last, block.end, 1, taken));
                encoder.instruction(taken);
                if is_indirect(block.how) {
                    encoder.branch(program.blocks[next].start as u32, isa32(isa), None);
                }
            }
            Step::Exception { handler, .. } => {
                let cancels = random.below(2) == 0;
                if cancels {
                    expected.pop();
                }
                exceptions.push((0xE, None));
                encoder.branch(program.blocks[handler].start as u32, isa32(isa), Some((0xE, cancels)));
            }
        }
    }
    let stream = encoder.finish();
    let mut flow = decode!(v3, config, &program, stream);
    flow.finish();
    let found = flow.into_sink();
    assert_eq!(found.gaps, 0);
    assert_eq!(found.exceptions, exceptions);
    assert_eq!(found.ranges, expected);
}

#[test]
fn etmv3_runs_are_found_with_both_encodings_of_branches() {
    for isa in [Isa::A32, Isa::T32] {
        for seed in 0..5 {
            run_etm3(isa, &v3::Config::default(), seed);
            run_etm3(isa, &v3::Config { id: 0x4114_F250, control: 2 << 14, ..v3::Config::default() }, seed);
        }
    }
}

/// Data of each source, with nothing else.
#[derive(Default)]
struct Sources {
    data: std::collections::BTreeMap<u8, Vec<u8>>,
    lost: u64,
    discontinuities: usize,
}

impl FrameSink for Sources {
    fn data(&mut self, id: u8, _: u64, bytes: &[u8]) {
        self.data.entry(id).or_default().extend(bytes);
    }
    fn lost(&mut self, lost: Lost) {
        self.lost += lost.bytes;
    }
    fn discontinuity(&mut self, _: u64) {
        self.discontinuities += 1;
    }
}

fn frames(framing: Framing, change: impl Fn(Vec<u8>) -> Vec<u8>) {
    let mut random = Random(3 + 1);
    let mut formatter = if framing == Framing::Memory { Formatter::new() } else { Formatter::with_fsync() };
    let mut expected = Sources::default();
    for _ in 0..2000 {
        let id = 1 + random.below(0x6F) as u8;
        // Not FF: the formatter's output must not have an FSYNC in it, and so has none (D4.2.3).
        let bytes: Vec<u8> = (0..random.below(20)).map(|_| random.below(0xFE) as u8).collect();
        formatter.write(id, &bytes);
        expected.data.entry(id).or_default().extend(&bytes);
    }
    let stream = change(formatter.finish());
    let mut deformatter = Deformatter::new(framing);
    let mut found = Sources::default();
    for piece in stream.chunks(7) {
        deformatter.push(piece, &mut found);
        assert!(deformatter.counts().balanced(), "{:?}", deformatter.counts());
    }
    deformatter.finish(&mut found);
    expected.data.retain(|_, bytes| !bytes.is_empty());
    assert_eq!(found.data, expected.data);
    assert_eq!(found.lost, 0);
}

#[test]
fn frames_give_each_source_its_bytes() {
    frames(Framing::Memory, |stream| stream);
    frames(Framing::Fsync, |stream| stream);
    frames(Framing::FsyncHsync, |stream| {
        // An HSYNC after each halfword that is not within an FSYNC.
        stream
            .chunks(4)
            .flat_map(|four| {
                if four == [0xFF, 0xFF, 0xFF, 0x7F] {
                    four.to_vec()
                } else {
                    [&four[..2], &[0xFF, 0x7F], &four[2..]].concat()
                }
            })
            .collect()
    });
    frames(Framing::Dstream, |stream| {
        stream
            .chunks(504)
            .flat_map(|block| [block, if block.len() == 504 { &[7; 8] } else { &[] }].concat())
            .collect()
    });
}

#[test]
fn a_barrier_forgets_the_source() {
    let mut formatter = Formatter::new();
    formatter.write(0x10, &[1, 2, 3]);
    formatter.barrier();
    let mut stream = formatter.finish();
    // Without an identifier nobody knows whose these are.
    stream.extend([2; 15]);
    stream.push(0);
    let mut found = Sources::default();
    let mut deformatter = Deformatter::new(Framing::Memory);
    deformatter.push(&stream, &mut found);
    deformatter.finish(&mut found);
    assert_eq!(found.data[&0x10], [1, 2, 3]);
    assert_eq!((found.lost, found.discontinuities), (15, 1));
    assert!(deformatter.counts().balanced());
}

/// Packets and losses as lines.
#[derive(Default)]
struct Lines(Vec<String>);

impl Sink<v4::Packet> for Lines {
    fn packet(&mut self, at: At, packet: &v4::Packet) {
        self.0.push(format!("{} {packet}", at.offset));
    }
    fn lost(&mut self, lost: Lost, fault: Fault) {
        self.0.push(format!("{} {} bytes {fault:?}", lost.offset, lost.bytes));
    }
}

#[test]
fn etmv4_packets_read_as_the_specification_says() {
    let config = v4::Config { idr0: 0x0800_0EA1, idr1: 0x4100_F413, idr2: 0x1088, ..v4::Config::default() };
    let mut stream = vec![0xF7, 0x00];
    stream.extend([0; 11]);
    stream.extend([0x80, 0x01, 0x09, 0x01, 0x05]);
    // Context with both identifiers, addresses in all forms, an exact match.
    stream.extend([0x81, 0xF1, 4, 3, 2, 1, 8, 7, 6, 5]);
    stream.extend([0x9D, 0x01, 0x02, 3, 4, 5, 6, 7, 8, 0x95, 0x01, 0x95, 0x81, 0xFF, 0x9A, 1, 0, 0, 0, 0x92]);
    // Atoms of each format, cycles of each format, times, and a header that there is not.
    stream.extend([
        0xF6, 0xDA, 0xFB, 0xDC, 0xF5, 0xC0, 0xE1, 0x10, 0x0C, 0x23, 0x0E, 1, 2, 0x02, 0x81, 0x01, 0x93, 0x02,
        0x03, 0x9F,
    ]);
    let mut lines = Lines::default();
    let mut packets = v4::Packets::new(&config);
    packets.push(0, &stream, &mut lines);
    packets.finish(&mut lines);
    assert!(packets.counts().balanced());
    let expected = [
        "0 2 bytes NotSynchronised",
        "2 Async",
        "14 TraceInfo info=0x1 speculation=0 cycle threshold=5",
        "18 Context EL1 non-secure AArch64 context 0x5060708 vmid 0x1020304",
        "28 Address 0x807060504030404",
        "37 Address 0x807060504030404",
        "39 Address 0x80706050403fe04",
        "42 Address 0x807060500000004",
        "47 Address 0x807060504030404",
        "48 Atoms N",
        "49 Atoms NE",
        "50 Atoms EEN",
        "51 Atoms NEEE",
        "52 Atoms NEEEE",
        "53 Atoms EEEE",
        "54 Atoms EEEEN",
        "55 Cycles 5",
        "56 Cycles 8",
        "58 Cycles 7",
        "61 Timestamp 129",
        "64 1 bytes Reserved",
        "65 Timestamp 131",
        "67 1 bytes Reserved",
    ];
    assert_eq!(lines.0, expected);
}

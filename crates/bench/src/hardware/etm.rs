// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formatter frames, packets of ETMv4, and its flow with the program's image, beside OpenCSD's library on the same trace.
//!
//! The program is one that we make up: 4096 blocks of some instructions, with branches, calls and returns, so that the code does
//! not fit into what the decoder remembers. OpenCSD is a process (`c/opencsd.c`); its start is in its time.

use super::Case;
use crate::requirements::CC;
use crate::table::{Promise, Row};
use anyhow::{Context, ensure};
use rtscope_hardware::Lost;
use rtscope_hardware::coresight::{Deformatter, Formatter, FrameSink, Framing};
use rtscope_hardware::etm::{At, Element, ElementSink, Fault, Image, Sink, Spaces, v4};
use rtscope_testkit::random::Random;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// 200 MB/s.
const LIMIT_FRAMES: f64 = 5.0;
const LIMIT_PACKETS: f64 = 20.0;
/// Of the flow, which is bounded by the comparison.
const LIMIT_FLOW: f64 = 150.0;
/// How much more ranges a second than OpenCSD.
const TIMES_OPENCSD: f64 = 3.0;

const OURS: &str = "ETMv4: flow, from frames";
const OPENCSD: &str = "ETMv4: flow, from frames: OpenCSD";
const ID: u8 = 0x10;
const BASE: u64 = 0xFFFF_8000_0008_0000;
const BLOCKS: u64 = 4096;
/// Instructions of a block.
const LENGTH: u64 = 8;

/// Counts, and looks at what there is.
#[derive(Default)]
struct Count {
    found: u64,
    sum: u64,
}

impl FrameSink for Count {
    fn data(&mut self, id: u8, _: u64, bytes: &[u8]) {
        self.found += bytes.len() as u64;
        self.sum = self.sum.wrapping_add(u64::from(id) + u64::from(bytes[0]));
    }
    fn lost(&mut self, lost: Lost) {
        self.sum += lost.bytes;
    }
}

impl Sink<v4::Packet> for Count {
    fn packet(&mut self, at: At, packet: &v4::Packet) {
        self.found += 1;
        if let v4::Packet::Address(address) = packet {
            self.sum = self.sum.wrapping_add(address.value + at.offset);
        }
    }
    fn lost(&mut self, lost: Lost, _: Fault) {
        self.sum += lost.bytes;
    }
}

impl ElementSink for Count {
    fn element(&mut self, _: u64, element: &Element) {
        if let Element::Range(range) = element {
            self.found += 1;
            self.sum = self.sum.wrapping_add(range.start + u64::from(range.instructions));
        }
    }
}

/// Source of frames: packets, and from them the flow.
struct Unit {
    packets: v4::Packets,
    flow: v4::Flow<Count>,
}

impl FrameSink for Unit {
    fn data(&mut self, id: u8, offset: u64, bytes: &[u8]) {
        if id == ID {
            self.packets.push(offset, bytes, &mut self.flow);
        }
    }
    fn lost(&mut self, _: Lost) {}
}

/// A program, and a trace of it in frames.
struct Trace {
    code: Vec<u8>,
    stream: Vec<u8>,
    frames: Vec<u8>,
    ranges: u64,
}

fn block(index: u64) -> u64 {
    BASE + index % BLOCKS * LENGTH * 4
}

/// One in six returns or jumps by register, one in six calls, the others are conditional.
fn last(index: u64, random: &mut Random) -> (u32, u64) {
    let to = random.below(BLOCKS);
    let offset = (block(to).wrapping_sub(block(index) + (LENGTH - 1) * 4) as u32) >> 2;
    match index % 6 {
        0 => (0xD65F_03C0, to),
        1 => (0x9400_0000 | offset & 0x3FF_FFFF, to),
        _ => (0x5400_0000 | (offset & 0x7_FFFF) << 5, to),
    }
}

fn trace(at_least: usize) -> Trace {
    let mut random = Random(1);
    let ends: Vec<(u32, u64)> = (0..BLOCKS).map(|index| last(index, &mut random)).collect();
    let mut code = Vec::new();
    for (end, _) in &ends {
        code.extend((1..LENGTH).flat_map(|_| 0xD503_201F_u32.to_le_bytes()));
        code.extend(end.to_le_bytes());
    }
    let mut encoder = v4::Encoder::new(&v4::Config::default());
    let context = v4::Context { level: 1, is_64_bit: true, ..v4::Context::default() };
    let (mut place, mut ranges) = (0, 0);
    // Some three atoms for each byte.
    while ranges < at_least as u64 {
        if ranges % 4096 == 0 {
            encoder.synchronise(v4::TraceInfo::default());
            encoder.trace_on();
            encoder.address_context(block(place), false, &context);
        }
        let (_, to) = ends[place as usize];
        let (taken, next) = match place % 6 {
            0 => (true, random.below(BLOCKS)),
            1 => (true, to),
            _ if random.flag() => (true, to),
            _ => (false, (place + 1) % BLOCKS),
        };
        // The last block has nothing behind it.
        let (taken, next) = if place == BLOCKS - 1 && !taken { (true, to) } else { (taken, next) };
        encoder.atom(taken);
        ranges += 1;
        if place % 6 == 0 {
            encoder.address(block(next), false);
        }
        place = next;
    }
    let stream = encoder.finish();
    let mut formatter = Formatter::new();
    formatter.write(ID, &stream);
    Trace { code, stream, frames: formatter.finish(), ranges }
}

static TRACE: OnceLock<Trace> = OnceLock::new();

fn of_frames(bytes: &[u8]) -> (u64, u64) {
    let (mut deformatter, mut count) = (Deformatter::new(Framing::Memory), Count::default());
    deformatter.push(bytes, &mut count);
    deformatter.finish(&mut count);
    (count.found, count.sum)
}

fn of_packets(bytes: &[u8]) -> (u64, u64) {
    let (mut packets, mut count) = (v4::Packets::new(&v4::Config::default()), Count::default());
    packets.push(0, bytes, &mut count);
    packets.finish(&mut count);
    (count.found, count.sum)
}

fn of_flow(bytes: &[u8]) -> (u64, u64) {
    let config = v4::Config::default();
    let mut image = Image::new();
    image.add(Spaces::ANY, BASE, TRACE.get().map_or(&[][..], |trace| &trace.code));
    let flow = v4::Flow::new(&config, image, Count::default());
    let mut unit = Unit { packets: v4::Packets::new(&config), flow };
    let mut deformatter = Deformatter::new(Framing::Memory);
    deformatter.push(bytes, &mut unit);
    deformatter.finish(&mut unit);
    unit.packets.finish(&mut unit.flow);
    let count = unit.flow.into_sink();
    (count.found, count.sum)
}

/// OpenCSD's library in a program of ours, and the files that it reads; `None` where the library is missing.
fn opencsd() -> Option<&'static tempfile::TempDir> {
    static DIRECTORY: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    DIRECTORY.get_or_init(|| compile().ok()).as_ref()
}

fn compile() -> anyhow::Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new().prefix("rtscope-bench").tempdir()?;
    let trace = TRACE.get().context("there is a trace")?;
    fs::write(directory.path().join("code"), &trace.code)?;
    fs::write(directory.path().join("trace"), &trace.frames)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/opencsd.c");
    let mut command = Command::new(CC.name);
    command.args(["-O2", "-o"]).arg(directory.path().join("opencsd")).arg(source).arg("-lopencsd_c_api");
    let done = command.stderr(Stdio::null()).status()?;
    ensure!(done.success(), "libopencsd-dev is missing");
    Ok(directory)
}

fn of_opencsd(_: &[u8]) -> (u64, u64) {
    let Some(directory) = opencsd() else { return (0, 0) };
    let mut command = Command::new(directory.path().join("opencsd"));
    command.arg(directory.path().join("code")).arg(directory.path().join("trace")).arg(BASE.to_string());
    let Ok(output) = command.output() else { return (0, 0) };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

pub(super) fn cases(at_least: usize) -> Vec<Case> {
    let trace = TRACE.get_or_init(|| trace(at_least));
    let case = |what: &str, bytes: &[u8], packets, decode, limit| {
        let (what, bytes) = (what.to_string(), bytes.to_vec());
        Case { what, bytes, packets, decode, limit }
    };
    let mut cases = vec![
        case(
            "CoreSight frames",
            &trace.frames,
            Some(trace.stream.len() as u64),
            of_frames as fn(&[u8]) -> (u64, u64),
            LIMIT_FRAMES,
        ),
        case("ETMv4: packets", &trace.stream, None, of_packets, LIMIT_PACKETS),
        case(OURS, &trace.frames, Some(trace.ranges), of_flow, LIMIT_FLOW),
    ];
    if opencsd().is_some() {
        cases.push(case(OPENCSD, &trace.frames, Some(trace.ranges), of_opencsd, f64::INFINITY));
    }
    cases
}

/// Ranges a second of ours and of OpenCSD's, which are on the same bytes.
pub(super) fn against_opencsd(cases: &[Case], rows: &[Row]) -> Option<Promise> {
    let row =
        |what: &str| rows.iter().zip(cases).find(|(_, case)| case.what == what).map(|(row, _)| row.median());
    let (ours, theirs) = (row(OURS)?, row(OPENCSD)?);
    Some(Promise::at_most("ETMv4: flow, ours / OpenCSD", ours / theirs, 1.0 / TIMES_OPENCSD))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of Arm's trace units: the first bytes choose the configuration, the rest is the stream. Each byte has to be in a packet
//! or in a loss, in pieces of any size.

use rtscope_hardware::Lost;
use rtscope_hardware::coresight::{Deformatter, Formatter, FrameSink, Framing, align};
use rtscope_hardware::etm::{
    At, Element, ElementSink, Fault, Image, Isa32, Sink, Spaces, ptm as ptm_unit, v3, v4,
};

/// What is only counted.
#[derive(Default)]
struct Count {
    accounted: u64,
}

impl ElementSink for Count {
    fn element(&mut self, _: u64, _: &Element) {}
}

impl FrameSink for Count {
    fn data(&mut self, _: u8, _: u64, bytes: &[u8]) {
        self.accounted += bytes.len() as u64;
    }
    fn lost(&mut self, lost: Lost) {
        self.accounted += lost.bytes;
    }
}

struct Both<F>(u64, F);

impl<P, F: Sink<P>> Sink<P> for Both<F> {
    fn packet(&mut self, at: At, packet: &P) {
        self.0 += u64::from(at.bytes);
        self.1.packet(at, packet);
    }
    fn lost(&mut self, lost: Lost, fault: Fault) {
        self.0 += lost.bytes;
        self.1.lost(lost, fault);
    }
}

pub fn coresight(data: &[u8]) -> Option<()> {
    let (&[kind, piece], rest) = data.split_first_chunk()?;
    let framings = [Framing::Memory, Framing::Fsync, Framing::FsyncHsync, Framing::Dstream, Framing::Aligned];
    let mut deformatter = Deformatter::new(framings[usize::from(kind) % framings.len()]);
    let mut count = Count::default();
    for piece in rest.chunks(usize::from(piece) + 1) {
        deformatter.push(piece, &mut count);
        assert!(deformatter.counts().balanced());
    }
    deformatter.finish(&mut count);
    let counts = deformatter.counts();
    assert!(counts.balanced());
    assert_eq!(count.accounted + counts.framing + counts.data_bytes(0), rest.len() as u64);
    let _ = align::find(rest);
    Some(())
}

/// Code of branches and returns in each instruction set, and its beginning.
const BASE: u64 = 0x8000;

fn image() -> Image {
    let words: [u32; 8] = [
        0xD503_201F,
        0x5400_0040,
        0x9400_0003,
        0xD65F_03C0,
        0xE120_0010,
        0x0AFF_FFFC,
        0x4770_BF00,
        0xF000_B801,
    ];
    let mut image = Image::new();
    image.add(Spaces::ANY, BASE, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    image
}

macro_rules! through {
    ($unit:ident, $config:expr, $piece:expr, $rest:expr) => {{
        let mut both = Both(0, $unit::Flow::new($config, image(), Count::default()));
        let mut packets = $unit::Packets::new($config);
        let mut offset = 0;
        for piece in $rest.chunks(usize::from($piece) + 1) {
            packets.push(offset, piece, &mut both);
            offset += piece.len() as u64;
            assert!(packets.counts().balanced());
        }
        packets.finish(&mut both);
        assert!(packets.counts().balanced());
        assert_eq!(both.0, $rest.len() as u64);
        Some(())
    }};
}

pub fn etm4(data: &[u8]) -> Option<()> {
    let (&[piece, kind, depth, control], rest) = data.split_first_chunk()?;
    let config = v4::Config {
        configr: u32::from(control) << 8 | u32::from(control),
        idr0: if kind & 1 != 0 { 0x0801_8EE1 } else { 0x2800_0EA1 },
        idr1: if kind & 2 != 0 { 0x4100_F463 } else { 0x4100_F403 },
        idr2: if kind & 4 != 0 { 0x8000_1088 } else { 0x488 },
        idr8: u32::from(depth),
        devarch: (kind & 8 != 0).then_some(0x4773_5A13),
        profile: if kind & 16 != 0 { v4::Profile::M } else { v4::Profile::A },
        trace_id: 1,
    };
    through!(v4, &config, piece, rest)
}

pub fn ptm(data: &[u8]) -> Option<()> {
    let (&[piece, control], rest) = data.split_first_chunk()?;
    let config = ptm_unit::Config {
        control: u32::from(control) << 12 | u32::from(control) << 28,
        ..Default::default()
    };
    through!(ptm_unit, &config, piece, rest)
}

pub fn etm3(data: &[u8]) -> Option<()> {
    let (&[piece, control, kind], rest) = data.split_first_chunk()?;
    let config = v3::Config {
        control: u32::from(control) << 12 | u32::from(control & 0xC),
        id: if kind & 1 != 0 { 0x4114_F250 } else { 0x410C_F250 },
        is_m_profile: kind & 2 != 0,
        ..Default::default()
    };
    through!(v3, &config, piece, rest)
}

fn with(first: &[u8], stream: &[u8]) -> Vec<u8> {
    [first, stream].concat()
}

fn etm4_stream() -> Vec<u8> {
    let config = v4::Config::default();
    let mut encoder = v4::Encoder::new(&config);
    for round in 0..3 {
        encoder.synchronise(v4::TraceInfo { speculation: round, ..v4::TraceInfo::default() });
        encoder.trace_on();
        encoder.address_context(BASE, false, &v4::Context { is_64_bit: true, ..v4::Context::default() });
        [true, false, true, true].iter().for_each(|taken| encoder.atom(*taken));
        encoder.exception(3, round == 1);
        encoder.address(BASE + 4, false);
        encoder.timestamp(1 << 40 | 77, None);
        encoder.address(BASE + 24, true);
        encoder.atom(true);
        encoder.cancel(1, true);
        encoder.commit(2);
    }
    encoder.finish()
}

pub fn etm4_seeds() -> Vec<Vec<u8>> {
    let stream = etm4_stream();
    [[14, 0, 0, 0], [0, 1, 0, 16], [6, 8, 16, 255], [1, 6, 3, 1]]
        .iter()
        .map(|first| with(first, &stream))
        .collect()
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let write = |mut formatter: Formatter| {
        etm4_stream()
            .chunks(5)
            .enumerate()
            .for_each(|(place, bytes)| formatter.write(1 + (place % 3) as u8, bytes));
        formatter.finish()
    };
    let plain = write(Formatter::new());
    let port = write(Formatter::with_fsync());
    vec![
        with(&[0, 15], &plain),
        with(&[1, 3], &port),
        with(&[2, 0], &port),
        with(&[3, 6], &port),
        with(&[4, 99], &plain),
    ]
}

pub fn ptm_seeds() -> Vec<Vec<u8>> {
    let config = ptm_unit::Config::default();
    let mut encoder = ptm_unit::Encoder::new(&config);
    for _ in 0..3 {
        encoder.synchronise(BASE as u32, Isa32::A32, ptm_unit::Reason::TraceOn, 0);
        [true, false, true].iter().for_each(|taken| encoder.atom(*taken, 0));
        encoder.branch(BASE as u32 + 24, Isa32::T32, None, 0);
        encoder.branch(BASE as u32 + 28, Isa32::T32, Some(14), 0);
        encoder.timestamp(1 << 40 | 77, 0);
    }
    let stream = encoder.finish();
    [[14, 0], [0, 1], [6, 2], [9, 12]].iter().map(|first| with(first, &stream)).collect()
}

pub fn etm3_seeds() -> Vec<Vec<u8>> {
    let config = v3::Config::default();
    let mut encoder = v3::Encoder::new(&config);
    for _ in 0..3 {
        encoder.synchronise(BASE as u32, Isa32::A32, ptm_unit::Reason::TraceOn, 0);
        [true, false, true].iter().for_each(|executed| encoder.instruction(*executed));
        encoder.branch(BASE as u32 + 24, Isa32::T32, None);
        encoder.branch(BASE as u32 + 28, Isa32::T32, Some((14, true)));
        encoder.timestamp(1 << 40 | 77);
    }
    let stream = encoder.finish();
    [[14, 0, 0], [0, 1, 1], [6, 12, 2], [9, 8, 3]].iter().map(|first| with(first, &stream)).collect()
}

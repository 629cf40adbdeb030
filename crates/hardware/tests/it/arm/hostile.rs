// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that are cut, changed, shifted or nonsense: no panic, no byte without an account, and an end.
//!
//! On our own streams always, on captures where they are.

use super::captures::SNAPSHOTS;
use super::decode::data_of;
use super::program::Program;
use crate::captures::capture;
use rtscope_hardware::Lost;
use rtscope_hardware::coresight::snapshot::{DumpFiles, Snapshot};
use rtscope_hardware::coresight::{Deformatter, Formatter, FrameSink, Framing, align};
use rtscope_hardware::decode::{Settings, open};
use rtscope_hardware::etm::isa::Isa;
use rtscope_hardware::etm::{At, Element, ElementSink, Fault, Image, Isa32, Sink, Spaces, ptm, v3, v4};
use rtscope_testkit::memory::{is_alone, peak_of};
use rtscope_testkit::random::Random;

/// Everything is only counted.
#[derive(Default)]
struct Count {
    accounted: u64,
    elements: u64,
}

impl ElementSink for Count {
    fn element(&mut self, _: u64, _: &Element) {
        self.elements += 1;
    }
}

struct Both<F> {
    count: Count,
    flow: F,
}

impl<P, F: Sink<P>> Sink<P> for Both<F> {
    fn packet(&mut self, at: At, packet: &P) {
        assert!(at.bytes > 0);
        self.count.accounted += u64::from(at.bytes);
        self.flow.packet(at, packet);
    }
    fn lost(&mut self, lost: Lost, fault: Fault) {
        assert!(lost.bytes > 0);
        self.count.accounted += lost.bytes;
        self.flow.lost(lost, fault);
    }
}

/// A stream through a unit; the number of elements of its flow.
macro_rules! through {
    ($unit:ident, $config:expr, $image:expr, $bytes:expr) => {{
        let flow = $unit::Flow::new($config, $image.clone(), Count::default());
        let mut both = Both { count: Count::default(), flow };
        let mut packets = $unit::Packets::new($config);
        for (place, piece) in $bytes.chunks(15).enumerate() {
            packets.push(place as u64 * 15, piece, &mut both);
            assert!(packets.counts().balanced());
        }
        packets.finish(&mut both);
        assert!(packets.counts().balanced());
        assert_eq!(both.count.accounted, $bytes.len() as u64);
        both.flow.into_sink().elements
    }};
}

/// A unit with its configuration.
#[derive(Clone, Copy)]
enum Unit {
    V4(v4::Config),
    Ptm(ptm::Config),
    V3(v3::Config),
}

impl Unit {
    fn decode(&self, image: &Image, bytes: &[u8]) -> u64 {
        match self {
            Unit::V4(config) => through!(v4, config, image, bytes),
            Unit::Ptm(config) => through!(ptm, config, image, bytes),
            Unit::V3(config) => through!(v3, config, image, bytes),
        }
    }
}

/// Streams of our own with the program that they are of.
fn streams() -> Vec<(Unit, Image, Vec<u8>)> {
    let mut random = Random(7);
    let mut out = Vec::new();
    let image = |program: &Program| {
        let mut image = Image::new();
        image.add(Spaces::ANY, program.base, program.code.clone());
        image
    };
    let config = v4::Config { configr: 1 << 12, idr0: 0x2801_8EA1, ..v4::Config::default() };
    let program = Program::new(Isa::A64, 0x8000, &mut random);
    let mut encoder = v4::Encoder::new(&config);
    for _ in 0..20 {
        encoder.synchronise(v4::TraceInfo::default());
        encoder.trace_on();
        let context = v4::Context { is_64_bit: true, ..v4::Context::default() };
        encoder.address_context(program.base, false, &context);
        for _ in 0..100 {
            match random.below(8) {
                0 => encoder.timestamp(random.next() >> 20, None),
                1 => {
                    encoder.exception(3, false);
                    encoder.address(program.base + random.below(64) * 4, false);
                }
                2 => encoder.address(program.base + random.below(256) * 4, false),
                3 => encoder.q(random.below(9) as u32, program.base + random.below(64) * 4, false),
                _ => encoder.atom(random.flag()),
            }
        }
    }
    out.push((Unit::V4(config), image(&program), encoder.finish()));
    let speculative = v4::Config { idr8: 32, ..config };
    let last = out[0].clone();
    out.push((Unit::V4(speculative), last.1, last.2));
    let program = Program::new(Isa::T32, 0x8000, &mut random);
    let config = ptm::Config { control: 1 << 29, ..ptm::Config::default() };
    let mut encoder = ptm::Encoder::new(&config);
    let other = v3::Config::default();
    let mut third = v3::Encoder::new(&other);
    for _ in 0..20 {
        encoder.synchronise(program.base as u32, Isa32::T32, ptm::Reason::TraceOn, 1);
        third.synchronise(program.base as u32, Isa32::T32, ptm::Reason::TraceOn, 1);
        for _ in 0..100 {
            let to = program.base as u32 + random.below(256) as u32 * 2;
            encoder.atom(random.flag(), 0);
            third.instruction(random.flag());
            if random.below(5) == 0 {
                encoder.branch(to, Isa32::T32, (random.below(3) == 0).then_some(4), 0);
                third.branch(to, Isa32::T32, (random.below(3) == 0).then_some((4, random.flag())));
            }
        }
    }
    out.push((Unit::Ptm(config), image(&program), encoder.finish()));
    out.push((Unit::V3(other), image(&program), third.finish()));
    out
}

/// Cut at 1000 places, and one byte changed at a time, up to a limit.
fn hurt(unit: &Unit, image: &Image, bytes: &[u8], flips: usize) {
    for place in 0..1000 {
        unit.decode(image, &bytes[bytes.len() * place / 1000..]);
        unit.decode(image, &bytes[..bytes.len() * place / 1000]);
    }
    let mut random = Random(9);
    let mut changed = bytes.to_vec();
    for place in 0..flips.min(bytes.len()) {
        let place = if flips < bytes.len() { random.index(bytes.len()) } else { place };
        let bits = 1 + random.below(255) as u8;
        changed[place] ^= bits;
        unit.decode(image, &changed);
        changed[place] ^= bits;
    }
}

#[test]
fn our_streams_cut_and_changed_are_accounted_for() {
    for (unit, image, bytes) in streams() {
        assert!(unit.decode(&image, &bytes) > 100);
        hurt(&unit, &image, &bytes, 2000);
    }
}

#[test]
fn nonsense_ends_and_is_accounted_for() {
    for (unit, image, bytes) in streams() {
        for byte in [0xFF, 0x00, 0x82, 0x80, 0x08, 0x01, 0x95] {
            let nonsense = vec![byte; 64 << 10];
            unit.decode(&image, &nonsense);
            // After a synchronisation, too.
            unit.decode(&image, &[&bytes[..40], &nonsense].concat());
        }
        let mut random = Random(11);
        let any: Vec<u8> = (0..64 << 10).map(|_| random.next() as u8).collect();
        unit.decode(&image, &[&bytes[..40], &any].concat());
    }
}

#[test]
fn decoding_goes_on_at_the_next_synchronisation() {
    for (unit, image, bytes) in
        streams().into_iter().filter(|(unit, ..)| !matches!(unit, Unit::V4(config) if config.idr8 > 0))
    {
        let once = unit.decode(&image, &bytes);
        // A header that no unit has, then the same again: all of it is found twice, but for what was not sure.
        let bad: &[u8] = if matches!(unit, Unit::V4(_)) { &[0x93] } else { &[0x54] };
        let twice = unit.decode(&image, &[&bytes, bad, &bytes].concat());
        assert!(twice >= 2 * once - 4, "{twice} elements, {once} of one");
    }
}

#[derive(Default)]
struct Frames {
    bytes: u64,
    /// Of source 0x10.
    data: Vec<u8>,
}

impl FrameSink for Frames {
    fn data(&mut self, id: u8, _: u64, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if id == 0x10 {
            self.data.extend(bytes);
        }
    }
    fn lost(&mut self, lost: Lost) {
        assert!(lost.bytes > 0);
        self.bytes += lost.bytes;
    }
}

fn deformat(framing: Framing, bytes: &[u8]) -> Frames {
    let mut deformatter = Deformatter::new(framing);
    let mut frames = Frames::default();
    for piece in bytes.chunks(13) {
        deformatter.push(piece, &mut frames);
        assert!(deformatter.counts().balanced(), "{framing:?} {:?}", deformatter.counts());
    }
    deformatter.finish(&mut frames);
    let counts = deformatter.counts();
    assert!(counts.balanced());
    assert_eq!(counts.input, bytes.len() as u64);
    assert_eq!(frames.bytes + counts.framing + counts.data_bytes(0), counts.input);
    frames
}

const FRAMINGS: [Framing; 5] =
    [Framing::Memory, Framing::Fsync, Framing::FsyncHsync, Framing::Dstream, Framing::Aligned];

#[test]
fn frames_cut_shifted_and_changed_are_accounted_for() {
    let (_, _, stream) = streams().remove(0);
    let mut formatter = Formatter::with_fsync();
    stream.chunks(11).enumerate().for_each(|(place, piece)| formatter.write(0x10 + (place % 3) as u8, piece));
    let bytes = formatter.finish();
    let mut random = Random(5);
    for framing in FRAMINGS {
        for shift in 1..16 {
            deformat(framing, &bytes[shift..]);
            deformat(framing, &[&vec![0x55; shift], &bytes[..]].concat());
        }
        for place in 0..1000 {
            deformat(framing, &bytes[..bytes.len() * place / 1000]);
            let mut changed = bytes.clone();
            changed[random.index(bytes.len())] ^= 1 + random.below(255) as u8;
            deformat(framing, &changed);
        }
        for byte in [0xFF, 0x00, 0x82, 0x7F] {
            deformat(framing, &vec![byte; 64 << 10]);
        }
    }
}

#[test]
fn frames_without_synchronisation_are_found_at_each_place() {
    let (_, _, stream) = streams().remove(0);
    let mut formatter = Formatter::new();
    stream.chunks(11).for_each(|piece| formatter.write(0x10, piece));
    let bytes = formatter.finish();
    for shift in 0..16 {
        let shifted = [&vec![0x55; shift], &bytes[..]].concat();
        let found = align::find(&shifted).unwrap();
        assert_eq!((found.start, found.syncs), (shift, 20));
        assert_eq!(deformat(Framing::Aligned, &shifted[found.start..]).data, stream);
    }
    assert_eq!(align::find(&[0; 4096]), None);
}

#[test]
fn captures_cut_and_changed_are_accounted_for() {
    let folder = capture!("");
    let mut sources = 0;
    for (directory, name) in SNAPSHOTS {
        let Ok(snapshot) = Snapshot::read(&folder.join(directory)) else { continue };
        let buffer = &snapshot.buffers[0];
        let bytes = std::fs::read(&buffer.path).unwrap();
        for source in buffer.sources.iter().filter_map(|name| snapshot.source(name)) {
            let core = snapshot.core_of(source);
            let unit = if source.is_etm4() {
                Unit::V4(source.etm4_config(core))
            } else if source.is_ptm() {
                Unit::Ptm(source.ptm_config())
            } else if source.is_etm3() {
                Unit::V3(source.etm3_config(core))
            } else {
                continue;
            };
            let data = match buffer.format.framing() {
                None => bytes.clone(),
                Some(framing) => data_of(framing, &bytes, source.trace_id().unwrap()),
            };
            let image = core.map_or(Image::new(), |core| snapshot.image(core, &mut DumpFiles::default()).0);
            println!("{name}, {}: {} bytes", source.name, data.len());
            hurt(&unit, &image, &data[..data.len().min(8 << 10)], 1000);
            sources += 1;
        }
        for shift in 1..bytes.len().min(16) {
            deformat(Framing::Memory, &bytes[shift..]);
        }
    }
    if sources == 0 {
        rtscope_testkit::skip::say("none of these captures is there");
    }
}

#[test]
fn a_snapshot_that_names_one_dump_many_times_has_it_in_memory_once() {
    if !is_alone() {
        return;
    }
    const DUMP: usize = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    write("dump.bin", &vec![0; DUMP]);
    // Two processors with a source each, 50 dumps of 4 MiB each, by two names, of which most are not quite all of the file.
    let dump = |number: usize| {
        let name = ["dump.bin", "d/../dump.bin"][number % 2];
        format!("[dump{number}]\nfile={name}\naddress={:#x}\noffset={number}\n", number << 32)
    };
    let dumps: String = (0..50).map(dump).collect();
    let mut devices = String::new();
    for core in 0..2 {
        write(
            &format!("cpu{core}.ini"),
            format!("[device]\nname=cpu{core}\nclass=core\ntype=Cortex-A57\n{dumps}").as_bytes(),
        );
        let etm = format!(
            "[device]\nname=etm{core}\nclass=trace_source\ntype=ETM4\n[regs]\nTRCTRACEIDR=0x{}\n",
            10 + core
        );
        write(&format!("etm{core}.ini"), etm.as_bytes());
        devices += &format!("cpu{core}=cpu{core}.ini\netm{core}=etm{core}.ini\n");
    }
    let snapshot = format!("[snapshot]\nversion=1.0\n[device_list]\n{devices}[trace]\nmetadata=trace.ini\n");
    write("snapshot.ini", snapshot.as_bytes());
    write(
        "trace.ini",
        b"[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB_0\nfile=etb.bin\nformat=source_data\n\
          [source_buffers]\netm0=ETB_0\netm1=ETB_0\n[core_trace_sources]\ncpu0=etm0\ncpu1=etm1\n",
    );
    write("etb.bin", &[0; 64]);
    let mut regions = 0;
    let bytes = peak_of(|| {
        let capture = open(folder.path(), &Settings::default()).unwrap();
        let images = capture.streams.iter().filter_map(|stream| stream.image.as_ref());
        regions = images.filter(|image| image.at(Spaces::ANY, (49 << 32) + 8).len() == DUMP - 57).count();
    });
    assert_eq!(regions, 2, "each processor has its memory");
    // Once as it is read, and once as it is kept.
    assert!(bytes < 3 * DUMP, "{bytes} bytes");
}

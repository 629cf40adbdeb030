// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot, decoded as far as it goes, by source.

use rtscope_hardware::Lost;
use rtscope_hardware::coresight::snapshot::{Buffer, Core, DumpFiles, Format, Snapshot};
use rtscope_hardware::coresight::{Deformatter, FrameSink, Framing};
use rtscope_hardware::etm::{At, Element, ElementSink, Fault, Image, Sink, ptm, v3, v4};
use std::collections::BTreeMap;
use std::path::Path;

/// What was found of one source.
#[derive(Default)]
pub struct Found {
    pub trace_id: u8,
    pub packets: Vec<(u64, String)>,
    /// Places in `packets` of headers that this unit does not have, and right after them.
    pub doubtful: Vec<usize>,
    /// Bytes before synchronisations.
    pub unused: u64,
    pub input: u64,
    /// Bytes in packets and losses.
    pub accounted: u64,
    pub elements: Vec<String>,
    /// There is no memory of the program.
    pub without_program: bool,
}

#[derive(Default)]
struct Elements(Vec<String>);

impl ElementSink for Elements {
    fn element(&mut self, _: u64, element: &Element) {
        self.0.extend(super::names::element(element));
    }
}

/// A decoder of one source.
trait Unit {
    fn push(&mut self, offset: u64, bytes: &[u8]);
    fn finish(self: Box<Self>) -> Found;
}

/// What is found of packets, and the flow that they are given to.
struct Both<P, F> {
    found: Found,
    flow: F,
    name: fn(&P) -> String,
    fault: fn(Fault) -> Option<&'static str>,
}

impl<P, F: Sink<P>> Sink<P> for Both<P, F> {
    fn packet(&mut self, at: At, packet: &P) {
        self.found.packet(at, (self.name)(packet));
        self.flow.packet(at, packet);
    }
    fn lost(&mut self, lost: Lost, fault: Fault) {
        self.found.lost(lost, fault, (self.fault)(fault));
        self.flow.lost(lost, fault);
    }
}

/// Packets and flow of a unit, whose modules have the same form.
macro_rules! unit {
    ($unit:ident, $name:expr, $fault:expr, $finish:expr) => {
        impl Unit for ($unit::Packets, Both<$unit::Packet, $unit::Flow<Elements>>) {
            fn push(&mut self, offset: u64, bytes: &[u8]) {
                self.1.found.input += bytes.len() as u64;
                self.0.push(offset, bytes, &mut self.1);
            }
            fn finish(self: Box<Self>) -> Found {
                let (mut packets, mut both) = *self;
                packets.finish(&mut both);
                let finish: fn(&mut $unit::Flow<Elements>) = $finish;
                finish(&mut both.flow);
                assert_eq!(both.found.input, both.found.accounted, "each byte is in a packet or a loss");
                assert!(packets.counts().balanced());
                both.found.elements = both.flow.into_sink().0;
                both.found
            }
        }
        impl From<($unit::Config, Image)> for Box<dyn Unit> {
            fn from((config, image): ($unit::Config, Image)) -> Self {
                let without_program = image.is_empty();
                let flow = $unit::Flow::new(&config, image, Elements::default());
                let found = Found { trace_id: config.trace_id, without_program, ..Found::default() };
                Box::new(($unit::Packets::new(&config), Both { found, flow, name: $name, fault: $fault }))
            }
        }
    };
}

unit!(v4, super::names::etm4, super::names::etm4_fault, v4::Flow::finish);
unit!(v3, super::names::etm3, super::names::etm3_fault, v3::Flow::finish);
unit!(ptm, super::names::ptm, super::names::etm3_fault, |_| ());

impl Found {
    fn packet(&mut self, at: At, name: String) {
        self.accounted += u64::from(at.bytes);
        self.packets.push((at.offset, name));
    }
    fn lost(&mut self, lost: Lost, fault: Fault, name: Option<&str>) {
        self.accounted += lost.bytes;
        let Some(name) = name else {
            self.unused += lost.bytes;
            return;
        };
        self.packets.push((lost.offset, name.to_owned()));
        if matches!(fault, Fault::NotConfigured | Fault::Reserved) {
            self.doubtful.extend([self.packets.len() - 1, self.packets.len()]);
        }
    }
}

struct Units(BTreeMap<u8, Box<dyn Unit>>);

impl FrameSink for Units {
    fn data(&mut self, id: u8, offset: u64, bytes: &[u8]) {
        if let Some(unit) = self.0.get_mut(&id) {
            unit.push(offset, bytes);
        }
    }
    fn lost(&mut self, _: Lost) {}
}

/// All buffers of a snapshot; of a buffer of one source, the identifier is 0, as the oracle has it.
pub fn snapshot(path: &Path, buffer: usize) -> BTreeMap<u8, Found> {
    let snapshot = Snapshot::read(path).unwrap();
    let buffer = &snapshot.buffers[buffer];
    let bytes = std::fs::read(&buffer.path).unwrap();
    let mut units = Units(units(&snapshot, buffer));
    match buffer.format.framing() {
        None => units.0.values_mut().for_each(|unit| unit.push(0, &bytes)),
        Some(framing) => {
            let mut deformatter = Deformatter::new(framing);
            deformatter.push(&bytes, &mut units);
            deformatter.finish(&mut units);
            assert!(deformatter.counts().balanced(), "{:?}", deformatter.counts());
            assert_eq!(deformatter.counts().input, bytes.len() as u64);
        }
    }
    units.0.into_iter().map(|(id, unit)| (id, unit.finish())).collect()
}

/// The kinds of the sources in a buffer, as the snapshot has them.
pub fn units_of(path: &Path, buffer: usize) -> String {
    let snapshot = Snapshot::read(path).unwrap();
    let sources = snapshot.buffers[buffer].sources.iter();
    let mut kinds: Vec<_> =
        sources.filter_map(|name| snapshot.source(name)).map(|source| &*source.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.join(", ")
}

/// The processor's memory; of a program that is not there, as much as its listing has.
fn image(snapshot: &Snapshot, core: &Core) -> Image {
    let (mut image, errors) = snapshot.image(core, &mut DumpFiles::default());
    for dump in core.dumps.iter().filter(|dump| !dump.path.exists()) {
        let Ok(listing) = std::fs::read_to_string(dump.path.with_extension("objdump")) else { continue };
        let words = listing.lines().filter_map(|line| line.trim_start().split_once(":\t"));
        let words = words.filter_map(|(address, rest)| {
            let word = u32::from_str_radix(rest.split_whitespace().next()?, 16).ok()?;
            Some((u64::from_str_radix(address, 16).ok()?, word))
        });
        let mut bytes = vec![0; 0x1000];
        words.for_each(|(address, word)| bytes[address as usize..][..4].copy_from_slice(&word.to_le_bytes()));
        image.add(dump.spaces, dump.address, bytes);
    }
    errors.iter().for_each(|error| println!("{error}"));
    image
}

fn units(snapshot: &Snapshot, buffer: &Buffer) -> BTreeMap<u8, Box<dyn Unit>> {
    let mut units = BTreeMap::new();
    for source in buffer.sources.iter().filter_map(|name| snapshot.source(name)) {
        let core = snapshot.core_of(source);
        let image = core.map_or(Image::new(), |core| image(snapshot, core));
        let unit: Box<dyn Unit> = if source.is_etm4() {
            (source.etm4_config(core), image).into()
        } else if source.is_ptm() {
            (source.ptm_config(), image).into()
        } else if source.is_etm3() {
            (source.etm3_config(core), image).into()
        } else {
            continue;
        };
        let id = if buffer.format == Format::Source { 0 } else { source.trace_id().unwrap() };
        units.insert(id, unit);
    }
    units
}

/// Data of each source.
#[derive(Default)]
pub struct Sources(pub BTreeMap<u8, Vec<u8>>);

impl FrameSink for Sources {
    fn data(&mut self, id: u8, _: u64, bytes: &[u8]) {
        self.0.entry(id).or_default().extend(bytes);
    }
    fn lost(&mut self, _: Lost) {}
}

/// The bytes of one source in frames.
pub fn data_of(framing: Framing, frames: &[u8], id: u8) -> Vec<u8> {
    let (mut deformatter, mut sources) = (Deformatter::new(framing), Sources::default());
    deformatter.push(frames, &mut sources);
    deformatter.finish(&mut sources);
    sources.0.remove(&id).unwrap_or_default()
}

/// Frames in memory, of one ETMv4 with its usual configuration.
pub fn frames(bytes: &[u8], id: u8) -> Found {
    let config = v4::Config { trace_id: id, ..v4::Config::default() };
    let mut units = Units(BTreeMap::from([(id, (config, Image::new()).into())]));
    let mut deformatter = Deformatter::new(Framing::Memory);
    deformatter.push(bytes, &mut units);
    deformatter.finish(&mut units);
    assert!(deformatter.counts().balanced());
    units.0.remove(&id).unwrap().finish()
}

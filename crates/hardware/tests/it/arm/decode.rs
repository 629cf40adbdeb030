// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot, decoded as far as it goes, by source.

use rtscope_hardware::Lost;
use rtscope_hardware::coresight::snapshot::{Buffer, Core, Format, Snapshot};
use rtscope_hardware::coresight::{Deformatter, FrameSink};
use rtscope_hardware::etm::{At, Element, ElementSink, Fault, Image, Sink, v4};
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
}

#[derive(Default)]
struct Elements(Vec<String>);

impl ElementSink for Elements {
    fn element(&mut self, _: u64, element: &Element) {
        self.0.extend(super::names::element(element));
    }
}

/// A decoder of one source.
struct Unit {
    packets: v4::Packets,
    both: Both,
}

struct Both {
    found: Found,
    flow: v4::Flow<Elements>,
}

impl Sink<v4::Packet> for Both {
    fn packet(&mut self, at: At, packet: &v4::Packet) {
        self.found.packet(at, packet);
        self.flow.packet(at, packet);
    }
    fn lost(&mut self, lost: Lost, fault: Fault) {
        self.found.lost(lost, fault);
        self.flow.lost(lost, fault);
    }
}

impl Found {
    fn packet(&mut self, at: At, packet: &v4::Packet) {
        self.accounted += u64::from(at.bytes);
        self.packets.push((at.offset, super::names::etm4(packet)));
    }
    fn lost(&mut self, lost: Lost, fault: Fault) {
        self.accounted += lost.bytes;
        match super::names::etm4_fault(fault) {
            Some(name) => {
                self.packets.push((lost.offset, name.to_owned()));
                if matches!(fault, Fault::NotConfigured | Fault::Reserved) {
                    self.doubtful.extend([self.packets.len() - 1, self.packets.len()]);
                }
            }
            None => self.unused += lost.bytes,
        }
    }
}

impl Unit {
    fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.both.found.input += bytes.len() as u64;
        self.packets.push(offset, bytes, &mut self.both);
    }

    fn finish(mut self) -> Found {
        self.packets.finish(&mut self.both);
        self.both.flow.finish();
        let Both { mut found, flow } = self.both;
        assert_eq!(found.input, found.accounted, "each byte is in a packet or a loss");
        assert!(self.packets.counts().balanced());
        found.elements = flow.into_sink().0;
        found
    }
}

struct Units(BTreeMap<u8, Unit>);

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

/// The processor's memory; of a program that is not there, as much as its listing has.
fn image(snapshot: &Snapshot, core: &Core) -> Image {
    let (mut image, errors) = snapshot.image(core);
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

fn units(snapshot: &Snapshot, buffer: &Buffer) -> BTreeMap<u8, Unit> {
    let mut units = BTreeMap::new();
    for source in buffer.sources.iter().filter_map(|name| snapshot.source(name)) {
        if !source.is_etm4() {
            continue;
        }
        let core = snapshot.core_of(source);
        let config = source.etm4_config(core);
        let id = if buffer.format == Format::Source { 0 } else { config.trace_id };
        let image = core.map_or(Image::new(), |core| image(snapshot, core));
        let flow = v4::Flow::new(&config, image, Elements::default());
        let both = Both { found: Found { trace_id: config.trace_id, ..Found::default() }, flow };
        units.insert(id, Unit { packets: v4::Packets::new(&config), both });
    }
    units
}

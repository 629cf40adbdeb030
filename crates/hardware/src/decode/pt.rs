// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel PT: packets, what programs wrote (PTWRITE), events of the processor, overflows; with the program's image also the blocks
//! that ran, and its functions.

use super::clock::Conversion;
use super::follow::Follower;
use super::pt_flow::FlowTaker;
use super::{Findings, SeenPacket, UnitDecoder};
use crate::Lost;
use crate::pt::time::{Clock, ClockConfig};
use crate::pt::{Decoder, Flow, LastIp, Packet, Place, Sink, SpaceId};
use crate::trace::{EventClassKind, HardwareEvent, LossReason, UNKNOWN_ADDRESS};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a stream was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtSettings {
    /// What MTC and CBR mean.
    pub time: ClockConfig,
    /// Addresses at which a comparator switches the unit on.
    pub places: Arc<PlaceNames>,
}

/// Names of places, by address.
pub type PlaceNames = BTreeMap<u64, Arc<str>>;

pub(super) struct Pt {
    decoder: Decoder,
    settings: PtSettings,
    conversion: Conversion,
    state: State,
    /// With an image.
    flow: Option<(Box<Flow>, FlowTaker)>,
}

struct State {
    clock: Clock,
    last_ip: LastIp,
    /// A value whose address follows.
    written: Option<u64>,
    /// As `last_ip`, where places are looked for.
    place_ip: LastIp,
}

impl State {
    fn new(settings: &PtSettings) -> State {
        State {
            clock: Clock::new(settings.time),
            last_ip: LastIp::new(),
            written: None,
            place_ip: LastIp::new(),
        }
    }
}

impl Pt {
    pub(super) fn new(settings: &PtSettings, follower: Follower, conversion: Conversion) -> Pt {
        let flow = follower.is_useful.then(|| {
            let mut flow = Box::new(Flow::new(settings.time));
            flow.change(SpaceId::FIRST, |memory| {
                // What is added later covers what was there; the first one named is to win.
                for (address, bytes) in follower.memory.pieces.iter().rev() {
                    memory.add(*address, bytes.clone());
                }
            });
            (flow, FlowTaker::new(follower, conversion))
        });
        Pt {
            decoder: Decoder::new(),
            settings: settings.clone(),
            conversion,
            state: State::new(settings),
            flow,
        }
    }

    fn with(&mut self, found: &mut dyn Findings, run: impl FnOnce(&mut Decoder, &mut Taker<'_, '_>)) {
        let Pt { decoder, conversion, state, flow, settings } = self;
        run(decoder, &mut Taker { state, conversion: *conversion, places: &settings.places, flow, found });
    }
}

impl UnitDecoder for Pt {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        self.with(found, |decoder, taker| decoder.push(bytes, taker));
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.with(found, |decoder, taker| decoder.finish(taker));
        self.decoder = Decoder::new();
        self.state = State::new(&self.settings);
        if let Some((_, taker)) = &mut self.flow {
            taker.interrupt(found);
        }
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.with(found, |decoder, taker| decoder.finish(taker));
        if let Some((_, taker)) = &mut self.flow {
            taker.finish(found);
        }
    }
}

struct Taker<'t, 'f> {
    state: &'t mut State,
    conversion: Conversion,
    places: &'t PlaceNames,
    flow: &'t mut Option<(Box<Flow>, FlowTaker)>,
    found: &'t mut (dyn Findings + 'f),
}

impl Taker<'_, '_> {
    fn ticks(&self) -> Option<u64> {
        self.state.clock.time().map(|time| time.ticks)
    }

    fn ns(&self) -> Option<u64> {
        self.ticks().and_then(|ticks| self.conversion.ns(ticks))
    }

    fn give(&mut self, event: HardwareEvent) {
        let time_ns = self.ns();
        self.found.event(HardwareEvent { time_ns, ..event });
    }

    fn event(&mut self, class: EventClassKind, numbers: &[u64], text: &str) {
        self.give(HardwareEvent::new(class, numbers, text.into()));
    }

    /// A comparator switches the unit on when its place is executed.
    fn place(&mut self, packet: Packet) {
        match packet {
            Packet::Psb => self.state.place_ip = LastIp::new(),
            Packet::Tip(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => _ = self.state.place_ip.update(ip),
            Packet::TipPge(ip) => {
                let address = self.state.place_ip.update(ip);
                if let Some((address, name)) = address.and_then(|address| self.places.get_key_value(&address))
                {
                    self.event(EventClassKind::Place, &[*address], name);
                }
            }
            _ => {}
        }
    }

    /// Without an image: what packets say by themselves.
    fn alone(&mut self, packet: Packet) {
        match packet {
            Packet::Psb => self.state.last_ip = LastIp::new(),
            Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) => _ = self.state.last_ip.update(ip),
            Packet::Fup(ip) => {
                let address = self.state.last_ip.update(ip);
                if let Some(value) = self.state.written.take() {
                    self.event(EventClassKind::Write, &[value, address.unwrap_or(UNKNOWN_ADDRESS)], "");
                }
            }
            Packet::Ptw { payload, ip: true, .. } => self.state.written = Some(payload),
            Packet::Ptw { payload, .. } => self.event(EventClassKind::Write, &[payload], ""),
            Packet::Ovf => self.give(HardwareEvent::lost(LossReason::Overflow, 0)),
            Packet::Cfe { kind, vector, .. } => {
                self.event(EventClassKind::Exception, &[vector.into()], control_flow(kind));
            }
            Packet::Evd { payload, .. } => self.event(EventClassKind::Packet, &[payload], "event data"),
            Packet::Mwait { hints, .. } => self.event(EventClassKind::Packet, &[hints.into()], "mwait"),
            Packet::Pwre { state, .. } => self.event(EventClassKind::Packet, &[state.into()], "power entry"),
            Packet::Pwrx { last, .. } => self.event(EventClassKind::Packet, &[last.into()], "power exit"),
            Packet::ExStop { .. } => self.event(EventClassKind::Packet, &[], "execution stopped"),
            Packet::Trig { triggers, .. } => {
                self.event(EventClassKind::Packet, &[triggers.into()], "trigger");
            }
            _ => {}
        }
    }
}

impl Sink for Taker<'_, '_> {
    fn packet(&mut self, place: Place, packet: Packet) {
        self.state.clock.packet(packet);
        let time = self.ns().or(self.ticks());
        self.found.packet(&SeenPacket { offset: place.offset, time, text: &packet });
        if !self.places.is_empty() {
            self.place(packet);
        }
        match self.flow {
            Some((flow, taker)) => flow.packet(place, packet, &mut taker.with(self.found)),
            None => self.alone(packet),
        }
    }

    fn lost(&mut self, lost: Lost) {
        self.state.written = None;
        self.state.clock.lose();
        self.found.lost(lost);
        if let Some((flow, taker)) = self.flow {
            flow.lost(lost, &mut taker.with(self.found));
        }
    }
}

/// Kinds of control flow events, by the manual's names.
pub(super) fn control_flow(kind: u8) -> &'static str {
    const NAMES: [&str; 14] = [
        "",
        "INTR",
        "IRET",
        "SMI",
        "RSM",
        "SIPI",
        "INIT",
        "VMENTRY",
        "VMEXIT",
        "VMEXIT_INTR",
        "SHUTDOWN",
        "",
        "UINTR",
        "UIRET",
    ];
    NAMES.get(usize::from(kind)).copied().filter(|name| !name.is_empty()).unwrap_or("reserved")
}

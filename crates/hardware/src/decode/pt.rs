// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel PT: packets, what programs wrote (PTWRITE), events of the processor (CFE, power states), overflows.

use super::{Findings, SeenPacket, UnitDecoder};
use crate::Lost;
use crate::pt::time::{Clock, ClockConfig};
use crate::pt::{Decoder, LastIp, Packet, PerfClock, Place, Sink};
use crate::trace::{EventClassKind, HardwareEvent, LossReason};

/// How a stream was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PtSettings {
    /// TSC on the recording's clock, where it was told.
    pub clock: Option<PerfClock>,
    /// What MTC and CBR mean.
    pub time: ClockConfig,
}

pub(super) struct Pt {
    decoder: Decoder,
    state: State,
}

struct State {
    settings: PtSettings,
    /// Of TSC, where no conversion was told.
    clock_hz: Option<u64>,
    clock: Clock,
    last_ip: LastIp,
    /// A value whose address follows.
    written: Option<u64>,
}

impl State {
    fn ticks(&self) -> Option<u64> {
        self.clock.time().map(|time| time.ticks)
    }

    /// Nanoseconds; `None`: no TSC so far, or nothing says how long its ticks are.
    fn ns(&self) -> Option<u64> {
        let tsc = self.ticks()?;
        match (self.settings.clock, self.clock_hz) {
            (Some(clock), _) => Some(clock.nanoseconds(tsc)),
            (None, Some(hz)) => super::ns_of(tsc, hz),
            (None, None) => None,
        }
    }
}

impl Pt {
    pub(super) fn new(settings: &PtSettings, clock_hz: Option<u64>) -> Pt {
        let state = State {
            settings: *settings,
            clock_hz,
            clock: Clock::new(settings.time),
            last_ip: LastIp::new(),
            written: None,
        };
        Pt { decoder: Decoder::new(), state }
    }
}

impl UnitDecoder for Pt {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        self.decoder.push(bytes, &mut Taker { state: &mut self.state, found });
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.finish(found);
        self.decoder = Decoder::new();
        self.state.written = None;
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.decoder.finish(&mut Taker { state: &mut self.state, found });
    }
}

struct Taker<'t, 'f> {
    state: &'t mut State,
    found: &'t mut (dyn Findings + 'f),
}

impl Taker<'_, '_> {
    fn event(&mut self, class: EventClassKind, numbers: &[u64], text: &str) {
        let event = HardwareEvent::new(class, numbers, text.into());
        self.found.event(HardwareEvent { time_ns: self.state.ns(), ..event });
    }
}

impl Sink for Taker<'_, '_> {
    fn packet(&mut self, place: Place, packet: Packet) {
        self.state.clock.packet(packet);
        let time = self.state.ns().or(self.state.ticks());
        self.found.packet(&SeenPacket { offset: place.offset, time, text: &packet });
        match packet {
            Packet::Psb => self.state.last_ip = LastIp::new(),
            Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) => _ = self.state.last_ip.update(ip),
            Packet::Fup(ip) => {
                let address = self.state.last_ip.update(ip);
                if let Some(value) = self.state.written.take() {
                    self.event(EventClassKind::Write, &[value, address.unwrap_or(0)], "");
                }
            }
            Packet::Ptw { payload, ip: true, .. } => self.state.written = Some(payload),
            Packet::Ptw { payload, .. } => self.event(EventClassKind::Write, &[payload], ""),
            Packet::Ovf => {
                let event = HardwareEvent::lost(LossReason::Overflow, 0);
                self.found.event(HardwareEvent { time_ns: self.state.ns(), ..event });
            }
            Packet::Cfe { kind, vector, .. } => {
                self.event(EventClassKind::Exception, &[vector.into()], cfe(kind));
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

    fn lost(&mut self, lost: Lost) {
        self.state.written = None;
        self.state.clock.lose();
        self.found.lost(lost);
    }
}

/// Kinds of control flow events, by the manual's names.
fn cfe(kind: u8) -> &'static str {
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

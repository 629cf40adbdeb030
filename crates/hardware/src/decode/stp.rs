// SPDX-License-Identifier: Apache-2.0 OR MIT
//! STP: packets, and the messages of each channel as events: bytes, or what MIPI SyS-T says in them.

use super::clock::ns_of;
use super::{Findings, SeenPacket, UnitDecoder};
use crate::stp::{self, Decoder, Framing, Item, Lost, Messages, Packet, Payload, Sink};
use crate::syst::{Checksum, Collateral, Message};
use crate::trace::{EventClassKind, HardwareEvent, LossReason};
use std::fmt;
use std::sync::Arc;

/// Longer messages are cut in events; their size is told.
const TEXT_MAX: usize = 1024;
/// And longer texts of SyS-T, of which a few bytes can make any length.
const SYS_T_TEXT_MAX: usize = 4096;

type Give = Box<dyn FnMut(&stp::Message<'_>)>;

pub(super) struct Stp {
    decoder: Decoder,
    /// Messages are of SyS-T, with these catalogues.
    sys_t: Option<Arc<Collateral>>,
    /// What the user says, where the stream does not.
    clock_hz: Option<u64>,
    items: Vec<Item>,
    /// Packets of messages that are not complete go in here.
    messages: Messages<Give>,
    made: std::rc::Rc<std::cell::RefCell<Vec<HardwareEvent>>>,
    /// Messages of which it was told that they are missing.
    missing: u64,
}

impl Stp {
    pub(super) fn new(clock_hz: Option<u64>, sys_t: Option<Arc<Collateral>>) -> Stp {
        let made = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let (into, catalogs) = (made.clone(), sys_t.clone());
        let give: Give = Box::new(move |message| {
            let said = catalogs.as_deref().and_then(|catalogs| sys_t_event(message, catalogs));
            let mut event = said.unwrap_or_else(|| event_of(message));
            // Ticks for now: the frequency may be told later than the message began.
            event.time_ns = message.timestamp.map(|time| time.ticks);
            into.borrow_mut().push(event);
        });
        Stp {
            decoder: Decoder::new(),
            sys_t,
            clock_hz,
            items: Vec::new(),
            messages: Messages::new(Framing::FlagEnds, give),
            made,
            missing: 0,
        }
    }

    fn hz(&self) -> Option<u64> {
        self.decoder.frequency_hz().map(u64::from).filter(|hz| *hz > 0).or(self.clock_hz)
    }

    fn give(&mut self, found: &mut dyn Findings) {
        let hz = self.hz();
        for item in std::mem::take(&mut self.items) {
            match item {
                Item::Packet(packet) => {
                    let ticks = packet.timestamp.map(|time| time.ticks);
                    let time = ticks.and_then(|ticks| hz.map_or(Some(ticks), |hz| ns_of(ticks, hz)));
                    found.packet(&SeenPacket { offset: packet.nibble / 2, time, text: &Shown(&packet) });
                    if let Payload::MasterError(_) | Payload::GlobalError(_) = packet.payload {
                        let event = HardwareEvent::lost(LossReason::Overflow, 0);
                        found.event(HardwareEvent {
                            time_ns: ticks.zip(hz).and_then(|(ticks, hz)| ns_of(ticks, hz)),
                            ..event
                        });
                    }
                    self.messages.packet(&packet);
                }
                Item::Lost(lost) => {
                    self.messages.lost(&lost);
                    found.lost(lost.in_bytes());
                }
            }
            for mut event in self.made.borrow_mut().drain(..) {
                event.time_ns = event.time_ns.zip(hz).and_then(|(ticks, hz)| ns_of(ticks, hz));
                found.event(event);
            }
            self.tell_missing(found);
        }
    }

    /// Tells of messages that became no event. Of those that were cut, bytes are lost as well.
    fn tell_missing(&mut self, found: &mut dyn Findings) {
        let losses = self.messages.losses();
        let missing = losses.too_long + losses.too_many + losses.unfinished;
        for _ in std::mem::replace(&mut self.missing, missing)..missing {
            found.event(HardwareEvent::lost(LossReason::Message, 0));
        }
    }
}

impl UnitDecoder for Stp {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        // In pieces: what a piece has is kept until it is given.
        for piece in bytes.chunks(4096) {
            self.decoder.push(piece, &mut self.items);
            self.give(found);
        }
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.finish(found);
        let next = Stp::new(self.hz(), self.sys_t.take());
        *self = next;
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.decoder.finish(&mut self.items);
        self.give(found);
        self.messages.finish();
        self.tell_missing(found);
    }
}

/// Packets alone, for whoever knows what they are.
pub(super) struct StpPackets<'s> {
    decoder: Decoder,
    sink: &'s mut dyn Sink,
}

impl<'s> StpPackets<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> StpPackets<'s> {
        StpPackets { decoder: Decoder::new(), sink }
    }
}

/// Those who hear of a packet.
struct Heard<'h> {
    sink: &'h mut dyn Sink,
    found: &'h mut dyn Findings,
}

impl Sink for Heard<'_> {
    fn packet(&mut self, packet: &Packet) {
        let time = packet.timestamp.map(|time| time.ticks);
        self.found.packet(&SeenPacket { offset: packet.nibble / 2, time, text: &Shown(packet) });
        self.sink.packet(packet);
    }

    fn lost(&mut self, lost: &Lost) {
        self.found.lost(lost.in_bytes());
        self.sink.lost(lost);
    }
}

impl UnitDecoder for StpPackets<'_> {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        self.decoder.push(bytes, &mut Heard { sink: &mut *self.sink, found });
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.finish(found);
        self.decoder = Decoder::new();
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.decoder.finish(&mut Heard { sink: &mut *self.sink, found });
    }
}

/// A message of which only its bytes are known.
fn event_of(message: &stp::Message<'_>) -> HardwareEvent {
    let numbers = [message.master.into(), message.channel.into(), message.bytes.len() as u64];
    HardwareEvent::new(EventClassKind::Message, &numbers, text_of(message.bytes).into())
}

/// A message of SyS-T. `None`: it is none.
fn sys_t_event(bytes: &stp::Message<'_>, catalogs: &Collateral) -> Option<HardwareEvent> {
    let message = Message::parse(bytes.bytes).ok()?;
    let said = catalogs.text(&message);
    let mut faults: Vec<String> = said.error.iter().map(ToString::to_string).collect();
    if message.checksum == Checksum::Wrong {
        faults.push("its checksum is wrong".to_owned());
    }
    let text = first(&said.text, SYS_T_TEXT_MAX);
    if text.len() < said.text.len() {
        faults.push(format!("longer than {SYS_T_TEXT_MAX} bytes"));
    }
    if message.behind > 0 {
        faults.push(format!("{} more bytes than its length says", message.behind));
    }
    let numbers = [bytes.master.into(), bytes.channel.into()];
    let mut event = HardwareEvent::new(EventClassKind::SysT, &numbers, text.trim_end().into());
    let ticks = message.ticks.map(|ticks| ticks.to_string()).unwrap_or_default();
    // Short ones say neither.
    let severity = message.origin.map(|_| message.severity.name().to_owned()).unwrap_or_default();
    let unit = message.origin.map(|_| message.unit.to_string()).unwrap_or_default();
    let [kind, origin, location] =
        [said.kind, said.origin, said.location].map(|name| first(&name, TEXT_MAX).to_owned());
    event.more = vec![severity, kind, origin, unit, location, ticks, faults.join("; ")];
    Some(event)
}

/// At most so many bytes of it.
fn first(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Text if it is text, else bytes in base 16.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let bytes = &bytes[..end.min(TEXT_MAX)];
    let is_text = |text: &&str| text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t');
    match std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).filter(is_text) {
        Some(text) => text.trim_end().to_owned(),
        None => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

struct Shown<'p>(&'p Packet);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { master, channel, payload, timestamp, .. } = self.0;
        f.write_str(self.0.name())?;
        match payload {
            Payload::Null | Payload::Async => {}
            Payload::Version(version) => write!(f, " {version}")?,
            Payload::Master { master, .. } => write!(f, " {master:#x}")?,
            Payload::Channel { channel, .. } => write!(f, " {channel:#x}")?,
            Payload::MasterError(code)
            | Payload::GlobalError(code)
            | Payload::Trigger(code)
            | Payload::CrossSync(code) => write!(f, " {code:#x}")?,
            Payload::Data { value, .. } => write!(f, " {value:#x} ({master:#x}:{channel:#x})")?,
            Payload::Flag => write!(f, " ({master:#x}:{channel:#x})")?,
            Payload::User { value, .. } => write!(f, " {value:#x}")?,
            Payload::Frequency(hz) => write!(f, " {hz} Hz")?,
        }
        timestamp.map_or(Ok(()), |time| write!(f, " ticks {:#x}", time.ticks))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ETMv4 and ETE, PTM, ETMv3: packets; with the program's image also what was executed, and its functions.
//!
//! A timestamp is that of what came before it. So events wait for the next one; how exact their times are depends on how
//! often the unit was told to write them.

use super::clock::Conversion;
use super::follow::Follower;
use super::{Findings, SeenPacket, UnitDecoder};
use crate::Lost;
use crate::etm::isa::Kind;
use crate::etm::{At, Element, ElementSink, Fault, Gap, Image, Range, Sink, Spaces, ptm, v3, v4};
use crate::trace::{BranchKind, Edge, EventClassKind, HardwareEvent, LossReason, UNKNOWN_ADDRESS};
use std::fmt;

/// Events that wait for their time; a stream without timestamps has none for any.
const WAITING_MAX: usize = 1 << 16;

/// Elements of one packet.
#[derive(Default)]
pub(super) struct Elements(Vec<Element>);

impl ElementSink for Elements {
    fn element(&mut self, _: u64, element: &Element) {
        self.0.push(*element);
    }
}

/// Packets and flow of a unit: the three have the same form.
pub(super) trait Protocol {
    type Packet: fmt::Display;
    type Config;
    type Packets;
    type Flow: Sink<Self::Packet>;

    fn packets(config: &Self::Config) -> Self::Packets;
    fn flow(config: &Self::Config, image: Image) -> Self::Flow;
    /// The time that a packet says.
    fn time(packet: &Self::Packet) -> Option<u64>;
    fn push(packets: &mut Self::Packets, offset: u64, bytes: &[u8], sink: &mut impl Sink<Self::Packet>);
    fn reset(packets: &mut Self::Packets, sink: &mut impl Sink<Self::Packet>);
    fn finish(packets: &mut Self::Packets, sink: &mut impl Sink<Self::Packet>);
    fn elements(flow: &mut Self::Flow) -> &mut Vec<Element>;
    fn reset_flow(flow: &mut Self::Flow, offset: u64);
    fn finish_flow(flow: &mut Self::Flow);
}

macro_rules! protocol {
    ($name:ident, $unit:ident, $time:pat => $value:expr, $finish:expr) => {
        pub(super) struct $name;

        impl Protocol for $name {
            type Packet = $unit::Packet;
            type Config = $unit::Config;
            type Packets = $unit::Packets;
            type Flow = $unit::Flow<Elements>;

            fn packets(config: &$unit::Config) -> $unit::Packets {
                $unit::Packets::new(config)
            }
            fn flow(config: &$unit::Config, image: Image) -> Self::Flow {
                $unit::Flow::new(config, image, Elements::default())
            }
            fn time(packet: &$unit::Packet) -> Option<u64> {
                if let $time = packet { Some(*$value) } else { None }
            }
            fn push(
                packets: &mut Self::Packets,
                offset: u64,
                bytes: &[u8],
                sink: &mut impl Sink<Self::Packet>,
            ) {
                packets.push(offset, bytes, sink);
            }
            fn reset(packets: &mut Self::Packets, sink: &mut impl Sink<Self::Packet>) {
                packets.reset(sink);
            }
            fn finish(packets: &mut Self::Packets, sink: &mut impl Sink<Self::Packet>) {
                packets.finish(sink);
            }
            fn elements(flow: &mut Self::Flow) -> &mut Vec<Element> {
                &mut flow.sink().0
            }
            fn reset_flow(flow: &mut Self::Flow, offset: u64) {
                flow.reset(offset);
            }
            fn finish_flow(flow: &mut Self::Flow) {
                let finish: fn(&mut Self::Flow) = $finish;
                finish(flow);
            }
        }
    };
}

protocol!(Etm4, v4, v4::Packet::Timestamp { value, .. } => value, v4::Flow::finish);
protocol!(Etm3, v3, v3::Packet::Timestamp(value) => value, v3::Flow::finish);
// It keeps nothing back.
protocol!(Ptm, ptm, ptm::Packet::Timestamp { value, .. } => value, |_| ());

/// One unit's stream.
pub(super) struct Etm<P: Protocol> {
    packets: P::Packets,
    offset: u64,
    state: State<P>,
}

struct State<P: Protocol> {
    flow: P::Flow,
    follower: Follower,
    last: Option<Range>,
    /// An exception was taken, from here; its handler comes next.
    exception: Option<u64>,
    returns: bool,
    /// Nothing more is said of memory that is missing until there is some again.
    is_lost: bool,
    ticks: Option<u64>,
    conversion: Conversion,
    waiting: Vec<HardwareEvent>,
}

impl<P: Protocol> Etm<P> {
    pub(super) fn new(
        config: &P::Config,
        mut image: Image,
        mut follower: Follower,
        conversion: Conversion,
    ) -> Self {
        for (address, bytes) in &follower.memory.pieces {
            image.add(Spaces::ANY, *address, bytes.clone());
        }
        follower.is_useful = !image.is_empty();
        Etm {
            packets: P::packets(config),
            offset: 0,
            state: State {
                flow: P::flow(config, image),
                follower,
                last: None,
                exception: None,
                returns: false,
                is_lost: false,
                ticks: None,
                conversion,
                waiting: Vec::new(),
            },
        }
    }
}

impl<P: Protocol> UnitDecoder for Etm<P> {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        P::push(&mut self.packets, self.offset, bytes, &mut Taker { state: &mut self.state, found });
        self.offset += bytes.len() as u64;
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        P::reset(&mut self.packets, &mut Taker { state: &mut self.state, found });
        P::reset_flow(&mut self.state.flow, self.offset);
        Taker { state: &mut self.state, found }.elements();
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        P::finish(&mut self.packets, &mut Taker { state: &mut self.state, found });
        P::finish_flow(&mut self.state.flow);
        let mut taker = Taker { state: &mut self.state, found };
        taker.elements();
        taker.state.follower.finish();
        taker.functions();
        let time = taker.state.ns();
        taker.release(time);
    }
}

impl<P: Protocol> State<P> {
    fn ns(&self) -> Option<u64> {
        self.ticks.and_then(|ticks| self.conversion.ns(ticks))
    }
}

struct Taker<'t, 'f, P: Protocol> {
    state: &'t mut State<P>,
    found: &'t mut (dyn Findings + 'f),
}

impl<P: Protocol> Sink<P::Packet> for Taker<'_, '_, P> {
    fn packet(&mut self, at: At, packet: &P::Packet) {
        self.state.ticks = P::time(packet).or(self.state.ticks);
        let time = self.state.ns().or(self.state.ticks);
        self.found.packet(&SeenPacket { offset: at.offset, time, text: packet });
        self.state.flow.packet(at, packet);
        self.elements();
    }

    fn lost(&mut self, lost: Lost, fault: Fault) {
        self.found.lost(lost);
        self.state.flow.lost(lost, fault);
        self.elements();
    }
}

impl<P: Protocol> Taker<'_, '_, P> {
    fn elements(&mut self) {
        let mut elements = std::mem::take(P::elements(&mut self.state.flow));
        elements.drain(..).for_each(|element| self.element(&element));
        *P::elements(&mut self.state.flow) = elements;
    }

    fn element(&mut self, element: &Element) {
        let time = self.state.ns().or(self.state.ticks);
        if self.state.follower.is_useful || !matches!(element, Element::NoMemory { .. }) {
            self.found.flow(time, &Shown(element, &self.state.follower));
        }
        match element {
            Element::Range(range) => self.range(range),
            Element::Exception { number, return_address } => {
                let address = return_address.unwrap_or(UNKNOWN_ADDRESS);
                self.state.exception = Some(address);
                let numbers = [(*number).into(), address];
                self.keep(HardwareEvent::new(EventClassKind::Exception, &numbers, "entered".into()));
            }
            Element::ExceptionReturn => self.state.returns = true,
            Element::Instrumentation { value, .. } => {
                self.keep(HardwareEvent::new(EventClassKind::Write, &[*value, UNKNOWN_ADDRESS], "".into()));
            }
            Element::Timestamp { .. } => {
                let time = self.state.ns();
                self.state.follower.at(time);
                self.release(time);
            }
            Element::Gap(gap) => {
                if matches!(gap, Gap::Overflow) {
                    self.keep(HardwareEvent::lost(LossReason::Overflow, 0));
                }
                self.interrupt();
            }
            Element::NoMemory { .. } | Element::UnknownPath { .. } => {
                // Without an image nobody asked for functions.
                if self.state.follower.is_useful && !std::mem::replace(&mut self.state.is_lost, true) {
                    self.keep(HardwareEvent::lost(LossReason::Image, 0));
                }
                self.interrupt();
            }
            Element::TraceOn { .. } => self.state.last = None,
            _ => {}
        }
        if self.state.waiting.len() >= WAITING_MAX {
            let time = self.state.ns();
            self.release(time);
        }
    }

    fn range(&mut self, range: &Range) {
        self.state.is_lost = false;
        let last = self.state.last.replace(*range);
        let (exception, returns) = (self.state.exception.take(), std::mem::take(&mut self.state.returns));
        let edge = |from, next, kind| Edge { from, next, to: range.start, kind };
        match (exception, last) {
            (Some(from), _) => self.state.follower.edge(&edge(from, from, BranchKind::Exception)),
            (None, Some(last)) if last.taken && matches!(last.last.kind, Kind::Direct | Kind::Indirect) => {
                let kind = match last.last {
                    branch if branch.is_exception_return || returns => BranchKind::ExceptionReturn,
                    branch if branch.link => BranchKind::Call,
                    branch if branch.is_return => BranchKind::Return,
                    _ => BranchKind::Jump,
                };
                let from = last.end.saturating_sub(last.last.size.into());
                self.state.follower.edge(&edge(from, last.end, kind));
            }
            (None, Some(last)) if last.end == range.start => {}
            _ => self.state.follower.begin(range.start),
        }
        self.functions();
    }

    fn interrupt(&mut self) {
        (self.state.last, self.state.exception) = (None, None);
        self.state.follower.interrupt();
        self.functions();
    }

    fn functions(&mut self) {
        let State { follower, waiting, .. } = &mut *self.state;
        waiting.extend(follower.take());
    }

    fn keep(&mut self, event: HardwareEvent) {
        self.state.waiting.push(event);
    }

    fn release(&mut self, time_ns: Option<u64>) {
        let mut waiting = std::mem::take(&mut self.state.waiting);
        waiting.drain(..).for_each(|event| self.found.event(HardwareEvent { time_ns, ..event }));
        self.state.waiting = waiting;
    }
}

struct Shown<'s>(&'s Element, &'s Follower);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |address: u64| self.1.memory.place(address);
        match self.0 {
            Element::Range(range) => {
                let how = if range.taken { "" } else { ", not taken" };
                write!(
                    f,
                    "range {} to {:#x}: {} instructions{how}",
                    place(range.start),
                    range.end,
                    range.instructions
                )
            }
            Element::NoMemory { address } => write!(f, "no image at {address:#x}"),
            Element::UnknownPath { start, end, .. } => {
                let from = start.map_or_else(|| "somewhere".to_owned(), &place);
                write!(f, "unknown path from {from} to {}", place(*end))
            }
            Element::Exception { number, return_address: Some(address) } => {
                write!(f, "exception {number} at {}", place(*address))
            }
            other => write!(f, "{other:?}"),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ETMv4 and ETE: packets; with the program's image also what was executed, and its functions.
//!
//! A timestamp is that of what came before it. So events wait for the next one; how exact their times are depends on how
//! often the unit was told to write them.

use super::follow::Follower;
use super::{Findings, SeenPacket, UnitDecoder};
use crate::Lost;
use crate::etm::isa::Kind;
use crate::etm::v4::{Config, Flow, Packet, Packets};
use crate::etm::{At, Element, ElementSink, Fault, Gap, Image, Range, Sink, Spaces};
use crate::trace::{BranchKind, Edge, EventClassKind, HardwareEvent, LossReason};
use std::fmt;

/// Events that wait for their time; a stream without timestamps has none for any.
const WAITING_MAX: usize = 1 << 16;

/// Elements of one packet.
#[derive(Default)]
struct Elements(Vec<Element>);

impl ElementSink for Elements {
    fn element(&mut self, _: u64, element: &Element) {
        self.0.push(*element);
    }
}

pub(super) struct Etm4 {
    packets: Packets,
    offset: u64,
    state: State,
}

struct State {
    flow: Flow<Elements>,
    follower: Follower,
    last: Option<Range>,
    /// An exception was taken, from here; its handler comes next.
    exception: Option<u64>,
    returns: bool,
    /// Nothing more is said of memory that is missing until there is some again.
    is_lost: bool,
    ticks: Option<u64>,
    clock_hz: Option<u64>,
    waiting: Vec<HardwareEvent>,
}

impl Etm4 {
    pub(super) fn new(
        config: &Config,
        mut image: Image,
        mut follower: Follower,
        clock_hz: Option<u64>,
    ) -> Etm4 {
        for (address, bytes) in &follower.memory.pieces {
            image.add(Spaces::ANY, *address, bytes.clone());
        }
        follower.is_useful = !image.is_empty();
        Etm4 {
            packets: Packets::new(config),
            offset: 0,
            state: State {
                flow: Flow::new(config, image, Elements::default()),
                follower,
                last: None,
                exception: None,
                returns: false,
                is_lost: false,
                ticks: None,
                clock_hz,
                waiting: Vec::new(),
            },
        }
    }
}

impl UnitDecoder for Etm4 {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        self.packets.push(self.offset, bytes, &mut Taker { state: &mut self.state, found });
        self.offset += bytes.len() as u64;
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.packets.reset(&mut Taker { state: &mut self.state, found });
        self.state.flow.reset(self.offset);
        Taker { state: &mut self.state, found }.elements();
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.packets.finish(&mut Taker { state: &mut self.state, found });
        self.state.flow.finish();
        let mut taker = Taker { state: &mut self.state, found };
        taker.elements();
        taker.state.follower.finish();
        taker.functions();
        let time = taker.state.ns();
        taker.release(time);
    }
}

impl State {
    fn ns(&self) -> Option<u64> {
        self.ticks.zip(self.clock_hz).and_then(|(ticks, hz)| super::ns_of(ticks, hz))
    }
}

struct Taker<'t, 'f> {
    state: &'t mut State,
    found: &'t mut (dyn Findings + 'f),
}

impl Sink<Packet> for Taker<'_, '_> {
    fn packet(&mut self, at: At, packet: &Packet) {
        if let Packet::Timestamp { value, .. } = packet {
            self.state.ticks = Some(*value);
        }
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

impl Taker<'_, '_> {
    fn elements(&mut self) {
        let mut elements = std::mem::take(&mut self.state.flow.sink().0);
        elements.drain(..).for_each(|element| self.element(&element));
        self.state.flow.sink().0 = elements;
    }

    fn element(&mut self, element: &Element) {
        let time = self.state.ns().or(self.state.ticks);
        if self.state.follower.is_useful || !matches!(element, Element::NoMemory { .. }) {
            self.found.flow(time, &Shown(element, &self.state.follower));
        }
        match element {
            Element::Range(range) => self.range(range),
            Element::Exception { number, return_address } => {
                let address = return_address.unwrap_or(0);
                self.state.exception = Some(address);
                let numbers = [(*number).into(), address];
                self.keep(HardwareEvent::new(EventClassKind::Exception, &numbers, "entered".into()));
            }
            Element::ExceptionReturn => self.state.returns = true,
            Element::Instrumentation { value, .. } => {
                self.keep(HardwareEvent::new(EventClassKind::Write, &[*value], "".into()));
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
                write!(f, "unknown path from {} to {}", place(*start), place(*end))
            }
            Element::Exception { number, return_address: Some(address) } => {
                write!(f, "exception {number} at {}", place(*address))
            }
            other => write!(f, "{other:?}"),
        }
    }
}

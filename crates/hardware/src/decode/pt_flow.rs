// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of Intel PT → functions and events.

use super::Findings;
use super::clock::Conversion;
use super::follow::Follower;
use super::pt::control_flow;
use crate::pt::{Block, BlockEnd, Event, FlowSink, Stamp};
use crate::trace::{BranchKind, Edge, EventClassKind, HardwareEvent, LossReason, UNKNOWN_ADDRESS};
use std::fmt;

/// What is kept between packets.
pub(super) struct FlowTaker {
    follower: Follower,
    conversion: Conversion,
    last: Option<Block>,
    time_ns: Option<u64>,
}

impl FlowTaker {
    pub(super) fn new(follower: Follower, conversion: Conversion) -> FlowTaker {
        FlowTaker { follower, conversion, last: None, time_ns: None }
    }

    pub(super) fn with<'t, 'f>(&'t mut self, found: &'t mut (dyn Findings + 'f)) -> Taking<'t, 'f> {
        Taking { taker: self, found }
    }

    /// What comes next does not continue what came before.
    pub(super) fn interrupt(&mut self, found: &mut dyn Findings) {
        self.last = None;
        self.follower.interrupt();
        self.with(found).functions();
    }

    pub(super) fn finish(&mut self, found: &mut dyn Findings) {
        self.follower.finish();
        self.with(found).functions();
    }
}

/// The same while a packet is decoded.
pub(super) struct Taking<'t, 'f> {
    taker: &'t mut FlowTaker,
    found: &'t mut (dyn Findings + 'f),
}

fn after(block: &Block) -> u64 {
    block.address.wrapping_add(block.bytes.into())
}

/// The branch that ends a block, if it leads to `to`.
fn edge(block: &Block, to: u64) -> Option<Edge> {
    let next = after(block);
    let kind = match block.end {
        BlockEnd::Call | BlockEnd::IndirectCall => BranchKind::Call,
        BlockEnd::Far => BranchKind::Far,
        BlockEnd::Jump | BlockEnd::IndirectJump => BranchKind::Jump,
        BlockEnd::Conditional if to != next => BranchKind::Jump,
        // Of a return it was said that it returned when it did.
        BlockEnd::Return | BlockEnd::Conditional | BlockEnd::Plain | BlockEnd::Undefined => return None,
    };
    Some(Edge { from: next.wrapping_sub(1), next, to, kind })
}

impl Taking<'_, '_> {
    fn at(&mut self, stamp: &Stamp) -> Option<u64> {
        let ticks = stamp.time.map(|time| time.ticks);
        self.taker.time_ns = ticks.and_then(|ticks| self.taker.conversion.ns(ticks));
        self.taker.follower.at(self.taker.time_ns);
        self.taker.time_ns.or(ticks)
    }

    fn functions(&mut self) {
        let FlowTaker { follower, time_ns, .. } = &mut *self.taker;
        follower.take().for_each(|event| self.found.event(HardwareEvent { time_ns: *time_ns, ..event }));
    }

    fn give(&mut self, event: HardwareEvent) {
        self.found.event(HardwareEvent { time_ns: self.taker.time_ns, ..event });
    }

    fn event_of(&mut self, class: EventClassKind, numbers: &[u64], text: &str) {
        self.give(HardwareEvent::new(class, numbers, text.into()));
    }

    fn lost(&mut self, reason: LossReason) {
        self.taker.last = None;
        self.taker.follower.interrupt();
        self.functions();
        self.give(HardwareEvent::lost(reason, 0));
    }

    fn begin(&mut self, ip: u64) {
        self.taker.last = None;
        self.taker.follower.begin(ip);
        self.functions();
    }

    fn branch(&mut self, edge: &Edge) {
        self.taker.follower.edge(edge);
        self.functions();
    }

    /// Of where the flow goes.
    fn turn(&mut self, event: Event) {
        match event {
            Event::Synchronised { ip: Some(ip) } if self.taker.last.is_none() => self.begin(ip),
            Event::Enabled { ip, .. } | Event::Recovered { ip } => self.begin(ip),
            // A system call comes back to where it was made; what is not traced in between is no function here.
            Event::Disabled { .. } => self.taker.last = None,
            Event::Asynchronous { from, to } => {
                if self.taker.last.take().is_some_and(|last| last.end == BlockEnd::Return) {
                    self.taker.follower.arrive(from);
                }
                self.branch(&Edge { from, next: from, to, kind: BranchKind::Exception });
            }
            Event::Overflow => self.lost(LossReason::Overflow),
            Event::Failed { .. } => self.lost(LossReason::Image),
            Event::Lost(_) => {
                self.taker.last = None;
                self.taker.follower.interrupt();
                self.functions();
            }
            _ => {}
        }
    }
}

impl FlowSink for Taking<'_, '_> {
    fn block(&mut self, block: &Block, stamp: &Stamp) {
        let time = self.at(stamp);
        self.found.flow(time, &ShownBlock(block, &self.taker.follower));
        match self.taker.last.replace(*block) {
            Some(last) if last.end == BlockEnd::Return => {
                self.taker.follower.arrive(block.address);
                self.functions();
            }
            Some(last) => match edge(&last, block.address) {
                Some(edge) => self.branch(&edge),
                None if after(&last) == block.address => {}
                None => {
                    self.taker.follower.begin(block.address);
                    self.functions();
                }
            },
            None => {
                self.taker.follower.begin(block.address);
                self.functions();
            }
        }
        if block.end == BlockEnd::Return {
            // The packet that says where it led may come much later; that it returned is known now.
            self.taker.follower.returned();
            self.functions();
        }
    }

    fn event(&mut self, event: Event, stamp: &Stamp) {
        let time = self.at(stamp);
        self.found.flow(time, &ShownEvent(&event, &self.taker.follower));
        match event {
            Event::Write { payload, at, .. } => {
                let name = at.and_then(|at| self.taker.follower.memory.functions.at(at));
                let name = name.map_or(String::new(), |found| found.function.name.to_string());
                self.event_of(EventClassKind::Write, &[payload, at.unwrap_or(UNKNOWN_ADDRESS)], &name);
            }
            Event::ControlFlow { kind, vector, at } => {
                let numbers = [vector.into(), at.unwrap_or(UNKNOWN_ADDRESS)];
                self.event_of(EventClassKind::Exception, &numbers, control_flow(kind));
            }
            Event::ControlFlowData { payload, .. } => {
                self.event_of(EventClassKind::Packet, &[payload], "event data");
            }
            Event::Wait { hints, .. } => self.event_of(EventClassKind::Packet, &[hints.into()], "mwait"),
            Event::Asleep { state, .. } => {
                self.event_of(EventClassKind::Packet, &[state.into()], "power entry");
            }
            Event::Awake { last, .. } => self.event_of(EventClassKind::Packet, &[last.into()], "power exit"),
            Event::ExecutionStopped { .. } => {
                self.event_of(EventClassKind::Packet, &[], "execution stopped");
            }
            Event::Trigger { triggers, .. } => {
                self.event_of(EventClassKind::Packet, &[triggers.into()], "trigger");
            }
            other => self.turn(other),
        }
    }
}

struct ShownBlock<'s>(&'s Block, &'s Follower);

impl fmt::Display for ShownBlock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Block { address, instructions, end, .. } = self.0;
        write!(f, "block {}: {instructions} instructions, {end:?}", self.1.memory.place(*address))
    }
}

struct ShownEvent<'s>(&'s Event, &'s Follower);

impl fmt::Display for ShownEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |address: u64| self.1.memory.place(address);
        match self.0 {
            Event::Failed { error, ip } => write!(f, "failed at {}: {error}", place(*ip)),
            Event::Asynchronous { from, to } => write!(f, "interrupt at {} to {}", place(*from), place(*to)),
            Event::Enabled { ip, .. } => write!(f, "enabled at {}", place(*ip)),
            Event::Write { payload, at: Some(at), .. } => write!(f, "ptwrite {payload:#x} at {}", place(*at)),
            other => write!(f, "{other:?}"),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets and the program become what was executed.
//!
//! [`Flow`] takes packets (it is a [`Sink`] when it is given a [`FlowSink`]) and says which blocks of instructions were executed,
//! in order, and what happened between them. It needs what is in memory ([`Memory`]), for each address space that it is to follow.
//!
//! How packets belong together is in the SDM, section "Packet Sequencing", and in the definitions of the packets:
//! - TNT and TIP tell of branches in order, but a TIP may come after a TNT that has branches behind it (deferred TIPs);
//! - a FUP says where: of an interrupt with the TIP after it, of the end of tracing with the TIP.PGD after it, or of the packet before it
//!   (PTW, EXSTOP, MODE.TSX, CFE, TRIG, BEP, OVF);
//! - MODE.Exec counts from the next address on;
//! - between PSB and PSBEND packets say how things are, and nothing happens.
//!
//! Where trace and program do not fit, [`Event::Failed`] says how and where, and packets are passed over (and counted) up to
//! the next that names a place for certain: the FUP of a PSB, a TIP.PGE, the FUP after an overflow, or an interrupt.

mod event;
mod walk;

pub use event::{Event, FlowError, Stamp, TransactionState};

use super::code::{Block, Memory};
use super::decode::{Decoder, Place, Sink};
use super::packet::{ExecMode, Ip, LastIp, Packet, Tnt};
use super::time::{Clock, ClockConfig, Time};
use crate::Lost;
use walk::Walk;

/// An address space of a [`Flow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(usize);

impl SpaceId {
    /// The one that is there from the beginning.
    pub const FIRST: Self = Self(0);
}

/// What may decide which address space is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// When.
    pub stamp: Stamp,
    /// The last CR3 that was traced.
    pub cr3: Option<u64>,
    /// In a guest.
    pub non_root: bool,
    /// The last VMCS that was traced.
    pub vmcs: Option<u64>,
    /// The next instruction, where it is known.
    pub ip: Option<u64>,
}

/// Who is told.
pub trait FlowSink {
    /// Instructions were executed.
    fn block(&mut self, block: &Block, stamp: &Stamp);

    /// Something happened.
    fn event(&mut self, event: Event, stamp: &Stamp);

    /// The address space may be another one: CR3 was written, tracing began or was found again, or an interrupt came. `None`: it is
    /// the same. Who reads a recording's sideband (mappings, switches of tasks) answers from it by the time.
    fn space(&mut self, situation: &Situation) -> Option<SpaceId> {
        let _ = situation;
        None
    }
}

/// What a FUP is waited for by.
#[derive(Clone, Copy, Debug)]
enum Expects {
    Nothing,
    /// An event that it completes.
    Event(Event),
    /// The same, and a TIP follows as of an interrupt.
    Interruption(Event),
    /// An overflow.
    Recovery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// After a loss: where the program is, is unknown.
    Unknown,
    /// Tracing is off.
    Off,
    /// The walk is at its `ip`.
    On,
}

/// Follows the instructions of one stream.
#[derive(Clone, Debug)]
pub struct Flow {
    clock: Clock,
    walk: Walk,
    state: State,
    last_ip: LastIp,
    stamp: Stamp,
    expects: Expects,
    /// The FUP of an interrupt, up to its TIP.
    interrupted: Option<u64>,
    /// The width of code from the next address on.
    next_mode: Option<ExecMode>,
    in_psb: bool,
    psb_ip: Option<u64>,
    /// Where tracing would go on.
    resume: Option<u64>,
    in_transaction: bool,
    cr3: Option<u64>,
    non_root: bool,
    vmcs: Option<u64>,
    not_followed: u64,
}

impl Flow {
    /// Before the first packet; nothing is known of the program.
    #[must_use]
    pub fn new(config: ClockConfig) -> Self {
        Self {
            clock: Clock::new(config),
            walk: Walk::new(),
            state: State::Unknown,
            last_ip: LastIp::new(),
            stamp: Stamp::default(),
            expects: Expects::Nothing,
            interrupted: None,
            next_mode: None,
            in_psb: false,
            psb_ip: None,
            resume: None,
            in_transaction: false,
            cr3: None,
            non_root: false,
            vmcs: None,
            not_followed: 0,
        }
    }

    /// One more address space.
    pub fn add_space(&mut self, memory: Memory) -> SpaceId {
        self.walk.memories.push(memory);
        SpaceId(self.walk.memories.len() - 1)
    }

    /// Changes what is in a space, as a program maps files.
    ///
    /// # Panics
    /// For a space of another flow.
    pub fn change(&mut self, space: SpaceId, change: impl FnOnce(&mut Memory)) {
        change(&mut self.walk.memories[space.0]);
        self.walk.changed(SpaceId(self.walk.space));
    }

    /// What is in a space.
    ///
    /// # Panics
    /// For a space of another flow.
    #[must_use]
    pub fn memory(&self, space: SpaceId) -> &Memory {
        &self.walk.memories[space.0]
    }

    /// The space from here on.
    ///
    /// # Panics
    /// For a space of another flow.
    pub fn switch(&mut self, space: SpaceId) {
        assert!(space.0 < self.walk.memories.len(), "spaces are those of this flow");
        if self.walk.space != space.0 {
            self.walk.changed(space);
        }
    }

    /// The space that is followed.
    #[must_use]
    pub const fn space(&self) -> SpaceId {
        SpaceId(self.walk.space)
    }

    /// The width of the code.
    #[must_use]
    pub const fn mode(&self) -> ExecMode {
        self.walk.mode
    }

    /// The time, as of the last packet.
    #[must_use]
    pub const fn time(&self) -> Option<Time> {
        self.clock.time()
    }

    /// Branches that packets told of and that were not followed, because it was not known where the program was.
    #[must_use]
    pub const fn not_followed(&self) -> u64 {
        self.not_followed
    }

    /// Takes one packet.
    #[inline]
    pub fn packet(&mut self, place: Place, packet: Packet, sink: &mut impl FlowSink) {
        self.stamp.offset = place.offset;
        match packet {
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => self.branches(tnt, sink),
            Packet::Tip(ip) => self.target(ip, sink),
            Packet::Pad => {}
            Packet::Mtc { .. } | Packet::Cyc { .. } | Packet::Tsc { .. } | Packet::Tma { .. } => {
                self.clock.packet(packet);
                self.stamp.time = self.clock.time();
            }
            other => self.rarer(other, sink),
        }
    }

    /// Bytes of the stream are no packets.
    pub fn lost(&mut self, lost: Lost, sink: &mut impl FlowSink) {
        self.stamp.offset = lost.offset;
        self.clock.lose();
        self.forget(State::Unknown);
        sink.event(Event::Lost(lost), &self.stamp);
    }

    #[inline(never)]
    fn rarer(&mut self, packet: Packet, sink: &mut impl FlowSink) {
        match packet {
            Packet::Psb => self.psb(sink),
            Packet::PsbEnd => self.psb_end(sink),
            Packet::TipPge(ip) => self.enable(ip, sink),
            Packet::TipPgd(ip) => self.disable(ip, sink),
            Packet::Fup(ip) => self.at(ip, sink),
            Packet::Ovf => {
                self.clock.packet(packet);
                self.forget(State::Unknown);
                self.expects = Expects::Recovery;
                sink.event(Event::Overflow, &self.stamp);
            }
            Packet::Cbr { ratio } => {
                self.clock.packet(packet);
                if !self.in_psb {
                    sink.event(Event::Frequency { ratio }, &self.stamp);
                }
            }
            Packet::ModeExec { mode, interrupts_enabled } => {
                if self.in_psb {
                    self.walk.mode = mode;
                    self.walk.set(self.walk.ip);
                } else {
                    self.next_mode = Some(mode);
                }
                sink.event(Event::Mode { mode, interrupts_enabled }, &self.stamp);
            }
            Packet::ModeTsx { in_transaction, aborted } => self.transaction(in_transaction, aborted, sink),
            Packet::Pip { cr3, non_root } => {
                let known = self.in_psb && self.cr3 == Some(cr3) && self.non_root == non_root;
                (self.cr3, self.non_root) = (Some(cr3), non_root);
                if !known {
                    sink.event(Event::Paging { cr3, non_root }, &self.stamp);
                }
                self.choose_space(sink);
            }
            Packet::Vmcs { address } => {
                if self.vmcs.replace(address) != Some(address) {
                    sink.event(Event::Guest { vmcs: address }, &self.stamp);
                }
            }
            other => self.tell(other, sink),
        }
    }

    /// Packets that say nothing of the flow.
    fn tell(&mut self, packet: Packet, sink: &mut impl FlowSink) {
        let (event, at_fup) = match packet {
            Packet::Ptw { payload, wide, ip } => (Event::Write { payload, wide, at: None }, ip),
            Packet::ExStop { ip } => (Event::ExecutionStopped { at: None }, ip),
            Packet::Bep { ip } => (Event::GroupEnd { at: None }, ip),
            Packet::Cfe { kind, vector, ip } => {
                let event = Event::ControlFlow { kind, vector, at: None };
                if ip {
                    self.expects = Expects::Interruption(event);
                    return;
                }
                (event, false)
            }
            Packet::Trig { triggers, instructions, multiple, ip } => {
                (Event::Trigger { triggers, instructions, multiple, at: None }, ip)
            }
            Packet::Mwait { hints, extensions } => (Event::Wait { hints, extensions }, false),
            Packet::Pwre { state, sub_state, hardware } => {
                (Event::Asleep { state, sub_state, hardware }, false)
            }
            Packet::Pwrx { last, deepest, reason } => (Event::Awake { last, deepest, reason }, false),
            Packet::Evd { kind, payload } => (Event::ControlFlowData { kind, payload }, false),
            Packet::Bbp { group, .. } => (Event::GroupBegin { group }, false),
            Packet::Bip { id, payload } => (Event::GroupItem { id, payload }, false),
            Packet::TraceStop => (Event::Stopped, false),
            _ => return,
        };
        if at_fup {
            self.expects = Expects::Event(event);
        } else {
            sink.event(event, &self.stamp);
        }
    }

    /// What was known of the program does not go on.
    fn forget(&mut self, state: State) {
        self.walk.clear();
        self.state = state;
        self.expects = Expects::Nothing;
        self.interrupted = None;
        self.in_psb = false;
        self.psb_ip = None;
    }

    fn fail(&mut self, error: FlowError, sink: &mut impl FlowSink) {
        let ip = self.walk.ip;
        self.forget(State::Unknown);
        sink.event(Event::Failed { error, ip }, &self.stamp);
    }

    fn failed(&mut self, result: Result<(), FlowError>, sink: &mut impl FlowSink) -> bool {
        match result {
            Ok(()) => false,
            Err(error) => {
                self.fail(error, sink);
                true
            }
        }
    }

    fn choose_space(&mut self, sink: &mut impl FlowSink) {
        let situation = Situation {
            stamp: self.stamp,
            cr3: self.cr3,
            non_root: self.non_root,
            vmcs: self.vmcs,
            ip: (self.state == State::On).then_some(self.walk.ip),
        };
        if let Some(space) = sink.space(&situation) {
            self.switch(space);
        }
    }

    /// The program goes on here.
    fn go_on(&mut self, ip: u64) {
        if let Some(mode) = self.next_mode.take() {
            self.walk.mode = mode;
        }
        self.walk.set(ip);
        self.state = State::On;
    }

    #[inline]
    fn branches(&mut self, tnt: Tnt, sink: &mut impl FlowSink) {
        if self.state != State::On || self.in_psb {
            return self.branches_elsewhere(tnt, sink);
        }
        self.interrupted = None;
        let result = self.walk.branches(tnt, sink, &self.stamp);
        if result.is_err() {
            self.failed(result, sink);
        }
    }

    #[cold]
    fn branches_elsewhere(&mut self, tnt: Tnt, sink: &mut impl FlowSink) {
        if self.in_psb {
            self.fail(FlowError::InPsb, sink);
        } else if self.state == State::Off {
            self.fail(FlowError::NotEnabled, sink);
        }
        self.not_followed += u64::from(tnt.count);
    }

    fn target(&mut self, ip: Ip, sink: &mut impl FlowSink) {
        let target = self.last_ip.update(ip);
        if self.in_psb {
            self.fail(FlowError::InPsb, sink);
        }
        let Some(target) = target else {
            // Only the end of tracing has no address.
            self.not_followed += 1;
            if self.state == State::On {
                self.fail(FlowError::TargetMissing, sink);
            }
            return;
        };
        if let Some(from) = self.interrupted.take() {
            self.go_on(target);
            sink.event(Event::Asynchronous { from, to: target }, &self.stamp);
            self.choose_space(sink);
            return;
        }
        match self.state {
            State::On => {}
            State::Off => {
                self.not_followed += 1;
                return self.fail(FlowError::NotEnabled, sink);
            }
            State::Unknown => return self.not_followed += 1,
        }
        let next_mode = self.next_mode.take();
        let result = self.walk.target(target, next_mode, sink, &self.stamp);
        self.failed(result, sink);
    }

    fn enable(&mut self, ip: Ip, sink: &mut impl FlowSink) {
        let target = self.last_ip.update(ip);
        self.forget(State::Off);
        let Some(ip) = target else { return };
        self.go_on(ip);
        let resumed = self.resume.take() == Some(ip);
        sink.event(Event::Enabled { ip, resumed }, &self.stamp);
        self.choose_space(sink);
    }

    fn disable(&mut self, ip: Ip, sink: &mut impl FlowSink) {
        let target = self.last_ip.update(ip);
        let at = self.interrupted.take();
        let on = self.state == State::On && !self.in_psb;
        self.resume = at;
        if on && at.is_none() {
            if self.walk.is_waiting() {
                self.fail(FlowError::TargetMissing, sink);
            } else {
                match self.walk.up_to_end(target, sink, &self.stamp) {
                    Ok(after) => self.resume = Some(after),
                    Err(error) => self.fail(error, sink),
                }
            }
        }
        self.forget(State::Off);
        sink.event(Event::Disabled { at, target }, &self.stamp);
    }

    /// A FUP.
    fn at(&mut self, ip: Ip, sink: &mut impl FlowSink) {
        let Some(ip) = self.last_ip.update(ip) else { return };
        if self.in_psb {
            self.psb_ip = Some(ip);
            return;
        }
        let expects = core::mem::replace(&mut self.expects, Expects::Nothing);
        if let Expects::Recovery = expects {
            self.go_on(ip);
            sink.event(Event::Recovered { ip }, &self.stamp);
            return self.choose_space(sink);
        }
        if self.state == State::On {
            let result = self.walk.up_to(ip, sink, &self.stamp);
            self.failed(result, sink);
        }
        match expects {
            Expects::Event(event) => sink.event(placed(event, ip), &self.stamp),
            Expects::Interruption(event) => {
                sink.event(placed(event, ip), &self.stamp);
                self.interrupted = Some(ip);
            }
            Expects::Nothing | Expects::Recovery => self.interrupted = Some(ip),
        }
    }

    fn transaction(&mut self, in_transaction: bool, aborted: bool, sink: &mut impl FlowSink) {
        if self.in_psb {
            self.in_transaction = in_transaction;
            return;
        }
        let state = match (in_transaction, aborted) {
            (_, true) => TransactionState::Aborted,
            (true, false) => TransactionState::Begun,
            (false, false) => TransactionState::Committed,
        };
        self.in_transaction = in_transaction;
        let event = Event::Transaction { state, at: None };
        if self.state == State::Off {
            return sink.event(event, &self.stamp);
        }
        self.expects = if aborted { Expects::Interruption(event) } else { Expects::Event(event) };
    }

    fn psb(&mut self, sink: &mut impl FlowSink) {
        if self.in_psb {
            self.psb_end(sink);
        }
        self.clock.packet(Packet::Psb);
        self.last_ip = LastIp::new();
        self.in_psb = true;
        self.psb_ip = None;
    }

    fn psb_end(&mut self, sink: &mut impl FlowSink) {
        self.clock.packet(Packet::PsbEnd);
        if !self.in_psb {
            return;
        }
        self.in_psb = false;
        match (self.psb_ip.take(), self.state) {
            (Some(ip), State::On) => {
                let result = self.walk.up_to(ip, sink, &self.stamp);
                if self.failed(result, sink) {
                    self.synchronise(ip, sink);
                }
            }
            (Some(ip), _) => self.synchronise(ip, sink),
            (None, State::Unknown) => {
                self.state = State::Off;
                sink.event(Event::Synchronised { ip: None }, &self.stamp);
            }
            // It is off, as it should be; or the state after the PSB was lost.
            (None, _) => {}
        }
    }

    fn synchronise(&mut self, ip: u64, sink: &mut impl FlowSink) {
        self.go_on(ip);
        sink.event(Event::Synchronised { ip: Some(ip) }, &self.stamp);
        self.choose_space(sink);
    }
}

/// An event with its FUP.
fn placed(mut event: Event, ip: u64) -> Event {
    match &mut event {
        Event::Write { at, .. }
        | Event::ExecutionStopped { at }
        | Event::GroupEnd { at }
        | Event::ControlFlow { at, .. }
        | Event::Trigger { at, .. }
        | Event::Transaction { at, .. } => *at = Some(ip),
        _ => {}
    }
    event
}

/// Bytes in, flow out: a [`Decoder`] and a [`Flow`].
#[derive(Clone, Debug)]
pub struct FlowDecoder {
    packets: Decoder,
    /// For its memory and address spaces.
    pub flow: Flow,
}

struct Pass<'a, S> {
    flow: &'a mut Flow,
    sink: &'a mut S,
}

impl<S: FlowSink> Sink for Pass<'_, S> {
    #[inline]
    fn packet(&mut self, place: Place, packet: Packet) {
        self.flow.packet(place, packet, self.sink);
    }

    fn lost(&mut self, lost: Lost) {
        self.flow.lost(lost, self.sink);
    }
}

impl FlowDecoder {
    /// Before the first byte.
    #[must_use]
    pub fn new(flow: Flow) -> Self {
        Self { packets: Decoder::new(), flow }
    }

    /// Decodes what comes next.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl FlowSink) {
        self.packets.push(bytes, &mut Pass { flow: &mut self.flow, sink });
    }

    /// The stream has ended.
    pub fn finish(&mut self, sink: &mut impl FlowSink) {
        self.packets.finish(&mut Pass { flow: &mut self.flow, sink });
    }
}

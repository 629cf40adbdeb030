// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs on each CPU, who woke whom, and what is not known of it.
//!
//! Perfetto takes the thread that leaves a CPU, and the one that wakes another, from the switch before. So the chain of
//! switches given to it has to be unbroken. Where ours is broken (at the beginning, after a loss, between selected events), a thread
//! `<unknown>` runs: what happened there is a gap, and not the time of the thread that was seen last.

use super::bundle::{Bundle, CommKey, Switch, Waking, comm_key};
use super::packets::Packets;
use super::wire::Message;
use std::collections::HashMap;
use std::io::Write;

/// Perfetto refuses others.
const CPUS: u32 = 1024;

/// A state that Perfetto shows as unknown.
pub(super) const UNKNOWN_STATE: u32 = 0x200;

/// Above all that the kernel gives to threads.
const UNKNOWN_TID: u32 = (1 << 22) + 1;

/// `common_flags`: in a hard interrupt, in a softirq.
const HARDIRQ: u64 = 0x08;
const SOFTIRQ: u64 = 0x10;

/// `FtraceEvent.softirq_exit`.
pub(super) const SOFTIRQ_EXIT: u32 = 25;

/// Handlers within handlers.
const OPEN_MOST: usize = 64;

/// Wakings on a CPU that wait for its first switch.
const EARLY_MOST: usize = 4096;

/// All bundles go out after this time, so that packets of one time are near each other.
const BUNDLE_NS: u64 = 100_000_000;

/// A switch of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct SwitchEvent {
    pub(super) prev: u32,
    pub(super) prev_comm: CommKey,
    pub(super) prev_prio: i64,
    /// As the kernel's tracepoint reports it.
    pub(super) prev_state: u32,
    pub(super) next: u32,
    pub(super) next_comm: CommKey,
    pub(super) next_prio: i64,
}

#[derive(Debug, Default)]
struct Cpu {
    bundle: Bundle,
    /// Perfetto has had a switch of this CPU.
    is_primed: bool,
    running: Option<u32>,
    /// The first event since which it is not known what runs.
    unknown_since: Option<u64>,
    /// Time of the last event, and of the last switch.
    last: u64,
    last_switch: u64,
    early: Vec<Waking>,
    /// What is being handled: the `FtraceEvent` that ends each.
    open: Vec<u32>,
    hardirqs: u32,
    softirqs: u32,
}

impl Cpu {
    fn switch(&mut self, switch: Switch) {
        self.running = Some(switch.next);
        self.last_switch = switch.time;
        self.bundle.switch(&switch);
    }

    /// It turned out that this thread has been running since the first event.
    fn settle(&mut self, at: u64, tid: u32, comm: CommKey, prio: i64) {
        let at = at.max(self.last_switch);
        if !self.is_primed {
            // The first switch of a CPU only tells Perfetto what runs; the second begins that thread's slice.
            self.is_primed = true;
            self.switch(Switch { time: at, prev_state: 0, next: 0, prio: 120, comm: comm_key(b"swapper") });
        }
        self.switch(Switch { time: at, prev_state: 0, next: tid, prio, comm });
        self.unknown_since = None;
        for waking in std::mem::take(&mut self.early) {
            self.bundle.waking(&waking);
        }
    }
}

/// All CPUs.
#[derive(Debug, Default)]
pub(super) struct Cpus {
    cpus: Vec<Option<Box<Cpu>>>,
    /// Softirqs in which threads left their CPU: on PREEMPT_RT they can.
    in_softirq: HashMap<u32, u32>,
    scratch: Message,
    flushed: u64,
    /// Gaps in the switches that no loss explains.
    pub(super) gaps: u64,
}

impl Cpus {
    /// The CPU on which something happens now.
    #[inline]
    fn cpu(&mut self, cpu: u32, time: u64) -> Option<&mut Cpu> {
        if cpu >= CPUS {
            return None;
        }
        let place = cpu as usize;
        if place >= self.cpus.len() {
            self.cpus.resize_with(place + 1, || None);
        }
        let cpu = self.cpus.get_mut(place)?.get_or_insert_default();
        if cpu.running.is_none() {
            cpu.unknown_since.get_or_insert(time);
        }
        Some(cpu)
    }

    /// What runs there, if that is known.
    #[inline]
    pub(super) fn running(&self, cpu: u32) -> Option<u32> {
        self.cpus.get(cpu as usize)?.as_ref()?.running
    }

    /// A switch. `is_whole`: all switches are selected, so a gap is one of the recording.
    pub(super) fn switch<W: Write>(
        &mut self,
        (time, number): (u64, u32),
        event: &SwitchEvent,
        is_whole: bool,
        packets: &mut Packets<W>,
    ) {
        self.sweep(time, packets);
        let Some(cpu) = self.cpu(number, time) else { return };
        if cpu.bundle.is_full() {
            self.flush(number, packets);
        }
        let Some(cpu) = self.cpu(number, time) else { return };
        let is_gap = cpu.running.is_some_and(|running| running != event.prev);
        if is_gap {
            let last = cpu.last;
            self.unknown(number, last, is_whole);
            self.gaps += u64::from(is_whole);
        }
        let Some(cpu) = self.cpu(number, time) else { return };
        if let Some(since) = cpu.unknown_since {
            // Nothing is known of the time before, except that it ran at the switch.
            let at = if is_gap || since >= time { time.saturating_sub(1) } else { since };
            cpu.settle(at, event.prev, event.prev_comm, event.prev_prio);
        }
        cpu.switch(Switch {
            time,
            prev_state: event.prev_state,
            next: event.next,
            prio: event.next_prio,
            comm: event.next_comm,
        });
        cpu.last = time;
        let softirqs = std::mem::take(&mut cpu.softirqs);
        cpu.hardirqs = 0;
        if softirqs > 0 && event.prev != 0 {
            self.in_softirq.insert(event.prev, softirqs);
        }
        if !self.in_softirq.is_empty() {
            let softirqs = self.in_softirq.remove(&event.next).unwrap_or(0);
            if let Some(cpu) = self.cpu(number, time) {
                cpu.softirqs = softirqs;
            }
        }
    }

    /// A waking; its flags are those of the CPU's interrupts.
    pub(super) fn waking<W: Write>(&mut self, number: u32, mut waking: Waking, packets: &mut Packets<W>) {
        self.sweep(waking.time, packets);
        let Some(cpu) = self.cpu(number, waking.time) else { return };
        if cpu.bundle.is_full() {
            self.flush(number, packets);
        }
        let Some(cpu) = self.cpu(number, waking.time) else { return };
        waking.flags |= if cpu.hardirqs > 0 { HARDIRQ } else { 0 };
        waking.flags |= if cpu.softirqs > 0 { SOFTIRQ } else { 0 };
        cpu.last = waking.time;
        if cpu.running.is_some() {
            return cpu.bundle.waking(&waking);
        }
        cpu.early.push(waking);
        if cpu.early.len() >= EARLY_MOST {
            self.settle_unknown(number);
        }
    }

    /// Any other event of the kernel, of the thread that runs there.
    #[inline]
    pub(super) fn event<W: Write>(
        &mut self,
        at: (u64, u32),
        field: u32,
        packets: &mut Packets<W>,
        fill: impl FnOnce(&mut Message),
    ) {
        let tid = self.running(at.1).unwrap_or(0);
        self.event_of(at, tid, field, packets, fill);
    }

    /// An event of this thread.
    #[inline]
    pub(super) fn event_of<W: Write>(
        &mut self,
        (time, number): (u64, u32),
        tid: u32,
        field: u32,
        packets: &mut Packets<W>,
        fill: impl FnOnce(&mut Message),
    ) {
        self.sweep(time, packets);
        let Some(cpu) = self.cpu(number, time) else { return };
        if cpu.bundle.is_full() {
            self.flush(number, packets);
        }
        let Some(cpu) = self.cpu(number, time) else { return };
        cpu.last = time;
        cpu.bundle.event(time, tid, field, fill);
    }

    /// Something happens that Perfetto is not told, by the thread that runs there.
    pub(super) fn happens(&mut self, (time, number): (u64, u32)) {
        if let Some(cpu) = self.cpu(number, time) {
            cpu.last = time;
        }
    }

    /// A handler begins or ends, `end` being the `FtraceEvent` of its end. False: an end without a beginning, which
    /// Perfetto should not get.
    #[inline]
    pub(super) fn interrupt(&mut self, (time, number): (u64, u32), end: u32, is_entry: bool) -> bool {
        let Some(cpu) = self.cpu(number, time) else { return false };
        cpu.last = time;
        let depth = if end == SOFTIRQ_EXIT { &mut cpu.softirqs } else { &mut cpu.hardirqs };
        if is_entry {
            *depth = depth.saturating_add(1);
            if cpu.open.len() < OPEN_MOST {
                cpu.open.push(end);
            }
            return true;
        }
        *depth = depth.saturating_sub(1);
        match cpu.open.iter().rposition(|open| *open == end) {
            Some(place) => {
                cpu.open.remove(place);
                true
            }
            None => false,
        }
    }

    /// Events of this CPU were lost after `since`: what runs is unknown from there on.
    pub(super) fn lost(&mut self, number: u32, since: Option<u64>) {
        if let Some(last) = self.cpus.get(number as usize).and_then(Option::as_ref).map(|cpu| cpu.last) {
            self.unknown(number, since.unwrap_or(last).max(last), true);
        }
    }

    fn unknown(&mut self, number: u32, since: u64, is_loss: bool) {
        let Some(cpu) = self.cpu(number, since) else { return };
        if cpu.running.is_some() {
            let (prev_state, comm) = (UNKNOWN_STATE, comm_key(b"<unknown>"));
            // After the wakings of that moment, which were the thread's.
            let time = since.max(cpu.last_switch) + u64::from(cpu.bundle.has_waking_at(since));
            cpu.switch(Switch { time, prev_state, next: UNKNOWN_TID + number, prio: 120, comm });
        } else if !cpu.early.is_empty() {
            self.settle_unknown(number);
        }
        let Some(cpu) = self.cpu(number, since) else { return };
        (cpu.running, cpu.unknown_since) = (None, None);
        (cpu.hardirqs, cpu.softirqs) = (0, 0);
        // Their ends may be among the lost.
        while let Some(end) = cpu.open.pop() {
            cpu.bundle.event(since, 0, end, |_| {});
        }
        if is_loss {
            cpu.bundle.lost();
        }
    }

    /// No switch said what ran.
    fn settle_unknown(&mut self, number: u32) {
        let Some(cpu) = self.cpus.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let since = cpu.unknown_since.unwrap_or(cpu.last);
        cpu.settle(since, UNKNOWN_TID + number, comm_key(b"<unknown>"), 120);
    }

    #[inline]
    fn sweep<W: Write>(&mut self, time: u64, packets: &mut Packets<W>) {
        if time >= self.flushed.saturating_add(BUNDLE_NS) {
            self.flushed = time;
            self.flush_all(packets);
        }
    }

    fn flush_all<W: Write>(&mut self, packets: &mut Packets<W>) {
        for number in (0..CPUS).take(self.cpus.len()) {
            self.flush(number, packets);
        }
    }

    fn flush<W: Write>(&mut self, number: u32, packets: &mut Packets<W>) {
        let Some(cpu) = self.cpus.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if cpu.bundle.take(number, &mut self.scratch) {
            packets.bundle(self.scratch.bytes());
        }
    }

    /// Writes what is left.
    pub(super) fn finish<W: Write>(&mut self, packets: &mut Packets<W>) {
        for number in (0..CPUS).take(self.cpus.len()) {
            let cpu = self.cpus.get(number as usize).and_then(Option::as_ref);
            if cpu.is_some_and(|cpu| !cpu.early.is_empty()) {
                self.settle_unknown(number);
            }
            if let Some(cpu) = self.cpus.get_mut(number as usize).and_then(Option::as_mut) {
                cpu.bundle.release(0);
            }
        }
        self.flush_all(packets);
    }
}

/// The `prev_state` that the kernel's tracepoint reports: one bit, 0x80 for an idle wait, 0x100 for a preempted thread.
pub(super) fn reported_state(raw: u32, preempted: bool) -> u32 {
    const REPORT: u32 = 0x7f;
    const IDLE: u32 = 0x402;
    const DEAD: u32 = 0x80;
    const RTLOCK_WAIT: u32 = 0x1000;
    const EXIT_DEAD: u32 = 0x10;
    const UNINTERRUPTIBLE: u32 = 2;
    match raw {
        _ if preempted => 0x100,
        IDLE => 0x80,
        raw if raw & RTLOCK_WAIT != 0 => UNINTERRUPTIBLE,
        raw if raw & REPORT != 0 => 1 << (raw & REPORT).ilog2(),
        raw if raw & DEAD != 0 => EXIT_DEAD,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_the_kernel_s_own_words() {
        for (raw, preempted, reported) in [
            (0, false, 0),
            (0, true, 0x100),
            (1, true, 0x100),
            (1, false, 1),
            (2, false, 2),
            (0x102, false, 2),
            (0x402, false, 0x80),
            (0x1000, false, 2),
            (0x80, false, 0x10),
            (0x90, false, 0x10),
            (0x40, false, 0x40),
            (0x2000, false, 0),
        ] {
            assert_eq!(reported_state(raw, preempted), reported, "{raw:#x} {preempted}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts, softirqs and timers, as they nest on each CPU.
//!
//! They nest as calls do, so each CPU has a stack of those that have begun. Where softirqs run in threads (PREEMPT_RT, `ksoftirqd`)
//! the thread may be preempted in one: its part of the stack leaves the CPU with it and comes back with it, and the time between is
//! not the softirq's. A second raise before the entry is the same softirq, so its wait counts from the first.

use rtscope_event::{CpuId, EventKind};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// What interrupts a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A device's interrupt.
    Irq,
    /// A system vector.
    Vector,
    /// A softirq.
    Softirq,
    /// A timer's function.
    Hrtimer,
    /// A handler of a non-maskable interrupt.
    Nmi,
}

/// Kind and number. Vectors have the number of their kind, timers' functions and NMI handlers their address.
pub(super) type Key = (Kind, u64);

/// One that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handled {
    /// Later than its beginning by the time in which its thread did not run.
    pub(super) since_ns: i64,
    pub(super) until_ns: i64,
    /// Of which others on top of it.
    pub(super) nested_ns: u64,
}

/// What is said about each of them.
pub(super) trait Interruptions {
    fn begun(&mut self, key: Key, cpu: CpuId);
    fn ended(&mut self, key: Key, cpu: CpuId, handled: Handled);
    /// Its end is not recorded; `contradicts`: other events say that it must have come.
    fn without_end(&mut self, key: Key, cpu: CpuId, contradicts: bool);
    /// A softirq begins that was raised before.
    fn waited(&mut self, key: Key, cpu: CpuId, raised_ns: i64, now_ns: i64);
}

/// One that has begun.
#[derive(Clone, Copy, Debug)]
struct Frame {
    key: Key,
    since_ns: i64,
    nested_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    stack: Vec<Frame>,
    /// By softirq: raised since.
    raised: BTreeMap<u32, i64>,
}

/// Threads that were switched out within a softirq, at most.
const MAX_SUSPENDED: usize = 10_000;

/// Interrupts that have begun on a CPU, at most.
const MAX_NESTED: usize = 32;

/// What has begun and not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Nesting {
    cpus: BTreeMap<CpuId, Cpu>,
    /// By thread: its softirqs, and when it left its CPU.
    suspended: HashMap<u32, (Vec<Frame>, i64)>,
}

impl Nesting {
    /// The next event.
    pub(super) fn event(&mut self, now_ns: i64, cpu: CpuId, kind: &EventKind, out: &mut impl Interruptions) {
        match kind {
            EventKind::IrqHandlerEntry { irq } => self.enter(now_ns, cpu, (Kind::Irq, irq.0.into()), out),
            EventKind::IrqHandlerExit { irq, .. } => self.exit(now_ns, cpu, (Kind::Irq, irq.0.into()), out),
            EventKind::VectorEntry { kind, .. } => {
                self.enter(now_ns, cpu, (Kind::Vector, kind.number().into()), out);
            }
            EventKind::VectorExit { kind, .. } => {
                self.exit(now_ns, cpu, (Kind::Vector, kind.number().into()), out);
            }
            EventKind::SoftirqRaise { vec } => {
                self.cpus.entry(cpu).or_default().raised.entry(*vec).or_insert(now_ns);
            }
            EventKind::SoftirqEntry { vec } => {
                let key = (Kind::Softirq, (*vec).into());
                if let Some(raised_ns) = self.cpus.entry(cpu).or_default().raised.remove(vec) {
                    out.waited(key, cpu, raised_ns, now_ns);
                }
                self.enter(now_ns, cpu, key, out);
            }
            EventKind::SoftirqExit { vec } => self.exit(now_ns, cpu, (Kind::Softirq, (*vec).into()), out),
            EventKind::HrtimerExpireEntry { function, .. } => {
                self.enter(now_ns, cpu, (Kind::Hrtimer, *function), out);
            }
            EventKind::HrtimerExpireExit { .. } => {
                // It does not say which function; timers do not nest in each other.
                let stack = self.cpus.get(&cpu).map(|state| state.stack.as_slice()).unwrap_or_default();
                let open = stack.iter().rev().find(|frame| frame.key.0 == Kind::Hrtimer);
                if let Some(key) = open.map(|frame| frame.key) {
                    self.exit(now_ns, cpu, key, out);
                }
            }
            EventKind::NmiHandler { handler, duration_ns, .. } => {
                let key = (Kind::Nmi, *handler);
                self.enter(now_ns.saturating_sub(*duration_ns), cpu, key, out);
                self.exit(now_ns, cpu, key, out);
            }
            EventKind::SchedSwitch { prev_tid, next_tid, .. } => {
                self.switch(now_ns, cpu, prev_tid.0, next_tid.0);
            }
            _ => {}
        }
    }

    fn enter(&mut self, now_ns: i64, cpu: CpuId, key: Key, out: &mut impl Interruptions) {
        out.begun(key, cpu);
        let stack = &mut self.cpus.entry(cpu).or_default().stack;
        if stack.len() >= MAX_NESTED {
            // So many do not nest: ends are not recorded.
            out.without_end(stack.remove(0).key, cpu, false);
        }
        stack.push(Frame { key, since_ns: now_ns, nested_ns: 0 });
    }

    fn exit(&mut self, now_ns: i64, cpu: CpuId, key: Key, out: &mut impl Interruptions) {
        let stack = &mut self.cpus.entry(cpu).or_default().stack;
        // Without a beginning: it was before the recording, or is missing.
        let Some(place) = stack.iter().rposition(|frame| frame.key == key) else { return };
        // What lies on top did not end: its end is missing.
        for frame in stack.drain(place + 1..) {
            out.without_end(frame.key, cpu, true);
        }
        let Some(frame) = stack.pop() else { return };
        let length_ns = u64::try_from(now_ns.saturating_sub(frame.since_ns)).unwrap_or(0);
        if let Some(below) = stack.last_mut() {
            below.nested_ns = below.nested_ns.saturating_add(length_ns);
        }
        let handled = Handled { since_ns: frame.since_ns, until_ns: now_ns, nested_ns: frame.nested_ns };
        out.ended(key, cpu, handled);
    }

    fn switch(&mut self, now_ns: i64, cpu: CpuId, prev: u32, next: u32) {
        let stack = std::mem::take(&mut self.cpus.entry(cpu).or_default().stack);
        // Idle threads have one number on all CPUs, and run no softirqs when they leave.
        if prev != 0 && !stack.is_empty() && self.suspended.len() < MAX_SUSPENDED {
            self.suspended.insert(prev, (stack, now_ns));
        }
        let Some((mut frames, since_ns)) = self.suspended.remove(&next) else { return };
        let away_ns = now_ns.saturating_sub(since_ns);
        for frame in &mut frames {
            frame.since_ns = frame.since_ns.saturating_add(away_ns);
        }
        self.cpus.entry(cpu).or_default().stack = frames;
    }

    /// Events of a CPU are missing, or of any.
    pub(super) fn forget(&mut self, lost: Option<CpuId>) {
        for (cpu, state) in &mut self.cpus {
            if lost.is_none_or(|lost| lost == *cpu) {
                *state = Cpu::default();
            }
        }
        self.suspended.clear();
    }

    /// Those that have not ended on the CPUs.
    pub(super) fn open(&self) -> impl Iterator<Item = (Key, CpuId)> {
        self.cpus.iter().flat_map(|(cpu, state)| state.stack.iter().map(|frame| (frame.key, *cpu)))
    }
}

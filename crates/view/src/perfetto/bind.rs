// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an event class means for Perfetto, by its name: decided once a class.
//!
//! The names are LTTng's, which rtscope's traces have, too.

use super::fields::Place;
use super::instants::{CounterField, Instant};
use super::interrupts::Interrupt;
use super::late::LateFields;
use super::packets::Packets;
use super::sched::{SwitchEvent, reported_state};
use super::syscalls::Call;
use super::threads::{DumpFields, ForkFields};
use rtscope_event::{Domain, EventClass, Values};
use std::io::Write;

/// The fields of a switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct SwitchFields {
    prev_tid: Place,
    prev_comm: Place,
    prev_prio: Place,
    prev_state: Place,
    raw_state: Place,
    preempt: Place,
    next_tid: Place,
    next_comm: Place,
    next_prio: Place,
}

impl SwitchFields {
    fn new(class: &EventClass) -> SwitchFields {
        let place = |name: &str| Place::of(class, &[name]);
        SwitchFields {
            prev_tid: place("prev_tid"),
            prev_comm: place("prev_comm"),
            prev_prio: place("prev_prio"),
            prev_state: place("prev_state"),
            raw_state: place("prev_state_raw"),
            preempt: place("preempt"),
            next_tid: place("next_tid"),
            next_comm: place("next_comm"),
            next_prio: place("next_prio"),
        }
    }

    #[inline]
    pub(super) fn event(&self, values: &Values<'_>) -> Option<SwitchEvent> {
        const REPORTED: u32 = 0x1ff;
        let prev_state = match self.raw_state.u32(values) {
            Some(raw) => reported_state(raw, self.preempt.u32(values).unwrap_or(0) != 0),
            // LTTng's is what the kernel reports.
            None => self.prev_state.u32(values)? & REPORTED,
        };
        Some(SwitchEvent {
            prev: self.prev_tid.u32(values)?,
            prev_comm: self.prev_comm.comm(values),
            prev_prio: self.prev_prio.prio(values),
            prev_state,
            next: self.next_tid.u32(values)?,
            next_comm: self.next_comm.comm(values),
            next_prio: self.next_prio.prio(values),
        })
    }
}

/// The fields of a waking.
#[derive(Clone, Copy, Debug)]
pub(super) struct WakingFields {
    pub(super) tid: Place,
    pub(super) target_cpu: Place,
    pub(super) prio: Place,
    pub(super) comm: Place,
}

/// The fields of an event about one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadFields {
    pub(super) tid: Place,
    pub(super) pid: Place,
    pub(super) comm: Place,
    /// The new name, or the new priority.
    pub(super) new: Place,
    pub(super) old: Place,
}

/// The meaning of a class.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    Switch(SwitchFields),
    Waking(WakingFields),
    WakingNew(WakingFields),
    Fork(ForkFields),
    Rename(ThreadFields),
    Exit(ThreadFields),
    Priority(ThreadFields),
    Dump(DumpFields),
    /// It says nothing that is drawn.
    Nothing,
    Interrupt(Box<Interrupt>),
    Call(Box<Call>),
    Late(Box<LateFields>),
    Instant(Box<Instant>),
}

impl Meaning {
    /// `has_waking`: the trace has `sched_waking`, so `sched_wakeup` says nothing new.
    pub(super) fn new<W: Write>(
        class: &EventClass,
        (classes, has_waking): (&[EventClass], bool),
        counters: &[CounterField],
        packets: &mut Packets<W>,
    ) -> Meaning {
        let is_drawn = counters.iter().any(|counter| counter.is_in(class));
        let meant =
            (class.domain != Domain::Program && !is_drawn).then(|| known(class, has_waking)).flatten();
        if let Some(meaning) = meant {
            return meaning;
        }
        if class.domain != Domain::Program && !is_drawn {
            if let Some(call) = Call::new(class, packets) {
                return Meaning::Call(Box::new(call));
            }
        }
        Meaning::Instant(Box::new(Instant::new(class, classes, counters, packets)))
    }
}

fn known(class: &EventClass, has_waking: bool) -> Option<Meaning> {
    let place = |name: &str| Place::of(class, &[name]);
    let thread = |new: &str, old: &str| ThreadFields {
        tid: place("tid"),
        pid: place("pid"),
        comm: place("comm"),
        new: place(new),
        old: place(old),
    };
    let waking = || WakingFields {
        tid: place("tid"),
        target_cpu: place("target_cpu"),
        prio: place("prio"),
        comm: place("comm"),
    };
    Some(match class.name.as_str() {
        "sched_switch" => Meaning::Switch(SwitchFields::new(class)),
        "sched_waking" => Meaning::Waking(waking()),
        "sched_wakeup" if has_waking => Meaning::Nothing,
        "sched_wakeup" => Meaning::Waking(waking()),
        "sched_wakeup_new" => Meaning::WakingNew(waking()),
        "sched_process_fork" => Meaning::Fork(ForkFields::new(class)),
        "sched_process_exit" => Meaning::Exit(thread("", "")),
        "sched_pi_setprio" => Meaning::Priority(thread("newprio", "oldprio")),
        "task_rename" => Meaning::Rename(thread("newcomm", "oldcomm")),
        "lttng_statedump_process_state" => Meaning::Dump(DumpFields::new(class)),
        "rtscope_late_response" => Meaning::Late(Box::new(LateFields::new(class))),
        name if name.starts_with("lttng_statedump_") => Meaning::Nothing,
        _ => return Interrupt::new(class).map(|interrupt| Meaning::Interrupt(Box::new(interrupt))),
    })
}

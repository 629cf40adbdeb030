// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Companions: fields that an event has in traces only, made from its other fields.

use super::sink::{Moment, NameLookup, TraceSink, TraceType, UNKNOWN_COMM};
use super::view::{FoundNames, TakenFields};
use crate::{Comm, Irq, TaskState, Tid, exact};

/// A companion.
pub(super) trait Beside: Sized {
    /// Its value in other traces.
    type Value;
    /// Its type in traces.
    const TRACE: TraceType;
    /// What is known of it where there is no trace.
    const UNKNOWN: Option<Self::Value> = None;

    fn put<N: NameLookup>(self, moment: &Moment<'_, N>, out: &mut impl TraceSink);

    fn take(fields: &mut TakenFields<'_>) -> Option<Self::Value>;

    /// Keeps a name that it tells.
    fn note(self, _: Option<Self::Value>, _: &mut FoundNames) {}
}

/// The name of a task, at the time of the event.
pub(super) struct TaskName(pub(super) Tid);

impl Beside for TaskName {
    type Value = Comm;
    const TRACE: TraceType = TraceType::Comm;

    #[inline]
    fn put<N: NameLookup>(self, moment: &Moment<'_, N>, out: &mut impl TraceSink) {
        out.comm(moment.names.comm(self.0, moment.time).unwrap_or_else(|| Comm::from(UNKNOWN_COMM)));
    }

    #[inline]
    fn take(fields: &mut TakenFields<'_>) -> Option<Comm> {
        fields.comm()
    }

    #[inline]
    fn note(self, comm: Option<Comm>, names: &mut FoundNames) {
        names.add_task(self.0, comm);
    }
}

/// The name of an interrupt.
pub(super) struct InterruptName(pub(super) Irq);

impl Beside for InterruptName {
    type Value = String;
    const TRACE: TraceType = TraceType::Text;

    #[inline]
    fn put<N: NameLookup>(self, moment: &Moment<'_, N>, out: &mut impl TraceSink) {
        out.text(moment.names.irq(self.0).unwrap_or_default());
    }

    fn take(fields: &mut TakenFields<'_>) -> Option<String> {
        fields.text()
    }

    fn note(self, name: Option<String>, names: &mut FoundNames) {
        names.irq = name.filter(|name| !name.is_empty()).map(|name| (self.0, name));
    }
}

/// The time of the event.
pub(super) struct EventTime();

impl Beside for EventTime {
    type Value = i64;
    const TRACE: TraceType = TraceType::S64;

    #[inline]
    fn put<N: NameLookup>(self, moment: &Moment<'_, N>, out: &mut impl TraceSink) {
        out.number(Self::TRACE, moment.time.0);
    }

    #[inline]
    fn take(fields: &mut TakenFields<'_>) -> Option<i64> {
        fields.i64()
    }
}

/// The `prev_state` that tools interpret correctly, from the kernel's and whether the task was preempted.
pub(super) struct ShownState(pub(super) TaskState, pub(super) bool);

/// `TASK_REPORT_MAX`: lttng-modules has it in `prev_state` for a task that stays runnable.
const REPORT_MAX: i64 = 256;

/// `TASK_REPORT_IDLE`: what is shown of a kernel thread that has nothing to do. In the kernel's own numbers this is `TASK_DEAD`.
const REPORT_IDLE: u32 = 0x80;

/// `TASK_IDLE`: `TASK_UNINTERRUPTIBLE | TASK_NOLOAD`.
const IDLE: u32 = 0x402;

impl ShownState {
    /// The state in a trace that has only what is shown.
    pub(super) fn state(shown: i64) -> TaskState {
        match exact::low_half(exact::bits(shown & (REPORT_MAX - 1))) {
            REPORT_IDLE => TaskState(IDLE),
            state => TaskState(state),
        }
    }

    /// The same for whether the task was preempted.
    pub(super) fn is_preempted(shown: i64) -> bool {
        shown & REPORT_MAX != 0
    }
}

impl Beside for ShownState {
    type Value = i64;
    const TRACE: TraceType = TraceType::S64;

    #[inline]
    fn put<N: NameLookup>(self, _: &Moment<'_, N>, out: &mut impl TraceSink) {
        out.number(Self::TRACE, exact::bits(self.0.shown(self.1)));
    }

    #[inline]
    fn take(fields: &mut TakenFields<'_>) -> Option<i64> {
        fields.i64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_kernel_thread_of_another_tracer_is_not_dead() {
        assert_eq!(ShownState::state(0x80), TaskState(IDLE));
        assert!(!ShownState::state(0x80).is_dead() && ShownState::state(0x10).is_dead());
        assert_eq!(ShownState::state(REPORT_MAX), TaskState::RUNNABLE);
        assert_eq!(ShownState::state(0x2), TaskState(2));
    }
}

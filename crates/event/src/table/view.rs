// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Built-in events as a view over the open schema: from the values of any trace's event of that name.
//!
//! A class is bound once: its name is looked up in the table, and for each field of the table the place of that field in the
//! class. Taking values then follows the table's order, and never compares names. So rtscope's own traces, LTTng's and perf's go
//! through the same code: perf has the kernel's own names and numbers, which are translated here.

use super::classes::{ClassLayout, classes};
use super::origin::trace_name;
use super::sink::UNKNOWN_COMM;
use crate::exact;
use crate::schema::{Domain, EventClass, Value, Values};
use crate::{Comm, EventKind, Irq, Tid, VectorKind};

/// Names that an event has in passing: of its tasks and its interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundNames {
    /// Tasks.
    pub tasks: [Option<(Tid, Comm)>; 2],
    /// The interrupt.
    pub irq: Option<(Irq, String)>,
}

impl FoundNames {
    /// The idle threads have a fixed name in the event model; an empty name is not a name.
    pub(super) fn add_task(&mut self, tid: Tid, comm: Option<Comm>) {
        let known = |comm: &Comm| !comm.as_bytes().is_empty() && comm.as_bytes() != UNKNOWN_COMM.as_bytes();
        let Some(comm) = comm.filter(|comm| tid != Tid(0) && known(comm)) else { return };
        if let Some(free) = self.tasks.iter_mut().find(|task| task.is_none()) {
            *free = Some((tid, comm));
        }
    }
}

/// How to take the events of a class.
#[derive(Clone, Debug)]
pub struct KernelView {
    layout: &'static ClassLayout,
    /// For each field of the layout, its place in the class.
    places: Vec<Option<usize>>,
    /// Its numbers are the kernel's, as perf has them, and not LTTng's.
    is_kernels: bool,
}

impl KernelView {
    /// `None` when no built-in event has the class's name.
    #[must_use]
    pub fn of(class: &EventClass) -> Option<KernelView> {
        let is_kernels = is_kernels(class);
        let name = if is_kernels { name_in_traces(&class.name) } else { class.name.as_str() };
        let layout = classes().iter().find(|layout| layout.name == name)?;
        let place = |name: &str| class.fields.iter().position(|field| field.is_payload && field.name == name);
        let places = layout.fields.iter().map(|(name, _)| match is_kernels {
            true => kernels_field(layout.name, name).and_then(|name| place(&name)),
            false => place(name),
        });
        Some(KernelView { layout, places: places.collect(), is_kernels })
    }

    /// The event; `None` when a required field is missing or invalid. The names that it tells are added to `names`.
    #[inline]
    #[must_use]
    pub fn take(&self, values: &Values<'_>, names: &mut FoundNames) -> Option<EventKind> {
        let mut fields = TakenFields {
            places: self.places.iter(),
            values,
            vector: self.layout.vector,
            is_kernels: self.is_kernels,
        };
        super::take(self.layout.place, &mut fields, names)
    }
}

/// Whether a class has the kernel's own names, as perf's traces have them: SYSTEM:EVENT, which are a program's names else.
#[must_use]
pub fn is_kernels(class: &EventClass) -> bool {
    class.domain != Domain::Program && class.name.contains(':')
}

/// The name in traces of rtscope and LTTng of what the kernel calls SYSTEM:EVENT; any other name as it is.
#[must_use]
pub fn name_in_traces(name: &str) -> &str {
    name.split_once(':').and_then(|(system, tracepoint)| trace_name(system, tracepoint)).unwrap_or(name)
}

/// The kernel's name of a field of an event. What it calls a pid is a thread's number; the process is that of the thread that the event
/// happened in, which perf adds. `None`: it does not have it.
fn kernels_field(event: &str, field: &str) -> Option<String> {
    Some(match (event, field) {
        ("signal_generate", "pid") => "pid".to_owned(),
        ("task_rename" | "sched_process_exit", "pid") | (_, "parent_pid") => "perf_pid".to_owned(),
        // Of a new thread it is not known.
        (_, "child_pid") => return None,
        (_, "tid") => "pid".to_owned(),
        (_, name) => match name.strip_suffix("_tid") {
            Some(of) => format!("{of}_pid"),
            None => name.to_owned(),
        },
    })
}

/// Takes values in the order of the layout.
pub(super) struct TakenFields<'v> {
    places: std::slice::Iter<'v, Option<usize>>,
    values: &'v Values<'v>,
    vector: Option<VectorKind>,
    is_kernels: bool,
}

impl<'v> TakenFields<'v> {
    /// The number of what the name of the class says.
    #[inline]
    pub(super) fn part_of_name(&self) -> Option<i128> {
        Some(self.vector?.number().into())
    }

    #[inline]
    pub(super) fn value(&mut self) -> Value<'v> {
        match self.places.next() {
            Some(Some(place)) => self.values.get(*place),
            _ => Value::None,
        }
    }

    /// What LTTng's traces add to a number of this form, and perf's do not.
    #[inline]
    pub(super) fn offset(&self, offset: i128) -> i128 {
        if self.is_kernels { 0 } else { offset }
    }

    /// A whole number.
    #[inline]
    pub(super) fn number(&mut self) -> Option<i128> {
        match self.value() {
            Value::Unsigned(value) => Some(value.into()),
            Value::Signed(value) => Some(value.into()),
            _ => None,
        }
    }

    /// 64 bits, signed or unsigned in the trace.
    #[inline]
    pub(super) fn i64(&mut self) -> Option<i64> {
        match self.value() {
            Value::Unsigned(value) => Some(exact::signed(value)),
            Value::Signed(value) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn comm(&mut self) -> Option<Comm> {
        match self.value() {
            Value::Bytes(bytes) => Some(Comm::from_bytes(bytes)),
            _ => None,
        }
    }

    /// Up to a NUL.
    pub(super) fn text(&mut self) -> Option<String> {
        let Value::Bytes(bytes) = self.value() else { return None };
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{FieldClass, ValueBuffer};
    use crate::{Pid, Priority, TaskState};

    fn class(name: &str, domain: Domain, fields: &[&str]) -> EventClass {
        let field =
            |name: &&str| FieldClass { name: (*name).to_owned(), is_payload: true, ..FieldClass::default() };
        EventClass { name: name.to_owned(), domain, fields: fields.iter().map(field).collect() }
    }

    fn taken(class: &EventClass, numbers: &[(usize, i64)], texts: &[(usize, &str)]) -> Option<EventKind> {
        let mut buffer = ValueBuffer::default();
        buffer.begin(class.fields.len());
        numbers.iter().for_each(|(place, number)| buffer.set(*place, Value::Signed(*number)));
        texts.iter().for_each(|(place, text)| buffer.set(*place, Value::Bytes(text.as_bytes())));
        KernelView::of(class)?.take(&buffer.current(), &mut FoundNames::default())
    }

    #[test]
    fn perfs_events_are_the_kernels_with_the_kernels_names_and_numbers() {
        let fields = [
            "perf_tid",
            "perf_pid",
            "prev_comm",
            "prev_pid",
            "prev_prio",
            "prev_state",
            "next_comm",
            "next_pid",
            "next_prio",
        ];
        let numbers = [(0, 7), (1, 6), (3, 7), (4, 120), (5, 256), (7, 9), (8, 9)];
        let names = [(2, "old"), (6, "new")];
        let switch = class("sched:sched_switch", Domain::Kernel, &fields);
        match taken(&switch, &numbers, &names) {
            Some(EventKind::SchedSwitch {
                prev_tid,
                prev_prio,
                prev_state,
                preempt,
                next_tid,
                next_prio,
                ..
            }) => {
                assert_eq!((prev_tid, next_tid), (Tid(7), Tid(9)));
                assert_eq!((prev_prio, next_prio), (Priority(120), Priority(9)));
                assert_eq!((prev_state, preempt), (TaskState::RUNNABLE, true));
            }
            other => panic!("{other:?}"),
        }
        // A program may call its events anything.
        assert!(KernelView::of(&class("sched:sched_switch", Domain::Program, &fields)).is_none());
        // What the kernel calls a pid is a thread.
        let exit = class(
            "sched:sched_process_exit",
            Domain::Kernel,
            &["perf_tid", "perf_pid", "comm", "pid", "prio"],
        );
        match taken(&exit, &[(0, 7), (1, 6), (3, 7), (4, 49)], &[(2, "old")]) {
            Some(EventKind::ProcessExit { tid, pid, prio, .. }) => {
                assert_eq!((tid, pid, prio), (Tid(7), Pid(6), Priority(49)));
            }
            other => panic!("{other:?}"),
        }
        let signal =
            class("signal:signal_generate", Domain::Kernel, &["sig", "comm", "pid", "group", "result"]);
        let signal = taken(&signal, &[(0, 15), (2, 8), (3, 0), (4, 0)], &[(1, "to")]);
        assert!(matches!(signal, Some(EventKind::SignalGenerate { tid: Tid(8), .. })), "{signal:?}");
        let timer = class("irq_vectors:local_timer_entry", Domain::Kernel, &["vector"]);
        assert!(matches!(taken(&timer, &[(0, 236)], &[]), Some(EventKind::VectorEntry { vector: 236, .. })));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of a trace's classes tell something about tasks, interrupts and system calls, and how: found once a class, by name.

use rtscope_event::{Comm, EventClass, EventKind, EventRef, FoundNames, KernelView, Tid, Values};
use std::collections::HashMap;

/// The number of a system call's name, in order of appearance.
pub(super) type CallId = u32;

const ENTRY: &str = "syscall_entry_";
const EXIT: &str = "syscall_exit_";
const DUMP: &str = "lttng_statedump_process_state";

/// Whether a class tells something.
pub(super) fn is_known(class: &EventClass) -> bool {
    is_call(class) || class.name == DUMP || KernelView::of(class).is_some()
}

fn is_call(class: &EventClass) -> bool {
    class.name.starts_with(ENTRY) || class.name.starts_with(EXIT)
}

/// What an event tells.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// One of the built-in events.
    Kernel(EventKind, FoundNames),
    /// A task, as it was when the recording began.
    Task(DumpedTask),
    /// A system call begins. The thread is there only if the trace has it as a context.
    Entry(CallId, Option<Tid>),
    /// It ends, with this value.
    Exit(CallId, Option<i64>, Option<Tid>),
}

#[derive(Clone, Debug)]
pub(super) struct DumpedTask {
    pub(super) tid: u32,
    pub(super) pid: Option<u32>,
    pub(super) name: Option<Comm>,
    pub(super) kernel: bool,
}

#[derive(Clone, Debug)]
enum Way {
    Nothing,
    Kernel(KernelView),
    Dump(DumpPlaces),
    Entry { call: CallId, tid: Option<usize> },
    Exit { call: CallId, ret: Option<usize>, tid: Option<usize> },
}

#[derive(Clone, Debug)]
struct DumpPlaces {
    tid: Option<usize>,
    pid: Option<usize>,
    name: Option<usize>,
    kind: Option<usize>,
}

/// Reads events.
#[derive(Clone, Debug, Default)]
pub(super) struct Happenings {
    /// By class.
    ways: Vec<Way>,
    /// Names of system calls.
    calls: Vec<String>,
    numbers: HashMap<String, CallId>,
}

impl Happenings {
    /// What an event tells, if it is of use and complete.
    pub(super) fn of(&mut self, event: &EventRef<'_>) -> Option<Happening> {
        while self.ways.len() < event.schema.classes.len() {
            let way = self.way(&event.schema.classes[self.ways.len()]);
            self.ways.push(way);
        }
        let values = &event.values;
        let tid = |place: &Option<usize>| unsigned(values, *place).map(Tid);
        match self.ways.get(event.class.0 as usize)? {
            Way::Nothing => None,
            Way::Kernel(view) => {
                let mut names = FoundNames::default();
                view.take(values, &mut names).map(|kind| Happening::Kernel(kind, names))
            }
            Way::Dump(places) => places.take(values).map(Happening::Task),
            Way::Entry { call, tid: place } => Some(Happening::Entry(*call, tid(place))),
            Way::Exit { call, ret, tid: place } => {
                let ret = ret.and_then(|place| i64::try_from(values.integer(place)?).ok());
                Some(Happening::Exit(*call, ret, tid(place)))
            }
        }
    }

    fn way(&mut self, class: &EventClass) -> Way {
        // Contexts as LTTng calls them; a program's own number of a thread is another one in a container.
        let tid = class.fields.iter().position(|field| !field.is_payload && field.name == "tid");
        if let Some(name) = class.name.strip_prefix(ENTRY) {
            return Way::Entry { call: self.call(name), tid };
        }
        if let Some(name) = class.name.strip_prefix(EXIT) {
            return Way::Exit { call: self.call(name), ret: class.field("ret"), tid };
        }
        if class.name == DUMP {
            return Way::Dump(DumpPlaces {
                tid: class.field("tid"),
                pid: class.field("pid"),
                name: class.field("name"),
                kind: class.field("type"),
            });
        }
        KernelView::of(class).map_or(Way::Nothing, Way::Kernel)
    }

    fn call(&mut self, name: &str) -> CallId {
        let next = CallId::try_from(self.calls.len()).unwrap_or(CallId::MAX);
        let number = *self.numbers.entry(name.to_owned()).or_insert(next);
        if number == next {
            self.calls.push(name.to_owned());
        }
        number
    }

    /// The name of a system call.
    pub(super) fn call_name(&self, call: CallId) -> &str {
        self.calls.get(call as usize).map_or("", String::as_str)
    }
}

fn unsigned(values: &Values<'_>, place: Option<usize>) -> Option<u32> {
    u32::try_from(values.integer(place?)?).ok()
}

impl DumpPlaces {
    fn take(&self, values: &Values<'_>) -> Option<DumpedTask> {
        let name = self.name.and_then(|place| values.bytes(place));
        Some(DumpedTask {
            tid: unsigned(values, self.tid)?,
            pid: unsigned(values, self.pid),
            name: name.map(Comm::from_bytes),
            kernel: self.kind.and_then(|place| values.integer(place)) == Some(1),
        })
    }
}

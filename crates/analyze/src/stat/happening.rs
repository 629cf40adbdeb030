// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of a trace's classes tell something about tasks, interrupts and system calls, and how: found once a class, by name.

use rtscope_event::{Comm, EventClass, EventKind, EventRef, FoundNames, KernelView, Tid, Values, is_kernels};
use std::collections::HashMap;

/// The number of a system call's name, in order of appearance.
pub(super) type CallId = u32;

const ENTRY: &str = "syscall_entry_";
const EXIT: &str = "syscall_exit_";
const DUMP: &str = "lttng_statedump_process_state";

/// Whether a class tells something.
pub(super) fn is_known(class: &EventClass) -> bool {
    Call::of(class).is_some() || class.name == DUMP || KernelView::of(class).is_some()
}

/// Which system calls a class is of.
enum Call<'c> {
    Entry(&'c str),
    Exit(&'c str),
    /// All of them, by number: perf's `raw_syscalls`.
    AnyEntry,
    AnyExit,
}

impl Call<'_> {
    fn of(class: &EventClass) -> Option<Call<'_>> {
        let name = class.name.as_str();
        if !is_kernels(class) {
            let entry = name.strip_prefix(ENTRY).map(Call::Entry);
            return entry.or_else(|| name.strip_prefix(EXIT).map(Call::Exit));
        }
        match name {
            "raw_syscalls:sys_enter" => Some(Call::AnyEntry),
            "raw_syscalls:sys_exit" => Some(Call::AnyExit),
            _ => {
                let entry = name.strip_prefix("syscalls:sys_enter_").map(Call::Entry);
                entry.or_else(|| name.strip_prefix("syscalls:sys_exit_").map(Call::Exit))
            }
        }
    }
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
    AnyEntry { number: Option<usize>, tid: Option<usize> },
    AnyExit { number: Option<usize>, ret: Option<usize>, tid: Option<usize> },
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
    /// Of calls that have no names.
    by_number: HashMap<u32, CallId>,
}

impl Happenings {
    /// What an event tells, if it is of use and complete.
    pub(super) fn of(&mut self, event: &EventRef<'_>) -> Option<Happening> {
        while self.ways.len() < event.schema.classes.len() {
            let way = self.way(&event.schema.classes[self.ways.len()]);
            self.ways.push(way);
        }
        let values = &event.values;
        let tid = |place: Option<usize>| unsigned(values, place).map(Tid);
        let ret = |place: Option<usize>| i64::try_from(values.integer(place?)?).ok();
        match self.ways.get(event.class.0 as usize)? {
            Way::Nothing => None,
            Way::Kernel(view) => {
                let mut names = FoundNames::default();
                view.take(values, &mut names).map(|kind| Happening::Kernel(kind, names))
            }
            Way::Dump(places) => places.take(values).map(Happening::Task),
            Way::Entry { call, tid: place } => Some(Happening::Entry(*call, tid(*place))),
            Way::Exit { call, ret: value, tid: place } => {
                Some(Happening::Exit(*call, ret(*value), tid(*place)))
            }
            Way::AnyEntry { number, tid: place } => {
                let (number, tid) = (unsigned(values, *number)?, tid(*place));
                Some(Happening::Entry(self.numbered(number), tid))
            }
            Way::AnyExit { number, ret: value, tid: place } => {
                let (number, ret, tid) = (unsigned(values, *number)?, ret(*value), tid(*place));
                Some(Happening::Exit(self.numbered(number), ret, tid))
            }
        }
    }

    fn way(&mut self, class: &EventClass) -> Way {
        // Contexts as LTTng calls them; a program's own number of a thread is another one in a container. perf has its among the fields.
        let tid = class.fields.iter().position(|field| !field.is_payload && field.name == "tid");
        let tid = tid.or_else(|| class.field("perf_tid"));
        let (number, ret) = (class.field("id"), class.field("ret"));
        match Call::of(class) {
            Some(Call::Entry(name)) => return Way::Entry { call: self.call(name), tid },
            Some(Call::Exit(name)) => return Way::Exit { call: self.call(name), ret, tid },
            Some(Call::AnyEntry) => return Way::AnyEntry { number, tid },
            Some(Call::AnyExit) => return Way::AnyExit { number, ret, tid },
            None => {}
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

    /// A call that the trace has by its number only: which name that is depends on the machine.
    fn numbered(&mut self, number: u32) -> CallId {
        if let Some(call) = self.by_number.get(&number) {
            return *call;
        }
        let call = self.call(&format!("call {number}"));
        self.by_number.insert(number, call);
        call
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and processes of threads over the time of a set of traces.
//!
//! Many events name their thread by its number only (system calls, for instance). What that thread was called then follows from the
//! state dump and from forks, renamings, execs and exits, which are few and are read once, before the events. A number is of one host:
//! traces of several hosts are kept apart. Threads of programs in containers have other numbers in the programs' events, so these are
//! not named.

use super::kernel::{Binding, EventContent};
use super::select::Selection;
use super::set::TraceSet;
use super::source::read_named;
use rtscope_event::{
    Comm, EventClass, EventKind, EventRef, FoundNames, Item, Pattern, TraceSource, name_in_traces,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

/// Events that name threads and are few.
const FEW: [&str; 5] = [
    "lttng_statedump_process_state",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "task_rename",
];

/// Events that name threads and are many: read only where there is no state dump.
const MANY: [&str; 4] = ["sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new"];

/// Paths of `sched_process_exec` in rtscope's traces are cut at this length.
const FILENAME_BYTES: usize = 63;

/// What a thread was called, from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskName {
    from_ns: i64,
    /// Its name.
    pub comm: Comm,
    /// Its process, where known.
    pub pid: Option<u32>,
}

/// The names of a host's threads, by number and in order of time.
type Threads = HashMap<u32, Vec<TaskName>>;

/// Threads by host and number.
#[derive(Clone, Debug, Default)]
pub struct TaskNames {
    hosts: BTreeMap<String, Threads>,
}

impl TaskNames {
    /// Reads them.
    #[must_use]
    pub fn of(set: &TraceSet) -> TaskNames {
        let has_dump = set.has_event(FEW[0]);
        let is_named = |name: &str| is_few(name) || !has_dump && MANY.contains(&name_in_traces(name));
        let wanted = |class: &EventClass| is_named(&class.name);
        let mut names = TaskNames::default();
        read_named(set, &Selection::default(), &is_named, &wanted, |source| {
            let classes = source.schema().classes.iter();
            let bindings = classes.map(|class| wanted(class).then(|| Binding::of(class)).flatten());
            let bindings: Vec<Option<Binding>> = bindings.collect();
            while let Some(item) = not_the_end(source.next()) {
                let Item::Event(event) = item else { continue };
                if let Some(Some(binding)) = bindings.get(event.class.0 as usize) {
                    names.learn(&event, binding);
                }
            }
        });
        names
    }

    /// Takes the names that an event tells.
    pub(super) fn learn(&mut self, event: &EventRef<'_>, binding: &Binding) {
        let mut found = FoundNames::default();
        let Some(content) = binding.take(&event.values, &mut found) else { return };
        let host = event.schema.stream(event.stream).host.as_str();
        let threads = match self.hosts.get_mut(host) {
            Some(threads) => threads,
            None => self.hosts.entry(host.to_owned()).or_default(),
        };
        observe(threads, event.time_ns, &content, &found);
    }

    /// What a thread of a host was called at a time.
    #[must_use]
    pub fn find(&self, host: &str, tid: u32, time_ns: i64) -> Option<&TaskName> {
        self.find_for(host, tid, time_ns).0
    }

    /// The same, with the time for which it is so: from, until.
    #[must_use]
    pub fn find_for(&self, host: &str, tid: u32, time_ns: i64) -> (Option<&TaskName>, (i64, i64)) {
        let names = self.hosts.get(host).and_then(|threads| threads.get(&tid)).map_or(&[][..], Vec::as_slice);
        let after = names.partition_point(|name| name.from_ns <= time_ns);
        let until = |place: usize| names.get(place).map_or(i64::MAX, |next| next.from_ns);
        match after {
            // What was before the first report of a thread is taken to be the same.
            0 => (names.first(), (i64::MIN, until(1))),
            _ => (names.get(after - 1), (until(after - 1), until(after))),
        }
    }
}

/// Whether events of this name tell names, and are few.
pub(super) fn is_few(name: &str) -> bool {
    FEW.contains(&name_in_traces(name))
}

/// Names that may still be growing, as those of a recording that is followed.
#[derive(Clone, Debug, Default)]
pub struct SharedTaskNames(Arc<RwLock<Arc<TaskNames>>>);

impl SharedTaskNames {
    /// Those that are known now.
    #[must_use]
    pub fn now(&self) -> Arc<TaskNames> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds to them. They are copied if somebody still has those of before.
    pub(super) fn update(&self, add: impl FnOnce(&mut TaskNames)) {
        add(Arc::make_mut(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)));
    }
}

impl From<TaskNames> for SharedTaskNames {
    fn from(names: TaskNames) -> SharedTaskNames {
        SharedTaskNames(Arc::new(RwLock::new(Arc::new(names))))
    }
}

fn not_the_end(item: Item<'_>) -> Option<Item<'_>> {
    (!matches!(item, Item::End)).then_some(item)
}

fn observe(threads: &mut Threads, time_ns: i64, content: &EventContent, found: &FoundNames) {
    let mut named = |tid: u32, comm: Comm, pid: Option<u32>, is_new: bool| {
        let names = threads.entry(tid).or_default();
        let last = names.last().copied();
        let pid = pid.or(last.and_then(|last| last.pid).filter(|_| !is_new));
        let is_known = last.is_some_and(|last| last.comm == comm && last.pid == pid && !is_new);
        if !is_known {
            names.push(TaskName { from_ns: time_ns, comm, pid });
        }
    };
    for (tid, comm) in found.tasks.iter().flatten() {
        named(tid.0, *comm, None, false);
    }
    match content {
        EventContent::Task(task) => named(task.tid.0, task.comm, Some(task.pid.0), false),
        EventContent::Event(EventKind::ProcessFork { child_tid, child_pid, child_comm, .. }) => {
            named(child_tid.0, *child_comm, Some(child_pid.0), true);
        }
        EventContent::Event(EventKind::TaskRename { tid, pid, old_comm, new_comm }) => {
            named(tid.0, *old_comm, Some(pid.0), false);
            named(tid.0, *new_comm, Some(pid.0), false);
        }
        EventContent::Event(EventKind::ProcessExec { filename, tid, .. }) => {
            // The kernel names a task after the file that it executes; rtscope cuts long paths.
            let file = filename.rsplit('/').next().filter(|_| filename.len() < FILENAME_BYTES);
            file.into_iter().for_each(|file| named(tid.0, Comm::from(file), None, false));
        }
        EventContent::Event(EventKind::ProcessExit { tid, comm, .. }) => named(tid.0, *comm, None, false),
        _ => {}
    }
}

/// When which threads had a certain name.
#[derive(Clone, Debug)]
pub struct TaskSpans {
    pattern: Pattern,
    names: Names,
}

#[derive(Clone, Debug)]
enum Names {
    Fixed(Arc<TaskNames>),
    Growing(SharedTaskNames),
}

impl TaskSpans {
    /// Of a trace that is complete.
    #[must_use]
    pub fn new(pattern: &str, names: TaskNames) -> TaskSpans {
        TaskSpans { pattern: Pattern::new(pattern), names: Names::Fixed(Arc::new(names)) }
    }

    /// Of one that grows: each event is judged by what is known of its time by then.
    #[must_use]
    pub fn growing(pattern: &str, names: &SharedTaskNames) -> TaskSpans {
        TaskSpans { pattern: Pattern::new(pattern), names: Names::Growing(names.clone()) }
    }

    /// Whether more may be known later.
    pub(super) fn is_growing(&self) -> bool {
        matches!(self.names, Names::Growing(_))
    }

    pub(super) fn has(&self, host: &str, tid: i128, time_ns: i64) -> bool {
        let Ok(tid) = u32::try_from(tid) else { return false };
        let matches = |names: &TaskNames| {
            names.find(host, tid, time_ns).is_some_and(|name| self.pattern.matches(name.comm.as_bytes()))
        };
        match &self.names {
            Names::Fixed(names) => matches(names),
            Names::Growing(names) => matches(&names.now()),
        }
    }
}

impl PartialEq for TaskSpans {
    fn eq(&self, other: &TaskSpans) -> bool {
        let is_same = match (&self.names, &other.names) {
            (Names::Fixed(one), Names::Fixed(other)) => Arc::ptr_eq(one, other),
            (Names::Growing(one), Names::Growing(other)) => Arc::ptr_eq(&one.0, &other.0),
            _ => false,
        };
        is_same && self.pattern == other.pattern
    }
}

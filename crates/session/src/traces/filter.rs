// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which events of traces are wanted, in the words of people: from words to a [`Selection`], once it is known what is in the traces.

use super::times::{TimeSpan, cpu_list, moment};
use crate::{Failure, Observer};
use rtscope_ctf::{Comparison, Condition, Selection, SharedTaskNames, TaskNames, TaskSpans, TraceSet};
use rtscope_event::PatternList;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Fields in which tracers name threads.
const TIDS: [&str; 11] = [
    "tid",
    "vtid",
    "prev_tid",
    "next_tid",
    "parent_tid",
    "child_tid",
    "perf_tid",
    "common_pid",
    "prev_pid",
    "next_pid",
    "old_tid",
];
const COMMS: [&str; 9] = [
    "comm",
    "procname",
    "prev_comm",
    "next_comm",
    "parent_comm",
    "child_comm",
    "perf_comm",
    "old_comm",
    "new_comm",
];

/// What is asked for. The default is all.
#[derive(Clone, Debug)]
pub struct EventFilter {
    /// Names of events, with `*` and `?`, and `!` before what is left out; none: all.
    pub events: Vec<String>,
    /// What their fields have to be.
    pub conditions: Vec<String>,
    /// Of this task, or with it in a field: a thread's number, or a pattern for its name.
    pub task: Option<String>,
    /// On these CPUs.
    pub cpus: Option<String>,
    /// Not before this time.
    pub from: Option<String>,
    /// Not after this time.
    pub until: Option<String>,
    /// What the options are called that say these two times.
    pub options: (&'static str, &'static str),
}

impl Default for EventFilter {
    fn default() -> EventFilter {
        EventFilter {
            events: Vec::new(),
            conditions: Vec::new(),
            task: None,
            cpus: None,
            from: None,
            until: None,
            options: ("from", "to"),
        }
    }
}

impl EventFilter {
    /// All events within its times.
    #[must_use]
    pub fn only_times(&self) -> EventFilter {
        let (from, until) = (self.from.clone(), self.until.clone());
        EventFilter { from, until, options: self.options, ..EventFilter::default() }
    }

    /// Which events of these traces are selected. The observer hears what is doubtful.
    ///
    /// # Errors
    /// What cannot be understood.
    pub fn selection(&self, set: &TraceSet, observer: &dyn Observer) -> Result<Selection, Failure> {
        let spans = |named: &str| TaskSpans::new(named, TaskNames::of(set));
        let selection = self.selection_in(set.span(), &spans)?;
        selection.check(set).map_err(Failure::Usage)?.iter().for_each(|text| observer.note(text));
        Ok(selection)
    }

    /// The events of a recording that is being made: its last event is now, its first one is not known. What its threads are called is in
    /// `names`, which grow.
    ///
    /// # Errors
    /// What cannot be understood.
    pub fn selection_from_now(&self, names: &SharedTaskNames) -> Result<Selection, Failure> {
        let now = UNIX_EPOCH.elapsed().ok().and_then(|now| i64::try_from(now.as_nanos()).ok());
        for (option, text) in [(self.options.0, &self.from), (self.options.1, &self.until)] {
            if text.as_ref().is_some_and(|text| text.starts_with('+')) {
                return Err(Failure::Usage(format!(
                    "--{option} with + counts from the first event, which --follow does not wait for; give a time of day, or -2s (two seconds before now)"
                )));
            }
        }
        self.selection_in((now, now), &|named| TaskSpans::growing(named, names))
    }

    /// The same for the time from the first to the last event. `spans`: when threads had a name.
    fn selection_in(&self, span: TimeSpan, spans: &dyn Fn(&str) -> TaskSpans) -> Result<Selection, Failure> {
        let time = |(option, text): (&str, &Option<String>)| match text {
            Some(text) => moment(text, span)
                .map(Some)
                .map_err(|why| Failure::Usage(format!("--{option} {text}: {why}"))),
            None => Ok(None),
        };
        let mut conditions = Vec::new();
        for text in &self.conditions {
            let condition = Condition::parse(text);
            conditions.push(condition.map_err(|why| Failure::Usage(format!("--where '{text}': {why}")))?);
        }
        if let Some(task) = &self.task {
            conditions.push(match task.parse::<u32>() {
                Ok(_) => Condition::any_of(&TIDS, Comparison::Equal, task),
                // Many events have only the number of their thread.
                Err(_) => Condition::any_of(&COMMS, Comparison::Like, task)
                    .or(Condition::any_task_of(&TIDS, Arc::new(spans(task)))),
            });
        }
        Ok(Selection {
            from_ns: time((self.options.0, &self.from))?,
            to_ns: time((self.options.1, &self.until))?,
            events: self.patterns(),
            cpus: self.cpus()?,
            conditions,
        })
    }

    /// Says that nothing was selected, if a filter was given: an empty output looks like an empty trace.
    pub fn note_if_nothing(&self, events: u64, observer: &dyn Observer) {
        let filters = self.events.iter().map(|event| format!("--event {event}"));
        let has_times = self.from.is_some() || self.until.is_some();
        let filters = filters
            .chain(self.conditions.iter().map(|condition| format!("--where '{condition}'")))
            .chain(self.task.iter().map(|task| format!("--task {task}")))
            .chain(self.cpus.iter().map(|cpus| format!("--cpu {cpus}")))
            .chain(has_times.then(|| "the given times".to_owned()));
        let filters: Vec<String> = filters.collect();
        if events == 0 && !filters.is_empty() {
            observer.note(&format!("no event matches {}", filters.join(" and ")));
        }
    }

    /// The names that were asked for.
    #[must_use]
    pub fn patterns(&self) -> PatternList {
        PatternList::new(&self.events)
    }

    /// The CPUs that were asked for.
    ///
    /// # Errors
    /// When they are no list.
    pub fn cpus(&self) -> Result<Option<BTreeSet<u64>>, Failure> {
        let cpus = self.cpus.as_deref().map(cpu_list).transpose();
        cpus.map_err(|why| Failure::Usage(format!("--cpu: {why}")))
    }

    /// What fields have to be, for people.
    #[must_use]
    pub fn conditions_as_written(&self) -> Vec<String> {
        let task = self.task.iter().map(|task| format!("task {task}"));
        self.conditions.iter().cloned().chain(task).collect()
    }
}

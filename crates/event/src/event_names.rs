// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of events as people write them: as they are in the trace, and as `rtscope list` and `rtscope record -k` write them.
//!
//! A trace has one name for each class, LTTng's for the kernel's events that LTTng renames; the kernel has a subsystem and a name
//! (`irq:softirq_entry` is `irq_softirq_entry` in traces). A pattern may be any of them: a name in the trace, SYSTEM:EVENT, EVENT,
//! a subsystem, or the provider of a program's events.

use crate::{EventClass, Pattern, ProgramSpec, programs, trace_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

/// Whether a pattern stands for the events of this name.
#[must_use]
pub fn is_event_named(pattern: &Pattern, name: &str) -> bool {
    if pattern.matches(name.as_bytes()) {
        return true;
    }
    let text = pattern.to_string();
    let kernel = KernelName::of(name);
    if let Some((system, event)) = text.split_once(':') {
        return kernel.is_in(system, event) && Pattern::new(event).matches(kernel.event.as_bytes());
    }
    if text.contains(['*', '?']) {
        return pattern.matches(kernel.event.as_bytes());
    }
    let is_system = kernel.is_in(&text, "*");
    let is_provider = name.strip_prefix(text.as_str()).is_some_and(|rest| rest.starts_with(':'));
    kernel.event == text || is_system || is_provider
}

/// A name of events, as somebody wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventName(Pattern);

impl EventName {
    /// Every text is a name.
    #[must_use]
    pub fn new(text: &str) -> EventName {
        EventName(Pattern::new(text))
    }

    /// Whether a class has this name, as [`is_event_named`] says.
    #[must_use]
    pub fn matches(&self, class: &EventClass) -> bool {
        is_event_named(&self.0, &class.name)
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a pattern can stand for an event that a trace does not have: one that rtscope knows.
#[must_use]
pub fn is_known_event(pattern: &Pattern) -> bool {
    let text = pattern.to_string();
    let event = text.split_once(':').map_or(text.as_str(), |(_, event)| event);
    let is_call = ["syscall_entry_", "syscall_exit_", "sys_enter_", "sys_exit_"];
    is_call.iter().any(|prefix| event.starts_with(prefix))
        || text == "syscalls"
        || built_in().keys().any(|name| is_event_named(pattern, name))
}

/// By their names in traces: subsystem and tracepoint.
fn built_in() -> &'static HashMap<&'static str, (&'static str, &'static str)> {
    static NAMES: OnceLock<HashMap<&'static str, (&'static str, &'static str)>> = OnceLock::new();
    let named =
        |spec: ProgramSpec| Some((trace_name(spec.system, spec.tracepoint)?, (spec.system, spec.tracepoint)));
    NAMES.get_or_init(|| programs().filter_map(named).collect())
}

/// What the kernel calls an event of a trace.
struct KernelName<'n> {
    /// `None`: the trace does not say; the name may begin with it.
    system: Option<&'n str>,
    event: String,
}

impl<'n> KernelName<'n> {
    fn of(name: &'n str) -> KernelName<'n> {
        let known = |system: &'n str, event: String| KernelName { system: Some(system), event };
        if let Some((system, event)) = built_in().get(name) {
            return known(system, (*event).to_owned());
        }
        // perf's, and those of programs.
        if let Some((system, event)) = name.split_once(':') {
            return known(system, event.to_owned());
        }
        let rules = [
            ("syscall_entry_", "syscalls", "sys_enter_"),
            ("syscall_exit_", "syscalls", "sys_exit_"),
            ("irq_softirq_", "irq", "softirq_"),
            ("timer_hrtimer_", "timer", "hrtimer_"),
            ("x86_irq_vectors_", "irq_vectors", ""),
            ("power_cpu_frequency", "power", "cpu_frequency"),
            ("kmem_mm_page_", "kmem", "mm_page_"),
        ];
        let renamed = rules.into_iter().find_map(|(prefix, system, kernels)| {
            name.strip_prefix(prefix).map(|rest| known(system, format!("{kernels}{rest}")))
        });
        renamed.unwrap_or_else(|| KernelName { system: None, event: name.to_owned() })
    }

    /// Whether it is of a subsystem. Where that is not known: its name begins with the subsystem's, or the pattern names this event alone.
    fn is_in(&self, system: &str, event: &str) -> bool {
        let wanted = Pattern::new(system);
        match self.system {
            Some(system) => wanted.matches(system.as_bytes()),
            None if !event.contains(['*', '?']) => event == self.event,
            None => self
                .event
                .match_indices('_')
                .any(|(at, _)| self.event.get(..at).is_some_and(|prefix| wanted.matches(prefix.as_bytes()))),
        }
    }
}

/// The most similar of some names, if one is similar.
#[must_use]
pub fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let length = wanted.chars().count();
    let most = (length / 3).max(2);
    let contains =
        |name: &str| name.len() > 3 && wanted.len() > 3 && (name.contains(wanted) || wanted.contains(name));
    // Most names are too long or too short, which costs less to find out.
    let may = |name: &&str| name.chars().count().abs_diff(length) <= most || contains(name);
    let distances = names.into_iter().filter(may).map(|name| (distance(wanted, name), name));
    let near = distances.filter(|(distance, name)| *distance <= most || contains(name));
    near.min().map(|(_, name)| name)
}

/// Characters to insert, to remove or to replace.
fn distance(one: &str, other: &str) -> usize {
    const LONGEST: usize = 256;
    let other: Vec<char> = other.chars().take(LONGEST).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in (1..).zip(one.chars().take(LONGEST)) {
        let mut diagonal = std::mem::replace(&mut row[0], place);
        for (at, theirs) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *theirs);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_found_by_its_name_in_the_trace_and_by_the_kernels() {
        for (pattern, name, expected) in [
            ("irq_softirq_entry", "irq_softirq_entry", true),
            ("irq:softirq_entry", "irq_softirq_entry", true),
            ("softirq_entry", "irq_softirq_entry", true),
            ("irq:softirq_*", "irq_softirq_entry", true),
            ("irq:*", "irq_softirq_entry", true),
            ("irq", "irq_handler_entry", true),
            ("irq:*", "x86_irq_vectors_local_timer_entry", false),
            ("irq_vectors:local_timer_entry", "x86_irq_vectors_local_timer_entry", true),
            ("sched:sched_switch", "sched_switch", true),
            ("sched:*", "sched_switch", true),
            ("sched:*", "irq_handler_entry", false),
            ("sched:*", "syscall_entry_sched_yield", false),
            ("syscalls:sys_enter_openat", "syscall_entry_openat", true),
            ("syscalls", "syscall_exit_openat", true),
            ("sys_enter_open*", "syscall_entry_openat", true),
            ("timer:hrtimer_start", "timer_hrtimer_start", true),
            ("kmem:kmalloc", "kmalloc", true),
            ("block:*", "block_rq_issue", true),
            ("block", "block_rq_issue", true),
            ("oms:*", "oms:order_in", true),
            ("oms", "oms:order_in", true),
            ("oms:order_in", "oms:order_in", true),
            ("order_in", "oms:order_in", true),
            ("om", "oms:order_in", false),
            ("sched:sched_switch", "sched:sched_switch", true),
            ("sched_switch", "sched:sched_switch", true),
        ] {
            assert_eq!(is_event_named(&Pattern::new(pattern), name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_nearest_name_is_similar() {
        let names = ["sched_switch", "sched_waking", "irq_handler_entry", "oms:order_in"];
        for (wanted, expected) in [
            ("sched_swich", Some("sched_switch")),
            ("shed_waking", Some("sched_waking")),
            ("order_in", Some("oms:order_in")),
            ("xyz", None),
        ] {
            assert_eq!(nearest(wanted, names), expected, "{wanted}");
        }
    }

    #[test]
    fn what_a_trace_lacks_may_be_known_all_the_same() {
        for (pattern, expected) in
            [("irq:softirq_entry", true), ("sched_*", true), ("syscall_entry_openat", true), ("oms:*", false)]
        {
            assert_eq!(is_known_event(&Pattern::new(pattern)), expected, "{pattern}");
        }
    }
}

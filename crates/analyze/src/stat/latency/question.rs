// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be measured, as users write it: `syscalls`, `block`, `irq`, `softirq`, `wakeup`, or `A -> B by KEY`.

use crate::pairing::PairQuestion;
use rtscope_event::EventClass;
use std::fmt;

/// A kind of latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// From a system call's entry to its exit.
    Syscalls,
    /// From the moment at which a request was given to a block device to its completion.
    Block,
    /// From the beginning of an interrupt's handler, or of a system vector, to its end.
    Irq,
    /// From a softirq's raise to its beginning, and from there to its end.
    Softirq,
    /// From the waking of a task to the moment at which it gets a CPU.
    Wakeup,
    /// From one event to another.
    Pair(PairQuestion),
}

/// The built-in kinds.
const KINDS: [(&str, Question); 5] = [
    ("syscalls", Question::Syscalls),
    ("block", Question::Block),
    ("irq", Question::Irq),
    ("softirq", Question::Softirq),
    ("wakeup", Question::Wakeup),
];

impl Question {
    /// From text: one kind or pair, or several kinds with commas between.
    ///
    /// # Errors
    /// Says what is wrong with the text, and what it may be.
    pub fn parse(text: &str) -> Result<Vec<Question>, String> {
        if text.contains("->") {
            return PairQuestion::parse(text).map(|pair| vec![Question::Pair(pair)]);
        }
        let kind = |word: &str| {
            let known = KINDS.iter().find(|(name, _)| *name == word.trim());
            known.map(|(_, question)| question.clone()).ok_or_else(|| {
                format!(
                    "'{}' is not a latency; write syscalls, block, irq, softirq, wakeup, or two events: \
                     'sched_process_fork -> sched_process_exec by child_tid=tid'",
                    word.trim()
                )
            })
        };
        text.split(',').map(kind).collect()
    }

    /// Whether the events that it needs are in a trace, as far as they can be named.
    ///
    /// # Errors
    /// Says which are not, and what else there is.
    pub fn check(&self, classes: &[EventClass]) -> Result<(), String> {
        let Question::Pair(pair) = self else { return Ok(()) };
        pair.check(classes)
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Question::Pair(pair) => pair.fmt(f),
            kind => {
                let known = KINDS.iter().find(|(_, question)| question == kind);
                f.write_str(known.map_or("", |(name, _)| name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str) -> EventClass {
        EventClass { name: name.to_owned(), ..EventClass::default() }
    }

    #[test]
    fn questions_are_shown_as_they_are_written() {
        for text in ["syscalls", "wakeup", "a:b -> c:d", "a -> b by id", "a -> b by child_tid=tid,cpu"] {
            let [question] = Question::parse(text).unwrap().try_into().unwrap();
            assert_eq!(question.to_string(), text);
        }
        let both = Question::parse("block, irq").unwrap();
        assert_eq!(both, [Question::Block, Question::Irq]);
        for wrong in ["", "disk", "a ->", "-> b", "a -> b by", "a -> b by x=", "a b -> c", "a -> b -> c"] {
            assert!(Question::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_names_of_a_pair_are_those_that_are_selected_by_everywhere() {
        for (asked, name) in [
            ("irq:softirq_entry", "irq_softirq_entry"),
            ("irq:softirq_*", "irq_softirq_entry"),
            ("sched:sched_switch", "sched_switch"),
            ("sched:sched_sw*", "sched_switch"),
            ("sched_switch", "sched:sched_switch"),
            ("syscalls:sys_enter_openat", "syscall_entry_openat"),
            ("oms:order_*", "oms:order_filled"),
        ] {
            let [question] = Question::parse(&format!("{asked} -> {asked}")).unwrap().try_into().unwrap();
            assert_eq!(question.check(&[class(name)]), Ok(()), "{asked}");
        }
        let [question] =
            Question::parse("sched:sched_switch -> sched:sched_switch").unwrap().try_into().unwrap();
        assert!(question.check(&[class("sched_waking")]).is_err());
    }

    #[test]
    fn what_the_trace_does_not_have_is_an_error_with_the_nearest_names() {
        let classes = [class("sched_process_fork"), class("sched_process_exec"), class("irq_handler_entry")];
        let [question] =
            Question::parse("sched_process_forked -> sched_process_exec").unwrap().try_into().unwrap();
        let why = question.check(&classes).unwrap_err();
        assert!(why.contains("sched_process_fork") && !why.contains("irq_handler"), "{why}");
        let [question] =
            Question::parse("sched_process_fork -> sched_process_exec by x=tid").unwrap().try_into().unwrap();
        assert!(question.check(&classes).unwrap_err().contains("no field 'x'"));
    }
}

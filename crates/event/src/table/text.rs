// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as lines of text, for test vectors and for dumping captured sequences.
//!
//! One event a line: time in nanoseconds, CPU, name, then `key=value` for every field. Bytes outside printable ASCII,
//! blanks and backslashes in names are written `\xNN`, so a line always splits at its blanks and a hostile task name
//! stays on its line. [`event_line`] and [`parse_event`] are inverse to each other.

use super::ENTRIES;
use super::forms::Form;
use crate::{CpuId, Event, MonotonicNs};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::str::FromStr;

/// Why a line is not an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseEventError(String);

impl Display for ParseEventError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseEventError {}

fn error<T>(text: impl Into<String>) -> Result<T, ParseEventError> {
    Err(ParseEventError(text.into()))
}

/// Appends bytes to a line.
pub(super) fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        if byte.is_ascii_graphic() && *byte != b'\\' {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// The bytes that [`escape`] wrote.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'\\' {
            let digits = tail.strip_prefix(b"x").and_then(|digits| digits.get(..2));
            let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            bytes.push(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or("bad escape")?);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Ok(bytes)
}

/// Appends a field to a line.
pub(super) fn show<F: Form>(key: &str, value: &F::Value, line: &mut String) {
    let _ = write!(line, " {key}=");
    F::show(value, line);
}

/// The event as one line.
#[must_use]
pub fn event_line(event: &Event) -> String {
    let mut line = format!("{} {} {}", event.time.0, event.cpu, event.kind.name());
    super::show(&event.kind, &mut line);
    line
}

/// The `key=value` pairs of a line. Fields that are left out have what the table says (`else`) or their form's usual value, so that
/// hand-made vectors stay short; ids that decide what an event is about must be given.
pub(super) struct TextFields<'a> {
    fields: BTreeMap<&'a str, &'a str>,
    cpu: CpuId,
}

impl TextFields<'_> {
    pub(super) fn value<F: Form>(
        &self,
        key: &str,
        missing: impl FnOnce() -> Option<F::Value>,
    ) -> Result<F::Value, ParseEventError> {
        match self.fields.get(key) {
            Some(text) => F::parse(text).or_else(|wrong| error(format!("{key}={text}: {wrong}"))),
            None => match missing().or_else(|| F::usual(self.cpu)) {
                Some(value) => Ok(value),
                None => error(format!("field {key} is missing")),
            },
        }
    }
}

fn number<T: FromStr>(key: &str, text: &str) -> Result<T, ParseEventError> {
    text.parse().or_else(|_| error(format!("{key}={text}: not a number in range")))
}

/// The event that a line says.
///
/// # Errors
/// When the line has no time, CPU or known name, or a field that is missing or not a number.
pub fn parse_event(line: &str) -> Result<Event, ParseEventError> {
    let mut words = line.split_ascii_whitespace();
    let time = MonotonicNs(number("time", words.next().unwrap_or_default())?);
    let cpu = CpuId(number("cpu", words.next().unwrap_or_default())?);
    let name = words.next().unwrap_or_default();
    let mut fields = BTreeMap::new();
    for word in words {
        match word.split_once('=') {
            Some((key, value)) => fields.insert(key, value),
            None => return error(format!("{word}: not key=value")),
        };
    }
    let Some(entry) = ENTRIES.iter().find(|entry| entry.origin.name() == name) else {
        return error(format!("no event is called {name:?}"));
    };
    Ok(Event { time, cpu, kind: super::parse(entry.place, &TextFields { fields, cpu })? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_the_way_through_text() {
        let lines = [
            "1 0 sched_switch prev_tid=1 prev_prio=120 next_tid=2 next_prio=-1 prev_state=1 preempt=0 prev_kthread=0 next_kthread=1 prev_wait=futex prev_wait_on=7",
            "2 1 sched_waking tid=7 prio=49 target_cpu=3 kthread=0 wait=none",
            "4 0 sched_process_fork parent_tid=1 parent_pid=1 child_comm=a\\x20b\\x5c child_tid=2 child_pid=2",
            "5 0 sched_process_exec filename=/bin/tr\\xc3\\xa4ge tid=2 old_tid=2",
            "6 0 sched_process_exit comm=x\\x1b[2J tid=2 prio=120 pid=2",
            "7 0 task_rename tid=2 pid=2 old_comm= new_comm=y",
            "9 0 irq_handler_exit irq=36 ret=-2",
            "9 0 vector_exit kind=call_function_single vector=251",
            "9 0 hrtimer_expire_entry timer=0xffff8880 function=0x12 softexpires_ns=-5 expires_ns=7",
            "9 0 cpu_idle state=1 cpu=0",
            "9 0 cpu_idle state=exit cpu=0",
            "9 0 ipi_send_cpumask targets=1-3,5 callsite=0x1 callback=0x2 call=1",
            "9 0 workqueue_queue_work work=0x5 function=0x6 req_cpu=8192",
            "9 0 rtscope_late_response tid=2 pid=2 origin_kind=irq origin_id=36 origin_ns=5 response_ns=9 threshold_ns=3 sequence=1 end=blocked tracker=wakeup instance=2",
        ];
        for line in lines {
            assert_eq!(event_line(&parse_event(line).unwrap()), line);
        }
        let mut state = 1_u64;
        let mut numbers = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if below == 0 { state } else { (state >> 32) % below }
        };
        for round in 0..ENTRIES.len() * 50 {
            let kind = crate::EventKind::random(round, &mut numbers);
            let event = Event { time: MonotonicNs(round as u64), cpu: CpuId(1), kind };
            assert_eq!(parse_event(&event_line(&event)), Ok(event));
        }
    }

    #[test]
    fn what_a_line_leaves_out_is_the_usual() {
        let line = |short| event_line(&parse_event(short).unwrap());
        assert_eq!(
            line("1 3 sched_switch prev_tid=5 next_tid=6"),
            "1 3 sched_switch prev_tid=5 prev_prio=120 next_tid=6 next_prio=120 prev_state=0 preempt=0 prev_kthread=0 next_kthread=0 prev_wait=none prev_wait_on=0"
        );
        assert_eq!(line("1 3 cpu_idle state=exit"), "1 3 cpu_idle state=exit cpu=3");
        assert_eq!(
            line("1 3 sched_process_exec filename=x tid=7"),
            "1 3 sched_process_exec filename=x tid=7 old_tid=7"
        );
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        let message = |line| parse_event(line).unwrap_err().to_string();
        assert_eq!(message("x 0 softirq_raise vec=1"), "time=x: not a number in range");
        assert_eq!(message("1 0 softirq_raise"), "field vec is missing");
        assert_eq!(message("1 0 softirq_raise vec=5000000000"), "vec=5000000000: not a number in range");
        assert_eq!(message("1 0 softirq vec=1"), "no event is called \"softirq\"");
        assert_eq!(message("1 0 task_rename tid=1 old_comm=\\x2 new_comm=b"), "old_comm=\\x2: bad escape");
        assert_eq!(message("1 0 vector_exit kind=x"), "kind=x: no such vector");
    }
}

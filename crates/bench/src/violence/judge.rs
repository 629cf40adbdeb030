// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The judge of a round: compares what traces have, as babeltrace2 prints it, with what the programs counted by themselves.
//!
//! Nothing of rtscope takes part but the losses that its summaries report, which is the claim that is judged.

use super::counters::Counters;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The time of an event is taken after the stamp in it and before that of the next one; the programs' counter and the clock
/// differ by less than this.
const CLOCKS_DIFFER_NS: i64 = 20_000;
/// Liars count in units of this, so that what honest programs lost can be told from it.
pub const LIARS_UNIT: u64 = 1 << 40;

/// A promise that was broken.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Fault {
    /// Which check found it.
    pub check: String,
    /// What it saw.
    pub what: String,
}

/// A trace of a round.
#[derive(Clone, Debug)]
pub struct TraceFiles {
    pub directory: PathBuf,
    /// Its recorder was killed.
    pub killed: bool,
    /// It shows what a flight recorder held.
    pub flight: bool,
    /// The summary of its recorder.
    pub summary: serde_json::Value,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Verdict {
    pub faults: Vec<Fault>,
    pub figures: BTreeMap<String, u64>,
}

/// An event of the torture program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub slot: u32,
    pub number: u64,
    /// In the trace, and as the program stamped it; both CLOCK_MONOTONIC.
    pub time_ns: u64,
    pub at_ns: u64,
}

/// What is known of a round beside its traces.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub counters: &'a Counters,
    pub begun_ns: u64,
    pub ended_ns: u64,
    /// Liars took part that leave records unfinished or unreadable, which count as lost.
    pub liars_lose: bool,
    /// Liars took part whose numbers may be any, also those of their losses.
    pub liars_count: bool,
}

impl Verdict {
    /// Notes a broken promise; of one kind the first few.
    pub fn fault(&mut self, check: &str, what: impl Into<String>) {
        if self.faults.iter().filter(|fault| fault.check == check).count() < 4 {
            self.faults.push(Fault { check: check.to_string(), what: what.into() });
        }
    }

    fn count(&mut self, figure: &str, number: u64) {
        *self.figures.entry(figure.to_string()).or_default() += number;
    }

    /// Judges all traces of a round.
    pub fn judge(&mut self, traces: &[TraceFiles], evidence: &Evidence<'_>) -> Result<()> {
        let mut all = Vec::new();
        for trace in traces {
            all.push(self.read(trace, evidence)?);
        }
        self.account(traces, &all, evidence);
        self.repeats(traces, &all);
        Ok(())
    }

    /// Reads one trace by babeltrace2; the numbers of each slot's events, in order of time.
    fn read(&mut self, trace: &TraceFiles, evidence: &Evidence<'_>) -> Result<Slots> {
        let name = trace.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let complaints = trace.directory.with_extension("babeltrace");
        let mut child = babeltrace(&trace.directory, &complaints)?;
        let output = BufReader::with_capacity(1 << 20, child.stdout.take().context("its output is a pipe")?);
        let mut slots = Slots::default();
        let (mut last_ns, mut lines) = (0, 0u64);
        for line in output.split(b'\n') {
            let line = line?;
            lines += 1;
            let Some(time_ns) = cycles(&line) else {
                self.fault("text", format!("{name}: {}", String::from_utf8_lossy(&line)));
                continue;
            };
            if time_ns < last_ns {
                self.fault("order", format!("{name}: {time_ns} after {last_ns}"));
            }
            last_ns = time_ns;
            let Some(at) = find(&line, b" violence:") else { continue };
            if line[at..].starts_with(b" violence:liar") {
                continue;
            }
            match event(&line[at..], time_ns) {
                Some(seen) => self.event(&name, seen, &mut slots, evidence),
                None => self.fault("values", format!("{name}: {}", String::from_utf8_lossy(&line))),
            }
        }
        let status = child.wait()?;
        self.complaints(&name, &complaints, status.success())?;
        self.count("lines", lines);
        // A trace of the kernel has more: the tasks that were there.
        let is_users = trace.summary["schema"] == "rtscope.record.user/1";
        if let Some(events) = trace.summary["events"].as_u64().filter(|events| is_users && *events != lines) {
            self.fault("summary", format!("{name}: {events} events by its summary, {lines} by babeltrace2"));
        }
        slots.check_gaps(&name, trace, self);
        Ok(slots)
    }

    fn event(&mut self, name: &str, seen: Seen, slots: &mut Slots, evidence: &Evidence<'_>) {
        let known = evidence.counters.slots.get(seen.slot as usize);
        if known.is_none_or(|slot| seen.number >= slot.begun) {
            self.fault("values", format!("{name}: nobody emitted {seen:?} {known:?}"));
            return;
        }
        if seen.time_ns < evidence.begun_ns || seen.time_ns > evidence.ended_ns {
            self.fault("time", format!("{name}: {seen:?} is outside of the round"));
        }
        let late = seen.time_ns as i64 - seen.at_ns as i64;
        if late < -CLOCKS_DIFFER_NS {
            self.fault("time", format!("{name}: {seen:?} is {} ns before its stamp", -late));
        }
        let numbers = slots.0.entry(seen.slot).or_default();
        if let Some(before) = numbers.last() {
            if before.number >= seen.number {
                let check = if before.number == seen.number { "repeats" } else { "order" };
                self.fault(check, format!("{name}: {seen:?} after {before:?}"));
                return;
            }
            // The one before was complete when this one was stamped.
            if before.time_ns as i64 > seen.at_ns as i64 + CLOCKS_DIFFER_NS {
                self.fault("time", format!("{name}: {before:?} is after the stamp of {seen:?}"));
            }
        }
        numbers.push(seen);
    }

    fn complaints(&mut self, name: &str, path: &Path, succeeded: bool) -> Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let strange: Vec<&str> = text.lines().filter(|line| !is_count_of_discarded(line)).collect();
        if !succeeded || !strange.is_empty() {
            self.fault("babeltrace2", format!("{name}: {}", strange.join(" | ")));
        }
        Ok(())
    }

    /// recorded + lost = emitted.
    fn account(&mut self, traces: &[TraceFiles], all: &[Slots], evidence: &Evidence<'_>) {
        let (begun, finished) = evidence.counters.emitted();
        self.count("begun", begun);
        self.count("finished", finished);
        let recorded: u64 = evidence
            .counters
            .slots
            .iter()
            .enumerate()
            .map(|(index, slot)| distinct(all, index as u32, slot.begun))
            .sum();
        let mut losses = Losses::default();
        traces.iter().for_each(|trace| losses.add(&trace.summary));
        self.count("recorded", recorded);
        self.count("lost", losses.honest + losses.unfinished);
        if traces.iter().any(|trace| trace.flight) || evidence.liars_count {
            return;
        }
        let least = recorded + losses.honest;
        let most = least + losses.unfinished;
        let words = format!(
            "recorded {recorded} + lost {} + unfinished {}, emitted {finished} to {begun}",
            losses.honest, losses.unfinished
        );
        // What liars leave unfinished cannot be told from what killed programs do.
        let upper = if evidence.liars_lose { least } else { most };
        if most < finished && !losses.unknown {
            self.fault("account", format!("{words}: {} have vanished", finished - most));
        }
        if upper > begun {
            self.fault("account", format!("{words}: {} too many", upper - begun));
        }
    }

    /// An event may be in the trace of a killed recorder and in the next: the last ones of one and the first of the other.
    fn repeats(&mut self, traces: &[TraceFiles], all: &[Slots]) {
        // Snapshots of one flight recorder overlap.
        if traces.iter().any(|trace| trace.flight) {
            return;
        }
        for (index, (earlier, trace)) in all.iter().zip(traces).enumerate() {
            for later in &all[index + 1..] {
                let (repeated, is_allowed) = earlier.repeated_in(later);
                self.count("repeated", repeated);
                let name = trace.directory.file_name().unwrap_or_default().to_string_lossy();
                if repeated > 0 && (!is_allowed || !trace.killed) {
                    let how = if trace.killed { "not the last ones" } else { "its recorder was not killed" };
                    self.fault(
                        "repeats",
                        format!("{repeated} events of {name} are in a later trace, too: {how}"),
                    );
                }
            }
        }
    }
}

/// How many events of a slot are in some trace.
fn distinct(all: &[Slots], slot: u32, begun: u64) -> u64 {
    let lists: Vec<&Vec<Seen>> = all.iter().filter_map(|slots| slots.0.get(&slot)).collect();
    if let [one] = lists.as_slice() {
        return one.len() as u64;
    }
    let mut is_there = vec![false; if lists.is_empty() { 0 } else { begun as usize }];
    lists.iter().flat_map(|list| list.iter()).for_each(|seen| is_there[seen.number as usize] = true);
    is_there.iter().filter(|there| **there).count() as u64
}

/// The events of a trace, by slot.
#[derive(Debug, Default)]
pub struct Slots(BTreeMap<u32, Vec<Seen>>);

impl Slots {
    /// How many of these are in a later trace, and whether what comes next to each of them here is in that one, too: then they are the last ones of a stream. A slot's events
    /// may be in two streams, since what is late has its own, and a recorder may be killed when it has written that, and not yet what was before: there is a gap
    /// between them, and each may end with events that are repeated.
    fn repeated_in(&self, later: &Slots) -> (u64, bool) {
        let (mut repeated, mut is_allowed) = (0, true);
        for (slot, numbers) in &self.0 {
            let Some(kept) = later.0.get(slot) else { continue };
            let is_again = |seen: &Seen| kept.binary_search_by_key(&seen.number, |one| one.number).is_ok();
            repeated += numbers.iter().filter(|seen| is_again(seen)).count() as u64;
            is_allowed &= numbers.windows(2).all(|pair| {
                let [one, next] = pair else { return true };
                next.number != one.number + 1 || !is_again(one) || is_again(next)
            });
        }
        (repeated, is_allowed)
    }

    /// A flight recorder keeps the newest events of a thread, without a gap but for what was counted.
    fn check_gaps(&self, name: &str, trace: &TraceFiles, verdict: &mut Verdict) {
        if !trace.flight {
            return;
        }
        let gaps = |numbers: &Vec<Seen>| {
            let all = numbers.last().map_or(0, |last| last.number + 1 - numbers[0].number);
            all - numbers.len() as u64
        };
        let missing: u64 = self.0.values().map(gaps).sum();
        let mut losses = Losses::default();
        losses.add(&trace.summary);
        if missing > losses.honest + losses.unfinished {
            verdict
                .fault("flight", format!("{name}: {missing} events are missing between others, {losses:?}"));
        }
    }
}

/// What summaries report as lost.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// By causes that a program counts.
    honest: u64,
    /// Records that were begun and not finished, or are no records.
    unfinished: u64,
    /// Some number is not known.
    unknown: bool,
}

impl Losses {
    fn add(&mut self, summary: &serde_json::Value) {
        // What is missing of the kernel's events (switches that this host hides, say) are no events of programs.
        if summary["schema"] == "rtscope.record/1" {
            return;
        }
        for loss in summary["losses"].as_array().into_iter().flatten() {
            let Some(count) = loss["count"].as_u64() else {
                // Liars' files are refused, and excuse nothing.
                self.unknown |= loss["cause"] != "refused";
                continue;
            };
            if matches!(loss["cause"].as_str(), Some("unfinished" | "unreadable")) {
                self.unfinished += count;
            } else {
                self.honest += count % LIARS_UNIT;
            }
        }
    }
}

fn babeltrace(trace: &Path, complaints: &Path) -> Result<std::process::Child> {
    let complaints = File::create(complaints).with_context(|| complaints.display().to_string())?;
    Command::new("babeltrace2")
        .args(["--clock-cycles", "--no-delta"])
        .arg(trace)
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()
        .context("babeltrace2")
}

/// "WARNING: Tracer discarded 7 events between ...": a count, and no complaint.
fn is_count_of_discarded(line: &str) -> bool {
    let words = line.trim_start_matches("WARNING: ");
    words.starts_with("Tracer discarded ") && words.contains(" event")
}

/// The cycles in "[00000013700761283272] ...".
fn cycles(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"[")?;
    number(rest)
}

/// The decimal number at the beginning.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn field<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let name = format!(" {name} = ");
    find(text, name.as_bytes()).map(|at| &text[at + name.len()..])
}

/// An event that is what the program wrote; `None` if any of its fields is not.
fn event(text: &[u8], time_ns: u64) -> Option<Seen> {
    let number_of = |name: &str| field(text, name).and_then(number);
    let slot = u32::try_from(number_of("slot")?).ok()?;
    let number = number_of("n")?;
    let mixed = (u64::from(slot) << 40 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let letter = b'a' + ((u64::from(slot) + number) % 26) as u8;
    let expected = vec![letter; 1 + (number % 22) as usize];
    let written = field(text, "text")?.strip_prefix(b"\"")?;
    let is_right = written.starts_with(&expected) && written.get(expected.len()) == Some(&b'"');
    (is_right && number_of("check")? == mixed >> 32).then_some(Seen {
        slot,
        number,
        time_ns,
        at_ns: number_of("at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::counters::Slot;
    use super::*;
    use serde_json::{Value, json};

    fn seen(slot: u32, numbers: std::ops::Range<u64>) -> Slots {
        let events =
            numbers.map(|number| Seen { slot, number, time_ns: 1000 + number, at_ns: 1000 + number });
        Slots(BTreeMap::from([(slot, events.collect())]))
    }

    fn trace(killed: bool, flight: bool, losses: &Value) -> TraceFiles {
        TraceFiles { directory: PathBuf::from("t"), killed, flight, summary: json!({ "losses": losses }) }
    }

    /// What is found of a slot with so many events begun and finished.
    fn judged(
        (begun, finished): (u64, u64),
        traces: &[TraceFiles],
        all: &[Slots],
        liars_lose: bool,
    ) -> Vec<String> {
        let slots = vec![Slot { begun, finished, pid: 1, tid: 1 }];
        let counters = Counters { slots, ..Counters::default() };
        let evidence =
            Evidence { counters: &counters, begun_ns: 0, ended_ns: u64::MAX, liars_lose, liars_count: false };
        let mut verdict = Verdict::default();
        verdict.account(traces, all, &evidence);
        verdict.repeats(traces, all);
        for (slots, trace) in all.iter().zip(traces) {
            slots.check_gaps("t", trace, &mut verdict);
        }
        verdict.faults.into_iter().map(|fault| fault.check).collect()
    }

    #[test]
    fn every_event_is_accounted_for_once() {
        let lost = |count: u64, cause: &str| json!([{"cause": cause, "count": count, "cpu": null}]);
        let one = |losses: &Value| vec![trace(false, false, losses)];
        let none: [String; 0] = [];
        assert_eq!(judged((10, 10), &one(&json!([])), &[seen(0, 0..10)], false), none);
        assert_eq!(judged((10, 10), &one(&lost(4, "buffer_full")), &[seen(0, 0..6)], false), none);
        assert_eq!(judged((10, 10), &one(&lost(3, "buffer_full")), &[seen(0, 0..6)], false), ["account"]);
        assert_eq!(judged((10, 10), &one(&lost(5, "buffer_full")), &[seen(0, 0..6)], false), ["account"]);
        // The last one of a killed program may be there, be lost, or be neither.
        assert_eq!(judged((10, 9), &one(&json!([])), &[seen(0, 0..9)], false), none);
        assert_eq!(judged((10, 9), &one(&lost(1, "unfinished")), &[seen(0, 0..9)], false), none);
        assert_eq!(judged((10, 9), &one(&lost(2, "unfinished")), &[seen(0, 0..9)], false), ["account"]);
        // What is missing of the kernel's events is no event of a program.
        let mut kernels = one(&lost(3, "gap"));
        kernels[0].summary["schema"] = json!("rtscope.record/1");
        assert_eq!(judged((10, 10), &kernels, &[seen(0, 0..10)], false), none);
        assert_eq!(judged((10, 10), &kernels, &[seen(0, 0..9)], false), ["account"]);
        // Of what liars leave unfinished there is no limit, nor of what they count in their unit.
        assert_eq!(judged((10, 9), &one(&lost(200, "unfinished")), &[seen(0, 0..9)], true), none);
        assert_eq!(judged((10, 10), &one(&lost(7 * LIARS_UNIT, "no_buffer")), &[seen(0, 0..10)], true), none);
        assert_eq!(
            judged((10, 10), &one(&lost(7 * LIARS_UNIT, "no_buffer")), &[seen(0, 0..9)], true),
            ["account"]
        );
    }

    #[test]
    fn only_the_last_events_of_a_killed_recorder_may_be_in_the_next_trace() {
        let two = |killed: bool| vec![trace(killed, false, &json!([])), trace(false, false, &json!([]))];
        let none: [String; 0] = [];
        assert_eq!(judged((10, 10), &two(true), &[seen(0, 0..6), seen(0, 6..10)], false), none);
        assert_eq!(judged((10, 10), &two(true), &[seen(0, 0..8), seen(0, 6..10)], false), none);
        assert_eq!(judged((10, 10), &two(false), &[seen(0, 0..8), seen(0, 6..10)], false), ["repeats"]);
        let in_both = |later: &[std::ops::Range<u64>]| {
            let mut all = Slots::default();
            later.iter().for_each(|part| {
                let part = seen(0, part.clone()).0.remove(&0).expect("it is there");
                all.0.entry(0).or_default().extend(part);
            });
            judged((10, 10), &two(true), &[seen(0, 0..8), all], false)
        };
        assert_eq!(in_both(&[6..8, 8..10]), none);
        assert_eq!(in_both(&[2..4, 8..10]), ["repeats"]);
        assert_eq!(in_both(&[2..4, 6..10]), ["repeats"]);
        // Two streams, of which each has its last ones again.
        let mut with_gap = seen(0, 0..8);
        with_gap.0.get_mut(&0).expect("it is there").remove(4);
        assert_eq!(judged((10, 10), &two(true), &[with_gap, seen(0, 3..10)], false), none);
        // What is late was written, and what comes before it was not yet.
        assert_eq!(judged((10, 10), &two(true), &[seen(0, 3..6), seen(0, 0..10)], false), none);
        assert_eq!(judged((6, 6), &two(true), &[seen(0, 0..6), seen(0, 0..4)], false), ["repeats"]);
        // One that was finished late was written before those that were begun earlier; each is there once.
        let mut early = seen(0, 0..6);
        early.0.get_mut(&0).expect("it is there").push(Seen {
            slot: 0,
            number: 9,
            time_ns: 1009,
            at_ns: 1009,
        });
        assert_eq!(judged((10, 10), &two(true), &[early, seen(0, 6..9)], false), none);
    }

    #[test]
    fn a_flight_recorder_has_no_gap_that_was_not_counted() {
        let mut with_gap = seen(0, 5..10);
        with_gap.0.get_mut(&0).expect("it is there").remove(2);
        let counted = json!([{"cause": "no_buffer", "count": 1}]);
        let none: [String; 0] = [];
        assert_eq!(judged((20, 20), &[trace(false, true, &counted)], &[with_gap], false), none);
        let mut with_gap = seen(0, 5..10);
        with_gap.0.get_mut(&0).expect("it is there").remove(2);
        assert_eq!(judged((20, 20), &[trace(false, true, &json!([]))], &[with_gap], false), ["flight"]);
    }

    #[test]
    fn a_line_is_an_event_only_if_each_field_is_what_was_written() {
        let line = |check: u64, text: &str| {
            format!(" violence:work: {{ n = 5, slot = 3, at = 77, check = {check}, text = \"{text}\" }}")
                .into_bytes()
        };
        let right = (3_u64 << 40 ^ 5).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        assert_eq!(
            event(&line(right, "iiiiii"), 80),
            Some(Seen { slot: 3, number: 5, time_ns: 80, at_ns: 77 })
        );
        assert_eq!(event(&line(right + 1, "iiiiii"), 80), None);
        assert_eq!(event(&line(right, "iiiii"), 80), None);
        assert_eq!(event(&line(right, "iiiijj"), 80), None);
        assert_eq!(cycles(b"[0000123] vm"), Some(123));
        assert!(is_count_of_discarded("WARNING: Tracer discarded 7 events between [1] and [2]"));
        assert!(!is_count_of_discarded("WARNING: Tracer discarded 7 packets between [1] and [2]"));
    }
}

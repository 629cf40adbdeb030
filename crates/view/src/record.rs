// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recorded trace: what is in it, and what is missing, for `rtscope record`.

use crate::label::clean;
use crate::stat::earlier_text;
use crate::{counted, duration_text, loss_line};
use rtscope_ctf::Overwritten;
use rtscope_event::{Loss, LossCause, MonotonicNs};
use rtscope_hardware::capture::CaptureInfo;
use rtscope_programs::collector::{LossesByUser, UserLosses};
use rtscope_session::command::CommandEnd;
use rtscope_session::hardware::DecodeReport;
use rtscope_session::record::{LostEvents, RecordedTrace, counts_by_user, losses_by_user};
use rtscope_session::users;
use rtscope_store::ConversionSummary;
use rtscope_store::user::UserSummary;
use serde_json::{Value, json};
use std::path::Path;

/// The JSON object of a trace of tracepoints (docs/json.md).
pub const RECORD_SCHEMA: &str = rtscope_session::schema::RECORD;
/// That of a trace of programs.
pub const RECORD_USER_SCHEMA: &str = rtscope_session::schema::RECORD_USER;

/// That of a trace that a flight recorder has saved for `rtscope snapshot`.
pub const SNAPSHOT_REQUEST_SCHEMA: &str = "rtscope.snapshot.request/1";

/// A trace that is made while it is recorded is behind for longer only where no CPU has time for it.
pub(crate) const BEHIND_NS: u64 = 2_000_000_000;

/// Lines for people.
#[must_use]
pub fn recorded_text(trace: &RecordedTrace<'_>) -> String {
    match trace {
        RecordedTrace::Kernel { target, summary, behind_ns } => {
            let mut text = kernel_text(target, summary);
            if let Some(behind_ns) = behind_ns.filter(|behind_ns| *behind_ns > BEHIND_NS) {
                text.push_str(&format!(
                    "converted when it was over: the last {}, for which no CPU had time before\n",
                    duration_text(behind_ns)
                ));
            }
            text
        }
        RecordedTrace::Programs { target, summary, .. } => programs_text(target, summary),
        RecordedTrace::Places { target, capture, report, interrupted } => {
            places_text(target, capture, report, *interrupted)
        }
    }
}

/// One JSON object. `command`: how COMMAND ended, if there was one and it ended by itself.
#[must_use]
pub fn recorded_json(trace: &RecordedTrace<'_>, command: Option<CommandEnd>) -> Value {
    let mut object = trace_json(trace);
    object["lost_share"] = json!(LostEvents::of(trace).share());
    if let Some(end) = command {
        object["command"] = crate::command_json(end);
    }
    object
}

fn trace_json(trace: &RecordedTrace<'_>) -> Value {
    match trace {
        RecordedTrace::Kernel { target, summary, behind_ns } => {
            let mut object = kernel_json(target, summary);
            if let Some(behind_ns) = behind_ns {
                object["behind_ns"] = json!(behind_ns);
            }
            object
        }
        RecordedTrace::Programs { target, summary, recording_cpu_us, asked } => {
            let mut object = programs_json(target, summary, *recording_cpu_us);
            if let Some(asked) = asked {
                object["snapshots_by_user"] = json!(asked);
            }
            object
        }
        RecordedTrace::Places { target, capture, report, interrupted } => {
            places_json(target, capture, report, *interrupted)
        }
    }
}

/// The trace that a flight recorder has saved when it was asked to.
#[must_use]
pub fn snapshot_request_json(trace: &str, pid: u32) -> String {
    json!({ "schema": SNAPSHOT_REQUEST_SCHEMA, "trace": trace, "pid": pid }).to_string()
}

/// A trace that lacks so much is no picture of what happened.
const MUCH_LOST: f64 = 0.01;

/// Of what was lost, what no buffer helps against.
fn hidden_switches(trace: &RecordedTrace<'_>) -> u64 {
    let RecordedTrace::Kernel { summary, .. } = trace else { return 0 };
    let hidden = summary.losses.iter().filter(|loss| loss.cause == LossCause::Gap);
    hidden.filter_map(|loss| loss.count).fold(0, u64::saturating_add)
}

/// A line that nobody overlooks, where much was lost, and what to do about it.
#[must_use]
pub fn much_lost(trace: &RecordedTrace<'_>) -> Option<String> {
    let lost = LostEvents::of(trace);
    // Of what has gone elsewhere nobody knows how much it is.
    if lost.share() < MUCH_LOST || lost.is_elsewhere {
        return None;
    }
    let others = LostEvents { lost: lost.lost.saturating_sub(hidden_switches(trace)), ..lost.clone() };
    let remedy = match trace {
        RecordedTrace::Kernel { .. } if others.share() < MUCH_LOST => {
            "most of these are switches that the kernel did not report (some hosts hide those of threads of their own), \
             which no option of this command can record"
        }
        RecordedTrace::Kernel { .. } => {
            "record with a larger --buffer, fewer tracepoints (-k), or a --filter"
        }
        RecordedTrace::Programs { .. } => {
            "record with a larger --user-buffer, fewer events (-u), or --blocking, which lets programs wait"
        }
        // Nobody counts what a unit lost.
        RecordedTrace::Places { .. } => return None,
    };
    let percent = lost.share() * 100.0;
    Some(format!(
        "MUCH IS LOST: {percent:.0} % of the events ({} of {}{}); {remedy}",
        lost.lost,
        // A program counts its losses itself, and may lie.
        lost.recorded.saturating_add(lost.lost),
        losses_by_user(&lost.by_user).map_or(String::new(), |users| format!(": {users}"))
    ))
}

/// Places that a trace unit found.
fn places_text(target: &Path, capture: &CaptureInfo, report: &DecodeReport, interrupted: bool) -> String {
    let names: Vec<_> = capture.places.iter().map(|place| clean(&place.name)).collect();
    let what = format!("{}, by {}", names.join(", "), capture.unit);
    let mut text = match &report.trace {
        Some(trace) => {
            format!("{}: {} of {what}\n", target.display(), counted(trace.events, "event", "events"))
        }
        None => format!("no trace of {what}\n"),
    };
    if interrupted {
        text.push_str(CUT_OFF);
    }
    text.push_str(match (capture.has_losses(), report.has_losses()) {
        (true, _) => {
            "lost: something, which nobody counts; hardware/capture.json says on which CPU, and why\n"
        }
        (_, true) => {
            "lost: something, which nobody counts; rtscope hardware decode says where, of hardware/\n"
        }
        _ => "lost: nothing\n",
    });
    text
}

fn places_json(target: &Path, capture: &CaptureInfo, report: &DecodeReport, interrupted: bool) -> Value {
    json!({
        "schema": rtscope_session::schema::RECORD_PLACES,
        "trace": report.trace.as_ref().map(|_| target.display().to_string()),
        "unit": capture.unit,
        "places": capture.places.iter().map(|place| &place.name).collect::<Vec<_>>(),
        "events": report.trace.as_ref().map_or(0, |trace| trace.events),
        "unit_bytes": capture.aux_bytes(),
        "interrupted": interrupted,
        "incomplete": interrupted || capture.has_losses() || report.has_losses(),
    })
}

/// What is to be noted beside the summary of a trace of programs: about clocks, programs, and what was left out.
#[must_use]
pub fn recorded_notes(trace: &RecordedTrace<'_>) -> Vec<String> {
    let RecordedTrace::Programs { summary, .. } = trace else { return Vec::new() };
    let problems = summary.clock.problems.iter().map(|problem| problem.sentence());
    let refusals = summary.refused.iter().map(ToString::to_string);
    problems.chain(summary.remarks.iter().cloned()).chain(refusals).collect()
}

fn duration(from: MonotonicNs, until: Option<MonotonicNs>) -> String {
    until.map_or(String::new(), |until| format!(" in {}", duration_text(until.since(from))))
}

/// Of a recorder that was killed.
const CUT_OFF: &str = "the recording was cut off; what it lost at its end is unknown\n";

/// The lines that both kinds of traces have.
fn ends(is_interrupted: bool, losses: &[Loss]) -> String {
    let mut text = String::new();
    if is_interrupted {
        text.push_str(CUT_OFF);
    }
    if losses.is_empty() {
        text.push_str("lost: nothing\n");
    }
    losses.iter().for_each(|loss| text.push_str(&format!("{}\n", loss_line(loss))));
    text
}

/// What was removed to stay below a limit.
fn overwritten_text(overwritten: &Overwritten) -> String {
    let Overwritten { events, packets, .. } = overwritten;
    {
        let (events, packets) = (counted(*events, "event", "events"), counted(*packets, "packet", "packets"));
        format!("overwritten: {events} in {packets}, older than the trace (--max-size)\n")
    }
}

fn overwritten_json(object: &mut Value, overwritten: Option<&Overwritten>) {
    if let Some(Overwritten { events, packets, files, .. }) = overwritten {
        object["overwritten"] = json!({ "events": events, "packets": packets, "files": files });
    }
}

fn kernel_text(target: &Path, summary: &ConversionSummary) -> String {
    let mut text = format!(
        "{}: {}{} ({:.1} MB)\n",
        target.display(),
        counted(summary.events, "event", "events"),
        duration(summary.from, summary.until),
        summary.bytes as f64 / 1e6
    );
    text.push_str(&ends(summary.interrupted, &summary.losses));
    summary.overwritten.iter().for_each(|removed| text.push_str(&overwritten_text(removed)));
    if summary.without_text > 0 {
        text.push_str(&format!("paths that could not be read: {} (\"?\")\n", summary.without_text));
    }
    if summary.cut_texts > 0 {
        text.push_str(&format!(
            "paths that were cut after 511 bytes: {} (they end with \"…\")\n",
            summary.cut_texts
        ));
    }
    text
}

fn programs_text(target: &Path, summary: &UserSummary) -> String {
    let mut text = format!(
        "{}: {}{}{} ({:.1} MB)\n",
        target.display(),
        counted(summary.events, "event", "events"),
        summary.rings.map(|rings| format!(" of {}", counted(rings, "thread", "threads"))).unwrap_or_default(),
        duration(summary.from, summary.until),
        summary.bytes as f64 / 1e6
    );
    text.push_str(&ends(summary.until.is_none(), &summary.losses));
    if let Some(users) = losses_by_user(&summary.by_user) {
        text.push_str(&format!("lost by user: {users}\n"));
    }
    summary.overwritten.iter().for_each(|removed| text.push_str(&overwritten_text(removed)));
    if let Some(users) = counts_by_user(overwritten(summary)) {
        text.push_str(&format!("overwritten by user: {users}\n"));
    }
    if summary.waits > 0 {
        text.push_str(&format!(
            "threads waited {} because their buffer was full (--blocking)\n",
            counted(summary.waits, "time", "times")
        ));
    }
    if summary.earlier > 0 {
        text.push_str(&format!("{}\n", earlier_text(summary.earlier)));
    }
    if summary.filtered > 0 {
        text.push_str(&format!("left out by filters: {}\n", counted(summary.filtered, "event", "events")));
    }
    if summary.moved > 0 {
        text.push_str(&format!(
            "{} finished too late to have a time of its own; it is that of an event before{}\n",
            counted(summary.moved, "event was", "events were"),
            counts_by_user(moved(summary)).map_or(String::new(), |users| format!(": {users}"))
        ));
    }
    text
}

fn losses_json(losses: &[Loss]) -> Vec<Value> {
    let object =
        |loss: &Loss| json!({ "cause": loss.cause, "cpu": loss.cpu.map(|cpu| cpu.0), "count": loss.count });
    losses.iter().map(object).collect()
}

fn kernel_json(target: &Path, summary: &ConversionSummary) -> Value {
    let events: Vec<Value> = summary
        .event_losses
        .iter()
        .map(|loss| json!({ "event": loss.event, "cause": loss.loss.cause, "cpu": loss.loss.cpu, "count": loss.loss.count }))
        .collect();
    let mut object = json!({
        "schema": RECORD_SCHEMA,
        "trace": target.display().to_string(),
        "events": summary.events,
        "by_event": summary.by_event,
        "from_ns": summary.from,
        "until_ns": summary.until,
        "interrupted": summary.interrupted,
        "bytes": summary.bytes,
        "losses": losses_json(&summary.losses),
        "event_losses": events,
        "paths_not_read": summary.without_text,
        "paths_cut": summary.cut_texts,
    });
    overwritten_json(&mut object, summary.overwritten.as_ref());
    object
}

fn users_json(by_user: &LossesByUser) -> Vec<Value> {
    let object = |(uid, losses): (&u32, &UserLosses)| {
        json!({
            "uid": uid,
            "name": users::name(*uid),
            "count": losses.lost,
            "uncounted": losses.is_uncounted,
            "asked": !losses.is_unasked,
        })
    };
    by_user.iter().filter(|(_, losses)| losses.lost > 0 || losses.is_uncounted).map(object).collect()
}

/// Events without a time of their own, by user.
fn moved(summary: &UserSummary) -> impl Iterator<Item = (u32, u64)> {
    summary.by_user.iter().map(|(uid, losses)| (*uid, losses.moved))
}

/// What was removed, by user.
fn overwritten(summary: &UserSummary) -> impl Iterator<Item = (u32, u64)> {
    summary.overwritten_by_user.iter().map(|(uid, events)| (*uid, *events))
}

/// What was counted of users.
fn counts_json(counts: impl Iterator<Item = (u32, u64)>) -> Vec<Value> {
    let counts = counts.filter(|(_, count)| *count > 0);
    counts.map(|(uid, count)| json!({ "uid": uid, "name": users::name(uid), "count": count })).collect()
}

fn programs_json(target: &Path, summary: &UserSummary, recording_cpu_us: Option<u64>) -> Value {
    let mut object = json!({
        "schema": RECORD_USER_SCHEMA,
        "trace": target.display().to_string(),
        "events": summary.events,
        "by_event": summary.by_event,
        "from_ns": summary.from,
        "until_ns": summary.until,
        "interrupted": summary.until.is_none(),
        "bytes": summary.bytes,
        "rings": summary.rings,
        "moved": summary.moved,
        "moved_by_user": counts_json(moved(summary)),
        "waits": summary.waits,
        "filtered": summary.filtered,
        "earlier": summary.earlier,
        "losses": losses_json(&summary.losses),
        "lost_by_user": users_json(&summary.by_user),
        "clock_error_ns": summary.clock_error_ns,
        "clock": {
            "source": summary.clock.source,
            "trusted": summary.clock.problems.is_empty(),
            "problems": summary.clock.problems,
        },
        "remarks": summary.remarks,
        "refused": summary.refused,
        "recording_cpu_us": recording_cpu_us,
    });
    overwritten_json(&mut object, summary.overwritten.as_ref());
    if summary.overwritten.is_some() {
        object["overwritten_by_user"] = counts_json(overwritten(summary)).into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_store::user::UserSummary;
    use std::path::Path;

    /// Ten events of a million were asked for: a hundred lost ones are no great part of a million.
    #[test]
    fn what_filters_left_out_was_not_lost() {
        let loss = Loss { cpu: None, cause: LossCause::BufferFull, count: Some(100) };
        let summary =
            UserSummary { events: 10, filtered: 999_890, losses: vec![loss], ..UserSummary::default() };
        let trace = RecordedTrace::Programs {
            target: Path::new("t"),
            summary: &summary,
            recording_cpu_us: None,
            asked: None,
        };
        assert_eq!(LostEvents::of(&trace).share(), 0.0001);
        assert_eq!(much_lost(&trace), None);
    }

    /// A program counts its losses itself.
    #[test]
    fn a_loss_of_any_number_is_told() {
        let loss = Loss { cpu: None, cause: LossCause::BufferFull, count: Some(u64::MAX) };
        let summary = UserSummary { events: 10, losses: vec![loss], ..UserSummary::default() };
        let trace = RecordedTrace::Programs {
            target: Path::new("t"),
            summary: &summary,
            recording_cpu_us: None,
            asked: None,
        };
        assert!(much_lost(&trace).is_some_and(|text| text.starts_with("MUCH IS LOST: 100 %")));
        assert!(LostEvents::of(&trace).and(LostEvents::of(&trace)).judge(None).is_err());
    }

    #[test]
    fn no_buffer_is_recommended_against_switches_that_the_kernel_hides() {
        let loss = |cause, count| Loss { cpu: None, cause, count: Some(count) };
        let said = |losses: Vec<Loss>| {
            let summary = ConversionSummary { events: 1000, losses, ..ConversionSummary::default() };
            much_lost(&RecordedTrace::Kernel { target: Path::new("t"), summary: &summary, behind_ns: None })
        };
        let hidden = said(vec![loss(LossCause::Gap, 20)]).expect("2 %");
        assert!(hidden.contains("did not report") && !hidden.contains("--buffer"), "{hidden}");
        let both = said(vec![loss(LossCause::Gap, 20), loss(LossCause::BufferFull, 20)]).expect("4 %");
        assert!(both.contains("--buffer"), "{both}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the output of rtscope with the notes of the programs.

use std::time::Duration;

use anyhow::{Context, Result};
use rtscope_analyze::explain::{Actor, Cause, CauseKind, Explanation};
use rtscope_event::LossCause;
use rtscope_testkit::late::VictimNotes;
use rtscope_testkit::notes::Burst;
use rtscope_testkit::process::WorkloadOutput;
use rtscope_view::cause_label;
use serde_json::{Value, json};

use crate::phase::{Culprit, PHASES, Phase, PhaseRecord};

/// How far rtscope's share may be from the disturber's own.
const TOLERANCE: f64 = 0.05;
/// The result of a phase.
#[derive(Debug, Default)]
pub struct Verdict {
    pub phase: &'static str,
    pub problems: Vec<String>,
    victim_late: u64,
    victim_near: u64,
    rtscope_late: u64,
    explained: usize,
    named: String,
    /// In the phase without a disturber: what else is named.
    strangers: Vec<String>,
    /// Time that a hypervisor took from the CPU.
    pub stolen: Duration,
    /// Mean share of the culprit in the compared responses, by rtscope and by its own stamps.
    share: Option<f64>,
    own_share: Option<f64>,
    worst_difference: Option<f64>,
    /// Responses that rtscope calls unknown because switches are missing that nobody counted (see [`is_hidden`]).
    hidden: usize,
    traces: usize,
    events: usize,
}

/// One late response as both sides saw it.
///
/// The disturber's stamps include the interrupts during its bursts, which a program cannot see. So its own share must lie between
/// the share that rtscope gives to it alone and that share plus interrupts (and what rtscope calls unknown).
#[derive(Debug, Clone, Copy)]
struct Shares {
    rtscope: f64,
    with_interrupts: f64,
    own: f64,
}

impl Shares {
    /// How far the disturber's own share lies outside, relative to it; a share below one half is compared in points.
    fn difference(self) -> f64 {
        let outside = (self.rtscope - self.own).max(self.own - self.with_interrupts).max(0.0);
        outside / if self.own < 0.5 { 1.0 } else { self.own }
    }
}

impl Verdict {
    pub const TABLE_HEAD: &'static str = "phase    late: itself  rtscope  named by rtscope                       \
        share: rtscope  itself  saved traces (events)";

    /// Whether everything agreed.
    pub fn ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// One line of the table at the end.
    pub fn table_row(&self) -> String {
        let percent =
            |share: Option<f64>| share.map_or_else(|| "-".into(), |s| format!("{:.1} %", s * 100.0));
        let hidden = match self.hidden {
            0 => String::new(),
            count => format!(", {count} not compared: the host hid or took time"),
        };
        format!(
            "{:<8} {:>12}  {:>7}  {:<36}  {:>14}  {:>6}  {} ({}){hidden}",
            self.phase,
            self.victim_late,
            self.rtscope_late,
            self.named,
            percent(self.share),
            percent(self.own_share),
            self.traces,
            self.events
        )
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        json!({"phase": self.phase, "ok": self.ok(), "victim_late": self.victim_late,
            "victim_near": self.victim_near, "rtscope_late": self.rtscope_late, "explained": self.explained,
            "named": self.named, "strangers": self.strangers, "stolen_ms": self.stolen.as_millis() as u64, "share": self.share, "own_share": self.own_share,
            "worst_difference": self.worst_difference, "hidden": self.hidden, "traces": self.traces, "events": self.events,
            "problems": self.problems})
    }

    fn require(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(format!("{}: {}", self.phase, problem()));
        }
    }
}

/// Compares everything that can be compared in a phase.
pub fn judge(phase: &Phase, observed: &PhaseRecord) -> Result<Verdict> {
    let summary = observed.victim.summary().context("the control loop")?;
    let count =
        |key| summary.get(key).and_then(Value::as_u64).with_context(|| format!("no '{key}' in {summary}"));
    let mut verdict = Verdict {
        phase: phase.name,
        victim_late: count("late")?,
        victim_near: count("near")?,
        rtscope_late: observed.seen.report.counters.late,
        explained: observed.seen.explanations.len(),
        named: "nobody".into(),
        traces: observed.traces.len(),
        stolen: observed.stolen,
        events: observed.traces.iter().map(|t| t.events).sum(),
        ..Verdict::default()
    };
    compare_counts(&mut verdict, count("loops")?, observed)?;
    for trace in observed.traces.iter().filter(|t| !t.is_clean()) {
        verdict.require(false, || trace.to_string());
    }
    match (&phase.disturber, &observed.disturber) {
        (Some(disturber), Some(finished)) => {
            let name = finished.ready.get("name").and_then(Value::as_str).unwrap_or_default();
            compare_blame(&mut verdict, observed, finished, disturber.culprit, name);
        }
        _ => nobody_is_blamed(&mut verdict, observed),
    }
    Ok(verdict)
}

/// rtscope also counts the way into sleep, so it may call a response late that just met its deadline by the loop's clock. Iterations
/// of the loop that it did not see at all (see [`is_hidden`]) may have been late, too; more than one in a hundred is a failure.
fn compare_counts(verdict: &mut Verdict, loops: u64, observed: &PhaseRecord) -> Result<()> {
    let comparison = VictimNotes::of(&observed.victim)?.compare(observed.seen.late.iter().copied())?;
    let seen = observed.seen.report.counters.seen;
    let (listed, late) = (observed.seen.late.len() as u64, verdict.rtscope_late);
    verdict
        .require(listed == late, || format!("rtscope counted {late} late responses and reported {listed}"));
    let hidden = loops.saturating_sub(seen);
    verdict.require(hidden * 100 <= loops, || format!("rtscope saw {seen} of {loops} iterations"));
    let (missed, after) = (comparison.missed.len() as u64, comparison.after.len() as u64);
    verdict.require(missed <= hidden, || {
        format!("rtscope missed {missed} late iterations, and did not see {hidden}: {comparison:?}")
    });
    // A hypervisor may take the CPU between the loop's last stamp and its switch: late by rtscope, and in time by the loop's clock.
    verdict.require(after <= loops / 200, || {
        format!("{after} of {loops} iterations are late by rtscope and in time by the loop's clock: {comparison:?}")
    });
    Ok(())
}

/// None of the demo's programs ran, so none may be named. Other programs of this machine may have disturbed: a machine is
/// seldom quiet. They are shown, and are not a failure.
fn nobody_is_blamed(verdict: &mut Verdict, observed: &PhaseRecord) {
    for explanation in &observed.seen.explanations {
        let culprit = explanation.culprit.as_ref().filter(|c| c.kind.is_disturbance());
        let Some(actor) = culprit.and_then(|c| c.actor.as_ref()) else { continue };
        verdict.named = format!("not ours: {}", named(explanation));
        verdict.strangers.push(named(explanation));
        verdict.require(!is_ours(actor), || {
            format!("nothing disturbed, but rtscope names {}", named(explanation))
        });
    }
}

/// On some hosts tracepoints do not fire for some threads. rtscope finds the gap, reports it, calls that time unknown, which is
/// right, and blames nothing; the demo counts such responses and compares the others.
fn is_hidden(explanation: &Explanation) -> bool {
    let unknown = explanation.culprit.as_ref().is_some_and(|culprit| culprit.kind == CauseKind::Unknown);
    unknown && explanation.losses.iter().any(|loss| loss.cause == LossCause::Gap)
}

/// An interrupt inside the disturber's burst took more than the disturber itself: a hypervisor had the CPU in the middle of a
/// handler. By the stamps that is the disturber's time.
fn is_interrupted(explanation: &Explanation) -> bool {
    let actor = explanation.culprit.as_ref().and_then(|culprit| culprit.actor.as_ref());
    matches!(actor, Some(Actor::Irq { .. } | Actor::Vector { .. }))
}

fn compare_blame(
    verdict: &mut Verdict,
    observed: &PhaseRecord,
    disturber: &WorkloadOutput,
    culprit: Culprit,
    name: &str,
) {
    let tid = disturber.ready.get("tid").and_then(Value::as_u64);
    let bursts: Vec<Burst> = disturber.lines.iter().filter_map(Burst::from_json).collect();
    let is_culprit = |actor: &Actor| match (culprit, actor) {
        (Culprit::Thread, Actor::Thread(thread)) => Some(u64::from(thread.tid.0)) == tid,
        (Culprit::Softirq(number), Actor::Softirq { vec }) => *vec == number,
        _ => false,
    };
    let mut compared = Vec::new();
    for explanation in &observed.seen.explanations {
        let Some((from, to)) = disturbed_part(&observed.victim, explanation, culprit) else { continue };
        let own_ns: u64 = bursts.iter().map(|b| b.overlap_ns(from, to)).sum();
        let own = own_ns as f64 / explanation.response_ns as f64;
        // A flood's stamps also hold the sender's own way to the softirq.
        let is_sender = |actor: &Actor| {
            culprit != Culprit::Thread
                && matches!(actor, Actor::Thread(thread) if Some(u64::from(thread.tid.0)) == tid)
        };
        let is_interrupt = |kind: CauseKind| {
            use CauseKind::{IrqInterference, NmiInterference, SoftirqInterference, Unknown};
            matches!(kind, IrqInterference | NmiInterference | SoftirqInterference | Unknown)
        };
        let named_share = share(explanation, |cause| cause.actor.as_ref().is_some_and(is_culprit));
        let with_interrupts = share(explanation, |cause| {
            cause.actor.as_ref().is_some_and(|actor| is_culprit(actor) || is_sender(actor))
                || is_interrupt(cause.kind)
        });
        let shares = Shares { rtscope: named_share, with_interrupts, own };
        if own > 0.5 && (is_hidden(explanation) || is_interrupted(explanation)) {
            verdict.hidden += 1;
            continue;
        }
        if own > 0.5 {
            let actor = explanation.culprit.as_ref().and_then(|c| c.actor.as_ref());
            verdict.named = named(explanation);
            verdict.require(actor.is_some_and(is_culprit), || {
                format!("{name} disturbed, but rtscope names {}", named(explanation))
            });
            compared.push(shares);
        }
        verdict.require(shares.difference() <= TOLERANCE, || {
            format!(
                "share {:.1} % by rtscope ({:.1} % with interrupts), {:.1} % by its own stamps",
                shares.rtscope * 100.0,
                shares.with_interrupts * 100.0,
                own * 100.0
            )
        });
    }
    let (hidden, all) = (verdict.hidden, verdict.explained);
    verdict.require(hidden * 5 <= all, || {
        format!("{hidden} of {all} explanations are unknown or an interrupt's")
    });
    verdict.require(!compared.is_empty(), || "no explained response could be compared".into());
    let mean = |f: fn(&Shares) -> f64| compared.iter().map(f).sum::<f64>() / compared.len() as f64;
    if !compared.is_empty() {
        (verdict.share, verdict.own_share) = (Some(mean(|s| s.rtscope)), Some(mean(|s| s.own)));
        verdict.worst_difference = compared.iter().map(|s| s.difference()).max_by(f64::total_cmp);
    }
}

/// From when to when a burst of the disturber delayed this response, by the control loop's own stamps.
///
/// A softirq ends before the loop runs, but the send that caused it only returns when the loop sleeps again: its burst
/// counts until the loop woke up. A thread of higher or equal priority counts all through.
fn disturbed_part(
    victim: &WorkloadOutput,
    explanation: &Explanation,
    culprit: Culprit,
) -> Option<(u64, u64)> {
    let stamp = |late: &Value, key| late.get(key).and_then(Value::as_u64);
    let late =
        victim.all("late").find(|late| stamp(late, "asked_ns") == Some(explanation.origin.time_ns.0))?;
    let end = if culprit == Culprit::Thread { "done_ns" } else { "woke_ns" };
    Some((explanation.origin.time_ns.0, stamp(late, end)?))
}

/// The part of the response in which these causes held up the chain.
fn share(explanation: &Explanation, is_counted: impl Fn(&Cause) -> bool) -> f64 {
    let causes = explanation.steps.iter().flat_map(|step| &step.causes);
    let counted = causes.filter(|cause| {
        (cause.kind.is_disturbance() || cause.kind == CauseKind::Unknown) && is_counted(cause)
    });
    counted.map(|cause| cause.time_ns).sum::<u64>() as f64 / explanation.response_ns.max(1) as f64
}

/// Whether this could be one of the demo's disturbers.
fn is_ours(actor: &Actor) -> bool {
    PHASES.iter().filter_map(|phase| Some((phase.name, phase.disturber.as_ref()?))).any(
        |(name, disturber)| match (disturber.culprit, actor) {
            (Culprit::Thread, Actor::Thread(thread)) => {
                thread.comm.is_some_and(|comm| comm.to_string() == name)
            }
            (Culprit::Softirq(number), Actor::Softirq { vec }) => *vec == number,
            _ => false,
        },
    )
}

/// The culprit of an explanation, as reports name it.
fn named(explanation: &Explanation) -> String {
    explanation.culprit.as_ref().map_or("nobody".into(), |c| cause_label(c.kind, c.actor.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Observations;
    use rtscope_analyze::explain::CauseKind;
    use rtscope_analyze::summary::Report;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn finished(ready: Value, lines: Vec<Value>) -> WorkloadOutput {
        WorkloadOutput { status: ExitStatus::from_raw(0), ready, lines }
    }

    fn hog() -> Value {
        json!({"type": "thread", "tid": 9, "comm": "hog", "prio": 19, "policy": null})
    }

    /// A response from 1000 to 2000 in which `actor` ran for `time_ns` instead.
    fn explanation(actor: &Value, time_ns: u64) -> Explanation {
        let kind = if actor["type"] == "softirq" { "softirq_interference" } else { "thread_interference" };
        let share = time_ns;
        let cause = json!({"kind": kind, "actor": actor, "time_ns": time_ns, "share_permille": share});
        let culprit =
            json!({"kind": kind, "actor": actor, "time_ns": time_ns, "share_permille": share, "step": 0});
        let wait = json!({"kind": "wakeup", "actor": null, "cpu": 1, "from_ns": 1000, "duration_ns": 1000,
            "share_permille": 1000, "causes": [cause], "notes": []});
        let origin = json!({"kind": "timer", "actor": {"type": "timer"}, "cpu": 1, "time_ns": 1000, "merged": 0,
            "others": []});
        let thread = json!({"tid": 5, "comm": "control-loop", "prio": 49, "policy": null});
        serde_json::from_value(json!({"sequence": 1, "snapshot": 1, "thread": thread, "pid": 4, "cpu": 1,
            "end": "blocked", "end_ns": 2000, "response_ns": 1000, "threshold_ns": 500, "origin": origin,
            "steps": [wait], "culprit": culprit, "woken_by": null, "preemptions": [], "unknown_ns": 0,
            "unknown_permille": 0, "losses": []}))
        .expect("an explanation as rtscope prints it")
    }

    /// The hog used the CPU from 900 to 1900, and this is the explanation of rtscope.
    fn observed(explanation: Explanation) -> PhaseRecord {
        let late = json!({"late": {"tid": 5, "asked_ns": 1000, "woke_ns": 1900, "done_ns": 2000}});
        let summary = json!({"summary": {"loops": 1000, "late": 1, "near": 0}});
        let burst = Burst { start_ns: 900, end_ns: 1900, cpu_ns: 1000 }.to_json();
        let mut report = Report::default();
        report.counters.late = 1;
        report.counters.seen = 1000;
        PhaseRecord {
            victim: finished(Value::Null, vec![late, summary]),
            disturber: Some(finished(json!({"tid": 9, "name": "hog"}), vec![burst])),
            seen: Observations { report, explanations: vec![explanation], late: vec![(5, 1000)] },
            traces: vec![],
            stolen: Duration::ZERO,
        }
    }

    #[test]
    fn the_disturber_with_its_share_is_right() {
        let verdict = judge(&PHASES[0], &observed(explanation(&hog(), 890))).expect("complete");
        assert!(verdict.ok(), "{:?}", verdict.problems);
        assert_eq!((verdict.share, verdict.own_share), (Some(0.89), Some(0.9)));
    }

    #[test]
    fn a_wrong_share_name_or_count_is_wrong() {
        let mut other = hog();
        other["tid"] = json!(8);
        let softirq = json!({"type": "softirq", "vec": 3});
        for wrong in [explanation(&hog(), 800), explanation(&other, 900), explanation(&softirq, 900)] {
            let verdict = judge(&PHASES[0], &observed(wrong)).expect("complete");
            assert!(!verdict.ok(), "{verdict:?}");
        }
        let mut miscounted = observed(explanation(&hog(), 900));
        miscounted.seen.report.counters.late = 20;
        assert_eq!(judge(&PHASES[0], &miscounted).expect("complete").problems.len(), 1);
        let mut beside = observed(explanation(&hog(), 900));
        beside.seen.late[0].1 = 1001;
        assert_eq!(
            judge(&PHASES[0], &beside).expect("complete").problems.len(),
            1,
            "another iteration is late"
        );
    }

    #[test]
    fn where_nothing_disturbed_nobody_may_be_blamed() {
        let quiet = |explanation| PhaseRecord { disturber: None, ..observed(explanation) };
        assert!(!judge(&PHASES[3], &quiet(explanation(&hog(), 900))).expect("complete").ok());
        let mut unknown = explanation(&hog(), 10);
        unknown.culprit.iter_mut().for_each(|c| c.kind = CauseKind::Unknown);
        assert!(judge(&PHASES[3], &quiet(unknown)).expect("complete").ok());
        let stranger = json!({"type": "thread", "tid": 8, "comm": "rustc", "prio": 120, "policy": null});
        let verdict = judge(&PHASES[3], &quiet(explanation(&stranger, 900))).expect("complete");
        assert!(verdict.ok() && verdict.strangers.len() == 1, "{verdict:?}");
    }
}

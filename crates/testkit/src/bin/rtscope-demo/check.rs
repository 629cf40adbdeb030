// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares what rtscope said with what the programs noted.

use anyhow::{Context, Result};
use rtscope_testkit::notes::Burst;
use rtscope_testkit::process::Finished;
use serde_json::{Value, json};

use crate::phase::{Culprit, Observed, Phase};
use crate::watch::{Explanation, Named};

/// How far rtscope's share may be from the disturber's own.
const TOLERANCE: f64 = 0.05;
/// Somebody with a smaller share of a late response is not blamed for it.
const BLAME: f64 = 0.05;

/// The result of a phase.
#[derive(Debug, Default)]
pub struct Verdict {
    pub phase: &'static str,
    pub problems: Vec<String>,
    victim_late: u64,
    victim_margin: u64,
    rtscope_late: u64,
    explained: usize,
    named: String,
    /// Mean share of the culprit in the compared responses, by rtscope and by its own stamps.
    share: Option<f64>,
    own_share: Option<f64>,
    worst_difference: Option<f64>,
    traces: usize,
    events: usize,
}

/// One late response as both sides saw it.
#[derive(Debug, Clone, Copy)]
struct Shares {
    rtscope: f64,
    own: f64,
}

impl Shares {
    /// Relative to the disturber's own share; a share below one half is compared in points.
    fn difference(self) -> f64 {
        (self.rtscope - self.own).abs() / if self.own < 0.5 { 1.0 } else { self.own }
    }
}

impl Verdict {
    pub const TABLE_HEAD: &'static str = "phase     late: itself  rtscope   named                  share: rtscope  its own  \
        saved traces (events)";

    /// Whether everything agreed.
    pub fn ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// One line of the table at the end.
    pub fn table_row(&self) -> String {
        let percent =
            |share: Option<f64>| share.map_or_else(|| "-".into(), |s| format!("{:.1} %", s * 100.0));
        format!(
            "{:<9} {:>12}  {:>7}   {:<22} {:>14}  {:>7}  {} ({})",
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

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        json!({"phase": self.phase, "ok": self.ok(), "victim_late": self.victim_late,
            "victim_margin": self.victim_margin, "rtscope_late": self.rtscope_late, "explained": self.explained,
            "named": self.named, "share": self.share, "own_share": self.own_share,
            "worst_difference": self.worst_difference, "traces": self.traces, "events": self.events,
            "problems": self.problems})
    }

    fn demand(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(format!("{}: {}", self.phase, problem()));
        }
    }
}

/// Compares everything that can be compared in a phase.
pub fn judge(phase: &Phase, observed: &Observed) -> Result<Verdict> {
    let summary = observed.victim.summary().context("the control loop")?;
    let count =
        |key| summary.get(key).and_then(Value::as_u64).with_context(|| format!("no '{key}' in {summary}"));
    let mut verdict = Verdict {
        phase: phase.name,
        victim_late: count("late")?,
        victim_margin: count("late_margin")?,
        rtscope_late: observed.seen.late,
        explained: observed.seen.explanations.len(),
        named: "nobody".into(),
        traces: observed.traces.len(),
        events: observed.traces.iter().map(|t| t.events).sum(),
        ..Verdict::default()
    };
    compare_counts(&mut verdict);
    for trace in observed.traces.iter().filter(|t| !t.is_clean()) {
        verdict.demand(false, || trace.to_string());
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

/// rtscope also counts the way into sleep, so it may call a response late that just met its deadline by the loop's clock.
fn compare_counts(verdict: &mut Verdict) {
    let (own, margin, seen) = (verdict.victim_late, verdict.victim_margin, verdict.rtscope_late);
    verdict.demand((own..=own + margin).contains(&seen), || {
        format!("the control loop was late {own} times (and nearly, {margin} times), rtscope counted {seen}")
    });
}

fn nobody_is_blamed(verdict: &mut Verdict, observed: &Observed) {
    for explanation in &observed.seen.explanations {
        let blamed =
            explanation.culprits.iter().find(|c| is_task_or_softirq(c) && share(c, explanation) > BLAME);
        if let Some(blamed) = blamed {
            verdict.named = label(blamed);
            verdict.demand(false, || format!("nothing disturbed, but rtscope blames {}", label(blamed)));
        }
    }
}

fn compare_blame(
    verdict: &mut Verdict,
    observed: &Observed,
    disturber: &Finished,
    culprit: Culprit,
    name: &str,
) {
    let tid = disturber.ready.get("tid").and_then(Value::as_i64);
    let bursts: Vec<Burst> = disturber.lines.iter().filter_map(Burst::from_json).collect();
    let is_culprit = |c: &Named| match culprit {
        Culprit::Thread => c.kind == "thread" && c.name == name && c.tid == tid,
        Culprit::Softirq(vector) => c.kind == "softirq" && c.name == vector,
    };
    let mut compared = Vec::new();
    for explanation in &observed.seen.explanations {
        let Some((from, to)) = disturbed_part(&observed.victim, explanation, culprit) else { continue };
        let own_ns: u64 = bursts.iter().map(|b| b.overlap_ns(from, to)).sum();
        let own = own_ns as f64 / explanation.response_ns as f64;
        let found = explanation.culprits.iter().find(|c| is_culprit(c));
        let shares = Shares { rtscope: found.map_or(0.0, |c| share(c, explanation)), own };
        let first = explanation.culprits.first();
        if own > 0.5 {
            let first_label = first.map_or("nobody".into(), label);
            verdict.demand(first.is_some_and(is_culprit), || {
                format!("{name} disturbed, but rtscope names {first_label}")
            });
            verdict.named = first_label;
            compared.push(shares);
        }
        verdict.demand(shares.difference() <= TOLERANCE, || {
            format!(
                "share {:.1} % by rtscope, {:.1} % by its own stamps",
                shares.rtscope * 100.0,
                own * 100.0
            )
        });
    }
    verdict.demand(!compared.is_empty(), || "no explained response could be compared".into());
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
fn disturbed_part(victim: &Finished, explanation: &Explanation, culprit: Culprit) -> Option<(u64, u64)> {
    let stamp = |late: &Value, key| late.get(key).and_then(Value::as_u64);
    let late = victim.all("late").find(|late| stamp(late, "asked_ns") == Some(explanation.origin_ns))?;
    let end = if culprit == Culprit::Thread { "done_ns" } else { "woke_ns" };
    Some((explanation.origin_ns, stamp(late, end)?))
}

fn share(culprit: &Named, explanation: &Explanation) -> f64 {
    culprit.ns as f64 / explanation.response_ns.max(1) as f64
}

fn is_task_or_softirq(culprit: &Named) -> bool {
    culprit.kind == "thread" || culprit.kind == "softirq"
}

fn label(culprit: &Named) -> String {
    match culprit.tid {
        Some(tid) if culprit.kind == "thread" => format!("{} {} ({tid})", culprit.kind, culprit.name),
        _ => format!("{} {}", culprit.kind, culprit.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::PHASES;
    use crate::watch::Observations;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn finished(ready: Value, lines: Vec<Value>) -> Finished {
        Finished { status: ExitStatus::from_raw(0), ready, lines }
    }

    fn hog(ns: u64) -> Named {
        Named { kind: "thread".into(), name: "hog".into(), tid: Some(9), ns }
    }

    /// One response from 1000 to 2000; the hog kept the CPU from 900 to 1900.
    fn observed(culprits: Vec<Named>) -> Observed {
        let late = json!({"late": {"asked_ns": 1000, "woke_ns": 1900, "done_ns": 2000}});
        let summary = json!({"summary": {"late": 1, "late_margin": 0}});
        let burst = Burst { start_ns: 900, end_ns: 1900, cpu_ns: 1000 }.to_json();
        Observed {
            victim: finished(Value::Null, vec![late, summary]),
            disturber: Some(finished(json!({"tid": 9, "name": "hog"}), vec![burst])),
            seen: Observations {
                late: 1,
                explanations: vec![Explanation { origin_ns: 1000, response_ns: 1000, culprits }],
            },
            traces: vec![],
        }
    }

    #[test]
    fn the_disturber_with_its_share_is_right() {
        let verdict = judge(&PHASES[0], &observed(vec![hog(890)])).expect("complete");
        assert!(verdict.ok(), "{:?}", verdict.problems);
        assert_eq!((verdict.share, verdict.own_share), (Some(0.89), Some(0.9)));
    }

    #[test]
    fn a_wrong_share_name_or_count_is_wrong() {
        let wrong_tid = Named { tid: Some(8), ..hog(900) };
        let softirq = Named { kind: "softirq".into(), name: "NET_RX".into(), tid: None, ns: 950 };
        for culprits in [vec![hog(800)], vec![], vec![wrong_tid], vec![softirq, hog(900)]] {
            let verdict = judge(&PHASES[0], &observed(culprits.clone())).expect("complete");
            assert!(!verdict.ok(), "{culprits:?}");
        }
        let mut miscounted = observed(vec![hog(900)]);
        miscounted.seen.late = 2;
        assert_eq!(judge(&PHASES[0], &miscounted).expect("complete").problems.len(), 1);
    }

    #[test]
    fn where_nothing_disturbed_nobody_may_be_blamed() {
        let quiet = |culprits| Observed { disturber: None, ..observed(culprits) };
        assert!(!judge(&PHASES[3], &quiet(vec![hog(900)])).expect("complete").ok());
        assert!(judge(&PHASES[3], &quiet(vec![hog(10)])).expect("complete").ok());
        assert!(judge(&PHASES[3], &quiet(vec![])).expect("complete").ok());
    }
}

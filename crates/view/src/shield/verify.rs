// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What really ran on shielded CPUs, and what is to be said of it, for `rtscope shield verify`.

use crate::units::counted;
use crate::{clean, duration_text};
use rtscope_analyze::visits::{Visit, Visitor, Visits};
use rtscope_session::shield::checks::{Verdict, name};
use rtscope_session::shield::verify::{CpuReport, VerifyReport};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The JSON object (docs/json.md).
pub const SCHEMA: &str = "rtscope.shield.verify/1";
/// This many of one kind are named.
const NAMED: usize = 4;
/// This many lines of a table.
const SHOWN: usize = 15;

/// One JSON object.
#[must_use]
pub fn json(report: &VerifyReport) -> Value {
    json!({
        "schema": SCHEMA,
        "shield": report.shield,
        "senders_known": report.senders_known,
        "cpus": report.cpus.iter().map(cpu_json).collect::<Vec<Value>>(),
    })
}

/// For people: a text for each CPU.
#[must_use]
pub fn texts(report: &VerifyReport) -> Vec<String> {
    report.cpus.iter().map(|cpu| clean(&cpu_text(cpu, report.senders_known))).collect()
}

fn cpu_json(cpu: &CpuReport) -> Value {
    let CpuReport { visits, checks, lost } = cpu;
    let ran: Vec<Value> =
        visits.iter().map(|(who, visit)| json!({ "who": who, "name": name(who), "visit": visit })).collect();
    let senders = visits.senders();
    let senders: Vec<Value> =
        senders.into_iter().map(|(sender, count)| json!({ "sender": sender, "count": count })).collect();
    json!({
        "cpu": visits.cpu(),
        "watched_ns": visits.watched_ns,
        "missed_ns": visits.missed_ns,
        "lost": lost,
        "promises": checks,
        "ran": ran,
        "senders": senders,
    })
}

/// A CPU for people.
fn cpu_text(cpu: &CpuReport, senders_known: bool) -> String {
    let CpuReport { visits, checks, lost } = cpu;
    let lost = *lost;
    let mut text = format!("CPU {}, watched for {}", visits.cpu(), duration_text(visits.watched_ns));
    if visits.missed_ns > 0 {
        let _ = write!(
            text,
            ", of which {} were overwritten before they were read",
            duration_text(visits.missed_ns)
        );
    }
    if lost > 0 {
        let _ = write!(text, ", at least {} lost", counted(lost, "event", "events"));
    }
    text.push('\n');
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Pass => "PASS   ",
            Verdict::Fail => "FAIL   ",
            Verdict::Unknown => "UNKNOWN",
            Verdict::NotChecked => "-      ",
        };
        let what = match check.verdict {
            Verdict::NotChecked => check.what.trim_start_matches("no "),
            _ => check.what,
        };
        let _ = write!(text, "  {verdict}  {what}");
        if !check.by.is_empty() {
            let more = if check.by.len() > NAMED { ", …" } else { "" };
            let by: Vec<&str> = check.by.iter().take(NAMED).map(String::as_str).collect();
            let _ = write!(text, ": {}: {}{more}", counted(check.count, "time", "times"), by.join(", "));
        }
        text.push('\n');
    }
    text.push_str(&what_ran(visits));
    text.push_str(&who_sent(visits, senders_known));
    text
}

/// Threads of one name in one line.
fn group_name(visitor: &Visitor) -> String {
    match visitor {
        Visitor::Thread { name: Some(name), kernel, .. } => {
            format!("{} {name}", if *kernel == Some(true) { "kernel thread" } else { "thread" })
        }
        _ => name(visitor),
    }
}

fn what_ran(visits: &Visits) -> String {
    let mut groups: BTreeMap<String, Visit> = BTreeMap::new();
    for (who, visit) in visits.iter() {
        let group = groups.entry(group_name(who)).or_default();
        group.count += visit.count;
        group.time_ns += visit.time_ns;
        group.most_ns = group.most_ns.max(visit.most_ns);
    }
    let mut groups: Vec<(String, Visit)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, visit)| std::cmp::Reverse(visit.time_ns));
    let mut text = format!(
        "  {:<36} {:>9} {:>10} {:>11} {:>11}\n",
        "what ran", "times", "per second", "total", "longest"
    );
    let seconds = (visits.watched_ns as f64 / 1e9).max(1e-9);
    for (name, visit) in groups.iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "  {name:<36} {:>9} {:>10.1} {:>11} {:>11}",
            visit.count,
            visit.count as f64 / seconds,
            duration_text(visit.time_ns),
            duration_text(visit.most_ns)
        );
    }
    text.push_str(&more(groups.len()));
    text
}

fn who_sent(visits: &Visits, known: bool) -> String {
    if !known {
        return "  the senders of interrupts are unknown: this kernel has no tracepoint for them (Linux 6.4 has)\n".into();
    }
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    for (sender, count) in visits.senders() {
        let what = if sender.call { "function call" } else { "reschedule" };
        let who = match (&sender.name, sender.thread) {
            (Some(name), _) => name.clone(),
            (None, Some(tid)) => format!("thread {tid}"),
            (None, None) => "unknown".to_owned(),
        };
        *groups.entry(format!("{what:<14} CPU {:<4} {who}", sender.cpu)).or_default() += count;
    }
    let mut groups: Vec<(String, u64)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut text = String::new();
    if !groups.is_empty() {
        text.push_str("  interrupts from other CPUs, by the task that ran there\n");
    }
    for (name, count) in groups.iter().take(SHOWN) {
        let _ = writeln!(text, "  {count:>9} times  {name}");
    }
    text.push_str(&more(groups.len()));
    text
}

fn more(all: usize) -> String {
    match all.saturating_sub(SHOWN) {
        0 => String::new(),
        left => format!("  … and {left} more (--json has all)\n"),
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a watch: how many, how long, and what the late ones have in common.

use crate::explanation::loss_line;
use crate::label::clean;
use crate::late::{tracker_noun, tracker_nouns};
use crate::style::Style;
use crate::units::{count_text, counted, duration_text, share_text};
use rtscope_analyze::explain::CauseKind;
use rtscope_analyze::histogram::{Percentile, Row, Statistics};
use rtscope_analyze::own::OwnCost;
use rtscope_analyze::summary::{Group, HiddenThread, NotObservable, Report, SpanSummary, SpanUserLosses};
use rtscope_event::{OriginKind, StepKind, Tid, Tracker};

const BAR: usize = 40;
/// Groups shown before the rest is counted.
const GROUPS: usize = 10;

/// The whole summary, several lines, each ended.
#[must_use]
pub fn summary_text(report: &Report, style: Style) -> String {
    let mut text = head(report, style);
    if report.counters.unlinked > 0 {
        text.push_str(&style.wrap(&unmeasured(report), 0, 4));
    }
    if let Some(statistics) = &report.statistics {
        text.push_str(&statistics_text(report, statistics, style));
    }
    text.push_str(&groups_text(report, style));
    if report.between.is_none() && mostly_waits(report) {
        text.push_str(&style.wrap(OTHER_CYCLE, 2, 2));
    }
    match &report.between {
        // The kernel's side counts by thread as other trackers do.
        Some(between) if report.tracker == Tracker::Pair => {
            text.push_str(&threads_text(report, style));
            text.push_str(&not_paired_text(between, style));
        }
        Some(between) => text.push_str(&between_text(between, style)),
        None => text.push_str(&threads_text(report, style)),
    }
    text.push_str(&not_observable_text(report, style));
    if report.counters.late > 0 {
        text.push_str(&style.wrap(&own_text(&report.own), 0, 4));
    }
    if report.losses.iter().all(|loss| loss.count == Some(0)) {
        text.push_str("lost: nothing\n");
    }
    for loss in report.losses.iter().filter(|loss| loss.count != Some(0)) {
        text.push_str(&style.wrap(&loss_line(loss), 0, 4));
    }
    text
}

/// What was counted: one of it.
fn noun(report: &Report) -> &'static str {
    if report.between.is_some() { "interval" } else { tracker_noun(report.tracker) }
}

/// Several.
fn nouns(report: &Report) -> &'static str {
    if report.between.is_some() { "intervals" } else { tracker_nouns(report.tracker) }
}

fn head(report: &Report, style: Style) -> String {
    let counters = &report.counters;
    let whose = report.task.as_ref().map(|task| format!(" of '{}'", clean(task))).unwrap_or_default();
    let mut parts = vec![format!(
        "{}{whose} in {}, {} late (limit {})",
        counted(counters.seen, noun(report), nouns(report)),
        duration_text(report.elapsed_ns),
        count_text(counters.late),
        duration_text(report.threshold_ns),
    )];
    let unfollowed = unfollowed(report);
    for (count, words) in [
        (report.pending, "not over when the watch ended"),
        (
            counters.filtered,
            "left out, since they began otherwise than asked (--begin, --irq, --timer, --wait)",
        ),
        (counters.merged, "further interrupts and timers answered by the same response"),
        (counters.folded, "responses with more steps than can be shown"),
        (counters.hidden, "times that the target ran unseen, since the kernel did not report it"),
        (report.unended, "block requests of which the kernel reported no end"),
        (
            counters.abandoned,
            "cycles given up, since the wait that they began with did not come back (--wait says which waits begin cycles)",
        ),
        (
            if style.verbose { 0 } else { unfollowed.iter().map(|(count, _)| count).sum() },
            "times that a response may be missing or may begin too late (--verbose: why)",
        ),
        (report.snapshots, "snapshots"),
        (report.snapshots_failed, "snapshots that could not be saved"),
        (report.suppressed, "late without a snapshot of their own (rate limit or no free bank)"),
    ] {
        if count > 0 {
            parts.push(format!("{words}: {}", count_text(count)));
        }
    }
    if style.verbose {
        let busy = (
            counters.busy,
            "times that the target was woken before it slept, which ended the response before",
        );
        let each = unfollowed.into_iter().chain([busy]);
        parts.extend(each.map(|(count, words)| format!("{words}: {}", count_text(count))));
    }
    if let Some(longest_ns) = report.pending_max_ns {
        parts.push(format!("the longest of these by then {}", duration_text(longest_ns)));
    }
    let text = style.wrap(&parts.join("; "), 0, 4);
    let late = format!("{} late", count_text(counters.late));
    if counters.late > 0 { text.replacen(&late, &style.alarm(&late), 1) } else { text }
}

/// What keeps a response from being followed to its beginning, or at all.
fn unfollowed(report: &Report) -> [(u64, &'static str); 3] {
    [
        (
            report.counters.healed,
            "times that an interrupt's end was not seen, so that what it woke may have begun earlier",
        ),
        (
            report.untracked,
            "wakeups, switches and softirqs of tasks, and block requests, for which there was no memory, whose responses are missing",
        ),
        (
            report.counters.too_long,
            "wakeups at the end of more steps than are followed, whose responses are missing",
        ),
    ]
}

/// What was not watched is no all-clear.
fn unmeasured(report: &Report) -> String {
    let counters = &report.counters;
    let all = counters.seen + counters.filtered + counters.unlinked;
    let share = share_text(u32::try_from(counters.unlinked * 1000 / all).unwrap_or(1000));
    let waits = format!("{share} of the target's waits ({}) ", count_text(counters.unlinked));
    if report.begin.contains(&OriginKind::Task) {
        return format!("{waits}ended in a way that could not be followed, and were not measured");
    }
    format!("{waits}were ended by another task and were not measured; --begin any measures them")
}

fn statistics_text(report: &Report, statistics: &Statistics, style: Style) -> String {
    let mut text = format!(
        "  min {}, mean {}, max {}\n",
        duration_text(statistics.min_ns),
        duration_text(statistics.mean_ns),
        duration_text(statistics.max_ns)
    );
    let given: Vec<String> = statistics.percentiles.iter().filter_map(percentile_text).collect();
    if !given.is_empty() {
        text.push_str(&style.wrap(&given.join(", "), 2, 2));
    }
    if let Some(first) = statistics.percentiles.iter().find(|percentile| percentile.value_ns.is_none()) {
        let (name, needed) = (percent_text(first.percent_milli), count_text(first.needed));
        let line = format!("{name} needs {needed} {}, so that ten lie beyond it", nouns(report));
        text.push_str(&style.faint(style.wrap(&line, 2, 2).trim_end()));
        text.push('\n');
    }
    text.push_str(&histogram_text(report, &statistics.rows, style));
    text
}

fn percentile_text(percentile: &Percentile) -> Option<String> {
    Some(format!("{} {}", percent_text(percentile.percent_milli), duration_text(percentile.value_ns?)))
}

/// `99.9 %`
fn percent_text(milli: u32) -> String {
    let fraction = format!("{:03}", milli % 1000);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { format!("{} %", milli / 1000) } else { format!("{}.{fraction} %", milli / 1000) }
}

/// Bars grow with the logarithm of the count: a single late response among a million must be seen.
fn histogram_text(report: &Report, rows: &[Row], style: Style) -> String {
    let threshold_ns = report.threshold_ns;
    let largest = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let height = |count: u64| (count as f64 + 1.0).ln() / (largest as f64 + 1.0).ln();
    let mut text = style.wrap(&format!("{} by time (bars: logarithm of the count)", nouns(report)), 2, 2);
    for row in rows {
        let part = if row.count == 0 { 0.0 } else { height(row.count) };
        let to = if row.to_ns == u64::MAX { "more".to_owned() } else { duration_text(row.to_ns) };
        let drawn = style.bar(part, BAR);
        let drawn = if row.from_ns > threshold_ns { style.alarm(&drawn) } else { drawn };
        let limit = (row.from_ns..row.to_ns).contains(&threshold_ns);
        let line = format!(
            "  {:>9} .. {:>9} {:>11}  {drawn}{}",
            duration_text(row.from_ns),
            to,
            count_text(row.count),
            if limit { "  < limit" } else { "" },
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn groups_text(report: &Report, style: Style) -> String {
    let groups = &report.groups;
    if groups.is_empty() {
        return String::new();
    }
    let mut text =
        format!("{}\n", style.strong(&format!("late {} by what they have in common", nouns(report))));
    text.push_str("  count      worst       mean  mostly in         because of\n");
    for group in groups.iter().take(style.rows(GROUPS)) {
        let line = format!(
            "  {:>5}  {:>9}  {:>9}  {:<16}  {}",
            count_text(group.count),
            duration_text(group.worst_ns),
            duration_text(group.sum_ns / group.count.max(1)),
            group.step.map_or("unknown", step_name),
            because(group),
        );
        text.push_str(&style.line(&line));
        text.push('\n');
    }
    if let rest @ [_, ..] = groups.get(style.rows(GROUPS)..).unwrap_or_default() {
        let count = rest.iter().map(|group| group.count).sum();
        text.push_str(&format!(
            "  {:>5}  in {}\n",
            count_text(count),
            counted(rest.len(), "further group", "further groups")
        ));
    }
    text
}

/// What is neither late nor in time, and whose it was.
fn not_observable_text(report: &Report, style: Style) -> String {
    const THREADS: usize = 5;
    let NotObservable { responses, threads } = &report.not_observable;
    if *responses == 0 {
        return String::new();
    }
    let thread = |thread: &HiddenThread| {
        format!("{}/{} ({})", clean(&thread.comm.to_string()), thread.tid, count_text(thread.responses))
    };
    let mut listed: Vec<String> = threads.iter().take(style.rows(THREADS)).map(thread).collect();
    if threads.len() > style.rows(THREADS) {
        listed.push("others".to_owned());
    }
    let text = format!(
        "not observable: {}, which may have been late or not, of {}; this host hides switches of these threads. The times above \
         are without them",
        counted(*responses, noun(report), nouns(report)),
        listed.join(", ")
    );
    style.wrap(&text, 0, 4)
}

/// Of a thread that waits for two sources, a server between its clients and a database, both cycles can be meant: which one is followed depends
/// on whose waking was seen first.
const OTHER_CYCLE: &str = "most of them are such a wait in the middle of a cycle. If that is where the thread waits for work, cycles begin with \
                           it rather than end after it: --wait chooses by which kind of wait they begin, --irq by which interrupt; where both \
                           waits are alike, --from and --to take two events of the program";

/// Whether most late cycles are a wait that nobody held up.
fn mostly_waits(report: &Report) -> bool {
    let waits =
        |group: &&Group| (group.step, group.cause) == (Some(StepKind::Wait), Some(CauseKind::Waiting));
    let all: u64 = report.groups.iter().map(|group| group.count).sum();
    let waiting: u64 = report.groups.iter().filter(waits).map(|group| group.count).sum();
    // Other trackers follow waits, and are not asked about anything else.
    report.tracker == Tracker::Response && waiting > 0 && waiting * 2 >= all
}

/// A step in which most was lost.
fn step_name(step: StepKind) -> &'static str {
    match step {
        StepKind::More => "the 12th and later steps",
        StepKind::Interval => "not recorded",
        step => step.name(),
    }
}

/// Which threads were late, where there are several: a helper's own work must not hide the one that matters, nor its responses make late ones of
/// another thread look rare.
fn threads_text(report: &Report, style: Style) -> String {
    let (threads, others) = (&report.threads, report.other_threads);
    if threads.is_empty() || threads.len() as u64 + others.count < 2 {
        return String::new();
    }
    let mut text = format!("{}\n", style.strong(&format!("late {} by thread", nouns(report))));
    let head = "   late        of all      worst       mean  own work  thread (own work: it ran for longer than the limit by itself)";
    text.push_str(&style.line(head));
    text.push('\n');
    for thread in threads.iter().take(style.rows(GROUPS)) {
        let line = format!(
            "  {:>5}  {:>12}  {:>9}  {:>9}  {:>8}  {}/{} ({})",
            count_text(thread.count),
            thread.responses.map_or_else(|| "unknown".to_owned(), count_text),
            duration_text(thread.worst_ns),
            duration_text(thread.sum_ns / thread.count.max(1)),
            count_text(thread.own_work),
            thread.comm,
            thread.tid,
            thread.prio,
        );
        text.push_str(&style.line(&line));
        text.push('\n');
    }
    if let rest @ [_, ..] = threads.get(style.rows(GROUPS)..).unwrap_or_default() {
        let count = rest.iter().map(|thread| thread.count).sum();
        text.push_str(&format!(
            "  {:>5}  of {}{} that were late\n",
            count_text(count),
            // The last of very many is all others.
            if rest.last().is_some_and(|thread| thread.tid.0 == 0) { "at least " } else { "" },
            counted(rest.len(), "further thread", "further threads")
        ));
    }
    if others.count > 0 {
        let responses = counted(others.responses, noun(report), nouns(report));
        let threads = counted(others.count, "further thread", "further threads");
        text.push_str(&format!("      0  of {responses} of {threads}\n"));
    }
    text
}

/// The threads in which intervals ended, what could not be paired, and how late all of that was noticed.
fn between_text(between: &SpanSummary, style: Style) -> String {
    let title = format!("intervals from {} to {}, by thread", clean(&between.from), clean(&between.to));
    let mut text = format!("{}\n", style.strong(&title));
    if !between.threads.is_empty() {
        text.push_str("      count       late      worst       mean  thread\n");
    }
    for thread in between.threads.iter().take(GROUPS) {
        let who = match thread.tid {
            Tid(0) => "threads that were forgotten, since too many came".to_owned(),
            tid => format!("{}/{tid}", thread.comm),
        };
        text.push_str(&format!(
            "  {:>9}  {:>9}  {:>9}  {:>9}  {who}\n",
            count_text(thread.intervals),
            count_text(thread.late),
            duration_text(thread.worst_ns),
            duration_text(thread.sum_ns / thread.intervals.max(1)),
        ));
    }
    if let rest @ [_, ..] = between.threads.get(GROUPS..).unwrap_or_default() {
        let (count, late) =
            (rest.iter().map(|thread| thread.intervals).sum(), rest.iter().map(|thread| thread.late).sum());
        text.push_str(&format!(
            "  {:>9}  {:>9}  of {} further threads\n",
            count_text(count),
            count_text(late),
            rest.len()
        ));
    }
    text.push_str(&not_paired_text(between, style));
    between.users.iter().take(GROUPS).for_each(|user| text.push_str(&user_losses_text(user, style)));
    if let rest @ [_, ..] = between.users.get(GROUPS..).unwrap_or_default() {
        text.push_str(&format!("the same of {} further users (--json has them)\n", rest.len()));
    }
    if let Some(noticed) = &between.noticed {
        text.push_str(&format!(
            "noticed after: mean {}, at most {}\n",
            duration_text(noticed.mean_ns),
            duration_text(noticed.max_ns)
        ));
    }
    text
}

/// Events that have no counterpart.
fn not_paired_text(between: &SpanSummary, style: Style) -> String {
    let unmatched = &between.unmatched;
    let causes = [
        (unmatched.without_begin, "ends without a beginning"),
        (unmatched.without_end, "beginnings without an end"),
        (unmatched.begun_again, "beginnings after which another one came"),
        (unmatched.without_key, "events without the fields of the key"),
        (unmatched.lost, "beginnings given up because events were lost"),
        (unmatched.forgotten, "beginnings given up because too many were open"),
    ];
    let causes = causes.iter().filter(|(count, _)| *count > 0);
    let causes: Vec<String> = causes.map(|(count, what)| format!("{what}: {}", count_text(*count))).collect();
    let unpaired = if causes.is_empty() { "nothing".to_owned() } else { causes.join("; ") };
    style.wrap(&format!("not paired: {unpaired}"), 0, 4)
}

/// What was left out of one user's programs.
fn user_losses_text(user: &SpanUserLosses, style: Style) -> String {
    let causes = [
        (user.missed_looks, "looks that missed events, overwritten before or too many"),
        (user.damaged, "damaged events"),
        (user.too_many_descriptions, "events left out because programs describe too many different ones"),
        (user.too_many_events, "events left out because too many came between two looks"),
        (user.lost, "beginnings given up because of these"),
        (user.forgotten, "beginnings given up because too many were open"),
        (user.late_lost, "late ones counted but not reported because too many came at once"),
        (user.steps_lost, "steps that late ones do not name because too much was open"),
    ];
    let causes = causes.iter().filter(|(count, _)| *count > 0);
    let causes: Vec<String> = causes.map(|(count, what)| format!("{what}: {}", count_text(*count))).collect();
    style.wrap(&format!("not followed of programs of user {}: {}", user.user, causes.join("; ")), 0, 4)
}

/// What rtscope itself had to do with it.
fn own_text(own: &OwnCost) -> String {
    let mut parts = vec![match (own.culprit, own.delayed) {
        (0, 0) => "rtscope itself delayed none of the late responses".to_owned(),
        (culprit, delayed) => format!(
            "rtscope itself was the largest cause of late responses: {}; delayed late responses: {}, the longest by {}",
            count_text(culprit),
            count_text(delayed),
            duration_text(own.longest_ns)
        ),
    }];
    if own.unknown > 0 {
        parts.push(format!("not known for {}", count_text(own.unknown)));
    }
    if !own.is_apart {
        parts.push("it shared a CPU with the target, which may run everywhere".to_owned());
    }
    parts.join("; ")
}

fn because(group: &Group) -> String {
    match (group.cause, &group.actor) {
        (None, _) => "no recording retained".to_owned(),
        (Some(cause), Some(actor)) if cause.is_disturbance() => format!("{}: {}", cause.name(), clean(actor)),
        (Some(cause), _) => cause.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::CpuId;

    #[test]
    fn cycles_that_are_mostly_one_wait_are_said_to_be_perhaps_the_wrong_ones() {
        let group = |step, cause, count| Group {
            step: Some(step),
            cause: Some(cause),
            actor: None,
            count,
            sum_ns: 1,
            worst_ns: 1,
            worst_cpu: CpuId(0),
            worst_sequence: 0,
        };
        let says = |groups: Vec<Group>, tracker| {
            let report = Report { groups, tracker, ..Report::default() };
            summary_text(&report, Style::default()).contains("cycles begin with")
        };
        let wait = |count| group(StepKind::Wait, CauseKind::Waiting, count);
        assert!(says(vec![wait(3), group(StepKind::Run, CauseKind::OwnWork, 3)], Tracker::Response));
        assert!(!says(vec![wait(3), group(StepKind::Run, CauseKind::OwnWork, 4)], Tracker::Response));
        assert!(
            !says(vec![group(StepKind::Wait, CauseKind::Holder, 3)], Tracker::Response),
            "a lock is no source"
        );
        assert!(!says(vec![wait(3)], Tracker::Offcpu) && !says(Vec::new(), Tracker::Response));
    }

    #[test]
    fn what_was_left_out_of_a_users_programs_is_said_with_the_user_and_each_cause() {
        let losses = SpanUserLosses {
            user: 1000,
            missed_looks: 3,
            too_many_descriptions: 204,
            lost: 1,
            ..SpanUserLosses::default()
        };
        let between = SpanSummary { users: vec![losses], ..SpanSummary::default() };
        let report = Report { between: Some(between), ..Report::default() };
        let text = summary_text(&report, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ");
        let said = "not followed of programs of user 1000: looks that missed events, overwritten before or too many: 3; events left out because \
                    programs describe too many different ones: 204; beginnings given up because of these: 1";
        assert!(text.contains(said) && !text.contains("damaged"), "{text}");
    }
}

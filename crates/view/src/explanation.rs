// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An explanation for a terminal: the chain step by step, below each step what took its time, then the culprit.

use crate::block::{block_label, status_label};
use crate::call::{call_label, result_label};
use crate::label::{actor_label, clean, label_of, short_thread, thread_label};
use crate::late::{end_words, event_words, fields_text, on_cpu, tracker_noun};
use crate::lock::{callers_line, ended_label, function, lock_label};
use crate::style::Style;
use crate::units::{counted, duration_text, share_text};
use rtscope_analyze::explain::{
    Actor, Cause, CauseKind, Culprit, Delayed, DelayedHow, Earlier, Explanation, InnerWait, Note,
    OriginExplanation, Preemption, StepExplanation, Thread, Waker,
};
use rtscope_event::{CpuId, End, Loss, LossCause, StepKind, Tid, Tracker};

/// Columns for names of steps and causes: as many as the longest needs, within these.
const NAMES: std::ops::RangeInclusive<usize> = 30..=60;
/// Columns between the name and the bar: a blank, a time, two blanks, a share, two blanks.
const FIGURES: usize = 21;
/// Columns for a share as a bar: fewer where names are long and lines are not.
const BAR: std::ops::RangeInclusive<usize> = 4..=10;
/// Causes shown for a step before the rest is added up.
const CAUSES: usize = 5;
/// A late interrupt gets a note from this share of the response on (thousandths): a few microseconds for its delivery are
/// in every response, and a remark on the task that was current then would be taken for blame.
const NOTABLE: u64 = 10;
/// Preemptions listed one by one.
const PREEMPTIONS: usize = 4;

/// The whole explanation, several lines, each ended.
#[must_use]
pub fn explanation_text(explanation: &Explanation, style: Style) -> String {
    let mut text = head(explanation, style);
    let table = Table::new(explanation, style);
    for step in shown_steps(explanation, style) {
        text.push_str(&table.step_rows(step, style));
    }
    text.push_str(&culprit_lines(explanation, style));
    if explanation.origin.merged > 0 {
        text.push_str(&style.wrap(&merged_line(&explanation.origin), 2, 4));
    }
    if let Some(lock) = explanation.lock.as_ref().filter(|lock| !lock.callers.is_empty()) {
        text.push_str(&style.wrap(&format!("wanted by: {}", callers_line(lock)), 2, 4));
    }
    if let Some(section) = explanation.section.as_ref().filter(|section| !section.stack.is_empty()) {
        let places: Vec<&str> = section.stack.iter().map(|place| function(place)).collect();
        text.push_str(&style.wrap(&format!("ended in: {}", clean(&places.join(" < "))), 2, 4));
    }
    // Of a time off a CPU that an interrupt ended, that is said of the wait.
    let is_said = explanation.woken_by.is_none() && !explanation.waits.is_empty();
    let is_woken =
        explanation.events.is_none() && !explanation.tracker.is_of_cpus() && explanation.block.is_none();
    if is_woken && explanation.end != End::Pending && !is_said {
        text.push_str(&style.wrap(&woken_line(explanation.woken_by.as_ref()), 2, 4));
    }
    text.push_str(&earlier_lines(explanation, style));
    text.push_str(&delayed_lines(&explanation.delayed, style));
    text.push_str(&wait_lines(explanation, style));
    text.push_str(&preemption_lines(&explanation.preemptions, style));
    if explanation.unknown_ns > 0 {
        let (time, share) = (duration_text(explanation.unknown_ns), share_text(explanation.unknown_permille));
        text.push_str(&format!("  unknown: {time}, {share} of the response\n"));
    }
    for loss in explanation.losses.iter().filter(|loss| loss.count != Some(0)) {
        text.push_str(&style.wrap(&loss_line(loss), 2, 4));
    }
    text
}

/// From where to where, in words.
fn from_where(explanation: &Explanation) -> String {
    if let Some(events) = &explanation.events {
        let to = match explanation.end {
            End::Pending => format!("{}, which had not come when the watch ended", events.to.event),
            _ => format!("{}{}", events.to.event, fields_text(&events.to)),
        };
        return format!(
            "from {}{} to {to}",
            event_words(&events.from, &events.to),
            fields_text(&events.from)
        );
    }
    let origin = explanation.origin.actor.as_ref().map_or_else(|| "unknown origin".to_owned(), actor_label);
    match explanation.tracker {
        Tracker::Response => format!("from {origin} to {}", end_words(explanation.end)),
        Tracker::Wakeup => format!("woken by {origin}"),
        Tracker::Offcpu if explanation.end == End::Pending => "until the watch ended".to_owned(),
        Tracker::Offcpu => "until it had one again".to_owned(),
        Tracker::Syscall => match &explanation.call {
            Some(call) => format!("{} = {}", call_label(call), result_label(call)),
            None => String::new(),
        },
        Tracker::Block => match &explanation.block {
            Some(block) => format!("{}: {}", block_label(block), status_label(block)),
            None => String::new(),
        },
        Tracker::Preemptoff => format!("until {origin} had it"),
        Tracker::Irqoff => match explanation.section.as_ref().and_then(|section| section.resolution_ns) {
            Some(ns) => format!("at least; {} more at most", duration_text(ns)),
            None => String::new(),
        },
        // It has its events, above.
        Tracker::Pair => String::new(),
        Tracker::Irq | Tracker::Softirq if explanation.thread.tid == Tid(0) => "the CPU was idle".to_owned(),
        Tracker::Irq | Tracker::Softirq => format!("{} was interrupted", thread_label(&explanation.thread)),
        Tracker::Lock => match &explanation.lock {
            Some(lock) => format!("{}: {}", lock_label(lock), ended_label(lock)),
            None => String::new(),
        },
    }
}

fn head(explanation: &Explanation, style: Style) -> String {
    let what = match explanation.tracker {
        _ if explanation.events.is_some() => "interval",
        Tracker::Offcpu => "off its CPU for",
        Tracker::Preemptoff => "kept its CPU for",
        Tracker::Irqoff => "interrupts off for",
        other => tracker_noun(other),
    };
    // A handler is nobody's.
    let who = match &explanation.origin.actor {
        Some(handler) if matches!(explanation.tracker, Tracker::Irq | Tracker::Softirq) => {
            actor_label(handler)
        }
        _ => thread_label(&explanation.thread),
    };
    let line = format!(
        "{who}{}: {what} {}, limit {}, {}",
        on_cpu(explanation.cpu, explanation.events.as_deref()),
        duration_text(explanation.response_ns),
        duration_text(explanation.threshold_ns),
        from_where(explanation),
    );
    let wrapped = style.wrap(&format!("LATE {line}"), 0, 5);
    wrapped.replacen("LATE", &style.alarm("LATE"), 1)
}

/// Steps that took time, and those that say something without.
fn shown_steps(explanation: &Explanation, style: Style) -> impl Iterator<Item = &StepExplanation> {
    let says = move |step: &&StepExplanation| step.duration_ns > 0 || step.kind == StepKind::Busy;
    explanation.steps.iter().filter(move |step| style.verbose || says(step))
}

/// The rows of steps and causes, in columns.
struct Table<'a> {
    explanation: &'a Explanation,
    /// Width of the column of names.
    names: usize,
    /// Width of the column of bars.
    bar: usize,
}

impl<'a> Table<'a> {
    fn new(explanation: &'a Explanation, style: Style) -> Table<'a> {
        let longest = |step: &StepExplanation| {
            let causes = step.causes.iter().map(|cause| label_of(cause).chars().count() + 4);
            causes.max().unwrap_or(0).max(step_name(step, explanation).chars().count() + 2)
        };
        let names = shown_steps(explanation, style).map(longest).max().unwrap_or(0);
        // A longer name stands in its row alone, and moves only that row's figures.
        let widest = style.width.saturating_sub(FIGURES + *BAR.start()).clamp(*NAMES.start(), *NAMES.end());
        let names = names.clamp(*NAMES.start(), widest);
        let bar = style.width.saturating_sub(names + FIGURES).clamp(*BAR.start(), *BAR.end());
        Table { explanation, names, bar }
    }

    fn columns(&self, name: &str, time_ns: u64, permille: u32) -> String {
        let pad = self.names.saturating_sub(name.chars().count());
        format!("{name}{:pad$} {:>9}  {:>7}", "", duration_text(time_ns), share_text(permille))
    }

    fn step_rows(&self, step: &StepExplanation, style: Style) -> String {
        let name = format!("  {}", step_name(step, self.explanation));
        let drawn = style.bar(f64::from(step.share_permille) / 1000.0, self.bar);
        let mut row = format!("{}  {drawn}", self.columns(&name, step.duration_ns, step.share_permille));
        let mut below = String::new();
        match &step.causes[..] {
            // "own work" beside "run" is worth saying, "timer slack" beside "timer slack" is not.
            [only] if label_of(only) != step.kind.name() => {
                let pad = self.bar.saturating_sub(drawn.chars().count());
                let wide = format!("{row}{:pad$}  {}", "", label_of(only));
                if wide.chars().count() > style.width {
                    below = self.cause_rows(&step.causes, style);
                } else {
                    row = wide;
                }
            }
            [_] | [] => {}
            causes => below = self.cause_rows(causes, style),
        }
        let mut text = format!("{}\n{below}", row.trim_end());
        let response_ns = self.explanation.response_ns;
        let notable = |note: &&Note| match note {
            Note::NotTaken { time_ns, .. } if !style.verbose => {
                time_ns.saturating_mul(1000) >= response_ns.saturating_mul(NOTABLE)
            }
            _ => true,
        };
        for note in step.notes.iter().filter(notable) {
            text.push_str(&style.faint(style.wrap(&note_line(note), 4, 2).trim_end()));
            text.push('\n');
        }
        text
    }

    fn cause_rows(&self, causes: &[Cause], style: Style) -> String {
        let most = style.rows(CAUSES);
        let shown = if causes.len() > most { most - 1 } else { causes.len() };
        let mut text = String::new();
        for cause in &causes[..shown] {
            let row = self.columns(&format!("    {}", label_of(cause)), cause.time_ns, cause.share_permille);
            text.push_str(&format!("{row}\n"));
        }
        if let rest @ [_, ..] = &causes[shown..] {
            let time = rest.iter().map(|cause| cause.time_ns).sum();
            let share = rest.iter().map(|cause| cause.share_permille).sum();
            let row = self.columns(&format!("    {}", counted(rest.len(), "other", "others")), time, share);
            text.push_str(&format!("{row}\n"));
        }
        text
    }
}

/// The step, with the task it is about unless that is the target itself or plain from the step.
fn step_name(step: &StepExplanation, explanation: &Explanation) -> String {
    let kind = step.kind.name();
    match (&step.actor, step.kind) {
        (_, StepKind::More) => "12th and later steps".to_owned(),
        (_, StepKind::Interval) => "not recorded".to_owned(),
        (_, StepKind::Busy) => "busy (woken before it slept)".to_owned(),
        (_, StepKind::Wait) => format!("waited {}", step.wait.words()),
        (Some(Actor::Thread(thread)), StepKind::WorkWait) => format!("work for {}", short_thread(thread)),
        (Some(Actor::Thread(thread)), _) if thread.tid == explanation.thread.tid => kind.to_owned(),
        (Some(Actor::Thread(thread)), _) => format!("{kind} {}", short_thread(thread)),
        (Some(Actor::Timer), StepKind::Handler) => "timer handler".to_owned(),
        (Some(Actor::Timer) | None, _) => kind.to_owned(),
        (Some(actor), StepKind::Ipi) => {
            format!("{kind} {} from cpu {}", actor_label(actor), sender(step, explanation))
        }
        (Some(actor), _) => format!("{kind} {}", actor_label(actor)),
    }
}

/// The CPU that sent an IPI: the chain was there before.
fn sender(ipi: &StepExplanation, explanation: &Explanation) -> CpuId {
    let before = explanation.steps.iter().take_while(|step| !std::ptr::eq(*step, ipi)).last();
    before.map_or(explanation.origin.cpu, |step| step.cpu)
}

fn note_line(note: &Note) -> String {
    match note {
        Note::NotRecorded { cpu, time_ns } => {
            format!("note: {} on cpu {cpu} are not in the recording", duration_text(*time_ns))
        }
        Note::PlaceUnknown => "note: where it waited is not in the recording".to_owned(),
        Note::HeldBack { cpu, time_ns } => format!(
            "cpu {cpu} was idle for {} although the thread could have run there: throttling of real-time tasks, or a CPU limit",
            duration_text(*time_ns)
        ),
        Note::NotTaken { cpu, current, time_ns } => format!(
            "note: cpu {cpu} did not take the interrupt for {} while {} was current: interrupts were disabled, or a \
             hypervisor had the CPU; the recording cannot tell which",
            duration_text(*time_ns),
            match current {
                Actor::Softirq { .. } => format!("softirq {}", actor_label(current)),
                _ => actor_label(current),
            },
        ),
        Note::Folded { steps } => {
            format!("note: {} that did not fit into the chain", counted(*steps, "step", "steps"))
        }
        Note::LargeSlack => {
            "note: prctl(PR_SET_TIMERSLACK) or a real-time policy removes timer slack".to_owned()
        }
    }
}

fn culprit_lines(explanation: &Explanation, style: Style) -> String {
    let Some(culprit) = &explanation.culprit else { return String::new() };
    let (time, share) = (duration_text(culprit.time_ns), share_text(culprit.share_permille));
    let line = if culprit.kind.is_disturbance() {
        let mostly = if in_one_step(culprit, explanation) { "" } else { "mostly " };
        let (who, how) = match &culprit.actor {
            Some(actor @ Actor::Thread(thread)) => {
                (format!("thread {}", actor_label(actor)), rank(thread, &explanation.thread))
            }
            _ => (crate::label::cause_label(culprit.kind, culprit.actor.as_ref()), String::new()),
        };
        let kind = match culprit.actor {
            Some(_) => format!("{} ", culprit.kind.name()),
            None => String::new(),
        };
        format!("{who}: {time} ({share}), {kind}{mostly}{}{how}", when(culprit, explanation))
    } else {
        format!("nobody; {} is the largest part: {time} ({share})", harmless(culprit))
    };
    style.wrap(&format!("culprit: {line}"), 2, 4).replacen("culprit:", &style.strong("culprit:"), 1)
}

/// Whether the scheduler was right: smaller numbers are higher priorities. Both are named, since "its" could be either's.
fn rank(culprit: &Thread, target: &Thread) -> String {
    // Of a section it is the culprit itself.
    if culprit.tid == target.tid {
        return String::new();
    }
    let (Some(one), Some(two)) = (culprit.prio, target.prio) else { return String::new() };
    let (is, than) = match one.cmp(&two) {
        std::cmp::Ordering::Less => ("more urgent", "than"),
        std::cmp::Ordering::Greater => ("less urgent", "than"),
        std::cmp::Ordering::Equal => ("as urgent", "as"),
    };
    format!("; {} ({one}) is {is} {than} {} ({two})", short_thread(culprit), short_thread(target))
}

fn in_one_step(culprit: &Culprit, explanation: &Explanation) -> bool {
    let step = explanation.steps.get(culprit.step);
    step.is_some_and(|step| step.causes.iter().any(|cause| cause.time_ns == culprit.time_ns))
}

fn harmless(culprit: &Culprit) -> String {
    match (culprit.kind, &culprit.actor) {
        (CauseKind::Unknown, _) => "what is unknown".to_owned(),
        (CauseKind::Handler, Some(actor)) => format!("the handler of {}", actor_label(actor)),
        (CauseKind::Softirq, Some(actor)) => format!("the softirq {}", actor_label(actor)),
        (kind, actor) => crate::label::cause_label(kind, actor.as_ref()),
    }
}

/// During what the culprit cost most.
fn when(culprit: &Culprit, explanation: &Explanation) -> String {
    let Some(step) = explanation.steps.get(culprit.step) else { return String::new() };
    let who = match &step.actor {
        Some(Actor::Thread(thread)) => short_thread(thread),
        Some(actor) => actor_label(actor),
        None => "the chain".to_owned(),
    };
    match step.kind {
        StepKind::Wakeup => format!("while {who} was woken and waited for a CPU"),
        StepKind::Preempted => format!("while {who} was preempted"),
        StepKind::Run | StepKind::Busy => format!("while {who} ran"),
        StepKind::TimerSlack | StepKind::TimerLateness | StepKind::TimerInterrupt => {
            "while the timer was due".to_owned()
        }
        StepKind::Handler => "while the handler ran".to_owned(),
        StepKind::SoftirqWait => format!("while softirq {who} was pending"),
        StepKind::Softirq => format!("while softirq {who} ran"),
        StepKind::Ipi => "while an IPI was on its way".to_owned(),
        StepKind::WorkWait => format!("while work was queued for {who}"),
        StepKind::LockWait => format!("while {who} waited for a spinlock"),
        StepKind::HiddenSwitch => format!("while {who} waited and ran (the kernel hid the switch between)"),
        StepKind::Wait => format!("while {} waited {}", short_thread(&explanation.thread), step.wait.words()),
        StepKind::Queue => "while the request was queued".to_owned(),
        StepKind::Device => "while the device had the request".to_owned(),
        StepKind::NotPreempted => "while the CPU was asked for".to_owned(),
        StepKind::IrqsOff => "while an interrupt was due".to_owned(),
        StepKind::More => "in the 12th and later steps".to_owned(),
        StepKind::Interval => "while nothing was recorded".to_owned(),
    }
}

/// Other origins that the same work answered.
fn merged_line(origin: &OriginExplanation) -> String {
    let listed: Vec<String> = origin
        .others
        .iter()
        .map(|other| {
            let name = other.actor.as_ref().map_or_else(|| "unknown origin".to_owned(), actor_label);
            format!("{name} {} later", duration_text(other.later_ns))
        })
        .collect();
    let rest = match (origin.merged as usize).saturating_sub(listed.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("merged into it: {}{rest}", listed.join(", "))
}

fn woken_line(woken: Option<&Waker>) -> String {
    let Some(woken) = woken else { return "woken by: not known".to_owned() };
    let by = match &woken.actor {
        Some(Actor::Timer) => "a timer".to_owned(),
        Some(actor @ Actor::Softirq { .. }) => format!("softirq {}", actor_label(actor)),
        Some(actor) => actor_label(actor),
        None => "a step that was folded away".to_owned(),
    };
    let busy = if woken.busy { ", before it slept" } else { "" };
    format!("woken by: {by} on cpu {}{busy}", woken.cpu)
}

/// Threads before the response that are listed one by one.
const EARLIER: usize = 3;

/// Why the waking came when it came: each thread with what ended its own wait before.
fn earlier_lines(explanation: &Explanation, style: Style) -> String {
    let mut text = String::new();
    for earlier in explanation.earlier.iter().take(style.rows(EARLIER)) {
        text.push_str(&style.wrap(&format!("before: {}", earlier_line(earlier)), 2, 4));
    }
    if let rest @ [_, ..] = explanation.earlier.get(style.rows(EARLIER)..).unwrap_or_default() {
        text.push_str(&format!("  before: {} more\n", counted(rest.len(), "thread", "threads")));
    }
    text
}

fn earlier_line(earlier: &Earlier) -> String {
    let who = thread_label(&earlier.thread);
    let Some(woken) = earlier.woken_ns else {
        return format!("{who}, which did not wait since the recording begins");
    };
    let waited = match earlier.waited_ns {
        Some(waited_ns) => format!("had waited {} {}", duration_text(waited_ns), earlier.wait.words()),
        None => "had waited since before the recording".to_owned(),
    };
    let by = match &earlier.woken_by {
        Some(Actor::Timer) => "a timer".to_owned(),
        Some(actor @ Actor::Softirq { .. }) => format!("softirq {}", actor_label(actor)),
        Some(Actor::Idle) | None => "something unknown".to_owned(),
        Some(actor) => actor_label(actor),
    };
    let then = duration_text(earlier.woke_ns.since(woken));
    format!("{who} {}, until {by} ended that {then} earlier", waited.trim_end())
}

/// Whom a handler kept from running.
fn delayed_lines(delayed: &[Delayed], style: Style) -> String {
    let line = |one: &Delayed| {
        let (who, time) = (thread_label(&one.thread), duration_text(one.time_ns));
        match one.how {
            DelayedHow::Interrupted => format!("delayed: {who}, interrupted for {time}"),
            DelayedHow::Woken => format!("delayed: {who}, woken for this CPU {time} before the end"),
        }
    };
    delayed.iter().map(|one| style.wrap(&line(one), 2, 4)).collect()
}

/// Waits listed one by one.
const WAITS: usize = 4;

/// What the thread waited for in the middle of its cycle, and the inversions among these waits.
fn wait_lines(explanation: &Explanation, style: Style) -> String {
    let mut text = String::new();
    let waiter = thread_label(&explanation.thread);
    for wait in explanation.waits.iter().take(style.rows(WAITS)) {
        let is_over =
            explanation.end != End::Pending || wait.from_ns.plus(wait.duration_ns) < explanation.end_ns;
        let line = wait_line(wait, &waiter, is_over);
        let line = style.wrap(&line, 2, 4);
        let alarm = "priority inversion:";
        text.push_str(&line.replacen(alarm, &style.alarm(alarm), 1));
    }
    if let rest @ [_, ..] = explanation.waits.get(style.rows(WAITS)..).unwrap_or_default() {
        let time = rest.iter().map(|wait| wait.duration_ns).sum();
        text.push_str(&format!(
            "  waited: {} more, {} in all\n",
            counted(rest.len(), "time", "times"),
            duration_text(time)
        ));
    }
    text
}

fn wait_line(wait: &InnerWait, waiter: &str, is_over: bool) -> String {
    let (time, what) = (duration_text(wait.duration_ns), wait.wait.words());
    let by = wait.woken_by.as_ref();
    let kept = wait.kept.as_ref().map(|kept| {
        let holder = by.filter(|by| by.tid == kept.holder.tid);
        let (thread, time) = (thread_label(&kept.thread), duration_text(kept.time_ns));
        match holder {
            Some(_) => format!(", which {thread} kept from running for {time}"),
            None => format!(
                ", which waited for {}, which {thread} kept from running for {time}",
                thread_label(&kept.holder)
            ),
        }
    });
    let kept = kept.unwrap_or_default();
    match by {
        Some(by) if wait.is_inversion => format!(
            "priority inversion: {waiter} waited {time} {what} held by {}{kept}; where it is a mutex, PTHREAD_PRIO_INHERIT prevents this",
            thread_label(by)
        ),
        Some(by) => format!("waited: {time} {what}, until {} ended that{kept}", thread_label(by)),
        None if !is_over => format!("waits: {time} {what} so far"),
        None => format!("waited: {time} {what}, until an interrupt ended that"),
    }
}

fn preemption_lines(preemptions: &[Preemption], style: Style) -> String {
    let mut text = String::new();
    for preemption in preemptions.iter().take(style.rows(PREEMPTIONS)) {
        let by = preemption.by.as_ref().map_or_else(|| "not known".to_owned(), thread_label);
        let cpu = preemption.cpu.map_or(String::new(), |cpu| format!(" on cpu {cpu}"));
        let (thread, time) = (short_thread(&preemption.thread), duration_text(preemption.duration_ns));
        text.push_str(&style.wrap(&format!("preempted: {thread}{cpu} by {by}, for {time}"), 2, 4));
    }
    if let rest @ [_, ..] = preemptions.get(style.rows(PREEMPTIONS)..).unwrap_or_default() {
        let time = rest.iter().map(|preemption| preemption.duration_ns).sum();
        text.push_str(&format!(
            "  preempted: {} more, for {}\n",
            counted(rest.len(), "time", "times"),
            duration_text(time)
        ));
    }
    text
}

/// One loss in words. "Unknown" is never 0.
#[must_use]
pub fn loss_line(loss: &Loss) -> String {
    let cpu = loss.cpu.map_or(String::new(), |cpu| format!(" on cpu {cpu}"));
    let (one, many, why) = match loss.cause {
        LossCause::RecursionMiss => {
            ("event", "events", "skipped by the kernel (tracepoint program already running)")
        }
        LossCause::Unfinished => ("event", "events", "unfinished when the bank was copied"),
        LossCause::Unreadable => ("event", "events", "unreadable"),
        LossCause::Overwritten => ("event", "events", "overwritten before they could be read"),
        LossCause::Discarded => ("event", "events", "discarded by the writer of the trace"),
        LossCause::Gap => ("switch of tasks", "switches of tasks", "that the kernel did not report"),
        LossCause::BufferFull => ("event", "events", "that found the recorder's buffer full"),
        LossCause::NoBuffer => ("event", "events", "of threads that had no buffer"),
        LossCause::TooLarge => ("event", "events", "larger than a record can be"),
        LossCause::Undescribed => ("event", "events", "with a description that no trace can have"),
        LossCause::Refused => ("event", "events", "of programs whose files were refused"),
        LossCause::TableFull => {
            ("operation", "operations", "not followed to the end, since the table was full")
        }
        LossCause::EntryBusy => ("operation", "operations", "not followed, since another CPU held the entry"),
        LossCause::Overrun => ("event", "events", "overwritten by the kernel's tracer before being read"),
        LossCause::ReportRingFull => {
            ("report of a late response", "reports of late responses", "that found the ring full")
        }
    };
    let what = match loss.count {
        Some(count) => counted(count, one, many),
        None => format!("an unknown number of {many}"),
    };
    format!("lost: {what}{cpu} {why}; any of this may be incomplete")
}

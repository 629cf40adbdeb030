// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One line at the moment of detection, when nothing but the chain is known.

use crate::WallClock;
use crate::block::{block_label, status_label};
use crate::call::{call_label, result_label};
use crate::label::{clean, origin_label};
use crate::lock::{ended_label, function, lock_label};
use crate::stacks::stacks_text;
use crate::style::Style;
use crate::units::{counted, duration_text, share_text};
use rtscope_analyze::share;
use rtscope_event::{
    CpuId, End, EventSpan, FieldValue, LateResponse, Names, Origin, OriginKind, SpanEvent, Step, StepKind,
    Stuck, Tracker, softirq_name,
};

/// `23:41:07.123456 LATE control-loop/1234 on cpu 1: 3.412 ms > 500 us, timer -> blocked, mostly wakeup 3.105 ms
/// (91.0 %)`. Without a clock the line begins with `LATE`.
#[must_use]
pub fn late_line(late: &LateResponse, names: &Names, clock: Option<&WallClock>, style: Style) -> String {
    let time = clock.map_or(String::new(), |clock| format!("{} ", clock.time_of_day(late.end_ns)));
    let durations: Vec<u64> = late.chain.steps.iter().map(|step| step.duration_ns).collect();
    let shares = share::divide(share::WHOLE, &durations);
    let longest = late.chain.steps.iter().zip(shares).rev().max_by_key(|(step, _)| step.duration_ns);
    let mostly = longest.map_or(String::new(), |(step, permille)| {
        let (name, time) = (step_words(step), duration_text(step.duration_ns));
        format!(", mostly {name} {time} ({})", share_text(permille))
    });
    if late.tracker.is_of_sections() {
        return section_line(late, names, &time, style);
    }
    if late.tracker.is_of_cpus() {
        return handler_line(late, names, &time, &mostly, style);
    }
    let (from, to, mostly) = match &late.events {
        Some(events) if late.tracker == Tracker::Pair => {
            let from = format!("{}{}", event_words(&events.from, &events.to), fields_text(&events.from));
            let to = match late.end {
                End::Pending => end_words(late.end).to_owned(),
                _ => format!("{}{}", events.to.event, fields_text(&events.to)),
            };
            (from, to, String::new())
        }
        Some(events) => {
            let steps: String = events
                .through
                .iter()
                .map(|step| format!(" -> {} (thread {})", step.event, step.tid))
                .collect();
            (
                format!("{}{steps}", event_words(&events.from, &events.to)),
                events.to.event.clone(),
                String::new(),
            )
        }
        None if late.block.is_some() => {
            let block = late.block.as_deref();
            (block.map(block_label).unwrap_or_default(), block.map(status_label).unwrap_or_default(), mostly)
        }
        None => match (&late.call, &late.lock) {
            (Some(call), _) => (call_label(call), result_label(call), mostly),
            (None, Some(lock)) => (lock_label(lock), ended_label(lock), mostly),
            (None, None) => (origin_label(&late.chain.origin, names), end_words(late.end).to_owned(), mostly),
        },
    };
    format!(
        "{time}{}{} {}/{}{}: {} > {}, {from} -> {to}{mostly}",
        style.alarm("LATE"),
        tracker_word(late.tracker),
        late.comm,
        late.tid,
        on_cpu(late.cpu, late.events.as_deref()),
        duration_text(late.response_ns()),
        duration_text(late.threshold_ns),
    )
}

/// The same, and below it where its task and its waker were, where that is known.
#[must_use]
pub fn late_text(late: &LateResponse, names: &Names, clock: Option<&WallClock>, style: Style) -> String {
    let line = style.fitted_for_terminal(&late_line(late, names, clock, style));
    let below = late.stacks.as_deref().map_or(String::new(), |stacks| stacks_text(stacks, style));
    format!("{line}\n{below}").trim_end().to_owned()
}

/// `LATE irq virtio1-req.0 (irq 36) on cpu 0: 312.0 us > 100 us, control/1234 was interrupted`.
fn handler_line(late: &LateResponse, names: &Names, time: &str, mostly: &str, style: Style) -> String {
    let (what, mostly) = match late.tracker {
        Tracker::Softirq => ("softirq", mostly),
        _ => ("irq", ""),
    };
    let current = match late.tid.0 {
        0 => "the CPU was idle".to_owned(),
        tid => format!("{}/{tid} was interrupted", late.comm),
    };
    format!(
        "{time}{} {what} {} on cpu {}: {} > {}{mostly}, {current}",
        style.alarm("LATE"),
        handler_label(&late.chain.origin, names),
        late.cpu,
        duration_text(late.response_ns()),
        duration_text(late.threshold_ns),
    )
}

/// `LATE preemptoff on cpu 1: 5.002 ms > 1 ms, dd/1234 went on, ended in cond_resched, then control/1235 had the CPU`.
fn section_line(late: &LateResponse, names: &Names, time: &str, style: Style) -> String {
    let section = late.section.as_deref();
    let (least, most) = match section.and_then(|section| section.resolution_ns) {
        Some(ns) => ("at least ", format!(" ({} more at most)", duration_text(ns))),
        None => ("", String::new()),
    };
    let did = if late.tracker == Tracker::Irqoff { "was current" } else { "went on" };
    let place = section.and_then(|section| section.stack.first());
    let place = match place {
        Some(place) => format!(", ended in {}", function(place)),
        // A program cannot keep interrupts out.
        None if late.tracker == Tracker::Irqoff => {
            ", in no function of the kernel: a handler, or a hypervisor, perhaps".to_owned()
        }
        None => String::new(),
    };
    let next = match late.tracker {
        Tracker::Preemptoff => format!(", then {} had the CPU", origin_label(&late.chain.origin, names)),
        _ => String::new(),
    };
    format!(
        "{time}{}{} on cpu {}: {least}{} > {}{most}, {}/{} {did}{place}{next}",
        style.alarm("LATE"),
        tracker_word(late.tracker),
        late.cpu,
        duration_text(late.response_ns()),
        duration_text(late.threshold_ns),
        late.comm,
        late.tid,
    )
}

/// An interrupt or a softirq, without the word.
fn handler_label(origin: &Origin, names: &Names) -> String {
    match origin.kind {
        OriginKind::Softirq => softirq_name(origin.id).to_owned(),
        _ => origin_label(origin, names),
    }
}

/// What hangs, and below it where in the kernel: `STUCK syscall cat/1234 on cpu 1: 2.012 s so far, read(fd: 0, …), now waiting in read for
/// 2.012 s`.
#[must_use]
pub fn stuck_text(stuck: &Stuck, names: &Names, clock: Option<&WallClock>, style: Style) -> String {
    let time = clock.map_or(String::new(), |clock| format!("{} ", clock.time_of_day(stuck.late.end_ns)));
    format!("{time}{} {}", style.alarm("STUCK"), operation_text(stuck, names, style))
}

/// The same without the time and the word before it.
pub(crate) fn operation_text(operation: &Stuck, names: &Names, style: Style) -> String {
    let late = &operation.late;
    let what = match (&late.call, &late.lock) {
        _ if late.events.is_some() => late.events.as_deref().map(waiting_words).unwrap_or_default(),
        (Some(call), _) => call_label(call),
        (None, Some(lock)) => lock_label(lock),
        (None, None) if late.tracker == Tracker::Wakeup => {
            format!("woken by {}", origin_label(&late.chain.origin, names))
        }
        (None, None) if late.block.is_some() => late.block.as_deref().map(block_label).unwrap_or_default(),
        (None, None) => "off its CPU".to_owned(),
    };
    let waits = late.chain.steps.last().filter(|step| step.kind != StepKind::Interval);
    let now = waits.map_or(String::new(), |step| {
        let state = match step.kind {
            StepKind::Wait => step_words(step),
            StepKind::Wakeup | StepKind::Preempted => "waiting for a CPU".to_owned(),
            StepKind::Queue => "in its queue".to_owned(),
            StepKind::Device => "in the device".to_owned(),
            _ => "running".to_owned(),
        };
        format!(", now {state} for {}", duration_text(step.duration_ns))
    });
    let mut text = format!(
        "{} {}/{}{}: {} so far, {what}{now}",
        late.tracker.name(),
        late.comm,
        late.tid,
        on_cpu(late.cpu, None),
        duration_text(late.response_ns()),
    );
    if let Some(stack @ [_, ..]) = operation.kernel_stack.as_deref() {
        let names: Vec<&str> = stack.iter().map(|place| function(place)).collect();
        text.push('\n');
        text.push_str(style.wrap(&format!("in the kernel: {}", names.join(" < ")), 2, 4).trim_end());
    }
    text
}

/// What was late, where it is no response.
fn tracker_word(tracker: Tracker) -> &'static str {
    match tracker {
        Tracker::Response => "",
        Tracker::Wakeup => " wakeup",
        Tracker::Offcpu => " offcpu",
        Tracker::Syscall => " syscall",
        Tracker::Lock => " lock",
        Tracker::Irq => " irq",
        Tracker::Softirq => " softirq",
        Tracker::Block => " block",
        Tracker::Preemptoff => " preemptoff",
        Tracker::Irqoff => " irqoff",
        Tracker::Pair => " pair",
    }
}

/// One of them.
pub(crate) fn tracker_noun(tracker: Tracker) -> &'static str {
    match tracker {
        Tracker::Response => "response",
        Tracker::Wakeup => "wakeup",
        Tracker::Offcpu => "time off a CPU",
        Tracker::Syscall => "system call",
        Tracker::Lock => "wait for a lock",
        Tracker::Irq => "interrupt's handler",
        Tracker::Softirq => "softirq",
        Tracker::Block => "block request",
        Tracker::Preemptoff => "wait for a CPU to be given away",
        Tracker::Irqoff => "section with interrupts off",
        Tracker::Pair => "interval",
    }
}

/// Several of them.
pub(crate) fn tracker_nouns(tracker: Tracker) -> &'static str {
    match tracker {
        Tracker::Response => "responses",
        Tracker::Wakeup => "wakeups",
        Tracker::Offcpu => "times off a CPU",
        Tracker::Syscall => "system calls",
        Tracker::Lock => "waits for locks",
        Tracker::Irq => "handlers of interrupts",
        Tracker::Softirq => "softirqs",
        Tracker::Block => "block requests",
        Tracker::Preemptoff => "waits for a CPU to be given away",
        Tracker::Irqoff => "samples",
        Tracker::Pair => "intervals",
    }
}

/// ` on cpu 1`; of the events of a program it may not be known.
pub(crate) fn on_cpu(cpu: CpuId, events: Option<&EventSpan>) -> String {
    match events {
        Some(events) if events.to.cpu.is_none() => String::new(),
        _ => format!(" on cpu {cpu}"),
    }
}

/// The first of two events, with its thread where the second one happened in another.
pub(crate) fn event_words(from: &SpanEvent, to: &SpanEvent) -> String {
    match from.tid == to.tid {
        true => from.event.clone(),
        false => format!("{} (thread {})", from.event, from.tid),
    }
}

/// Of a pair whose second event has not come.
fn waiting_words(events: &EventSpan) -> String {
    format!("from {}{}, no {} yet", events.from.event, fields_text(&events.from), events.to.event)
}

/// ` (child_pid: 12, child_comm: \"sh\")`, those that are numbers and texts.
pub(crate) fn fields_text(event: &SpanEvent) -> String {
    let shown = event.fields.iter().filter_map(|(name, value)| {
        let value = match value {
            FieldValue::Unsigned(number) => number.to_string(),
            FieldValue::Signed(number) => number.to_string(),
            FieldValue::Float(number) => number.0.to_string(),
            FieldValue::Text(text) => format!("{text:?}"),
            FieldValue::Enumeration { value, labels } => match labels.first() {
                Some(label) => label.clone(),
                None => value.to_string(),
            },
            FieldValue::Other(()) => return None,
        };
        Some(clean(&format!("{name}: {value}")))
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) }
}

/// How a response ended.
pub(crate) fn end_words(end: End) -> &'static str {
    match end {
        End::Running => "running",
        End::Blocked => "blocked",
        End::Rewoken => "woken again",
        End::Cycle => "the end of its cycle",
        End::Returned => "its return",
        End::Acquired => "the lock",
        End::Handled => "its exit",
        End::Completed => "its completion",
        End::Switched => "the switch",
        End::IrqsOn => "the next interrupt",
        End::Pending => "the end of the watch",
        End::Event => "an event",
    }
}

/// A step in a sentence that begins with "mostly".
fn step_words(step: &Step) -> String {
    match step.kind {
        StepKind::Wait => format!("waiting {}", step.wait.words()),
        StepKind::More => format!("its last {},", counted(step.id, "step", "steps")),
        kind => kind.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{Chain, Comm, MonotonicNs, Pid, Priority, Section, Tid, WaitKind};

    fn section(
        tracker: Tracker,
        origin: OriginKind,
        stack: &[&str],
        resolution_ns: Option<u64>,
    ) -> LateResponse {
        let origin = Origin { kind: origin, id: 7, cpu: CpuId(1), time_ns: MonotonicNs(1_000) };
        let step =
            Step { kind: StepKind::Run, id: 5, cpu: CpuId(1), duration_ns: 4_000_000, wait: WaitKind::None };
        let chain = Chain { origin, steps: vec![step], merged: 0, others: Vec::new(), busy: false };
        LateResponse {
            tracker,
            instance: 0,
            sequence: 1,
            cpu: CpuId(1),
            end_ns: MonotonicNs(4_001_000),
            end: End::Switched,
            threshold_ns: 1_000_000,
            tid: Tid(5),
            pid: Pid(5),
            prio: Priority(120),
            comm: Comm::from_bytes(b"writer"),
            snapshot: None,
            chain,
            events: None,
            call: None,
            lock: None,
            block: None,
            stacks: None,
            section: Some(Box::new(Section {
                stack: stack.iter().map(|place| (*place).to_owned()).collect(),
                resolution_ns,
            })),
        }
    }

    #[test]
    fn a_section_says_who_kept_the_cpu_and_where_that_ended() {
        let line = |late: &LateResponse| late_line(late, &Names::default(), None, Style::default());
        let kept =
            section(Tracker::Preemptoff, OriginKind::Resched, &["schedule+0x23", "vfs_write+0x2"], None);
        assert_eq!(
            line(&kept),
            "LATE preemptoff on cpu 1: 4 ms > 1 ms, writer/5 went on, ended in schedule, then thread 7 had the CPU"
        );
        let off = section(Tracker::Irqoff, OriginKind::IrqsOff, &["unlock+0x1"], Some(100_000));
        assert_eq!(
            line(&off),
            "LATE irqoff on cpu 1: at least 4 ms > 1 ms (100 us more at most), writer/5 was current, ended in unlock"
        );
        let elsewhere = section(Tracker::Irqoff, OriginKind::IrqsOff, &[], Some(100_000));
        let said = line(&elsewhere);
        assert!(
            said.ends_with("in no function of the kernel: a handler, or a hypervisor, perhaps"),
            "{said}"
        );
    }
}

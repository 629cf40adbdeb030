// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the end of a response was seen.
//!
//! Some hosts hide switches to and from threads of theirs. Where the switch-out of a thread is hidden, its response seems to go on until the thread
//! is woken again, some other time: a second later, say. The recorded switches contradict that, since others came to the CPU and left it meanwhile.
//! Such a response is neither late nor in time: it could not be observed.

use rtscope_analyze::explain::{CauseKind, Explanation, Note, StepExplanation};
use rtscope_event::{CpuHistory, CpuId, End, EventKind, LateResponse, LossCause, Recording, StepKind};

/// Whether only the recording tells if it was late: it seems to have ended when its thread was woken again.
pub fn is_judged_later(late: &LateResponse) -> bool {
    late.end == End::Rewoken
}

/// Whether the recording can tell that a response took as long as its explanation says, or at least too long.
pub fn is_observable(explanation: &Explanation, recording: &Recording) -> bool {
    let Some(run) = explanation.steps.last().filter(|step| step.kind == StepKind::Run) else { return true };
    let is_hidden = explanation.end == End::Rewoken
        && run.causes.iter().all(|cause| cause.kind != CauseKind::OwnWork)
        && run.notes.iter().any(|note| is_contradiction(note, explanation, run, recording));
    // What came before is certain.
    !is_hidden || explanation.response_ns.saturating_sub(run.duration_ns) > explanation.threshold_ns
}

/// The switches say something else: those of the CPU where it began to run, or, where the recording does not reach back as far, those of all CPUs.
fn is_contradiction(
    note: &Note,
    explanation: &Explanation,
    run: &StepExplanation,
    recording: &Recording,
) -> bool {
    let Note::NotRecorded { cpu, .. } = note else { return false };
    if recording.covers(*cpu, run.from_ns) {
        return has_gaps(recording, *cpu);
    }
    // Where it would have run is not known then. But a thread that has a CPU all the time leaves one to itself.
    let (from, to) = (run.from_ns, run.from_ns.plus(run.duration_ns));
    let is_left_by_others = |history: &CpuHistory| {
        recording.events.iter().any(|event| {
            event.cpu == history.cpu
                && from < event.time
                && event.time < to
                && matches!(event.kind, EventKind::SchedSwitch { prev_tid, .. } if prev_tid != explanation.thread.tid)
        })
    };
    !recording.history.is_empty() && recording.history.iter().all(is_left_by_others)
}

fn has_gaps(recording: &Recording, cpu: CpuId) -> bool {
    recording.losses.iter().any(|loss| loss.cause == LossCause::Gap && loss.cpu == Some(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_analyze::chain::{Config, replay};
    use rtscope_analyze::explain::Explainer;
    use rtscope_event::{Loss, MonotonicNs, parse_event};

    /// Thread 7 is woken, runs, and is woken again on the other CPU after 1000 ns; `between` happens meanwhile.
    fn observable(between: &str, since: u64, threshold_ns: u64) -> bool {
        let text = format!(
            "10 0 irq_handler_entry irq=36
             13 0 sched_waking tid=7
             15 0 irq_handler_exit irq=36 ret=1
             20 0 sched_switch prev_tid=0 next_tid=7
             {between}
             1000 1 irq_handler_entry irq=36
             1010 1 sched_waking tid=7
             1020 1 irq_handler_exit irq=36 ret=1"
        );
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut recording = Recording {
            events: lines.map(|line| parse_event(line).unwrap()).collect(),
            ..Recording::default()
        };
        let mut switches = [rtscope_event::SwitchSequence::default(); 2];
        recording.events.iter().for_each(|event| switches[event.cpu.0 as usize].observe(&event.kind));
        let count =
            Some(switches.iter().map(rtscope_event::SwitchSequence::gaps).sum()).filter(|count| *count > 0);
        for cpu in [CpuId(0), CpuId(1)] {
            recording.history.push(CpuHistory { cpu, complete_since: Some(MonotonicNs(since)), events: 1 });
            recording.losses.extend(count.map(|_| Loss { cpu: Some(cpu), cause: LossCause::Gap, count }));
        }
        let (responses, _) = replay(&recording, &Config::new(0));
        // The watch has followed it, and the history has only what came later.
        recording.events.retain(|event| event.time.0 >= since);
        let explainer = Explainer::new(&recording);
        let found = responses.iter().find(|response| response.tid.0 == 7).expect("it responds");
        is_observable(&explainer.explain(&explainer.report(found, threshold_ns, 1)), &recording)
    }

    #[test]
    fn a_response_whose_end_was_hidden_is_neither_late_nor_in_time() {
        let others = "500 0 sched_switch prev_tid=0 next_tid=9
                      600 0 sched_switch prev_tid=9 prev_state=1 next_tid=0";
        assert!(!observable(others, 0, 100));
        // Also where the history begins while it would have run: a response that seems to have taken longer than it, on which CPU nobody knows.
        let everywhere = format!("{others}\n700 1 sched_switch prev_tid=0 next_tid=9");
        assert!(!observable(&everywhere, 400, 100));
        assert!(observable(others, 400, 100));
        // What came before the run was too long already.
        assert!(observable(others, 0, 5));
        // It ran all the time, as far as anybody knows; and where the history begins later, nothing contradicts that.
        assert!(observable("", 0, 100));
        assert!(observable("500 1 sched_switch prev_tid=0 next_tid=9", 0, 100));
        assert!(observable(others, 700, 100));
    }
}

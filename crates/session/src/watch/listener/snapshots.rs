// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots of a watch: from the frozen banks to the writer, and what it has made of them. What is late without a snapshot is explained by what the banks hold.

use super::Listener;
use crate::Failure;
use crate::watch::hardware::HardwarePart;
use crate::watch::writer::{FinishedJob, Job, Parts, in_order};
use rtscope_event::{LateResponse, MonotonicNs};
use rtscope_flight::{Snapshot, Window, monotonic_now};
use rtscope_kernel::interrupts;

impl Listener {
    pub(super) fn take_snapshot(&mut self) -> Result<(), Failure> {
        let Some(trigger) = self.recorder.ready() else { return Ok(()) };
        // The report of the late response that pulled this trigger was published before the trigger.
        self.take_reports();
        // Those that ended after the flip are in the banks that are written now: the next snapshot's business.
        let late = self.backlog.take_until(MonotonicNs(trigger.stop_at_ns));
        let pulled = late.iter().find(|late| late.snapshot == Some(trigger.generation));
        let origin = pulled.map(|late| late.chain.origin.time_ns);
        let wanted = MonotonicNs(trigger.detected_ns).minus(self.plan.pre_ns);
        let snapshot = self.recorder.take(trigger, earliest(&late, wanted));
        let trace = snapshot.window(self.plan.pre_ns, origin);
        let part = match &mut self.ftrace {
            Some(ftrace) => Some(ftrace.freeze(trace.from, trace.until)?),
            None => None,
        };
        let space = self.shares.space(self.shares.account_of(trigger.generation), monotonic_now());
        let user =
            self.programs.as_ref().map(|programs| programs.freeze((trace.from, trace.until), space, false));
        let hardware = self.take_units(snapshot.detected)?;
        self.give(snapshot, Some(trace), Parts { ftrace: part, user, hardware }, late)
    }

    fn take_units(&mut self, detected: MonotonicNs) -> Result<Option<HardwarePart>, Failure> {
        let Some(hardware) = &mut self.hardware else { return Ok(None) };
        let part = hardware.take(detected)?;
        if part.is_none() {
            self.observer
                .note("a snapshot is without the unit's trace: that of the one before is still being saved");
        }
        Ok(part)
    }

    /// What the banks hold explains the late responses since the last snapshot, while recording goes on.
    pub(super) fn explain_without_snapshot(&mut self) -> Result<(), Failure> {
        let now = monotonic_now();
        let late = self.backlog.take_until(now);
        if late.is_empty() {
            return Ok(());
        }
        let snapshot = self.recorder.peek(earliest(&late, now));
        self.give(snapshot, None, Parts::default(), late)
    }

    fn give(
        &mut self,
        snapshot: Snapshot,
        trace: Option<Window>,
        parts: Parts,
        late: Vec<LateResponse>,
    ) -> Result<(), Failure> {
        let tasks = self.ebpf.dump_tasks()?;
        self.misses.add(monotonic_now(), &self.ebpf.recursion_misses());
        let mut window = trace.unwrap_or_else(|| snapshot.window(0, None));
        window.from = earliest(&late, window.from);
        let late = in_order(late, snapshot.generation, trace);
        let misses = self.misses.since(window.from);
        self.writer.give(Job { snapshot, trace, parts, window, tasks, irqs: interrupts(), misses, late })
    }

    pub(super) fn take_finished(&mut self, done: FinishedJob) -> Result<(), Failure> {
        if let Some((hardware, part)) = self.hardware.as_mut().zip(done.hardware) {
            hardware.give_back(part)?;
        }
        let pulled = (done.snapshot.generation != 0).then_some(done.snapshot.generation);
        let by = done.explanations.iter().find(|(explanation, _)| explanation.snapshot == pulled);
        let summary = self.summary_of(by.map_or(0, |(explanation, _)| explanation.instance));
        summary.snapshots += u64::from(pulled.is_some() && !done.dropped);
        summary.failed_snapshots += u64::from(done.failed);
        if let Some(bytes) = done.saved {
            self.shares.saved(done.snapshot.generation, bytes, &done.programs, monotonic_now());
            self.shares.news().iter().for_each(|news| self.observer.note(news));
        }
        self.recorder.recycle(done.snapshot);
        for summary in &mut self.summaries {
            summary.gaps_of(done.explanations.iter().map(|(explanation, _)| explanation));
        }
        for (explanation, own) in &done.explanations {
            self.summary_of(explanation.instance).explained(explanation, *own);
        }
        done.unobserved.iter().for_each(|late| self.summary_of(late.instance).unobserved(late));
        Ok(())
    }

    /// At the end: what the banks still hold explains the late responses since the last snapshot.
    pub(super) fn explain_the_rest(&mut self) -> Result<(), Failure> {
        if let Some(done) = self.writer.wait()? {
            self.take_finished(done)?;
        }
        self.explain_without_snapshot()?;
        for done in self.writer.finish() {
            self.take_finished(done)?;
        }
        Ok(())
    }
}

/// How far back the copy has to reach to have all of these from their origins on.
fn earliest(late: &[LateResponse], or: MonotonicNs) -> MonotonicNs {
    late.iter().map(|late| late.chain.origin.time_ns.minus(1_000_000)).fold(or, MonotonicNs::min)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The listener: polls a few mapped words, drains the reports, copies frozen banks. Between two polls it sleeps.
//!
//! It needs no priority and no wakeup: what was detected waits in memory. Its only deadline is that a ring of reports
//! (256 per CPU) is not overrun, which would be counted.

use super::backlog::Backlog;
use super::ftrace::{FtracePart, FtraceRecorder};
use super::plan::Plan;
use super::report::{Report, Summary};
use super::writer::{FinishedJob, Job, Settings, Writer, in_order};
use crate::exit::Failure;
use crate::stop::Stop;
use rtscope_event::{LateResponse, MonotonicNs};
use rtscope_flight::{FlightRecorder, MissCounter, Snapshot, Window, monotonic_now};
use rtscope_kernel::{EbpfPrograms, interrupts};
use rtscope_session::command::Child;
use rtscope_session::placement::Placement;
use rtscope_session::program_flight::{ProgramFlight, UserPart};
use std::sync::Arc;
use std::time::Duration;

/// Between two polls while nothing is late. A poll costs 35 to 80 µs in a virtual machine: timer, switch, loads with cold caches.
const POLL_IDLE: Duration = Duration::from_millis(30);
/// Between two polls while a snapshot is to be taken, or soon after a late response.
const POLL_BUSY: Duration = Duration::from_millis(2);
/// How long after a late response more are expected.
const BUSY_NS: u64 = 200_000_000;
/// Between two readings of the counters of skipped programs, which cost a system call each.
const SLOW_NS: u64 = 1_000_000_000;
/// A wait at the end that needs a word.
const NOTABLE_WAIT_NS: u64 = 500_000_000;
/// A late response that no snapshot has come for in this time is explained without one.
const PATIENCE_NS: u64 = 1_500_000_000;

/// A watch under way.
#[derive(Debug)]
pub struct Listener {
    ebpf: EbpfPrograms,
    recorder: FlightRecorder,
    ftrace: Option<FtraceRecorder>,
    programs: Option<ProgramFlight>,
    writer: Writer,
    report: Arc<Report>,
    misses: MissCounter,
    backlog: Backlog,
    summary: Summary,
    plan: Plan,
    placement: Placement,
    started: MonotonicNs,
    next_slow: MonotonicNs,
    last_late: MonotonicNs,
    /// Why it ended before its time.
    failure: Option<Failure>,
}

impl Listener {
    /// Over eBPF programs that have just been started.
    pub fn new(
        plan: Plan,
        ebpf: EbpfPrograms,
        (ftrace, programs): (Option<FtraceRecorder>, Option<ProgramFlight>),
        (report, placement): (Report, Placement),
    ) -> Result<Listener, Failure> {
        let recorder = FlightRecorder::new(ebpf.memory(&plan.ebpf)?, ebpf.started());
        let report = Arc::new(report);
        let settings = Settings {
            dir: plan.snapshot_dir.clone(),
            pre_ns: plan.pre_ns,
            post_ns: plan.post_ns,
            watched: plan.target_text(),
        };
        let writer = Writer::start(settings, Arc::clone(&report))?;
        let mut misses = MissCounter::default();
        let started = monotonic_now();
        misses.add(started, &ebpf.recursion_misses());
        Ok(Listener {
            ebpf,
            recorder,
            ftrace,
            programs,
            writer,
            report,
            misses,
            backlog: Backlog::default(),
            summary: Summary::default(),
            plan,
            placement,
            started,
            next_slow: started.plus(SLOW_NS),
            last_late: MonotonicNs(0),
            failure: None,
        })
    }

    /// Until somebody asks us to stop, the time is over, or COMMAND has ended.
    pub fn listen(&mut self, stop: &Stop, child: &mut Option<Child>) {
        loop {
            let now = monotonic_now();
            let over = self.plan.duration_ns.is_some_and(|duration| now.since(self.started) >= duration);
            if stop.asked() || over || child.as_mut().is_some_and(Child::has_ended) {
                return;
            }
            if let Err(failure) = self.poll(now) {
                crate::output::note(&format!("rtscope: {failure}; the watch ends here"));
                self.failure = Some(failure);
                return;
            }
            std::thread::sleep(self.pause(now));
        }
    }

    fn pause(&self, now: MonotonicNs) -> Duration {
        let busy = self.recorder.is_armed() || now.since(self.last_late) < BUSY_NS;
        if busy { POLL_BUSY } else { POLL_IDLE }
    }

    fn poll(&mut self, now: MonotonicNs) -> Result<(), Failure> {
        self.placement.follow(now, || self.ebpf.dump_tasks().ok());
        self.take_reports();
        if let Some(done) = self.writer.poll()? {
            self.take_finished(done);
        }
        if now >= self.next_slow {
            self.next_slow = now.plus(SLOW_NS);
            self.misses.add(now, &self.ebpf.recursion_misses());
            self.report
                .every_second(&self.plan, &self.recorder, || self.ebpf.dump_tasks().unwrap_or_default());
        }
        if self.writer.is_free() {
            self.take_snapshot()?;
        }
        if self.writer.is_free()
            && self.backlog.oldest().is_some_and(|oldest| now.since(oldest) > PATIENCE_NS)
        {
            self.explain_without_snapshot()?;
        }
        Ok(())
    }

    fn take_reports(&mut self) {
        for late in self.recorder.late_responses() {
            self.report.late(&late);
            self.last_late = late.end_ns;
            if let Some(oldest) = self.backlog.push(late) {
                self.summary.unexplained(&oldest);
            }
        }
    }

    fn take_snapshot(&mut self) -> Result<(), Failure> {
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
        let user = self.programs.as_ref().map(|programs| programs.freeze(trace.from, trace.until));
        self.give(snapshot, Some(trace), (part, user), late)
    }

    /// What the banks hold explains the late responses since the last snapshot, while recording goes on.
    fn explain_without_snapshot(&mut self) -> Result<(), Failure> {
        let now = monotonic_now();
        let late = self.backlog.take_until(now);
        if late.is_empty() {
            return Ok(());
        }
        let snapshot = self.recorder.peek(earliest(&late, now));
        self.give(snapshot, None, (None, None), late)
    }

    fn give(
        &mut self,
        snapshot: Snapshot,
        trace: Option<Window>,
        (part, user): (Option<FtracePart>, Option<UserPart>),
        late: Vec<LateResponse>,
    ) -> Result<(), Failure> {
        let tasks = self.ebpf.dump_tasks()?;
        self.misses.add(monotonic_now(), &self.ebpf.recursion_misses());
        let mut window = trace.unwrap_or_else(|| snapshot.window(0, None));
        window.from = earliest(&late, window.from);
        let late = in_order(late, snapshot.generation, trace);
        let misses = self.misses.since(window.from);
        self.writer.give(Job { snapshot, trace, part, user, window, tasks, irqs: interrupts(), misses, late })
    }

    fn take_finished(&mut self, done: FinishedJob) {
        self.summary.snapshots += u64::from(done.snapshot.generation != 0);
        self.summary.failed_snapshots += u64::from(done.failed);
        self.recorder.recycle(done.snapshot);
        for (explanation, own) in &done.explanations {
            self.summary.explained(explanation, *own);
        }
    }

    /// Takes what is still under way, prints the summary, and gives the number of late responses.
    pub fn finish(mut self) -> Result<u64, Failure> {
        let deadline = monotonic_now().plus(self.plan.post_ns + 1_000_000_000);
        if self.recorder.is_armed() && self.plan.post_ns > NOTABLE_WAIT_NS {
            let post = rtscope_view::duration_text(self.plan.post_ns);
            crate::output::note(&format!(
                "rtscope: waiting for the end of the last recording (--post {post}); Ctrl-C again ends it without a summary"
            ));
        }
        while self.recorder.is_armed() && (monotonic_now() < deadline || !self.writer.is_free()) {
            self.poll(monotonic_now())?;
            std::thread::sleep(POLL_BUSY);
        }
        self.ebpf.enable(false);
        self.take_reports();
        self.explain_the_rest()?;
        self.misses.add(monotonic_now(), &self.ebpf.recursion_misses());
        let stats = self.recorder.stats();
        let late = stats.late;
        self.summary.own.is_apart = self.placement.is_apart();
        self.report.summary(
            &self.summary,
            &stats,
            &self.recorder,
            self.misses.total(),
            monotonic_now().since(self.started),
        );
        self.failure.map_or(Ok(late), Err)
    }

    /// At the end: what the banks still hold explains the late responses since the last snapshot.
    fn explain_the_rest(&mut self) -> Result<(), Failure> {
        if let Some(done) = self.writer.wait()? {
            self.take_finished(done);
        }
        self.explain_without_snapshot()?;
        for done in self.writer.finish() {
            self.take_finished(done);
        }
        Ok(())
    }
}

/// How far back the copy has to reach to have all of these from their origins on.
fn earliest(late: &[LateResponse], or: MonotonicNs) -> MonotonicNs {
    late.iter().map(|late| late.chain.origin.time_ns.minus(1_000_000)).fold(or, MonotonicNs::min)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The listener: polls a few mapped words, drains the reports, copies frozen banks. Between two polls it sleeps.
//!
//! It needs no priority and no wakeup: what was detected waits in memory. Its only deadline is that a ring of reports
//! (256 per CPU) is not overrun, which would be counted.

mod snapshots;

use super::actions::Actions;
use super::backlog::Backlog;
use super::counted::Counted;
use super::describe::Describer;
use super::ftrace::FtraceRecorder;
use super::hardware::HardwareFlight;
use super::intervals;
use super::measured;
use super::observable::is_judged_later;
use super::pending::{self, Timeout, operation};
use super::plan::Plan;
use super::rates::{UserRates, account_of};
use super::shares::SnapshotShares;
use super::stacks::Stacks;
use super::state::{self, Door, FollowedTracker, WatchState};
use super::summary::Summary;
use super::writer::{Settings, Writer};
use super::{HeldHistory, WatchStart};
use crate::command::Child;
use crate::metrics::MetricsServer;
use crate::placement::Placement;
use crate::program_flight::ProgramFlight;
use crate::{Failure, Observer, Stop, wall_clock};
use rtscope_analyze::summary::Report;
use rtscope_event::{LateResponse, MonotonicNs, OriginKind, Tracker};
use rtscope_flight::{FlightRecorder, MissCounter, TrackerStats, monotonic_now};
use rtscope_kernel::{EbpfPrograms, PairTable, RaisedLimits};
use std::net::SocketAddr;
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

/// What records for snapshots beside eBPF.
#[derive(Debug)]
pub struct Recorders {
    pub ftrace: Option<FtraceRecorder>,
    pub programs: Option<ProgramFlight>,
    pub hardware: Option<HardwareFlight>,
}

/// A watch under way.
#[derive(Debug)]
pub struct Listener {
    recorder: FlightRecorder,
    ftrace: Option<FtraceRecorder>,
    programs: Option<ProgramFlight>,
    hardware: Option<HardwareFlight>,
    writer: Writer,
    observer: Arc<dyn Observer>,
    actions: Arc<Actions>,
    /// Answers who asks for metrics.
    metrics: Option<MetricsServer>,
    misses: MissCounter,
    /// What the first tracker counts beside what is late.
    counted: Option<Counted>,
    backlog: Backlog,
    /// By instance.
    summaries: Vec<Summary>,
    plan: Plan,
    placement: Placement,
    started: MonotonicNs,
    next_slow: MonotonicNs,
    last_late: MonotonicNs,
    /// There was no task with the target's name yet.
    waits_for_target: bool,
    history_told: bool,
    /// What was named by its number is gone.
    target_has_ended: bool,
    /// What system calls and locks are called.
    names: Describer,
    /// Of snapshots that intervals ask for.
    pulls: UserRates,
    /// How much users' programs may cause to be saved.
    shares: SnapshotShares,
    /// Late intervals without a snapshot of their own.
    suppressed: u64,
    /// Events that the tracker `pair` could not pair, as far as that has been told.
    pairs_told: u64,
    /// Of its first events, those that had no second at the end.
    open_pairs: u64,
    /// Its first events that wait; `None`: it does not run.
    pair_table: Option<PairTable>,
    /// How many of them found no place until room was made last, and how many were given up for that.
    pairs_full: u64,
    pairs_given_up: u64,
    /// What limits that rise have come to.
    raised: RaisedLimits,
    /// Looks for what hangs.
    timeout: Option<Timeout>,
    /// Where one can ask what is under way; `None`: there is no place for it.
    door: Option<Door>,
    /// Where what is late was; `None`: nobody wants to know.
    stacks: Option<Stacks>,
    /// What had not ended when the time was over, as far as nothing was heard of it since.
    pending: Vec<LateResponse>,
    /// Why it ended before its time.
    failure: Option<Failure>,
    /// Behind its mappings: see [`EbpfPrograms`].
    ebpf: EbpfPrograms,
}

impl Listener {
    /// Over eBPF programs that have just been started.
    pub fn new(
        plan: Plan,
        ebpf: EbpfPrograms,
        beside: Recorders,
        (observer, placement, actions): (Arc<dyn Observer>, Placement, Arc<Actions>),
    ) -> Result<Listener, Failure> {
        let recorder = FlightRecorder::new(ebpf.memory(&plan.ebpf)?, ebpf.started());
        let settings = Settings {
            dir: plan.snapshot_dir.clone(),
            pre_ns: plan.pre_ns,
            post_ns: plan.post_ns,
            watched: plan.watched_text(),
            explain_text: plan.explain_text,
            clock: wall_clock::now()?,
        };
        let writer = Writer::start(settings, Arc::clone(&observer), Arc::clone(&actions))?;
        let mut misses = MissCounter::default();
        let timeout = Timeout::new(&ebpf, &plan)?;
        let stacks = Stacks::new(&ebpf, &plan.ebpf)?;
        let (pair_table, raised) = (ebpf.pair_table()?, ebpf.raised_limits()?);
        let started = monotonic_now();
        misses.add(started, &ebpf.recursion_misses());
        Ok(Listener {
            ebpf,
            recorder,
            ftrace: beside.ftrace,
            programs: beside.programs,
            hardware: beside.hardware,
            writer,
            observer,
            actions,
            metrics: None,
            misses,
            counted: plan.count.map(|count| Counted::new(plan.trackers[0].0, count, started)),
            backlog: Backlog::default(),
            names: Describer::new(plan.pair.as_ref().map(|(_, tracepoints)| tracepoints.clone())),
            pairs_told: 0,
            open_pairs: 0,
            pair_table,
            pairs_full: 0,
            pairs_given_up: 0,
            raised,
            pulls: UserRates::new(plan.interval_ns),
            shares: SnapshotShares::new(plan.snapshot_dir.as_deref(), plan.snapshots_bytes),
            summaries: plan.trackers.iter().map(|_| Summary::default()).collect(),
            plan,
            placement,
            started,
            next_slow: started.plus(SLOW_NS),
            last_late: MonotonicNs(0),
            waits_for_target: false,
            history_told: false,
            target_has_ended: false,
            suppressed: 0,
            timeout,
            // Without it a watch is no worse.
            door: state::directory().and_then(|directory| Door::open(&directory).ok()),
            stacks,
            pending: Vec::new(),
            failure: None,
        })
    }

    /// Lets others ask for metrics there.
    pub fn serve_metrics(&mut self, address: Option<SocketAddr>) -> Result<(), Failure> {
        let Some(address) = address else { return Ok(()) };
        let server = MetricsServer::start(address)
            .map_err(|error| Failure::doing(format!("serving metrics on {address} (--metrics)"), error))?;
        self.observer.note(&format!("metrics: http://{}/metrics", server.address()));
        self.metrics = Some(server);
        Ok(())
    }

    /// Says what is watched.
    pub fn introduce(&mut self) {
        self.waits_for_target = self.plan.task.is_some() && self.matching_tasks() == 0;
        self.observer.watching(&WatchStart {
            target: &self.plan.target_text(),
            end: self.plan.end.name(),
            trackers: &self.plan.trackers,
            own_targets: &self.plan.own_targets,
            irqs: &self.plan.irqs,
            begin: &self.plan.begin,
            cpus: self.ebpf.cpus(),
            absent: self.ebpf.absent().iter().map(|spec| spec.tracepoint).collect(),
            waits_for_target: self.waits_for_target,
            tracepoints: self.ftrace.as_ref().map(FtraceRecorder::number),
            programs: self.programs.as_ref().map(ProgramFlight::number),
            between: self.plan.question(),
        });
        if let Some(sample_ns) = self.ebpf.sample_ns() {
            self.observer.note(&format!(
                "irqoff: an interrupt of each CPU every {} us; sections with interrupts off are known to that",
                sample_ns / 1000
            ));
        }
    }

    /// What does not have the stacks that it should have.
    fn tell_stacks(&self) {
        let Some(stacks) = &self.stacks else { return };
        if let Some(why) = self.ebpf.stacks_missing() {
            self.observer.note(&format!("offcpu: no stacks of what is late: {why}"));
        }
        let lost = stacks.lost();
        if lost > 0 {
            self.observer.note(&format!(
                "{lost} stacks were not copied, since too many tasks were late at once (as many detections or wakers have none)"
            ));
        }
    }

    fn matching_tasks(&self) -> usize {
        self.plan.matching_tasks(&self.ebpf.dump_tasks().unwrap_or_default())
    }

    /// Has the target come, or gone; how long is the history.
    fn every_second(&mut self) {
        let numbered = self.plan.numbered.filter(|_| self.plan.command.is_empty());
        if let Some(target) = numbered.filter(|target| !self.target_has_ended && target.has_ended()) {
            self.target_has_ended = true;
            self.observer.note(&format!("{target} has ended, and with it the watch"));
        }
        if self.waits_for_target {
            let found = self.matching_tasks();
            if found > 0 {
                self.waits_for_target = false;
                self.observer.note(&format!("found {found} of {}", self.plan.target_text()));
            }
        }
        self.tell_what_is_not_paired();
        if let (Some(stacks), Some(pid)) = (&mut self.stacks, self.plan.target_pid()) {
            stacks.remember_once(pid);
        }
        if !std::mem::replace(&mut self.history_told, true) {
            self.observer.history(&self.held_history());
        }
    }

    /// While it goes on: the first time, and then each time that there are twice as many.
    fn tell_what_is_not_paired(&mut self) {
        let Some(table) = &self.pair_table else { return };
        let stats = self.recorder.stats(0);
        // Beginnings that never end, such as forks without exec, would else leave no place for any other.
        if stats.pairs_full > self.pairs_full {
            self.pairs_full = stats.pairs_full;
            self.pairs_given_up += table.give_up_older_half();
        }
        let Some(text) = intervals::not_paired(&stats, self.pairs_given_up, &mut self.pairs_told) else {
            return;
        };
        self.observer.note(&text);
    }

    fn held_history(&self) -> HeldHistory {
        let elapsed = monotonic_now().since(self.recorder.started());
        let bank_bytes = self.plan.bank_bytes();
        let held =
            |bytes: &u64| (*bytes > 0).then(|| (bank_bytes as f64 / *bytes as f64 * elapsed as f64) as u64);
        let held_ns = self.recorder.written().iter().map(held).collect();
        HeldHistory { bank_bytes, held_ns, pre_ns: self.plan.pre_ns }
    }

    /// Until somebody asks us to stop, the time is over, or COMMAND has ended.
    pub fn listen(&mut self, stop: &Stop, child: &mut Option<Child>) {
        self.listen_until(stop, child);
        // From now on nobody is answered: who waits for that is told so by the end of the connection.
        self.door = None;
        // Before COMMAND is asked to end: that ends whatever hangs in it.
        match pending::at_the_end(&self.ebpf, &self.plan, monotonic_now()) {
            Ok(pending) => self.pending = pending,
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
    }

    fn listen_until(&mut self, stop: &Stop, child: &mut Option<Child>) {
        loop {
            let now = monotonic_now();
            let over = self.plan.duration_ns.is_some_and(|duration| now.since(self.started) >= duration);
            let has_ended = self.target_has_ended || child.as_mut().is_some_and(Child::has_ended);
            if stop.asked() || over || has_ended {
                return;
            }
            if let Err(failure) = self.poll(now) {
                self.observer.note(&format!("{failure}; the watch ends here"));
                self.failure = Some(failure);
                return;
            }
            std::thread::sleep(self.pause(now));
        }
    }

    fn pause(&self, now: MonotonicNs) -> Duration {
        // Until they are frozen, circles lose the oldest of what led to it.
        let busy = self.hardware.is_some() || self.recorder.is_armed() || now.since(self.last_late) < BUSY_NS;
        if busy { POLL_BUSY } else { POLL_IDLE }
    }

    fn poll(&mut self, now: MonotonicNs) -> Result<(), Failure> {
        self.freeze_units()?;
        self.placement.follow(now, || self.ebpf.dump_tasks().ok());
        self.take_intervals();
        self.freeze_units()?;
        self.take_reports();
        self.tell_what_hangs(now)?;
        self.tell_who_asks(now);
        self.tell_metrics(now);
        self.tell_counts(now);
        if let Some(done) = self.writer.poll()? {
            self.take_finished(done)?;
        }
        if now >= self.next_slow {
            self.next_slow = now.plus(SLOW_NS);
            self.misses.add(now, &self.ebpf.recursion_misses());
            self.every_second();
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

    /// As soon as it is known that something was late.
    fn freeze_units(&mut self) -> Result<(), Failure> {
        match &mut self.hardware {
            Some(hardware) if self.recorder.is_armed() => hardware.freeze(),
            _ => Ok(()),
        }
    }

    fn take_reports(&mut self) {
        let mut all = self.recorder.late_responses();
        match &mut self.stacks {
            Some(stacks) => stacks.add_to(&mut all),
            None => all.iter_mut().for_each(|late| late.stacks = None),
        }
        for mut late in all {
            late.instance += self.plan.outside_kernel();
            self.names.describe(&mut late);
            self.take_report(late);
        }
    }

    fn take_report(&mut self, late: LateResponse) {
        self.pending.retain(|pending| operation(pending) != operation(&late));
        if !is_judged_later(&late) {
            self.actions.late(&late);
        }
        self.last_late = self.last_late.max(late.end_ns);
        if let Some(oldest) = self.backlog.push(late) {
            if is_judged_later(&oldest) {
                self.actions.late(&oldest);
            }
            self.summary_of(oldest.instance).unexplained(&oldest);
        }
    }

    fn tell_what_hangs(&mut self, now: MonotonicNs) -> Result<(), Failure> {
        let Some(timeout) = &mut self.timeout else { return Ok(()) };
        for mut stuck in timeout.look(&self.ebpf, &self.plan, now)? {
            self.names.describe(&mut stuck.late);
            self.observer.stuck(&stuck);
        }
        Ok(())
    }

    /// Who asks what is under way (`rtscope state`). Costs a system call while nobody does.
    fn tell_who_asks(&mut self, now: MonotonicNs) {
        let Some(door) = self.door.take() else { return };
        door.answer(|| self.state(now));
        self.door = Some(door);
    }

    /// Who asks for metrics. Costs two loads while nobody does.
    fn tell_metrics(&mut self, now: MonotonicNs) {
        let Some(server) = self.metrics.as_ref().filter(|server| server.is_asked()) else { return };
        let instances = self.plan.trackers.iter().zip(&self.summaries).enumerate();
        let all: Vec<measured::Instance> = instances
            .map(|(index, ((tracker, threshold_ns), summary))| measured::Instance {
                tracker: *tracker,
                threshold_ns: *threshold_ns,
                worst_reported_ns: self.worst_ns(index),
                stats: self.stats(index),
                snapshots: summary.snapshots,
                failed_snapshots: summary.failed_snapshots,
            })
            .collect();
        let watch = measured::Watch {
            elapsed_ns: now.since(self.started),
            misses: self.misses.total(),
            unreadable_reports: self.recorder.unreadable_reports(),
            given_up: self.pairs_given_up,
            actions: self.actions.report(),
        };
        server.answer(measured::exposition(&all, &watch));
    }

    fn tell_counts(&mut self, now: MonotonicNs) {
        if self.counted.as_ref().is_some_and(|counted| now >= counted.next) {
            self.misses.add(now, &self.ebpf.recursion_misses());
            self.tell_counts_of(now);
        }
    }

    fn tell_counts_of(&mut self, now: MonotonicNs) {
        let programs = self.programs.as_ref().filter(|_| self.plan.between.is_some());
        if let Some(counted) = &mut self.counted {
            let beside = (self.misses.total(), self.pairs_given_up);
            self.observer.counted(counted.read(now, (&self.recorder, programs), beside));
        }
    }

    fn state(&mut self, now: MonotonicNs) -> Option<WatchState> {
        let mut all = pending::under_way(&self.ebpf, &self.plan, now).ok()?;
        all.iter_mut().for_each(|late| self.names.describe(late));
        let followed = self.plan.trackers.iter().enumerate();
        let followed = followed.map(|(instance, (tracker, threshold_ns))| FollowedTracker {
            tracker: *tracker,
            threshold_ns: *threshold_ns,
            is_seen_pending: tracker.is_seen_pending() && self.plan.in_kernel(instance).is_some(),
        });
        Some(WatchState::new(self.plan.watched_text(), followed.collect(), all))
    }

    /// What has not ended is late, too, where it is beyond the limit.
    fn take_pending(&mut self) {
        for mut late in std::mem::take(&mut self.pending) {
            if self.plan.record_breakers && !self.breaks_record(&mut late) {
                continue;
            }
            self.names.describe(&mut late);
            let summary = self.summary_of(late.instance);
            summary.pending += 1;
            summary.pending_max_ns = summary.pending_max_ns.max(late.response_ns());
            self.take_report(late);
        }
    }

    /// The kernel has raised the limit to the worst that ended; these are the longest first.
    fn breaks_record(&mut self, late: &mut LateResponse) -> bool {
        let ended_ns = self.worst_ns(usize::from(late.instance));
        let pending_ns = self.summary_of(late.instance).pending_max_ns;
        let limit_ns = late.threshold_ns.max(ended_ns).max(pending_ns);
        late.threshold_ns = limit_ns;
        late.response_ns() > limit_ns
    }

    /// Late intervals between two events of programs: what the tracker does for responses is done here.
    fn take_intervals(&mut self) {
        let Some(programs) = self.programs.as_ref().filter(|_| self.plan.between.is_some()) else { return };
        let (all, notes) = programs.late_intervals();
        notes.iter().for_each(|note| self.observer.note(note));
        for mut late in all {
            late.snapshot = self.pull(account_of(&late));
            self.suppressed += u64::from(late.snapshot.is_none());
            self.take_report(late);
        }
    }

    /// What the kernel has counted of an instance.
    fn stats(&self, instance: usize) -> TrackerStats {
        self.plan.in_kernel(instance).map(|number| self.recorder.stats(number)).unwrap_or_default()
    }

    /// The worst that was reported of it, where its limit rises.
    fn worst_ns(&self, instance: usize) -> u64 {
        self.plan.in_kernel(instance).map_or(0, |number| self.raised.worst_ns(number))
    }

    fn pull(&mut self, account: Option<u32>) -> Option<u64> {
        let now = monotonic_now();
        let is_admitted = self.pulls.admits(account, now) && self.shares.admits(account, now);
        let number = is_admitted.then(|| self.recorder.pull(self.plan.post_ns))??;
        self.pulls.taken(account, now);
        self.shares.pulled(number, account);
        Some(number)
    }

    /// Of an instance; what no instance has asked for is the first one's.
    fn summary_of(&mut self, instance: u8) -> &mut Summary {
        let index = usize::from(instance);
        let known = if index < self.summaries.len() { index } else { 0 };
        &mut self.summaries[known]
    }

    /// Takes what is still under way, and gives the summary of each instance.
    pub fn finish(mut self) -> Result<Vec<Report>, Failure> {
        self.ebpf.blind_spots().iter().for_each(|text| self.observer.note(text));
        // Intervals that ended since the last look: the kernel still records, so the last of them may have its snapshot.
        if let Some(programs) = self.programs.as_ref().filter(|_| self.plan.between.is_some()) {
            programs.last_look();
            self.take_intervals();
        }
        let deadline = monotonic_now().plus(self.plan.post_ns + 1_000_000_000);
        if self.recorder.is_armed() && self.plan.post_ns > NOTABLE_WAIT_NS {
            self.observer.waiting_for_last_snapshot(self.plan.post_ns);
        }
        while self.recorder.is_armed() && (monotonic_now() < deadline || !self.writer.is_free()) {
            self.poll(monotonic_now())?;
            std::thread::sleep(POLL_BUSY);
        }
        self.ebpf.enable(false);
        self.open_pairs = pending::open_pairs(&self.ebpf, &self.plan)?;
        self.take_reports();
        self.tell_stacks();
        self.take_pending();
        self.explain_the_rest()?;
        self.actions.end();
        self.misses.add(monotonic_now(), &self.ebpf.recursion_misses());
        self.tell_counts_of(monotonic_now());
        let reports: Vec<Report> = (0..self.plan.trackers.len()).map(|index| self.report(index)).collect();
        // It may have been shorter than the time between two looks for it.
        let is_unseen = |report: &Report| {
            let counters = &report.counters;
            counters.seen + counters.filtered + counters.unlinked == 0
        };
        if self.waits_for_target && reports.iter().all(is_unseen) {
            let target = self.plan.target_text();
            self.observer
                .note(&format!("{target} never appeared; names are those of /proc/PID/comm (ps -eLo comm)"));
        }
        reports.iter().for_each(|report| self.observer.watched(report));
        if let Some(report) = self.actions.report() {
            self.observer.acted(&report);
        }
        self.failure.map_or(Ok(reports), Err)
    }

    fn report(&mut self, instance: usize) -> Report {
        let mut stats = self.stats(instance);
        let summary = &mut self.summaries[instance];
        // They count as the rest, but for the distribution: how long they will be is not known.
        stats.seen += summary.pending;
        stats.late += summary.pending;
        stats.late = stats.late.saturating_sub(summary.unobserved_responses());
        summary.own.is_apart = self.placement.is_apart();
        let (tracker, threshold_ns) = self.plan.trackers[instance];
        let counts = Counts {
            tracker,
            instance: instance as u8,
            task: self.plan.own_targets[instance].clone(),
            elapsed_ns: monotonic_now().since(self.started),
            threshold_ns,
            begin: if tracker == Tracker::Response { self.plan.begin.clone() } else { Vec::new() },
            misses: self.misses.total(),
            unreadable_reports: self.recorder.unreadable_reports(),
        };
        let mut report = summary.report(&stats, &counts);
        report.task = self.plan.own_targets[instance].clone();
        let is_between = self.plan.in_kernel(instance).is_none();
        if let (true, Some((pair, _)), Some(programs)) = (is_between, &self.plan.between, &self.programs) {
            intervals::add_to(&mut report, pair, programs.interval_counts(), self.suppressed);
        }
        if let Some((pair, _)) = self.plan.pair.as_ref().filter(|_| tracker == Tracker::Pair) {
            intervals::add_losses(&mut report, &stats, self.pairs_given_up);
            report.between =
                Some(intervals::of_tracepoints(pair, &stats, (self.open_pairs, self.pairs_given_up)));
        }
        report
    }
}

/// What a summary has beside the tracker's own counts.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub tracker: Tracker,
    pub instance: u8,
    /// The name of its own targets.
    pub task: Option<String>,
    pub elapsed_ns: u64,
    pub threshold_ns: u64,
    pub begin: Vec<OriginKind>,
    /// Of runs of eBPF programs that the kernel skipped; `None`: not known.
    pub misses: Option<u64>,
    pub unreadable_reports: u64,
}

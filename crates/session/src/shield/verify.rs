// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What really ran on the shielded CPUs for a while.
//!
//! The flight recorder records it, and is read twice a second by a thread that stays on the other CPUs: what it holds of a quiet CPU
//! reaches back for minutes, so only the other CPUs' part, which shows the senders of interrupts, needs the hurry.

use super::checks::{self, Check, CheckContext, Verdict};
use crate::cpu_recorder::CpuRecorder;
use crate::{Failure, Observer, Stop};
use rtscope_analyze::timeline::Timeline;
use rtscope_analyze::visits::Visits;
use rtscope_event::counted;
use rtscope_event::{CpuId, MonotonicNs, Recording, Tid};
use rtscope_flight::monotonic_now;
use rtscope_shield::health;
use rtscope_shield::journal::Journal;
use rtscope_shield::{Cpus, System, boot, place, plan, tasks};
use std::thread::sleep;
use std::time::Duration;

/// How often the buffers are read.
const PERIOD: Duration = Duration::from_millis(500);
/// The tracepoint that shows the senders of interrupts.
const SENDER: &str = "ipi_send_cpu";

/// What is being found out.
struct Watch<'a> {
    system: &'a System,
    journal: Option<Journal>,
    visits: Vec<Visits>,
    context: Vec<CheckContext>,
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct VerifySettings {
    /// The CPUs; `None`: those of the shield.
    pub rt: Option<String>,
    /// How long.
    pub duration_ns: u64,
    /// Memory for the newest events of each CPU.
    pub buffer_bytes: usize,
}

/// What came to pass on one CPU.
#[derive(Debug)]
pub struct CpuReport {
    /// Who was there.
    pub visits: Visits,
    /// What is to be said of it.
    pub checks: Vec<Check>,
    /// Events that were lost, as far as they were counted.
    pub lost: u64,
}

/// What came to pass on the CPUs.
#[derive(Debug)]
pub struct VerifyReport {
    /// There was a shield.
    pub shield: bool,
    /// This kernel shows who sends interrupts.
    pub senders_known: bool,
    /// By CPU.
    pub cpus: Vec<CpuReport>,
}

impl VerifyReport {
    /// How many checks came to this.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cpus.iter().flat_map(|cpu| &cpu.checks).filter(|check| check.verdict == verdict).count()
    }

    /// Whether all is well.
    ///
    /// # Errors
    /// Checks that failed, or could not be decided.
    pub fn result(&self) -> Result<(), Failure> {
        match (self.count(Verdict::Fail), self.count(Verdict::Unknown)) {
            (0, 0) => Ok(()),
            (0, unknown) => Err(Failure::Failed(format!(
                "{} unknown, since events were lost; use a larger --buffer",
                counted(unknown, "check is", "checks are")
            ))),
            (broken, _) => Err(Failure::ChecksFailed(counted(broken, "check failed", "checks failed"))),
        }
    }
}

/// Watches until the time is over, or it is asked to stop.
///
/// # Errors
/// What kept it from watching.
pub fn verify(
    system: &System,
    settings: &VerifySettings,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<VerifyReport, Failure> {
    let journal = match &settings.rt {
        Some(_) => place::active(system).ok(),
        None => Some(place::active(system)?),
    };
    let (rt, others) = match (&settings.rt, &journal) {
        (None, Some(journal)) => whole(system, journal, observer)?,
        (rt, _) => plan::split(system, rt.as_deref().unwrap_or_default())?,
    };
    stay_on(&others)?;
    let tickless = boot::is_tickless(system, &rt);
    let kept = journal.as_ref().map_or_else(Vec::new, |journal| journal.kept_irqs.clone());
    let context =
        |_| CheckContext { tickless, kept: kept.iter().copied().collect(), ..CheckContext::default() };
    let mut watch = Watch {
        system,
        journal,
        visits: rt.iter().map(|cpu| Visits::new(CpuId(cpu))).collect(),
        context: rt.iter().map(context).collect(),
    };
    let mut recorder = CpuRecorder::start(settings.buffer_bytes, &[SENDER, "ipi_send_cpumask"])?;
    let senders_known = recorder.has(SENDER);
    // Switching on sends interrupts to all CPUs; that is ours, and over now.
    let begin = monotonic_now();
    watch.who_is_there();
    let (end, mut from) = (MonotonicNs(begin.0.saturating_add(settings.duration_ns)), begin);
    while from < end && !stop.asked() {
        sleep(PERIOD.min(Duration::from_nanos(end.since(from))));
        let (recording, until) = recorder.read(from)?;
        watch.add(&recording, from, until);
        from = until;
    }
    recorder.stop();
    if recorder.misses() != Some(0) {
        // Of which CPU is not known.
        watch.context.iter_mut().for_each(|context| context.lost += recorder.misses().unwrap_or(1));
    }
    Ok(watch.report(senders_known))
}

/// The shield's CPUs and the others, as far as they are online. What is wrong with it as a whole is reported first.
fn whole(system: &System, journal: &Journal, observer: &dyn Observer) -> Result<(Cpus, Cpus), Failure> {
    let health = health::health(system, journal);
    for problem in &health.problems {
        observer.note(&problem.what);
    }
    let down = health.problems.iter().find(|problem| problem.is_down);
    match down.filter(|_| health.rt.is_empty() || health.others.is_empty()) {
        Some(problem) => Err(Failure::ChecksFailed(format!("every check fails: {}", problem.what))),
        None => Ok((health.rt, health.others)),
    }
}

/// Reading the buffers must not disturb those that are watched.
pub(super) fn stay_on(others: &Cpus) -> Result<(), Failure> {
    let failed = |errno: nix::errno::Errno| Failure::doing("leaving the real-time CPUs", errno.desc());
    rtscope_cpus::Thread::Calling.set_cpus(others).map_err(failed)
}

impl Watch<'_> {
    /// Whatever can run on a CPU while no switch happens there does run. When several can, the next switch shows which.
    fn who_is_there(&mut self) {
        let tasks = tasks::all(self.system);
        for visits in &mut self.visits {
            let here = |task: &&tasks::Task| task.runnable && task.cpu == Some(visits.cpu().0);
            match tasks.iter().filter(here).collect::<Vec<_>>()[..] {
                [] => visits.begin_with(Tid(0)),
                [task] => visits.begin_with(Tid(task.thread.tid as u32)),
                _ => {}
            }
        }
    }

    fn add(&mut self, recording: &Recording, from: MonotonicNs, until: MonotonicNs) {
        let timeline = Timeline::new(recording);
        // Who has been brought in belongs to it, too; a shield that is gone keeps those that it had.
        if let Some(now) = self.journal.as_ref().and_then(|_| place::active(self.system).ok()) {
            self.journal = Some(now);
        }
        let residents = self.journal.as_ref().map(|journal| place::residents(self.system, journal));
        let residents: Vec<u32> = residents.into_iter().flatten().map(|tid| tid as u32).collect();
        // Nobody may move unbound workers either, but they go where the work queues are allowed to be. An interrupt's thread belongs to
        // where its interrupt does.
        let kept = self.journal.as_ref().map_or_else(Vec::new, |journal| journal.kept_irqs.clone());
        let is_kept = |name: &str| kept.iter().any(|irq| name.starts_with(&format!("irq/{irq}-")));
        let is_bound = |task: &tasks::Task| {
            task.bound && !task.thread.name.starts_with("kworker/u")
                || task.kernel && is_kept(&task.thread.name)
        };
        let bound = tasks::all(self.system).into_iter().filter(is_bound);
        let bound: Vec<u32> = bound.map(|task| task.thread.tid as u32).collect();
        for (visits, context) in self.visits.iter_mut().zip(&mut self.context) {
            visits.add(recording, &timeline, from, until);
            context.residents.extend(&residents);
            context.bound.extend(&bound);
            let here = recording.losses.iter().filter(|loss| loss.cpu.is_none_or(|cpu| cpu == visits.cpu()));
            context.lost += here.map(|loss| loss.count.unwrap_or(1)).sum::<u64>();
        }
    }

    fn report(self, senders_known: bool) -> VerifyReport {
        let judged = |(visits, context): (Visits, CheckContext)| {
            let checks = checks::evaluate(&visits, &context);
            CpuReport { visits, checks, lost: context.lost }
        };
        let cpus = self.visits.into_iter().zip(self.context).map(judged).collect();
        VerifyReport { shield: self.journal.is_some(), senders_known, cpus }
    }
}

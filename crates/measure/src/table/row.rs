// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row: the shield it wants, its loads, the waiter, and everything gone again.

use super::child::{Child, shared_words};
use super::figures::{Latency, Work};
use super::guard::Guard;
use super::loads::{KINDS, LoadDescriptions, Loads};
use super::report::{Row, RowKind, RowResult};
use super::waiter::{self, Board, Plan};
use super::{LendingShieldMaker, Settings};
use nix::unistd::pipe2;
use rtscope_artis::probe;
use rtscope_kernel::TimerWatch;
use rtscope_session::{Failure, Observer, Stop};
use rtscope_shield::apply::{self, UndoOutcome, first_complaint};
use rtscope_shield::journal::Journal;
use rtscope_shield::knobs::Level;
use rtscope_shield::{System, place, plan};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// How often the waiter is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Without a limit: three times what the samples should take, and a little.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Loads shall be at work before it is measured: the first writes only fill memory.
const SETTLE: Duration = Duration::from_millis(500);

/// The settings of each row.
#[derive(Clone, Copy, Debug)]
pub struct RowSettings {
    pub waiter: Plan,
    /// Compute loops.
    pub loops: usize,
}

impl RowSettings {
    pub fn of(settings: &Settings, cpu: u32, cpus: usize) -> RowSettings {
        let &Settings { samples, period_ns, priority, .. } = settings;
        let limit_ns = samples.saturating_mul(period_ns).saturating_mul(3).saturating_add(PATIENCE_NS);
        let limit_ns = settings.limit_ns.unwrap_or(limit_ns);
        RowSettings { waiter: Plan { cpu, priority, period_ns, samples, limit_ns }, loops: cpus }
    }

    /// Words of the loads' counters.
    fn counters(&self) -> usize {
        KINDS.len() + self.loops
    }
}

/// What all rows need.
pub struct Measurement<'a> {
    pub system: &'a System,
    /// The real-time CPUs.
    pub rt: String,
    pub settings: RowSettings,
    pub directory: &'a Path,
    pub make_lending: &'a LendingShieldMaker<'a>,
    pub watch: Option<&'a TimerWatch>,
    pub stop: &'a Stop,
    pub observer: &'a dyn Observer,
    /// What the loads of the first row that had some were.
    pub loads: Option<LoadDescriptions>,
}

impl<'a> Measurement<'a> {
    /// Measures one. What this machine cannot do is in the row, and no failure.
    pub fn row(&mut self, kind: RowKind) -> Result<Row, Failure> {
        self.observer.step(kind.name());
        let shield = match self.shield(kind) {
            None => None,
            Some(Ok(guard)) => Some(guard),
            Some(Err(why)) => {
                // A word for each thing that is missing would be a line each.
                return Ok(Row { kind, outcome: Err(why.to_string().replace('\n', " ")) });
            }
        };
        let result = self.measure(kind, shield.is_some());
        let fallen = fallen(self.system, kind);
        // Whatever came of it.
        let undone = shield.map(Guard::undo).transpose()?;
        if let Some(why) = fallen {
            return Ok(Row { kind, outcome: Err(why) });
        }
        let (mut result, loads) = result?;
        if let Some(loads) = loads {
            self.loads.get_or_insert(loads);
        }
        result.not_undone =
            undone.into_iter().flatten().filter_map(|(step, undone)| left(&step.place(), undone)).collect();
        Ok(Row { kind, outcome: Ok(Box::new(result)) })
    }

    /// The shield that a row wants.
    fn shield(&self, kind: RowKind) -> Option<Result<Guard<'a>, Failure>> {
        let (system, observer, rt) = (self.system, self.observer, self.rt.as_str());
        let made = match kind {
            RowKind::Unloaded | RowKind::Stock => return None,
            RowKind::Shield => plan::plan(system, rt, Level::Basic).map_err(Failure::from).and_then(|plan| {
                Guard::create(system, observer, || Ok(apply::create(system, &plan).map(drop)?))
            }),
            RowKind::Artis => why_no_artis().map_or(Ok(()), Err).and_then(|()| {
                let plan = plan::plan_lent(system, rt, Level::Basic, &[])?;
                Guard::create(system, observer, || (self.make_lending)(&plan))
            }),
        };
        Some(made)
    }

    fn measure(
        &self,
        kind: RowKind,
        shielded: bool,
    ) -> Result<(RowResult, Option<LoadDescriptions>), Failure> {
        let settings = &self.settings;
        let counters = settings.counters();
        let memory = shared_words(Board::words(counters, settings.waiter.samples))?;
        let board = Board::new(memory, counters);
        let mut loads = None;
        if kind != RowKind::Unloaded {
            self.observer.progress(&format!("{}: starting the loads", kind.name()));
            let events = self.loads.as_ref().map(|loads| loads.events).filter(|events| *events > 0);
            let stopped = || self.stop.asked();
            loads =
                Some(Loads::start(&board, settings.loops, self.directory, events, &stopped, self.observer)?);
            sleep(SETTLE);
        }
        let misses = || self.watch.and_then(TimerWatch::misses);
        let missed_before = misses();
        let cut = self.wait(kind, &board, shielded)?;
        let missed = misses().zip(missed_before).map(|(now, before)| now.saturating_sub(before));
        let lost_load = loads.as_mut().is_some_and(Loads::has_ended);
        let descriptions = loads.take().map(|loads| loads.descriptions.clone());
        let samples = board.samples();
        let duration_ns = board.duration_ns();
        let result = RowResult {
            user: Latency::of(samples.user),
            kernel: Latency::of(samples.kernel),
            wake_up: Latency::of(samples.wake_up),
            skipped: board.skipped(),
            elsewhere: board.elsewhere(),
            misses: missed,
            duration_ns,
            work: descriptions.is_some().then(|| work(&board, settings.loops, duration_ns)),
            cut: cut.or(lost_load.then(|| "a load ended unexpectedly".to_owned())),
            not_undone: Vec::new(),
        };
        Ok((result, descriptions))
    }

    /// Lets the waiter measure; says why it ended early.
    fn wait(&self, kind: RowKind, board: &Board, shielded: bool) -> Result<Option<String>, Failure> {
        let plan = self.settings.waiter;
        let expiry = self.watch.map(TimerWatch::expiry).transpose()?;
        let (gate, word) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)
            .map_err(|error| Failure::doing("starting the waiter", error.desc()))?;
        let (gate, mut word) = (File::from(gate), Some(File::from(word)));
        let mut child = Child::start("rtscope-waiter", |report| {
            // Its own end of the pipe would keep it from seeing that ours is gone.
            word = None;
            waiter::run(&plan, board, expiry.as_ref(), gate, report)
        })?;
        child.ready()?;
        if shielded {
            let steps = place::enter(self.system, child.pid(), Some(plan.cpu))?;
            first_complaint(&steps).map_or(Ok(()), |why| Err(Failure::Failed(why)))?;
        }
        if let Some(mut word) = word {
            word.write_all(b"!").map_err(|error| Failure::doing("starting the waiter", error))?;
        }
        while !child.has_ended() && !self.stop.asked() {
            sleep(LOOK_EVERY);
            self.observer.progress(&format!(
                "{}: {} of {} wakeups",
                kind.name(),
                board.count(),
                plan.samples
            ));
        }
        Ok(match (board.is_done(), board.count() < plan.samples) {
            (false, _) if self.stop.asked() => Some("stopped".to_owned()),
            (false, _) => Some(child.complaint()),
            (true, true) => Some("its time was over".to_owned()),
            (true, false) => None,
        })
    }
}

/// Why a row is not what its name says: the kernel can end the scheduler at any time, and then its CPUs are isolated.
fn fallen(system: &System, kind: RowKind) -> Option<String> {
    if kind != RowKind::Artis {
        return None;
    }
    let why = match Journal::load(system) {
        Ok(Some(journal)) => journal.keeper?.fallen?,
        Ok(None) => "somebody else undid the shield".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!("it did not last: {}", why.replace('\n', " ")))
}

/// The first thing that is missing, in a line.
fn why_no_artis() -> Option<Failure> {
    let missing = probe::probe().missing.into_iter().next()?;
    Some(Failure::Missing(format!("{}: missing ({})", missing.what, missing.probed)))
}

fn left(place: &str, undone: UndoOutcome) -> Option<String> {
    match undone {
        UndoOutcome::Restored | UndoOutcome::Nothing => None,
        UndoOutcome::Foreign { now } => {
            Some(format!("{place}: changed to {now} by somebody else, and left alone"))
        }
        UndoOutcome::Failed { why } => Some(format!("{place}: {why}")),
    }
}

fn work(board: &Board, loops: usize, duration_ns: u64) -> Work {
    let seconds = duration_ns.max(1) as f64 / 1e9;
    let per_s = |counter: usize| board.done_by(counter) as f64 / seconds;
    Work {
        compute_of_stock: None,
        compute_per_s: (0..loops).map(|cpu| per_s(KINDS.len() + cpu)).sum(),
        disk_mb_per_s: per_s(0) / 1e6,
        echoes_per_s: per_s(1),
        ioctls_per_s: per_s(2),
    }
}

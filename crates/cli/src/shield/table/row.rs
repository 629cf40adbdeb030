// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row: the shield it wants, its loads, the waiter, and everything gone again.

use super::child::{Child, shared_words};
use super::figures::{Latency, Work};
use super::guard::Guard;
use super::loads::{KINDS, LoadDescriptions, Loads};
use super::options::{RowArg, TableOptions};
use super::waiter::{self, Board, Plan};
use super::{Progress, Table};
use crate::exit::Failure;
use crate::shield::artis;
use crate::stop::Stop;
use nix::unistd::pipe2;
use rtscope_artis::probe;
use rtscope_kernel::TimerWatch;
use rtscope_shield::apply::{self, UndoOutcome};
use rtscope_shield::journal::Journal;
use rtscope_shield::knobs::Level;
use rtscope_shield::{System, place, plan};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// How often the waiter is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Without --duration: three times what the samples should take, and a little.
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
    pub fn of(options: &TableOptions, cpu: u32, cpus: usize) -> RowSettings {
        let (samples, period_ns) = (options.samples.0, options.rate.0);
        let limit_ns = samples.saturating_mul(period_ns).saturating_mul(3).saturating_add(PATIENCE_NS);
        let limit_ns = options.duration.map_or(limit_ns, |duration| duration.0);
        RowSettings {
            waiter: Plan { cpu, priority: options.prio, period_ns, samples, limit_ns },
            loops: cpus,
        }
    }

    /// Words of the loads' counters.
    fn counters(&self) -> usize {
        KINDS.len() + self.loops
    }
}

/// A row.
#[derive(Debug)]
pub struct Row {
    pub kind: RowArg,
    /// What was measured, or why not.
    pub outcome: Result<Box<RowResult>, String>,
}

/// What was measured.
#[derive(Debug)]
pub struct RowResult {
    pub user: Option<Latency>,
    pub kernel: Option<Latency>,
    pub wake_up: Option<Latency>,
    pub skipped: u64,
    pub elsewhere: u64,
    /// Times that the kernel left out one of our two programs, for whatever timer; `None`: not known.
    pub misses: Option<u64>,
    pub duration_ns: u64,
    pub work: Option<Work>,
    pub loads: Option<LoadDescriptions>,
    /// Why it has fewer samples than requested.
    pub cut: Option<String>,
    /// What of the shield could not be set back.
    pub not_undone: Vec<String>,
}

impl Row {
    pub fn name(&self) -> &'static str {
        name(self.kind)
    }

    pub fn result(&self) -> Option<&RowResult> {
        self.outcome.as_deref().ok()
    }

    /// For `--json`.
    pub fn json(&self, stock: Option<&Work>) -> Value {
        let result = match &self.outcome {
            Ok(result) => result,
            Err(why) => return json!({ "row": self.name(), "missing": why }),
        };
        json!({
            "row": self.name(),
            "missing": null,
            "duration_ns": result.duration_ns,
            "user_latency": result.user.as_ref().map(Latency::json),
            "kernel_latency": result.kernel.as_ref().map(Latency::json),
            "wake_up_latency": result.wake_up.as_ref().map(Latency::json),
            "skipped": result.skipped,
            "interrupts_elsewhere": result.elsewhere,
            "program_misses": result.misses,
            "work": result.work.as_ref().map(|work| work.json(stock)),
            "cut": result.cut,
            "not_undone": result.not_undone,
        })
    }
}

fn name(kind: RowArg) -> &'static str {
    match kind {
        RowArg::Unloaded => "stock unloaded",
        RowArg::Stock => "stock loaded",
        RowArg::Shield => "shield loaded",
        RowArg::Artis => "artis loaded",
    }
}

/// Measures one. What this machine cannot do is in the row, and no failure.
pub fn measure(
    system: &System,
    kind: RowArg,
    table: &Table,
    options: &TableOptions,
    watch: Option<&TimerWatch>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Row, Failure> {
    progress.begin(name(kind));
    let shield = match shield(system, kind, &table.rt.to_string()) {
        None => None,
        Some(Ok(guard)) => Some(guard),
        Some(Err(why)) => {
            // A word for each thing that is missing would be a line each.
            return Ok(Row { kind, outcome: Err(why.to_string().replace('\n', " ")) });
        }
    };
    let context =
        RowContext { system, table, directory: &options.dir, watch, stop, progress, name: name(kind) };
    let result = context.measure(kind != RowArg::Unloaded, shield.is_some());
    let fallen = fallen(system, kind);
    // Whatever came of it.
    let undone = shield.map(Guard::undo).transpose()?;
    if let Some(why) = fallen {
        return Ok(Row { kind, outcome: Err(why) });
    }
    let mut result = result?;
    result.not_undone =
        undone.into_iter().flatten().filter_map(|(step, undone)| left(&step.place(), undone)).collect();
    Ok(Row { kind, outcome: Ok(Box::new(result)) })
}

/// The shield that a row wants.
fn shield<'a>(system: &'a System, kind: RowArg, rt: &str) -> Option<Result<Guard<'a>, Failure>> {
    let made = match kind {
        RowArg::Unloaded | RowArg::Stock => return None,
        RowArg::Shield => plan::plan(system, rt, Level::Basic)
            .map_err(Failure::from)
            .and_then(|plan| Guard::create(system, || Ok(apply::create(system, &plan).map(drop)?))),
        RowArg::Artis => why_no_artis().map_or(Ok(()), Err).and_then(|()| {
            let plan = plan::plan_lent(system, rt, Level::Basic, &[])?;
            Guard::create(system, || artis::create(system, &plan).map(drop))
        }),
    };
    Some(made)
}

/// Why a row is not what its name says: the kernel can end the scheduler at any time, and then its CPUs are isolated.
fn fallen(system: &System, kind: RowArg) -> Option<String> {
    if kind != RowArg::Artis {
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

/// What the measurement of a row needs.
struct RowContext<'a> {
    system: &'a System,
    table: &'a Table,
    directory: &'a Path,
    watch: Option<&'a TimerWatch>,
    stop: &'a Stop,
    progress: &'a Progress,
    name: &'a str,
}

impl RowContext<'_> {
    fn measure(&self, loaded: bool, shielded: bool) -> Result<RowResult, Failure> {
        let settings = &self.table.settings;
        let counters = settings.counters();
        let memory = shared_words(Board::words(counters, settings.waiter.samples))?;
        let board = Board::new(memory, counters);
        let mut loads = None;
        if loaded {
            self.progress.go_on(&format!("{}: starting the loads", self.name));
            let events = self.table.loads.as_ref().map(|loads| loads.events).filter(|events| *events > 0);
            let stopped = || self.stop.asked();
            loads = Some(Loads::start(&board, settings.loops, self.directory, events, &stopped)?);
            sleep(SETTLE);
        }
        let misses = || self.watch.and_then(TimerWatch::misses);
        let missed_before = misses();
        let cut = self.wait(&board, shielded)?;
        let missed = misses().zip(missed_before).map(|(now, before)| now.saturating_sub(before));
        let lost_load = loads.as_mut().is_some_and(Loads::has_ended);
        let descriptions = loads.take().map(|loads| loads.descriptions.clone());
        let samples = board.samples();
        let duration_ns = board.duration_ns();
        Ok(RowResult {
            user: Latency::of(samples.user),
            kernel: Latency::of(samples.kernel),
            wake_up: Latency::of(samples.wake_up),
            skipped: board.skipped(),
            elsewhere: board.elsewhere(),
            misses: missed,
            duration_ns,
            work: descriptions.is_some().then(|| work(&board, settings.loops, duration_ns)),
            loads: descriptions,
            cut: cut.or(lost_load.then(|| "a load ended unexpectedly".to_owned())),
            not_undone: Vec::new(),
        })
    }

    /// Lets the waiter measure; says why it ended early.
    fn wait(&self, board: &Board, shielded: bool) -> Result<Option<String>, Failure> {
        let plan = self.table.settings.waiter;
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
            super::super::check(&place::enter(self.system, child.pid(), Some(plan.cpu))?)?;
        }
        if let Some(mut word) = word {
            word.write_all(b"!").map_err(|error| Failure::doing("starting the waiter", error))?;
        }
        while !child.has_ended() && !self.stop.asked() {
            sleep(LOOK_EVERY);
            self.progress.go_on(&format!("{}: {} of {} wakeups", self.name, board.count(), plan.samples));
        }
        Ok(match (board.is_done(), board.count() < plan.samples) {
            (false, _) if self.stop.asked() => Some("stopped".to_owned()),
            (false, _) => Some(child.complaint()),
            (true, true) => Some("its time was over".to_owned()),
            (true, false) => None,
        })
    }
}

fn work(board: &Board, loops: usize, duration_ns: u64) -> Work {
    let seconds = duration_ns.max(1) as f64 / 1e9;
    let per_s = |counter: usize| board.done_by(counter) as f64 / seconds;
    Work {
        compute_per_s: (0..loops).map(|cpu| per_s(KINDS.len() + cpu)).sum(),
        disk_mb_per_s: per_s(0) / 1e6,
        echoes_per_s: per_s(1),
        ioctls_per_s: per_s(2),
    }
}

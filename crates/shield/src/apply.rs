// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making a shield, undoing it, and looking at it.
//!
//! Undoing does not ask how far making came. It compares each setting with the journal: the old value is left, the shield's
//! value is replaced by the old one, and any other value is somebody else's.

use crate::effective::{self, DisplacedInterrupt, EffectiveAffinity};
use crate::form::Form;
use crate::journal::{Journal, Lock, State};
use crate::kept::KEPT_IRQ;
use crate::knobs::{IRQ, KEPT, MOVED, PARTITION};
use crate::plan::Plan;
use crate::policy::{self, Scheduling};
use crate::step::{Outcome, Step, Target};
use crate::tasks::Thread;
use crate::{Cpus, Error, System, tasks};
use nix::errno::Errno;
use serde::Serialize;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// How long undoing waits for another process: bringing in a process takes a moment, and so does isolating lent CPUs.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often threads are moved from one group to another until none is left: a task that forks adds new ones.
const SWEEPS: usize = 50;

/// What became of a setting when the shield was undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "undone", rename_all = "snake_case")]
pub enum UndoOutcome {
    /// It has its old value again.
    Restored,
    /// It had its old value, or is not there any more.
    Nothing,
    /// Somebody else has changed it since; it was left.
    Foreign {
        /// What it is now.
        now: String,
    },
    /// The old value could not be written.
    Failed {
        /// In the kernel's words.
        why: String,
    },
}

/// The state of a setting now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "now", rename_all = "snake_case")]
pub enum CurrentState {
    /// As the shield wants it.
    AsWanted,
    /// Not so.
    Drifted {
        /// What it reads.
        value: String,
    },
    /// It was refused when the shield was made.
    Refused {
        /// In the kernel's words.
        why: String,
    },
    /// The thread has ended, or the file is gone.
    Gone,
}

/// Makes a shield. What single settings refused is in the journal that comes back.
pub fn create(system: &System, plan: &Plan) -> Result<Journal, Error> {
    create_kept(system, plan, |_| Ok(()))
}

/// Makes a shield whose CPUs a scheduler lends. `keep` starts the process that holds it, and saves the journal when it has the
/// process' number; when it fails, everything is undone.
pub fn create_kept(
    system: &System,
    plan: &Plan,
    keep: impl FnOnce(&mut Journal) -> Result<(), Error>,
) -> Result<Journal, Error> {
    let lock = Lock::take(system)?;
    match Journal::load(system)? {
        None => {}
        Some(journal) => match journal.state {
            State::Left => {}
            State::Active => return Err(Error::Exists(journal.rt)),
            State::Creating | State::Undoing => return Err(Error::Interrupted),
        },
    }
    let mut journal = Journal::new(system, plan);
    journal.save(system)?;
    match make(system, plan, &mut journal, keep) {
        Ok(()) => Ok(journal),
        Err(error) => {
            undo_with(system, journal, true, &lock)?;
            Err(error)
        }
    }
}

/// Carries out a journal. When it fails, also because the journal cannot be saved any more, the caller undoes what was done.
fn make(
    system: &System,
    plan: &Plan,
    journal: &mut Journal,
    keep: impl FnOnce(&mut Journal) -> Result<(), Error>,
) -> Result<(), Error> {
    for step in &mut journal.steps {
        let outcome = apply(system, step);
        let stands_apart = step.knob != PARTITION || matches!(outcome, Outcome::Applied);
        step.outcome = Some(outcome.clone());
        if !stands_apart {
            let why = match outcome {
                Outcome::Refused { why } => why,
                Outcome::Differs { now } => now,
                _ => String::new(),
            };
            return Err(Error::Partition(format!("{}: {why}", step.place())));
        }
    }
    if journal.apart.needs_affinities() {
        catch_up(system, plan, journal)?;
    }
    keep(journal)?;
    journal.state = State::Active;
    journal.save(system)
}

/// Moves tasks away, too, that were started while the others were being moved.
fn catch_up(system: &System, plan: &Plan, journal: &mut Journal) -> Result<(), Error> {
    for _ in 0..SWEEPS {
        let mut new = plan.tasks(system).0;
        new.retain(|step| journal.steps.iter().all(|known| known.target != step.target));
        if new.is_empty() {
            break;
        }
        let known = journal.steps.len();
        journal.steps.extend(new);
        journal.save(system)?;
        for step in &mut journal.steps[known..] {
            step.outcome = Some(apply(system, step));
        }
    }
    Ok(())
}

/// What to report about a step that did not do what was wanted.
pub fn complaint(step: &Step) -> Option<String> {
    match step.outcome.as_ref()? {
        Outcome::Refused { why } => Some(why.clone()),
        Outcome::Differs { now } => Some(format!("the kernel made it '{}'", now.trim())),
        Outcome::Applied | Outcome::Gone => None,
    }
}

/// The first step that did not do what was wanted, and what to report about it.
pub fn first_complaint(steps: &[Step]) -> Option<String> {
    steps.iter().find_map(|step| complaint(step).map(|why| format!("{}: {why}", step.place())))
}

/// Does a step.
pub fn apply(system: &System, step: &Step) -> Outcome {
    if step.knob == KEPT {
        return Outcome::Applied;
    }
    let refused = |why: String| Outcome::Refused { why };
    let done = match &step.target {
        Target::File { path, .. } => system.write(path, &step.wanted),
        Target::Group { .. } if step.old.is_some() => return Outcome::Applied,
        Target::Group { path } => system.make_directory(path),
        Target::Affinity { thread } if !thread.lives(system) => return Outcome::Gone,
        Target::Affinity { thread } => match Cpus::from_list(&step.wanted) {
            Ok(cpus) => thread.set_cpus(system, &cpus).map_err(io::Error::from),
            Err(why) => return refused(why),
        },
        Target::Policy { thread } if !thread.lives(system) => return Outcome::Gone,
        Target::Policy { thread } => set_policy(thread, &step.wanted),
        Target::Threads { from, to } => return threads(system, from, to),
        Target::Member { process } => system.write(&procs(&step.wanted), &process.tid.to_string()),
    };
    match done {
        Err(_) if matches!(&step.target, Target::Affinity { thread } if !thread.lives(system)) => {
            Outcome::Gone
        }
        Err(error) => refused(error.to_string()),
        Ok(()) => match now(system, step) {
            Ok(Some(now)) if !step.form().same(&now, &step.wanted) => Outcome::Differs { now },
            Ok(_) => Outcome::Applied,
            Err(error) => refused(format!("it cannot be read back: {error}")),
        },
    }
}

fn set_policy(thread: &Thread, text: &str) -> io::Result<()> {
    let scheduling = Scheduling::parse(text)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("'{text}' is not a policy")))?;
    policy::set(thread.tid, &scheduling).map_err(io::Error::from)
}

/// The file that takes processes into a group.
fn procs(group: &str) -> String {
    format!("{group}/cgroup.procs")
}

/// A setting's value, in the form in which it is written; `None` where there is nothing.
fn now(system: &System, step: &Step) -> io::Result<Option<String>> {
    let absent = |error: io::Error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ESRCH | Errno::ENODEV) => Ok(None),
        _ => Err(error),
    };
    match &step.target {
        Target::File { read, form, .. } => {
            system.read(read).map(|text| Some(form.value(&text))).or_else(absent)
        }
        Target::Group { path } => Ok(system.exists(path).then(|| "there".to_owned())),
        Target::Affinity { thread } if !thread.lives(system) => Ok(None),
        Target::Affinity { thread } => {
            thread.cpus(system).map(|cpus| Some(cpus.to_string())).map_err(io::Error::from).or_else(absent)
        }
        Target::Policy { thread } if !thread.lives(system) => Ok(None),
        Target::Policy { thread } => {
            let scheduling = policy::of(thread.tid).map(|now| Some(now.to_string()));
            scheduling.map_err(io::Error::from).or_else(absent)
        }
        Target::Threads { .. } => Ok(Some(step.wanted.clone())),
        Target::Member { process } if !process.lives(system) => Ok(None),
        Target::Member { process } => {
            Ok(is_in(system, process.tid, &step.wanted).then(|| step.wanted.clone()))
        }
    }
}

fn members(system: &System, group: &str, file: &str) -> Vec<String> {
    // A big machine's root has more than one reading may take.
    let text = system.read_whole(&format!("{group}/{file}")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Whether a process is in a group.
pub fn is_in(system: &System, pid: i32, group: &str) -> bool {
    members(system, group, "cgroup.procs").contains(&pid.to_string())
}

/// Moves all threads that may move from one group of version 1 to another.
fn threads(system: &System, from: &str, to: &str) -> Outcome {
    let target = format!("{to}/tasks");
    for _ in 0..SWEEPS {
        let moved =
            members(system, from, "tasks").iter().filter(|tid| system.write(&target, tid).is_ok()).count();
        if moved == 0 {
            break;
        }
    }
    Outcome::Applied
}

/// A shield that was undone.
#[derive(Clone, Debug, Default)]
pub struct UndoneShield {
    /// What became of each setting.
    pub settings: Vec<(Step, UndoOutcome)>,
    /// Interrupts that come elsewhere than before, as the kernel chose.
    pub displaced: Vec<DisplacedInterrupt>,
}

/// Undoes the shield that the journal tells of.
pub fn undo(system: &System, force: bool) -> Result<UndoneShield, Error> {
    let lock = Lock::take_within(system, PATIENCE)?;
    let journal = Journal::load(system)?.ok_or(Error::None)?;
    if journal.state == State::Left && !force {
        return Err(Error::None);
    }
    undo_with(system, journal, force, &lock)
}

/// The lock is a witness only: the caller holds it.
fn undo_with(
    system: &System,
    mut journal: Journal,
    force: bool,
    _lock: &Lock,
) -> Result<UndoneShield, Error> {
    let is_repeated = std::mem::replace(&mut journal.state, State::Undoing) == State::Undoing;
    // On a full disk the journal stays as it was, which has all that is to be undone: that must not wait for space.
    let _ = journal.save(system);
    // Its scheduler goes before any setting that it counts on.
    if let Some(keeper) = &journal.keeper {
        keeper.end(system)?;
    }
    let by_the_kernel = by_the_kernel(&journal);
    let cpus = |list: &str| Cpus::from_list(list).unwrap_or_default();
    let cpus = (cpus(&journal.rt), cpus(&journal.others));
    let effective = if is_repeated { journal.effective.as_slice() } else { &[] };
    let others = OtherWriters { by_the_kernel, cpus, effective };
    let undo = |step: &Step| (step.clone(), undo_step(system, step, force, &others));
    let mut all: Vec<(Step, UndoOutcome)> = in_order(&journal.steps).map(undo).collect();
    let displaced = effective::restore(system, &journal.effective, &mut all);
    if journal.apart.needs_affinities() {
        release_children(system, &journal);
    }
    let left: Vec<Step> = all
        .iter()
        .filter(|(_, undone)| matches!(undone, UndoOutcome::Foreign { .. } | UndoOutcome::Failed { .. }))
        .map(|(step, _)| step.clone())
        .rev()
        .collect();
    all.reverse();
    if left.is_empty() {
        Journal::remove(system)?;
        return Ok(UndoneShield { settings: all, displaced });
    }
    let failed = all.iter().any(|(_, undone)| matches!(undone, UndoOutcome::Failed { .. }));
    journal.state = if failed { State::Undoing } else { State::Left };
    journal.steps = left;
    journal.save(system)?;
    Ok(UndoneShield { settings: all, displaced })
}

/// Values that neither the shield nor somebody else has written.
struct OtherWriters<'a> {
    /// What tasks may use that the kernel moves by itself.
    by_the_kernel: Vec<String>,
    /// The real-time CPUs and the others.
    cpus: (Cpus, Cpus),
    /// What undoing itself writes for a moment, if it was killed before.
    effective: &'a [EffectiveAffinity],
}

/// The last first, but for processes that were brought in: out of the partition they go before anything else, and only when it is gone
/// does the kernel take any affinity of theirs.
fn in_order(steps: &[Step]) -> impl Iterator<Item = &Step> {
    let turn = |step: &&Step| match &step.target {
        Target::Member { .. } | Target::Policy { .. } => 0,
        Target::Affinity { .. } if step.knob == MOVED => 2,
        _ => 1,
    };
    (0..3).flat_map(move |now| steps.iter().rev().filter(move |step| turn(step) == now))
}

/// What the kernel lets tasks use that it moves by itself when CPUs are isolated, and when they come back.
fn by_the_kernel(journal: &Journal) -> Vec<String> {
    let (rt, others) = (Cpus::from_list(&journal.rt), Cpus::from_list(&journal.others));
    match (rt, others) {
        (Ok(rt), Ok(others)) if journal.apart.group().is_some() => {
            let all: Cpus = rt.iter().chain(others.iter()).collect();
            vec![all.to_string(), others.to_string()]
        }
        _ => Vec::new(),
    }
}

/// Whether an interrupt was moved by the kernel because all CPUs that it was sent to were switched off: then it goes to all that are left
/// (`irq_migrate_all_off_this_cpu` in the kernel's kernel/irq/cpuhotplug.c).
fn is_driven_off(step: &Step, value: &str, (rt, others): &(Cpus, Cpus)) -> bool {
    let (true, Some(now), Some(wanted)) = (
        [IRQ, KEPT_IRQ].contains(&step.knob.as_str()),
        step.form().cpus(value),
        step.form().cpus(&step.wanted),
    ) else {
        return false;
    };
    let all: Cpus = rt.iter().chain(others.iter()).collect();
    now.is_apart_from(&wanted) && [&all.without(&wanted), rt, others].contains(&&now)
}

fn undo_step(system: &System, step: &Step, force: bool, others: &OtherWriters<'_>) -> UndoOutcome {
    let failed = |error: io::Error| UndoOutcome::Failed { why: error.to_string() };
    let Some(old) = &step.old else {
        return match &step.target {
            Target::Group { path } => remove_group(system, path),
            _ => UndoOutcome::Nothing,
        };
    };
    let value = match now(system, step) {
        Ok(Some(value)) => value,
        Ok(None) => return UndoOutcome::Nothing,
        // It could not be read before either, or its device is broken: writing the old value is the best that can be done.
        Err(_) if force => String::new(),
        Err(error) => return failed(error),
    };
    // Leaving the partition has changed what a process may use, whatever it reads.
    let moved = step.knob == MOVED && matches!(step.target, Target::Affinity { .. });
    if step.form().same(&value, old) && !moved {
        return UndoOutcome::Nothing;
    }
    let taken = matches!(&step.outcome, Some(Outcome::Differs { now }) if step.form().same(now, &value))
        || matches!(step.target, Target::Affinity { .. }) && others.by_the_kernel.contains(&value)
        || is_driven_off(step, &value, &others.cpus)
        || effective::is_halfway(others.effective, step, &value);
    // Nobody else has a say in the partition of our own group, and the kernel itself changes it ("isolated invalid").
    let own = step.knob == PARTITION && step.form() == Form::Word && old == "member";
    // A plain file is emptied before it is written; the kernel's are not.
    let emptied = value.is_empty() && !system.is_real();
    if !(force || taken || own || moved || emptied || step.form().same(&value, &step.wanted)) {
        return UndoOutcome::Foreign { now: value.trim().to_owned() };
    }
    let written = match &step.target {
        Target::File { path, .. } => system.write(path, old),
        Target::Affinity { thread } => match Cpus::from_list(old) {
            Ok(cpus) => thread.set_cpus(system, &cpus).map_err(io::Error::from),
            Err(why) => Err(io::Error::new(ErrorKind::InvalidData, why)),
        },
        Target::Policy { thread } => set_policy(thread, old),
        Target::Member { process } => system.write(&procs(old), &process.tid.to_string()),
        Target::Group { .. } | Target::Threads { .. } => Ok(()),
    };
    match written {
        Ok(()) => UndoOutcome::Restored,
        Err(_) if matches!(now(system, step), Ok(None)) => UndoOutcome::Nothing,
        Err(error) => failed(error),
    }
}

/// Empties a group of ours into the one above, and removes it.
fn remove_group(system: &System, path: &str) -> UndoOutcome {
    if !system.exists(path) {
        return UndoOutcome::Nothing;
    }
    let above = path.rsplit_once('/').map_or("/", |(above, _)| above);
    let file = if system.exists(&format!("{path}/tasks")) { "tasks" } else { "cgroup.procs" };
    let mut last = None;
    for _ in 0..SWEEPS {
        for member in members(system, path, file) {
            // A task that has ended by now cannot be moved, and need not.
            let _ = system.write(&format!("{above}/{file}"), &member);
        }
        match system.remove_directory(path) {
            Ok(()) => return UndoOutcome::Restored,
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => last = Some(error),
            Err(error) => return UndoOutcome::Failed { why: error.to_string() },
        }
    }
    UndoOutcome::Failed { why: last.map_or_else(String::new, |error| error.to_string()) }
}

/// Where tasks were moved away one by one, tasks that they have started since inherited that. They get all CPUs back.
fn release_children(system: &System, journal: &Journal) {
    let (Ok(rt), Ok(others), Some(began)) =
        (Cpus::from_list(&journal.rt), Cpus::from_list(&journal.others), journal.began)
    else {
        return;
    };
    let all = Cpus::from_iter(rt.iter().chain(others.iter()));
    for task in tasks::all(system).into_iter().filter(|task| !task.kernel && task.thread.start >= began) {
        if task.thread.cpus(system).is_ok_and(|cpus| cpus == others) {
            // It may have ended just now.
            let _ = task.thread.set_cpus(system, &all);
        }
    }
}

/// How each setting of the shield is now.
pub fn status(system: &System, journal: &Journal) -> Vec<(Step, CurrentState)> {
    let look = |step: &Step| match (&step.outcome, now(system, step)) {
        (Some(Outcome::Refused { why }), _) => CurrentState::Refused { why: why.clone() },
        (_, Ok(None)) => CurrentState::Gone,
        (_, Ok(Some(value))) if step.form().same(&value, &step.wanted) => CurrentState::AsWanted,
        (_, Ok(Some(value))) => CurrentState::Drifted { value: value.trim().to_owned() },
        (_, Err(error)) => CurrentState::Drifted { value: error.to_string() },
    };
    let shown = journal.steps.iter().filter(|step| step.knob != KEPT);
    shown.map(|step| (step.clone(), look(step))).collect()
}

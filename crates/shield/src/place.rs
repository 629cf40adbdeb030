// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bringing processes into the shield.
//!
//! Where a process was goes into the journal first, so that undoing puts it back.

use crate::apply::{self, is_in};
use crate::journal::{Journal, Lock, State};
use crate::knobs::MOVED;
use crate::step::{Outcome, Step, Target};
use crate::tasks::{self, Task};
use crate::{Cpus, Error, System};

/// The shield that is there.
pub fn active(system: &System) -> Result<Journal, Error> {
    match Journal::load(system)? {
        None => Err(Error::None),
        Some(journal) => match journal.state {
            State::Active => Ok(journal),
            State::Left => Err(Error::None),
            State::Creating | State::Undoing => Err(Error::Interrupted),
        },
    }
}

/// Which of the shield's CPUs to use: all, or this one.
pub fn cpus(journal: &Journal, cpu: Option<u32>) -> Result<Cpus, Error> {
    let rt = Cpus::from_list(&journal.rt).map_err(Error::Cpus)?;
    match cpu {
        None => Ok(rt),
        Some(cpu) if rt.contains(cpu) => Ok(Cpus::from_iter([cpu])),
        Some(cpu) => Err(Error::Cpus(format!("--cpu {cpu}: the shield has CPUs {rt}"))),
    }
}

/// The threads that belong to the shield: its control group's, or without one those that were brought in.
pub fn residents(system: &System, journal: &Journal) -> Vec<i32> {
    let numbers = |file: &str| -> Option<Vec<i32>> {
        let text = system.read_whole(&format!("{}/{file}", journal.apart.group()?)).ok()?;
        Some(text.lines().filter_map(|line| line.parse().ok()).collect())
    };
    let moved = || {
        let steps = journal.steps.iter().filter(|step| step.knob == MOVED);
        let threads = steps.filter_map(|step| match &step.target {
            Target::Affinity { thread } => Some(thread.tid),
            _ => None,
        });
        threads.collect()
    };
    // Version 2 and version 1 of control groups.
    numbers("cgroup.threads").or_else(|| numbers("tasks")).unwrap_or_else(moved)
}

/// Moves a process with all of its threads. The outcomes are those of the single steps; the first that is refused is the last.
pub fn enter(system: &System, pid: i32, cpu: Option<u32>) -> Result<Vec<Step>, Error> {
    let _lock = Lock::wait(system)?;
    let mut journal = active(system)?;
    let cpus = cpus(&journal, cpu)?;
    let threads = tasks::of(system, pid);
    let Some(first) = threads.iter().find(|task| task.thread.tid == pid) else {
        return Err(Error::Cpus(format!("there is no process {pid}")));
    };
    if threads.iter().any(|task| task.kernel) {
        return Err(Error::Cpus(format!("{pid} ({}) is a kernel thread; it stays", first.thread.name)));
    }
    let mut steps = Vec::new();
    if let Some(group) = journal.apart.group().filter(|group| !is_in(system, pid, group)) {
        steps.push(member(system, first, &group));
    }
    let others = Cpus::from_list(&journal.others).map_err(Error::Cpus)?;
    let all: Cpus = self::cpus(&journal, None)?.iter().chain(others.iter()).collect();
    let before = |now: Cpus| if now == others { all.clone() } else { now };
    steps.extend(threads.iter().filter_map(|task| affinity(system, task, &cpus, before)));
    // What has ended needs no way back, and would pile up.
    journal.steps.retain(|step| match &step.target {
        Target::Affinity { thread: known }
        | Target::Policy { thread: known }
        | Target::Member { process: known }
            if step.knob == MOVED =>
        {
            known.lives(system)
        }
        _ => true,
    });
    let known = journal.steps.len();
    journal.steps.extend(steps);
    journal.save(system)?;
    for step in &mut journal.steps[known..] {
        step.outcome = Some(apply::apply(system, step));
        if matches!(step.outcome, Some(Outcome::Refused { .. })) {
            break;
        }
    }
    journal.save(system)?;
    Ok(journal.steps.split_off(known))
}

pub(crate) fn member(system: &System, task: &Task, group: &str) -> Step {
    // Our group is right below the mount.
    let mount = group.rsplit_once('/').map_or("/", |(mount, _)| mount);
    Step {
        knob: MOVED.to_owned(),
        label: task.thread.name.clone(),
        target: Target::Member { process: task.thread.clone() },
        old: home(system, task.thread.tid, mount).map(|home| format!("{mount}{home}")),
        wanted: group.to_owned(),
        outcome: None,
    }
}

/// The group that a process is in, below the mount: cgroup(7) has `0::PATH` for version 2 and `N:CONTROLLERS:PATH` for 1.
fn home(system: &System, pid: i32, mount: &str) -> Option<String> {
    let text = system.read(&format!("/proc/{pid}/cgroup")).ok()?;
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    });
    let version_2 = system.exists(&format!("{mount}/cgroup.controllers"));
    let ours = |controllers: &str| match version_2 {
        true => controllers.is_empty(),
        false => controllers.split(',').any(|name| name == "cpuset"),
    };
    let path = lines.into_iter().find(|(controllers, _)| ours(controllers))?.1;
    Some(path.trim_end_matches('/').to_owned())
}

/// `before`: what a thread could use before there was a shield, from what it may use now. A thread that may use all that the shield
/// leaves could use all; the kernel does not tell more.
fn affinity(system: &System, task: &Task, cpus: &Cpus, before: impl Fn(Cpus) -> Cpus) -> Option<Step> {
    let old = before(task.thread.cpus(system).ok()?);
    Some(Step {
        knob: MOVED.to_owned(),
        label: task.thread.name.clone(),
        target: Target::Affinity { thread: task.thread.clone() },
        old: Some(old.to_string()),
        wanted: cpus.to_string(),
        outcome: None,
    })
}

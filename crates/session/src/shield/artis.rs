// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A shield whose CPUs are lent: what must be so before a scheduler can lend the CPUs, and starting the process that holds
//! it (`keeper`).

use super::keeper;
use super::weights::IgnoredSettings;
use crate::{Failure, Observer};
use rtscope_artis::probe;
use rtscope_shield::journal::Journal;
use rtscope_shield::keeper::Keeper;
use rtscope_shield::partition::Isolation;
use rtscope_shield::plan::Plan;
use rtscope_shield::{Error, System, apply, boot, place, tasks};
use serde::Serialize;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};

/// What the two processes say, for later questions.
pub const LOG: &str = "/run/rtscope/artis.log";
/// How the kernel decides when to give a CPU to another task.
const PREEMPTION: &str = "/sys/kernel/debug/sched/preempt";

/// Makes a shield whose CPUs are lent.
///
/// # Errors
/// What stands in the way, or went wrong.
pub fn create(system: &System, plan: &Plan, observer: &dyn Observer) -> Result<Journal, Failure> {
    check(system, plan, observer)?;
    let journal = apply::create_kept(system, plan, |journal| start(system, journal))?;
    let ignored = IgnoredSettings::find(system);
    if !ignored.is_empty() {
        observer.note(&ignored.to_string());
    }
    Ok(journal)
}

/// What stands in the way.
fn check(system: &System, plan: &Plan, observer: &dyn Observer) -> Result<(), Failure> {
    if !matches!(place::active(system), Err(Error::None)) {
        // A shield, or half of one, whose scheduler may still run: reported by the code that makes the shield.
        return Ok(());
    }
    if boot::has_domain_isolation(system) {
        return Err(Failure::Missing(
            "the kernel was started with isolcpus= for the scheduler's domains, and then refuses every scheduler in eBPF; boot \
             without it (isolcpus=managed_irq,… and nohz_full= are fine), or use --mode shield"
                .into(),
        ));
    }
    if !system.is_real() {
        return Err(Failure::Usage("--mode artis: a scheduler needs a real machine, not --root".into()));
    }
    let probed = probe::probe();
    let missing: Vec<String> = probed.missing.iter().map(ToString::to_string).collect();
    if !missing.is_empty() {
        let all = missing.join("\n  ");
        return Err(Failure::Missing(format!(
            "--mode artis is not possible here:\n  {all}\n--mode shield needs none of this"
        )));
    }
    if let Some(name) = running() {
        return Err(Failure::Failed(format!(
            "another scheduler in eBPF (sched_ext) is running ({name}); the kernel allows one at a time: end it first"
        )));
    }
    let preemption = system.read(PREEMPTION).unwrap_or_default();
    if preemption.contains("(none)") || preemption.contains("(voluntary)") {
        return Err(Failure::Missing(format!(
            "the kernel does not preempt tasks within a system call, so that none could be moved: echo full > {PREEMPTION}, or boot with \
             preempt=full"
        )));
    }
    already_there(system, plan)?;
    probed.lacking.iter().for_each(|lack| observer.note(&lack.to_string()));
    Ok(())
}

/// Loading a scheduler disturbs all CPUs for some milliseconds, and while it lasts anybody may run anywhere.
fn already_there(system: &System, plan: &Plan) -> Result<(), Failure> {
    let is_one = |task: &tasks::Task| {
        let inside = |cpus: rtscope_shield::Cpus| !cpus.is_empty() && cpus.without(&plan.rt).is_empty();
        task.is_real_time() && !task.kernel && task.thread.cpus(system).is_ok_and(inside)
    };
    let there = tasks::all(system).into_iter().filter(is_one);
    let there: Vec<String> =
        there.map(|task| format!("{} ({})", task.thread.tid, task.thread.name)).collect();
    if there.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "real-time tasks run on CPUs {} already: {}. Loading the scheduler would disturb them for milliseconds: end them, make the \
         shield, and start them again",
        plan.rt,
        there.join(", ")
    )))
}

/// The scheduler in eBPF that the kernel has now.
fn running() -> Option<String> {
    let state = fs::read_to_string(format!("{}/state", probe::DIRECTORY)).ok()?;
    if state.trim() == "disabled" {
        return None;
    }
    let name = fs::read_to_string(probe::NAME).unwrap_or_default();
    Some(name.trim().to_owned())
}

/// Starts the process that holds the scheduler. It is in the journal before it does anything, so that undoing finds it.
fn start(system: &System, journal: &mut Journal) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Keeper(error.to_string());
    let mut child = spawn(&journal.rt).map_err(failed)?;
    journal.keeper = Some(Keeper::new(system, child.id() as i32)?);
    journal.save(system)?;
    let said = talk(&mut child).map_err(failed)?;
    let numbers = |said: &str| {
        let (counts, grants) = said.trim().split_once(' ')?;
        Some((counts.parse().ok()?, grants.parse().ok()?))
    };
    match said.strip_prefix(keeper::READY).and_then(numbers) {
        Some((counts, grants)) => {
            if let Some(keeper) = &mut journal.keeper {
                (keeper.counts, keeper.grants) = (Some(counts), Some(grants));
            }
            Ok(())
        }
        _ => Err(Error::Keeper(format!("{}; see {LOG}", said.trim()))),
    }
}

fn spawn(rt: &str) -> std::io::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).mode(0o644).open(LOG)?;
    Command::new(std::env::current_exe()?)
        .args(["shield", "keep", "--rt", rt])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
}

/// Says that it may begin, and takes its answer.
fn talk(child: &mut Child) -> std::io::Result<String> {
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Ok("it cannot be talked to".to_owned());
    };
    to.write_all(keeper::GO.as_bytes())?;
    let mut line = String::new();
    BufReader::new(from).read_line(&mut line)?;
    if line.is_empty() {
        line = "it ended without an answer".to_owned();
    }
    Ok(line)
}

/// Makes this process an RT1 task: real time, but behind RT0. `prio`: 1 to 40.
///
/// # Errors
/// When there is no scheduler, or it or the kernel refuses.
pub fn become_rt1(system: &System, journal: &Journal, prio: u8) -> Result<(), Failure> {
    if !status(system, journal).is_some_and(|status| status.runs) {
        return Err(Failure::Failed(
            "--class rt1 needs the scheduler: rtscope shield create --mode artis (see rtscope shield status)"
                .into(),
        ));
    }
    if prio > 40 {
        return Err(Failure::Usage(format!("--prio {prio}: rt1 has priorities 1 to 40")));
    }
    let grants = journal.keeper.as_ref().and_then(|keeper| keeper.grants).ok_or_else(|| {
        let text = "this shield was made by an older rtscope, whose scheduler knows no grants: undo it, and create it again";
        Failure::Failed(text.to_string())
    })?;
    // Anybody may have the policy; only a task with a grant, which its children inherit, is real-time work.
    rtscope_artis::grant(grants, std::process::id())?;
    crate::realtime::become_ext(20 - i32::from(prio))
        .map_err(|error| Failure::doing(format!("getting SCHED_EXT with priority {prio}"), error))
}

/// How the scheduler is.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Whether it lends the CPUs now.
    pub runs: bool,
    /// The process that holds it.
    pub keeper: i32,
    /// Why it does not run any more.
    pub fallen: Option<String>,
    /// Whether the CPUs are isolated instead.
    #[serde(rename = "apart")]
    pub isolated: bool,
}

/// How the scheduler of this shield is; `None`: it has none.
pub fn status(system: &System, journal: &Journal) -> Option<Status> {
    let keeper = journal.keeper.as_ref()?;
    Some(Status {
        runs: keeper.fallen.is_none() && keeper.lives(system) && running().is_some(),
        keeper: keeper.process.tid,
        fallen: keeper.fallen.clone(),
        isolated: journal.apart != Isolation::Lent,
    })
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.fallen, self.runs) {
            (Some(why), _) if !self.isolated => write!(
                out,
                "The scheduler has ended: {why}. The CPUs could NOT be isolated, so any task may run there; it is retried, and {LOG} has \
                 the reason."
            ),
            (Some(why), _) => write!(
                out,
                "The scheduler has ended: {why}. The CPUs are isolated instead, and not lent. rtscope shield undo, then create, starts it \
                 again; see {LOG}."
            ),
            (None, true) => write!(out, "The scheduler lends them (held by process {}).", self.keeper),
            (None, false) => write!(
                out,
                "The scheduler has ended, and the CPUs are not isolated: rtscope shield undo, then create; see {LOG}."
            ),
        }
    }
}

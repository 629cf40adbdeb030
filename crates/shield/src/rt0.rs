// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several real-time tasks on one CPU: which policy one gets, whether all can keep their deadlines then, and which tasks are there.

use crate::admission::{self, CpuLoad, Refusal, ReservedTime};
use crate::journal::{Journal, Lock};
use crate::knobs::MOVED;
use crate::place::active;
use crate::policy::{self, Policy, Scheduling};
use crate::step::{Outcome, Step, Target};
use crate::tasks::{self, Task};
use crate::{Cpus, Error, System};
use serde::Serialize;

/// What was found out while a thread was given a policy.
#[derive(Clone, Debug)]
pub struct Admission {
    /// How full the CPU is by what has been reserved, of those scheduled by deadlines with this one.
    pub fill: Option<CpuLoad>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Schedules a thread of the shield so, if the deadlines on its CPU can be kept, and as the kernel decides. `remember`: undoing gives it
/// back what it had.
///
/// # Errors
/// Why not, with figures. `force` goes on where only the deadlines are in the way.
pub fn schedule(
    system: &System,
    tid: i32,
    policy: Policy,
    force: bool,
    remember: bool,
) -> Result<Admission, Error> {
    // Two at once would each see a CPU without the other.
    let _lock = Lock::wait(system)?;
    let mut journal = active(system)?;
    let refused = |why: String| Error::NotAdmitted(format!("{policy}: {why}"));
    let tasks = tasks::all(system);
    let Some(task) = tasks.iter().find(|task| task.thread.tid == tid) else {
        return Err(Error::Cpus(format!("there is no thread {tid}")));
    };
    let cpus = task.thread.cpus(system).map_err(|errno| refused(errno.desc().to_owned()))?;
    let mut admitted = Admission { fill: None, notes: Vec::new() };
    if let Policy::Deadline(reservation) = policy {
        admission::valid(system, &reservation).map_err(|Refusal(why)| refused(why))?;
        let [cpu] = cpus.iter().collect::<Vec<u32>>()[..] else {
            return Err(Error::Cpus(format!(
                "{policy}: whether deadlines can be met is known for one CPU only, and it may use {cpus}; add --cpu N"
            )));
        };
        let mut all = admission::reserved(system, cpu, tid);
        let who = format!("{} (thread {tid}, this one)", task.thread.name);
        all.push(ReservedTime { who, reservation });
        admitted.fill = Some(admission::fill(&all));
        match admission::admit(cpu, &all) {
            Err(Refusal(why)) if force => {
                admitted.notes.push(format!("{why}\nthe kernel decides, since --force is given"))
            }
            Err(Refusal(why)) => {
                return Err(refused(format!("{why}\n--force leaves it to the kernel, which asks for less")));
            }
            Ok(_) => {}
        }
        admitted.notes.extend(admission::unknown_servers(system, cpu));
    }
    admitted.notes.extend(neighbours(system, &tasks, tid, &policy, &cpus));
    let old = policy::of(tid).map_err(|errno| refused(errno.desc().to_owned()))?;
    let new = Scheduling::new(policy);
    if remember {
        journal.steps.push(Step {
            knob: MOVED.to_owned(),
            label: task.thread.name.clone(),
            target: Target::Policy { thread: task.thread.clone() },
            old: Some(old.to_string()),
            wanted: new.to_string(),
            outcome: Some(Outcome::Applied),
        });
        journal.save(system)?;
    }
    let done = policy::set(tid, &new);
    if done.is_err() && remember {
        journal.steps.pop();
        journal.save(system)?;
    }
    done.map_err(|errno| refused(policy::explain(system, errno, &policy, &cpus)))?;
    Ok(admitted)
}

/// Other tasks on these CPUs that come before a task with this policy, or after it, so that one of both waits.
fn neighbours(system: &System, tasks: &[Task], tid: i32, policy: &Policy, cpus: &Cpus) -> Vec<String> {
    let (mut fixed, mut deadline, mut equal) = (Vec::new(), Vec::new(), Vec::new());
    // The kernel's own threads of a CPU are reported by `verify`.
    for task in tasks.iter().filter(|task| task.is_real_time() && !task.bound && task.thread.tid != tid) {
        if task.thread.cpus(system).map_or(true, |theirs| theirs.is_apart_from(cpus)) {
            continue;
        }
        let Ok(theirs) = policy::of(task.thread.tid) else { continue };
        let who = format!("{} (thread {}, {})", task.thread.name, task.thread.tid, theirs.policy);
        match (theirs.policy, policy) {
            (Policy::Deadline(_), _) => deadline.push(who),
            (Policy::Fifo { priority: one }, Policy::Fifo { priority: other }) if one == *other => {
                equal.push(who);
            }
            _ => fixed.push(who),
        }
    }
    let mut notes = Vec::new();
    match policy {
        Policy::Deadline(_) if !fixed.is_empty() => notes.push(format!(
            "on CPUs {cpus} it comes before every FIFO and RR task, whatever their priority; they wait: {}",
            fixed.join(", ")
        )),
        Policy::Fifo { .. } | Policy::Rr { .. } if !deadline.is_empty() => notes.push(format!(
            "DEADLINE tasks on CPUs {cpus} come before it, whatever its priority: {}",
            deadline.join(", ")
        )),
        _ => {}
    }
    if !equal.is_empty() {
        notes.push(format!(
            "with the same priority a FIFO task waits until the other sleeps (with --policy rr they alternate): {}",
            equal.join(", ")
        ));
    }
    notes
}

/// A real-time task on the CPUs of a shield.
#[derive(Clone, Debug, Serialize)]
pub struct Rt0 {
    /// The real-time CPUs that it may use, as a list.
    pub cpus: String,
    /// Its thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// How it is scheduled.
    #[serde(flatten)]
    pub policy: Policy,
    /// The part of a CPU that it has reserved; only with deadlines is that known.
    pub reserved: Option<f64>,
    /// The part of a CPU that it has used since it began.
    pub used: Option<f64>,
}

/// The real-time tasks that may use a CPU of the shield, by CPU; not the kernel's own.
pub fn rt0(system: &System, journal: &Journal) -> Vec<Rt0> {
    let rt = Cpus::from_list(&journal.rt).unwrap_or_default();
    let mut all = Vec::new();
    for task in tasks::all(system).into_iter().filter(|task| task.is_real_time() && !task.kernel) {
        let Ok(theirs) = task.thread.cpus(system) else { continue };
        let here: Cpus = theirs.iter().filter(|cpu| rt.contains(*cpu)).collect();
        let (false, Ok(scheduling)) = (here.is_empty(), policy::of(task.thread.tid)) else { continue };
        let reserved = match scheduling.policy {
            Policy::Deadline(reservation) => Some(reservation.utilisation()),
            _ => None,
        };
        let used = task.used(system);
        let Task { thread, .. } = task;
        all.push(Rt0 {
            cpus: here.to_string(),
            tid: thread.tid,
            name: thread.name,
            policy: scheduling.policy,
            reserved,
            used,
        });
    }
    let first = |one: &Rt0| one.cpus.split([',', '-']).next().and_then(|cpu| cpu.parse::<u32>().ok());
    all.sort_by_key(|one| (first(one), one.tid));
    all
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that holds a scheduler which lends the CPUs, and what is done when it is gone: the CPUs are isolated at once.
//!
//! What the process does is not known here; it is found by its number and the time at which it began.

use crate::apply;
use crate::journal::{Journal, Lock, State};
use crate::knobs::{KEPT, PARTITION};
use crate::partition::Isolation;
use crate::place;
use crate::plan::{self, Plan};
use crate::step::{Step, Target};
use crate::tasks::{self, Task, Thread};
use crate::{Cpus, Error, System};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a process that was asked to end may take before it is killed, and after that.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process that holds the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keeper {
    /// The process, by its first thread.
    pub process: Thread,
    /// The number of the map with the scheduler's counters.
    pub counts: Option<u32>,
    /// The number of the scheduler's grants, by which root makes tasks RT1.
    #[serde(default)]
    pub grants: Option<u32>,
    /// Why the scheduler is gone, so that the CPUs were isolated.
    pub fallen: Option<String>,
}

impl Keeper {
    /// A process that was just started.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn new(system: &System, pid: i32) -> Result<Keeper, Error> {
        let first = tasks::of(system, pid).into_iter().find(|task| task.thread.tid == pid);
        let process = first.ok_or_else(|| Error::Keeper("it ended at once".into()))?.thread;
        Ok(Keeper { process, counts: None, grants: None, fallen: None })
    }

    /// Whether it is there.
    #[must_use]
    pub fn lives(&self, system: &System) -> bool {
        self.process.lives(system)
    }

    /// Asks it to end, waits until it has, and kills it when it does not.
    pub(crate) fn end(&self, system: &System) -> Result<(), Error> {
        let Some(process) = ProcessHandle::open(&self.process, system)? else { return Ok(()) };
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if process.signal(signal)? == Delivery::Ended || process.ends_within(PATIENCE)? {
                return Ok(());
            }
        }
        Err(Error::Keeper(format!("process {} does not end", self.process.tid)))
    }
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// The process has it.
    Sent,
    /// The process had ended before.
    Ended,
}

/// One process, whatever becomes of its number: a moment after a look at it the number may be another process's.
#[derive(Debug)]
struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// `None`: it has ended. The identity is checked after the descriptor is there: from then on it is the same process.
    fn open(process: &Thread, system: &System) -> Result<Option<ProcessHandle>, Error> {
        // SAFETY: a system call without pointers; it only makes a descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.tid, 0) };
        let fd = match Errno::result(fd) {
            Ok(fd) => fd as i32,
            Err(Errno::ESRCH) => return Ok(None),
            Err(errno) => return Err(refused(errno)),
        };
        // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
        let handle = ProcessHandle(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(process.lives(system).then_some(handle))
    }

    fn signal(&self, signal: Signal) -> Result<Delivery, Error> {
        let info = std::ptr::null::<libc::siginfo_t>();
        let fd = self.0.as_raw_fd();
        // SAFETY: without a siginfo the call reads no memory of ours, and the descriptor stays open during it.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal as i32, info, 0) };
        match Errno::result(sent) {
            Ok(_) => Ok(Delivery::Sent),
            Err(Errno::ESRCH) => Ok(Delivery::Ended),
            Err(errno) => Err(refused(errno)),
        }
    }

    /// Whether it has ended by then; its parent may not have noticed yet.
    fn ends_within(&self, time: Duration) -> Result<bool, Error> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut watched = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut watched, Some(left.into()), None) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(refused(errno)),
            }
        }
    }
}

fn refused(errno: Errno) -> Error {
    Error::Keeper(format!("it cannot be ended: {}", errno.desc()))
}

/// Sets the CPUs apart, since the scheduler that this process held is gone. Doing it twice does it once; `None`: it was not to be
/// done, since the shield is being undone, or is another one.
///
/// # Errors
/// When the journal cannot be had, or the CPUs cannot be isolated now, for instance since all others are offline; that it was
/// tried is in the journal then, and it can be tried again. What single settings refused is there, too.
pub fn fall_back(system: &System, keeper: &Thread, why: &str) -> Result<Option<Journal>, Error> {
    let _lock = Lock::wait(system)?;
    let Some(mut journal) = Journal::load(system)? else { return Ok(None) };
    // Not by its name, which it may change.
    let is_it = |known: &Thread| (known.tid, known.start) == (keeper.tid, keeper.start);
    let ours = journal.keeper.as_ref().is_some_and(|known| is_it(&known.process));
    if journal.state != State::Active || !ours {
        return Ok(None);
    }
    let first = journal.apart == Isolation::Lent;
    if first {
        let plan = plan::plan(system, &journal.rt, journal.level);
        let mut plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                journal.fall(why);
                journal.save(system)?;
                return Err(error);
            }
        };
        // Those that come first stay so: undoing goes back in this order.
        let rt = plan.rt.clone();
        let residents = residents(system, &journal, &rt);
        journal.apart = plan.apart.clone();
        let steps = steps(system, &mut plan, &journal, &residents);
        journal.steps.extend(steps);
        journal.fall(why);
        journal.save(system)?;
    }
    if !first && journal.steps.iter().all(|step| step.outcome.is_some()) {
        return Ok(None);
    }
    for at in 0..journal.steps.len() {
        if journal.steps[at].outcome.is_none() {
            journal.steps[at].outcome = Some(apply::apply(system, &journal.steps[at]));
        }
    }
    journal.save(system)?;
    Ok(Some(journal))
}

impl Journal {
    /// Says why the scheduler is gone. What was said first is nearer to the cause.
    fn fall(&mut self, why: &str) {
        if let Some(keeper) = &mut self.keeper {
            keeper.fallen.get_or_insert_with(|| why.to_owned());
        }
    }
}

/// Real-time tasks of the CPUs: those that were brought in, and those that bound themselves to them.
fn residents(system: &System, journal: &Journal, rt: &Cpus) -> Vec<Task> {
    let moved = place::residents(system, journal);
    let is_one = |task: &Task| {
        let here = task.thread.cpus(system).is_ok_and(|cpus| cpus.without(rt).is_empty());
        !task.kernel && here && (task.is_real_time() || moved.contains(&task.thread.tid))
    };
    tasks::all(system).into_iter().filter(is_one).collect()
}

/// What is left to do. Residents have to be in the group before it is isolated: else the kernel throws them out.
fn steps(system: &System, plan: &mut Plan, journal: &Journal, residents: &[Task]) -> Vec<Step> {
    let is_new = |step: &Step| journal.steps.iter().all(|known| known.target != step.target);
    let (kept, apart): (Vec<Step>, Vec<Step>) =
        plan.steps.drain(..).filter(is_new).partition(|step| step.knob != PARTITION);
    let is_resident = |step: &Step| match &step.target {
        Target::Affinity { thread } => residents.iter().any(|task| task.thread == *thread),
        _ => false,
    };
    let mut steps: Vec<Step> = kept
        .into_iter()
        .filter(|step| matches!(step.target, Target::Affinity { .. }))
        .filter(|step| step.knob == KEPT || !is_resident(step))
        .collect();
    let members: Vec<Step> = match journal.apart.group() {
        Some(group) => {
            let mut processes: Vec<i32> =
                residents.iter().filter_map(|task| tasks::process_of(system, task.thread.tid)).collect();
            processes.sort_unstable();
            processes.dedup();
            let first = |pid: &i32| tasks::of(system, *pid).into_iter().find(|task| task.thread.tid == *pid);
            processes.iter().filter_map(first).map(|task| place::member(system, &task, &group)).collect()
        }
        None => Vec::new(),
    };
    // The last step of a partition is what isolates it.
    let before = apart.len().saturating_sub(1);
    let isolate = apart.len() - before;
    let mut apart = apart.into_iter();
    steps.extend(apart.by_ref().take(before));
    steps.extend(members);
    steps.extend(apart.take(isolate));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::Level;
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    #[test]
    fn a_keeper_is_known_by_its_number_and_its_beginning_and_not_by_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        fs::create_dir_all(system.path("/sys/devices/system/cpu")).expect("made");
        fs::write(system.path("/sys/devices/system/cpu/online"), "0-3\n").expect("written");
        let plan = plan::plan_lent(&system, "2-3", Level::Basic, &[]).expect("a plan");
        let mut journal = Journal::new(&system, &plan);
        let thread = |start: u64, name: &str| Thread { tid: 7, start, name: name.to_owned() };
        journal.state = State::Active;
        journal.keeper =
            Some(Keeper { process: thread(9, "rtscope"), counts: None, grants: None, fallen: None });
        journal.save(&system).expect("saved");
        // The guard knows no name; and a number may be somebody else's by now.
        assert!(fall_back(&system, &thread(10, "rtscope"), "why").expect("told").is_none());
        let fallen = fall_back(&system, &thread(9, ""), "why").expect("told").expect("it is the one");
        assert_eq!(fallen.keeper.and_then(|keeper| keeper.fallen).as_deref(), Some("why"));
        assert_ne!(fallen.apart, Isolation::Lent);
        assert!(fall_back(&system, &thread(9, ""), "why").expect("told").is_none(), "once is enough");
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().expect("it is everywhere")
    }

    /// Another process with this number, as the kernel gives it when it has used up all others. Not in the same clock tick: a
    /// process is known by its number and the tick that it began in, and the kernel does not come round that quickly.
    fn process_with(number: u32, system: &System, began: u64) -> Option<Child> {
        for _ in 0..1000 {
            fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).ok()?;
            let mut child = sleeper();
            let later = Keeper::new(system, child.id() as i32).is_ok_and(|other| other.process.start > began);
            if child.id() == number && later {
                return Some(child);
            }
            child.kill().and_then(|()| child.wait()).expect("ours");
        }
        None
    }

    // NEEDS: host
    #[test]
    fn root_a_process_that_has_got_the_number_of_the_keeper_is_not_killed() {
        let system = System::new(std::path::Path::new("/"));
        let mut child = sleeper();
        let keeper = Keeper::new(&system, child.id() as i32).expect("it lives");
        let handle = ProcessHandle::open(&keeper.process, &system).expect("opened").expect("it lives");
        child.kill().and_then(|()| child.wait()).expect("ours");
        let Some(mut other) = process_with(child.id(), &system, keeper.process.start) else {
            rtscope_testkit::skip!("the numbers of processes cannot be chosen here");
        };
        // The identity was checked when the keeper still lived, and the signal comes too late.
        let sent = [Signal::SIGTERM, Signal::SIGKILL].map(|signal| handle.signal(signal).expect("allowed"));
        assert_eq!(sent, [Delivery::Ended; 2]);
        keeper.end(&system).expect("it has ended");
        assert_eq!(other.try_wait().expect("ours"), None, "another process was killed");
        other.kill().and_then(|()| other.wait()).expect("ours");
    }

    #[test]
    fn a_keeper_is_asked_to_end_and_waited_for() {
        let system = System::new(std::path::Path::new("/"));
        let mut child = sleeper();
        let keeper = Keeper::new(&system, child.id() as i32).expect("it lives");
        let handle = ProcessHandle::open(&keeper.process, &system).expect("opened").expect("it lives");
        assert!(!handle.ends_within(Duration::from_millis(1)).expect("polled"));
        keeper.end(&system).expect("it ends");
        assert!(handle.ends_within(Duration::ZERO).expect("polled"));
        assert_eq!(child.wait().expect("ours").signal(), Some(Signal::SIGTERM as i32));
    }

    #[test]
    fn what_cannot_be_set_apart_while_all_others_are_offline_is_when_one_is_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        fs::create_dir_all(system.path("/sys/devices/system/cpu")).expect("made");
        let online = |cpus: &str| {
            fs::write(system.path("/sys/devices/system/cpu/online"), cpus).expect("written");
        };
        online("0-3\n");
        let plan = plan::plan_lent(&system, "2-3", Level::Basic, &[]).expect("a plan");
        let mut journal = Journal::new(&system, &plan);
        let process = Thread { tid: 7, start: 9, name: String::new() };
        journal.state = State::Active;
        journal.keeper = Some(Keeper { process: process.clone(), counts: None, grants: None, fallen: None });
        journal.save(&system).expect("saved");
        online("2-3\n");
        assert!(fall_back(&system, &process, "the last CPU went").is_err());
        let known = Journal::load(&system).expect("read").expect("there");
        let fallen = known.keeper.and_then(|keeper| keeper.fallen);
        assert_eq!((fallen.as_deref(), known.apart), (Some("the last CPU went"), Isolation::Lent));
        online("1-3\n");
        let journal = fall_back(&system, &process, "its process ended").expect("told").expect("to be done");
        assert_ne!(journal.apart, Isolation::Lent);
        let fallen = journal.keeper.and_then(|keeper| keeper.fallen);
        assert_eq!(fallen.as_deref(), Some("the last CPU went"), "the cause, not what came of it");
    }
}

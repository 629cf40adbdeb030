// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A census: the processes of the machine that are in other namespaces, found by visits (`visitor`).

use crate::namespaces::{FIRST_PID_NAMESPACE, namespace_of, numbers, own_number};
use crate::visitor::Visitor;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// All processes are visited, and not only the new ones, this often; and when more than this many are new.
const ALL_EVERY: Duration = Duration::from_secs(10);
const NEW_MAX: u32 = 2048;

/// The processes of the machine and their namespaces, as `/proc` shows them at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    /// When the visits began: it says nothing of processes that were seen later. `None`: there were none.
    pub(crate) begun: Option<Instant>,
    /// All processes were visited.
    pub(crate) is_of_all: bool,
    own_pid_namespace: Option<u64>,
    /// Mount namespace of this process, if it looks for containers.
    own_mounts: Option<u64>,
    scanned: Option<ScanState>,
    /// All processes were visible: one that is not here does not run.
    is_complete: bool,
    /// A process of another namespace could not be inspected: that takes CAP_SYS_PTRACE.
    is_refused: bool,
    /// PID namespace and number there → number here. Only those of other namespaces than this process's.
    elsewhere: HashMap<(u64, u32), u32>,
    /// PID namespaces of these and of earlier scans: processes in one of them are visible.
    visible: HashSet<u64>,
    /// Mount namespace → its processes. Only those of containers.
    pub(crate) containers: BTreeMap<u64, Vec<Inhabitant>>,
    /// Users, with a process of theirs that did not answer.
    pub(crate) silent: Vec<(u32, u32)>,
    /// So many did not answer that others were not visited.
    pub(crate) is_crowd: bool,
}

/// A process of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inhabitant {
    pub(crate) pid: u32,
    /// Whether it answered at the last visit.
    pub(crate) does_answer: bool,
}

/// What an earlier scan has found.
#[derive(Debug, Default)]
struct Before {
    elsewhere: HashMap<(u64, u32), u32>,
    containers: BTreeMap<u64, Vec<Inhabitant>>,
}

impl Before {
    fn of(census: &mut Census) -> Before {
        let elsewhere = std::mem::take(&mut census.elsewhere);
        Before { elsewhere, containers: std::mem::take(&mut census.containers) }
    }
}

/// What the next scan can leave out.
#[derive(Clone, Copy, Debug)]
struct ScanState {
    /// The newest process number at the last scan but one, and at the last scan.
    before: u32,
    newest: u32,
    /// When all processes were visited.
    at: Instant,
}

/// The process of this PID namespace that has some number in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalProcess {
    /// This one.
    Process(u32),
    /// There is no such process.
    Nobody,
    /// Not known.
    Unknown,
}

impl Census {
    /// Without visiting others: only processes of this process's namespace can be found.
    pub(crate) fn of_own_namespace() -> Census {
        Census { own_pid_namespace: namespace_of("self", "pid"), ..Census::default() }
    }

    /// Visits all processes.
    pub(crate) fn take(&mut self, visitor: &mut Visitor) {
        let newest = newest_number();
        let (visible, before) = (std::mem::take(&mut self.visible), Before::of(self));
        *self = Census::of_all(visible, before, visitor);
        self.scanned = newest.map(|newest| ScanState { before: newest, newest, at: Instant::now() });
    }

    /// The same, mostly at less cost: visits those that were in other namespaces, and those that have started since the last scan but
    /// one. A process never changes its PID namespace, so the others need no visit. All are visited now and then, in case numbers
    /// have wrapped around.
    pub(crate) fn update(&mut self, visitor: &mut Visitor) {
        let (begun, newest) = (Instant::now(), newest_number());
        match (self.scanned, newest) {
            (Some(scanned), Some(newest))
                if self.is_complete
                    && scanned.at.elapsed() < ALL_EVERY
                    && scanned.newest <= newest
                    && newest - scanned.before <= NEW_MAX =>
            {
                let before = Before::of(self);
                (self.begun, self.is_of_all) = (Some(begun), false);
                // A process being made at the last scan may not have been visible yet, so this scan begins where that one began.
                let new = scanned.before + 1..=newest;
                let pids: BTreeSet<u32> = before.elsewhere.values().copied().chain(new).collect();
                self.visit(pids, before, visitor);
                self.scanned = Some(ScanState { before: scanned.newest, newest, at: scanned.at });
            }
            _ => self.take(visitor),
        }
    }

    fn of_all(visible: HashSet<u64>, before: Before, visitor: &mut Visitor) -> Census {
        let begun = Some(Instant::now());
        let mut census = Census { begun, is_of_all: true, visible, ..Census::of_own_namespace() };
        let Some(own_pids) = census.own_pid_namespace else { return census };
        // A collector in its own mount namespace leaves containers to the host's collector. Where the first process cannot be
        // inspected, this collector is assumed to be in the host's mount namespace.
        let own_mounts = namespace_of("self", "mnt");
        let is_apart = namespace_of("1", "mnt").is_some_and(|first| Some(first) != own_mounts);
        census.own_mounts = own_mounts.filter(|_| !is_apart);
        let Ok(all) = fs::read_dir("/proc") else { return census };
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        census.visit(all.flatten().filter_map(number).collect(), before, visitor);
        census.is_complete = own_pids == FIRST_PID_NAMESPACE && nix::unistd::geteuid().is_root();
        census
    }

    /// Visits processes. Who does not answer, or is left out since others do not, is still who he was.
    fn visit(&mut self, pids: BTreeSet<u32>, before: Before, visitor: &mut Visitor) {
        let own = (self.own_pid_namespace, self.own_mounts);
        let is_here = |pid| numbers(pid).is_none_or(|numbers| numbers.len() < 2);
        let visit = move |pid| Visit::of(pid, own);
        let silence = visitor.visit(pids, visit, is_here, |pid, visit| self.note(pid, visit));
        for (number, pid) in before.elsewhere.into_iter().filter(|(_, pid)| silence.left_out.contains(pid)) {
            self.elsewhere.entry(number).or_insert(pid);
        }
        for (mounts, mut here) in before.containers {
            here.retain(|process| silence.left_out.contains(&process.pid));
            if !here.is_empty() {
                let silent = here.into_iter().map(|known| Inhabitant { does_answer: false, ..known });
                self.containers.entry(mounts).or_default().extend(silent);
            }
        }
        self.is_refused |= !silence.left_out.is_empty();
        (self.silent, self.is_crowd) = (silence.silent, silence.is_crowd);
    }

    fn note(&mut self, pid: u32, visit: Visit) {
        match visit {
            Visit::Here => {}
            Visit::Refused { is_nested } => self.is_refused |= is_nested,
            Visit::Elsewhere { pids, number, mounts } => {
                self.visible.insert(pids);
                self.elsewhere.insert((pids, number), pid);
                if let Some(mounts) = mounts {
                    let inhabitant = Inhabitant { pid, does_answer: true };
                    self.containers.entry(mounts).or_default().push(inhabitant);
                }
            }
        }
    }

    /// Whether a number in this PID namespace is the same number here. 0: the program did not know its namespace.
    pub(crate) fn is_own(&self, pid_namespace: u64) -> bool {
        pid_namespace == 0 || Some(pid_namespace) == self.own_pid_namespace
    }

    /// Finds a process of another PID namespace in this one.
    pub(crate) fn find(&self, pid_namespace: u64, pid: u32) -> LocalProcess {
        if self.is_own(pid_namespace) {
            return LocalProcess::Process(pid);
        }
        match self.elsewhere.get(&(pid_namespace, pid)) {
            Some(here) => LocalProcess::Process(*here),
            // Whoever restores processes chooses their numbers: one that was not visited may run.
            None if self.is_refused || !self.is_of_all => LocalProcess::Unknown,
            None if self.is_complete || self.visible.contains(&pid_namespace) => LocalProcess::Nobody,
            None => LocalProcess::Unknown,
        }
    }
}

/// What a visit finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    /// A process of this PID namespace, a thread, or nobody.
    Here,
    /// One that this process may not look at. `is_nested`: it has a number in another namespace.
    Refused { is_nested: bool },
    /// Its PID namespace, its number there, and its mount namespace, if that is a container's.
    Elsewhere { pids: u64, number: u32, mounts: Option<u64> },
}

impl Visit {
    /// `own`: the PID namespace of this process, and its mount namespace if it looks for containers.
    fn of(pid: u32, (own_pids, own_mounts): (Option<u64>, Option<u64>)) -> Visit {
        let name = pid.to_string();
        let pids = match fs::metadata(format!("/proc/{name}/ns/pid")) {
            Ok(pids) if Some(pids.ino()) == own_pids => return Visit::Here,
            Ok(pids) => pids.ino(),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let is_nested = numbers(pid).is_some_and(|numbers| numbers.len() > 1);
                return Visit::Refused { is_nested };
            }
            Err(_) => return Visit::Here,
        };
        // Threads have numbers, too, but are not processes.
        let Some(number) = own_number(pid) else { return Visit::Here };
        let mounts = own_mounts.and_then(|own| namespace_of(&name, "mnt").filter(|mounts| *mounts != own));
        Visit::Elsewhere { pids, number, mounts }
    }
}

/// The newest number given to a process or thread in this namespace: the last word of /proc/loadavg (proc_loadavg(5)).
fn newest_number() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_own_namespace_are_what_they_are() {
        let census = Census::of_all(HashSet::from([2]), Before::default(), &mut Visitor::default());
        let own = namespace_of("self", "pid").unwrap();
        assert_eq!(census.find(own, 17), LocalProcess::Process(17));
        assert_eq!(census.find(0, 17), LocalProcess::Process(17));
        assert_eq!(numbers(std::process::id()).unwrap()[0], std::process::id());
        let foreign = census.find(1, 17);
        let is_sure = census.is_complete && !census.is_refused;
        assert_eq!(foreign, if is_sure { LocalProcess::Nobody } else { LocalProcess::Unknown });
        assert_eq!(
            census.find(2, 17),
            if census.is_refused { LocalProcess::Unknown } else { LocalProcess::Nobody }
        );
        assert_eq!(Census::of_own_namespace().find(1, 17), LocalProcess::Unknown);
    }

    #[test]
    fn a_process_started_in_another_namespace_is_found_without_visiting_all() {
        if !nix::unistd::geteuid().is_root() || namespace_of("self", "pid") != Some(FIRST_PID_NAMESPACE) {
            rtscope_testkit::skip!("it needs root in the first PID namespace");
        }
        let (mut census, mut visitor) = (Census::default(), Visitor::default());
        census.update(&mut visitor);
        let mut unshare = std::process::Command::new("unshare");
        let sleeping = unshare.args(["--fork", "--pid", "sleep", "60"]).spawn();
        let mut sleeping = sleeping.unwrap();
        // Until it has forked.
        let children = format!("/proc/{0}/task/{0}/children", sleeping.id());
        let child = loop {
            if let Ok(child) = fs::read_to_string(&children).unwrap().trim().parse::<u32>() {
                break child;
            }
        };
        let there = namespace_of(&child.to_string(), "pid").unwrap();
        // Whether all were visited: that would be a new time.
        let update = |census: &mut Census, visitor: &mut Visitor| {
            let now = Instant::now();
            if let Some(scanned) = &mut census.scanned {
                scanned.at = now;
            }
            census.update(visitor);
            assert_eq!(census.scanned.map(|scanned| scanned.at), Some(now));
        };
        // Found as a new one, and then as a known one; until it has ended.
        for _ in 0..3 {
            update(&mut census, &mut visitor);
            assert_eq!(census.find(there, 1), LocalProcess::Process(child));
        }
        // Its parent waits for it before it ends itself.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child as i32), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        sleeping.wait().unwrap();
        update(&mut census, &mut visitor);
        // That takes a visit of all.
        assert_eq!(census.find(there, 1), LocalProcess::Unknown);
        census.take(&mut visitor);
        assert_eq!(
            census.find(there, 1),
            if census.is_refused { LocalProcess::Unknown } else { LocalProcess::Nobody }
        );
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers: they have directories of their own for programs' files, and other process numbers.
//!
//! A container has a mount namespace with its own `/dev/shm`, and a PID namespace. Its programs are unaware of this; root reaches
//! their files through `/proc/PID/root`. An open descriptor of their `/dev/shm` outlives them, so the events of a killed
//! container are still there. A mount namespace without its own PID namespace is not a container: its processes want to be
//! separate, and are left alone.
//!
//! Root of a container may mount anything anywhere in it. So nothing below its `/dev/shm` is opened that is on another mount, or
//! behind a link; and only a tmpfs is used, which never blocks on a user-space server as FUSE does (`mounts`).
//!
//! A container belongs to the user who made its user namespace, whatever users there are in it: `budget`.

use crate::directory::SHARED_MEMORY;
use crate::mounts::{Shm, descriptor_path};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest number of containers watched at a time, and of one ordinary user.
const CONTAINERS_MAX: usize = 256;
pub(crate) const CONTAINERS_OF_USER: usize = 16;
/// All processes are visited, and not only the new ones, this often; and when more than this many are new.
const ALL_EVERY: Duration = Duration::from_secs(10);
const NEW_MAX: u32 = 2048;
/// The first PID namespace of the machine (PROC_PID_INIT_INO in linux/proc_ns.h): it sees all others.
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;

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
    pub(crate) containers: BTreeMap<u64, Vec<u32>>,
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
    pub(crate) fn take(&mut self) {
        let newest = newest_number();
        let visible = std::mem::take(&mut self.visible);
        *self = Census::of_all(visible);
        self.scanned = newest.map(|newest| ScanState { before: newest, newest, at: Instant::now() });
    }

    /// The same, mostly at less cost: visits those that were in other namespaces, and those that have started since the last scan but
    /// one. A process never changes its PID namespace, so the others need no visit. All are visited now and then, in case numbers
    /// have wrapped around.
    pub(crate) fn update(&mut self) {
        let (begun, newest) = (Instant::now(), newest_number());
        match (self.scanned, newest) {
            (Some(scanned), Some(newest))
                if self.is_complete
                    && scanned.at.elapsed() < ALL_EVERY
                    && scanned.newest <= newest
                    && newest - scanned.before <= NEW_MAX =>
            {
                let known: BTreeSet<u32> = std::mem::take(&mut self.elsewhere).into_values().collect();
                (self.begun, self.is_of_all) = (Some(begun), false);
                self.containers.clear();
                // A process being made at the last scan may not have been visible yet, so this scan begins where that one began.
                let new = scanned.before + 1..=newest;
                known
                    .into_iter()
                    .chain(new)
                    .collect::<BTreeSet<u32>>()
                    .into_iter()
                    .for_each(|pid| self.visit(pid));
                self.scanned = Some(ScanState { before: scanned.newest, newest, at: scanned.at });
            }
            _ => self.take(),
        }
    }

    fn of_all(visible: HashSet<u64>) -> Census {
        let begun = Some(Instant::now());
        let mut census = Census { begun, is_of_all: true, visible, ..Census::of_own_namespace() };
        let Some(own_pids) = census.own_pid_namespace else { return census };
        // A collector in its own mount namespace leaves containers to the host's collector. Where the first process cannot be
        // inspected, this collector is assumed to be in the host's mount namespace.
        let own_mounts = namespace_of("self", "mnt");
        let is_apart = namespace_of("1", "mnt").is_some_and(|first| Some(first) != own_mounts);
        census.own_mounts = own_mounts.filter(|_| !is_apart);
        let Ok(all) = fs::read_dir("/proc") else { return census };
        for entry in all.flatten() {
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) {
                census.visit(pid);
            }
        }
        census.is_complete = own_pids == FIRST_PID_NAMESPACE && nix::unistd::geteuid().is_root();
        census
    }

    /// Notes the process if it is in another namespace.
    fn visit(&mut self, pid: u32) {
        let name = pid.to_string();
        let pids = match fs::metadata(format!("/proc/{name}/ns/pid")) {
            Ok(pids) if Some(pids.ino()) == self.own_pid_namespace => return,
            Ok(pids) => pids.ino(),
            Err(error) => {
                let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
                self.is_refused |= is_refused && numbers(pid).is_some_and(|numbers| numbers.len() > 1);
                return;
            }
        };
        // Threads have numbers, too, but are not processes.
        let Some(number) = own_number(pid) else { return };
        self.visible.insert(pids);
        self.elsewhere.insert((pids, number), pid);
        let mounts = namespace_of(&name, "mnt").filter(|mounts| Some(*mounts) != self.own_mounts);
        if let (Some(mounts), Some(_)) = (mounts, self.own_mounts) {
            self.containers.entry(mounts).or_default().push(pid);
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

fn namespace_of(process: &str, kind: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?.ino())
}

/// The newest number given to a process or thread in this namespace: the last word of /proc/loadavg (proc_loadavg(5)).
fn newest_number() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// The number of a process in its own PID namespace; `None`: it has ended, or is a thread. Linux 6.11 tells it by itself; before, it is in a text with all
/// groups that the process is in, which can take 17 ms.
fn own_number(pid: u32) -> Option<u32> {
    const NS_GET_PID_IN_PIDNS: libc::Ioctl = 0x8004_b708;
    const NS_GET_TGID_IN_PIDNS: libc::Ioctl = 0x8004_b709;
    let namespace = File::open(format!("/proc/{pid}/ns/pid")).ok()?;
    let number = |request: libc::Ioctl| {
        // SAFETY: these requests of ioctl_ns(2) take a number and return one; kernels without them refuse.
        let number = unsafe { libc::ioctl(namespace.as_raw_fd(), request, libc::c_ulong::from(pid)) };
        u32::try_from(number).ok().filter(|number| *number > 0)
    };
    match (number(NS_GET_PID_IN_PIDNS), number(NS_GET_TGID_IN_PIDNS)) {
        (Some(number), Some(group)) => (number == group).then_some(number),
        _ => numbers(pid)?.last().copied(),
    }
}

/// The numbers of a process, in this namespace and in each nested one: "NSpid:\t1234\t5" (proc_pid_status(5)). A thread has none.
fn numbers(pid: u32) -> Option<Vec<u32>> {
    // Its name need not be text.
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    if process.trim().parse() != Ok(pid) {
        return None;
    }
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// A container's `/dev/shm`.
#[derive(Debug)]
pub(crate) struct Container {
    /// Its number here; never 0.
    pub(crate) number: u64,
    pub(crate) dir: OwnedFd,
    /// For messages.
    pub(crate) shown: PathBuf,
    /// The user who made it; `None`: a user of this machine's first user namespace, whose directories are their owners'.
    pub(crate) user: Option<u32>,
    /// On whose account it is.
    account: u32,
    /// Its permissions.
    pub(crate) mode: u32,
    /// User and group whose `/dev/shm` it is.
    pub(crate) owner: (u32, u32),
    id: (u64, u64),
    /// Mount namespaces that see it.
    mounts: BTreeSet<u64>,
    /// Whether one of its processes ran at the last scan.
    is_inhabited: bool,
}

impl Container {
    /// Whether one of its processes ran at the last scan.
    pub(crate) fn is_inhabited(&self) -> bool {
        self.is_inhabited
    }
}

/// All containers.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    pub(crate) all: Vec<Container>,
    made: u64,
}

/// What became of a directory that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// A container of this number that was not known.
    New,
    /// One that is known.
    Known,
    /// This machine's own directory. A container that starts may see it before it has its own.
    Own,
    /// A directory of somebody else's, which a user has mounted there.
    OfOthers,
    /// There are too many.
    TooMany,
}

impl Containers {
    /// Notes which containers have running processes, by the census.
    pub(crate) fn update(&mut self, census: &Census) {
        for container in &mut self.all {
            container.mounts.retain(|mounts| census.containers.contains_key(mounts));
            container.is_inhabited = !container.mounts.is_empty();
        }
    }

    /// The kernel has given the number of a mount namespace to another user's.
    pub(crate) fn is_no_more_of(&mut self, mounts: u64) {
        for container in &mut self.all {
            container.mounts.remove(&mounts);
            container.is_inhabited = !container.mounts.is_empty();
        }
    }

    /// The `/dev/shm` of a mount namespace was found, by way of a process; its user is `user`, who may be a subordinate one of `account`'s. A user who mounts
    /// what is not his has no container: he could have any directory looked at as one, and files made in it.
    pub(crate) fn found(
        &mut self,
        own: &Path,
        (mounts, pid): (u64, u32),
        shm: Shm,
        (user, account): (Option<u32>, u32),
    ) -> Discovery {
        let Shm { dir, status, is_its_users } = shm;
        let id = (status.st_dev, status.st_ino);
        if let Some(known) = self.all.iter_mut().find(|container| container.id == id) {
            known.is_inhabited = true;
            known.mounts.insert(mounts);
            return Discovery::Known;
        }
        if fs::metadata(own).is_ok_and(|own| (own.dev(), own.ino()) == id) {
            return Discovery::Own;
        }
        if !is_its_users {
            return Discovery::OfOthers;
        }
        let of_account = self.all.iter().filter(|container| container.account == account).count();
        if self.all.len() >= CONTAINERS_MAX || account != 0 && of_account >= CONTAINERS_OF_USER {
            return Discovery::TooMany;
        }
        self.made += 1;
        self.all.push(Container {
            number: self.made,
            dir,
            shown: PathBuf::from(format!("/proc/{pid}/root{SHARED_MEMORY}")),
            user,
            account,
            mode: status.st_mode & 0o7777,
            owner: (status.st_uid, status.st_gid),
            id,
            mounts: BTreeSet::from([mounts]),
            is_inhabited: true,
        });
        Discovery::New
    }

    /// Whether no process of this container runs any more. 0 is not a container.
    pub(crate) fn is_deserted(&self, number: u64) -> bool {
        self.all.iter().any(|container| container.number == number && !container.is_inhabited)
    }
}

/// The process whose namespaces were to be looked at has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended;

/// Whether a process is in the user namespace that its mount namespace is of. Others in it, which a user has made, can have any directory as their root. What cannot
/// be seen is not.
pub(crate) fn is_at_home(pid: u32) -> bool {
    let home = File::open(format!("/proc/{pid}/ns/mnt"))
        .ok()
        .and_then(|mounts| related(&mounts.into(), NS_GET_USERNS));
    let home = home.and_then(|users| Some(fs::metadata(descriptor_path(&users)).ok()?.ino()));
    home.is_some() && home == namespace_of(&pid.to_string(), "user")
}

/// Of linux/nsfs.h.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// A namespace that another one has to do with.
fn related(of: &OwnedFd, request: libc::Ioctl) -> Option<OwnedFd> {
    // SAFETY: these requests of ioctl_ns(2) take no argument.
    let other = unsafe { libc::ioctl(of.as_raw_fd(), request) };
    // SAFETY: the kernel has just made this descriptor, for this function alone.
    (other >= 0).then(|| unsafe { OwnedFd::from_raw_fd(other) })
}

/// The user who made a mount namespace's user namespace, or the outermost one around it that is not root's: what users of a container do that root has made
/// with a user namespace, such as containers of their own, is not root's doing. `None`: it is this process's own user namespace, or could not be found out.
pub(crate) fn user_of(pid: u32) -> Result<Option<u32>, Ended> {
    match File::open(format!("/proc/{pid}/ns/mnt")) {
        Ok(mounts) => Ok(user_of_mounts(mounts.into())),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Err(Ended),
        Err(_) => Ok(None),
    }
}

fn user_of_mounts(mounts: OwnedFd) -> Option<u32> {
    const NS_GET_PARENT: libc::Ioctl = 0xb702;
    const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
    let mut namespace = related(&mounts, NS_GET_USERNS)?;
    let own = namespace_of("self", "user")?;
    let number = |namespace: &OwnedFd| Some(nix::sys::stat::fstat(namespace).ok()?.st_ino);
    if number(&namespace)? == own {
        return None;
    }
    let mut outermost = 0;
    // Nesting is limited to 32 levels.
    for _ in 0..40 {
        let mut user: libc::uid_t = 0;
        // SAFETY: the request writes a uid_t to where its argument points.
        if unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut user) } != 0 {
            return None;
        }
        outermost = if user == 0 { outermost } else { user };
        match related(&namespace, NS_GET_PARENT) {
            Some(parent) if number(&parent)? != own => namespace = parent,
            _ => break,
        }
    }
    Some(outermost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_testkit::skip;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_kernel_and_its_text_give_a_process_the_same_number() {
        let own = std::process::id();
        assert_eq!((own_number(own), numbers(own).unwrap().last().copied()), (Some(own), Some(own)));
        let of_thread = std::thread::spawn(|| {
            let thread = nix::unistd::gettid().as_raw().unsigned_abs();
            (own_number(thread), numbers(thread))
        });
        assert_eq!(of_thread.join().unwrap(), (None, None));
        assert_eq!(own_number(u32::MAX), None);
    }

    // NEEDS: host
    #[test]
    fn root_who_nests_namespaces_in_a_container_of_roots_is_on_his_own_account() {
        // A namespace of root's with ten users; a mount namespace in it; and one of its user 5, in a user namespace of his own.
        const SCRIPT: &str = "trap 'kill $h $a $b' EXIT; unshare -U sleep 60 & h=$!; \
            until [ $(readlink /proc/$h/ns/user) != $(readlink /proc/$$/ns/user) ]; do kill -0 $h || exit; done; \
            echo 0 100000 10 >/proc/$h/uid_map; echo 0 100000 10 >/proc/$h/gid_map; \
            nsenter -U -t $h unshare -m sleep 60 & a=$!; \
            nsenter -U -t $h setpriv --reuid 5 --clear-groups unshare -U -m sleep 60 & b=$!; \
            for p in $a $b; do until [ \"$(cat /proc/$p/comm)\" = sleep ]; do kill -0 $p || exit; done; done; \
            echo $h $a $b; read line";
        if skip::without_root() || skip::without_tool("nsenter") {
            return;
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let users: Vec<Option<u32>> = pids.iter().map(|pid| user_of(*pid).unwrap()).collect();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        if pids.is_empty() {
            skip::say("user namespaces cannot be made here");
            return;
        }
        // The first one has its mounts from outside.
        assert_eq!(users, [None, Some(0), Some(100_005)]);
    }

    #[test]
    fn numbers_of_the_own_namespace_are_what_they_are() {
        let census = Census::of_all(HashSet::from([2]));
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
        let mut census = Census::default();
        census.update();
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
        let update = |census: &mut Census| {
            let now = Instant::now();
            if let Some(scanned) = &mut census.scanned {
                scanned.at = now;
            }
            census.update();
            assert_eq!(census.scanned.map(|scanned| scanned.at), Some(now));
        };
        // Found as a new one, and then as a known one; until it has ended.
        for _ in 0..3 {
            update(&mut census);
            assert_eq!(census.find(there, 1), LocalProcess::Process(child));
        }
        // Its parent waits for it before it ends itself.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child as i32), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        sleeping.wait().unwrap();
        update(&mut census);
        // That takes a visit of all.
        assert_eq!(census.find(there, 1), LocalProcess::Unknown);
        census.take();
        assert_eq!(
            census.find(there, 1),
            if census.is_refused { LocalProcess::Unknown } else { LocalProcess::Nobody }
        );
    }

    /// Which user namespace is judged, not whose number it is.
    // NEEDS: host
    #[test]
    fn root_who_has_made_a_user_namespace_in_anothers_container_is_not_at_home_there() {
        if !nix::unistd::geteuid().is_root() {
            rtscope_testkit::skip!("it needs root");
        }
        assert!(is_at_home(std::process::id()) && !is_at_home(u32::MAX));
        for (options, is_home) in [(["-U", "-r"], false), (["-U", "-m"], true), (["-m", "-u"], true)] {
            let mut command = std::process::Command::new("unshare");
            let mut child = command.args(options).args(["sleep", "60"]).spawn().unwrap();
            let name = format!("/proc/{}/comm", child.id());
            while fs::read_to_string(&name).unwrap_or_default() != "sleep\n" {
                assert_eq!(child.try_wait().unwrap(), None, "{options:?}");
            }
            let found = is_at_home(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found, is_home, "{options:?}");
        }
    }

    #[test]
    fn a_number_that_another_users_mount_namespace_has_keeps_no_container() {
        let made = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut containers = Containers::default();
        let mut found = |mounts: u64| {
            let dir: OwnedFd = File::open(made.path()).unwrap().into();
            let status = nix::sys::stat::fstat(&dir).unwrap();
            containers.found(
                Path::new("/dev/shm"),
                (mounts, 1),
                Shm { dir, status, is_its_users: true },
                (Some(1000), 1000),
            )
        };
        assert_eq!((found(7), found(8)), (Discovery::New, Discovery::Known));
        containers.is_no_more_of(7);
        assert!(!containers.is_deserted(1), "another sees it still");
        containers.is_no_more_of(8);
        assert!(containers.is_deserted(1));
    }

    #[test]
    fn subordinate_users_of_one_account_have_the_containers_of_one() {
        let mut containers = Containers::default();
        let mut found = |mounts: u64, user: u32, account: u32| {
            let made = tempfile::tempdir_in("/dev/shm").unwrap();
            let dir: OwnedFd = File::open(made.path()).unwrap().into();
            let status = nix::sys::stat::fstat(&dir).unwrap();
            let shm = Shm { dir, status, is_its_users: true };
            containers.found(Path::new("/dev/shm"), (mounts, 1), shm, (Some(user), account))
        };
        let all: Vec<Discovery> = (0..1000)
            .map(|number| found(number, 200_000 + rtscope_event::exact::low_half(number), 1500))
            .collect();
        assert_eq!(all.iter().filter(|found| **found == Discovery::New).count(), CONTAINERS_OF_USER);
        assert_eq!((all[999], found(1000, 1001, 1001)), (Discovery::TooMany, Discovery::New));
    }
}

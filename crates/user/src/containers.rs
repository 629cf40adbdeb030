// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers: other places where programs leave their files, and whose numbers mean something else there.
//!
//! A container has a mount namespace with a `/dev/shm` of its own, and a PID namespace. Its programs see nothing of this; root
//! sees them through `/proc/PID/root`. An open descriptor of their `/dev/shm` outlives them, so what a killed container had
//! recorded is still there. A mount namespace without its own PID namespace is no container but somebody who wants to be apart.
//!
//! Whoever is root in a container may mount anything anywhere in it. So nothing below its `/dev/shm` is opened that is on another
//! mount, or behind a link; and only a tmpfs is taken, which nobody's program has to answer for (as in FUSE) before we go on.

use crate::session::{Settings, SharedSession};
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// More containers at a time are not looked into, and of one ordinary user.
const CONTAINERS_MAX: usize = 256;
const CONTAINERS_OF_USER: usize = 16;
/// Names in a container's `/dev/shm` that are looked at, and directories of programs among them.
pub(crate) const NAMES_MAX: usize = 4096;
pub(crate) const DIRECTORIES_MAX: usize = 16;
/// So often all processes are looked at, and not only the new ones; and when more than this are new.
const ALL_EVERY: Duration = Duration::from_secs(10);
const NEW_MAX: u32 = 2048;
/// The first PID namespace of the machine (PROC_PID_INIT_INO in linux/proc_ns.h): it sees all others.
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;

/// Who runs, as `/proc` tells at one time.
#[derive(Debug, Default)]
pub(crate) struct Census {
    own_pid_namespace: Option<u64>,
    /// Mount namespace of this process, if it looks for containers.
    own_mounts: Option<u64>,
    looked: Option<ScanState>,
    /// Everybody can be seen: who is not here does not run.
    is_complete: bool,
    /// Somebody elsewhere does not let itself be looked at: to see all takes CAP_SYS_PTRACE.
    is_refused: bool,
    /// PID namespace and number there → number here. Only those of other namespaces than ours.
    elsewhere: HashMap<(u64, u32), u32>,
    /// Namespaces of these, and of those in earlier looks: who is in one of them can be seen.
    visible: HashSet<u64>,
    /// Mount namespace → who is in it. Only those of containers.
    containers: BTreeMap<u64, Vec<u32>>,
}

/// What the next look can leave out.
#[derive(Clone, Copy, Debug)]
struct ScanState {
    /// The newest number of a process at the look before the last one, and at that.
    before: u32,
    newest: u32,
    /// When all were looked at.
    at: Instant,
}

/// What a number in some PID namespace is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalProcess {
    /// This process.
    Process(u32),
    /// There is no such process.
    Nobody,
    /// It cannot be told.
    Unknown,
}

impl Census {
    /// Without looking at others: only who is in this process's namespace can be told.
    pub(crate) fn of_own_namespace() -> Census {
        Census { own_pid_namespace: namespace("self", "pid"), ..Census::default() }
    }

    /// Looks at all processes, again.
    pub(crate) fn take(&mut self) {
        let visible = std::mem::take(&mut self.visible);
        *self = Census::of_all(visible);
    }

    /// The same, mostly at less cost: at those who were elsewhere, and at those who have started since the look before the last. A process
    /// never changes its PID namespace, so the others are where they were. All are looked at now and then, in case numbers have
    /// been used up once around meanwhile.
    pub(crate) fn update(&mut self) {
        let newest = newest_number();
        match (self.looked, newest) {
            (Some(looked), Some(newest))
                if self.is_complete
                    && looked.at.elapsed() < ALL_EVERY
                    && looked.newest <= newest
                    && newest - looked.before <= NEW_MAX =>
            {
                let known: BTreeSet<u32> = std::mem::take(&mut self.elsewhere).into_values().collect();
                self.containers.clear();
                // Who was being made at the last look may not have been there yet: the one before it is where this one begins.
                let new = looked.before + 1..=newest;
                known
                    .into_iter()
                    .chain(new)
                    .collect::<BTreeSet<u32>>()
                    .into_iter()
                    .for_each(|pid| self.visit(pid));
                self.looked = Some(ScanState { before: looked.newest, newest, at: looked.at });
            }
            (_, newest) => {
                self.take();
                self.looked = newest.map(|newest| ScanState { before: newest, newest, at: Instant::now() });
            }
        }
    }

    fn of_all(visible: HashSet<u64>) -> Census {
        let mut census = Census { visible, ..Census::of_own_namespace() };
        let Some(own_pids) = census.own_pid_namespace else { return census };
        // Who has moved to a mount namespace of its own wants to be apart, and leaves containers to the host's collector. Where
        // the first process does not let itself be looked at, nobody is taken for apart.
        let own_mounts = namespace("self", "mnt");
        let is_apart = namespace("1", "mnt").is_some_and(|first| Some(first) != own_mounts);
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

    /// Notes somebody who is elsewhere.
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
        // A thread has a number, too, but is not who its number in the namespace stands for.
        let Some(numbers) = numbers(pid) else { return };
        self.visible.insert(pids);
        // The last is that in its own namespace.
        if let Some(number) = numbers.last() {
            self.elsewhere.insert((pids, *number), pid);
        }
        let mounts = namespace(&name, "mnt").filter(|mounts| Some(*mounts) != self.own_mounts);
        if let (Some(mounts), Some(_)) = (mounts, self.own_mounts) {
            self.containers.entry(mounts).or_default().push(pid);
        }
    }

    /// Whether a number in this PID namespace is the same number here. 0 stands for a program that could not tell.
    pub(crate) fn is_own(&self, pid_namespace: u64) -> bool {
        pid_namespace == 0 || Some(pid_namespace) == self.own_pid_namespace
    }

    /// Who a process of a PID namespace is here.
    pub(crate) fn find(&self, pid_namespace: u64, pid: u32) -> LocalProcess {
        if self.is_own(pid_namespace) {
            return LocalProcess::Process(pid);
        }
        match self.elsewhere.get(&(pid_namespace, pid)) {
            Some(here) => LocalProcess::Process(*here),
            None if self.is_refused => LocalProcess::Unknown,
            None if self.is_complete || self.visible.contains(&pid_namespace) => LocalProcess::Nobody,
            None => LocalProcess::Unknown,
        }
    }
}

fn namespace(process: &str, kind: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?.ino())
}

/// The newest number that a process or thread was given, in this namespace: the last word of /proc/loadavg (proc_loadavg(5)).
fn newest_number() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// The numbers of a process, here and in each namespace within: "NSpid:\t1234\t5" (proc_pid_status(5)). A thread has none.
fn numbers(pid: u32) -> Option<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
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
    /// For who starts in it and has no directory yet; goes before the descriptor does.
    _session: Option<SharedSession>,
    /// Its own number; 0 is not used.
    pub(crate) number: u64,
    pub(crate) dir: OwnedFd,
    /// For messages.
    pub(crate) shown: PathBuf,
    id: (u64, u64),
    /// Who made it.
    owner: u32,
    /// Whether somebody of it ran at the last look.
    is_inhabited: bool,
}

impl Container {
    /// A path of the open directory, whatever has become of its name.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()))
    }
}

/// All containers' rooms.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    pub(crate) all: Vec<Container>,
    made: u64,
}

impl Containers {
    /// Looks for new ones, and which of the known ones are inhabited. `session`: what is left in new ones.
    pub(crate) fn scan(&mut self, own: &Path, census: &Census, session: Option<(u64, &Settings)>) {
        self.all.iter_mut().for_each(|container| container.is_inhabited = false);
        let own = fs::metadata(own).map(|own| (own.dev(), own.ino())).ok();
        for pids in census.containers.values() {
            // Who has ended meanwhile, or has another root directory, has no container; the first is mostly the container's first.
            let opened = pids.iter().find_map(|pid| Some((pid, open(*pid)?)));
            let Some((pid, (dir, status))) = opened else { continue };
            let id = (status.st_dev, status.st_ino);
            if let Some(known) = self.all.iter_mut().find(|container| container.id == id) {
                known.is_inhabited = true;
                continue;
            }
            let owner = status.st_uid;
            let of_owner = self.all.iter().filter(|container| container.owner == owner).count();
            if Some(id) == own
                || self.all.len() >= CONTAINERS_MAX
                || owner != 0 && of_owner >= CONTAINERS_OF_USER
            {
                continue;
            }
            self.made += 1;
            let shown = root_of(*pid).join("dev/shm");
            let mut container =
                Container { _session: None, number: self.made, dir, shown, id, owner, is_inhabited: true };
            // As /dev/shm is: anybody may write, and nobody may take away what is another's.
            if let (Some((id, settings)), true) = (session, status.st_mode & 0o7777 == 0o1777) {
                // Where root may not make files, as in a container of an ordinary user, those who start are found by their directory.
                container._session = SharedSession::new(&container.path(), id, settings, true).ok();
            }
            self.all.push(container);
        }
    }

    /// Whether nobody runs any more who sees this container. 0 is no container's.
    pub(crate) fn is_deserted(&self, number: u64) -> bool {
        self.all.iter().any(|container| container.number == number && !container.is_inhabited)
    }

    /// Nobody who starts is to record.
    pub(crate) fn withdraw(&mut self) {
        self.all.iter_mut().for_each(|container| container._session = None);
    }
}

/// What a process takes for `/`.
fn root_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// The `/dev/shm` that a process sees, if it is a tmpfs.
fn open(pid: u32) -> Option<(OwnedFd, FileStat)> {
    let root = File::open(root_of(pid)).ok()?;
    // Links in a container's paths are its own, and end in it; the kernel's magic ones would not.
    let inside = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let look = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let place = openat2(&root, "dev/shm", OpenHow::new().flags(look).resolve(inside)).ok()?;
    if fstatfs(&place).ok()?.filesystem_type() != TMPFS_MAGIC {
        return None;
    }
    let dir = open_below(&place, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).ok()?;
    let status = fstat(&dir).ok()?;
    Some((dir, status))
}

/// Opens what is in a directory itself: nothing behind a link, nothing that is mounted there.
pub(crate) fn open_below(
    dir: &impl std::os::fd::AsFd,
    name: &str,
    flags: OFlag,
    mode: Mode,
) -> nix::Result<OwnedFd> {
    let here = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // The kernel refuses a mode when nothing is made.
    let mode = if flags.contains(OFlag::O_CREAT) { mode } else { Mode::empty() };
    openat2(dir, name, OpenHow::new().flags(flags).mode(mode).resolve(here))
}

/// Whether a name in a directory still is this open file.
pub(crate) fn is_still(dir: &impl std::os::fd::AsFd, name: &str, file: &impl std::os::fd::AsFd) -> bool {
    let there = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok();
    let here = fstat(file).ok();
    here.zip(there).is_some_and(|(here, there)| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_own_namespace_are_what_they_are() {
        let census = Census::of_all(HashSet::from([2]));
        let own = namespace("self", "pid").unwrap();
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
    fn who_has_started_elsewhere_is_found_without_a_look_at_all() {
        if !nix::unistd::geteuid().is_root() || namespace("self", "pid") != Some(FIRST_PID_NAMESPACE) {
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
        let there = namespace(&child.to_string(), "pid").unwrap();
        // Whether all were looked at: that would be a new time.
        let update = |census: &mut Census| {
            let now = Instant::now();
            if let Some(looked) = &mut census.looked {
                looked.at = now;
            }
            census.update();
            assert_eq!(census.looked.map(|looked| looked.at), Some(now));
        };
        // Found as a new one, and then as one that is known; until it has ended.
        for _ in 0..3 {
            update(&mut census);
            assert_eq!(census.find(there, 1), LocalProcess::Process(child));
        }
        // Its parent waits for it before it ends itself.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child as i32), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        sleeping.wait().unwrap();
        update(&mut census);
        assert_eq!(
            census.find(there, 1),
            if census.is_refused { LocalProcess::Unknown } else { LocalProcess::Nobody }
        );
    }

    #[test]
    fn nothing_behind_a_link_or_in_another_folder_is_opened() {
        let dir_path = tempfile::tempdir().unwrap();
        let dir = File::open(dir_path.path()).unwrap();
        fs::write(dir_path.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink(dir_path.path().join("file"), dir_path.path().join("link")).unwrap();
        let open = |name: &str| open_below(&dir, name, OFlag::O_RDONLY, Mode::empty()).map(|_| ());
        assert_eq!(open("file"), Ok(()));
        assert_eq!(open("link"), Err(nix::Error::ELOOP));
        assert_eq!(open("../file"), Err(nix::Error::EXDEV));
        assert!(is_still(&dir, "file", &File::open(dir_path.path().join("file")).unwrap()));
        assert!(!is_still(&dir, "link", &File::open(dir_path.path().join("file")).unwrap()));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The right to record a user's programs, and the session that programs find which start later.
//!
//! One collector at a time serves a directory: two would give back each other's records. The right is a lock, which the kernel
//! releases when the collector ends, however that happens; the next one then continues where it stopped.

use crate::Error;
use crate::budget::NAMES_MAX;
use crate::channels::Channels;
use crate::directory::{PLACE_TRIES, UserDirectory, names_in, pause_before_try, take_place};
use crate::hand::{Hand, open_there, status_there};
use crate::mounts::descriptor_path;
use crate::patterns::RequestedEvents;
use crate::voucher::Voucher;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{Gid, Uid, UnlinkatFlags, setfsgid, setfsuid, unlinkat};
use rtscope_abi::program as abi;
use rtscope_event::exact;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub(crate) const SESSION: &str = "session";

/// A session that is still being written after this time never will be.
const PARTIAL_AT_LEAST: Duration = Duration::from_secs(60);

/// How programs are to record.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The events to record.
    pub events: RequestedEvents,
    /// Size of rings made from now on; 0: the programs' default.
    pub ring_bytes: u32,
    /// Rings are overwritten instead of filled.
    pub flight: bool,
    /// Programs that allow it wait for space.
    pub blocking: bool,
    /// The users whose programs are asked for: their directories are looked at first. Those of others are looked at, too.
    pub uids: Vec<u32>,
    /// Some events go to channels of an STM.
    pub channels: Option<Channels>,
    /// What the trace may have; `None`: any size. Descriptions, which it has as long as it exists, get a small part of it.
    pub trace_bytes_max: Option<u64>,
}

impl Settings {
    pub(crate) fn flags(&self) -> u32 {
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let channels = self.channels.as_ref();
        flag(self.flight, abi::RTU_FLIGHT)
            | flag(!self.flight, abi::RTU_STREAMED)
            | flag(self.blocking, abi::RTU_BLOCKING)
            | flag(channels.is_some(), abi::RTU_CHANNELS)
            | flag(channels.is_some_and(|channels| channels.or_ring), abi::RTU_OR_RING)
    }
}

/// A directory that this process serves.
#[derive(Debug)]
pub(crate) struct ServedDirectory {
    directory: Arc<UserDirectory>,
    /// What was counted when this began.
    lost_before: u64,
    /// The session is removed, or will be.
    is_withdrawn: AtomicBool,
    /// Holds the lock.
    file: File,
    /// Holds the lock of the session file, by which programs in containers know that this process is alive.
    _session_file: File,
}

impl ServedDirectory {
    /// Takes the right, and writes the session for programs that start.
    pub(crate) fn new(
        directory: &Arc<UserDirectory>,
        id: u64,
        settings: &Settings,
    ) -> Result<ServedDirectory, Error> {
        let path = directory.path.join("collector");
        // Where root of this machine has no rights, as in a container of an ordinary user, only the owner can make files.
        let _owner =
            (directory.is_containers() && directory.hand.is_none()).then(|| OwnerIdentity::of(directory));
        let file = collector_file(directory).map_err(Error::io("open", &path))?;
        let status = file.metadata().map_err(Error::io("look at", &path))?;
        // A file with a second name could belong to anybody.
        if !status.is_file() || status.nlink() != 1 || status.uid() != directory.uid {
            return Err(Error::NotOurs(path.display().to_string()));
        }
        let mut holder = String::new();
        // The holder is for the message only.
        let _ = (&file).take(32).read_to_string(&mut holder);
        let holder = holder.lines().next().unwrap_or_default().to_string();
        fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())).map_err(|errno| match errno {
            Errno::EAGAIN | Errno::EACCES => Error::Busy(holder.trim().parse().unwrap_or(0)),
            other => Error::io("lock", &path)(other.into()),
        })?;
        if let Some(hand) = &directory.hand {
            // Who holds the file's lock, to be shown: nothing waits for that.
            hand.write_number(&file, std::process::id());
        } else {
            let own = format!("{}\n", std::process::id());
            let written = file
                .set_len(0)
                .and_then(|()| std::io::Seek::rewind(&mut &file))
                .and_then(|()| (&file).write_all(own.as_bytes()));
            written.map_err(Error::io("write", &path))?;
        }
        directory.remove_partial_sessions();
        directory.read_lost();
        let lost_before = directory.lost_without_file();
        // Below the open directory, not below its path: its owner can replace that by a link to anywhere at any time.
        let readers = Readers { mode: 0o600, uid: directory.uid, are_elsewhere: directory.is_containers() };
        let session_file = match &directory.hand {
            Some(hand) => hand
                .session(&format!("{SESSION}.{id:x}"), &session_bytes(id, settings, readers))
                .map_err(Error::io("write", &directory.path.join(SESSION)))?,
            None => write_session(directory.dir(), SESSION, id, settings, readers, |_| ())?,
        };
        let directory = Arc::clone(directory);
        let is_withdrawn = AtomicBool::new(false);
        Ok(ServedDirectory { directory, lost_before, is_withdrawn, file, _session_file: session_file })
    }

    /// Events that were lost by processes without a file since this began.
    pub(crate) fn lost_without_file(&self) -> u64 {
        self.directory.lost_without_file().saturating_sub(self.lost_before)
    }

    /// Removes the session; the right stays.
    pub(crate) fn withdraw(&self) {
        // ORDER: relaxed; only so that it is not done twice.
        if self.is_withdrawn.swap(true, Ordering::Relaxed) {
            return;
        }
        // Programs that find a session without its collector ignore it.
        match &self.directory.hand {
            // With the right, which nobody else gets before it is done: it would be another one's session.
            Some(hand) => {
                hand.remove(SESSION, Some(self.file.as_fd()));
            }
            None => self.directory.remove_named(SESSION),
        }
        self.directory.set_look(0);
    }

    /// Waits until that is done, but not beyond this time: then it is done when the directory's user lets go of it.
    pub(crate) fn settle(&self, until: Instant) {
        if let Some(hand) = &self.directory.hand {
            hand.settle(until);
        }
    }

    /// The process that serves this directory now, as its user says: to be shown, and for nothing else.
    pub(crate) fn by_another(directory: &UserDirectory) -> Option<u32> {
        let file = directory.open_own("collector", OFlag::O_RDONLY).ok()?;
        let mut text = String::new();
        (&file).take(32).read_to_string(&mut text).ok()?;
        let pid = text.lines().next()?.parse().ok()?;
        is_locked(&file)?.then_some(pid)
    }
}

/// Opens or makes the file with the lock. Only one that has just been made is given to the directory's user: a file of root that was there
/// before can be any that the user has moved there.
fn collector_file(directory: &UserDirectory) -> std::io::Result<File> {
    const NAME: &str = "collector";
    if let Some(hand) = &directory.hand {
        return hand.collector(NAME);
    }
    match directory.open_own(NAME, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL) {
        Ok(made) => give_to(&made, directory.uid).map(|()| made),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            directory.open_own(NAME, OFlag::O_RDWR)
        }
        refused => refused,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a small constant, which the C library's structure has in 16 bits"
)]
const UNLOCKED: libc::c_short = libc::F_UNLCK as libc::c_short;

/// The lock of a collector. It belongs to the open file, so it ends with the process, and a forked child does not end it early.
#[expect(
    clippy::cast_possible_truncation,
    reason = "small constants, which the C library's structure has in 16 bits"
)]
pub(crate) fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

impl Drop for ServedDirectory {
    fn drop(&mut self) {
        self.withdraw();
        if self.directory.hand.is_none() {
            // Another process has this open, too, between a fork in this one and its exec, or until the child closes what it got (`hand`).
            let unlock = libc::flock { l_type: UNLOCKED, ..whole_file() };
            // Else it ends with the last descriptor.
            let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&unlock));
        }
    }
}

/// The session for programs of users without a directory; only root can write it.
#[derive(Debug)]
pub(crate) struct SharedSession {
    /// Where it is. Not its path by a number of a descriptor, which may be another directory's later.
    dir: OwnedFd,
    /// Holds the lock, as in [`ServedDirectory`].
    file: File,
    /// If a user can hold the directory.
    hand: Option<Arc<Hand>>,
    /// For programs that see no number of root's.
    _voucher: Option<Voucher>,
}

impl SharedSession {
    /// `shown`: the path of the directory, for messages, and whose files root's are there. `are_elsewhere`: the programs are in a container.
    pub(crate) fn new(
        (dir, hand): (&impl AsFd, Option<Arc<Hand>>),
        (shown, owner): (&Path, u32),
        id: u64,
        settings: &Settings,
        are_elsewhere: bool,
    ) -> Result<SharedSession, Error> {
        let readers = Readers { mode: 0o644, uid: 0, are_elsewhere };
        let mut voucher = None;
        let file = match &hand {
            Some(hand) => hand
                .shared_session(
                    &format!("{}.{id:x}", SharedSession::NAME),
                    &session_bytes(id, settings, readers),
                )
                // One that is made too late is nobody's: its lock ends with the answer.
                .map_err(Error::io("write", &shown.join(SharedSession::NAME)))?,
            // Before programs can find it.
            None => write_session(dir, SharedSession::NAME, id, settings, readers, |file| {
                voucher = Voucher::of(file, shown);
            })?,
        };
        let dir = dir.as_fd().try_clone_to_owned().map_err(Error::io("open", shown))?;
        remove_partial((&dir, owner), hand.as_deref(), SystemTime::now());
        Ok(SharedSession { dir, file, hand, _voucher: voucher })
    }

    /// What removes it when it is dropped.
    pub(crate) fn hand(&self) -> Option<Arc<Hand>> {
        self.hand.clone()
    }

    const NAME: &str = "rtscope-session";
}

/// Removes sessions that other collectors of root were writing when they were killed. Not one that has just been made: it is locked a moment
/// later, and root in a container makes his own.
fn remove_partial((dir, owner): (&OwnedFd, u32), hand: Option<&Hand>, now: SystemTime) {
    // What cannot be read now is for the next collector.
    let Ok(names) = names_in(dir, hand, NAMES_MAX) else { return };
    let prefix = format!("{}.", SharedSession::NAME);
    for name in names.iter().filter(|name| name.starts_with(&prefix)) {
        let is_roots = status_there(dir, hand, name).is_ok_and(|found| {
            [0, owner].contains(&found.st_uid) && found.st_mode & libc::S_IFMT == libc::S_IFREG
        });
        if !is_roots {
            continue;
        }
        let Ok(file) = open_there(dir, hand, name, OFlag::O_RDONLY) else { continue };
        let made = file.metadata().and_then(|found| found.modified());
        let is_old = made.is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age >= PARTIAL_AT_LEAST));
        if is_old && is_locked(&file) == Some(false) {
            // Whatever is in the way is for the next collector.
            match hand {
                Some(hand) => hand.remove_same(name, &file),
                None => drop(unlinkat(dir, name.as_str(), UnlinkatFlags::NoRemoveDir)),
            }
        }
    }
}

/// Only queries: a lock taken for even a moment could be in the way of a collector that starts.
fn is_locked(file: &File) -> Option<bool> {
    let mut lock = whole_file();
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).ok()?;
    Some(i32::from(lock.l_type) != libc::F_UNLCK)
}

impl Drop for SharedSession {
    fn drop(&mut self) {
        if let Some(hand) = &self.hand {
            // Also when it is removed late, nobody takes it for one that somebody is at.
            let unlock = libc::flock { l_type: UNLOCKED, ..whole_file() };
            let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&unlock));
            return hand.remove_same(SharedSession::NAME, &self.file);
        }
        // As in ServedDirectory.
        let _ = unlinkat(&self.dir, SharedSession::NAME, UnlinkatFlags::NoRemoveDir);
    }
}

/// While this exists, the thread makes files as the directory's owner.
struct OwnerIdentity(Uid, Gid);

impl OwnerIdentity {
    fn of(directory: &UserDirectory) -> OwnerIdentity {
        let group = setfsgid(Gid::from_raw(directory.gid));
        OwnerIdentity(setfsuid(Uid::from_raw(directory.uid)), group)
    }
}

impl Drop for OwnerIdentity {
    fn drop(&mut self) {
        setfsuid(self.0);
        setfsgid(self.1);
    }
}

/// Gives files that root makes in a user's directory to that user, who can then record after root has ended.
fn give_to(file: &File, uid: u32) -> std::io::Result<()> {
    if nix::unistd::geteuid().as_raw() == uid {
        Ok(())
    } else {
        std::os::unix::fs::fchown(file, Some(uid), None)
    }
}

/// The programs that read a session.
#[derive(Clone, Copy, Debug)]
struct Readers {
    mode: u32,
    uid: u32,
    /// In another PID namespace, where this process has no number: they check the file's lock.
    are_elsewhere: bool,
}

/// What is in the file.
fn session_bytes(id: u64, settings: &Settings, readers: Readers) -> Vec<u8> {
    let own_pid = if readers.are_elsewhere { 0 } else { std::process::id() };
    let mut words = settings.events.words();
    words.extend(settings.channels.iter().flat_map(Channels::words));
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&abi::RTU_SESSION_MAGIC.to_le_bytes());
    bytes.extend_from_slice(&abi::RTU_SESSION_VERSION.to_le_bytes());
    bytes.extend_from_slice(&exact::count(words.len()).to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    for word in [own_pid, settings.flags(), settings.ring_bytes, settings.events.level] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    debug_assert_eq!(bytes.len(), size_of::<abi::rtu_session>());
    bytes.extend_from_slice(&words);
    bytes
}

/// Writes the file atomically, since programs read it at any time. It is locked for as long as it is open.
fn write_session(
    dir: &impl AsFd,
    name: &str,
    id: u64,
    settings: &Settings,
    readers: Readers,
    before: impl FnOnce(&File),
) -> Result<File, Error> {
    let Readers { mode, uid, .. } = readers;
    let bytes = session_bytes(id, settings, readers);
    // A name that cannot have been taken before.
    let partial_name = format!("{name}.{id:x}");
    let (path, partial) = (descriptor_path(dir).join(name), descriptor_path(dir).join(&partial_name));
    // Another user's file is replaced; anybody may write next to root's. Only a directory cannot be replaced: it gets another name. Whatever
    // is mounted there is not asked.
    let put_in_place = || {
        let mut put = fs::rename(&partial, &path);
        // Again when what was in the way has gone meanwhile.
        for turn in 0..PLACE_TRIES {
            match &put {
                Err(error) if error.kind() == ErrorKind::IsADirectory && uid == 0 => {}
                _ => break,
            }
            if take_place(dir, &partial_name, name) {
                return Ok(());
            }
            pause_before_try(turn);
            put = fs::rename(&partial, &path);
        }
        put
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        // Nobody else can open it, and lock it first.
        .mode(0o600)
        .open(&partial)
        .map_err(Error::io("make the file", &partial))?;
    let written = file
        .write_all(&bytes)
        .and_then(|()| Ok(fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())).map(drop)?))
        .and_then(|()| give_to(&file, uid))
        .and_then(|()| file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode)))
        .and_then(|()| {
            before(&file);
            put_in_place()
        });
    match written {
        Ok(()) => Ok(file),
        Err(source) => {
            let _ = fs::remove_file(&partial);
            Err(Error::io("write", &path)(source))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_being_written_is_removed_by_the_next_collector_and_not_by_a_refused_one() {
        let base = tempfile::tempdir().unwrap();
        let directory = Arc::new(UserDirectory::make(base.path()).unwrap());
        let partial = directory.path.join("session.1bd3c973e1f3007b");
        fs::write(&partial, "").unwrap();
        let served = ServedDirectory::new(&directory, 1, &Settings::default()).unwrap();
        assert!(!partial.exists() && directory.path.join("session").exists());
        // Of the one that lives.
        fs::write(&partial, "").unwrap();
        assert!(matches!(ServedDirectory::new(&directory, 2, &Settings::default()), Err(Error::Busy(_))));
        assert!(partial.exists());
        drop(served);
    }

    #[test]
    fn a_shared_session_that_was_being_written_is_removed_unless_somebody_is_at_it() {
        if rtscope_testkit::skip::without_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let paths = ["1bd3c9", "1bd3ca"].map(|id| base.path().join(format!("rtscope-session.{id}")));
        let files = paths.each_ref().map(|path| File::create_new(path).unwrap());
        fcntl(&files[1], FcntlArg::F_OFD_SETLK(&whole_file())).unwrap();
        let another = base.path().join("rtscope-session.of-1000-1");
        fs::write(&another, "").unwrap();
        std::os::unix::fs::chown(&another, Some(1000), None).unwrap();
        let dir = OwnedFd::from(File::open(base.path()).unwrap());
        let there = || [&paths[0], &paths[1], &another].map(|path| path.exists());
        remove_partial((&dir, 0), None, SystemTime::now());
        assert_eq!(there(), [true; 3], "they may be written now");
        remove_partial((&dir, 0), None, SystemTime::now() + PARTIAL_AT_LEAST);
        assert_eq!(there(), [false, true, true], "one is locked, and one is another user's");
    }
}

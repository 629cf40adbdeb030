// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directories in which programs leave their files, and the names of those files.

use crate::Error;
use crate::budget::NAMES_MAX;
use crate::containers::Container;
use crate::hand::{Hand, open_there, status_there};
use crate::mounts::{descriptor_path, open_below, status_below};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, RenameFlags, openat, renameat2};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use rtscope_abi::program as abi;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The directory that contains the users' directories.
pub const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "rtscope-";
/// The page by which programs are asked to look for a session.
pub(crate) const LOOK: &str = "look";
const LOOK_BYTES: usize = size_of::<abi::rtu_look>();
/// File descriptors that are left for other things than directories.
const FILES_RESERVED: u64 = 48;
/// How often root tries to take its place: whoever wants to prevent it has to hit a moment between two system calls each time.
pub(crate) const PLACE_TRIES: usize = 64;

/// Identifies a process until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its number in its own PID namespace.
    pub pid: u32,
    /// CLOCK_BOOTTIME when its files were made.
    pub birth_ns: u64,
}

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A program (0) or a library in it.
    Provider(u32),
    /// A thread's ring, and its number.
    Ring(u32, u32),
    /// None: the process runs untraced, because of this errno.
    Untraced(i32),
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// The process.
    pub process: ProcessId,
    /// The content.
    pub kind: FileKind,
}

impl FileName {
    /// Reads a name; `None`: it is not a program's file.
    #[must_use]
    pub fn parse(name: &str) -> Option<FileName> {
        let (kind, rest) = name.split_at_checked(1)?;
        let mut parts = rest.split('-');
        let pid = parts.next()?.parse().ok()?;
        let birth_ns = u64::from_str_radix(parts.next()?, 16).ok()?;
        let number: u32 = parts.next()?.parse().ok()?;
        let kind = match (kind, parts.next()) {
            ("p", None) => FileKind::Provider(number),
            ("r", Some(ring)) => FileKind::Ring(number, ring.parse().ok()?),
            ("x", None) => FileKind::Untraced(i32::try_from(number).ok()?),
            _ => return None,
        };
        let file = FileName { process: ProcessId { pid, birth_ns }, kind };
        // Each name has one spelling only, so that formatting the result gives the same name.
        (parts.next().is_none() && file.to_string() == name).then_some(file)
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ProcessId { pid, birth_ns } = self.process;
        match self.kind {
            FileKind::Provider(number) => write!(f, "p{pid}-{birth_ns:x}-{number}"),
            FileKind::Ring(tid, number) => write!(f, "r{pid}-{birth_ns:x}-{tid}-{number}"),
            FileKind::Untraced(errno) => write!(f, "x{pid}-{birth_ns:x}-{errno}"),
        }
    }
}

/// The directory of a user.
#[derive(Debug)]
pub struct UserDirectory {
    /// The user, as this process sees it.
    pub uid: u32,
    /// Its path; for messages only when it is a container's.
    pub path: PathBuf,
    dir: File,
    pub(crate) gid: u32,
    /// The directory above, and the name in it.
    base: OwnedFd,
    name: String,
    /// Looks for that name, if a user can hold the directory above.
    base_hand: Option<Arc<Hand>>,
    is_containers: bool,
    /// Makes, removes and lists what is in it; without one this process does.
    pub(crate) hand: Option<Arc<Hand>>,
    /// Somebody else had made one of this name, until now.
    pub(crate) was_taken: bool,
    /// Events that were lost by processes without a file, ever, as they were last read.
    lost: AtomicU64,
}

/// A file of a program that was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) bytes: u64,
    /// Device and inode number.
    pub(crate) id: (u64, u64),
    /// Bytes of it that have no memory.
    pub(crate) hole_bytes: u64,
}

impl OpenFile {
    fn new(file: File, status: &FileStat) -> OpenFile {
        let bytes = status.st_size.unsigned_abs();
        let hole_bytes = bytes.saturating_sub(status.st_blocks.unsigned_abs() * 512);
        OpenFile { file, bytes, id: (status.st_dev, status.st_ino), hole_bytes }
    }

    /// It is larger than when it was opened: programs allocate their files in pieces. What it says of itself by now is of a file that
    /// has not been looked at; the next look has it.
    pub(crate) fn has_grown(&self) -> bool {
        self.file.metadata().is_ok_and(|status| status.len() > self.bytes)
    }
}

/// Puts what root has made under another name into the place that an ordinary user has taken. What was there gets that other name: it is
/// not removed, since it may be anything. In one step, so that the user cannot take the place again in between. False: what is there
/// is root's own, or the system refuses.
pub(crate) fn take_place(base: &impl AsFd, made: &str, name: &str) -> bool {
    status_below(base, name).is_ok_and(|theirs| theirs.st_uid != 0)
        && renameat2(base, made, base, name, RenameFlags::RENAME_EXCHANGE).is_ok()
}

/// Waits before another try, a little longer each time. Without it the two sides can go on in step: the kernel hands the lock of the directory
/// from one to the other and back, and each look finds what the last one did not.
pub(crate) fn pause_before_try(turn: usize) {
    std::thread::sleep(Duration::from_micros(turn as u64 * 10));
}

/// Names in a directory; what is no text is left out.
pub(crate) fn names_in(dir: &impl AsFd, hand: Option<&Hand>, most: usize) -> io::Result<Vec<String>> {
    if let Some(hand) = hand {
        return hand.names(most);
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir = openat(dir, ".", flags, Mode::empty()).and_then(Dir::from_fd)?;
    let names = dir.iter().take(most).map_while(Result::ok);
    Ok(names.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_string())).collect())
}

/// A name that nobody can have taken before.
fn fresh_name(name: &str) -> String {
    format!("{name}.{:x}", RandomState::new().build_hasher().finish())
}

impl UserDirectory {
    /// Opens the directory of one user below `base`.
    ///
    /// # Errors
    /// When it does not exist, or others than that user may access it.
    pub fn open(base: &Path, uid: u32) -> Result<UserDirectory, Error> {
        let name = UserDirectory::name_of(uid);
        let path = base.join(&name);
        let failed = |what: &'static str| {
            let path = path.clone();
            move |errno: nix::Error| Error::io(what, &path)(errno.into())
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let base = nix::fcntl::open(base, flags | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed("open"))?;
        // Nothing that is mounted there: users may mount FUSE over directories of theirs.
        let not_ours = || Error::NotOurs(path.display().to_string());
        let dir = match open_below(&base, &name, flags, Mode::empty()) {
            // A link, a file, or something that is mounted there.
            Err(Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV) => return Err(not_ours()),
            opened => opened.map_err(failed("open"))?,
        };
        let status = fstat(&dir).map_err(failed("look at"))?;
        if status.st_uid != uid || !UserDirectory::is_private(&status) {
            return Err(not_ours());
        }
        Ok(UserDirectory {
            uid,
            path,
            dir: dir.into(),
            gid: status.st_gid,
            base,
            name,
            base_hand: None,
            is_containers: false,
            hand: None,
            was_taken: false,
            lost: AtomicU64::new(0),
        })
    }

    /// Opens the directory of one user of a container, who may have another number here.
    ///
    /// # Errors
    /// As [`UserDirectory::open`].
    pub(crate) fn open_in(
        container: &Container,
        base_hand: Option<Arc<Hand>>,
        uid_there: u32,
    ) -> Result<UserDirectory, Error> {
        let name = UserDirectory::name_of(uid_there);
        let path = container.shown.join(&name);
        let failed = |what: &'static str| {
            let path = path.clone();
            move |errno: nix::Error| Error::io(what, &path)(errno.into())
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let dir = open_there(&container.dir, base_hand.as_deref(), &name, flags)
            .map_err(Error::io("open", &path))?;
        let status = fstat(&dir).map_err(failed("look at"))?;
        // Its owner may write anything into it, so its programs are reported as the owner's.
        if !UserDirectory::is_private(&status) {
            return Err(Error::NotOurs(path.display().to_string()));
        }
        let base = container.dir.try_clone().map_err(Error::io("open", &path))?;
        Ok(UserDirectory {
            uid: status.st_uid,
            path,
            dir,
            gid: status.st_gid,
            base,
            name,
            base_hand,
            is_containers: true,
            hand: None,
            was_taken: false,
            lost: AtomicU64::new(0),
        })
    }

    /// Whether it is a container's, where process numbers mean something else.
    pub(crate) fn is_containers(&self) -> bool {
        self.is_containers
    }

    /// Opens what is there; never waits for a user who holds the directory.
    fn open_there(&self, name: &str, flags: OFlag) -> io::Result<File> {
        open_there(&self.dir, self.hand.as_deref(), name, flags)
    }

    /// Opens or makes a file of a collector, never one outside this directory.
    pub(crate) fn open_own(&self, name: &str, flags: OFlag) -> io::Result<File> {
        if !flags.contains(OFlag::O_CREAT) {
            return self.open_there(name, flags);
        }
        Ok(open_below(&self.dir, name, flags | OFlag::O_NONBLOCK, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    /// Opens this user's own directory, and makes it if needed. Anybody can make one of any name in `base` first: root takes its place,
    /// or any user could keep root from recording.
    ///
    /// # Errors
    /// As [`UserDirectory::open`].
    pub fn make(base: &Path) -> Result<UserDirectory, Error> {
        let uid = nix::unistd::geteuid();
        let name = format!("{PREFIX}{uid}");
        let path = base.join(&name);
        let make = || match nix::unistd::mkdir(&path, Mode::S_IRWXU) {
            Ok(()) | Err(nix::Error::EEXIST) => UserDirectory::open(base, uid.as_raw()),
            Err(errno) => Err(Error::io("make the directory", &path)(errno.into())),
        };
        let mut made = make();
        let mut was_taken = false;
        // Again when what was in the way has gone meanwhile.
        for turn in 0..PLACE_TRIES {
            if made.is_ok() || !uid.is_root() {
                break;
            }
            let dir = File::open(base).map_err(Error::io("open", base))?;
            let fresh = fresh_name(&name);
            mkdirat(&dir, fresh.as_str(), Mode::S_IRWXU)
                .map_err(|errno| Error::io("make the directory", &base.join(&fresh))(errno.into()))?;
            if !take_place(&dir, &fresh, &name) {
                let _ = unlinkat(&dir, fresh.as_str(), UnlinkatFlags::RemoveDir);
                pause_before_try(turn);
            }
            made = make();
            was_taken = true;
        }
        made.map(|made| UserDirectory { was_taken, ..made })
    }

    pub(crate) fn name_of(uid: u32) -> String {
        format!("{PREFIX}{uid}")
    }

    /// Whether it is a directory, and nobody's but its owner's.
    pub(crate) fn is_private(status: &FileStat) -> bool {
        SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR
            && status.st_mode & 0o077 == 0
    }

    /// The user of a directory with this name, if this process may read it: all for root, otherwise only its own user.
    pub(crate) fn user_of_name(name: &str) -> Option<u32> {
        let number = name.strip_prefix(PREFIX)?;
        let uid: u32 = number.parse().ok()?;
        let own = nix::unistd::geteuid().as_raw();
        // One spelling.
        (uid.to_string() == number && (own == 0 || own == uid)).then_some(uid)
    }

    /// The names of programs' files in it, and whether it has more than `names` names, whose rest is not read. Also reads what was lost without a file.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn files(&self, names: usize) -> Result<(Vec<FileName>, bool), Error> {
        if let Some(hand) = &self.hand {
            let all = hand.names(names).map_err(|error| self.not_read(error))?;
            let is_over = all.len() > names;
            // What is not there is a request of its own.
            if is_over || all.iter().any(|name| name == LOOK) {
                self.read_lost();
            }
            return Ok((all.iter().take(names).filter_map(|name| FileName::parse(name)).collect(), is_over));
        }
        self.read_lost();
        let failed = |errno: nix::Error| Error::io("read", &self.path)(errno.into());
        let again =
            openat(&self.dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        let mut dir = Dir::from_fd(again.map_err(failed)?).map_err(failed)?;
        let (mut found, mut read) = (Vec::new(), 0);
        for entry in dir.iter() {
            read += 1;
            if read > names {
                return Ok((found, true));
            }
            // An entry that cannot be read ends the list.
            let Ok(entry) = entry else { break };
            found.extend(entry.file_name().to_str().ok().and_then(FileName::parse));
        }
        Ok((found, false))
    }

    /// Opens a regular file of this user; never follows a link, never waits for a FIFO's other end.
    ///
    /// # Errors
    /// When the system refuses or it is something else.
    pub(crate) fn open_file(&self, name: FileName) -> io::Result<OpenFile> {
        let file = self.open_there(&name.to_string(), OFlag::O_RDWR)?;
        let status = fstat(&file)?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFREG || status.st_uid != self.uid {
            return Err(io::Error::other("it is not a regular file of this user"));
        }
        Ok(OpenFile::new(file, &status))
    }

    /// Removes a file, if no program holds its lock; that it is gone already is fine. False: a program holds it.
    pub(crate) fn remove(&self, name: FileName) -> bool {
        let opened = match self.open_file(name) {
            // It can be a program's, who knows.
            Err(error) if crate::is_shortage(&error) => return false,
            // What cannot be opened is no program's file.
            opened => opened.ok(),
        };
        let lock = opened.map(|opened| Flock::lock(opened.file, FlockArg::LockExclusiveNonblock));
        // Held until the name is gone.
        let _lock = match lock {
            Some(Err((_, Errno::EWOULDBLOCK))) => return false,
            lock => lock,
        };
        let name = name.to_string();
        if let Some(hand) = &self.hand {
            return hand
                .remove(&name, _lock.as_ref().and_then(|lock| lock.as_ref().ok()).map(|lock| lock.as_fd()));
        }
        // The owner may have removed it already.
        let _ = unlinkat(&self.dir, name.as_str(), UnlinkatFlags::NoRemoveDir);
        true
    }

    /// Whether a program holds the lock of its file: it lives. A file that is gone is not held.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub(crate) fn is_held(&self, name: FileName) -> io::Result<bool> {
        let opened = match self.open_file(name) {
            Err(error) if crate::is_shortage(&error) => return Err(error),
            opened => opened.ok(),
        };
        let lock = opened.map(|opened| Flock::lock(opened.file, FlockArg::LockSharedNonblock));
        Ok(matches!(lock, Some(Err((_, Errno::EWOULDBLOCK)))))
    }

    /// Writes into the page by which programs without a file are asked to look for a session (include/rtscope/abi.h): a number, or 0.
    /// Programs make it.
    pub(crate) fn set_look(&self, number: u32) {
        if let Some(hand) = &self.hand {
            return hand.set_look(number);
        }
        let Some((file, page)) = self.look_page(OFlag::O_RDWR) else { return };
        let place = offset_of!(abi::rtu_look, look);
        if page[place..place + 4] != number.to_le_bytes() {
            // A program that made it unwritable asks nobody.
            let _ = file.write_all_at(&number.to_le_bytes(), place as u64);
        }
    }

    /// Reads how many events were lost by processes without a file, ever; may wait for the user. They count more than was asked for: who does not find the
    /// session cannot know what it wants.
    pub(crate) fn read_lost(&self) {
        let place = offset_of!(abi::rtu_look, lost);
        let lost = |page: [u8; LOOK_BYTES]| page[place..].first_chunk().copied().map(u64::from_le_bytes);
        if let Some(lost) = self.look_page(OFlag::O_RDONLY).and_then(|(_, page)| lost(page)) {
            // ORDER: relaxed; a number that stands for itself.
            self.lost.store(lost, Ordering::Relaxed);
        }
    }

    /// That number, as it was last read. Waits for nobody: who empties rings asks.
    pub(crate) fn lost_without_file(&self) -> u64 {
        // ORDER: relaxed; the same. At the end it comes after the answer to a look, which is a message.
        self.lost.load(Ordering::Relaxed)
    }

    fn look_page(&self, flags: OFlag) -> Option<(File, [u8; LOOK_BYTES])> {
        let file = self.open_own(LOOK, flags).ok()?;
        let mut page = [0; LOOK_BYTES];
        let is_a_page = file.metadata().is_ok_and(|status| status.is_file() && status.uid() == self.uid)
            && file.read_exact_at(&mut page, 0).is_ok()
            && page[..8] == abi::RTU_LOOK_MAGIC.to_le_bytes();
        is_a_page.then_some((file, page))
    }

    /// Removes a file of a collector; that it is gone already is fine.
    pub(crate) fn remove_named(&self, name: &str) {
        if let Some(hand) = &self.hand {
            // What waits already is done, or nothing is, until its user lets go.
            hand.remove(name, None);
            return;
        }
        let _ = unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Whether hardly any file descriptors are left: those are for the files of programs that are known.
    pub(crate) fn is_last(&self) -> bool {
        // The kernel gives the lowest number that is free.
        let number = u64::from(self.dir.as_raw_fd().unsigned_abs());
        getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(limit, _)| number + FILES_RESERVED >= limit)
    }

    /// Removes sessions that collectors were writing when they were killed. Only for the one that holds the lock: nobody else writes any.
    pub(crate) fn remove_partial_sessions(&self) {
        // What cannot be read now is for the next collector.
        let names = self.names(NAMES_MAX).unwrap_or_default();
        names.iter().filter(|name| name.starts_with("session.")).for_each(|name| self.remove_named(name));
    }

    fn names(&self, most: usize) -> io::Result<Vec<String>> {
        names_in(&self.dir, self.hand.as_deref(), most)
    }

    /// What an error of its hand means.
    fn not_read(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::ETIMEDOUT) => Error::Held(self.path.display().to_string()),
            _ => Error::io("read", &self.path)(error),
        }
    }

    pub(crate) fn dir(&self) -> &File {
        &self.dir
    }

    /// Whether the path still names this directory.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let there = match status_there(&self.base, self.base_hand.as_deref(), &self.name) {
            // Nobody knows, until its user lets go.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return true,
            there => there.ok(),
        };
        let here = fstat(&self.dir).ok();
        here.zip(there)
            .is_some_and(|(here, there)| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
    }

    /// A path for watching it.
    #[must_use]
    pub fn descriptor_path(&self) -> PathBuf {
        descriptor_path(&self.dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_made() {
        for name in ["p17-a1b2-0", "r17-a1b2-18-3", "x17-a1b2-28"] {
            assert_eq!(FileName::parse(name).unwrap().to_string(), name);
        }
        for name in [
            "",
            "p",
            "p17",
            "p17-a1b2",
            "p017-a1b2-0",
            "p17-A1B2-0",
            "p17-a1b2-0-0",
            "r17-a1b2-18",
            "session",
            "p+7-a-0",
            "é",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn folders_of_others_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        let made = UserDirectory::make(base.path()).unwrap();
        assert!(made.is_current() && made.files(10).unwrap().0.is_empty());
        std::os::unix::fs::symlink(base.path(), base.path().join("rtscope-77")).unwrap();
        assert!(UserDirectory::open(base.path(), 77).is_err());
        std::fs::set_permissions(&made.path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(UserDirectory::open(base.path(), uid), Err(Error::NotOurs(_))));
    }
}

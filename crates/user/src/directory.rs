// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directories in which programs leave their files, and the names of those files.

use crate::Error;
use crate::containers::{Container, is_still, open_below};
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The directory that contains the users' directories.
pub const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "rtscope-";

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
    /// The container's `/dev/shm`, and the name in it.
    container: Option<(OwnedFd, String)>,
}

impl UserDirectory {
    /// Opens the directory of one user below `base`.
    ///
    /// # Errors
    /// When it does not exist, or others than that user may access it.
    pub fn open(base: &Path, uid: u32) -> Result<UserDirectory, Error> {
        let path = base.join(format!("{PREFIX}{uid}"));
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(&path, flags, Mode::empty())
            .map_err(|errno| Error::io("open", &path)(errno.into()))?;
        let status = fstat(&dir).map_err(|errno| Error::io("look at", &path)(errno.into()))?;
        if status.st_uid != uid || status.st_mode & 0o077 != 0 {
            return Err(Error::NotOurs(path.display().to_string()));
        }
        Ok(UserDirectory { uid, path, dir: dir.into(), gid: status.st_gid, container: None })
    }

    /// Opens the directory of one user of a container, who may have another number here.
    ///
    /// # Errors
    /// As [`UserDirectory::open`].
    pub(crate) fn open_in(container: &Container, uid_there: u32) -> Result<UserDirectory, Error> {
        let name = format!("{PREFIX}{uid_there}");
        let path = container.shown.join(&name);
        let failed = |what: &'static str| {
            let path = path.clone();
            move |errno: nix::Error| Error::io(what, &path)(errno.into())
        };
        let dir = open_below(&container.dir, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
            .map_err(failed("open"))?;
        let status = fstat(&dir).map_err(failed("look at"))?;
        // Its owner may write anything into it, so its programs are reported as the owner's.
        if status.st_mode & 0o077 != 0 {
            return Err(Error::NotOurs(path.display().to_string()));
        }
        let base = container.dir.try_clone().map_err(Error::io("open", &path))?;
        Ok(UserDirectory {
            uid: status.st_uid,
            path,
            dir: dir.into(),
            gid: status.st_gid,
            container: Some((base, name)),
        })
    }

    /// Whether it is a container's, where process numbers mean something else.
    pub(crate) fn is_containers(&self) -> bool {
        self.container.is_some()
    }

    /// Opens or makes a file of a collector, never one outside this directory.
    pub(crate) fn open_own(&self, name: &str, flags: OFlag) -> io::Result<File> {
        Ok(open_below(&self.dir, name, flags | OFlag::O_NONBLOCK, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    /// Opens this user's own directory, and makes it if needed.
    ///
    /// # Errors
    /// As [`UserDirectory::open`].
    pub fn make(base: &Path) -> Result<UserDirectory, Error> {
        let uid = nix::unistd::geteuid().as_raw();
        let path = base.join(format!("{PREFIX}{uid}"));
        match nix::unistd::mkdir(&path, Mode::S_IRWXU) {
            Ok(()) | Err(nix::Error::EEXIST) => UserDirectory::open(base, uid),
            Err(errno) => Err(Error::io("make the directory", &path)(errno.into())),
        }
    }

    /// The users that have a directory which this process may read: all for root, otherwise only its own user.
    #[must_use]
    pub fn users(base: &Path) -> Vec<u32> {
        UserDirectory::some_users(base, usize::MAX)
    }

    /// The same among the first `names` names.
    pub(crate) fn some_users(base: &Path, names: usize) -> Vec<u32> {
        let own = nix::unistd::geteuid().as_raw();
        let all = std::fs::read_dir(base).into_iter().flatten().flatten().take(names);
        let uids = all.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok());
        let mut uids: Vec<u32> = uids.filter(|uid| own == 0 || *uid == own).collect();
        uids.sort_unstable();
        uids
    }

    /// The names of all programs' files in it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn files(&self) -> Result<Vec<FileName>, Error> {
        let failed = |errno: nix::Error| Error::io("read", &self.path)(errno.into());
        let again =
            openat(&self.dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        let mut dir = Dir::from_fd(again.map_err(failed)?).map_err(failed)?;
        let names = dir.iter().filter_map(|entry| FileName::parse(entry.ok()?.file_name().to_str().ok()?));
        Ok(names.collect())
    }

    /// Opens a regular file of this user; never follows a link, never waits for a FIFO's other end.
    ///
    /// # Errors
    /// When the system refuses or it is something else.
    pub(crate) fn open_file(&self, name: FileName) -> io::Result<(File, u64)> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK;
        let file = File::from(open_below(&self.dir, &name.to_string(), flags, Mode::empty())?);
        let status = fstat(&file)?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFREG || status.st_uid != self.uid {
            return Err(io::Error::other("it is not a regular file of this user"));
        }
        Ok((file, status.st_size.unsigned_abs()))
    }

    /// Removes a file; that it is gone already is fine.
    pub(crate) fn remove(&self, name: FileName) {
        // The owner may have removed it already.
        let _ = nix::unistd::unlinkat(
            &self.dir,
            name.to_string().as_str(),
            nix::unistd::UnlinkatFlags::NoRemoveDir,
        );
    }

    /// Whether the path still names this directory.
    #[must_use]
    pub fn is_current(&self) -> bool {
        if let Some((base, name)) = &self.container {
            return is_still(base, name, &self.dir);
        }
        let here = fstat(&self.dir).ok();
        let there = fstatat(nix::fcntl::AT_FDCWD, &self.path, AtFlags::AT_SYMLINK_NOFOLLOW).ok();
        here.zip(there)
            .is_some_and(|(here, there)| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
    }

    /// A path for watching it.
    #[must_use]
    pub fn descriptor_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_fd().as_raw_fd()))
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
        assert!(made.is_current() && made.files().unwrap().is_empty());
        std::os::unix::fs::symlink(base.path(), base.path().join("rtscope-77")).unwrap();
        assert!(UserDirectory::open(base.path(), 77).is_err());
        std::fs::set_permissions(&made.path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(UserDirectory::open(base.path(), uid), Err(Error::NotOurs(_))));
    }
}

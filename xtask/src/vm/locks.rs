// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks between processes, and directories that only one process uses.
//!
//! Two `./x vm` may run in one target directory and with one cache. What each makes for itself is in a private directory,
//! which is removed when it ends; if it was killed, the next one removes it. Whether the owner is alive is asked of a lock
//! on a file, which the kernel releases with the process: a process number would say nothing in another container, or once it
//! is used again.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A lock on a file. It is released when this is dropped, or with the process.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Waits until nobody else has a lock on the file. `waiting`: what is reported if that takes time.
    pub fn exclusive(path: &Path, waiting: &str) -> Result<Lock> {
        if let Some(lock) = Lock::take(path, FlockArg::LockExclusiveNonblock)? {
            return Ok(lock);
        }
        eprintln!("xtask: {waiting}");
        Lock::take(path, FlockArg::LockExclusive)?.with_context(|| path.display().to_string())
    }

    /// For many at once; `None` while somebody has the file for itself.
    pub fn shared(path: &Path) -> Result<Option<Lock>> {
        Lock::take(path, FlockArg::LockSharedNonblock)
    }

    /// `None` if somebody has a lock on the file.
    pub fn try_exclusive(path: &Path) -> Result<Option<Lock>> {
        Lock::take(path, FlockArg::LockExclusiveNonblock)
    }

    fn take(path: &Path, how: FlockArg) -> Result<Option<Lock>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        match Flock::lock(file.with_context(|| path.display().to_string())?, how) {
            Ok(file) => Ok(Some(Lock { _file: file })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(anyhow!("{} cannot be locked: {error}", path.display())),
        }
    }
}

/// The file in each directory that its owner has locked.
const OWNER: &str = "lock";

/// A directory of this process; it is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
    _owner: Lock,
}

impl TemporaryDirectory {
    /// Makes `PREFIX.NUMBER` in `parent`, and removes those whose owners were killed.
    pub fn create(parent: &Path, prefix: &str) -> Result<TemporaryDirectory> {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        // While we have this, no directory is without the lock of its owner.
        let all = parent.join(format!("{prefix}.lock"));
        let _all = Lock::exclusive(&all, &format!("waiting for {}", all.display()))?;
        sweep(parent, prefix)?;
        for number in 0.. {
            let path = parent.join(format!("{prefix}.{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
            let owner = Lock::try_exclusive(&path.join(OWNER))?;
            let owner = owner.with_context(|| format!("{}: somebody else has it", path.display()))?;
            return Ok(TemporaryDirectory { path, _owner: owner });
        }
        Err(anyhow!("{}: all numbers are used", parent.display()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // What remains is removed by the next one.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories that nobody has.
fn sweep(parent: &Path, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(parent)?.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
        let is_ours = number.is_some_and(|number| number.parse::<u32>().is_ok()) && entry.path().is_dir();
        if is_ours && Lock::try_exclusive(&entry.path().join(OWNER))?.is_some() {
            fs::remove_dir_all(entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parent that is removed at the end.
    struct Parent(PathBuf);

    impl Parent {
        fn new(name: &str) -> Parent {
            Parent(std::env::temp_dir().join(format!("rtscope-locks-{name}.{}", std::process::id())))
        }
    }

    impl Drop for Parent {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn two_at_once_have_different_directories() {
        let parent = Parent::new("two");
        let first = TemporaryDirectory::create(&parent.0, "run").expect("it can be made");
        fs::write(first.path().join("base.cpio"), "first").expect("it can be written");
        let second = TemporaryDirectory::create(&parent.0, "run").expect("it can be made");
        assert_ne!(first.path(), second.path());
        fs::write(second.path().join("base.cpio"), "second").expect("it can be written");
        assert_eq!(fs::read_to_string(first.path().join("base.cpio")).expect("it stays"), "first");
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists() && first.path().exists());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let parent = Parent::new("killed");
        let alive = TemporaryDirectory::create(&parent.0, "run").expect("it can be made");
        // A killed process leaves its directory and releases its lock.
        for left in ["run.7", "run.x", "other.1"] {
            fs::create_dir(parent.0.join(left)).expect("it can be made");
            fs::write(parent.0.join(left).join(OWNER), "").expect("it can be written");
        }
        let next = TemporaryDirectory::create(&parent.0, "run").expect("it can be made");
        let exists = |name: &str| parent.0.join(name).exists();
        assert_eq!([exists("run.7"), exists("run.x"), exists("other.1")], [false, true, true]);
        assert!(alive.path().exists() && next.path().exists());
    }

    #[test]
    fn many_may_share_a_lock_and_one_may_have_it_for_itself() {
        let parent = Parent::new("shared");
        fs::create_dir_all(&parent.0).expect("it can be made");
        let path = parent.0.join("lock");
        let readers = [Lock::shared(&path), Lock::shared(&path)].map(|lock| lock.expect("it can be locked"));
        assert!(readers.iter().all(Option::is_some));
        assert!(Lock::try_exclusive(&path).expect("it can be asked").is_none());
        drop(readers);
        let _writer = Lock::try_exclusive(&path).expect("it can be asked").expect("nobody has it");
        assert!(Lock::shared(&path).expect("it can be asked").is_none());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of instances, and removing those whose process is gone.
//!
//! A name carries the process's number and start time, so that a number that was given to somebody else is not taken for
//! the owner. Numbers mean nothing in another PID namespace, so the owner also holds a lock on one of the instance's files:
//! an instance is only removed when its process is not seen *and* nobody holds the lock. One of this very process is removed when nobody
//! holds the lock: it is from before execve(), by which a process that is ended in a hurry lets go of everything (`rtscope` does that at
//! a second Ctrl-C).

use super::error::TracefsError;
use super::mount::Tracefs;
use super::uprobes;
use crate::tasks::task_life;
use rtscope_event::Tid;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const PREFIX: &str = "rtscope-";
/// The file on which the owner holds its lock.
pub(super) const LOCKED: &str = "tracing_on";

/// Instances of this process that have not been removed.
static INSTANCES: AtomicUsize = AtomicUsize::new(0);

/// Another one is being made.
pub(super) fn one_more() {
    // ORDER: relaxed; a number that stands for itself.
    INSTANCES.fetch_add(1, Ordering::Relaxed);
}

/// One is gone, or will not be removed by this process.
pub(super) fn one_less() {
    // ORDER: relaxed; as above.
    INSTANCES.fetch_sub(1, Ordering::Relaxed);
}

/// Whether this process has instances, which would stay if it ended at once.
#[must_use]
pub fn has_instances() -> bool {
    // ORDER: relaxed; as above.
    INSTANCES.load(Ordering::Relaxed) > 0
}

/// The name of this process's instance number `n`.
pub(super) fn own_name(n: u32) -> String {
    let pid = std::process::id();
    format!("{PREFIX}{pid}-{}-{n}", start_time(pid).unwrap_or(0))
}

fn start_time(pid: u32) -> Option<u64> {
    task_life(Tid(pid)).ok()?.map(|(_, started)| started)
}

/// Process number and start time of an instance's owner.
pub(super) fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let number = parts.next()?.parse::<u32>().is_ok();
    (number && parts.next().is_none()).then_some(owner)
}

/// Takes the lock that shows that the instance has a living owner; `false`: somebody else has it.
pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor belongs to the borrowed file, and the call touches no memory of ours.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

fn is_left_over(path: &Path, name: &str) -> bool {
    let Some((pid, started)) = owner(name) else { return false };
    if pid != std::process::id() && start_time(pid) == Some(started) {
        return false;
    }
    // The lock goes with the file at the end, and must, since an open file keeps an instance from being removed.
    File::open(path.join(LOCKED)).is_ok_and(|file| matches!(try_lock(&file), Ok(true)))
}

impl Tracefs {
    /// Removes instances of rtscope whose process is gone, and says which. The kernel switches their events off with them. The same for
    /// uprobes whose instance is gone.
    ///
    /// # Errors
    /// [`TracefsError`] when there is one that cannot be removed.
    pub fn sweep(&self) -> Result<Vec<String>, TracefsError> {
        let mut removed = Vec::new();
        for entry in fs::read_dir(self.instances()).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if is_left_over(&entry.path(), &name) {
                remove(&entry.path())?;
                removed.push(name);
            }
        }
        // After the instances, which use them.
        removed.extend(uprobes::remove(self, |group| self.is_left_over_group(group))?);
        Ok(removed)
    }

    /// Whether a group of uprobes has no owner: neither its instance, nor a process that has yet to remove it.
    fn is_left_over_group(&self, group: &str) -> bool {
        let Some(instance) = uprobes::instance_of(group) else { return false };
        let Some((pid, started)) = owner(&instance) else { return false };
        let is_alive = pid != std::process::id() && start_time(pid) == Some(started);
        !is_alive && !self.instances().join(instance).exists()
    }
}

/// Removes an instance. One that is gone already is fine: two sweeps can meet.
pub(super) fn remove(path: &Path) -> Result<(), TracefsError> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(TracefsError::Busy(path.to_path_buf()))
        }
        Err(error) => Err(TracefsError::writing("remove a trace instance", path, error)),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_owner() {
        let own = own_name(3);
        let (pid, started) = owner(&own).unwrap();
        assert_eq!((pid, Some(started)), (std::process::id(), start_time(std::process::id())));
        assert!(started > 0);
        for foreign in
            ["rtscope", "rtscope-", "rtscope-1-2", "rtscope-1-2-x", "rtscope-1-2-3-4", "mine-1-2-3"]
        {
            assert_eq!(owner(foreign), None, "{foreign}");
        }
    }
}

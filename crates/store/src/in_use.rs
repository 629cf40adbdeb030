// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a recording is still being made.

use crate::spool;
use nix::fcntl::{Flock, FlockArg};
use std::path::Path;

/// Whether the directory `TARGET.partial` was left by a recorder that is gone: it has a file that recorders lock, and nobody does. The
/// lock is held for a moment to find out, shared, so it disturbs neither a recorder nor others who ask.
#[must_use]
pub fn is_abandoned(directory: &Path) -> bool {
    let files = [spool::FIRST, crate::user::FIRST].map(|name| spool::open_regular(&directory.join(name)));
    let mut locks = files.into_iter().flatten().map(|file| Flock::lock(file, FlockArg::LockSharedNonblock));
    let Some(first) = locks.next() else { return false };
    first.is_ok() && locks.all(|lock| lock.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn what_nobody_locks_is_abandoned() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_abandoned(directory.path()), "it may just begin");
        let paths = [spool::FIRST, crate::user::FIRST].map(|name| directory.path().join(name));
        fs::write(&paths[0], "").unwrap();
        assert!(is_abandoned(directory.path()));
        fs::write(&paths[1], "").unwrap();
        let lock = Flock::lock(File::open(&paths[1]).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
        assert!(!is_abandoned(directory.path()));
        drop(lock);
        assert!(is_abandoned(directory.path()));
    }
}

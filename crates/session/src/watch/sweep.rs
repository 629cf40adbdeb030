// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What killed runs left behind: a snapshot is written under a hidden name (`rtscope_ctf::StagedDir`) and only gets its own
//! when it is whole, so a kill in between leaves a hidden directory that nobody will ever finish.
//!
//! Whether its writer is gone cannot be seen from the directory, and must not be guessed. So every watch holds a shared lock on
//! the directory for snapshots as long as it lives, and removes leftovers only when it gets that lock for itself alone: then
//! no other watch uses the directory. The price: leftovers stay while another watch runs there, until a later one begins.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::Path;

/// A directory for snapshots while a watch uses it.
#[derive(Debug)]
pub struct DirectoryUse {
    _lock: Option<Flock<File>>,
}

impl DirectoryUse {
    /// Removes what killed runs left, if nobody else uses the directory, and marks it as used. A file system without locks is
    /// used without: nothing is removed then.
    pub fn enter(dir: &Path) -> DirectoryUse {
        let open = || File::open(dir).ok();
        if let Some(alone) = open().and_then(|file| lock(file, FlockArg::LockExclusiveNonblock)) {
            remove_leftovers(dir);
            drop(alone);
        }
        // Waits only while another watch that begins is removing leftovers.
        DirectoryUse { _lock: open().and_then(|file| lock(file, FlockArg::LockShared)) }
    }
}

fn lock(mut file: File, how: FlockArg) -> Option<Flock<File>> {
    loop {
        match Flock::lock(file, how) {
            Ok(lock) => return Some(lock),
            Err((again, Errno::EINTR)) => file = again,
            Err(_) => return None,
        }
    }
}

fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && entry.file_name().to_str().is_some_and(is_leftover) {
            // It costs disk space and nothing else: not worth a failure.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// `.20261120T234107Z-1.0123456789abcdef0123456789abcdef.partial`, perhaps with `.2` after the number.
fn is_leftover(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parse = || {
        let (snapshot, id) = name.strip_prefix('.')?.strip_suffix(".partial")?.rsplit_once('.')?;
        let (stamp, number) = snapshot.split_once('-')?;
        let (day, time) = stamp.strip_suffix('Z')?.split_once('T')?;
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_stamp = day.len() == 8 && time.len() == 6 && digits(day) && digits(time);
        Some(is_id && is_stamp && number.split('.').all(digits))
    };
    parse().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_hidden_names_are_leftovers() {
        let id = "0123456789abcdef0123456789abcdef";
        for ours in ["20261120T234107Z-1", "20261120T234107Z-12.2"] {
            assert!(is_leftover(&format!(".{ours}.{id}.partial")), "{ours}");
        }
        for other in [
            format!("20261120T234107Z-1.{id}.partial"),
            format!(".20261120T234107Z-1.{id}"),
            format!(".20261120T234107Z.{id}.partial"),
            format!(".20261120T234107Z-.{id}.partial"),
            format!(".notes-1.{id}.partial"),
            ".20261120T234107Z-1.0123.partial".to_string(),
            ".partial".to_string(),
            "20261120T234107Z-1".to_string(),
        ] {
            assert!(!is_leftover(&other), "{other}");
        }
    }

    #[test]
    fn leftovers_stay_while_another_watch_uses_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let leftover = dir.path().join(".20261120T234107Z-1.0123456789abcdef0123456789abcdef.partial");
        let other = DirectoryUse::enter(dir.path());
        fs::create_dir(&leftover).unwrap();
        drop(DirectoryUse::enter(dir.path()));
        assert!(leftover.exists());
        drop(other);
        drop(DirectoryUse::enter(dir.path()));
        assert!(!leftover.exists());
    }
}

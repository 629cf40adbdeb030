// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What vouches for root's session where root has no number.
//!
//! In a user namespace (`unshare -Ur`, sandboxes) the owner of a file of root's is nobody, as that of any other user's file is, and anybody may put a file in
//! the place of root's session in `/dev/shm`. But nobody else than root makes files in `/run`. So there is an empty one, whose name tells which file is root's
//! session: `/run/rtscope/session-IDENTITY` (include/rtscope/sessions.h). Programs ask only whether it is there and whose it is, so nobody else may open it, and nobody else
//! can lock it. It is locked as long as its collector lives; what a killed one left the next one
//! removes, and it does no harm until then: the file that it tells of is gone, or locked by nobody.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The only directory of sessions that programs of this machine look into.
const SHARED_MEMORY: &str = "/dev/shm";
const PLACE: &str = "/run/rtscope";
const PREFIX: &str = "session-";

/// A file there, until this is dropped.
#[derive(Debug)]
pub(crate) struct Voucher {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Voucher {
    /// Of the session that is made in `directory`. `None`: it is not for this machine's programs, or the system has no place for it. Then programs in
    /// user namespaces are found by their user's directory.
    pub fn of(session: &File, directory: &Path) -> Option<Voucher> {
        (directory == Path::new(SHARED_MEMORY)).then(|| Voucher::in_place(session, Path::new(PLACE)).ok())?
    }

    fn in_place(session: &File, place: &Path) -> io::Result<Voucher> {
        match DirBuilder::new().mode(0o755).create(place) {
            // Whatever this process masks.
            Ok(()) => fs::set_permissions(place, Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        remove_left(place);
        let path = place.join(format!("{PREFIX}{:x}", identity(session)?));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        // Another collector that begins has it, as below: it removes it.
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
        Ok(Voucher { path, _lock: lock })
    }
}

impl Drop for Voucher {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Those of collectors that were killed. One that is just being made may be taken for that: then its programs are found by their directory.
fn remove_left(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        if Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What programs call the file: `rtscope__identity()` in include/rtscope/system.h.
fn identity(file: &File) -> io::Result<u64> {
    let found = file.metadata()?;
    let (major, minor) = (nix::sys::stat::major(found.dev()), nix::sys::stat::minor(found.dev()));
    Ok(found.ino() ^ minor << 40 ^ major << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_vouches_for_a_session_goes_with_it_or_with_the_next_one() {
        let base = tempfile::tempdir().unwrap();
        let place = base.path().join("rtscope");
        let names = || fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let session = File::create(base.path().join("a")).unwrap();
        let voucher = Voucher::in_place(&session, &place).unwrap();
        assert_eq!(names(), std::slice::from_ref(&voucher.path));
        assert_eq!(fs::metadata(&voucher.path).unwrap().mode() & 0o7777, 0o600, "others could lock it");
        // One of a collector that lives stays, one of a killed one goes.
        fs::write(place.join("session-1"), "").unwrap();
        let another = File::create(base.path().join("b")).unwrap();
        let other = Voucher::in_place(&another, &place).unwrap();
        assert_eq!(names().len(), 2);
        drop(other);
        assert_eq!(names(), std::slice::from_ref(&voucher.path));
        drop(voucher);
        assert!(names().is_empty());
        assert!(Voucher::of(&session, base.path()).is_none(), "not of this machine");
    }
}

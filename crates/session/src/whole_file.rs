// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are either whole or not there.

use nix::fcntl::OFlag;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Makes one, and gives what `write` gives. What was there before is replaced, if it is a file; a device or a pipe is written to, and a
/// link is followed.
///
/// # Errors
/// Those of `write`, and of the system. No file is left then.
pub fn make<R>(path: &Path, write: impl FnOnce(&File) -> io::Result<R>) -> io::Result<R> {
    // Opened and not only resolved: by somebody else's link in a directory for all the kernel leads nobody (fs.protected_symlinks).
    let there = match File::options().read(true).custom_flags(OFlag::O_PATH.bits()).open(path) {
        Ok(there) => {
            let data = there.metadata()?;
            if !data.is_file() && !data.is_dir() {
                return File::options().write(true).open(path).and_then(|file| write(&file));
            }
            Some((std::fs::read_link(format!("/proc/self/fd/{}", there.as_raw_fd()))?, data))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let there = there.as_ref();
    let path = there.map_or(path, |(path, _)| path.as_path());
    // Beside it, under a name that nobody else has; a failure removes it.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = tempfile::Builder::new()
        .prefix(".rtscope-")
        .permissions(PermissionsExt::from_mode(0o666))
        .tempfile_in(folder)?;
    let written = write(part.as_file())?;
    if let Some((_, there)) = there {
        // As it would be if the file had been written over. Who may not give files away has made his own.
        let _ = fchown(part.as_file(), Some(there.uid()), Some(there.gid()));
        part.as_file().set_permissions(PermissionsExt::from_mode(there.mode() & 0o777))?;
    }
    part.persist(path).map_err(|failed| failed.error)?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_failure_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "old").unwrap();
        let failed = make(&path, |mut file| {
            file.write_all(b"ne")?;
            Err::<(), _>(io::Error::other("full"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        make(&path, |mut file| file.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn what_replaces_a_file_has_its_rights_and_a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("f", &link).unwrap();
        make(&link, |mut file| file.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}

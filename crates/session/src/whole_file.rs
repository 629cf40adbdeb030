// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are either whole or not there.

use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes one, and gives what `write` gives. What was there before is replaced, if it is a file; a device or a pipe is written to, and a
/// link is followed.
///
/// # Errors
/// Those of `write`, and of the system. No file is left then.
pub fn make<R>(path: &Path, write: impl FnOnce(&File) -> io::Result<R>) -> io::Result<R> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let there = std::fs::metadata(&path);
    if there.is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return File::options().write(true).open(&path).and_then(|file| write(&file));
    }
    // Beside it, under a name that nobody else has; a failure removes it.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = tempfile::Builder::new()
        .prefix(".rtscope-")
        .permissions(PermissionsExt::from_mode(0o666))
        .tempfile_in(folder)?;
    let written = write(part.as_file())?;
    part.persist(&path).map_err(|failed| failed.error)?;
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
}

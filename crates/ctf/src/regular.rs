// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening files of other writers: only regular files, and without blocking.
//!
//! Opening a pipe waits for its other end, and reading a device may never end. Whether the name is that of a regular
//! file is only certain once it is open, so it is opened without blocking and checked afterwards.

use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const LOOP: i32 = nix::Error::ELOOP as i32;
const NO_DEVICE: i32 = nix::Error::ENXIO as i32;

/// The treatment of a symbolic link as the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Follow it.
    Follow,
    /// Refuse it, as anything but a regular file.
    Refuse,
}

/// Opens a regular file for reading.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] when it is something else; otherwise the system's error.
pub fn open_regular(path: &Path, links: Links) -> io::Result<File> {
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    let link = match links {
        Links::Follow => OFlag::empty(),
        Links::Refuse => OFlag::O_NOFOLLOW,
    };
    // On a regular file, O_NONBLOCK changes nothing.
    let flags = OFlag::O_NONBLOCK | link;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        // A link; a socket, or a device without a driver.
        Err(error) if matches!(error.raw_os_error(), Some(LOOP | NO_DEVICE)) => return Err(no_file()),
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn only_regular_files_are_opened_and_nothing_blocks() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        std::os::unix::fs::symlink("pipe", at("to-pipe")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let kind = |path: &Path, links| open_regular(path, links).err().map(|error| error.kind());
        for links in [Links::Follow, Links::Refuse] {
            assert_eq!(kind(&at("file"), links), None);
            assert_eq!(kind(&at("none"), links), Some(io::ErrorKind::NotFound));
            for other in ["pipe", "to-pipe", "directory", "socket", "/dev/zero"] {
                assert_eq!(kind(&at(other), links), Some(io::ErrorKind::InvalidInput), "{other} {links:?}");
            }
        }
        assert_eq!(kind(&at("link"), Links::Follow), None);
        assert_eq!(kind(&at("link"), Links::Refuse), Some(io::ErrorKind::InvalidInput));
    }
}

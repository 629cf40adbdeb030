// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening files of other writers: only regular files, and without blocking.
//!
//! Opening a pipe waits for its other end, opening a device may do something (a watchdog is armed by it), and reading one may never end.
//! Files of the kernel's own file systems are called regular, and reading one may take from others what they wait for (`trace_pipe`). Who owns
//! a directory can put a link to any of these into it, for somebody with more rights to follow. So it is found out first what there is
//! (`O_PATH` opens nothing), and then that is opened and not its name.

use nix::fcntl::OFlag;
use nix::sys::statfs::{
    BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, FsType, PROC_SUPER_MAGIC,
    SECURITYFS_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC, fstatfs,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File systems without files that anybody has stored.
const OF_THE_KERNEL: [FsType; 8] = [
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    TRACEFS_MAGIC,
    DEBUGFS_MAGIC,
    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
    SECURITYFS_MAGIC,
    BPF_FS_MAGIC,
];

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
/// [`io::ErrorKind::InvalidInput`] when it is something else, or one of the kernel's; otherwise the system's error.
pub fn open_regular(path: &Path, links: Links) -> io::Result<File> {
    let link = match links {
        Links::Follow => OFlag::empty(),
        Links::Refuse => OFlag::O_NOFOLLOW,
    };
    // That it is to be read is ignored.
    let there = OpenOptions::new().read(true).custom_flags((OFlag::O_PATH | link).bits()).open(path)?;
    if !there.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if OF_THE_KERNEL.contains(&fstatfs(&there)?.filesystem_type()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a file of the kernel's, which nobody has stored",
        ));
    }
    // On a regular file, O_NONBLOCK changes nothing but that a lease is not waited for.
    let open = |path: &Path, link: OFlag| {
        OpenOptions::new().read(true).custom_flags((OFlag::O_NONBLOCK | link).bits()).open(path)
    };
    match open(&inside(&there), OFlag::empty()) {
        // There is no /proc.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (there, opened) = (there.metadata()?, open(path, link)?);
            let is_same =
                opened.metadata().map(|opened| (opened.dev(), opened.ino()) == (there.dev(), there.ino()))?;
            if is_same { Ok(opened) } else { Err(io::Error::other("it was exchanged while it was opened")) }
        }
        opened => opened,
    }
}

/// Opens a directory, and nothing that has taken its name.
pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(path)
}

/// A path to what is open, whatever its name leads to by now.
pub(crate) fn inside(open: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
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
        // Regular by their kind, and with effects when they are read.
        std::os::unix::fs::symlink("/proc/self/status", at("to-the-kernels")).unwrap();
        assert_eq!(kind(&at("to-the-kernels"), Links::Follow), Some(io::ErrorKind::InvalidInput));
    }

    /// What opening a device does cannot be undone. Whether one is opened is seen by a pipe.
    #[test]
    fn nothing_is_opened_to_find_out_that_it_is_no_regular_file() {
        use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
        let root = tempfile::tempdir().unwrap();
        let (file, pipe) = (root.path().join("file"), root.path().join("pipe"));
        fs::write(&file, "x").unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let opened = |path: &Path| {
            let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
            watch.add_watch(path, AddWatchFlags::IN_OPEN).unwrap();
            drop(open_regular(path, Links::Follow));
            watch.read_events().is_ok()
        };
        assert!(opened(&file) && !opened(&pipe));
    }
}

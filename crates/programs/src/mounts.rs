// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way to a container's `/dev/shm`, judged before it is gone.
//!
//! Root of a container can mount a FUSE file system, whose server answers when it likes, or one of a network, whose server may be
//! dead. Walking into either can wait for ever. So the kernel's list of that process's mounts is read first: `/dev/shm` has to be a
//! tmpfs, and nothing before it may need a server. An overlay may have a FUSE below it, which the list does not tell: so one is only
//! crossed in a mount namespace that root or this user made (docker's, podman's of root; not that of another user's podman). A mount can come
//! after the list was read; so the walk is made by a thread that nobody waits for (`look/walker`). But a process ends with its last
//! thread only, so what that thread waits for must not come from a user who means it.

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// A longer list is not read to its end.
const LIST_BYTES_MAX: u64 = 8 << 20;
/// File systems that ask a server, or a user: of these the kernel's list names the type, some with a suffix (`fuse.sshfs`).
const WITH_A_SERVER: [&str; 16] = [
    "fuse",
    "fuseblk",
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "coda",
    "autofs",
    "glusterfs",
    "virtiofs",
    "orangefs",
    "ncpfs",
];

/// Whether a process's list of mounts (proc_pid_mountinfo(5)) has a way to a tmpfs on `/dev/shm`. `is_trusted`: who made the namespace would not
/// hide a server below an overlay. `Err`: what is in the way.
pub(crate) fn judge(list: impl BufRead, is_trusted: bool) -> Result<(), String> {
    let mut shm = None;
    for line in list.lines() {
        let line = line.map_err(|error| error.to_string())?;
        // "36 35 98:0 /root /mount/point rw,noatime master:1 - TYPE source options"
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(point) = before.split(' ').nth(4) else { continue };
        let kind = after.split(' ').next().unwrap_or_default();
        if !["/", "/dev", "/dev/shm"].contains(&point) {
            continue;
        }
        let family = kind.split('.').next().unwrap_or_default();
        if WITH_A_SERVER.contains(&family) {
            return Err(format!("{point} is a {kind}, which waits for a server"));
        }
        if family == "overlay" && !is_trusted {
            return Err(format!(
                "{point} is an overlay of another user's, below which may be what waits for a server; that user's own recorder finds it"
            ));
        }
        if point == "/dev/shm" {
            shm = Some(kind.to_string());
        }
    }
    match shm.as_deref() {
        Some("tmpfs") => Ok(()),
        // The tmpfs of /dev, or of everything, can have the directory; what it is is checked when it is open.
        None => Ok(()),
        Some(kind) => Err(format!("/dev/shm is a {kind}, not a tmpfs")),
    }
}

/// Whether reading a file that a process has mapped can wait for a server of another user's: the file's device is in its list of mounts. `Err`: what
/// would be waited for.
///
/// A FUSE of root's or of this user's is trusted, and an overlay as on the way to `/dev/shm`. Anonymous devices that the list does not have are not: they may be of
/// a mount that was taken out of it. Files of a network were mounted by root.
pub fn judge_file(pid: u32, device: (u32, u32)) -> Result<(), String> {
    let list = File::open(format!("/proc/{pid}/mountinfo")).map_err(|error| error.to_string())?;
    let own = nix::unistd::geteuid().as_raw();
    judge_device(BufReader::new(list.take(LIST_BYTES_MAX)), device, is_mount_namespace_trusted(pid), own)
}

fn judge_device(list: impl BufRead, device: (u32, u32), is_trusted: bool, own: u32) -> Result<(), String> {
    let wanted = format!("{}:{}", device.0, device.1);
    for line in list.lines() {
        let line = line.map_err(|error| error.to_string())?;
        let Some((before, after)) = line.split_once(" - ") else { continue };
        if before.split(' ').nth(2) != Some(&wanted) {
            continue;
        }
        let mut words = after.split(' ');
        let kind = words.next().unwrap_or_default();
        let options = words.nth(1).unwrap_or_default();
        let user = options.split(',').find_map(|option| option.strip_prefix("user_id="));
        let is_of_root_or_own = user.is_some_and(|user| user == "0" || user == own.to_string());
        return match kind.split('.').next().unwrap_or_default() {
            "fuse" | "fuseblk" if !(is_trusted && is_of_root_or_own) => {
                Err(format!("it is on a {kind}, which waits for a server of another user's"))
            }
            "overlay" if !is_trusted => {
                Err("it is on an overlay of another user's, below which may be what waits for a server"
                    .to_owned())
            }
            _ => Ok(()),
        };
    }
    match device.0 {
        0 => Err("the process's list of mounts does not say what it is on".to_owned()),
        _ => Ok(()),
    }
}

/// Of linux/nsfs.h: the user namespace that owns a namespace, and the user who made that.
const NS_GET_USERNS: libc::Ioctl = 0xb701;
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// Whether root or the user of this process made the mount namespace of a process, and paths in it may be walked. An error is no.
#[must_use]
pub fn is_mount_namespace_trusted(pid: u32) -> bool {
    let Ok(mounts) = File::open(format!("/proc/{pid}/ns/mnt")) else { return false };
    // SAFETY: it takes no pointer, and returns a descriptor or -1.
    let users = unsafe { libc::ioctl(mounts.as_raw_fd(), NS_GET_USERNS) };
    if users < 0 {
        // EPERM: it is not below this process's own.
        return false;
    }
    // SAFETY: it was just made, and is nobody else's.
    let users = unsafe { OwnedFd::from_raw_fd(users) };
    let mut owner: libc::uid_t = libc::uid_t::MAX;
    // SAFETY: the kernel writes a uid_t there, which outlives the call.
    let known = unsafe { libc::ioctl(users.as_raw_fd(), NS_GET_OWNER_UID, &raw mut owner) } == 0;
    known && (owner == 0 || owner == nix::unistd::geteuid().as_raw())
}

/// Opens the `/dev/shm` that a process sees, if it is a tmpfs. This can wait for ever: see above. `Ok(None)`: the process is gone, or
/// has no such directory.
pub(crate) fn open_shm(pid: u32) -> Result<Option<(OwnedFd, FileStat)>, String> {
    let Ok(list) = File::open(format!("/proc/{pid}/mountinfo")) else { return Ok(None) };
    judge(BufReader::new(list.take(LIST_BYTES_MAX)), is_mount_namespace_trusted(pid))?;
    // O_PATH: nothing is asked of the file system.
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(root) = nix::fcntl::open(&PathBuf::from(format!("/proc/{pid}/root")), flags, Mode::empty()) else {
        return Ok(None);
    };
    // No links: they could lead to mounts that were not judged.
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let Ok(place) = openat2(&root, "dev/shm", OpenHow::new().flags(flags).resolve(inside)) else {
        return Ok(None);
    };
    if !fstatfs(&place).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC) {
        return Ok(None);
    }
    let open = || {
        let dir = open_below(&place, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())?;
        let status = fstat(&dir)?;
        Ok::<_, nix::Error>((dir, status))
    };
    Ok(open().ok())
}

/// Opens an entry of a directory itself: nothing behind a link, nothing mounted there.
pub(crate) fn open_below(dir: &impl AsFd, name: &str, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    let here = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // The kernel refuses a mode when nothing is made.
    let mode = if flags.contains(OFlag::O_CREAT) { mode } else { Mode::empty() };
    openat2(dir, name, OpenHow::new().flags(flags).mode(mode).resolve(here))
}

/// What an entry of a directory is, without asking whatever is mounted over it. `Err(EXDEV)`: something is.
pub(crate) fn status_below(dir: &impl AsFd, name: &str) -> nix::Result<FileStat> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let here = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV;
    let entry = openat2(dir, name, OpenHow::new().flags(flags).resolve(here))?;
    // Of the entry itself, also if it is a link.
    nix::sys::stat::fstatat(&entry, "", AtFlags::AT_EMPTY_PATH)
}

/// Whether a name in a directory still is this open file.
pub(crate) fn is_still(dir: &impl AsFd, name: &str, file: &impl AsFd) -> bool {
    let there = status_below(dir, name).ok();
    let here = fstat(file).ok();
    here.zip(there).is_some_and(|(here, there)| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
}

/// A path of an open directory that stays valid when it is renamed or unmounted.
pub(crate) fn descriptor_path(dir: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_ways_without_a_server_are_gone() {
        let judged_in = |is_trusted: bool, lines: &[&str]| {
            let line = |text: &&str| {
                let (point, kind) = text.split_once(' ').unwrap();
                format!("36 35 98:0 / {point} rw,relatime master:1 - {kind} none rw\n")
            };
            judge(lines.iter().map(line).collect::<String>().as_bytes(), is_trusted)
        };
        let judged = |lines: &[&str]| judged_in(true, lines);
        assert_eq!(judged_in(false, &["/ ext4", "/dev tmpfs", "/home overlay"]), Ok(()));
        assert!(judged_in(false, &["/ overlay", "/dev tmpfs", "/dev/shm tmpfs"]).is_err());
        assert_eq!(judged(&["/ ext4", "/dev devtmpfs", "/dev/shm tmpfs", "/home fuse.sshfs"]), Ok(()));
        assert_eq!(judged(&["/ overlay", "/dev tmpfs"]), Ok(()));
        for bad in [
            &["/ fuse.fuse-overlayfs", "/dev/shm tmpfs"][..],
            &["/ ext4", "/dev nfs4", "/dev/shm tmpfs"],
            &["/ ext4", "/dev/shm fuse"],
            &["/ ext4", "/dev/shm tmpfs", "/dev/shm fuse.evil"],
            &["/ ext4", "/dev/shm fuse.evil", "/dev/shm tmpfs"],
            &["/ ext4", "/dev/shm ramfs"],
        ] {
            assert!(judged(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_mapped_file_is_read_unless_another_users_server_answers() {
        let list = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                    30 22 0:40 / /home/a rw - fuse.sshfs a rw,user_id=1000,group_id=1000\n\
                    31 22 0:41 / /mnt rw shared:1 - fuse.gluster b rw,user_id=0,group_id=0\n\
                    32 22 0:42 / / rw - overlay none rw,lowerdir=x\n33 22 0:43 / /srv rw - nfs4 c:/ rw\n";
        let judged = |device, is_trusted, own| judge_device(list.as_bytes(), device, is_trusted, own).is_ok();
        for (device, is_trusted, own, wanted) in [
            ((254, 0), false, 0, true),
            ((0, 40), true, 0, false),
            ((0, 40), true, 1000, true),
            ((0, 41), true, 0, true),
            // Root of a namespace is 0 in its own list, too.
            ((0, 41), false, 0, false),
            ((0, 42), true, 0, true),
            ((0, 42), false, 0, false),
            ((0, 43), false, 0, true),
            // Below an overlay of an old kernel's; taken out of the list.
            ((8, 1), false, 0, true),
            ((0, 99), true, 0, false),
        ] {
            assert_eq!(judged(device, is_trusted, own), wanted, "{device:?} {is_trusted} {own}");
        }
    }

    #[test]
    fn this_process_is_in_a_mount_namespace_of_roots() {
        assert!(is_mount_namespace_trusted(std::process::id()) || !nix::unistd::geteuid().is_root());
    }

    #[test]
    fn nothing_behind_a_link_or_in_another_folder_is_opened() {
        let dir_path = tempfile::tempdir().unwrap();
        let dir = File::open(dir_path.path()).unwrap();
        fs::write(dir_path.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink(dir_path.path().join("file"), dir_path.path().join("link")).unwrap();
        let open = |name: &str| open_below(&dir, name, OFlag::O_RDONLY, Mode::empty()).map(|_| ());
        assert_eq!(open("file"), Ok(()));
        assert_eq!(open("link"), Err(nix::Error::ELOOP));
        assert_eq!(open("../file"), Err(nix::Error::EXDEV));
        assert!(is_still(&dir, "file", &File::open(dir_path.path().join("file")).unwrap()));
        assert!(!is_still(&dir, "link", &File::open(dir_path.path().join("file")).unwrap()));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way to a container's `/dev/shm`, and files that programs have mapped: what each step is on, known before anything is asked of it.
//!
//! Root of a container can mount a FUSE file system, whose server answers when it likes, or one of a network, whose server may be
//! dead. Asking either can wait for ever, and a process that waits there cannot be killed. So each directory on the way is opened without asking its file system
//! (`O_PATH`); then the kernel says on which mount that descriptor is (`/proc/self/fdinfo`), and the list of mounts of that process what kind of mount it is: only
//! then the next name is looked up in it. A descriptor stays on its mount whatever its user changes meanwhile, and a mount that neither list has is refused: it is
//! one that was taken out, or of a process with a root of its own.
//!
//! An overlay may have a FUSE below it, which lists do not tell: so one is only
//! crossed in a mount namespace that root or this user made (docker's, podman's of root; not that of another user's podman). Servers of root's that are dead
//! remain; so the walk is made by a thread that nobody waits for (`look/walker`). The user of a container can also hold the lock of a directory on the way, without
//! which the kernel does not say that a name is not there: where it needs that, a process of its own looks the name up (`hand`).

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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

/// A line of a list of mounts (proc_pid_mountinfo(5)).
#[derive(Clone, Copy, Debug)]
struct Mount<'a> {
    /// Where it is, from that process's root.
    point: &'a str,
    /// Its file system, some with a suffix.
    kind: &'a str,
    /// Those of the file system.
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// "36 35 98:0 /root /mount/point rw,noatime master:1 - TYPE source options"; and its number.
    fn parse(line: &'a str) -> Option<(u64, Mount<'a>)> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ');
        let id = before.next()?.parse().ok()?;
        let point = before.nth(3)?;
        let mut after = after.split(' ');
        Some((id, Mount { point, kind: after.next()?, options: after.nth(1).unwrap_or_default() }))
    }

    fn family(&self) -> &'a str {
        self.kind.split('.').next().unwrap_or_default()
    }

    /// Whether names may be looked up in it. `is_trusted`: who made its namespace would not hide a server below an overlay. `Err`: what is in the way.
    fn may_be_walked(&self, is_trusted: bool) -> Result<(), String> {
        let Mount { point, kind, .. } = self;
        if WITH_A_SERVER.contains(&self.family()) {
            return Err(format!("{point} is a {kind}, which waits for a server"));
        }
        if self.family() == "overlay" && !is_trusted {
            return Err(format!(
                "{point} is an overlay of another user's, below which may be what waits for a server; that user's own recorder finds it"
            ));
        }
        Ok(())
    }

    /// Whether reading a file on it can wait for a server of another user's. A FUSE of root's or of this user's is trusted, and an overlay as above. Files of a
    /// network were mounted by root.
    fn may_be_read(&self, is_trusted: bool, own: u32) -> Result<(), String> {
        let user = self.options.split(',').find_map(|option| option.strip_prefix("user_id="));
        let is_of_root_or_own = user.is_some_and(|user| user == "0" || user == own.to_string());
        match self.family() {
            "fuse" | "fuseblk" if !(is_trusted && is_of_root_or_own) => {
                Err(format!("it is on a {}, which waits for a server of another user's", self.kind))
            }
            "overlay" if !is_trusted => {
                Err("it is on an overlay of another user's, below which may be what waits for a server"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The number of the mount that something opened is on. Nothing is asked of its file system.
fn mount_of(file: BorrowedFd<'_>) -> Result<u64, String> {
    let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")).and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| format!("{path} does not say the mount"))
}

/// The line of a mount in a list; `None`: it is not there, or there is no list. Names are any bytes: what is not text ends no list.
fn line_of(list: impl BufRead, id: u64) -> Option<String> {
    let lines = list.split(b'\n').map_while(Result::ok);
    let mut lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines.find(|line| Mount::parse(line).is_some_and(|(number, _)| number == id))
}

/// Judges what something is on that a process has shown to us. `judge`: and whether root or this user made its namespace.
fn judged(
    pid: u32,
    file: BorrowedFd<'_>,
    judge: impl FnOnce(Mount<'_>, bool) -> Result<(), String>,
) -> Result<(), String> {
    let id = mount_of(file)?;
    // Lists are read when it is open: its number is no other mount's then. Who is in a namespace of another user's does not come back into one of root's, so that is asked
    // last.
    for (list, is_own) in
        [(format!("/proc/{pid}/mountinfo"), false), ("/proc/self/mountinfo".to_owned(), true)]
    {
        let Ok(list) = File::open(list) else { continue };
        if let Some(line) = line_of(BufReader::new(list.take(LIST_BYTES_MAX)), id) {
            let is_trusted = is_own || is_mount_namespace_trusted(pid);
            return Mount::parse(&line).map_or(Ok(()), |(_, mount)| judge(mount, is_trusted));
        }
    }
    Err("the process's list of mounts does not say what it is on".to_owned())
}

/// Whether reading a file that a process has mapped can wait for a server of another user's. `file`: opened with `O_PATH`, so that nothing was asked yet. `Err`:
/// what would be waited for.
pub fn judge_file(pid: u32, file: BorrowedFd<'_>) -> Result<(), String> {
    let own = nix::unistd::geteuid().as_raw();
    judged(pid, file, |mount, is_trusted| mount.may_be_read(is_trusted, own))
}

/// The root of a process, if paths below it may be walked: it is in a mount namespace of root's or of this user's, in which no other user can mount.
#[must_use]
pub fn trusted_root(pid: u32) -> Option<OwnedFd> {
    let root = open_root(pid)?;
    judged(pid, root.as_fd(), |mount, is_trusted| {
        mount.may_be_walked(is_trusted)?;
        if is_trusted { Ok(()) } else { Err(String::new()) }
    })
    .ok()?;
    // Its mount may be in this process's list, and it elsewhere since.
    is_mount_namespace_trusted(pid).then_some(root)
}

/// Of linux/nsfs.h: the user namespace that owns a namespace, and the user who made that.
const NS_GET_USERNS: libc::Ioctl = 0xb701;
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// Whether root or the user of this process made the mount namespace of a process, and paths in it may be walked. An error is no.
#[must_use]
fn is_mount_namespace_trusted(pid: u32) -> bool {
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

/// Nothing is asked of the file system.
const PATH: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

fn open_root(pid: u32) -> Option<OwnedFd> {
    nix::fcntl::open(&PathBuf::from(format!("/proc/{pid}/root")), PATH, Mode::empty()).ok()
}

/// The `/dev/shm` that a process sees.
#[derive(Debug)]
pub(crate) struct Shm {
    pub(crate) dir: OwnedFd,
    pub(crate) status: FileStat,
    /// Only root mounts in that mount namespace; or it is the directory of a user of the process's user namespace.
    pub(crate) is_its_users: bool,
}

/// Finds a directory in another one, whatever is mounted there. No links: they could lead to what was not judged.
pub(crate) fn enter(dir: &impl AsFd, name: &str) -> nix::Result<OwnedFd> {
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(dir, name, OpenHow::new().flags(PATH).resolve(inside))
}

/// As [`open_cached`].
fn enter_cached(dir: &impl AsFd, name: &str) -> nix::Result<OwnedFd> {
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(dir, name, OpenHow::new().flags(PATH).resolve(inside | CACHED))
}

/// Opens the `/dev/shm` that a process sees, if it is a tmpfs. A server of root's that is dead can make this wait for ever: see above. `ask`: finds a directory that the
/// kernel does not find without the lock of the one it is in, which its user may hold. `Ok(None)`: the process is gone, or has no such directory. `Err`: what is in the
/// way.
pub(crate) fn open_shm(
    pid: u32,
    ask: impl Fn(BorrowedFd<'_>, &str) -> io::Result<OwnedFd>,
) -> Result<Option<Shm>, String> {
    let Some(mut place) = open_root(pid) else { return Ok(None) };
    for name in ["dev", "shm"] {
        judged(pid, place.as_fd(), |mount, is_trusted| mount.may_be_walked(is_trusted))?;
        let next = match enter_cached(&place, name) {
            // It is not there, or the kernel is older than 5.12.
            Err(Errno::EAGAIN | Errno::EINVAL) => ask(place.as_fd(), name),
            found => found.map_err(io::Error::from),
        };
        place = match next {
            Ok(next) => next,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(format!("a user holds the directory in which its {name} is looked for"));
            }
            Err(_) => return Ok(None),
        };
    }
    judged(pid, place.as_fd(), |mount, is_trusted| match mount.kind {
        "tmpfs" | "devtmpfs" => Ok(()),
        kind => {
            mount.may_be_walked(is_trusted)?;
            let is_at = if mount.point == "/dev/shm" { "is" } else { "is in" };
            Err(format!("/dev/shm {is_at} a {kind}, not a tmpfs"))
        }
    })?;
    if !fstatfs(&place).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC) {
        return Ok(None);
    }
    let open = || {
        let dir = open_below(&place, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())?;
        let status = fstat(&dir)?;
        Ok::<_, nix::Error>((dir, status))
    };
    let Ok((dir, status)) = open() else { return Ok(None) };
    // Whoever may mount there can have any directory there that he can name, also those that he may not look into.
    let is_its_users = is_mount_namespace_trusted(pid) || has_user(pid, status.st_uid);
    Ok(Some(Shm { dir, status, is_its_users }))
}

/// Whether the user namespace of a process is another one than this process's, and has this user: a user has no others in it than himself and those that
/// root has given to him (subuid(5)).
fn has_user(pid: u32, user: u32) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let (own, theirs) = (namespace("self"), namespace(&pid.to_string()));
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap_or_default();
    own.zip(theirs).is_some_and(|(own, theirs)| own != theirs) && is_mapped(&map, user)
}

/// Each line: the first number inside, the same one outside, and how many (user_namespaces(7)).
fn is_mapped(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().skip(1).map_while(|number| number.parse::<u32>().ok());
        let range = numbers.next().zip(numbers.next());
        range.is_some_and(|(first, count)| user.checked_sub(first).is_some_and(|place| place < count))
    })
}

/// Opens an entry of a directory itself: nothing behind a link, nothing mounted there.
pub(crate) fn open_below(dir: &impl AsFd, name: &str, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    let here = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // The kernel refuses a mode when nothing is made.
    let mode = if flags.contains(OFlag::O_CREAT) { mode } else { Mode::empty() };
    openat2(dir, name, OpenHow::new().flags(flags).mode(mode).resolve(here))
}

/// RESOLVE_CACHED in linux/openat2.h.
const CACHED: ResolveFlag = ResolveFlag::from_bits_retain(0x20);

/// The same of what is there, if the kernel need not wait for the directory's lock to know that: `Err(EAGAIN)`. What is in a tmpfs is always known.
/// `Err(EINVAL)`: Linux before 5.12.
pub(crate) fn open_cached(dir: &impl AsFd, name: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    let here = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat2(dir, name, OpenHow::new().flags(flags).resolve(here | CACHED))
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

    fn ask_itself(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
        Ok(enter(&dir, name)?)
    }

    fn mount(text: &str) -> Mount<'_> {
        Mount::parse(text).unwrap().1
    }

    #[test]
    fn only_ways_without_a_server_are_gone() {
        let may = |is_trusted: bool, kind: &str| {
            let line = format!("36 35 98:0 / /dev rw,relatime master:1 - {kind} none rw");
            mount(&line).may_be_walked(is_trusted).is_ok()
        };
        for kind in ["ext4", "tmpfs", "devtmpfs", "btrfs"] {
            assert!(may(false, kind) && may(true, kind), "{kind}");
        }
        for kind in ["fuse", "fuse.evil", "nfs4", "9p", "autofs"] {
            assert!(!may(false, kind) && !may(true, kind), "{kind}");
        }
        assert!(may(true, "overlay") && !may(false, "overlay"));
    }

    #[test]
    fn a_mapped_file_is_read_unless_another_users_server_answers() {
        let list = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                    30 22 0:40 / /home/a rw - fuse.sshfs a rw,user_id=1000,group_id=1000\n\
                    31 22 0:41 / /mnt rw shared:1 - fuse.gluster b rw,user_id=0,group_id=0\n\
                    32 22 0:42 / / rw - overlay none rw,lowerdir=x\n33 22 0:43 / /srv rw - nfs4 c:/ rw\n";
        let may = |id, is_trusted, own| {
            mount(&line_of(list.as_bytes(), id).unwrap()).may_be_read(is_trusted, own).is_ok()
        };
        for (id, is_trusted, own, wanted) in [
            (22, false, 0, true),
            (30, true, 0, false),
            (30, true, 1000, true),
            (31, true, 0, true),
            // Root of a namespace is 0 in its own list, too.
            (31, false, 0, false),
            (32, true, 0, true),
            (32, false, 0, false),
            (33, false, 0, true),
        ] {
            assert_eq!(may(id, is_trusted, own), wanted, "{id} {is_trusted} {own}");
        }
        assert_eq!(line_of(list.as_bytes(), 99), None, "taken out of the list");
    }

    /// Any user can mount in his directory, by FUSE or in a namespace of his own, and name the directory as he likes.
    // NEEDS: host
    #[test]
    fn root_a_mount_whose_name_is_not_text_hides_no_others() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: mounts::tests::root_a_mount_whose_name_is_not_text_hides_no_others: needs root");
            return;
        }
        let named = "bad=$(printf 'a\\377'); mkdir $bad; mount -t tmpfs none $bad; ";
        assert_eq!(shm_after(&format!("{named}mount -t tmpfs none /dev/shm; exec sleep 60")), Ok(true));
        let list = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:40 / /home/\xff rw - fuse.sshfs a rw\n\
                     31 22 0:41 / /mnt rw - tmpfs b rw\n";
        let kind = |id| line_of(&list[..], id).map(|line| mount(&line).kind.to_owned());
        assert_eq!((kind(30), kind(31), kind(32)), (Some("fuse.sshfs".into()), Some("tmpfs".into()), None));
    }

    #[test]
    fn what_is_open_is_judged_by_the_mount_that_it_is_on() {
        let pid = std::process::id();
        let kind = |path: &str| {
            let mut found = String::new();
            let file = nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
            judged(pid, file.as_fd(), |mount, _| {
                mount.kind.clone_into(&mut found);
                Ok(())
            })
            .map(|()| found)
        };
        assert_eq!((kind("/proc/self/stat"), kind("/dev/shm")), (Ok("proc".into()), Ok("tmpfs".into())));
        // A pipe is on a mount that no list has.
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        assert!(judge_file(pid, pipe.as_fd()).is_err());
    }

    /// What a process of another user's sees that has gone through this in namespaces of its own, and then runs sleep(1).
    fn shm_after(steps: &str) -> Result<bool, String> {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(place.path(), Some(65534), Some(65534)).unwrap();
        let user = [
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "unshare",
            "-r",
            "-m",
            "sh",
            "-ec",
            steps,
        ];
        let mut command = std::process::Command::new("setpriv");
        let mut child = command.args(user).current_dir(place.path()).spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&name).unwrap_or_default() != "sleep\n" {
            assert_eq!(child.try_wait().unwrap(), None, "{steps}");
        }
        let found = open_shm(child.id(), ask_itself).map(|found| found.is_some_and(|shm| shm.is_its_users));
        child.kill().unwrap();
        child.wait().unwrap();
        found
    }

    // NEEDS: host
    #[test]
    fn root_a_directory_of_somebody_elses_is_known_as_such() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: mounts::tests::root_a_directory_of_somebody_elses_is_known_as_such: needs root");
            return;
        }
        let directory = |user: u32| {
            let made = tempfile::Builder::new().prefix("rtscope-test-").tempdir_in("/dev/shm").unwrap();
            std::os::unix::fs::chown(made.path(), Some(user), Some(user)).unwrap();
            made
        };
        for (user, is_his) in [(65534, true), (65533, false), (0, false)] {
            let directory = directory(user);
            let steps = format!("mount --bind {} /dev/shm; exec sleep 60", directory.path().display());
            assert_eq!(shm_after(&steps), Ok(is_his), "{user}");
        }
        // In no mount namespace of another user's: what root has mounted is root's affair.
        assert!(open_shm(std::process::id(), |_, _| panic!("it is known")).unwrap().unwrap().is_its_users);
    }

    #[test]
    fn who_is_in_a_user_namespace_is_in_its_map() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        let users = [0, 1, 999, 1000, 1001, 99_999, 100_000, 165_535, 165_536, u32::MAX];
        let expected = [false, false, false, true, false, false, true, true, false, false];
        assert_eq!(users.map(|user| is_mapped(map, user)), expected);
        assert!(is_mapped("0 0 4294967295\n", 7) && !is_mapped("", 0) && !is_mapped("0 0\n", 0));
    }

    // NEEDS: host
    #[test]
    fn root_no_directory_in_an_overlay_of_another_users_is_walked() {
        if !nix::unistd::geteuid().is_root() {
            println!(
                "SKIP: mounts::tests::root_no_directory_in_an_overlay_of_another_users_is_walked: needs root"
            );
            return;
        }
        // What sleep(1) needs is in the overlay, and in a directory of it.
        let overlay = "mkdir all up; mount -t tmpfs none up; mkdir -p up/u/sub up/w
            for root in up/u up/u/sub; do
                for file in /bin/sleep $(ldd /bin/sleep | grep -o '/[^ ]*'); do
                    mkdir -p $root${file%/*}; cp -L $file $root$file
                done
            done
            mount -t overlay -o lowerdir=/usr/lib,upperdir=up/u,workdir=up/w,userxattr none all; ";
        let shm = |root: &str| format!("mkdir -p {root}/dev/shm; mount -t tmpfs none {root}/dev/shm; ");
        assert_eq!(shm_after("mount -t tmpfs none /dev/shm; exec sleep 60"), Ok(true));
        for root in ["all", "all/sub"] {
            // A root inside a mount is in no list.
            let found = shm_after(&format!("{overlay}{}exec chroot {root} /bin/sleep 60", shm(root)));
            assert!(found.as_ref().is_err_and(|why| !why.is_empty()), "{root}: {found:?}");
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Namespaces of processes: which, whose, and the numbers that processes have in them.
//!
//! All but `numbers` can be kept waiting by the process (`rtscope_procs`).

use crate::mounts::descriptor_path;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// The first PID namespace of the machine (PROC_PID_INIT_INO in linux/proc_ns.h): it sees all others.
pub(crate) const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;

/// The number of a process's namespace of this kind.
pub(crate) fn namespace_of(process: &str, kind: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?.ino())
}

/// The number of a process in its own PID namespace; `None`: it has ended, or is a thread. Linux 6.11 tells it by itself; before, it is in a text with all
/// groups that the process is in, which can take 17 ms.
pub(crate) fn own_number(pid: u32) -> Option<u32> {
    const NS_GET_PID_IN_PIDNS: libc::Ioctl = 0x8004_b708;
    const NS_GET_TGID_IN_PIDNS: libc::Ioctl = 0x8004_b709;
    let namespace = File::open(format!("/proc/{pid}/ns/pid")).ok()?;
    let number = |request: libc::Ioctl| {
        // SAFETY: these requests of ioctl_ns(2) take a number and return one; kernels without them refuse.
        let number = unsafe { libc::ioctl(namespace.as_raw_fd(), request, libc::c_ulong::from(pid)) };
        u32::try_from(number).ok().filter(|number| *number > 0)
    };
    match (number(NS_GET_PID_IN_PIDNS), number(NS_GET_TGID_IN_PIDNS)) {
        (Some(number), Some(group)) => (number == group).then_some(number),
        _ => numbers(pid)?.last().copied(),
    }
}

/// The numbers of a process, in this namespace and in each nested one: "NSpid:\t1234\t5" (proc_pid_status(5)). A thread has none.
pub(crate) fn numbers(pid: u32) -> Option<Vec<u32>> {
    // Its name need not be text.
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    if process.trim().parse() != Ok(pid) {
        return None;
    }
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// The process whose namespaces were to be looked at has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended;

/// Whether a process is in the user namespace that its mount namespace is of. Others in it, which a user has made, can have any directory as their root. What cannot
/// be seen is not.
pub(crate) fn is_at_home(pid: u32) -> bool {
    let home = File::open(format!("/proc/{pid}/ns/mnt"))
        .ok()
        .and_then(|mounts| related(&mounts.into(), NS_GET_USERNS));
    let home = home.and_then(|users| Some(fs::metadata(descriptor_path(&users)).ok()?.ino()));
    home.is_some() && home == namespace_of(&pid.to_string(), "user")
}

/// Of linux/nsfs.h.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// A namespace that another one has to do with.
fn related(of: &OwnedFd, request: libc::Ioctl) -> Option<OwnedFd> {
    // SAFETY: these requests of ioctl_ns(2) take no argument.
    let other = unsafe { libc::ioctl(of.as_raw_fd(), request) };
    // SAFETY: the kernel has just made this descriptor, for this function alone.
    (other >= 0).then(|| unsafe { OwnedFd::from_raw_fd(other) })
}

/// The user who made a mount namespace's user namespace, or the outermost one around it that is not root's: what users of a container do that root has made
/// with a user namespace, such as containers of their own, is not root's doing. `None`: it is this process's own user namespace, or could not be found out.
pub(crate) fn user_of(pid: u32) -> Result<Option<u32>, Ended> {
    match File::open(format!("/proc/{pid}/ns/mnt")) {
        Ok(mounts) => Ok(user_of_mounts(mounts.into())),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Err(Ended),
        Err(_) => Ok(None),
    }
}

fn user_of_mounts(mounts: OwnedFd) -> Option<u32> {
    const NS_GET_PARENT: libc::Ioctl = 0xb702;
    const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
    let mut namespace = related(&mounts, NS_GET_USERNS)?;
    let own = namespace_of("self", "user")?;
    let number = |namespace: &OwnedFd| Some(nix::sys::stat::fstat(namespace).ok()?.st_ino);
    if number(&namespace)? == own {
        return None;
    }
    let mut outermost = 0;
    // Nesting is limited to 32 levels.
    for _ in 0..40 {
        let mut user: libc::uid_t = 0;
        // SAFETY: the request writes a uid_t to where its argument points.
        if unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut user) } != 0 {
            return None;
        }
        outermost = if user == 0 { outermost } else { user };
        match related(&namespace, NS_GET_PARENT) {
            Some(parent) if number(&parent)? != own => namespace = parent,
            _ => break,
        }
    }
    Some(outermost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_testkit::skip;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_kernel_and_its_text_give_a_process_the_same_number() {
        let own = std::process::id();
        assert_eq!((own_number(own), numbers(own).unwrap().last().copied()), (Some(own), Some(own)));
        let of_thread = std::thread::spawn(|| {
            let thread = nix::unistd::gettid().as_raw().unsigned_abs();
            (own_number(thread), numbers(thread))
        });
        assert_eq!(of_thread.join().unwrap(), (None, None));
        assert_eq!(own_number(u32::MAX), None);
    }

    // NEEDS: host
    #[test]
    fn root_who_nests_namespaces_in_a_container_of_roots_is_on_his_own_account() {
        // A namespace of root's with ten users; a mount namespace in it; and one of its user 5, in a user namespace of his own.
        const SCRIPT: &str = "trap 'kill $h $a $b' EXIT; unshare -U sleep 60 & h=$!; \
            until [ $(readlink /proc/$h/ns/user) != $(readlink /proc/$$/ns/user) ]; do kill -0 $h || exit; done; \
            echo 0 100000 10 >/proc/$h/uid_map; echo 0 100000 10 >/proc/$h/gid_map; \
            nsenter -U -t $h unshare -m sleep 60 & a=$!; \
            nsenter -U -t $h setpriv --reuid 5 --clear-groups unshare -U -m sleep 60 & b=$!; \
            for p in $a $b; do until [ \"$(cat /proc/$p/comm)\" = sleep ]; do kill -0 $p || exit; done; done; \
            echo $h $a $b; read line";
        if skip::without_root() || skip::without_tool("nsenter") {
            return;
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let users: Vec<Option<u32>> = pids.iter().map(|pid| user_of(*pid).unwrap()).collect();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        if pids.is_empty() {
            skip::say("user namespaces cannot be made here");
            return;
        }
        // The first one has its mounts from outside.
        assert_eq!(users, [None, Some(0), Some(100_005)]);
    }

    /// Which user namespace is judged, not whose number it is.
    // NEEDS: host
    #[test]
    fn root_who_has_made_a_user_namespace_in_anothers_container_is_not_at_home_there() {
        if !nix::unistd::geteuid().is_root() {
            rtscope_testkit::skip!("it needs root");
        }
        assert!(is_at_home(std::process::id()) && !is_at_home(u32::MAX));
        for (options, is_home) in [(["-U", "-r"], false), (["-U", "-m"], true), (["-m", "-u"], true)] {
            let mut command = std::process::Command::new("unshare");
            let mut child = command.args(options).args(["sleep", "60"]).spawn().unwrap();
            let name = format!("/proc/{}/comm", child.id());
            while fs::read_to_string(&name).unwrap_or_default() != "sleep\n" {
                assert_eq!(child.try_wait().unwrap(), None, "{options:?}");
            }
            let found = is_at_home(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found, is_home, "{options:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which kind of wait a system call is: what the eBPF programs write beside a switch-out (`enum rts_wait_kind`).

use crate::syscalls::syscall_number;
use rtscope_abi as abi;
use rtscope_event::WaitKind;

/// System calls in which threads wait, by what for. All others are [`WaitKind::Other`].
const CALLS: &[(WaitKind, &[&str])] = &[
    (WaitKind::Futex, &["futex", "futex_wait", "futex_waitv", "futex_requeue"]),
    (WaitKind::Sleep, &["nanosleep", "clock_nanosleep"]),
    (WaitKind::Poll, &["poll", "ppoll", "select", "pselect6"]),
    (WaitKind::Epoll, &["epoll_wait", "epoll_pwait", "epoll_pwait2"]),
    (
        WaitKind::Read,
        &["read", "pread64", "readv", "preadv", "preadv2", "splice", "tee", "copy_file_range", "sendfile64"],
    ),
    (WaitKind::Write, &["write", "pwrite64", "writev", "pwritev", "pwritev2", "vmsplice"]),
    (WaitKind::Receive, &["recvfrom", "recvmsg", "recvmmsg"]),
    (WaitKind::Send, &["sendto", "sendmsg", "sendmmsg"]),
    (WaitKind::Accept, &["accept", "accept4"]),
    (WaitKind::Connect, &["connect"]),
    (WaitKind::Child, &["wait4", "waitid"]),
    (WaitKind::Signal, &["pause", "rt_sigsuspend", "rt_sigtimedwait", "signalfd4"]),
    (WaitKind::IoUring, &["io_uring_enter", "io_getevents", "io_pgetevents"]),
    (WaitKind::FileLock, &["flock", "fcntl"]),
    (WaitKind::Semaphore, &["semop", "semtimedop", "msgrcv", "msgsnd", "mq_timedreceive", "mq_timedsend"]),
    (WaitKind::Sync, &["fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync"]),
    (
        WaitKind::Memory,
        &["mmap", "munmap", "mremap", "mprotect", "brk", "madvise", "mlock", "mlock2", "mlockall", "munlock"],
    ),
    (
        WaitKind::File,
        &[
            "open",
            "openat",
            "openat2",
            "close",
            "newstat",
            "newlstat",
            "newfstat",
            "newfstatat",
            "statx",
            "access",
            "faccessat",
            "faccessat2",
            "rename",
            "renameat",
            "renameat2",
            "unlink",
            "unlinkat",
            "mkdir",
            "mkdirat",
            "rmdir",
            "getdents64",
            "ftruncate",
            "truncate",
            "fallocate",
            "link",
            "linkat",
            "symlink",
            "symlinkat",
            "chmod",
            "fchmod",
            "fchmodat",
        ],
    ),
    (WaitKind::Ioctl, &["ioctl"]),
];

/// For what a thread waits in this system call.
#[must_use]
pub fn wait_in(call: &str) -> WaitKind {
    let of = CALLS.iter().find(|(_, names)| names.contains(&call));
    of.map_or(WaitKind::Other, |(kind, _)| *kind)
}

/// The kinds by system call number, as the eBPF programs look them up.
pub(crate) fn waits() -> [u8; abi::RTS_SYSCALLS as usize] {
    let mut waits = [WaitKind::Other.number(); abi::RTS_SYSCALLS as usize];
    for (kind, names) in CALLS {
        for number in names.iter().filter_map(|name| syscall_number(name)) {
            if let Some(slot) = waits.get_mut(number) {
                *slot = kind.number();
            }
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_of_one_kind_and_the_kinds_are_those_of_the_contract() {
        let mut names: Vec<&str> = CALLS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let number = |name| syscall_number(name).expect("every Linux has it");
        assert_eq!(u32::from(waits()[number("futex")]), abi::RTS_WAIT_FUTEX);
        assert_eq!(u32::from(waits()[number("clock_nanosleep")]), abi::RTS_WAIT_SLEEP);
        assert_eq!(u32::from(waits()[number("ioctl")]), abi::RTS_WAIT_IOCTL);
        assert_eq!(u32::from(waits()[number("getpid")]), abi::RTS_WAIT_OTHER);
        assert_eq!(abi::RTS_WAIT_STOP as usize + 1, WaitKind::ALL.len());
    }
}

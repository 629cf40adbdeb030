// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done behind each system call, by its number.
//!
//! A call that is not named here gives and takes no descriptor. One whose number is beyond those that we know is looked behind in the way that
//! finds all: it may do anything.

use crate::syscalls::{known_syscalls, syscall_number};
use rtscope_abi::fds as abi;

/// Calls whose result is a new descriptor.
const RESULT: [&str; 34] = [
    "open",
    "openat",
    "openat2",
    "creat",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "fsopen",
    "fspick",
    "fsmount",
    "socket",
    "accept",
    "accept4",
    "dup",
    "dup2",
    "dup3",
    "eventfd",
    "eventfd2",
    "epoll_create",
    "epoll_create1",
    "timerfd_create",
    "signalfd",
    "signalfd4",
    "inotify_init",
    "inotify_init1",
    "memfd_create",
    "memfd_secret",
    "userfaultfd",
    "perf_event_open",
    "pidfd_open",
    "pidfd_getfd",
    "io_uring_setup",
    "mq_open",
    "landlock_create_ruleset",
];
/// Calls that may give descriptors in another way: into the program's memory, in a message, or as one of several results.
const COMPARE: [&str; 13] = [
    "pipe",
    "pipe2",
    "socketpair",
    "recvmsg",
    "recvmmsg",
    "clone",
    "clone3",
    "seccomp",
    "bpf",
    "io_uring_enter",
    "io_uring_register",
    "landlock_restrict_self",
    "prctl",
];
/// Calls that give what was open already.
const COPIES: [&str; 7] = ["dup", "dup2", "dup3", "fcntl", "pidfd_getfd", "recvmsg", "recvmmsg"];
/// Calls that may give what they were given.
const REPEAT: [&str; 5] = ["dup2", "signalfd", "signalfd4", "landlock_create_ruleset", "seccomp"];

/// Of 64-bit programs.
pub(super) fn native() -> [u8; abi::RTS_FDS_CALLS as usize] {
    let mut ways = [abi::RTS_FDS_WAY_NONE as u8; abi::RTS_FDS_CALLS as usize];
    let last = known_syscalls().map(|(number, _)| number).max().unwrap_or(0);
    ways.iter_mut().skip(last + 1).for_each(|way| *way = abi::RTS_FDS_WAY_COMPARE as u8);
    let mut set = |name: &str, way: u32| {
        if let Some(slot) = syscall_number(name).and_then(|number| ways.get_mut(number)) {
            *slot = way as u8;
        }
    };
    RESULT.iter().for_each(|name| set(name, abi::RTS_FDS_WAY_RESULT));
    COMPARE.iter().for_each(|name| set(name, abi::RTS_FDS_WAY_COMPARE));
    let others = [
        ("close", abi::RTS_FDS_WAY_CLOSE),
        ("fcntl", abi::RTS_FDS_WAY_FCNTL),
        ("ioctl", abi::RTS_FDS_WAY_IOCTL),
        ("close_range", abi::RTS_FDS_WAY_RANGE),
        ("unshare", abi::RTS_FDS_WAY_UNSHARE),
        ("fanotify_init", abi::RTS_FDS_WAY_FANOTIFY),
        ("read", abi::RTS_FDS_WAY_READ),
        ("readv", abi::RTS_FDS_WAY_READ),
    ];
    others.iter().for_each(|(name, way)| set(name, *way));
    ways
}

/// Of 32-bit programs, whose numbers are those of i386: what these do to descriptors they do not do to new numbers; all others are compared with
/// what was told.
pub(super) fn compat() -> [u8; abi::RTS_FDS_CALLS as usize] {
    const NONE: [usize; 13] = [4, 13, 20, 45, 90, 91, 125, 162, 168, 174, 192, 224, 240];
    const OTHERS: [(usize, u32); 14] = [
        (3, abi::RTS_FDS_WAY_READ),
        (5, abi::RTS_FDS_WAY_RESULT),
        (6, abi::RTS_FDS_WAY_CLOSE),
        (41, abi::RTS_FDS_WAY_RESULT),
        (54, abi::RTS_FDS_WAY_IOCTL),
        (55, abi::RTS_FDS_WAY_FCNTL),
        (63, abi::RTS_FDS_WAY_RESULT),
        (221, abi::RTS_FDS_WAY_FCNTL),
        (295, abi::RTS_FDS_WAY_RESULT),
        (310, abi::RTS_FDS_WAY_UNSHARE),
        (330, abi::RTS_FDS_WAY_RESULT),
        (338, abi::RTS_FDS_WAY_FANOTIFY),
        (436, abi::RTS_FDS_WAY_RANGE),
        (437, abi::RTS_FDS_WAY_RESULT),
    ];
    let mut ways = [abi::RTS_FDS_WAY_COMPARE as u8; abi::RTS_FDS_CALLS as usize];
    NONE.iter().for_each(|number| ways[*number] = abi::RTS_FDS_WAY_NONE as u8);
    OTHERS.iter().for_each(|(number, way)| ways[*number] = *way as u8);
    ways
}

/// Whether a call gives what was open already, and whether it may leave a slot as it was.
pub(super) fn gives(call: Option<&str>) -> (bool, bool) {
    let is_in = |calls: &[&str]| call.is_some_and(|call| calls.contains(&call));
    (is_in(&COPIES), is_in(&REPEAT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_is_named_here_has_a_number() {
        let names = RESULT.iter().chain(&COMPARE).chain(&COPIES).chain(&REPEAT);
        // Some are on x86 only.
        let unknown: Vec<_> = names.filter(|name| syscall_number(name).is_none()).collect();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(unknown, Vec::<&&str>::new());
        }
        assert_eq!(native()[abi::RTS_FDS_CALLS as usize - 1], abi::RTS_FDS_WAY_COMPARE as u8);
    }
}

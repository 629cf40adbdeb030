// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of input and output, in classes, and where each has its file.
//!
//! Files of any kind: a read from a socket with `read` counts, `recvmsg` and its like do not, since they wait for others by design.

use crate::syscalls::syscall_number;
use rtscope_abi as abi;

/// What a system call does to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoClass {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It reads from one file and writes to another.
    ReadWrite,
    /// It makes what was written durable.
    Sync,
    /// It opens.
    Open,
    /// It closes.
    Close,
}

const GIVEN: u8 = abi::RTS_CALL_FILE_GIVEN as u8;
const RETURNED: u8 = abi::RTS_CALL_FILE_RETURNED as u8;
const NONE: u8 = abi::RTS_CALL_NO_FILE as u8;

/// Class, where the file is, and names as tracefs has them.
const CALLS: &[(IoClass, u8, &[&str])] = &[
    (IoClass::Read, GIVEN, &["read", "pread64", "readv", "preadv", "preadv2", "getdents", "getdents64"]),
    (IoClass::Write, GIVEN, &["write", "pwrite64", "writev", "pwritev", "pwritev2", "vmsplice"]),
    (IoClass::ReadWrite, GIVEN, &["copy_file_range", "sendfile64", "splice", "tee"]),
    (IoClass::Sync, GIVEN, &["fsync", "fdatasync", "syncfs", "sync_file_range"]),
    (IoClass::Sync, NONE, &["sync", "msync"]),
    (IoClass::Open, RETURNED, &["open", "openat", "openat2", "creat"]),
    (IoClass::Close, GIVEN, &["close"]),
    (IoClass::Close, NONE, &["close_range"]),
];

/// The class of the call with this number; `None`: it has none.
#[must_use]
pub fn io_class(number: usize) -> Option<IoClass> {
    let has = |names: &[&str]| names.iter().any(|name| syscall_number(name) == Some(number));
    CALLS.iter().find(|(_, _, names)| has(names)).map(|(class, _, _)| *class)
}

/// The numbers of all calls that have a class.
#[must_use]
pub fn io_calls() -> Vec<usize> {
    let names = CALLS.iter().flat_map(|(_, _, names)| names.iter());
    let mut numbers: Vec<usize> = names.filter_map(|name| syscall_number(name)).collect();
    numbers.sort_unstable();
    numbers
}

/// `enum rts_call_file` by number.
pub(crate) fn call_files() -> [u8; abi::RTS_SYSCALLS as usize] {
    let mut files = [NONE; abi::RTS_SYSCALLS as usize];
    for (_, file, names) in CALLS {
        for number in names.iter().filter_map(|name| syscall_number(name)) {
            if let Some(slot) = files.get_mut(number) {
                *slot = *file;
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_in_one_class_and_has_its_file_where_the_manual_says() {
        let mut names: Vec<&str> = CALLS.iter().flat_map(|(_, _, names)| names.iter().copied()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let number = |name| syscall_number(name).expect("every Linux has it");
        for (name, class, file) in [
            ("pread64", Some(IoClass::Read), GIVEN),
            ("sendfile64", Some(IoClass::ReadWrite), GIVEN),
            ("sync", Some(IoClass::Sync), NONE),
            ("openat", Some(IoClass::Open), RETURNED),
            ("close", Some(IoClass::Close), GIVEN),
            ("recvmsg", None, NONE),
        ] {
            assert_eq!((io_class(number(name)), call_files()[number(name)]), (class, file), "{name}");
            assert_eq!(io_calls().contains(&number(name)), class.is_some(), "{name}");
        }
    }
}

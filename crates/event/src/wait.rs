// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For what kind of thing a thread waits, told by the system call that it is in.
//!
//! One byte beside each switch and no further event: enough to tell a lock from a timer and from input, which is what the end of a
//! cycle and the name of a wait need. System calls of one purpose are one kind.

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $words:literal;)*) => {
        /// For what kind of thing a thread waits. The order is that of `enum rts_wait_kind`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum WaitKind {
            $($(#[$doc])* $kind,)*
        }

        impl WaitKind {
            /// Every kind, in the order of `enum rts_wait_kind`.
            pub const ALL: [WaitKind; [$($name),*].len()] = [$(WaitKind::$kind),*];
            /// The name of each, in that order.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            /// As in traces, JSON and options.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(WaitKind::$kind => $name,)* }
            }

            /// What a thread did there: "waited ...".
            #[must_use]
            pub fn words(self) -> &'static str {
                match self { $(WaitKind::$kind => $words,)* }
            }
        }
    };
}

kinds! {
    /// It does not wait, is a kernel thread, or this was not recorded.
    #[default]
    None "none" "";
    /// In no system call: a page fault or another exception.
    PageFault "page_fault" "for a page fault";
    /// `futex`: mutexes, condition variables, most semaphores.
    Futex "futex" "for a futex";
    /// `nanosleep`, `clock_nanosleep`.
    Sleep "sleep" "for its timer";
    /// `poll`, `select` and their like.
    Poll "poll" "in poll";
    /// `epoll_wait` and its like.
    Epoll "epoll" "in epoll";
    /// `read` and its like: a pipe, a device, a disk.
    Read "read" "in read";
    /// `write` and its like.
    Write "write" "in write";
    /// `recvmsg` and its like.
    Receive "receive" "for a message";
    /// `sendmsg` and its like.
    Send "send" "to send a message";
    /// `accept`.
    Accept "accept" "for a connection";
    /// `connect`.
    Connect "connect" "to connect";
    /// `wait4`, `waitid`.
    Child "child" "for a child process";
    /// `pause`, `sigtimedwait` and their like.
    Signal "signal" "for a signal";
    /// `io_uring_enter`, `io_getevents`.
    IoUring "io_uring" "for completions";
    /// `flock`, `fcntl`.
    FileLock "file_lock" "for a lock on a file";
    /// System V semaphores and messages, POSIX message queues.
    Semaphore "semaphore" "for a semaphore or message queue";
    /// `fsync` and its like.
    Sync "sync" "for data to reach a disk";
    /// `mmap`, `munmap`, `mprotect` and their like.
    Memory "memory" "for its memory map";
    /// `open`, `stat`, `rename` and other calls on files.
    File "file" "for a file";
    /// `ioctl`: a device.
    Ioctl "ioctl" "for a device (ioctl)";
    /// Any other system call.
    Other "other" "in another system call";
    /// Stopped by a signal or a debugger, in whatever system call.
    Stop "stop" "to be continued, stopped by a signal or a debugger";
}

impl WaitKind {
    /// Waits for input or time: a thread that works in cycles may begin one with the end of such a wait.
    pub const SOURCES: [WaitKind; 8] = [
        WaitKind::Sleep,
        WaitKind::Poll,
        WaitKind::Epoll,
        WaitKind::Read,
        WaitKind::Receive,
        WaitKind::Accept,
        WaitKind::Signal,
        WaitKind::IoUring,
    ];

    /// The number in `enum rts_wait_kind`.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The kind with this number in `enum rts_wait_kind`.
    #[must_use]
    pub fn from_number(number: u8) -> Option<WaitKind> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Bits `1 << number` of several kinds.
    #[must_use]
    pub fn mask(kinds: &[WaitKind]) -> u32 {
        kinds.iter().fold(0, |mask, kind| mask | 1 << kind.number())
    }
}

impl std::str::FromStr for WaitKind {
    type Err = String;

    fn from_str(text: &str) -> Result<WaitKind, String> {
        let known = || WaitKind::ALL.into_iter().skip(1);
        known().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<&str> = known().map(WaitKind::name).collect();
            format!("no kind of wait; there are: {}", names.join(", "))
        })
    }
}

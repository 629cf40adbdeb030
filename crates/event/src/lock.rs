// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock of the kernel that a thread waited for.

use rtscope_abi as abi;
use serde::{Deserialize, Serialize};

/// What a lock is, as far as `contention_begin` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// A mutex.
    Mutex,
    /// A semaphore of readers and writers.
    Rwsem,
    /// The same for many readers.
    PercpuRwsem,
    /// A lock that its waiters spin for.
    Spinlock,
    /// The same for readers and writers.
    Rwlock,
    /// A mutex with priority inheritance; with PREEMPT_RT also what else are mutexes and spin locks.
    RtMutex,
    /// A counting semaphore.
    Semaphore,
}

/// For what it was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockAccess {
    /// Beside other readers.
    Read,
    /// Alone.
    Write,
}

impl LockKind {
    /// From the flags of `contention_begin` (`enum rts_lock_flags`).
    #[must_use]
    pub fn from_flags(flags: u64) -> (LockKind, Option<LockAccess>) {
        let is = |flag: u32| flags & u64::from(flag) != 0;
        let access = match (is(abi::RTS_LOCK_READ), is(abi::RTS_LOCK_WRITE)) {
            (true, _) => Some(LockAccess::Read),
            (_, true) => Some(LockAccess::Write),
            _ => None,
        };
        let kind = match access {
            _ if is(abi::RTS_LOCK_MUTEX) => LockKind::Mutex,
            _ if is(abi::RTS_LOCK_RT) => LockKind::RtMutex,
            _ if is(abi::RTS_LOCK_PERCPU) => LockKind::PercpuRwsem,
            Some(_) if is(abi::RTS_LOCK_SPINS) => LockKind::Rwlock,
            None if is(abi::RTS_LOCK_SPINS) => LockKind::Spinlock,
            Some(_) => LockKind::Rwsem,
            None => LockKind::Semaphore,
        };
        (kind, access)
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            LockKind::Mutex => "mutex",
            LockKind::Rwsem => "rwsem",
            LockKind::PercpuRwsem => "percpu_rwsem",
            LockKind::Spinlock => "spinlock",
            LockKind::Rwlock => "rwlock",
            LockKind::RtMutex => "rt_mutex",
            LockKind::Semaphore => "semaphore",
        }
    }
}

/// A lock that a thread waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWait {
    /// What it is.
    pub kind: LockKind,
    /// For what it was wanted; `None`: there is but one way to have it, or the kernel does not say.
    pub access: Option<LockAccess>,
    /// Where it is in the kernel's memory.
    pub address: u64,
    /// The kernel's variable at that place; `None`: it is a part of something that was allocated, or its name is not known.
    pub name: Option<String>,
    /// The functions of the kernel that wanted it, `function+0xoffset`, the innermost first, without those of the lock itself; an address
    /// where the name is not known.
    pub callers: Vec<String>,
    /// The system call in which that was; `None`: in none, or it is not known.
    pub call: Option<String>,
    /// 0: the thread has the lock; less: it gave up. `None`: it still waits.
    pub result: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_say_what_a_lock_is() {
        for (flags, kind, access) in [
            (33, LockKind::Mutex, None),
            (32, LockKind::Mutex, None),
            (1, LockKind::Spinlock, None),
            (3, LockKind::Rwlock, Some(LockAccess::Read)),
            (4, LockKind::Rwsem, Some(LockAccess::Write)),
            (2, LockKind::Rwsem, Some(LockAccess::Read)),
            (20, LockKind::PercpuRwsem, Some(LockAccess::Write)),
            (8, LockKind::RtMutex, None),
            (0, LockKind::Semaphore, None),
        ] {
            assert_eq!(LockKind::from_flags(flags), (kind, access), "{flags}");
        }
    }
}

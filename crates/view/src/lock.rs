// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock of the kernel in a line: `mutex, wanted by anon_pipe_write in write()`, and how the wait for it ended.

use crate::clean;
use crate::event::error;
use rtscope_event::{LockAccess, LockWait};

/// What it is, and who wanted it: by the function nearest to it, and the system call.
pub(crate) fn lock_label(lock: &LockWait) -> String {
    let access = lock.access.map_or("", |access| match access {
        LockAccess::Read => " (read)",
        LockAccess::Write => " (write)",
    });
    let name = lock.name.as_ref().map_or(String::new(), |name| format!(" {name}"));
    let caller = lock.callers.first().map(|place| function(place));
    let caller = caller.map_or(String::new(), |caller| format!(", wanted by {caller}"));
    let call = lock.call.as_ref().map_or(String::new(), |call| format!(" in {call}()"));
    // Of a file that anybody may have written.
    clean(&format!("{}{access}{name}{caller}{call}", lock.kind.words()))
}

/// The functions that wanted it, the innermost first; empty where none is known.
pub(crate) fn callers_line(lock: &LockWait) -> String {
    let callers: Vec<&str> = lock.callers.iter().map(|place| function(place)).collect();
    clean(&callers.join(" < "))
}

/// How the wait ended.
pub(crate) fn ended_label(lock: &LockWait) -> String {
    match lock.result {
        None => "not acquired".to_owned(),
        Some(result) => error(result).unwrap_or_else(|| "acquired".to_owned()),
    }
}

/// Without the offset.
pub(crate) fn function(place: &str) -> &str {
    place.split_once("+0x").map_or(place, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::LockKind;

    #[test]
    fn a_lock_is_shown_with_who_wanted_it() {
        let callers = ["anon_pipe_write+0x4b", "vfs_write+0x2ef"].map(str::to_owned).to_vec();
        let mutex = LockWait {
            kind: LockKind::Mutex,
            access: None,
            address: 0xffff_8881_0000_1000,
            name: None,
            callers,
            call: Some("write".to_owned()),
            result: Some(0),
        };
        assert_eq!(lock_label(&mutex), "mutex, wanted by anon_pipe_write in write()");
        assert_eq!(callers_line(&mutex), "anon_pipe_write < vfs_write");
        assert_eq!(ended_label(&mutex), "acquired");
        let name = Some("tasklist_lock".to_owned());
        let access = Some(LockAccess::Read);
        let other =
            LockWait { kind: LockKind::Rwlock, access, name, callers: Vec::new(), call: None, ..mutex };
        assert_eq!(lock_label(&other), "rwlock (read) tasklist_lock");
        assert_eq!(
            ended_label(&LockWait { result: Some(-4), ..other.clone() }),
            "-EINTR (Interrupted system call)"
        );
        assert_eq!(ended_label(&LockWait { result: None, ..other }), "not acquired");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks: the records of the task iterator, and the name of one from `/proc`.

use rtscope_abi as abi;
use rtscope_event::{Comm, Pid, Policy, Priority, TaskInfo, Tid};
use rtscope_procs::{Reader, user_of};
use std::fs;
use std::mem::{offset_of, size_of};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// The name of a thread that runs now, from `/proc`.
#[must_use]
pub fn proc_comm(tid: Tid) -> Option<Comm> {
    let comm = fs::read(format!("/proc/{tid}/comm")).ok()?;
    Some(Comm::from_bytes(comm.strip_suffix(b"\n").unwrap_or(&comm)))
}

/// A process answers in some 50 us, unless its user holds it (`rtscope_procs`).
const ANSWER: Duration = Duration::from_millis(100);

/// A file of a thread in `/proc`, read by a thread that is left behind where it does not answer: of a user of whom one does not, nothing more is read until it does.
///
/// # Errors
/// When it does not answer, with the reason. `Ok(None)`: there is no such thread, or it may not be read.
pub fn task_file(tid: Tid, name: &'static str) -> Result<Option<Vec<u8>>, String> {
    static READER: LazyLock<Mutex<Reader>> = LazyLock::new(|| Mutex::new(Reader::new("tasks")));
    let mut reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    reader.read(user_of(tid.0), ANSWER, move || fs::read(format!("/proc/{tid}/{name}")).ok())
}

/// The state of a task (`R`, `Z`, ...) and when it was started, in ticks since boot: fields 3 and 22 of proc_pid_stat(5). `None`: there is none.
///
/// # Errors
/// As [`task_file`].
pub fn task_life(tid: Tid) -> Result<Option<(char, u64)>, String> {
    Ok(task_file(tid, "stat")?.and_then(|stat| life_of(&String::from_utf8_lossy(&stat))))
}

fn life_of(stat: &str) -> Option<(char, u64)> {
    // The name, in brackets, can hold anything, blanks and brackets too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

/// Where a thread is in the kernel, from `/proc`: `function+0xoffset`, the innermost first. Empty while it runs. `None`: the kernel does not
/// say, or the thread is gone.
#[must_use]
pub fn kernel_stack(tid: Tid) -> Option<Vec<String>> {
    let text = String::from_utf8(task_file(tid, "stack").ok()??).ok()?;
    // `[<0>] function+0x12/0x34`: where it is, which is hidden, and the function's size.
    let place = |line: &str| {
        let place = line.split_once("] ").map_or(line, |(_, place)| place);
        place.split_once('/').map_or(place, |(place, _)| place).to_owned()
    };
    Some(text.lines().map(place).collect())
}

/// The iterator's output: a sequence of `struct rts_task_dump`. A cut last one is left out.
pub(crate) fn parse_dump(bytes: &[u8]) -> Vec<TaskInfo> {
    bytes.chunks_exact(size_of::<abi::rts_task_dump>()).map(parse_task).collect()
}

fn parse_task(bytes: &[u8]) -> TaskInfo {
    let u32_at = |offset: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[offset..offset + 4]);
        u32::from_ne_bytes(word)
    };
    let prio_at = offset_of!(abi::rts_task_dump, prio);
    let comm_at = offset_of!(abi::rts_task_dump, comm);
    TaskInfo {
        tid: Tid(u32_at(offset_of!(abi::rts_task_dump, tid))),
        pid: Pid(u32_at(offset_of!(abi::rts_task_dump, pid))),
        ppid: Pid(u32_at(offset_of!(abi::rts_task_dump, ppid))),
        comm: Comm::from_bytes(&bytes[comm_at..comm_at + abi::RTS_COMM_LEN as usize]),
        prio: Priority(i16::from_ne_bytes([bytes[prio_at], bytes[prio_at + 1]])),
        policy: Policy(u32_at(offset_of!(abi::rts_task_dump, policy))),
        kthread: u32_at(offset_of!(abi::rts_task_dump, kthread)) != 0,
    }
}

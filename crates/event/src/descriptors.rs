// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel tells of file descriptors: not what was done, but what a slot of a table has now.
//!
//! Records of all CPUs are in one order. The last one about a slot is right once nothing changes the slot any more, whatever the order of
//! the calls was (`crates/kernel/bpf/fds.bpf.c`).

use crate::{MonotonicNs, Pid, Tid};
use serde::Serialize;

/// Slots of a [`SlotChunk`].
pub const CHUNK_SLOTS: usize = 64;

/// A table of descriptors: threads of a process share one, and so may processes. A number without other meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u64);

/// An open file, which several slots may have. The number may be that of another file once no slot has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenFileId(pub u64);

/// How a slot came to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Discovery {
    /// It is the result of the call, or its argument.
    #[default]
    Call,
    /// It was found behind a call, of this thread or of another one with the same table, which may have given it in any way.
    Found,
    /// It was there when all were told.
    Scan,
}

/// What an open file is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDescription {
    /// Its path, or as the kernel names what has none (`socket:[123]`).
    pub name: String,
    /// The beginning of the path is missing.
    pub is_cut: bool,
    /// Number in its file system.
    pub inode: u64,
    /// Its file system, 20 bits for the minor number.
    pub device: u32,
    /// The device of a special file.
    pub special: u32,
    /// Type and permissions.
    pub mode: u32,
    /// How it was opened (`O_...`).
    pub open_flags: u32,
}

/// One slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// The descriptor.
    pub fd: u32,
    /// The file; `None`: it is free.
    pub file: Option<OpenFileId>,
    /// It is closed by exec.
    pub cloexec: bool,
    /// What the file is, where that was told.
    pub description: Option<Box<FileDescription>>,
    /// How it came to be told.
    pub discovery: Discovery,
    /// The call gives files that were open already (dup, recvmsg, pidfd_getfd).
    pub is_copy: bool,
    /// The call may have left it as it was (dup2 of a descriptor to itself).
    pub may_repeat: bool,
}

/// The slots from `first` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotChunk {
    /// The first one; a multiple of [`CHUNK_SLOTS`].
    pub first: u32,
    /// The files; `None`: the slots without a bit in `cloexec_or_open` are free, and nothing is told of the others.
    pub files: Option<Box<[u64; CHUNK_SLOTS]>>,
    /// Which are closed by exec; without files, which are not free.
    pub cloexec_or_open: u64,
    /// The first one of a table that is new.
    pub is_first: bool,
    /// There is nothing behind it.
    pub is_last: bool,
    /// Somebody asked for it.
    pub is_scan: bool,
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// It is there.
    Seen,
    /// It was made by this thread.
    Fork(Tid),
    /// It executes another program; it had this number before.
    Exec(Tid),
    /// It ends.
    Exit,
    /// It has a table of its own.
    Unshare,
}

/// A task, and which table it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTable {
    /// What became of it.
    pub change: TaskChange,
    /// Its parent process.
    pub parent: Pid,
    /// When it was started.
    pub start: MonotonicNs,
    /// Its name.
    pub comm: String,
}

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorChange {
    /// A slot.
    Slot(SlotState),
    /// Many slots.
    Chunk(SlotChunk),
    /// A task.
    Task(TaskTable),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorRecord {
    /// When.
    pub time: MonotonicNs,
    /// In which table.
    pub table: TableId,
    /// The thread that changed it, or of which it was told.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// The system call, or `io_uring`; `None`: none, or a number without a name.
    pub call: Option<&'static str>,
    /// What it says.
    pub change: DescriptorChange,
}

/// What is missing, by cause; since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DescriptorLosses {
    /// Records that found the ring full.
    pub ring_full: u64,
    /// Runs of eBPF programs that the kernel skipped; `None`: it does not say.
    pub skipped_programs: Option<u64>,
    /// Children that are not followed, as there was no room for their number.
    pub unfollowed: u64,
    /// Tables of which only the beginning was told at once.
    pub beyond: u64,
    /// Comparisons with tables that have more numbers than are compared: what comes there in a message is not found.
    pub large: u64,
    /// Descriptors that one process put into another (seccomp). All tables are told again then.
    pub remote: u64,
    /// Slots that others changed each time that they were looked at.
    pub unsettled: u64,
    /// Records that could not be understood.
    pub malformed: u64,
}

impl DescriptorLosses {
    /// How much makes it necessary to have all tables told again.
    #[must_use]
    pub fn holes(&self) -> u64 {
        self.ring_full + self.skipped_programs.unwrap_or(0) + self.remote + self.unsettled + self.malformed
    }
}

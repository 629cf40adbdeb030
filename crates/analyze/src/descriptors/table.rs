// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept of tables, slots, open files, tasks and processes.

use super::report::{Opener, Reached};
use rtscope_event::{Discovery, FileDescription, MonotonicNs, OpenFileId, Pid, SlotState, TableId, Tid};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Who did something, when, in which call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub tid: Tid,
    pub pid: Pid,
    pub call: Option<&'static str>,
    pub time: MonotonicNs,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub id: OpenFileId,
    pub description: Option<FileDescription>,
    /// Who opened it; `None`: it was open before, or that was elsewhere.
    pub opened: Option<Opener>,
}

/// How a slot got its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub discovery: Discovery,
    pub reached: Reached,
    pub tid: Tid,
    pub pid: Pid,
    pub call: Option<&'static str>,
    pub time: MonotonicNs,
}

impl Given {
    pub fn new(discovery: Discovery, who: &Who) -> Given {
        let Who { tid, pid, call, time } = *who;
        let reached = if discovery == Discovery::Scan { Reached::Before } else { Reached::Given };
        Given { discovery, reached, tid, pid, call, time }
    }

    pub fn opener(&self) -> Opener {
        Opener { discovery: self.discovery, tid: self.tid, pid: self.pid, call: self.call, time: self.time }
    }
}

/// What a descriptor is.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub file: Rc<RefCell<OpenFile>>,
    pub cloexec: bool,
    pub given: Given,
}

impl Slot {
    pub fn id(&self) -> OpenFileId {
        self.file.borrow().id
    }

    /// Whether a call gave the same number a file that the kernel keeps in the same place: the one before was closed, and that was told later, or
    /// is told yet. A number that was found before the call that gave it had ended is not: that call is just told.
    pub fn is_reopened(&self, told: &SlotState, who: &Who) -> bool {
        let is_given = told.discovery == Discovery::Call
            && told.description.is_some()
            && !told.may_repeat
            && !told.is_copy;
        let was_found = self.given.discovery == Discovery::Found;
        let file = self.file.borrow();
        let same = file.description.as_ref().zip(told.description.as_deref());
        let is_other =
            same.is_some_and(|(known, told)| known.inode != told.inode || known.device != told.device);
        is_other || (is_given && !was_found && self.given.time < who.time)
    }
}

/// A table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub slots: BTreeMap<u32, Slot>,
    pub tasks: usize,
    /// The process that it was made for.
    pub owner: Pid,
    /// What it is a copy of, until that has been told.
    pub copied: BTreeMap<u32, Slot>,
    /// Of which process.
    pub parent: Option<Pid>,
}

/// A task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub pid: Pid,
    pub table: TableId,
    /// In which scan, or after which.
    pub seen: u64,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub comm: String,
    pub parent: Pid,
    pub start: MonotonicNs,
    pub threads: usize,
    pub end: Option<MonotonicNs>,
}

/// Why a descriptor is not open any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// A system call, or io_uring.
    Call,
    /// Another file was put in its place.
    Replaced,
    /// exec, as it was close-on-exec.
    Exec,
    /// The last task with the table ended.
    Exit,
    /// It was not seen: it was gone when all were told again.
    Unknown,
}

/// A descriptor that was closed.
#[derive(Debug)]
pub(super) struct Closed {
    pub pid: Pid,
    pub comm: String,
    pub fd: u32,
    pub slot: Slot,
    pub by: ClosedBy,
    pub who: Option<Who>,
    pub time: MonotonicNs,
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which file descriptors are open, how, by whom and since when; and which were closed not long ago.
//!
//! It is fed what the kernel tells of slots of tables ([`DescriptorRecord`]), one record after the other, and can be asked at any time. Each
//! record says what a slot has, so nothing is inferred from the order of calls, and a hole in the records is mended by having all told again
//! ([`Descriptors::begin_scan`]).
//!
//! A *table* is what threads of a process share; an *open file* is what slots have, several of them after dup, fork or a message. So each
//! descriptor has two origins: who gave this number, and who opened the file. Memory is bounded: [`DescriptorLimits`].

mod report;
mod table;
#[cfg(test)]
mod tests;

pub use report::{
    ClosedRow, DescriptorQuery, DescriptorReport, DescriptorRow, GivenBy, Opener, ProcessRow, Reached,
    TableCounts,
};
pub use table::ClosedBy;

use rtscope_event::{
    CHUNK_SLOTS, DescriptorChange, DescriptorRecord, Discovery, FileDescription, MonotonicNs, OpenFileId,
    Pid, SlotChunk, SlotState, TableId, TaskChange, TaskTable, Tid,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use table::{Closed, Given, OpenFile, Process, Slot, Table, Task, Who};

/// For so long a file may wait for its description: that comes when the call that opened it returns.
const UNDESCRIBED_NS: u64 = 100_000_000;

/// What is kept at most.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorLimits {
    /// Open descriptors; those beyond are counted.
    pub open: usize,
    /// Closed descriptors; the oldest are forgotten, and counted.
    pub closed: usize,
    /// For how long closed ones are kept.
    pub closed_for_ns: u64,
    /// Tasks; those beyond are counted, and their descriptors are not known.
    pub tasks: usize,
}

impl Default for DescriptorLimits {
    fn default() -> DescriptorLimits {
        DescriptorLimits { open: 1 << 20, closed: 1 << 16, closed_for_ns: 10_000_000_000, tasks: 1 << 17 }
    }
}

/// Everything that is known at one moment.
#[derive(Debug)]
pub struct Descriptors {
    limits: DescriptorLimits,
    tables: HashMap<TableId, Table>,
    files: HashMap<OpenFileId, Rc<RefCell<OpenFile>>>,
    /// Files of which a slot was told, but not what they are: since when.
    undescribed: HashMap<OpenFileId, MonotonicNs>,
    tasks: HashMap<Tid, Task>,
    processes: BTreeMap<Pid, Process>,
    ended: VecDeque<(Pid, Process)>,
    closed: VecDeque<Closed>,
    counts: TableCounts,
    now: MonotonicNs,
    scan: u64,
    /// Files that were left when those that nobody has were last forgotten.
    files_swept: usize,
}

impl Descriptors {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(limits: DescriptorLimits) -> Descriptors {
        Descriptors {
            limits,
            tables: HashMap::new(),
            files: HashMap::new(),
            undescribed: HashMap::new(),
            tasks: HashMap::new(),
            processes: BTreeMap::new(),
            ended: VecDeque::new(),
            closed: VecDeque::new(),
            counts: TableCounts::default(),
            now: MonotonicNs(0),
            scan: 0,
            files_swept: 0,
        }
    }

    /// Counters.
    #[must_use]
    pub fn counts(&self) -> TableCounts {
        self.counts
    }

    /// Everything is told again from here on.
    pub fn begin_scan(&mut self) {
        self.scan += 1;
    }

    /// All has been told: a task that was not, and of which nothing else came, has ended without being seen to.
    pub fn end_scan(&mut self) {
        let gone: Vec<Tid> =
            self.tasks.iter().filter(|(_, task)| task.seen < self.scan).map(|(tid, _)| *tid).collect();
        for tid in gone {
            self.counts.ends_not_seen += 1;
            self.end_task(tid, self.now, None);
        }
    }

    /// It is this time: what was closed long ago is forgotten.
    pub fn advance(&mut self, now: MonotonicNs) {
        self.now = self.now.max(now);
        let oldest = MonotonicNs(self.now.0.saturating_sub(self.limits.closed_for_ns));
        while self.closed.front().is_some_and(|closed| closed.time < oldest) {
            self.closed.pop_front();
        }
        while self.ended.front().is_some_and(|(_, process)| process.end.is_some_and(|end| end < oldest)) {
            self.ended.pop_front();
        }
        // A file in a message has no descriptor for a while: so files are forgotten with the closed descriptors.
        if self.files.len() > 2 * self.files_swept + 1024 {
            self.files.retain(|_, file| Rc::strong_count(file) > 1);
            self.files_swept = self.files.len();
        }
        let (files, counts) = (&self.files, &mut self.counts);
        self.undescribed.retain(|id, since| {
            let is_held = files.get(id).is_some_and(|file| Rc::strong_count(file) > 1);
            let is_late = now.since(*since) > UNDESCRIBED_NS;
            counts.files_not_known += u64::from(is_held && is_late);
            is_held && !is_late
        });
    }

    /// Whether a slot has a file that nobody has described yet: the call that gives it to another slot has not returned.
    #[must_use]
    pub fn has_undescribed(&self) -> bool {
        !self.undescribed.is_empty()
    }

    /// Takes a record, in the order of the kernel's ring.
    pub fn record(&mut self, record: &DescriptorRecord) {
        self.now = self.now.max(record.time);
        let who = Who { tid: record.tid, pid: record.pid, call: record.call, time: record.time };
        match &record.change {
            DescriptorChange::Slot(slot) => {
                self.meet(record);
                self.slot(record.table, slot, &who);
            }
            DescriptorChange::Chunk(chunk) => {
                self.meet(record);
                self.chunk(record.table, chunk, &who);
            }
            DescriptorChange::Task(task) => self.task(record, task),
        }
    }

    /// A task is there that nobody spoke of before: a thread of io_uring, or one whose beginning was lost.
    fn meet(&mut self, record: &DescriptorRecord) {
        match self.tasks.get_mut(&record.tid) {
            Some(task) if task.table == record.table => task.seen = self.scan,
            _ => self.move_task(record.tid, record.pid, record.table),
        }
    }

    /// The task has this table from now on.
    fn move_task(&mut self, tid: Tid, pid: Pid, table: TableId) {
        if !self.tasks.contains_key(&tid) && self.tasks.len() >= self.limits.tasks {
            self.counts.tasks_not_kept += 1;
            return;
        }
        let seen = self.scan;
        let before = self.tasks.insert(tid, Task { pid, table, seen });
        if before.is_none_or(|before| before.pid != pid) {
            self.processes.entry(pid).or_default().threads += 1;
        }
        if before.is_none_or(|before| before.table != table) {
            self.tables.entry(table).or_default().tasks += 1;
        }
        if let Some(before) = before.filter(|before| before.table != table) {
            self.leave(before.table, None);
        }
        if let Some(before) = before.filter(|before| before.pid != pid) {
            self.leave_process(before.pid, self.now);
        }
    }

    /// A task does not have this table any more; with the last one it ends.
    fn leave(&mut self, id: TableId, who: Option<&Who>) {
        let Some(table) = self.tables.get_mut(&id) else { return };
        table.tasks = table.tasks.saturating_sub(1);
        if table.tasks > 0 {
            return;
        }
        let owner = table.owner;
        let slots = self.tables.remove(&id).map(|table| table.slots).unwrap_or_default();
        let by = if who.is_some() { ClosedBy::Exit } else { ClosedBy::Unknown };
        for (fd, slot) in slots {
            self.close(owner, fd, slot, by, who.copied());
        }
    }

    fn leave_process(&mut self, pid: Pid, now: MonotonicNs) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.threads = process.threads.saturating_sub(1);
        if process.threads > 0 {
            return;
        }
        if let Some(mut process) = self.processes.remove(&pid) {
            process.end = Some(now);
            self.ended.push_back((pid, process));
            if self.ended.len() > self.limits.closed {
                self.ended.pop_front();
                self.counts.closed_forgotten += 1;
            }
        }
    }

    fn end_task(&mut self, tid: Tid, now: MonotonicNs, who: Option<&Who>) {
        if let Some(task) = self.tasks.remove(&tid) {
            self.leave(task.table, who);
            self.leave_process(task.pid, now);
        }
    }

    fn task(&mut self, record: &DescriptorRecord, told: &TaskTable) {
        let (tid, pid, table) = (record.tid, record.pid, record.table);
        let who = Who { tid, pid, call: record.call, time: record.time };
        if told.change == TaskChange::Exit {
            return self.end_task(tid, record.time, Some(&who));
        }
        let source = match told.change {
            TaskChange::Fork(parent) => self.tasks.get(&parent).map(|task| (task.table, Some(task.pid))),
            TaskChange::Exec(old) => self.tasks.get(&old).map(|task| (task.table, None)),
            _ => self.tasks.get(&tid).map(|task| (task.table, None)),
        };
        if let (Some((from, parent)), true) = (source, told.change != TaskChange::Seen) {
            if from != table && self.tables.get(&table).is_none_or(|table| table.tasks == 0) {
                let copied = self.tables.get(&from).map(|from| from.slots.clone()).unwrap_or_default();
                let new = self.tables.entry(table).or_default();
                new.copied = copied;
                new.parent = parent;
            }
        }
        self.move_task(tid, pid, table);
        self.tables.entry(table).or_default().owner = pid;
        let scan = self.scan;
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.seen = scan;
        }
        let process = self.processes.entry(pid).or_default();
        if tid.0 == pid.0 || process.comm.is_empty() {
            process.comm.clone_from(&told.comm);
            process.parent = told.parent;
            process.start = told.start;
        }
        // The one that executes has the number of its process from then on; the thread that had it has ended.
        if let TaskChange::Exec(old) = told.change {
            if old != tid {
                self.end_task(old, record.time, Some(&who));
            }
        }
    }

    /// A slot has been told.
    fn slot(&mut self, id: TableId, told: &SlotState, who: &Who) {
        let Some(file) = told.file else {
            let is_scan = told.discovery == Discovery::Scan;
            return self.free(id, told.fd, if is_scan { ClosedBy::Unknown } else { ClosedBy::Call }, who);
        };
        let before = self.tables.entry(id).or_default().slots.get(&told.fd);
        let is_same = before.is_some_and(|slot| slot.id() == file && !slot.is_reopened(told, who));
        if is_same {
            return self.tell_again(id, told, who);
        }
        let file = self.open_file(file, told, who);
        let given = Given::new(told.discovery, who);
        self.put(id, told.fd, Slot { file, cloexec: told.cloexec, given }, who);
    }

    /// It has what it had: what was found before may be known better now.
    fn tell_again(&mut self, id: TableId, told: &SlotState, who: &Who) {
        let is_result = told.discovery == Discovery::Call && told.description.is_some();
        let Some(slot) = self.tables.get_mut(&id).and_then(|table| table.slots.get_mut(&told.fd)) else {
            return;
        };
        slot.cloexec = told.cloexec;
        let mut file = slot.file.borrow_mut();
        if is_result && slot.given.discovery == Discovery::Found && slot.given.reached == Reached::Given {
            slot.given = Given::new(Discovery::Call, who);
            if !told.is_copy && file.opened.is_none_or(|opened| opened.discovery == Discovery::Found) {
                file.opened = Some(slot.given.opener());
            }
        }
        if let (None, Some(description)) = (&file.description, &told.description) {
            file.description = Some(FileDescription::clone(description));
            self.undescribed.remove(&file.id);
        }
    }

    /// The open file that a slot was told to have: one that others have, too, or a new one.
    fn open_file(&mut self, id: OpenFileId, told: &SlotState, who: &Who) -> Rc<RefCell<OpenFile>> {
        let is_new = told.discovery == Discovery::Call && !told.is_copy && told.description.is_some();
        let opened = (told.discovery != Discovery::Scan && !told.is_copy)
            .then(|| Given::new(told.discovery, who).opener());
        if let Some(known) = self.files.get(&id) {
            let mut file = known.borrow_mut();
            match (&file.description, &told.description) {
                // A copy of it was told before the call that opened it had returned.
                (None, Some(description)) => {
                    file.description = Some(FileDescription::clone(description));
                    file.opened = opened;
                    self.undescribed.remove(&id);
                    return Rc::clone(known);
                }
                (Some(known), Some(told)) if known.inode != told.inode || known.device != told.device => {}
                _ if is_new => {}
                _ => return Rc::clone(known),
            }
        }
        let description = told.description.as_deref().cloned();
        self.new_file(OpenFile { id, description, opened }, who.time)
    }

    fn new_file(&mut self, file: OpenFile, now: MonotonicNs) -> Rc<RefCell<OpenFile>> {
        let id = file.id;
        if file.description.is_none() {
            self.undescribed.insert(id, now);
        } else {
            self.undescribed.remove(&id);
        }
        let file = Rc::new(RefCell::new(file));
        self.files.insert(id, Rc::clone(&file));
        file
    }

    fn put(&mut self, id: TableId, fd: u32, slot: Slot, who: &Who) {
        let open = self.counts.open;
        let table = self.tables.entry(id).or_default();
        if !table.slots.contains_key(&fd) && open >= self.limits.open {
            self.counts.open_not_kept += 1;
            return;
        }
        let owner = table.owner;
        match table.slots.insert(fd, slot) {
            None => self.counts.open += 1,
            Some(before) => {
                self.counts.open += 1;
                self.close(owner, fd, before, ClosedBy::Replaced, Some(*who));
            }
        }
    }

    fn free(&mut self, id: TableId, fd: u32, by: ClosedBy, who: &Who) {
        let Some(table) = self.tables.get_mut(&id) else { return };
        let owner = table.owner;
        if let Some(slot) = table.slots.remove(&fd) {
            self.close(owner, fd, slot, by, Some(*who));
        }
    }

    /// It is not open any more.
    fn close(&mut self, owner: Pid, fd: u32, slot: Slot, by: ClosedBy, who: Option<Who>) {
        self.counts.open = self.counts.open.saturating_sub(1);
        self.counts.closed += 1;
        let time = who.map_or(self.now, |who| who.time);
        if self.closed.len() >= self.limits.closed {
            self.closed.pop_front();
            self.counts.closed_forgotten += 1;
        }
        let pid = who.map_or(owner, |who| who.pid);
        let comm = self.processes.get(&pid).map(|process| process.comm.clone()).unwrap_or_default();
        self.closed.push_back(Closed { pid, comm, fd, slot, by, who, time });
    }

    /// Many slots have been told.
    fn chunk(&mut self, id: TableId, told: &SlotChunk, who: &Who) {
        let table = self.tables.entry(id).or_default();
        let copied = std::mem::take(&mut table.copied);
        let parent = table.parent;
        let end = told.first.saturating_add(CHUNK_SLOTS as u32);
        let beyond = if told.is_last { u32::MAX } else { end };
        let by = match who.call {
            _ if told.is_scan => ClosedBy::Unknown,
            Some("execve" | "execveat") => ClosedBy::Exec,
            _ => ClosedBy::Call,
        };
        let is_open = |fd: u32| {
            let bit = fd.wrapping_sub(told.first);
            match &told.files {
                Some(files) => files.get(bit as usize).is_some_and(|file| *file != 0),
                None => bit < 64 && told.cloexec_or_open >> bit & 1 != 0,
            }
        };
        let gone: Vec<u32> =
            table.slots.range(told.first..beyond).map(|(fd, _)| *fd).filter(|fd| !is_open(*fd)).collect();
        gone.into_iter().for_each(|fd| self.free(id, fd, by, who));
        for (place, file) in told.files.iter().flat_map(|files| files.iter().enumerate()) {
            if *file == 0 {
                continue;
            }
            let fd = told.first + place as u32;
            let cloexec = told.cloexec_or_open >> place & 1 != 0;
            self.chunk_slot(id, fd, OpenFileId(*file), cloexec, (copied.get(&fd), parent), told.is_scan, who);
        }
        if !told.is_last {
            if let Some(table) = self.tables.get_mut(&id) {
                table.copied = copied;
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one slot")]
    fn chunk_slot(
        &mut self,
        id: TableId,
        fd: u32,
        file: OpenFileId,
        cloexec: bool,
        (copied, parent): (Option<&Slot>, Option<Pid>),
        is_scan: bool,
        who: &Who,
    ) {
        let table = self.tables.entry(id).or_default();
        if let Some(slot) = table.slots.get_mut(&fd).filter(|slot| slot.id() == file) {
            slot.cloexec = cloexec;
            return;
        }
        let copied = copied.filter(|slot| slot.id() == file);
        let discovery = if is_scan { Discovery::Scan } else { Discovery::Found };
        let reached = match (copied, parent) {
            (Some(_), Some(_)) => Reached::Inherited,
            (Some(slot), None) => slot.given.reached,
            _ if is_scan => Reached::Before,
            _ => Reached::Given,
        };
        let file = match copied {
            Some(slot) => Rc::clone(&slot.file),
            None => match self.files.get(&file) {
                Some(file) => Rc::clone(file),
                None => self.new_file(OpenFile { id: file, description: None, opened: None }, who.time),
            },
        };
        let given = match (copied, parent) {
            // After unshare the number is the one that was given before.
            (Some(slot), None) => slot.given,
            _ => Given { reached, ..Given::new(discovery, who) },
        };
        self.put(id, fd, Slot { file, cloexec, given }, who);
    }
}

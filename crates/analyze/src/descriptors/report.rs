// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be asked, and the answer.

use super::Descriptors;
use super::table::{ClosedBy, Given, Slot};
use rtscope_event::{Discovery, MonotonicNs, Pattern, Pid, TableId, Tid};
use serde::Serialize;
use std::collections::BTreeMap;

/// Which descriptors are asked for; what is not set is any.
#[derive(Clone, Debug, Default)]
pub struct DescriptorQuery {
    /// Of these processes; empty: of all.
    pub pids: Vec<Pid>,
    /// With this number.
    pub fd: Option<u32>,
    /// With a path, or name of the kernel, that matches.
    pub path: Option<Pattern>,
    /// Also those that were closed, as long as they are kept.
    pub with_closed: bool,
}

/// How a number got its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// By a call.
    #[default]
    Given,
    /// The process got it from its parent.
    Inherited,
    /// It was there when rtscope began, or looked again.
    Before,
}

/// Who opened a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Opener {
    /// How sure that is.
    pub discovery: Discovery,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// In which call; `null`: in none, or one without a name.
    pub call: Option<&'static str>,
    /// When, `CLOCK_MONOTONIC`.
    #[serde(rename = "time_ns")]
    pub time: MonotonicNs,
}

/// Who gave a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GivenBy {
    /// How.
    pub reached: Reached,
    /// The rest.
    #[serde(flatten)]
    pub by: Opener,
}

impl From<&Given> for GivenBy {
    fn from(given: &Given) -> GivenBy {
        GivenBy { reached: given.reached, by: given.opener() }
    }
}

/// How a descriptor was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedRow {
    /// Why.
    pub by: ClosedBy,
    /// When, `CLOCK_MONOTONIC`.
    #[serde(rename = "time_ns")]
    pub time: MonotonicNs,
    /// The thread that did it; `null`: not known.
    pub tid: Option<Tid>,
    /// Its process.
    pub pid: Option<Pid>,
    /// In which call.
    pub call: Option<&'static str>,
}

/// A descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescriptorRow {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// The number.
    pub fd: u32,
    /// The file's path when it was opened, or what the kernel calls it; `null`: not known.
    pub file: Option<String>,
    /// The beginning of the path is missing.
    pub is_cut: bool,
    /// The file's number in its file system.
    pub inode: Option<u64>,
    /// The file system's number (`dev_t`, 20 bits for the minor).
    pub device: Option<u32>,
    /// Type and permissions.
    pub mode: Option<u32>,
    /// How it was opened (`O_...`).
    pub open_flags: Option<u32>,
    /// It is closed by exec.
    pub cloexec: bool,
    /// Who gave this number.
    pub given: GivenBy,
    /// Who opened the file; `null`: it was open before, or not known.
    pub opened: Option<Opener>,
    /// How it was closed; `null`: it is open.
    pub closed: Option<ClosedRow>,
    /// Other processes that have the same table: whoever closes it there, closes it here.
    pub shared_with: Vec<Pid>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessRow {
    /// Its number.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// Its parent's.
    pub parent: Pid,
    /// When it was started, `CLOCK_MONOTONIC`.
    #[serde(rename = "start_ns")]
    pub start: MonotonicNs,
    /// When it ended; `null`: it is there.
    #[serde(rename = "end_ns")]
    pub end: Option<MonotonicNs>,
    /// Its threads, those of io_uring included where they have done something.
    pub threads: usize,
    /// Its open descriptors.
    pub open: usize,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableCounts {
    /// Descriptors that are open now, in all tables.
    pub open: usize,
    /// Closed since the start.
    pub closed: u64,
    /// Closed ones, and processes that ended, that were forgotten before their time, as there were too many.
    pub closed_forgotten: u64,
    /// Open ones for which there was no room.
    pub open_not_kept: u64,
    /// Tasks for which there was no room.
    pub tasks_not_kept: u64,
    /// Tasks whose end was not seen.
    pub ends_not_seen: u64,
    /// Files in a slot that nobody had described.
    pub files_not_known: u64,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DescriptorReport {
    /// Processes, with those that ended not long ago where closed descriptors were asked for.
    pub processes: Vec<ProcessRow>,
    /// Descriptors, by process and number; those that were closed behind, in the order of their ends.
    pub descriptors: Vec<DescriptorRow>,
    /// Counters.
    pub counts: TableCounts,
}

impl DescriptorQuery {
    fn has_pid(&self, pid: Pid) -> bool {
        self.pids.is_empty() || self.pids.contains(&pid)
    }

    fn has(&self, fd: u32, slot: &Slot) -> bool {
        let file = slot.file.borrow();
        let name = || file.description.as_ref().map(|description| description.name.as_str());
        self.fd.is_none_or(|wanted| wanted == fd)
            && self.path.as_ref().is_none_or(|path| name().is_some_and(|name| path.matches(name.as_bytes())))
    }
}

fn row(pid: Pid, comm: &str, fd: u32, slot: &Slot, shared_with: Vec<Pid>) -> DescriptorRow {
    let file = slot.file.borrow();
    let description = file.description.as_ref();
    DescriptorRow {
        pid,
        comm: comm.to_owned(),
        fd,
        file: description.map(|description| description.name.clone()),
        is_cut: description.is_some_and(|description| description.is_cut),
        inode: description.map(|description| description.inode),
        device: description.map(|description| description.device),
        mode: description.map(|description| description.mode),
        open_flags: description.map(|description| description.open_flags),
        cloexec: slot.cloexec,
        given: GivenBy::from(&slot.given),
        opened: file.opened,
        closed: None,
        shared_with,
    }
}

impl Descriptors {
    /// The tables of each process: one, unless its threads have several.
    fn tables_of_processes(&self) -> BTreeMap<Pid, Vec<TableId>> {
        let mut tables: BTreeMap<Pid, Vec<TableId>> = BTreeMap::new();
        for task in self.tasks.values() {
            let of = tables.entry(task.pid).or_default();
            if !of.contains(&task.table) {
                of.push(task.table);
            }
        }
        tables
    }

    /// What is known now.
    #[must_use]
    pub fn report(&self, query: &DescriptorQuery) -> DescriptorReport {
        let tables = self.tables_of_processes();
        let mut owners: BTreeMap<TableId, Vec<Pid>> = BTreeMap::new();
        for (pid, of) in &tables {
            of.iter().for_each(|table| owners.entry(*table).or_default().push(*pid));
        }
        let mut report = DescriptorReport { counts: self.counts, ..DescriptorReport::default() };
        for (pid, process) in self.processes.iter().filter(|(pid, _)| query.has_pid(**pid)) {
            let mut open = 0;
            for id in tables.get(pid).into_iter().flatten() {
                let Some(table) = self.tables.get(id) else { continue };
                open += table.slots.len();
                let others = owners.get(id).into_iter().flatten().filter(|other| *other != pid);
                let others: Vec<Pid> = others.copied().collect();
                let rows = table.slots.iter().filter(|(fd, slot)| query.has(**fd, slot));
                let rows = rows.map(|(fd, slot)| row(*pid, &process.comm, *fd, slot, others.clone()));
                report.descriptors.extend(rows);
            }
            report.processes.push(process.row(*pid, open));
        }
        if query.with_closed {
            self.add_closed(query, &mut report);
        }
        report
    }

    fn add_closed(&self, query: &DescriptorQuery, report: &mut DescriptorReport) {
        let ended = self.ended.iter().filter(|(pid, _)| query.has_pid(*pid));
        report.processes.extend(ended.map(|(pid, process)| process.row(*pid, 0)));
        let closed = self.closed.iter();
        let closed = closed.filter(|closed| query.has_pid(closed.pid) && query.has(closed.fd, &closed.slot));
        report.descriptors.extend(closed.map(|closed| DescriptorRow {
            closed: Some(ClosedRow {
                by: closed.by,
                time: closed.time,
                tid: closed.who.map(|who| who.tid),
                pid: closed.who.map(|who| who.pid),
                call: closed.who.and_then(|who| who.call),
            }),
            ..row(closed.pid, &closed.comm, closed.fd, &closed.slot, Vec::new())
        }));
    }
}

impl super::table::Process {
    fn row(&self, pid: Pid, open: usize) -> ProcessRow {
        ProcessRow {
            pid,
            comm: self.comm.clone(),
            parent: self.parent,
            start: self.start,
            end: self.end,
            threads: self.threads,
            open,
        }
    }
}

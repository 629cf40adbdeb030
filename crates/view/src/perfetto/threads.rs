// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads and processes: from the state dump, forks and renamings; and the track of each thread that has events of its own.
//!
//! rtscope's dump has the tasks that were there at the *end*. One that was forked in the recording is in it, too: if nothing
//! was seen of it before its fork, that fork does not begin another thread of that number.

use super::fields::Place;
use super::packets::{Packets, Track, TrackKind};
use super::wire::Message;
use rtscope_event::{EventClass, Values};
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// The kernel gives smaller numbers to threads.
const TIDS: u32 = 1 << 22;

/// Tasks of a dump in a packet.
const TREE_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    pid: Option<u32>,
    track: Option<Track>,
    /// A system call is an open slice on the track.
    is_in_call: bool,
    is_dumped: bool,
}

/// All threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    threads: HashMap<u32, Thread>,
    /// Threads that the scheduler had, a bit for each number.
    seen: Vec<u64>,
    /// Threads that Perfetto has as new and not yet woken.
    fresh: HashSet<u32>,
    tree: Message,
}

/// The fields of a process in a dump.
#[derive(Clone, Copy, Debug)]
pub(super) struct DumpFields {
    tid: Place,
    pid: Place,
    ppid: Place,
    name: Place,
}

impl DumpFields {
    pub(super) fn new(class: &EventClass) -> DumpFields {
        let place = |name: &str| Place::of(class, &[name]);
        DumpFields { tid: place("tid"), pid: place("pid"), ppid: place("ppid"), name: place("name") }
    }
}

/// The fields of a fork.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForkFields {
    parent_tid: Place,
    parent_pid: Place,
    child_tid: Place,
    child_pid: Place,
    child_comm: Place,
}

impl ForkFields {
    pub(super) fn new(class: &EventClass) -> ForkFields {
        let place = |name: &str| Place::of(class, &[name]);
        ForkFields {
            parent_tid: place("parent_tid"),
            parent_pid: place("parent_pid"),
            child_tid: place("child_tid"),
            child_pid: place("child_pid"),
            child_comm: place("child_comm"),
        }
    }
}

/// A thread that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewThread<'v> {
    pub(super) parent: u32,
    pub(super) tid: u32,
    pub(super) comm: &'v [u8],
    pub(super) is_process: bool,
}

impl Threads {
    /// A process or thread of a dump.
    pub(super) fn dumped<W: Write>(
        &mut self,
        time: u64,
        fields: &DumpFields,
        values: &Values<'_>,
        packets: &mut Packets<W>,
    ) {
        let Some((tid, pid)) = fields.tid.u32(values).zip(fields.pid.u32(values)) else { return };
        let known = self.threads.entry(tid).or_default();
        if tid == 0 || known.is_dumped {
            return;
        }
        (known.is_dumped, known.pid) = (true, Some(pid));
        let name = fields.name.bytes(values);
        if tid == pid {
            self.tree.nested(1, |process| {
                process.number(1, pid.into());
                process.number(2, fields.ppid.u32(values).unwrap_or(0).into());
                process.text(3, name);
            });
        }
        self.is_in(tid, pid, name);
        if self.tree.bytes().len() > TREE_BYTES {
            self.flush(time, packets);
        }
    }

    /// A thread of a process.
    fn is_in(&mut self, tid: u32, pid: u32, name: &[u8]) {
        self.tree.nested(2, |thread| {
            thread.number(1, tid.into());
            if !name.is_empty() {
                thread.text(2, name);
            }
            thread.number(3, pid.into());
        });
    }

    /// Writes what was dumped so far.
    pub(super) fn flush<W: Write>(&mut self, time: u64, packets: &mut Packets<W>) {
        if !self.tree.is_empty() {
            packets.process_tree(time, &self.tree);
            self.tree.clear();
        }
    }

    /// The scheduler has this thread.
    #[inline]
    pub(super) fn sees(&mut self, tid: u32) {
        let place = (tid / 64) as usize;
        if tid < TIDS && place >= self.seen.len() {
            self.seen.resize(place + 1, 0);
        }
        if let Some(bits) = self.seen.get_mut(place) {
            *bits |= 1 << (tid % 64);
        }
    }

    fn has_seen(&self, tid: u32) -> bool {
        self.seen.get((tid / 64) as usize).is_some_and(|bits| bits & 1 << (tid % 64) != 0)
    }

    /// A fork; `None`: Perfetto knows the thread already.
    pub(super) fn forked<'v, W: Write>(
        &mut self,
        time: u64,
        fields: &ForkFields,
        values: &Values<'v>,
        packets: &mut Packets<W>,
    ) -> Option<NewThread<'v>> {
        let (parent, tid) = fields.parent_tid.u32(values).zip(fields.child_tid.u32(values))?;
        let pid = fields.child_pid.u32(values);
        if let Some(parent_pid) = fields.parent_pid.u32(values) {
            // The child of a thread is in its process: Perfetto has to know that.
            let thread = self.threads.entry(parent).or_default();
            if !std::mem::replace(&mut thread.is_dumped, true) {
                thread.pid = Some(parent_pid);
                self.is_in(parent, parent_pid, &[]);
            }
        }
        self.flush(time, packets);
        let known = self.threads.get(&tid).is_some_and(|thread| thread.is_dumped) && !self.has_seen(tid);
        self.sees(tid);
        if known {
            return None;
        }
        // The number may have been that of an earlier thread, whose track is not for this one.
        self.threads.insert(tid, Thread { pid, ..Thread::default() });
        self.fresh.insert(tid);
        let is_process = pid.is_none_or(|pid| pid == tid);
        Some(NewThread { parent, tid, comm: fields.child_comm.bytes(values), is_process })
    }

    /// Whether the thread is new, and its first waking is still to come: once.
    pub(super) fn is_fresh(&mut self, tid: u32) -> bool {
        self.fresh.remove(&tid)
    }

    /// The process of a thread becomes known in passing.
    pub(super) fn belongs(&mut self, tid: u32, pid: Option<u32>) {
        if let Some(pid) = pid {
            self.threads.entry(tid).or_default().pid.get_or_insert(pid);
        }
    }

    /// The track of a thread, and whether a system call is open on it. A thread of an unknown process is shown as a process
    /// of its own. `name`: for a thread that may have no other name; empty when there is none.
    #[inline]
    pub(super) fn track<W: Write>(
        &mut self,
        tid: u32,
        name: &[u8],
        packets: &mut Packets<W>,
    ) -> (Track, &mut bool) {
        let thread = self.threads.entry(tid).or_default();
        let track = *thread.track.get_or_insert_with(|| {
            let pid = thread.pid.unwrap_or(tid);
            packets.track(&String::from_utf8_lossy(name), None, TrackKind::Thread { pid, tid })
        });
        (track, &mut thread.is_in_call)
    }

    /// The track of a thread whose system call has not ended, which it now does.
    pub(super) fn end_call(&mut self, tid: u32) -> Option<Track> {
        let thread = self.threads.get_mut(&tid).filter(|thread| thread.is_in_call)?;
        thread.is_in_call = false;
        thread.track
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of tasks and interrupts, with the time from which each holds.

use crate::{Event, EventKind, Irq, MonotonicNs, Pid, Priority, Tid};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// A task's name: at most 15 bytes, kept as the bytes they are (a program may put anything there).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Comm([u8; 16]);

impl Comm {
    /// From the kernel's NUL-terminated array.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Comm {
        let mut comm = [0; 16];
        let length = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()).min(15);
        comm[..length].copy_from_slice(&bytes[..length]);
        Comm(comm)
    }

    /// The name's bytes, without the NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|b| *b == 0).unwrap_or(16);
        &self.0[..length]
    }

    /// Appends the name as [`fmt::Display`] shows it. Most names need no look at each character.
    pub fn append_to(&self, text: &mut Vec<u8>) {
        let name = self.as_bytes();
        if name.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            text.extend_from_slice(name);
        } else {
            text.extend_from_slice(self.to_string().as_bytes());
        }
    }

    /// The kernel's array: the name, then NULs.
    #[must_use]
    pub fn array(&self) -> [u8; 16] {
        self.0
    }
}

impl From<&str> for Comm {
    fn from(text: &str) -> Comm {
        Comm::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for Comm {
    /// Control characters and bytes that are not UTF-8 are escaped: a hostile name must not drive the terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() || is_invisible(character) {
                    write!(f, "{}", character.escape_default())?;
                } else {
                    fmt::Write::write_char(f, character)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Characters that change how the text around them is shown (direction, joining), or that are not shown at all.
#[must_use]
pub fn is_invisible(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for Comm {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Comm {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Comm, D::Error> {
        String::deserialize(deserializer).map(|text| Comm::from(text.as_str()))
    }
}

/// A scheduling policy, by the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Policy(pub u32);

impl Policy {
    /// In the words of `chrt`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "OTHER",
            1 => "FIFO",
            2 => "RR",
            3 => "BATCH",
            5 => "IDLE",
            6 => "DEADLINE",
            7 => "EXT",
            _ => "unknown policy",
        }
    }
}

/// What is known of a task at the time of a state dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its parent process.
    pub ppid: Pid,
    /// Its name.
    pub comm: Comm,
    /// Its effective priority.
    pub prio: Priority,
    /// Its policy.
    pub policy: Policy,
    /// A kernel thread (`PF_KTHREAD`).
    pub kthread: bool,
}

/// Names and what else is known by id. Built from state dumps and from fork, exec, rename and exit events.
#[derive(Clone, Debug, Default)]
pub struct Names {
    comms: HashMap<Tid, BTreeMap<MonotonicNs, Comm>>,
    tasks: BTreeMap<Tid, TaskInfo>,
    irqs: BTreeMap<Irq, String>,
}

impl Names {
    /// Takes in a task of a state dump. The dump was made after the recording, so a name that an event gave earlier
    /// stays; the dumped name holds from the beginning unless events say otherwise.
    pub fn add_task(&mut self, task: TaskInfo) {
        self.comms.entry(task.tid).or_default().entry(MonotonicNs(0)).or_insert(task.comm);
        self.tasks.insert(task.tid, task);
    }

    /// Takes in an interrupt's name.
    pub fn add_irq(&mut self, irq: Irq, name: String) {
        self.irqs.insert(irq, name);
    }

    /// Takes in what an event says of names. Feed a recording's events in time order, before any state dump.
    pub fn observe(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ProcessFork { child_tid, child_comm, .. } => {
                self.name(*child_tid, event.time, *child_comm)
            }
            EventKind::TaskRename { tid, old_comm, new_comm, .. } => {
                self.comms.entry(*tid).or_default().entry(MonotonicNs(0)).or_insert(*old_comm);
                self.name(*tid, event.time, *new_comm);
            }
            EventKind::ProcessExit { tid, comm, .. } => {
                // The name held before the exit, too, if nothing else was ever said of this tid.
                self.comms.entry(*tid).or_default().entry(MonotonicNs(0)).or_insert(*comm);
            }
            _ => {}
        }
    }

    /// Takes in a name that an event of a trace carried beside its tid. Feed them in time order, each after
    /// [`Names::observe`] of its event and before any state dump.
    pub fn saw(&mut self, tid: Tid, time: MonotonicNs, comm: Comm) {
        if self.comm(tid, time) != Some(comm) {
            self.name(tid, time, comm);
        }
    }

    fn name(&mut self, tid: Tid, from: MonotonicNs, comm: Comm) {
        self.comms.entry(tid).or_default().insert(from, comm);
    }

    /// The name of `tid` at `time`, if anything said it. The idle thread has the kernel's name `swapper`.
    #[must_use]
    pub fn comm(&self, tid: Tid, time: MonotonicNs) -> Option<Comm> {
        if tid == Tid(0) {
            return Some(Comm::from("swapper"));
        }
        let names = self.comms.get(&tid)?;
        names.range(..=time).next_back().or_else(|| names.iter().next()).map(|(_, comm)| *comm)
    }

    /// What the last state dump said of `tid`.
    #[must_use]
    pub fn task(&self, tid: Tid) -> Option<&TaskInfo> {
        self.tasks.get(&tid)
    }

    /// All tasks of the state dump, by tid.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskInfo> {
        self.tasks.values()
    }

    /// The name of an interrupt, if known.
    #[must_use]
    pub fn irq(&self, irq: Irq) -> Option<&str> {
        self.irqs.get(&irq).map(String::as_str)
    }

    /// All known interrupts.
    pub fn irqs(&self) -> impl Iterator<Item = (Irq, &str)> {
        self.irqs.iter().map(|(irq, name)| (*irq, name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuId;

    fn rename(time: u64, tid: u32, old: &str, new: &str) -> Event {
        let kind = EventKind::TaskRename {
            tid: Tid(tid),
            pid: Pid(tid),
            old_comm: Comm::from(old),
            new_comm: Comm::from(new),
        };
        Event { time: MonotonicNs(time), cpu: CpuId(0), kind }
    }

    #[test]
    fn a_name_holds_from_its_rename_to_the_next() {
        let mut names = Names::default();
        names.observe(&rename(100, 7, "before", "first"));
        names.observe(&rename(200, 7, "first", "second"));
        let at = |time| names.comm(Tid(7), MonotonicNs(time)).map(|c| c.to_string());
        assert_eq!(at(50).as_deref(), Some("before"));
        assert_eq!(at(100).as_deref(), Some("first"));
        assert_eq!(at(250).as_deref(), Some("second"));
        assert_eq!(names.comm(Tid(8), MonotonicNs(0)), None);
    }

    #[test]
    fn a_hostile_name_is_shown_escaped() {
        assert_eq!(Comm::from_bytes(b"a\x1b[2J\xff\0rest").to_string(), "a\\u{1b}[2J\\xff");
    }

    #[test]
    fn a_name_cannot_turn_the_text_around() {
        assert_eq!(Comm::from("a\u{202e}b").to_string(), "a\\u{202e}b");
    }

    #[test]
    fn a_long_name_is_cut_like_the_kernel_does() {
        assert_eq!(Comm::from("0123456789abcdefgh").as_bytes(), b"0123456789abcde");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bundle: some kernel events of one CPU. Switches and wakings are columns, which take 8 bytes an event; all others are
//! messages.
//!
//! Perfetto sorts all events by time, and takes switches before wakings of the same time and CPU. So a waking at the time of the
//! switch that follows it is put a nanosecond earlier: else it would be taken for one by the next thread.

use super::wire::Message;
use std::collections::HashMap;

/// `FtraceEventBundle`.
mod field {
    pub(super) const CPU: u32 = 1;
    pub(super) const EVENT: u32 = 2;
    pub(super) const LOST_EVENTS: u32 = 3;
    pub(super) const COMPACT_SCHED: u32 = 4;
}

/// `CompactSched.intern_table`; the columns are the fields 1 to 4 and 6 (switches), and 7 to 12 (wakings).
const INTERN_TABLE: u32 = 5;
const SWITCH_FIELDS: [u32; 5] = [1, 2, 3, 4, 6];
const WAKING_FIELDS: [u32; 6] = [7, 8, 9, 10, 11, 12];

/// Events in a bundle.
const MOST: u32 = 1024;

/// The kernel's array with a thread's name.
pub(super) type CommKey = [u8; 16];

/// The first 16 bytes of a name.
#[inline]
pub(super) fn comm_key(name: &[u8]) -> CommKey {
    let mut key = [0; 16];
    let length = name.len().min(16);
    key[..length].copy_from_slice(&name[..length]);
    key
}

/// A switch, as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    pub(super) time: u64,
    /// As the kernel reports it; [`super::sched::UNKNOWN_STATE`] for a thread of which it is not known.
    pub(super) prev_state: u32,
    pub(super) next: u32,
    pub(super) prio: i64,
    pub(super) comm: CommKey,
}

/// A waking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waking {
    pub(super) time: u64,
    pub(super) tid: u32,
    pub(super) target_cpu: u32,
    pub(super) prio: i64,
    pub(super) comm: CommKey,
    /// The kernel's `common_flags`: whether an interrupt or a softirq did it.
    pub(super) flags: u64,
}

#[derive(Debug, Default)]
pub(super) struct Bundle {
    comms: HashMap<CommKey, u64>,
    table: Message,
    switches: [Message; SWITCH_FIELDS.len()],
    wakings: [Message; WAKING_FIELDS.len()],
    last_switch: Option<u64>,
    last_waking: Option<u64>,
    events: Message,
    /// Wakings of the last moment, since a switch of that moment may follow.
    held: Vec<Waking>,
    count: u32,
    lost: bool,
}

impl Bundle {
    /// Whether a thread was woken at this moment or later.
    pub(super) fn has_waking_at(&self, time: u64) -> bool {
        self.held.last().is_some_and(|waking| waking.time >= time)
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= MOST
    }

    /// Events before it were lost.
    pub(super) fn lost(&mut self) {
        self.lost = true;
    }

    fn comm(&mut self, comm: CommKey) -> u64 {
        if let Some(index) = self.comms.get(&comm) {
            return *index;
        }
        let index = self.comms.len() as u64;
        self.comms.insert(comm, index);
        let length = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
        self.table.text(INTERN_TABLE, &comm[..length]);
        index
    }

    pub(super) fn switch(&mut self, switch: &Switch) {
        let early = u64::from(self.has_waking_at(switch.time));
        self.release(early);
        let comm = self.comm(switch.comm);
        let delta = switch.time.wrapping_sub(self.last_switch.unwrap_or(0));
        self.last_switch = Some(switch.time);
        let values = [delta, switch.prev_state.into(), switch.next.into(), switch.prio as u64, comm];
        self.switches.iter_mut().zip(values).for_each(|(column, value)| column.varint(value));
        self.count += 1;
    }

    pub(super) fn waking(&mut self, waking: &Waking) {
        if self.held.last().is_some_and(|held| held.time < waking.time) {
            self.release(0);
        }
        self.held.push(*waking);
    }

    /// Adds the wakings of the last moment, this much earlier.
    pub(super) fn release(&mut self, early: u64) {
        let mut held = std::mem::take(&mut self.held);
        for mut waking in held.drain(..) {
            waking.time = waking.time.saturating_sub(early);
            self.put(&waking);
        }
        self.held = held;
    }

    fn put(&mut self, waking: &Waking) {
        let comm = self.comm(waking.comm);
        let delta = waking.time.wrapping_sub(self.last_waking.unwrap_or(0));
        self.last_waking = Some(waking.time);
        let (tid, cpu) = (waking.tid.into(), waking.target_cpu.into());
        let values = [delta, tid, cpu, waking.prio as u64, comm, waking.flags];
        self.wakings.iter_mut().zip(values).for_each(|(column, value)| column.varint(value));
        self.count += 1;
    }

    /// Any other event, a `kind` of `FtraceEvent`. Perfetto's fast path wants time, thread and event in this order.
    #[inline]
    pub(super) fn event(&mut self, time: u64, tid: u32, kind: u32, fill: impl FnOnce(&mut Message)) {
        self.events.nested(field::EVENT, |event| {
            event.number(1, time);
            event.number(2, tid.into());
            event.nested(kind, fill);
        });
        self.count += 1;
    }

    /// Moves the content into a message, except for the wakings of the last moment; false: there is none.
    pub(super) fn take(&mut self, cpu: u32, out: &mut Message) -> bool {
        if self.count == 0 {
            return false;
        }
        out.clear();
        out.number(field::CPU, cpu.into());
        if self.lost {
            out.number(field::LOST_EVENTS, 1);
        }
        out.nested(field::COMPACT_SCHED, |compact| {
            compact.append(&self.table);
            let columns = SWITCH_FIELDS.into_iter().zip(&self.switches);
            for (number, column) in columns.chain(WAKING_FIELDS.into_iter().zip(&self.wakings)) {
                if !column.is_empty() {
                    compact.raw(number, column.bytes());
                }
            }
        });
        out.append(&self.events);
        self.comms.clear();
        let columns = self.switches.iter_mut().chain(&mut self.wakings);
        columns.chain([&mut self.table, &mut self.events]).for_each(Message::clear);
        (self.last_switch, self.last_waking, self.count, self.lost) = (None, None, 0, false);
        true
    }
}

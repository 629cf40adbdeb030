// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls: slices on the thread that makes them, with arguments and result.
//!
//! Perfetto's own events for them carry a number, whose meaning depends on the machine; our traces have the name. Its slices are
//! called `sys_NAME`, and so are these.

use super::arguments::Arguments;
use super::fields::Place;
use super::packets::{Category, NameId, Packets, Type};
use super::threads::Threads;
use rtscope_event::{EventClass, Values};
use std::io::Write;

/// A class of events at the entries or exits of one system call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The name of the slice; `None` for the exit.
    entry: Option<NameId>,
    arguments: Arguments,
    pub(super) tid: Place,
}

impl Call {
    /// An event class of this kind.
    pub(super) fn new<W: Write>(class: &EventClass, packets: &mut Packets<W>) -> Option<Call> {
        let name = class.name.strip_prefix("compat_").unwrap_or(&class.name);
        let entry = match (name.strip_prefix("syscall_entry_"), name.strip_prefix("syscall_exit_")) {
            (Some(call), _) => Some(packets.event_name(&format!("sys_{call}"))),
            (None, Some(_)) => None,
            (None, None) => return None,
        };
        let tid = Place::of_context(class, &["tid", "vtid"]);
        Some(Call { entry, arguments: Arguments::new(class, packets), tid })
    }

    /// Writes an event of a thread.
    pub(super) fn write<W: Write>(
        &self,
        (time, tid): (u64, u32),
        class: &EventClass,
        values: &Values<'_>,
        threads: &mut Threads,
        packets: &mut Packets<W>,
    ) {
        let (track, is_open) = threads.track(tid, b"", packets);
        let was_open = std::mem::replace(is_open, self.entry.is_some());
        if let Some(name) = self.entry {
            if was_open {
                // The exit was lost, or is not selected.
                packets.event(time, Type::End, track, (None, Category::Syscall), |_| {});
            }
            packets.event(time, Type::Begin, track, (Some(name), Category::Syscall), |event| {
                self.arguments.write(class, values, event);
            });
        } else if was_open {
            // An exit alone is of a call that began before the trace.
            packets.event(time, Type::End, track, (None, Category::Syscall), |event| {
                self.arguments.write(class, values, event);
            });
        }
    }
}

/// A thread ends, in the system call that ends it or in that which killed it.
pub(super) fn thread_ends<W: Write>(time: u64, tid: u32, threads: &mut Threads, packets: &mut Packets<W>) {
    if let Some(track) = threads.end_call(tid) {
        packets.event(time, Type::End, track, (None, Category::Syscall), |_| {});
    }
}

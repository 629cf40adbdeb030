// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Perfetto trace as a series of packets: clocks, system, threads, tracks and the events on them.
//!
//! Numbers of fields are those of `protos/perfetto/trace/**.proto`. Two sequences: one has what Perfetto knows from its own
//! kernel tracing (bundles), the other has our own tracks and their events, whose names are sent once.

use super::wire::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// The sequence of what looks like Perfetto's own kernel tracing.
const KERNEL: u64 = 1;
/// The sequence of tracks and their events.
const TRACKS: u64 = 2;

/// `Trace`.
const PACKET: u32 = 1;

/// `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const SYSTEM_INFO: u32 = 45;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// `TracePacket.SequenceFlags`.
const CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// `BuiltinClock`.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const BOOTTIME: u64 = 6;

/// `TrackEvent`.
pub(super) mod event {
    pub(super) const CATEGORY_IIDS: u32 = 3;
    pub(in super::super) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_IID: u32 = 10;
    pub(super) const TRACK_UUID: u32 = 11;
    pub(in super::super) const NAME: u32 = 23;
    pub(in super::super) const COUNTER_VALUE: u32 = 30;
    pub(in super::super) const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub(in super::super) const FLOW_IDS: u32 = 47;
    pub(in super::super) const TERMINATING_FLOW_IDS: u32 = 48;
}

/// `DebugAnnotation`.
pub(super) mod annotation {
    pub(in super::super) const NAME_IID: u32 = 1;
    pub(in super::super) const UINT: u32 = 3;
    pub(in super::super) const INT: u32 = 4;
    pub(in super::super) const DOUBLE: u32 = 5;
    pub(in super::super) const TEXT: u32 = 6;
    pub(in super::super) const POINTER: u32 = 7;
}

/// `InternedData`.
mod interned {
    pub(super) const CATEGORIES: u32 = 1;
    pub(super) const EVENT_NAMES: u32 = 2;
    pub(super) const ANNOTATION_NAMES: u32 = 3;
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// What an event is about; people filter by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Kernel = 1,
    Late = 2,
    Loss = 3,
    Program = 4,
    Syscall = 5,
}

const CATEGORIES: [(Category, &str); 5] = [
    (Category::Kernel, "kernel"),
    (Category::Late, "late"),
    (Category::Loss, "loss"),
    (Category::Program, "program"),
    (Category::Syscall, "syscall"),
];

/// A name that was sent, or goes out with the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameId(pub(super) u64);

/// A track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Track(u64);

/// What a track belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum TrackKind {
    /// Others are below it, or events are on it.
    Plain,
    /// Below it others are in the order of their making, not by name.
    Group,
    /// The events of a thread.
    Thread { pid: u32, tid: u32 },
    /// A counter.
    Counter,
}

/// What is known of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct System {
    pub(super) release: String,
}

/// Writes packets.
pub(super) struct Packets<W> {
    out: W,
    failure: Option<io::Error>,
    packet: Message,
    events: HashMap<String, u64>,
    annotations: HashMap<String, u64>,
    /// Names that no packet has had so far.
    unsent: Message,
    tracks: u64,
    has_begun: bool,
    /// Size so far.
    pub(super) bytes: u64,
}

impl<W: Write> Packets<W> {
    pub(super) fn new(out: W) -> Packets<W> {
        let mut unsent = Message::default();
        for (category, name) in CATEGORIES {
            name_entry(&mut unsent, interned::CATEGORIES, category as u64, name);
        }
        Packets {
            out,
            failure: None,
            packet: Message::default(),
            events: HashMap::new(),
            annotations: HashMap::new(),
            unsent,
            tracks: 0,
            has_begun: false,
            bytes: 0,
        }
    }

    /// What went wrong while writing, if anything did.
    pub(super) fn failure(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.failure()?;
        self.out.flush()?;
        Ok(self.bytes)
    }

    fn send(&mut self, sequence: u64, fill: impl FnOnce(&mut Message)) {
        self.packet.clear();
        self.packet.nested(PACKET, |packet| {
            packet.number(packet::SEQUENCE_ID, sequence);
            fill(packet);
        });
        self.bytes += self.packet.bytes().len() as u64;
        if self.failure.is_none() {
            self.failure = self.out.write_all(self.packet.bytes()).err();
        }
    }

    /// The clocks at one instant, and the system. Perfetto's kernel events are always on the boot time, so our monotonic
    /// time is given out for that: the difference, which is the time spent suspended, is not in a trace.
    pub(super) fn begin(&mut self, time: u64, unix: i64, system: &System) {
        self.send(KERNEL, |packet| {
            packet.nested(packet::CLOCK_SNAPSHOT, |snapshot| {
                let realtime = time.saturating_add_signed(unix);
                for (clock, time) in [(BOOTTIME, time), (MONOTONIC, time), (REALTIME, realtime)] {
                    snapshot.nested(1, |entry| {
                        entry.number(1, clock);
                        entry.number(2, time);
                    });
                }
                snapshot.number(2, BOOTTIME);
            });
        });
        self.send(KERNEL, |packet| {
            packet.nested(packet::SYSTEM_INFO, |info| {
                // The release: by it states of tasks are decoded; without it, as those of Linux 4.4.
                info.nested(1, |utsname| {
                    utsname.text(1, b"Linux");
                    utsname.text(3, system.release.as_bytes());
                });
            });
        });
    }

    /// A bundle of kernel events.
    pub(super) fn bundle(&mut self, bundle: &[u8]) {
        self.send(KERNEL, |packet| packet.raw(packet::FTRACE_EVENTS, bundle));
    }

    /// A part of the process tree.
    pub(super) fn process_tree(&mut self, time: u64, tree: &Message) {
        self.send(KERNEL, |packet| {
            packet.number(packet::TIMESTAMP, time);
            packet.raw(packet::PROCESS_TREE, tree.bytes());
        });
    }

    /// Makes a track.
    pub(super) fn track(&mut self, name: &str, parent: Option<Track>, kind: TrackKind) -> Track {
        self.tracks += 1;
        let uuid = self.tracks;
        self.begin_tracks();
        self.send(TRACKS, |packet| {
            packet.nested(packet::TRACK_DESCRIPTOR, |track| {
                track.number(1, uuid);
                if let Some(Track(parent)) = parent {
                    track.number(5, parent);
                }
                match kind {
                    TrackKind::Thread { pid, tid } => track.nested(4, |thread| {
                        thread.number(1, pid.into());
                        thread.number(2, tid.into());
                        if !name.is_empty() {
                            thread.text(5, name.as_bytes());
                        }
                    }),
                    TrackKind::Counter => track.nested(8, |_| {}),
                    // EXPLICIT is 3: by the ranks of the tracks below.
                    TrackKind::Group => track.number(11, 3),
                    TrackKind::Plain => {}
                }
                if !matches!(kind, TrackKind::Thread { .. }) {
                    track.text(2, name.as_bytes());
                    // NONE: Perfetto joins tracks of one name and parent.
                    track.number(15, 2);
                    track.number(12, uuid);
                }
            });
        });
        Track(uuid)
    }

    /// The first packet of the sequence says that nothing before it matters.
    fn begin_tracks(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            self.send(TRACKS, |packet| packet.number(packet::SEQUENCE_FLAGS, CLEARED));
        }
    }

    /// The number of an event's name.
    pub(super) fn event_name(&mut self, name: &str) -> NameId {
        NameId(intern(&mut self.events, &mut self.unsent, interned::EVENT_NAMES, name))
    }

    /// The number of an argument's name.
    pub(super) fn annotation_name(&mut self, name: &str) -> NameId {
        NameId(intern(&mut self.annotations, &mut self.unsent, interned::ANNOTATION_NAMES, name))
    }

    /// An event on a track; `fill` adds what it has besides.
    #[inline]
    pub(super) fn event(
        &mut self,
        time: u64,
        kind: Type,
        track: Track,
        (name, category): (Option<NameId>, Category),
        fill: impl FnOnce(&mut Message),
    ) {
        let unsent = std::mem::take(&mut self.unsent);
        self.send(TRACKS, |packet| {
            packet.number(packet::TIMESTAMP, time);
            packet.number(packet::SEQUENCE_FLAGS, NEEDS_STATE);
            if !unsent.is_empty() {
                packet.raw(packet::INTERNED_DATA, unsent.bytes());
            }
            packet.nested(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, kind as u64);
                event.number(event::TRACK_UUID, track.0);
                if let Some(NameId(name)) = name {
                    event.number(event::NAME_IID, name);
                }
                if kind != Type::End {
                    event.number(event::CATEGORY_IIDS, category as u64);
                }
                fill(event);
            });
        });
    }
}

fn intern(names: &mut HashMap<String, u64>, unsent: &mut Message, list: u32, name: &str) -> u64 {
    if let Some(id) = names.get(name) {
        return *id;
    }
    let id = names.len() as u64 + 1;
    names.insert(name.to_owned(), id);
    name_entry(unsent, list, id, name);
    id
}

fn name_entry(unsent: &mut Message, list: u32, id: u64, name: &str) {
    unsent.nested(list, |entry| {
        entry.number(1, id);
        entry.text(2, name.as_bytes());
    });
}

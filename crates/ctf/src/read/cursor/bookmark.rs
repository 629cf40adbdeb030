// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A place in a file that still grows: what is left of a cursor between two looks at the file.
//!
//! What is buffered stays valid: below the content that a head has shown nothing changes any more (`write/followed.rs`), and nothing
//! behind it is buffered.

use super::super::packet::{PacketHead, TracePlans};
use super::super::run::{MARGIN, State};
use super::{Cursor, Window};
use std::fs::File;
use std::sync::Arc;

/// How much to read at a time. There may be hundreds of streams.
const WINDOW: usize = 64 << 10;

/// A place in a file.
#[derive(Debug)]
pub(crate) struct Bookmark {
    window: Window,
    packet_at: u64,
    packet: PacketHead,
    packet_head: Vec<u8>,
    /// Bits from the packet's beginning to the next event.
    place: u64,
    /// Before that event.
    clock: u64,
    serial: u64,
}

impl Bookmark {
    /// Before the first packet.
    pub(crate) fn new(file: Arc<File>) -> Bookmark {
        let window = Window { file, file_bytes: 0, buffer: Vec::new(), start: 0, length: 0, size: WINDOW };
        Bookmark {
            window,
            packet_at: 0,
            packet: PacketHead::default(),
            packet_head: Vec::new(),
            place: 0,
            clock: 0,
            serial: 0,
        }
    }

    /// Goes to the beginning of a packet, whose header and context are `head`.
    pub(crate) fn begin(&mut self, at: u64, packet: PacketHead, head: &[u8]) {
        self.packet_at = at;
        self.packet_head.clear();
        self.packet_head.extend_from_slice(head);
        self.packet_head.extend_from_slice(&[0; MARGIN]);
        self.place = packet.events_at;
        self.clock = packet.begin.unwrap_or(self.clock);
        self.packet = packet;
        self.serial += 1;
    }

    /// The packet has more content than before.
    pub(crate) fn grow(&mut self, packet: PacketHead) {
        self.packet = packet;
    }

    /// Whether all of the packet's content has been read.
    pub(crate) fn is_read(&self) -> bool {
        self.place >= self.packet.content_bits
    }

    /// Goes to the end of the packet's content, which ends with its packet.
    pub(crate) fn pass_packet(&mut self) {
        self.place = self.packet.content_bits;
    }

    /// Number of packets that were begun.
    pub(crate) fn packets(&self) -> u64 {
        self.serial
    }
}

impl<'t> Cursor<'t> {
    /// Continues at a place. There is no next packet: that is found by following the file.
    pub(crate) fn resume(plans: &'t TracePlans, mark: Bookmark) -> Cursor<'t> {
        let Bookmark { mut window, packet_at, packet, packet_head, place, clock, serial } = mark;
        let end = packet_at.saturating_add(packet.content_bits.div_ceil(8));
        window.file_bytes = end;
        let mut cursor = Cursor {
            plans,
            window,
            state: State::new(plans.slots),
            next_packet: u64::MAX,
            until: end,
            wanted: 0,
            packet_at,
            packet,
            packet_head,
            serial,
            origin: packet_at,
            at: 0,
            event_at: 0,
            clock_before: 0,
        };
        cursor.jump(place, clock);
        cursor
    }

    /// Notes the place; `unread`: before the event whose header was read last.
    pub(crate) fn suspend(mut self, unread: bool) -> Bookmark {
        if unread {
            (self.at, self.state.clock) = (self.event_at, self.clock_before);
        }
        let place = self.place();
        let Cursor { window, packet_at, packet, packet_head, serial, state, .. } = self;
        Bookmark { window, packet_at, packet, packet_head, place, clock: state.clock, serial }
    }
}

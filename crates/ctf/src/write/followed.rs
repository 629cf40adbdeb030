// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream that is valid at every instant: whoever kills its writer, or reads while it writes, finds whole packets.
//!
//! A fatal signal ends a `write` between two pages of the file (measured on ext4 and tmpfs), never within one. So a file that readers may
//! look at changes in steps each of which is one page, or is behind what the heads describe:
//!
//! 1. *It grows by whole pages*, each with the head of an empty packet: wherever that write is cut, packets are whole.
//! 2. The head of the last packet is written over: now it spans the new pages. (A head lies within one page: packets begin with pages.)
//! 3. *Events are written behind the head's content*, into space that belongs to the packet and is not read.
//! 4. The head is written over: now it counts them.
//!
//! When a packet is closed, the pages that it does not need become the next one: its head is written into them before step 4, and the head
//! then counts the events and gives these pages up. The file is cut at its end only, there where a packet ends.
//!
//! # What a reader may rely on
//!
//! - A file only grows until its writer has ended in order; then whole empty pages at its end may be cut off.
//! - Below a head's `content_size` nothing changes any more. Of the packets with events only the head of the last one changes:
//!   `content_size`, `timestamp_end` and `events_discarded` grow, and `packet_size` grows, or, once, shrinks: the packet is then complete.
//! - Packets without events behind it are nothing to go by: they become parts of it, or of the next one. So a reader that has come to the
//!   end continues at the last packet with events, behind the content that it has read: first with the new content of that packet, then
//!   with whatever follows it. Before that packet an empty one is as it is (one announces losses).
//! - A head is written by one call, and may be read while it is: a reader that finds the same head twice has it as it was written.
//! - Sequence numbers are without gaps at every instant.
//!
//! Nothing of this is promised when the machine stops or loses power: pages reach the disk in any order. Nothing is synchronised before
//! the end of a recording, and then everything is, before the trace gets its name.

use super::head::{HEAD_BYTES_MAX, HeadFormat, PacketHead};
use rtscope_event::MonotonicNs;
use rtscope_event::exact::index;
use std::cell::RefCell;
use std::io;
use std::ops::Range;

/// A part of each page of every system: what a fatal signal never cuts.
pub(super) const PAGE_BYTES: u64 = 4096;
/// A file grows by a quarter of its size, and by this much at most.
const GROWTH_BYTES: u64 = 256 << 10;
/// Pages that are made with one call, so that the file system can take large pieces of memory for them.
const PAGES_AT_ONCE: u64 = GROWTH_BYTES / PAGE_BYTES;

thread_local! {
    /// What files grow by, of all streams that a thread writes: pages of zeros, with a head at the beginning of each.
    static EMPTY_PAGES: RefCell<EmptyPages> = const { RefCell::new(EmptyPages(Vec::new())) };
}

/// Pages in one piece, aligned as pages of memory are. Collected by the call from a head and zeros for each page, they took a sixth more
/// time (ADR 0018).
struct EmptyPages(Vec<u8>);

impl EmptyPages {
    /// So many.
    fn some(&mut self, count: usize) -> &mut [u8] {
        let page = index(PAGE_BYTES);
        let bytes = count * page;
        if self.0.len() < bytes + page {
            self.0 = vec![0; bytes + page];
        }
        let unaligned = self.0.as_ptr().align_offset(page);
        &mut self.0[unaligned..][..bytes]
    }
}

/// Whole pages for this many bytes.
pub(super) fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// A file that grows by whole pages.
pub(super) trait GrowingFile {
    /// Writes over what is there.
    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// The same with two pieces, with one call where that can be.
    fn rewrite_both(&mut self, at: u64, pieces: [&[u8]; 2]) -> io::Result<()> {
        self.rewrite(at, pieces[0])?;
        self.rewrite(at + pieces[0].len() as u64, pieces[1])
    }
    /// Appends at the end, with one call. Returns how much was written.
    fn extend(&mut self, pages: &[u8]) -> io::Result<usize>;
    /// Cuts off what is behind `at`.
    fn cut(&mut self, at: u64) -> io::Result<()>;
    /// How much may be allocated before it is needed.
    fn most_ahead(&self) -> u64 {
        u64::MAX
    }
}

/// The last packet of such a file.
#[derive(Debug)]
pub(super) struct LastPacket {
    format: HeadFormat,
    /// Where it begins.
    at: u64,
    /// What its head says in the file; its size is 0 while the file ends at `at`.
    shown: PacketHead,
    /// No two packets begin at the same time: the stream is in several files (see `PacketWriter::open_next`).
    is_ring: bool,
}

impl LastPacket {
    /// In an empty file. Its first packet has the number `sequence`.
    pub(super) fn new(format: HeadFormat, begin: MonotonicNs, sequence: u64, is_ring: bool) -> LastPacket {
        let content_bytes = format.bytes() as u64;
        let (packet_bytes, discarded) = (0, 0);
        let shown = PacketHead { begin, end: begin, content_bytes, packet_bytes, sequence, discarded };
        LastPacket { format, at: 0, shown, is_ring }
    }

    /// Writes events whose first byte is to be at `from` of the packet. `head` says what the packet then is; its size is found here.
    pub(super) fn write(
        &mut self,
        file: &mut impl GrowingFile,
        head: PacketHead,
        from: u64,
        events: [&[u8]; 2],
    ) -> io::Result<()> {
        self.put(file, &head, from, events)?;
        self.show(file, PacketHead { packet_bytes: self.shown.packet_bytes, ..head })
    }

    /// The same for the last events of the packet, which then ends. Returns its size.
    pub(super) fn close(
        &mut self,
        file: &mut impl GrowingFile,
        head: PacketHead,
        from: u64,
        events: [&[u8]; 2],
    ) -> io::Result<u64> {
        self.put(file, &head, from, events)?;
        let used = whole_pages(head.content_bytes);
        let begin = self.begin_after(head.end, 1);
        let next = PacketHead {
            begin,
            end: begin,
            content_bytes: self.format.bytes() as u64,
            packet_bytes: self.shown.packet_bytes - used,
            sequence: head.sequence + 1,
            discarded: head.discarded,
        };
        if next.packet_bytes > 0 {
            file.rewrite(self.at + used, &self.format.encode(&next))?;
        }
        self.show(file, PacketHead { packet_bytes: used, ..head })?;
        self.at += used;
        self.shown = next;
        Ok(used)
    }

    /// Events, which the head does not count yet.
    fn put(
        &mut self,
        file: &mut impl GrowingFile,
        head: &PacketHead,
        from: u64,
        events: [&[u8]; 2],
    ) -> io::Result<()> {
        self.grow(file, head)?;
        file.rewrite_both(self.at + from, events)
    }

    /// Cuts off the pages that no packet has needed.
    pub(super) fn finish(self, file: &mut impl GrowingFile) -> io::Result<()> {
        if self.shown.packet_bytes > 0 { file.cut(self.at) } else { Ok(()) }
    }

    /// When the packet begins that is `place` packets behind one that ends at `end`, and empty.
    fn begin_after(&self, end: MonotonicNs, place: u64) -> MonotonicNs {
        match self.is_ring {
            true => end.plus(place),
            false => end,
        }
    }

    fn show(&mut self, file: &mut impl GrowingFile, head: PacketHead) -> io::Result<()> {
        file.rewrite(self.at, &self.format.encode(&head))?;
        self.shown = head;
        Ok(())
    }

    /// Makes space for the content of a packet.
    fn grow(&mut self, file: &mut impl GrowingFile, head: &PacketHead) -> io::Result<()> {
        let missing = whole_pages(head.content_bytes).saturating_sub(self.shown.packet_bytes);
        if missing == 0 {
            return Ok(());
        }
        let is_new = self.shown.packet_bytes == 0;
        if is_new {
            // Nothing of it is in the file.
            self.shown.begin = head.begin;
            (self.shown.end, self.shown.discarded) = (head.begin, head.discarded);
        }
        let end = self.at + self.shown.packet_bytes;
        let ahead = (end / 4).min(GROWTH_BYTES).min(file.most_ahead());
        let more = missing.max(ahead / PAGE_BYTES * PAGE_BYTES);
        let first = u64::from(!is_new);
        let mut done = 0;
        while done < more / PAGE_BYTES {
            let at = end + done * PAGE_BYTES;
            let pages = (done + first)..(done + PAGES_AT_ONCE).min(more / PAGE_BYTES) + first;
            let written = EMPTY_PAGES.with_borrow_mut(|empty| file.extend(self.fill(empty, pages)))? as u64;
            let whole = written / PAGE_BYTES;
            if written % PAGE_BYTES > 0 {
                // A limit that is not one of pages: the rest would be a packet cut short.
                file.cut(at + whole * PAGE_BYTES)?;
            }
            if whole == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            done += whole;
        }
        self.show(file, PacketHead { packet_bytes: self.shown.packet_bytes + more, ..self.shown })
    }

    /// The pages of the empty packets that are so many behind the shown one.
    fn fill<'a>(&self, empty: &'a mut EmptyPages, places: Range<u64>) -> &'a [u8] {
        let pages = empty.some(index(places.end - places.start));
        for (page, place) in pages.chunks_mut(index(PAGE_BYTES)).zip(places) {
            let begin = self.begin_after(self.shown.end, place);
            let head = self.format.encode(&PacketHead {
                begin,
                end: begin,
                content_bytes: self.format.bytes() as u64,
                packet_bytes: PAGE_BYTES,
                sequence: self.shown.sequence + place,
                ..self.shown
            });
            // The previous one may have been longer.
            page[..HEAD_BYTES_MAX].fill(0);
            page[..head.len()].copy_from_slice(&head);
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::classes::Header;
    use crate::write::head::EventSource;
    use crate::write::packet::{PacketOutput, PacketWriter};
    use rtscope_testkit::random::Random;
    use std::io::Write;

    /// A file that is looked at at each instant at which its writer can be killed.
    #[derive(Default)]
    struct Instants {
        bytes: Vec<u8>,
        /// Bytes of events at the last instant.
        events: u64,
        instants: u64,
        is_ring: bool,
    }

    impl Instants {
        fn look(&mut self) {
            let head_bytes = EventSource::Threads(3).head_bytes();
            let mut begins = None;
            let (mut at, mut events, mut sequence, mut time, mut discarded) = (0, 0, 0, 0, 0);
            while at < self.bytes.len() {
                let packet = &self.bytes[at..];
                assert!(packet.len() >= head_bytes, "a head is cut at {at}");
                assert_eq!(packet[..4], super::super::head::MAGIC.to_le_bytes(), "no packet at {at}");
                let word = |index: usize| {
                    let at = super::super::head::HEADER_BYTES + index * 8;
                    u64::from_le_bytes(packet[at..at + 8].try_into().unwrap())
                };
                let (content, size) = (word(2) / 8, word(3) / 8);
                assert!(head_bytes as u64 <= content && content <= size, "{content} of {size} at {at}");
                assert!(size <= packet.len() as u64, "the packet at {at} is cut");
                assert_eq!(word(4), sequence, "at {at}");
                assert!(time <= word(0) && word(0) <= word(1), "time goes back at {at}");
                assert!(discarded <= word(5), "losses go back at {at}");
                assert!(!self.is_ring || begins < Some(word(0)), "two packets begin at {}", word(0));
                begins = Some(word(0));
                (time, discarded) = (word(1), word(5));
                events += content - head_bytes as u64;
                sequence += 1;
                at += index(size);
            }
            assert!(self.events <= events, "{} bytes of events were there, now {events}", self.events);
            self.events = events;
            self.instants += 1;
        }

        /// Puts bytes at a place, page by page.
        fn put(&mut self, at: usize, bytes: &[u8]) {
            let page = index(PAGE_BYTES);
            let mut done = 0;
            while done < bytes.len() {
                let step = (page - (at + done) % page).min(bytes.len() - done);
                let end = at + done + step;
                self.bytes.resize(self.bytes.len().max(end), 0);
                self.bytes[at + done..end].copy_from_slice(&bytes[done..done + step]);
                done += step;
                self.look();
            }
        }
    }

    impl Write for Instants {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            panic!("nothing is appended but by whole pages");
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl PacketOutput for Instants {}

    impl GrowingFile for Instants {
        fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            assert!(index(at) + bytes.len() <= self.bytes.len(), "it does not grow");
            self.put(index(at), bytes);
            Ok(())
        }

        fn extend(&mut self, pages: &[u8]) -> io::Result<usize> {
            self.put(self.bytes.len(), pages);
            Ok(pages.len())
        }

        fn cut(&mut self, at: u64) -> io::Result<()> {
            self.bytes.truncate(index(at));
            self.look();
            Ok(())
        }
    }

    #[test]
    fn at_every_instant_a_followed_stream_is_whole_packets() {
        for seed in 0..80 {
            let mut random = Random(seed);
            let place = EventSource::Threads(3);
            let file = Instants { is_ring: seed % 4 < 2, ..Instants::default() };
            let new = if file.is_ring { PacketWriter::in_ring } else { PacketWriter::followed };
            let mut writer = new(file, Header::Compact, [7; 16], place, MonotonicNs(5));
            let (mut time, mut written) = (5, 0);
            for _ in 0..4000 {
                match random.below(60) {
                    0 => writer.flush().unwrap(),
                    1 if seed % 2 == 0 => writer.lost(1 + random.below(3)).unwrap(),
                    _ => {}
                }
                // Many at one time: some packets end when they begin.
                time += random.below(1000) * u64::from(random.below(400) == 0);
                let most = if random.below(20) == 0 { 9000 } else { 60 };
                let size = index(random.below(most));
                writer.begin_event(3, MonotonicNs(time)).unwrap();
                writer.payload().extend_from_slice(&[0xe5; 9000][..size]);
                written += 4 + size as u64;
            }
            let (file, done) = writer.finish(MonotonicNs(time)).unwrap();
            assert_eq!(file.events, written, "seed {seed}");
            assert_eq!(done.bytes, file.bytes.len() as u64);
            assert!(file.instants > 300, "{}", file.instants);
            let events = file.events + done.packets * place.head_bytes() as u64;
            assert!(
                done.bytes - events < done.packets * PAGE_BYTES,
                "more space is unused than a page a packet"
            );
        }
    }

    /// A file that may have 50 000 bytes.
    struct Limited(Vec<u8>);

    impl GrowingFile for Limited {
        fn rewrite(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn extend(&mut self, pages: &[u8]) -> io::Result<usize> {
            let before = self.0.len();
            self.0.extend_from_slice(pages);
            self.0.truncate(50_000);
            Ok(self.0.len() - before)
        }

        fn cut(&mut self, at: u64) -> io::Result<()> {
            self.0.truncate(index(at));
            Ok(())
        }
    }

    #[test]
    fn a_limit_in_the_middle_of_a_page_leaves_whole_pages() {
        let format = HeadFormat { uuid: [7; 16], header: Header::Compact, place: EventSource::Threads(3) };
        let mut last = LastPacket::new(format, MonotonicNs(0), 0, false);
        let mut file = Limited(Vec::new());
        let head = PacketHead { content_bytes: 100_000, ..last.shown };
        let error = last.write(&mut file, head, 80, [&[], &[]]).unwrap_err();
        assert_eq!((error.kind(), file.0.len()), (io::ErrorKind::StorageFull, 49_152));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a file of ftrace's sub-buffers, which may still be growing, or the same in memory, event by event.

use rtscope_event::MonotonicNs;
use rtscope_event::exact::{index, low_half};
use rtscope_ftrace::page::{Page, PageLayout};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How much is read at once, at least one sub-buffer.
const BLOCK_BYTES: usize = 256 * 1024;

/// The source of sub-buffers.
#[derive(Debug)]
pub(crate) enum PageSource<'a> {
    /// A file, and up to where it may be read: whole sub-buffers, as long as others will follow.
    File(Arc<File>, u64),
    /// Whole sub-buffers in memory.
    Memory(&'a [u8]),
}

/// The next item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageItem {
    /// An event; [`PagesReader::payload`] has it.
    Event(MonotonicNs),
    /// Events are missing before the next one; `None`: an unknown number.
    Lost(Option<u64>),
    /// Bytes that cannot be decoded.
    Broken,
    /// Everything that is there has been read.
    End,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Event { time_ns: u64, at: u32, bytes: u32 },
    Lost(Option<u64>),
    Broken,
}

/// Reads one CPU's sub-buffers.
#[derive(Debug)]
pub(crate) struct PagesReader<'a> {
    from: PageSource<'a>,
    layout: PageLayout,
    offset: u64,
    block: Vec<u8>,
    /// Where in the block the next sub-buffer begins, and how much of the block is filled.
    next_page: usize,
    filled: usize,
    /// The items of the current sub-buffer; payloads are ranges of the block.
    items: Vec<Item>,
    cursor: usize,
    payload: Range<usize>,
}

impl<'a> PagesReader<'a> {
    pub(crate) fn new(from: PageSource<'a>, layout: PageLayout) -> PagesReader<'a> {
        let page = layout.page_bytes();
        let block = (BLOCK_BYTES / page).max(1) * page;
        PagesReader {
            from,
            layout,
            offset: 0,
            block: vec![0; block],
            next_page: 0,
            filled: 0,
            items: Vec::new(),
            cursor: 0,
            payload: 0..0,
        }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.offset
    }

    /// The file has this many bytes by now.
    pub(crate) fn grow(&mut self, to: u64) {
        if let PageSource::File(_, bytes) = &mut self.from {
            *bytes = to.max(*bytes);
        }
    }

    /// The record of the event that [`PagesReader::next`] returned last.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.block[self.payload.clone()]
    }

    /// Advances to the next item.
    pub(crate) fn next(&mut self) -> io::Result<PageItem> {
        loop {
            if let Some(item) = self.items.get(self.cursor) {
                self.cursor += 1;
                return Ok(match *item {
                    Item::Lost(count) => PageItem::Lost(count),
                    Item::Broken => PageItem::Broken,
                    Item::Event { time_ns, at, bytes } => {
                        self.payload = at as usize..at as usize + bytes as usize;
                        PageItem::Event(MonotonicNs(time_ns))
                    }
                });
            }
            if self.next_page >= self.filled && !self.fill()? {
                return Ok(PageItem::End);
            }
            self.open_page();
        }
    }

    /// Reads the next block; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.next_page = 0;
        self.filled = match &self.from {
            PageSource::File(file, bytes) => {
                let length = index(bytes - self.offset.min(*bytes)).min(self.block.len());
                file.read_exact_at(&mut self.block[..length], self.offset)?;
                length
            }
            PageSource::Memory(bytes) => {
                let rest = bytes.get(index(self.offset)..).unwrap_or_default();
                let length = rest.len().min(self.block.len());
                self.block[..length].copy_from_slice(&rest[..length]);
                length
            }
        };
        self.offset += self.filled as u64;
        Ok(self.filled > 0)
    }

    /// Decodes the next sub-buffer. The last one of a file may end behind its part in use.
    fn open_page(&mut self) {
        let begin = self.next_page;
        let end = (begin + self.layout.page_bytes()).min(self.filled);
        self.next_page = end;
        self.items.clear();
        self.cursor = 0;
        let bytes = &self.block[begin..end];
        let Ok(page) = Page::new(&self.layout, bytes) else {
            self.items.push(Item::Broken);
            return;
        };
        if let Some(missed) = page.missed() {
            self.items.push(Item::Lost(missed.count));
        }
        let mut events = page.events();
        for event in events.by_ref() {
            // The payload is a part of `bytes`: its place is the distance of the two.
            let at = begin + (event.payload.as_ptr() as usize - bytes.as_ptr() as usize);
            // Exact: a block has less than 4 GiB.
            let (at, bytes) = (low_half(at as u64), low_half(event.payload.len() as u64));
            self.items.push(Item::Event { time_ns: event.time_ns, at, bytes });
        }
        if events.broken_at().is_some() {
            self.items.push(Item::Broken);
        }
    }
}

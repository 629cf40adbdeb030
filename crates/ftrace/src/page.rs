// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes sub-buffers of the kernel's ring buffer, as `per_cpu/cpuN/trace_pipe_raw` gives them.
//!
//! A sub-buffer is a header (time of its beginning, bytes in use, whether events were lost before it) and events one after the
//! other. Each event's first word holds a kind of 5 bits and a time of 27 bits since the previous event; larger times are
//! entries of their own. The layout is described in `events/header_page` and `events/header_event`; its meaning is that of
//! `include/linux/ring_buffer.h` and `kernel/trace/ring_buffer.c`. Compared with the kernel's own text on 6.1 and 6.18.
//!
//! The bytes are those of the running machine: byte order and width are native. They can also come from a file that was
//! truncated or changed, so every length is checked, and decoding ends where an entry makes no sense ([`Events::broken_at`]).

/// The flags in the word of bytes in use (`RB_MISSED_EVENTS`, `RB_MISSED_STORED`): events were lost before this sub-buffer,
/// and their number follows the last event.
const MISSED_EVENTS: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
/// A sub-buffer is at most 64 pages of at most 64 KiB: the rest of the word are flags, also ones not known yet.
const COMMIT_MASK: u64 = (1 << 30) - 1;

/// Kinds of entries above the largest one that is a length in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Bits of time in an event's first word.
const TIME_BITS: u32 = 27;
/// An absolute time has 59 bits; the others are those of the previous time.
const ABSOLUTE_BITS: u32 = 59;

/// Offsets and sizes in a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Offset and bytes of the word of bytes in use (4 or 8 bytes).
    commit: (usize, usize),
    /// Offset of the first event.
    data: usize,
    /// Bytes of a sub-buffer, header included.
    page_bytes: usize,
}

/// A sub-buffer, or a description of them, that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// `events/header_page` is not in the known form.
    #[error("events/header_page of tracefs describes an unknown layout: no usable line for '{0}'")]
    Layout(&'static str),
    /// Less than a header.
    #[error("a sub-buffer of {0} bytes has an incomplete header")]
    Short(usize),
    /// More bytes in use than there are.
    #[error("a sub-buffer claims {commit} bytes in use, but has {capacity}")]
    Commit {
        /// The claim.
        commit: u64,
        /// The bytes there are.
        capacity: usize,
    },
}

impl PageLayout {
    /// Reads `events/header_page` (of the instance: the size of sub-buffers can differ between instances).
    ///
    /// # Errors
    /// [`PageError::Layout`].
    pub fn parse(header_page: &str) -> Result<PageLayout, PageError> {
        let place = |name: &'static str| {
            let line = header_page.lines().find(|line| {
                let declaration = line.split(';').next().unwrap_or("");
                declaration.split_whitespace().last() == Some(name)
            });
            let number = |key: &str| {
                let part = line?.split(';').find_map(|part| part.trim().strip_prefix(key))?;
                part.parse::<usize>().ok().filter(|number| *number <= 1 << 22)
            };
            number("offset:").zip(number("size:")).ok_or(PageError::Layout(name))
        };
        let layout = PageLayout {
            commit: place("commit")?,
            data: place("data")?.0,
            page_bytes: place("data").map(|(offset, size)| offset + size)?,
        };
        let header_fits = layout.commit.0 + layout.commit.1 <= layout.data && layout.commit.0 >= 8;
        match (place("timestamp")?, layout.commit.1) {
            ((0, 8), 4 | 8) if header_fits && layout.data < layout.page_bytes => Ok(layout),
            _ => Err(PageError::Layout("timestamp")),
        }
    }

    /// The layout of 64-bit kernels, with sub-buffers of this many bytes.
    #[must_use]
    pub fn of_64_bit(page_bytes: usize) -> PageLayout {
        PageLayout { commit: (8, 8), data: 16, page_bytes }
    }

    /// Bytes of a sub-buffer, header included.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }
}

/// Events that were lost before a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedEvents {
    /// How many; `None`: there was no space for the number in the sub-buffer.
    pub count: Option<u64>,
}

/// One sub-buffer.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    start_ns: u64,
    missed: Option<MissedEvents>,
    data: &'a [u8],
}

impl<'a> Page<'a> {
    /// Reads a sub-buffer's header. `bytes` may end behind the part in use.
    ///
    /// # Errors
    /// [`PageError::Short`] and [`PageError::Commit`].
    pub fn new(layout: &PageLayout, bytes: &'a [u8]) -> Result<Page<'a>, PageError> {
        let header = bytes.get(..layout.data).ok_or(PageError::Short(bytes.len()))?;
        let data = &bytes[layout.data..];
        let commit = match layout.commit {
            (at, 4) => u64::from(u32_at(header, at)),
            (at, _) => u64_at(header, at),
        };
        let used = usize::try_from(commit & COMMIT_MASK).unwrap_or(usize::MAX);
        let Some(events) = data.get(..used) else {
            return Err(PageError::Commit { commit, capacity: data.len() });
        };
        let stored = (commit & MISSED_STORED != 0)
            .then(|| match layout.commit.1 {
                4 => data.get(used..used + 4).map(|word| u64::from(u32_at(word, 0))),
                _ => data.get(used..used + 8).map(|word| u64_at(word, 0)),
            })
            .flatten();
        // 0 and all ones are not counts.
        let count = stored.filter(|count| *count != 0 && *count != u64::MAX);
        let missed = (commit & MISSED_EVENTS != 0).then_some(MissedEvents { count });
        Ok(Page { start_ns: u64_at(header, 0), missed, data: events })
    }

    /// The time at which the sub-buffer begins, by the instance's clock. An empty one may say 0.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Whether events were lost between the previous sub-buffer and this one.
    #[must_use]
    pub fn missed(&self) -> Option<MissedEvents> {
        self.missed
    }

    /// Whether it has no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Its events.
    #[must_use]
    pub fn events(&self) -> Events<'a> {
        Events { rest: self.data, time_ns: self.start_ns, bytes: self.data.len(), broken_at: None }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent<'a> {
    /// When it happened, by the instance's clock.
    pub time_ns: u64,
    /// Its fields, from `common_type` on. Its length is a multiple of 4, and can be more than the fields need.
    pub payload: &'a [u8],
}

impl RawEvent<'_> {
    /// Which tracepoint: [`EventFormat::id`](crate::format::EventFormat::id).
    #[must_use]
    pub fn id(&self) -> Option<u16> {
        self.payload.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
    }
}

/// `common_flags` of an event in a hard interrupt, in a softirq, in an NMI (`enum trace_flag_type`).
const IN_INTERRUPT: u8 = 0x08 | 0x10 | 0x40;

impl RawEvent<'_> {
    /// The thread that ran, or was interrupted (`common_pid`).
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let bytes = self.payload.get(4..8)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    }

    /// It happened in a hard interrupt, a softirq or an NMI (`common_flags`): not by the named thread, but while it ran.
    #[must_use]
    pub fn in_interrupt(&self) -> bool {
        self.payload.get(2).is_some_and(|flags| flags & IN_INTERRUPT != 0)
    }
}

/// The events of one sub-buffer, in order of time.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    rest: &'a [u8],
    time_ns: u64,
    bytes: usize,
    broken_at: Option<usize>,
}

impl Events<'_> {
    /// Where decoding ended because an entry made no sense: bytes from the first event. Everything from there on is lost.
    #[must_use]
    pub fn broken_at(&self) -> Option<usize> {
        self.broken_at
    }

    #[cold]
    fn broken(&mut self) {
        self.broken_at = Some(self.bytes - self.rest.len());
        self.rest = &[];
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = RawEvent<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawEvent<'a>> {
        loop {
            let Some((word, body)) = self.rest.split_first_chunk::<4>() else {
                if !self.rest.is_empty() {
                    self.broken();
                }
                return None;
            };
            let (kind, delta) = split_word(u32::from_ne_bytes(*word));
            let length = match kind {
                1..PADDING => kind as usize * 4,
                _ => match self.special(kind, delta, body) {
                    LongEntry::Event(payload) => {
                        return Some(RawEvent { time_ns: self.time_ns, payload });
                    }
                    LongEntry::GoOn => continue,
                    LongEntry::End => return None,
                },
            };
            let Some((payload, rest)) = body.split_at_checked(length) else {
                self.broken();
                return None;
            };
            self.rest = rest;
            self.time_ns = self.time_ns.wrapping_add(delta);
            return Some(RawEvent { time_ns: self.time_ns, payload });
        }
    }
}

/// The result of an entry that is not a short event.
enum LongEntry<'a> {
    Event(&'a [u8]),
    GoOn,
    End,
}

impl<'a> Events<'a> {
    fn special(&mut self, kind: u32, delta: u64, body: &'a [u8]) -> LongEntry<'a> {
        // Padding without a time: nothing follows.
        if kind == PADDING && delta == 0 {
            self.rest = &[];
            return LongEntry::End;
        }
        let Some((word, behind)) = body.split_first_chunk::<4>() else {
            self.broken();
            return LongEntry::End;
        };
        let word = u32::from_ne_bytes(*word);
        let long = delta | u64::from(word) << TIME_BITS;
        match kind {
            TIME_EXTEND => self.time_ns = self.time_ns.wrapping_add(long),
            TIME_STAMP => self.time_ns = absolute(long, self.time_ns),
            // A long event, or a withdrawn one: the word is its length, including itself.
            _ => return self.counted(kind, delta, word, body),
        }
        self.rest = behind;
        LongEntry::GoOn
    }

    fn counted(&mut self, kind: u32, delta: u64, length: u32, body: &'a [u8]) -> LongEntry<'a> {
        let whole = usize::try_from(length).ok().filter(|length| *length >= 4);
        // Events begin at multiples of 4, whatever their length.
        let whole = whole.and_then(|length| length.checked_next_multiple_of(4));
        let Some((counted, rest)) = whole.and_then(|length| body.split_at_checked(length)) else {
            self.broken();
            return LongEntry::End;
        };
        self.rest = rest;
        if kind == PADDING {
            // The kernel writes 1 where no time passed (`rb_event_discard`), since 0 would mean the end.
            if delta != 1 {
                self.time_ns = self.time_ns.wrapping_add(delta);
            }
            return LongEntry::GoOn;
        }
        self.time_ns = self.time_ns.wrapping_add(delta);
        LongEntry::Event(&counted[4..])
    }
}

/// Kind and time of an entry's first word: bit fields, so their places depend on the byte order.
#[inline]
fn split_word(word: u32) -> (u32, u64) {
    if cfg!(target_endian = "little") {
        (word & 31, u64::from(word >> 5))
    } else {
        (word >> 27, u64::from(word & ((1 << 27) - 1)))
    }
}

/// An absolute time with the upper bits of the previous time (`rb_fix_abs_ts`).
fn absolute(time_ns: u64, before_ns: u64) -> u64 {
    let upper = before_ns >> ABSOLUTE_BITS << ABSOLUTE_BITS;
    if upper == 0 {
        return time_ns & ((1 << ABSOLUTE_BITS) - 1);
    }
    let time_ns = time_ns & ((1 << ABSOLUTE_BITS) - 1) | upper;
    if time_ns < before_ns { time_ns.wrapping_add(1 << ABSOLUTE_BITS) } else { time_ns }
}

/// The caller has checked that the word is there.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a bank file, block by block.
//!
//! A kill or a full disk can have truncated the file anywhere, so its last chunk may be shorter than its header says. Bytes
//! that are not a record end their chunk: the header tells where the next one begins. A file that is still being written is read up to
//! where its writer says that whole chunks are.

use crate::spool::{CHUNK_HEADER_BYTES, CHUNK_MAGIC};
use rtscope_event::MonotonicNs;
use rtscope_event::exact::index;
use rtscope_ring::{Frame, Slot, first_record};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How much is read at once.
const BLOCK_WORDS: usize = 32 * 1024;
/// Longest record: its length is one byte that counts words.
const RECORD_WORDS: usize = 255;

/// An entry of a bank file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry<'a> {
    /// A record.
    Record(Frame<'a>),
    /// A record whose writer had not finished.
    Unfinished,
    /// Bytes that are not a record, up to the end of their chunk.
    Garbage,
    /// The number of records lost between the entries before and after this one.
    Lost(u64),
}

/// Reads one file.
#[derive(Debug)]
pub(crate) struct BankReader {
    file: Arc<File>,
    /// Where the next block begins.
    offset: u64,
    /// Up to where it may be read.
    bytes: u64,
    /// Where the next chunk begins is not known.
    is_broken: bool,
    /// Words of the current chunk that have not been read.
    left: u64,
    chunk_time: MonotonicNs,
    lost: u64,
    newly_lost: u64,
    /// Read words; the first `carried` are the beginning of a record that the next block completes.
    words: Vec<u64>,
    carried: usize,
    raw: Vec<u8>,
}

impl BankReader {
    /// Nothing is there before [`BankReader::grow`].
    pub(crate) fn new(file: Arc<File>) -> BankReader {
        BankReader {
            file,
            offset: 0,
            bytes: 0,
            is_broken: false,
            left: 0,
            chunk_time: MonotonicNs(0),
            lost: 0,
            newly_lost: 0,
            words: vec![0; BLOCK_WORDS + RECORD_WORDS],
            carried: 0,
            raw: Vec::new(),
        }
    }

    /// The file has this many bytes by now: whole chunks, as long as others will follow.
    pub(crate) fn grow(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Whether everything that is there has been read.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.left == 0
            && (self.is_broken || self.offset.saturating_add(CHUNK_HEADER_BYTES as u64) > self.bytes)
    }

    /// When the newest chunk that was read was taken from the ring.
    pub(crate) fn time(&self) -> MonotonicNs {
        self.chunk_time
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.offset
    }

    /// Passes the entries of the next block to `visit`, each with the time at which its chunk was taken from the ring. False:
    /// everything that is there has been read.
    pub(crate) fn block(&mut self, mut visit: impl FnMut(MonotonicNs, Entry<'_>)) -> io::Result<bool> {
        if self.left == 0 && !self.chunk(&mut visit)? {
            return Ok(false);
        }
        let wanted = self.left.min(BLOCK_WORDS as u64);
        let there = (self.bytes - self.offset.min(self.bytes)) / 8;
        let words = index(wanted.min(there));
        self.read(words)?;
        self.left = if (words as u64) < wanted { 0 } else { self.left - words as u64 };
        let end = self.carried + words;
        let mut at = 0;
        while at < end {
            let rest = &self.words[at..end];
            match first_record(rest) {
                Slot::Record(frame) => {
                    visit(self.chunk_time, Entry::Record(frame));
                    at += frame.words().len();
                }
                Slot::Padding(length) => at += length,
                Slot::Unfinished(length) => {
                    visit(self.chunk_time, Entry::Unfinished);
                    at += length;
                }
                Slot::Garbage if self.left > 0 && rest.len() < (rest[0] & 0xff) as usize => break,
                Slot::Garbage => {
                    visit(self.chunk_time, Entry::Garbage);
                    // A truncated chunk ends with the file.
                    self.offset = self.offset.saturating_add(self.left.saturating_mul(8)).min(self.bytes);
                    self.left = 0;
                    at = end;
                }
            }
        }
        self.words.copy_within(at..end, 0);
        self.carried = end - at;
        if self.left == 0 && self.newly_lost > 0 {
            // They did not fit into the full ring, so they came after the records in it.
            visit(self.chunk_time, Entry::Lost(std::mem::take(&mut self.newly_lost)));
        }
        Ok(true)
    }

    /// Reads the header of the next chunk; false at the end of the file.
    fn chunk(&mut self, visit: &mut impl FnMut(MonotonicNs, Entry<'_>)) -> io::Result<bool> {
        if self.is_at_end() {
            return Ok(false);
        }
        let mut header = [0; CHUNK_HEADER_BYTES];
        self.file.read_exact_at(&mut header, self.offset)?;
        let word = |index: usize| u64::from_ne_bytes(std::array::from_fn(|byte| header[index * 8 + byte]));
        let (bytes, lost) = (word(1), word(2));
        if word(0) != CHUNK_MAGIC || bytes % 8 != 0 {
            // From here on the beginnings of chunks are unknown.
            visit(self.chunk_time, Entry::Garbage);
            (self.offset, self.is_broken) = (self.bytes, true);
            return Ok(false);
        }
        self.offset += CHUNK_HEADER_BYTES as u64;
        // A chunk cannot be longer than the rest of its file: it was truncated, or its header is wrong.
        self.left = (bytes / 8).min(self.bytes.saturating_sub(self.offset).div_ceil(8));
        self.chunk_time = MonotonicNs(word(3));
        self.newly_lost = self.newly_lost.saturating_add(lost.saturating_sub(self.lost));
        self.lost = lost.max(self.lost);
        self.carried = 0;
        Ok(true)
    }

    /// Reads this many words behind those that are carried over.
    fn read(&mut self, words: usize) -> io::Result<()> {
        self.raw.resize(words * 8, 0);
        self.file.read_exact_at(&mut self.raw, self.offset)?;
        let places = self.words[self.carried..].iter_mut();
        for (place, bytes) in places.zip(self.raw.chunks_exact(8)) {
            *place = u64::from_ne_bytes(std::array::from_fn(|byte| bytes[byte]));
        }
        self.offset += words as u64 * 8;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_abi as abi;
    use std::io::Write;

    fn record(length: u64, time: u64) -> Vec<u64> {
        let word =
            length | u64::from(abi::RTS_SOFTIRQ_ENTRY) << 8 | u64::from(abi::RTS_COMMITTED) << 16 | 1 << 32;
        let mut words = vec![word, time];
        words.resize(index(length), time);
        words
    }

    fn file(chunks: &[(u64, Vec<u64>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (lost, words) in chunks {
            for word in [CHUNK_MAGIC, words.len() as u64 * 8, *lost, 9_000].iter().chain(words) {
                bytes.extend_from_slice(&word.to_ne_bytes());
            }
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let length = file.metadata().unwrap().len();
        let mut reader = BankReader::new(Arc::new(file));
        reader.grow(length);
        let mut found = Vec::new();
        let mut blocks = 0;
        while reader
            .block(|_, entry| {
                found.push(match entry {
                    Entry::Record(frame) => frame.time_ns.to_string(),
                    Entry::Unfinished => "unfinished".to_owned(),
                    Entry::Garbage => "garbage".to_owned(),
                    Entry::Lost(count) => format!("lost {count}"),
                });
            })
            .unwrap()
        {
            blocks += 1;
            assert!(blocks < 100_000);
        }
        found
    }

    #[test]
    fn records_and_losses_are_in_order() {
        let chunks = [
            (0, [record(3, 1), record(2, 2)].concat()),
            (4, record(3, 3)),
            (4, Vec::new()),
            (5, record(3, 4)),
        ];
        assert_eq!(read(&file(&chunks)), ["1", "2", "3", "lost 4", "4", "lost 1"]);
    }

    #[test]
    fn records_across_blocks_are_whole() {
        let many: Vec<u64> = (0..50_000).flat_map(|time| record(2 + time % 200, time)).collect();
        let expected: Vec<String> = (0..50_000).map(|time| time.to_string()).collect();
        assert_eq!(read(&file(&[(0, many)])), expected);
    }

    #[test]
    fn a_truncated_file_gives_its_whole_records() {
        let whole = file(&[(0, record(3, 1)), (0, [record(4, 2), record(4, 3)].concat())]);
        for cut in 0..=whole.len() {
            let found = read(&whole[..cut]);
            let times: Vec<&String> = found.iter().filter(|text| text.as_str() != "garbage").collect();
            let expected = ["1", "2", "3"];
            assert_eq!(times, expected[..times.len()].iter().collect::<Vec<_>>(), "{cut}");
        }
        assert_eq!(read(&whole).len(), 3);
    }

    #[test]
    fn a_chunk_larger_than_can_be_is_garbage() {
        for bytes in [u64::MAX - 31, u64::MAX - 7, 1 << 32] {
            let mut file = file(&[(0, record(3, 1)), (0, vec![0; 2 * BLOCK_WORDS])]);
            let at = CHUNK_HEADER_BYTES + 3 * 8 + 8;
            file[at..at + 8].copy_from_slice(&bytes.to_ne_bytes());
            assert_eq!(read(&file), ["1", "garbage"], "{bytes}");
        }
    }

    #[test]
    fn garbage_ends_its_chunk_and_no_other() {
        let chunks = [(0, [record(3, 1), vec![0, 0, 0], record(3, 2)].concat()), (0, record(3, 3))];
        assert_eq!(read(&file(&chunks)), ["1", "garbage", "3"]);
        let mut bytes = file(&chunks);
        bytes[0] = 0;
        assert_eq!(read(&bytes), ["garbage"]);
    }

    #[test]
    fn a_chunk_that_claims_more_than_its_file_holds_ends_with_it() {
        let zeros = vec![0; 100_000];
        for claimed in [u64::MAX - 31, u64::MAX - 7, 1 << 62, 800_008] {
            let mut bytes = file(&[(0, [record(3, 1), zeros.clone()].concat())]);
            bytes[8..16].copy_from_slice(&claimed.to_ne_bytes());
            // The bytes behind the first record are not a record, and no next chunk can be found.
            assert_eq!(read(&bytes), ["1", "garbage"], "{claimed:x}");
        }
    }
}

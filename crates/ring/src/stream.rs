// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bank as a stream: a reader follows the writer and takes complete records, in order; the writer never overwrites records
//! that have not been taken, but counts those that do not fit.
//!
//! The reader stops at the first record that is not complete. Its writer is inside an eBPF program that was interrupted, or
//! (on kernels that run them preemptible) preempted; it goes on soon, and the next call takes the record. Nothing is
//! skipped, so nothing can be torn: the result is a clean sequence of whole records.

use crate::bank::record_word;
use crate::{BankImage, Controls, SharedMemory};
use rtscope_abi as abi;
use rtscope_event::MonotonicNs;
use rtscope_event::exact::index;
use std::ops::Range;

/// Follows one CPU's ring.
#[derive(Clone, Debug)]
pub struct StreamReader {
    cpu: usize,
    size: usize,
    tail: u64,
    records: u64,
}

impl StreamReader {
    /// For `cpu`, whose ring holds `size` bytes (a power of two).
    #[must_use]
    pub fn new(cpu: usize, size: usize) -> StreamReader {
        StreamReader { cpu, size, tail: 0, records: 0 }
    }

    /// The CPU.
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Records taken so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Up to where the ring is filled by now.
    #[must_use]
    pub fn head(&self, controls: &Controls) -> u64 {
        controls.head(self.cpu, 0)
    }

    /// Whether everything before this place has been taken.
    #[must_use]
    pub fn has_taken(&self, head: u64) -> bool {
        self.tail >= head
    }

    /// Bytes in the ring that have not been taken.
    #[must_use]
    pub fn waiting(&self, controls: &Controls) -> u64 {
        controls.head(self.cpu, 0).saturating_sub(self.tail)
    }

    /// Finds the complete records that are there, up to about `limit` bytes. They stay where they are, unchanged, until
    /// [`StreamReader::give_back`].
    #[must_use]
    pub fn complete(&self, memory: &SharedMemory, controls: &Controls, limit: u64) -> CompleteRecords {
        let data = self.cpu * BankImage::bytes(self.size) + abi::RTS_SUB_BUFFERS as usize * 8;
        let place = |position: u64| data + index(position & (self.size as u64 - 1));
        let head = controls.head(self.cpu, 0);
        let mut found =
            CompleteRecords { parts: [place(self.tail)..place(self.tail), 0..0], end: self.tail, records: 0 };
        while found.end < head && found.end - self.tail < limit {
            let offset = place(found.end);
            // Acquire: pairs with the commit, so the words behind a committed one are the record's.
            let first = memory.load_acquire(offset);
            let Some((length, true)) = record_word(first, found.end, self.size as u64) else { break };
            let bytes = length * 8;
            // A record is never split, so after one that runs past the end of the ring the next is behind its beginning.
            let part = usize::from(found.parts[0].end != offset);
            if found.parts[part].is_empty() {
                found.parts[part] = offset..offset;
            }
            found.parts[part].end += bytes;
            found.records += 1;
            found.end += bytes as u64;
        }
        found
    }

    /// The time of the next record, if it is complete. Later records can be older by as much as a program can be interrupted.
    #[must_use]
    pub fn next_time(&self, memory: &SharedMemory, controls: &Controls) -> Option<MonotonicNs> {
        let data = self.cpu * BankImage::bytes(self.size) + abi::RTS_SUB_BUFFERS as usize * 8;
        let place = data + index(self.tail & (self.size as u64 - 1));
        let first = memory.load_acquire(place);
        let is_there = self.tail < controls.head(self.cpu, 0);
        let (_, is_complete) = record_word(first, self.tail, self.size as u64).filter(|_| is_there)?;
        let mut time = [0];
        memory.copy(place + 8, &mut time);
        is_complete.then_some(MonotonicNs(time[0]))
    }

    /// Gives the space of these records back to the writer.
    pub fn give_back(&mut self, controls: &Controls, read: &CompleteRecords) {
        self.tail = read.end;
        self.records += read.records;
        // The store is a release: the records have been read before the writer sees the space.
        controls.set_tail(self.cpu, self.tail);
    }

    /// Appends all complete records that are there to `words`, and gives their space back.
    pub fn take(&mut self, memory: &SharedMemory, controls: &Controls, words: &mut Vec<u64>, limit: u64) {
        let found = self.complete(memory, controls, limit);
        for part in found.parts() {
            let begin = words.len();
            words.resize(begin + part.len() / 8, 0);
            memory.copy(part.start, &mut words[begin..]);
        }
        self.give_back(controls, &found);
    }
}

/// Complete records in a ring.
#[derive(Clone, Debug)]
pub struct CompleteRecords {
    parts: [Range<usize>; 2],
    end: u64,
    records: u64,
}

impl CompleteRecords {
    /// Where they are, as bytes of the memory: in one piece, or in two where the ring begins again.
    #[must_use]
    pub fn parts(&self) -> &[Range<usize>] {
        let pieces = self.parts.iter().take_while(|part| !part.is_empty()).count();
        &self.parts[..pieces]
    }

    /// Their bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    const SIZE: usize = 1 << 16;

    /// A writer in user space that does what recorder.bpf.h does.
    struct Writer {
        memory: SharedMemory,
        controls: SharedMemory,
        head: u64,
    }

    impl Writer {
        fn new() -> (Writer, Controls) {
            let memory = SharedMemory::anonymous(2 * BankImage::bytes(SIZE)).unwrap();
            let shared = SharedMemory::anonymous(Controls::bytes(2)).unwrap();
            let controls = Controls::new(shared.share(), 2);
            (Writer { memory, controls: shared, head: 0 }, controls)
        }

        fn word(&self, length: u64, state: u32) -> u64 {
            let lap = (self.head >> SIZE.trailing_zeros()) + 1;
            length | u64::from(abi::RTS_IRQ_ENTRY) << 8 | u64::from(state) << 16 | lap << 32
        }

        /// Writes on CPU 1.
        fn write(&mut self, length: u64, state: u32, value: u64) -> usize {
            let at = BankImage::bytes(SIZE) + abi::RTS_SUB_BUFFERS as usize * 8 + index(self.head) % SIZE;
            (1..index(length)).for_each(|word| self.memory.store_release(at + word * 8, value));
            self.memory.store_release(at, self.word(length, state));
            self.head += length * 8;
            let head = std::mem::offset_of!(abi::rts_cpu_control, head);
            self.controls.store_release(std::mem::size_of::<abi::rts_cpu_control>() + head, self.head);
            at
        }
    }

    #[test]
    fn whole_records_come_out_once_and_in_order_over_many_laps() {
        let (mut writer, controls) = Writer::new();
        let mut reader = StreamReader::new(1, SIZE);
        let mut words = Vec::new();
        for value in 0..20_000 {
            writer.write(3 + value % 4, abi::RTS_COMMITTED, value);
            if value % 7 == 0 {
                reader.take(&writer.memory, &controls, &mut words, u64::MAX);
            }
        }
        reader.take(&writer.memory, &controls, &mut words, u64::MAX);
        let mut at = 0;
        for value in 0..20_000 {
            assert_eq!(words[at] & 0xff, 3 + value % 4);
            assert_eq!(words[at + 1], value);
            at += index(words[at] & 0xff);
        }
        assert_eq!((at, reader.records()), (words.len(), 20_000));
    }

    #[test]
    fn it_waits_for_a_record_that_is_not_complete() {
        let (mut writer, controls) = Writer::new();
        let mut reader = StreamReader::new(1, SIZE);
        let mut words = Vec::new();
        writer.write(3, abi::RTS_COMMITTED, 1);
        let open = writer.write(3, abi::RTS_OPEN, 2);
        writer.write(3, abi::RTS_COMMITTED, 3);
        reader.take(&writer.memory, &controls, &mut words, u64::MAX);
        assert_eq!((words.len(), reader.records()), (3, 1));
        assert_eq!(reader.waiting(&controls), 48);
        let committed = (writer.memory.load(open) & !0xff_0000) | u64::from(abi::RTS_COMMITTED) << 16;
        writer.memory.store_release(open, committed);
        reader.take(&writer.memory, &controls, &mut words, u64::MAX);
        assert_eq!((words.len(), reader.records()), (9, 3));
        assert_eq!([words[1], words[4], words[7]], [1, 2, 3]);
    }

    #[test]
    fn the_file_gets_the_same_words_as_a_copy() {
        let (mut writer, controls) = Writer::new();
        let (mut reader, mut copier) = (StreamReader::new(1, SIZE), StreamReader::new(1, SIZE));
        let (mut file, mut expected) = (tempfile::tempfile().unwrap(), Vec::new());
        let mut pieces = Vec::new();
        for value in 0..20_000_u64 {
            writer.write(3 + value % 29, abi::RTS_COMMITTED, value);
            if value % 100 == 0 {
                let found = reader.complete(&writer.memory, &controls, u64::MAX);
                pieces.push(found.parts().len());
                writer.memory.write_to(&file, &value.to_ne_bytes(), found.parts()).unwrap();
                reader.give_back(&controls, &found);
                expected.push(value);
                copier.take(&writer.memory, &controls, &mut expected, u64::MAX);
            }
        }
        assert!(pieces.contains(&1) && pieces.contains(&2), "{pieces:?}");
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let words: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        assert!(words == expected);
        assert_eq!(reader.records(), copier.records());
    }

    #[test]
    fn a_limit_leaves_the_rest_for_the_next_call() {
        let (mut writer, controls) = Writer::new();
        let mut reader = StreamReader::new(1, SIZE);
        for value in 0..10 {
            writer.write(3, abi::RTS_COMMITTED, value);
        }
        let mut words = Vec::new();
        // A limit that a record ends at is not exceeded; one within a record is, by that record.
        assert_eq!(reader.complete(&writer.memory, &controls, 6 * 8).bytes(), 6 * 8);
        assert_eq!(reader.complete(&writer.memory, &controls, 0).bytes(), 0);
        reader.take(&writer.memory, &controls, &mut words, 4 * 8);
        assert_eq!(words.len(), 6);
        reader.take(&writer.memory, &controls, &mut words, u64::MAX);
        assert_eq!(words.len(), 30);
    }
}

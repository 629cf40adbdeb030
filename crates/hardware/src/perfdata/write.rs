// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a perf.data while it is recorded: records as the kernel made them, AUX data straight from where it is.
//!
//! The header says 0 bytes until the end, as perf's does: what a killed recorder left is read as far as it goes.

use super::encode::PerfEncoder;
use super::request::{ATTRIBUTE_BYTES, WHERE_AND_WHEN};
use super::{EventAttribute, Feature};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

const HEADER: usize = 104;
const SECTION: usize = 16;
/// Of the size of the records, in the header.
const DATA_SIZE_AT: u64 = 48;
/// Of the bits of texts, in the header.
const FEATURES_AT: u64 = 72;
/// Records are collected up to this size.
const PENDING_MAX: usize = 1 << 18;

/// An event of the recording: its attribute, and its numbers.
#[derive(Clone, Debug)]
pub struct WrittenEvent {
    /// As it was given to the kernel.
    pub attribute: [u8; ATTRIBUTE_BYTES],
    /// One for each CPU, or thread.
    pub ids: Vec<u64>,
}

/// Where AUX data is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxPlace {
    /// Bytes.
    pub bytes: u64,
    /// In the stream of its buffer.
    pub offset: u64,
    /// The number of its buffer.
    pub index: u32,
    /// The CPU.
    pub cpu: u32,
}

/// A perf.data that is being written.
#[derive(Debug)]
pub struct PerfWriter {
    file: File,
    data_at: u64,
    /// Bytes behind the header.
    data_bytes: u64,
    pending: PerfEncoder,
}

impl PerfWriter {
    /// Begins a file, which is empty.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn create(mut file: File, events: &[WrittenEvent]) -> io::Result<PerfWriter> {
        let ids: usize = events.iter().map(|event| event.ids.len() * 8).sum();
        let attributes = HEADER + ids;
        let all = events.len() * (ATTRIBUTE_BYTES + SECTION);
        let data = attributes + all;
        let mut bytes = b"PERFILE2".to_vec();
        let words = [HEADER, ATTRIBUTE_BYTES + SECTION, attributes, all, data, 0, 0, 0];
        words.iter().for_each(|word| bytes.extend_from_slice(&(*word as u64).to_le_bytes()));
        bytes.resize(HEADER, 0);
        bytes.extend(events.iter().flat_map(|event| &event.ids).flat_map(|id| id.to_le_bytes()));
        let mut at = HEADER;
        for event in events {
            let size = event.ids.len() * 8;
            bytes.extend_from_slice(&event.attribute);
            bytes.extend([at, size].iter().flat_map(|word| (*word as u64).to_le_bytes()));
            at += size;
        }
        file.write_all(&bytes)?;
        // Records that are made here end as those of the kernel do.
        let like =
            EventAttribute { sample_type: WHERE_AND_WHEN, sample_id_all: true, ..EventAttribute::default() };
        let pending = PerfEncoder::new(vec![like]);
        Ok(PerfWriter { file, data_at: data as u64, data_bytes: 0, pending })
    }

    /// Takes whole records of the kernel.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn records(&mut self, records: &[u8]) -> io::Result<()> {
        self.pending.raw(records);
        if self.pending.recorded().len() > PENDING_MAX { self.flush() } else { Ok(()) }
    }

    /// For records that perf makes itself.
    pub fn encoder(&mut self) -> &mut PerfEncoder {
        &mut self.pending
    }

    fn flush(&mut self) -> io::Result<()> {
        let records = self.pending.take_recorded();
        self.file.write_all(&records)?;
        self.data_bytes += records.len() as u64;
        Ok(())
    }

    /// Takes AUX data: `write` is given the file, and the record that it has to write before the data and nothing between.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn aux(
        &mut self,
        place: AuxPlace,
        write: impl FnOnce(&File, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.flush()?;
        let padded = place.bytes.div_ceil(8) * 8;
        let mut header = PerfEncoder::default();
        header.auxtrace_header(padded, place.offset, (place.index, None, Some(place.cpu)));
        write(&self.file, header.recorded())?;
        let padding = usize::try_from(padded - place.bytes).unwrap_or(0);
        self.file.write_all(&[0; 8][..padding])?;
        self.data_bytes += header.recorded().len() as u64 + padded;
        Ok(())
    }

    /// Ends the file: what there is so far becomes its content. Texts about the machine are behind that.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(mut self, texts: &[(Feature, String)]) -> io::Result<File> {
        self.flush()?;
        let mut texts: Vec<(u32, &str)> =
            texts.iter().map(|(feature, text)| (*feature as u32, text.as_str())).collect();
        texts.sort_unstable();
        let mut at = self.data_at + self.data_bytes + (texts.len() * SECTION) as u64;
        let (mut sections, mut contents) = (Vec::new(), Vec::new());
        for (_, text) in &texts {
            // As perf pads them; it wants at least one byte of 0.
            let size = (text.len() + 1).div_ceil(64) * 64;
            let whole = 4 + size;
            sections.extend([at, whole as u64].iter().flat_map(|word| word.to_le_bytes()));
            contents.extend_from_slice(&u32::try_from(size).unwrap_or(0).to_le_bytes());
            contents.extend_from_slice(text.as_bytes());
            contents.resize(contents.len() + size - text.len(), 0);
            at += whole as u64;
        }
        self.file.write_all(&sections)?;
        self.file.write_all(&contents)?;
        let bits = texts.iter().fold(0_u64, |bits, (feature, _)| bits | 1 << feature);
        self.file.write_all_at(&bits.to_le_bytes(), FEATURES_AT)?;
        self.file.write_all_at(&self.data_bytes.to_le_bytes(), DATA_SIZE_AT)?;
        Ok(self.file)
    }
}

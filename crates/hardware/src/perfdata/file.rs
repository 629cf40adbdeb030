// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a perf.data: its header, its events, and its records one after the other.

use super::PerfError;
use super::attribute::{EventAttribute, sample_type};
use super::auxtrace::AuxSegment;
use super::bytes::{Cursor, ReadAt, Window, word};
use super::record::{self, Record, RecordBody, SampleId, number};
use std::collections::HashMap;

const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_SWAPPED: &[u8; 8] = b"2ELIFREP";
/// Size of the header that a pipe has.
const PIPE_HEADER: u64 = 16;
/// A recording has a few events for each CPU; a damaged number asks for more.
const EVENTS_MAX: usize = 1 << 16;
/// Numbers of one event: one for each CPU and thread.
const IDS_MAX: u64 = 1 << 24;
const RECORD_HEADER: usize = 8;

/// Texts about the machine (`HEADER_*` of perf's header.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Its name.
    Hostname = 3,
    /// Its kernel.
    Release = 4,
}

/// The events of a recording.
#[derive(Debug, Default)]
struct Events {
    list: Vec<EventAttribute>,
    by_id: HashMap<u64, usize>,
}

impl Events {
    fn add(&mut self, attribute: EventAttribute) {
        let place = self.list.len();
        self.by_id.extend(attribute.ids.iter().map(|id| (*id, place)));
        self.list.push(attribute);
    }

    /// The event of a record of the kernel. Where there are several, all have their number at the same place.
    fn of(&self, kind: u32, body: &[u8]) -> usize {
        let [first, .., _] = self.list.as_slice() else { return 0 };
        let has = |bit: u64| first.sample_type & bit != 0;
        let id = if kind == number::SAMPLE {
            let before = [sample_type::IP, sample_type::TID, sample_type::TIME, sample_type::ADDR];
            let words = before.into_iter().filter(|bit| has(*bit)).count();
            match (has(sample_type::IDENTIFIER), has(sample_type::ID)) {
                (true, _) => word(body, 0),
                (false, true) => word(body, words),
                _ => None,
            }
        } else {
            SampleId::at_the_end(body, first).id
        };
        id.and_then(|id| self.by_id.get(&id).copied()).unwrap_or(0)
    }
}

/// A perf.data.
#[derive(Debug)]
pub struct PerfFile<I> {
    input: I,
    /// It came through a pipe: events are described by records.
    pub is_pipe: bool,
    /// The recorder was killed before it wrote how long the data is; what is there is read.
    pub is_unfinished: bool,
    events: Events,
    /// From where to where the records are, as far as the file goes.
    data: (u64, u64),
    /// Where they end by the header; texts about the machine are behind that.
    declared_end: u64,
    window: Window,
    /// Of the next record.
    at: u64,
}

impl<I: ReadAt> PerfFile<I> {
    /// Whether bytes are the beginning of one.
    #[must_use]
    pub fn is_one(begin: &[u8]) -> bool {
        begin.starts_with(MAGIC) || begin.starts_with(MAGIC_SWAPPED)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// When it is another format, or damaged.
    pub fn open(input: I) -> Result<PerfFile<I>, PerfError> {
        let mut header = [0; 104];
        let read = input.read_at(0, &mut header)?;
        let header = &header[..read];
        if header.starts_with(MAGIC_SWAPPED) {
            return Err(PerfError::BigEndian);
        }
        if !header.starts_with(MAGIC) {
            return Err(PerfError::NotPerf);
        }
        let field = |index: usize| word(header, index).ok_or(PerfError::Truncated { at: 0 });
        let end = input.size()?;
        let mut file = PerfFile {
            input,
            is_pipe: field(1)? == PIPE_HEADER,
            is_unfinished: false,
            events: Events::default(),
            data: (PIPE_HEADER, end),
            declared_end: end,
            window: Window::default(),
            at: 0,
        };
        if !file.is_pipe {
            let (attr_size, attrs, attrs_size) = (field(2)?, field(3)?, field(4)?);
            let (data, data_size) = (field(5)?, field(6)?);
            file.is_unfinished = data_size == 0;
            file.declared_end = if data_size == 0 { end } else { data.saturating_add(data_size) };
            if data > end {
                return Err(PerfError::Malformed {
                    at: 40,
                    what: "the records begin behind the end of the file",
                });
            }
            file.data = (data, file.declared_end.min(end));
            file.read_events(attr_size, attrs, attrs_size)?;
        }
        file.at = file.data.0;
        Ok(file)
    }

    fn read_events(&mut self, size: u64, at: u64, all: u64) -> Result<(), PerfError> {
        const SECTION: usize = 16;
        let wrong = |what| PerfError::Malformed { at: 16, what };
        let one = usize::try_from(size).ok().filter(|size| (64 + SECTION..=4096).contains(size));
        let one = one.ok_or_else(|| wrong("the size of an event cannot be"))?;
        let count = usize::try_from(all / size).ok().filter(|count| *count <= EVENTS_MAX);
        let count = count.ok_or_else(|| wrong("too many events"))?;
        let (mut bytes, mut numbers) = (vec![0; one], 0_u64);
        for index in 0..count {
            let place = at.saturating_add(index as u64 * size);
            if self.input.read_at(place, &mut bytes)? < one {
                return Err(PerfError::Truncated { at: place });
            }
            let (attribute, section) = bytes.split_at(one - SECTION);
            let parsed = EventAttribute::parse(attribute);
            let (mut attribute, _) =
                parsed.ok_or(PerfError::Malformed { at: place, what: "an event cannot be read" })?;
            let (ids, ids_size) = (word(section, 0).unwrap_or(0), word(section, 1).unwrap_or(0));
            // Events have numbers of their own: all of them are in the file once.
            numbers = numbers.saturating_add(ids_size);
            if numbers > self.input.size()? {
                return Err(PerfError::Malformed { at: ids, what: "events share their numbers" });
            }
            attribute.ids = self.read_ids(ids, ids_size)?;
            self.events.add(attribute);
        }
        Ok(())
    }

    fn read_ids(&self, at: u64, size: u64) -> Result<Vec<u64>, PerfError> {
        // No more than the file has, whatever it says.
        let is_possible = size / 8 <= IDS_MAX && at.saturating_add(size) <= self.input.size()?;
        let size = usize::try_from(size).ok().filter(|_| is_possible);
        let size =
            size.ok_or(PerfError::Malformed { at, what: "the numbers of an event are not in the file" })?;
        let mut bytes = vec![0; size];
        let read = self.input.read_at(at, &mut bytes)?;
        Ok((0..read / 8).filter_map(|index| word(&bytes, index)).collect())
    }

    /// The events so far.
    #[must_use]
    pub fn events(&self) -> &[EventAttribute] {
        &self.events.list
    }

    /// A text that perf wrote about the machine, of a file. Pipes send such texts as records.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn text(&self, feature: Feature) -> Result<Option<String>, PerfError> {
        if self.is_pipe || self.is_unfinished {
            return Ok(None);
        }
        const BITS_AT: u64 = 72;
        let (mut bits, mut section) = ([0; 8], [0; 16]);
        self.input.read_at(BITS_AT, &mut bits)?;
        let (bits, feature) = (u64::from_le_bytes(bits), feature as u32);
        if bits >> feature & 1 == 0 {
            return Ok(None);
        }
        // Sections are in the order of their numbers, behind the records.
        let place = u64::from((bits & ((1 << feature) - 1)).count_ones()) * 16;
        self.input.read_at(self.declared_end.saturating_add(place), &mut section)?;
        let (at, size) = (word(&section, 0).unwrap_or(0), word(&section, 1).unwrap_or(0));
        let mut bytes = [0; 256];
        let wanted = usize::try_from(size).unwrap_or(usize::MAX).min(bytes.len());
        let read = self.input.read_at(at, &mut bytes[..wanted])?;
        // Its length, with padding, is before it.
        let text = bytes[..read].get(4..).map(|rest| Cursor(rest).text());
        Ok(text.map(|text| String::from_utf8_lossy(text).into_owned()))
    }

    /// The next record, in the order of the file, which is not always that of time.
    ///
    /// # Errors
    /// At what cannot be a record: nothing behind it can be found then.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, PerfError> {
        let (at, end) = (self.at, self.data.1);
        let cut = PerfError::Truncated { at };
        if at == end && end < self.declared_end {
            // Between two records. AUX data that is cut says so itself, and ends behind the file.
            return Err(cut);
        }
        if at >= end {
            return Ok(None);
        }
        let Some(header) = self.window.get(&self.input, at, RECORD_HEADER)? else {
            // A recorder that was killed leaves off anywhere, and a file without an end says so by itself.
            return Err(cut);
        };
        let mut cursor = Cursor(header);
        let kind = cursor.u32().unwrap_or(0);
        let rest = cursor.u32().unwrap_or(0).to_le_bytes();
        let (misc, size) = (u16::from_le_bytes([rest[0], rest[1]]), u16::from_le_bytes([rest[2], rest[3]]));
        if usize::from(size) < RECORD_HEADER {
            return Err(PerfError::Malformed { at, what: "a record is smaller than its header" });
        }
        let whole = self.window.get(&self.input, at, usize::from(size))?.ok_or(cut)?;
        let body = &whole[RECORD_HEADER..];
        self.at = at + u64::from(size);
        let wrong = PerfError::Malformed { at, what: "a record is too short for what it has" };
        if matches!(kind, number::COMPRESSED | number::COMPRESSED2) {
            return Err(PerfError::Compressed);
        }
        if kind == number::HEADER_ATTR {
            let (mut attribute, bytes) = EventAttribute::parse(body).ok_or(wrong)?;
            let ids = body.get(bytes..).unwrap_or_default();
            attribute.ids = (0..ids.len() / 8).filter_map(|index| word(ids, index)).collect();
            self.events.add(attribute);
            return Ok(Some(plain(at, kind, misc, size, RecordBody::Other)));
        }
        if kind == number::AUXTRACE {
            let segment = AuxSegment::parse(at, u64::from(size), body, end).ok_or(wrong)?;
            self.at = segment.at.saturating_add(segment.size);
            return Ok(Some(plain(at, kind, misc, size, RecordBody::Auxtrace(segment))));
        }
        if kind >= number::USER {
            return Ok(Some(plain(at, kind, misc, size, record::of_perf(kind, body).ok_or(wrong)?)));
        }
        let event = self.events.of(kind, body);
        let none = EventAttribute::default();
        let attribute = self.events.list.get(event).unwrap_or(&none);
        let body = record::of_kernel(kind, misc, body, attribute).ok_or(wrong)?;
        let id = match &body {
            RecordBody::Sample(sample) => sample.id,
            _ => SampleId::at_the_end(&whole[RECORD_HEADER..], attribute),
        };
        Ok(Some(Record { at, number: kind, misc, size, event, id, body }))
    }
}

fn plain(at: u64, number: u32, misc: u16, size: u16, body: RecordBody<'_>) -> Record<'_> {
    Record { at, number, misc, size, event: 0, id: SampleId::default(), body }
}

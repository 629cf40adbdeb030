// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces: their metadata, their streams, and rings that become traces.

use rtscope_ctf::{
    EventView, FieldIndex, Format, Integer, NoStyle, Piece, Plan, Selection, TraceSet, Visit, WriteEvent,
    count, print,
};
use rtscope_event::MonotonicNs;
use rtscope_programs::collector::Snapshot;
use rtscope_programs::records::Layout;
use rtscope_programs::{RingImage, RingInfo};
use rtscope_store::user::{UserEnd, UserFilter, UserSession, write_snapshot};
use std::fs;
use std::path::Path;

/// Visits every field.
struct FullFormat(Vec<(Plan, Vec<Plan>)>);

struct Values<'f>(&'f FullFormat);

impl Format for FullFormat {
    type Writer<'f> = Values<'f>;

    fn writer(&self) -> Values<'_> {
        Values(self)
    }

    fn gap(&self, _: Option<u64>, _: u64, _: &mut Vec<u8>) {}
}

impl WriteEvent for Values<'_> {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let (packet, events) = &self.0.0[event.stream];
        event.show_context(packet, &mut Everything);
        let whole = event.show(&events[event.event], &mut Everything);
        piece.text.push(b'\n');
        whole
    }
}

struct Everything;

impl Visit for Everything {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, plan: &Plan, integer: &Integer, value: u64) {
        let labels = plan.enumeration(integer).map(|enumeration| enumeration.labels(value.into()));
        labels.into_iter().flatten().for_each(drop);
    }

    fn float(&mut self, _: FieldIndex, _: f64) {}

    fn text(&mut self, _: FieldIndex, text: &[u8]) {
        assert!(!text.contains(&0));
    }

    fn element(&mut self, _: u64) {}
}

/// The number of events of a trace of our own writers.
pub(crate) fn events_of_ours(dir: &Path) -> u64 {
    let set = TraceSet::open(dir).unwrap();
    let counts = count(&set, &Selection::default(), &|_| ());
    counts.streams.iter().map(|stream| stream.total()).sum()
}

/// Reads a trace in every way; returns the number of events.
fn read(dir: &Path) -> Result<u64, String> {
    let set = TraceSet::open(dir).map_err(|error| error.to_string())?;
    let plans = set.streams.iter().map(|stream| {
        let events = (0..set.event_count(stream)).map(|event| set.event_plan(stream, event, &NoStyle));
        (set.packet_plan(stream, &NoStyle), events.collect())
    });
    let format = FullFormat(plans.collect());
    let counts = count(&set, &Selection::default(), &|_| ());
    let counted: u64 = counts.streams.iter().map(|stream| stream.total()).sum();
    let mut printed = 0;
    print(&set, &Selection::default(), u64::MAX, &format, &mut |piece| {
        printed += piece.events;
        true
    });
    // A text that is not shown may be passed over.
    assert!(printed <= counted, "{printed} printed, {counted} counted");
    let _ = rtscope_ctf::read_trace(dir);
    Ok(counted)
}

pub fn metadata(data: &[u8]) -> Option<()> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("metadata"), data).unwrap();
    fs::write(dir.path().join("stream"), [1; 64]).unwrap();
    read(dir.path()).ok().map(drop)
}

/// The first byte chooses the metadata.
pub fn packets(data: &[u8]) -> Option<()> {
    let (first, data) = data.split_first()?;
    let all = crate::seeds::metadata();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("metadata"), &all[usize::from(*first) % all.len()]).unwrap();
    fs::write(dir.path().join("stream"), data).unwrap();
    read(dir.path()).ok().map(drop)
}

/// Records of a ring in two pieces: the first bytes choose how it is divided, and where. Whatever they are, the trace has as many events as
/// were counted.
pub fn snapshot(data: &[u8]) -> Option<()> {
    let ([sub_buffer, key, part], records) = data.split_first_chunk::<3>()?;
    let layout = Layout { ring_bytes: 65536, sub_bytes: 4096 << (sub_buffer % 4), key: u32::from(*key) };
    let records = &records[..records.len().min(65536) & !7];
    let (first, second) = records.split_at((records.len() * usize::from(*part) / 256) & !7);
    let info = RingInfo { layout, ..crate::seeds::ring_info() };
    let snapshot = Snapshot {
        providers: vec![crate::seeds::provider_info()],
        rings: vec![(info, RingImage::of_records(layout, &[first, second]).unwrap())],
        ..Snapshot::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("trace");
    let session = UserSession::of_this_machine("fuzz", vec!["tid".to_string()]).unwrap();
    let all = (MonotonicNs(0), MonotonicNs(u64::MAX));
    let written =
        write_snapshot(&session, &snapshot, &[], all, &UserEnd::default(), (&target, &UserFilter::default()))
            .unwrap();
    assert_eq!(read(&target), Ok(written.events));
    Some(())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Losses: a slice for each interval in which events were lost, on a track for each CPU or stream.

use super::arguments;
use super::packets::{Category, NameId, Packets, Track, TrackKind, Type};
use rtscope_event::Lost;
use std::collections::BTreeMap;
use std::io::Write;

/// The tracks, and when the last slice on each ended.
#[derive(Debug, Default)]
pub(super) struct Losses {
    root: Option<Track>,
    tracks: BTreeMap<String, (Track, u64)>,
    /// How many intervals.
    pub(super) intervals: u64,
}

impl Losses {
    /// Writes a loss between two moments.
    pub(super) fn write<W: Write>(&mut self, lost: &Lost, since: u64, until: u64, packets: &mut Packets<W>) {
        self.intervals += 1;
        let place = match (lost.cpu, lost.stream) {
            (Some(cpu), _) => format!("CPU {cpu}"),
            (None, Some(stream)) => format!("stream {}", stream.0),
            (None, None) => "unknown CPU".to_owned(),
        };
        let root = *self.root.get_or_insert_with(|| packets.track("Lost events", None, TrackKind::Group));
        let (track, end) = self
            .tracks
            .entry(place)
            .or_insert_with_key(|place| (packets.track(place, Some(root), TrackKind::Plain), 0));
        // Slices of one track may not overlap.
        let since = since.max(*end);
        let until = until.max(since);
        *end = until;
        let what = if lost.packets { "packets lost" } else { "events lost" };
        let name = packets.event_name(what);
        let (cause, count) = (packets.annotation_name("cause"), packets.annotation_name("count"));
        packets.event(since, Type::Begin, *track, (Some(name), Category::Loss), |event| {
            arguments::text(event, cause, cause_name(lost).as_bytes());
            count_argument(event, count, lost.count);
        });
        packets.event(until, Type::End, *track, (None, Category::Loss), |_| {});
    }
}

fn count_argument(event: &mut super::wire::Message, name: NameId, count: Option<u64>) {
    match count {
        Some(count) => arguments::unsigned(event, name, count),
        None => arguments::text(event, name, b"unknown"),
    }
}

/// `snake_case`, as in JSON.
fn cause_name(lost: &Lost) -> String {
    let json = serde_json::to_string(&lost.cause).unwrap_or_default();
    json.trim_matches('"').to_owned()
}

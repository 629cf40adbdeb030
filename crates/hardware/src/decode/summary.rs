// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stream consists of, in numbers.

use super::{Findings, SeenPacket, first_word};
use crate::trace::{EventClassKind, HardwareEvent};
use crate::{Lost, LostCause};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// How many packets, or events, of a kind there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KindCount {
    /// The kind.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// Bytes that are in no packet, by cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostBytes {
    /// Why.
    pub cause: String,
    /// How many.
    pub bytes: u64,
    /// In how many places.
    pub places: u64,
}

/// A stream in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamSummary {
    /// Packets by kind.
    pub packets: Vec<KindCount>,
    /// Events by class.
    pub events: Vec<KindCount>,
    /// Lines of flow.
    pub flow: u64,
    /// Bytes that are in no packet.
    pub lost: Vec<LostBytes>,
    /// Places where the unit or a buffer lost something.
    pub gaps: u64,
    /// The first time, in nanoseconds, or in ticks where nothing says how long they are.
    pub first: Option<u64>,
    /// The last one.
    pub last: Option<u64>,
}

impl StreamSummary {
    /// All packets.
    #[must_use]
    pub fn packet_count(&self) -> u64 {
        self.packets.iter().map(|kind| kind.count).sum()
    }

    /// All bytes that are in no packet.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.lost.iter().map(|lost| lost.bytes).sum()
    }
}

/// Counts.
#[derive(Default)]
pub(crate) struct Counter {
    packets: BTreeMap<String, u64>,
    events: BTreeMap<EventClassKind, u64>,
    lost: BTreeMap<LostCause, (u64, u64)>,
    flow: u64,
    gaps: u64,
    first: Option<u64>,
    last: Option<u64>,
}

impl Counter {
    pub(crate) fn summary(&self) -> StreamSummary {
        let kind = |name: String, count: u64| KindCount { name, count };
        StreamSummary {
            packets: self.packets.iter().map(|(name, count)| kind(name.clone(), *count)).collect(),
            events: self.events.iter().map(|(class, count)| kind(class.name().to_owned(), *count)).collect(),
            flow: self.flow,
            lost: self
                .lost
                .iter()
                .map(|(cause, (bytes, places))| LostBytes {
                    cause: cause.to_string(),
                    bytes: *bytes,
                    places: *places,
                })
                .collect(),
            gaps: self.gaps,
            first: self.first,
            last: self.last,
        }
    }

    fn at(&mut self, time: Option<u64>) {
        self.first = self.first.or(time);
        self.last = time.or(self.last);
    }
}

impl Findings for Counter {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        *self.packets.entry(first_word(packet.text)).or_default() += 1;
        self.at(packet.time);
    }

    fn flow(&mut self, time: Option<u64>, _: &dyn fmt::Display) {
        self.flow += 1;
        self.at(time);
    }

    fn event(&mut self, event: HardwareEvent) {
        self.gaps += u64::from(event.lost.is_some());
        *self.events.entry(event.class).or_default() += 1;
    }

    fn lost(&mut self, lost: Lost) {
        let (bytes, places) = self.lost.entry(lost.cause).or_default();
        *bytes += lost.bytes;
        *places += 1;
    }
}

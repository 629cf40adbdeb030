// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where events come from, as every analysis sees it: in order of time, with what is missing in between.
//!
//! A directory, one that still grows, a snapshot, a connection or a fake are the same to an analysis. It takes one item after the
//! other and keeps what its question needs, never the trace. A source says three things besides events: that nothing older than
//! a moment will come (so that an analysis may settle what waits for it, also when nothing happens), what was lost and when (so that
//! no analysis takes a hole for silence), and the end.

use crate::{CpuId, EventRef, LossCause, Schema, StreamId};

/// Events that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why.
    pub cause: LossCause,
    /// How many; `None` when unknown. Never 0 in place of unknown.
    pub count: Option<u64>,
    /// Whole packets instead of events.
    pub packets: bool,
    /// The stream that they are missing from, where known.
    pub stream: Option<StreamId>,
    /// The CPU, where known.
    pub cpu: Option<CpuId>,
    /// They happened after this moment, where known (as the times of events).
    pub since_ns: Option<i64>,
    /// And before this one.
    pub until_ns: Option<i64>,
}

/// What a source says next.
#[derive(Clone, Debug)]
pub enum Item<'s> {
    /// An event. Times never go back; events of one time are in the order of their streams.
    Event(EventRef<'s>),
    /// No event before this moment will come.
    NothingBefore(i64),
    /// Something is missing. It comes when events have reached the end of the interval in which it was lost.
    Lost(Lost),
    /// Nothing will come.
    End,
}

/// A source of events.
pub trait TraceSource {
    /// The classes and streams so far. More may come with each item; those that are there stay as they are.
    fn schema(&self) -> &Schema;

    /// The next item. A source of what still happens blocks until there is one; after [`Item::End`] there is nothing else.
    fn next(&mut self) -> Item<'_>;

    /// How much of everything has been read, 0 to 1; `None` where nobody knows how much there is.
    fn progress(&self) -> Option<f64> {
        None
    }
}

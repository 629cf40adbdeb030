// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counting the events of a recording while it is made. Late ones count like all others.

use super::super::count::Counts;
use super::super::index::StreamGap;
use super::super::set::TraceSet;
use super::super::slices::EventView;
use super::merge::Take;
use super::{Follower, Round};
use crate::Error;

impl Follower {
    /// Adds the selected events before the horizon to `counts`.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn count(&mut self, horizon_ns: i64, counts: &mut Counts) -> Result<Round, Error> {
        counts.streams.resize(self.set.streams.len(), Default::default());
        self.round(horizon_ns, &mut Counting(counts))
    }
}

struct Counting<'c>(&'c mut Counts);

impl Take for Counting<'_> {
    fn event(&mut self, _: &TraceSet, event: &mut EventView<'_, '_>) -> bool {
        if let Some(stream) = self.0.streams.get_mut(event.stream).filter(|_| event.pass()) {
            stream.add_event(event.event, event.ns);
        }
        true
    }

    fn lost(&mut self, _: &TraceSet, _: usize, _: &StreamGap) -> bool {
        true
    }
}

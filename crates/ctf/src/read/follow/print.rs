// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of a recording as text, while it is made.

use super::super::index::StreamGap;
use super::super::print::{Format, Piece, WriteEvent};
use super::super::set::TraceSet;
use super::super::slices::EventView;
use super::merge::Take;
use super::{Follower, Round};
use crate::Error;

/// A piece is handed on when it reaches this size.
const PIECE_BYTES: usize = 256 << 10;

/// What is given, in order.
#[derive(Debug)]
pub enum Followed<'p> {
    /// Some events.
    Piece(&'p mut Piece),
    /// Something is missing from a stream (its index).
    Lost(usize, &'p StreamGap),
}

impl Follower {
    /// Formats the selected events before the horizon, at most `limit`, and passes them to `take`, until it returns false.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn print<F: Format>(
        &mut self,
        format: &F,
        horizon_ns: i64,
        limit: u64,
        take: &mut dyn FnMut(&TraceSet, Followed<'_>) -> bool,
    ) -> Result<Round, Error> {
        if limit == 0 {
            return Ok(Round::Stopped);
        }
        let mut printing =
            Printing { format, writer: format.writer(), piece: Piece::default(), left: limit, take };
        let round = self.round(horizon_ns, &mut printing);
        // Also what came before a failure.
        let Printing { mut piece, take, .. } = printing;
        let is_wanted = piece.events == 0 || take(&self.set, Followed::Piece(&mut piece));
        round.map(|round| if is_wanted { round } else { Round::Stopped })
    }
}

struct Printing<'p, F: Format> {
    format: &'p F,
    writer: F::Writer<'p>,
    piece: Piece,
    left: u64,
    take: &'p mut dyn FnMut(&TraceSet, Followed<'_>) -> bool,
}

impl<F: Format> Printing<'_, F> {
    fn hand_on(&mut self, set: &TraceSet) -> bool {
        if self.piece.events == 0 {
            return true;
        }
        let is_wanted = (self.take)(set, Followed::Piece(&mut self.piece));
        self.piece.text.clear();
        self.piece = Piece { text: std::mem::take(&mut self.piece.text), ..Piece::default() };
        self.writer = self.format.writer();
        is_wanted
    }
}

impl<F: Format> Take for Printing<'_, F> {
    fn event(&mut self, set: &TraceSet, event: &mut EventView<'_, '_>) -> bool {
        if self.writer.write(&mut self.piece, event) {
            self.piece.events += 1;
            self.left -= 1;
        }
        let is_wanted = self.piece.text.len() < PIECE_BYTES || self.hand_on(set);
        is_wanted && self.left > 0
    }

    fn lost(&mut self, set: &TraceSet, stream: usize, gap: &StreamGap) -> bool {
        self.hand_on(set) && (self.take)(set, Followed::Lost(stream, gap))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of all streams in order of time, formatted as text on all CPUs (`slices`).

use super::lane::StreamReader;
use super::queue::Output;
use super::select::Selection;
use super::set::{DamagedFile, TraceSet};
use super::slices::{Decode, EventView, Work, decode};

/// A part of the output.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// One line per event.
    pub text: Vec<u8>,
    /// Number of events in it.
    pub events: u64,
    /// A number of its first event, and where in the text the result of [`Format::gap`] belongs.
    pub first: Option<(u64, usize)>,
    /// The same number of its last event.
    pub last: Option<u64>,
    /// Parts of files that could not be read.
    pub damaged: Vec<DamagedFile>,
}

impl Output for Piece {
    // Text can be a hundred times as long as its trace.
    const PIECE_BYTES: usize = 3 << 20;
    const WAITING_BYTES: usize = 40 << 20;

    fn is_empty(&self) -> bool {
        // A format may have text that is no event.
        self.text.is_empty() && self.damaged.is_empty()
    }

    fn size(&self) -> usize {
        self.text.len()
    }

    fn damaged(&mut self) -> &mut Vec<DamagedFile> {
        &mut self.damaged
    }

    fn recycled(mut self) -> Piece {
        self.text.clear();
        Piece { text: self.text, ..Piece::default() }
    }
}

/// Formats events as text.
pub trait Format: Sync {
    /// The state of one thread.
    type Writer<'f>: WriteEvent
    where
        Self: 'f;

    /// A new one, for a new piece.
    fn writer(&self) -> Self::Writer<'_>;

    /// Text between a piece's first event and the previous event, which another thread wrote: see [`Piece::first`].
    fn gap(&self, before: Option<u64>, first: u64, text: &mut Vec<u8>);
}

/// Writes events into a piece.
pub trait WriteEvent {
    /// Appends one line. False: the event could not be read to its end, and nothing was appended.
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool;
}

impl<F: Format> Decode for F {
    type Piece = Piece;
    type Worker<'d>
        = Writing<F::Writer<'d>>
    where
        F: 'd;

    fn worker(&self) -> Writing<F::Writer<'_>> {
        Writing(self.writer())
    }
}

/// Counts what a writer has written.
pub struct Writing<W>(W);

impl<W: WriteEvent> Work for Writing<W> {
    type Piece = Piece;

    fn event(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let written = self.0.write(piece, event);
        piece.events += u64::from(written);
        written
    }
}

/// Formats the selected events and passes the pieces to `take`, in order, until it returns false. At most `limit` events.
pub fn print<F: Format>(
    set: &TraceSet,
    selection: &Selection,
    limit: u64,
    format: &F,
    take: &mut dyn FnMut(&mut Piece) -> bool,
) {
    let readings = set.streams.iter().map(|stream| StreamReader::new(set, stream, selection)).collect();
    decode(readings, selection, limit, format, |pieces| {
        while let Some(mut piece) = pieces.next() {
            if !take(&mut piece) {
                break;
            }
            pieces.give_back(piece);
        }
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slices of a trace handed out to threads, and the pieces that they make of them taken in order.
//!
//! What waits is bounded twice: in slices ahead of the one that is taken, and in the size of the pieces that wait.

use super::set::DamagedFile;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A part of what is made of a slice.
pub(crate) trait Output: Default + Send {
    /// A piece is handed on when it reaches this size, even within a slice.
    const PIECE_BYTES: usize;
    /// How much may wait to be taken; only the slice that is taken next may add more.
    const WAITING_BYTES: usize;
    /// Whether nobody misses it.
    fn is_empty(&self) -> bool;
    /// Bytes in it.
    fn size(&self) -> usize;
    /// Where to say what could not be read.
    fn damaged(&mut self) -> &mut Vec<DamagedFile>;
    /// Removes what is in it, and keeps the memory: fresh memory costs a page fault every 4 KiB.
    fn recycled(self) -> Self;
}

/// The slices to do, in progress and done.
pub(super) struct Queue<P> {
    state: Mutex<State<P>>,
    changed: Condvar,
    count: usize,
    /// Slices in progress and waiting.
    ahead: usize,
}

struct State<P> {
    /// To be worked on.
    next: usize,
    /// To be output next.
    taken: usize,
    /// By slice: pieces to be output, and whether there will be more.
    pieces: BTreeMap<usize, (VecDeque<P>, bool)>,
    /// Their size.
    waiting: usize,
    /// Empty pieces with memory.
    spare: Vec<P>,
    stopped: bool,
}

impl<P: Output> Queue<P> {
    pub(super) fn new(count: usize, ahead: usize) -> Queue<P> {
        let state = State {
            next: 0,
            taken: 0,
            pieces: BTreeMap::new(),
            waiting: 0,
            spare: Vec::new(),
            stopped: false,
        };
        Queue { state: Mutex::new(state), changed: Condvar::new(), count, ahead }
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State<P>>) -> MutexGuard<'g, State<P>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.next >= self.count {
                return None;
            }
            if state.next < state.taken + self.ahead {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.wait(state);
        }
    }

    /// Takes a piece of a slice, waits while too much is to be output, and returns an empty one.
    pub(super) fn part(&self, place: usize, piece: P) -> Option<P> {
        let mut state = self.lock();
        if !piece.is_empty() {
            state.waiting += piece.size();
            state.pieces.entry(place).or_default().0.push_back(piece);
            self.changed.notify_all();
        }
        let waits = |state: &State<P>| match state.pieces.get(&place) {
            Some((pieces, _)) if state.taken == place => pieces.len() > 2,
            _ => state.waiting > P::WAITING_BYTES,
        };
        while waits(&state) && !state.stopped {
            state = self.wait(state);
        }
        let spare = state.spare.pop().unwrap_or_default();
        (!state.stopped).then_some(spare)
    }

    /// There are no more pieces of this slice.
    pub(super) fn done(&self, place: usize) {
        self.lock().pieces.entry(place).or_default().1 = true;
        self.changed.notify_all();
    }

    /// The next piece in order.
    pub(super) fn take(&self) -> Option<P> {
        let mut state = self.lock();
        while state.taken < self.count && !state.stopped {
            let taken = state.taken;
            let (pieces, done) = state.pieces.entry(taken).or_default();
            let done = *done;
            if let Some(piece) = pieces.pop_front() {
                state.waiting -= piece.size();
                self.changed.notify_all();
                return Some(piece);
            }
            if done {
                state.pieces.remove(&taken);
                state.taken += 1;
                self.changed.notify_all();
            } else {
                state = self.wait(state);
            }
        }
        None
    }

    pub(super) fn give_back(&self, piece: P) {
        let piece = piece.recycled();
        let mut state = self.lock();
        if state.spare.len() < self.ahead {
            state.spare.push(piece);
        }
    }

    /// The part of the slices that has been taken.
    pub(super) fn progress(&self) -> f64 {
        self.lock().taken as f64 / self.count.max(1) as f64
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Without it, a thread that fails would leave the others waiting for its slice.
pub(super) struct StopOnPanic<'q, P: Output>(pub(super) &'q Queue<P>);

impl<P: Output> Drop for StopOnPanic<'_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Late responses that wait for their explanation.
//!
//! Each is either here or has been given to the writer, which explains all it gets; so none is counted twice. What does not fit
//! goes unexplained, and is reported as such.

use rtscope_event::{LateResponse, MonotonicNs};
use std::collections::VecDeque;

/// Late responses kept for the next snapshot: about 1.5 MiB.
const MOST: usize = 4096;

/// A bounded queue, oldest first.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<LateResponse>,
}

impl Backlog {
    /// Takes one in; gives back the oldest when there are too many.
    pub fn push(&mut self, late: LateResponse) -> Option<LateResponse> {
        self.waiting.push_back(late);
        if self.waiting.len() > MOST { self.waiting.pop_front() } else { None }
    }

    /// Hands out those that ended by `until`.
    pub fn take_until(&mut self, until: MonotonicNs) -> Vec<LateResponse> {
        let (ended, rest) =
            std::mem::take(&mut self.waiting).into_iter().partition(|late| late.end_ns <= until);
        self.waiting = rest;
        Vec::from_iter::<VecDeque<LateResponse>>(ended)
    }

    /// When the oldest ended.
    pub fn oldest(&self) -> Option<MonotonicNs> {
        self.waiting.front().map(|late| late.end_ns)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a command is that reads a large trace.

use crate::output::note;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A line on standard error that shows how far it is, when it takes long and there is a terminal.
pub struct Progress {
    total: u64,
    /// When the line was written last.
    shown: Option<Mutex<(Instant, bool)>>,
}

impl Progress {
    /// `total`: what is to be done, in any unit.
    pub fn new(total: u64) -> Progress {
        let shown = std::io::stderr().is_terminal().then(|| Mutex::new((Instant::now(), false)));
        Progress { total, shown }
    }

    /// So much is done.
    pub fn at(&self, done: u64) {
        let Some(shown) = &self.shown else { return };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.0.elapsed() < Duration::from_millis(300) {
            return;
        }
        *shown = (Instant::now(), true);
        let percent = u128::from(done) * 100 / u128::from(self.total.max(1));
        // Nobody is told then, and nobody misses it.
        let _ = write!(std::io::stderr(), "\rreading: {percent} %");
    }

    /// Removes the line.
    pub fn finish(&self) {
        if let Some(shown) = &self.shown {
            if shown.lock().unwrap_or_else(PoisonError::into_inner).1 {
                note("\r              \r");
            }
        }
    }
}

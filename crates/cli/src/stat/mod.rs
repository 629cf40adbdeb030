// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat TRACE`: how many events of which kind, from when to when, and what is missing.

use crate::exit::Failure;
use crate::output::{note, result};
use crate::trace_args::{StatOptions, report_damage};
use rtscope_ctf::count;
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::TraceStat;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Opens, counts, shows.
pub fn run(options: &StatOptions) -> Result<(), Failure> {
    let set = options.trace.open()?;
    let selection = options.trace.selection(&set)?;
    let bytes = set.streams.iter().map(|stream| stream.bytes).sum();
    let progress = Progress::new(bytes);
    let counts = count(&set, &selection, &|done| progress.at(done));
    progress.finish();
    let stat = TraceStat::new(&set, &counts, &selection);
    if options.json {
        let line = stat.json().map_err(|error| Failure::doing("writing JSON", error))?;
        result(&line);
    } else {
        result(&stat.text(time_of_day));
    }
    let mut damaged = set.damaged;
    damaged.extend(counts.damaged);
    report_damage(&mut damaged)
}

/// A line on standard error that shows how far it is, when it takes long and there is a terminal.
struct Progress {
    total: u64,
    /// When the line was written last.
    shown: Option<Mutex<(Instant, bool)>>,
}

impl Progress {
    fn new(total: u64) -> Progress {
        let shown = std::io::stderr().is_terminal().then(|| Mutex::new((Instant::now(), false)));
        Progress { total, shown }
    }

    fn at(&self, done: u64) {
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

    fn finish(&self) {
        if let Some(shown) = &self.shown {
            if shown.lock().unwrap_or_else(PoisonError::into_inner).1 {
                note("\r              \r");
            }
        }
    }
}

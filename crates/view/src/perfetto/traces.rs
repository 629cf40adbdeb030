// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From traces on disk to a file for Perfetto.

use super::{CounterField, Settings, Summary, convert};
use rtscope_ctf::{DamagedFile, Selection, TraceSet, read};
use rtscope_event::PatternList;
use std::io::{self, BufWriter, Write};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// What is doubtful of these counters.
///
/// # Errors
/// A misspelt name: it would draw nothing.
pub fn check_counters(set: &TraceSet, counters: &[CounterField]) -> Result<Vec<String>, String> {
    let mut doubts = Vec::new();
    for counter in counters {
        let (event, field) = counter.names();
        let refused = |why| format!("--counter {event}.{field}: {why}");
        let having = Selection { events: PatternList::new([event]), ..Selection::default() };
        let notes = having.check(set).map_err(refused)?;
        if notes.is_empty() {
            having.check_fields(set, &[field]).map_err(refused)?;
        }
        doubts.extend(notes);
    }
    Ok(doubts)
}

/// Converts what is selected; gives what could not be read, too. `progress` gets percents of the time now and then; false ends it early.
///
/// # Errors
/// When the output cannot be written, nothing is selected, or it was ended.
pub fn convert_traces(
    (set, selection): (&TraceSet, &Selection),
    out: impl Write,
    settings: &Settings,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<(Summary, Vec<DamagedFile>)> {
    let (begin, end) = set.span();
    let (begin, end) = (selection.from_ns.or(begin).unwrap_or(0), selection.to_ns.or(end).unwrap_or(0));
    let total = u128::from(end.abs_diff(begin).max(1));
    let percent = |time: i64| u64::try_from(u128::from(time.abs_diff(begin)) * 100 / total).unwrap_or(100);
    read(set, selection, &|_| true, |source| {
        let out = BufWriter::with_capacity(BUFFER, out);
        let mut goes_on = true;
        let converted = convert(source, out, settings, &mut |time| {
            goes_on = progress(percent(time));
            goes_on
        });
        if !(goes_on && progress(100)) {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "stopped before the end; no file was made",
            ));
        }
        let summary = converted?;
        // Perfetto opens no file without events.
        if summary.events == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no event is selected; no file was made",
            ));
        }
        Ok((summary, std::mem::take(&mut source.damaged)))
    })
}

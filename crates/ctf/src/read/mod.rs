// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trace folder → recording.
//!
//! A reader for CTF 1.8 as it is written by kernel tracers: the layout comes from the metadata, so that our traces and
//! LTTng's take the same way. Files are read whole and decoded in place.

mod bits;
mod blocks;
mod class;
mod decode;
mod files;
mod gather;
mod kernel;
mod lexer;
mod parser;
mod stream;

use crate::layout::event_layouts;
use crate::{Error, TraceInfo};
use gather::Gathered;
use rtscope_event::Recording;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a trace folder holds.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Events, names, losses, history.
    pub recording: Recording,
    /// Where and when it was made; empty or nil where the trace does not say.
    pub info: TraceInfo,
    /// Number of events, by name, that rtscope has no use for.
    pub skipped: BTreeMap<String, u64>,
    /// What was wrong with the trace, for people. Each loss of data is in the recording's losses, too.
    pub warnings: Vec<String>,
}

/// Reads the trace in `dir`, or in `dir/kernel`.
///
/// Damage is no error: what can be read is returned, and the rest is in [`Trace::warnings`] and in the losses.
///
/// # Errors
/// When there is no trace, a file cannot be read, or the metadata cannot be understood.
pub fn read_trace(dir: &Path) -> Result<Trace, Error> {
    let dir = files::trace_dir(dir)?;
    let path = dir.join("metadata");
    let text = files::metadata_text(&path)?;
    let trace =
        blocks::parse(&text).map_err(|fault| Error::Metadata { path, line: fault.line, what: fault.what })?;
    let layouts = event_layouts();
    let classes = stream::Classes::new(&trace, &layouts);
    let mut gathered = Gathered::default();
    for path in files::stream_files(&dir)? {
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        stream::read_stream(&classes, &name, &bytes, &mut gathered);
    }
    Ok(gathered.finish(&trace))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot directory in OpenCSD's form as a capture.

use super::open::{Capture, DecodeError, Piece, Settings, Stream, StreamKind, sources};
use crate::coresight::Framing;
use crate::coresight::snapshot::{Format, Snapshot, Source};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

pub(super) fn open(path: &Path, settings: &Settings) -> Result<Capture, DecodeError> {
    let snapshot = Snapshot::read(path).map_err(|error| DecodeError::Snapshot(error.to_string()))?;
    let mut capture = Capture::default();
    for buffer in &snapshot.buffers {
        let failed = |source| DecodeError::Io { path: buffer.path.clone(), source };
        let file = Arc::new(File::open(&buffer.path).map_err(failed)?);
        let bytes = file.metadata().map_err(failed)?.len();
        let pieces = vec![Piece { at: 0, bytes, is_apart: false }];
        let stream = |name: String, kind, frames| Stream {
            name,
            kind,
            frames,
            file: file.clone(),
            pieces: pieces.clone(),
            cpu: None,
            threads: Vec::new(),
            clock_hz: settings.clock_hz,
        };
        let of_buffer: Vec<&Source> =
            buffer.sources.iter().filter_map(|name| snapshot.source(name)).collect();
        let framing = match buffer.format {
            Format::Source => {
                for source in &of_buffer {
                    match kind(&snapshot, source) {
                        Some(kind) => capture.streams.push(stream(source.name.clone(), kind, None)),
                        None => capture.notes.push(passed_over(source)),
                    }
                }
                continue;
            }
            Format::Frames => Framing::Memory,
            Format::Dstream => Framing::Dstream,
        };
        for (id, bytes) in sources(&file, &pieces, framing).map_err(failed)? {
            let source = of_buffer.iter().find(|source| source.trace_id() == Some(id));
            match source.map(|source| (source, kind(&snapshot, source))) {
                Some((source, Some(kind))) => {
                    let name = format!("{} (source {id:#x})", source.name);
                    capture.streams.push(stream(name, kind, Some((framing, id))));
                }
                Some((source, None)) => capture.notes.push(passed_over(source)),
                None => capture.notes.push(format!(
                    "source {id:#x} with {bytes} bytes in {} is not described by the snapshot",
                    buffer.name
                )),
            }
        }
    }
    if capture.streams.is_empty() {
        let why = if capture.notes.is_empty() { "no buffer".to_owned() } else { capture.notes.join("; ") };
        return Err(DecodeError::Nothing { path: path.to_owned(), why });
    }
    Ok(capture)
}

fn passed_over(source: &Source) -> String {
    format!("{} is of {}, which is not decoded", source.name, source.kind)
}

fn kind(snapshot: &Snapshot, source: &Source) -> Option<StreamKind> {
    if source.is_etm4() {
        return Some(StreamKind::Etm4(source.etm4_config(snapshot.core_of(source))));
    }
    let kind = source.kind.to_ascii_uppercase();
    match kind {
        kind if kind.starts_with("STM") => Some(StreamKind::Stp),
        kind if kind.starts_with("ITM") => Some(StreamKind::Itm),
        _ => None,
    }
}

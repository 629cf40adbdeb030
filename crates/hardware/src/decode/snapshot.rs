// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot directory in OpenCSD's form as a capture.

use super::clock::Conversion;
use super::open::{Capture, DecodeError, Piece, Settings, Stream, StreamKind, Unit, sources};
use crate::coresight::Framing;
use crate::coresight::snapshot::{Core, DumpFiles, Format, Snapshot, Source};
use crate::etm::Image;
use crate::program::{Memory, Program};
use rtscope_ctf::{Links, open_regular};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub(super) fn open(path: &Path, settings: &Settings) -> Result<Capture, DecodeError> {
    let snapshot = Snapshot::read(path).map_err(|error| DecodeError::Snapshot(error.to_string()))?;
    let mut capture = Capture { clock: "the units' counter".to_owned(), ..Capture::default() };
    let named = settings.memory()?;
    let mut processors = Processors::default();
    for buffer in &snapshot.buffers {
        let failed = |source| DecodeError::Io { path: buffer.path.clone(), source };
        let file = Arc::new(open_regular(&buffer.path, Links::Follow).map_err(failed)?);
        let bytes = file.metadata().map_err(failed)?.len();
        let pieces = vec![Piece { at: 0, bytes, is_apart: false }];
        let stream = |name: String, kind, frames, (memory, image): Known| Stream {
            name,
            kind,
            frames,
            file: file.clone(),
            pieces: pieces.clone(),
            cpu: None,
            threads: Arc::default(),
            clock: Conversion::at(settings.clock_hz),
            memory,
            image,
        };
        let of_buffer: Vec<&Source> =
            buffer.sources.iter().filter_map(|name| snapshot.source(name)).collect();
        let framing = match buffer.format {
            Format::Source => {
                for source in &of_buffer {
                    match kind(&snapshot, source, settings) {
                        Some(kind) => {
                            let known = processors.known(&snapshot, source, &named, &mut capture.notes);
                            capture.streams.push(stream(source.name.clone(), kind, None, known));
                        }
                        None => capture.notes.push(passed_over(source)),
                    }
                }
                continue;
            }
            Format::Frames => Framing::Memory,
            Format::Dstream => Framing::Dstream,
        };
        // Data before the first frame that is whole looks like that of other sources.
        let (mut strangers, mut strange_bytes) = (0u64, 0);
        for (id, bytes) in sources(&file, &pieces, framing).map_err(failed)? {
            let source = of_buffer.iter().find(|source| source.trace_id() == Some(id));
            match source.map(|source| (source, kind(&snapshot, source, settings))) {
                Some((source, Some(kind))) => {
                    let name = format!("{} (source {id:#x})", source.name);
                    let known = processors.known(&snapshot, source, &named, &mut capture.notes);
                    capture.streams.push(stream(name, kind, Some((framing, id)), known));
                }
                Some((source, None)) => capture.notes.push(passed_over(source)),
                None => {
                    strangers += 1;
                    strange_bytes += bytes;
                }
            }
        }
        if strangers > 0 {
            capture.notes.push(format!(
                "{} with {strange_bytes} bytes in {} {} not described by the snapshot",
                rtscope_event::counted(strangers, "source", "sources"),
                buffer.name,
                if strangers == 1 { "is" } else { "are" }
            ));
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

fn kind(snapshot: &Snapshot, source: &Source, settings: &Settings) -> Option<StreamKind> {
    let core = snapshot.core_of(source);
    if source.is_etm4() {
        return Some(StreamKind::Etm4(source.etm4_config(core)));
    }
    if source.is_ptm() {
        return Some(StreamKind::Ptm(source.ptm_config()));
    }
    if source.is_etm3() {
        return Some(StreamKind::Etm3(source.etm3_config(core)));
    }
    let kind = source.kind.to_ascii_uppercase();
    match kind {
        kind if kind.starts_with("STM") => StreamKind::raw(Unit::Stp, settings),
        kind if kind.starts_with("ITM") => Some(StreamKind::Itm),
        _ => None,
    }
}

/// What is known of a processor's memory.
type Known = (Arc<Memory>, Option<Image>);

/// What was found out of processors: any number of sources may be of one.
#[derive(Default)]
struct Processors {
    files: DumpFiles,
    known: BTreeMap<String, Known>,
}

impl Processors {
    fn known(
        &mut self,
        snapshot: &Snapshot,
        source: &Source,
        named: &Memory,
        notes: &mut Vec<String>,
    ) -> Known {
        let Some(core) = snapshot.core_of(source) else { return (Arc::new(named.clone()), None) };
        if let Some(known) = self.known.get(&core.name) {
            return known.clone();
        }
        let (image, errors) = snapshot.image(core, &mut self.files);
        // The same dump is missing for each processor: it is said once.
        for note in errors.iter().map(ToString::to_string) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let mut memory = named.clone();
        functions(core, &mut memory);
        let known = (Arc::new(memory), Some(image));
        self.known.insert(core.name.clone(), known.clone());
        known
    }
}

/// Dumps are often pieces of the program's file itself, which has the names.
fn functions(core: &Core, memory: &mut Memory) {
    let mut programs: BTreeMap<&Path, Option<Program>> = BTreeMap::new();
    let mut added = BTreeSet::new();
    for dump in &core.dumps {
        let program = programs.entry(&dump.path).or_insert_with(|| Program::read(&dump.path).ok());
        if let Some((program, bias)) =
            program.as_ref().and_then(|program| Some((program, program.bias(dump.address, dump.offset)?)))
        {
            if added.insert((dump.path.as_path(), bias)) {
                memory.functions.add(program, bias);
            }
        }
    }
}

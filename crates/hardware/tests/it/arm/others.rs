// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots in the directory of captures that no list here names: against what OpenCSD's `trc_pkt_lister` says of them now, or
//! said (`expected/opencsd-1.5.5/NAME.ppl`). Where there is neither, that each byte is accounted for.

use super::{captures, decode, oracle};
use crate::captures::{Row, capture, said};
use crate::stp_captures;
use rtscope_hardware::coresight::snapshot::Snapshot;
use std::path::{Path, PathBuf};

/// Of STM and ITM, which other tests compare.
const COMPARED_ELSEWHERE: [&str; 3] =
    ["opencsd/stm_only", "opencsd/stm_only-juno", "stp/synthetic-binary-ts"];

#[test]
fn snapshots_that_no_list_names_are_decoded_as_opencsd_does() {
    let folder = capture!("");
    let mut all = Vec::new();
    snapshots(&folder, 0, &mut all);
    let listed: Vec<PathBuf> = captures::SNAPSHOTS
        .iter()
        .map(|(path, _)| *path)
        .chain(COMPARED_ELSEWHERE)
        .map(|path| folder.join(path))
        .collect();
    all.retain(|path| !listed.contains(path));
    if all.is_empty() {
        rtscope_testkit::skip!("there are no others");
    }
    let mut different = Vec::new();
    for path in &all {
        let name = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
        let snapshot = Snapshot::read(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (index, buffer) in snapshot.buffers.iter().enumerate() {
            let name = match snapshot.buffers.len() {
                1 => name.clone(),
                _ => format!("{name}, {}", buffer.name),
            };
            if !is_decoded(&name, path, index, &snapshot) {
                different.push(name);
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// Directories with a `snapshot.ini`, to a depth that captures have.
fn snapshots(directory: &Path, depth: usize, all: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    if entries.iter().any(|path| path.ends_with("snapshot.ini")) {
        all.push(directory.to_owned());
    }
    for path in entries.iter().filter(|path| path.is_dir() && depth < 6) {
        snapshots(path, depth + 1, all);
    }
}

/// Whether a buffer is decoded as the oracle decodes it, or there is none.
fn is_decoded(name: &str, path: &Path, index: usize, snapshot: &Snapshot) -> bool {
    let buffer = &snapshot.buffers[index];
    let of_name = path.file_name().unwrap().to_string_lossy();
    let kept = (index == 0).then(|| said(&format!("opencsd-1.5.5/{of_name}.ppl"))).flatten();
    let (by, listing) = match kept {
        Some(listing) => ("OpenCSD 1.5.5", Ok(listing)),
        None => ("OpenCSD", oracle::asked(path, buffer)),
    };
    let listing = match listing {
        Ok(listing) => listing,
        Err(notes) => {
            let found = decode::snapshot(path, index);
            let input = found.values().map(|found| found.input).sum();
            let lost = found.values().map(|found| found.unused).sum();
            let (unit, notes) = (&*decode::units_of(path, index), &*notes);
            Row { capture: name, unit, oracle: "", compared: &[], bytes: Some((input, lost)), notes }.print();
            return true;
        }
    };
    let is_stm = |name: &String| snapshot.source(name).is_some_and(|source| source.kind.starts_with("STM"));
    if !buffer.sources.is_empty() && buffer.sources.iter().all(is_stm) {
        let bytes = std::fs::read(&buffer.path).unwrap();
        let stream = match buffer.format.framing() {
            None => bytes,
            Some(framing) => {
                let source = snapshot.source(&buffer.sources[0]).unwrap();
                decode::data_of(framing, &bytes, source.trace_id().unwrap())
            }
        };
        stp_captures::agrees(name, &stream, &listing);
        return true;
    }
    captures::compare(name, by, path, index, oracle::listing(&listing))
}

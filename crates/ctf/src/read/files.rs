// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files a trace has, and the metadata's text from either of its two forms.

use crate::Error;
use crate::regular::{Links, open_regular};
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// First word of each packet of packetized metadata.
const METADATA_MAGIC: u32 = 0x75d1_1d57;
const METADATA_HEADER_BYTES: usize = 37;
/// The largest metadata that is read: of a whole kernel's tracepoints it is 2 MB.
pub(super) const METADATA_BYTES_MAX: u64 = 64 << 20;

/// The largest metadata of all traces that are read together: each byte of usual events takes ten of memory.
pub(super) const ALL_METADATA_BYTES_MAX: u64 = 256 << 20;
/// What a trace takes at least, counted as its metadata.
const TRACE_BYTES_MIN: u64 = 16 << 10;

/// What is left for the metadata of traces that are read together.
#[derive(Debug)]
pub(super) struct Room(u64);

impl Room {
    pub(super) fn new() -> Room {
        Room(ALL_METADATA_BYTES_MAX)
    }

    /// Takes the room of one more trace.
    pub(super) fn take(&mut self, dir: &Path, metadata_bytes: usize) -> Result<(), Error> {
        let needed = (metadata_bytes as u64).max(TRACE_BYTES_MIN);
        self.0 = self.0.checked_sub(needed).ok_or_else(|| Error::Metadata {
            path: dir.join("metadata"),
            line: 1,
            what: "with it all traces here have more than 256 MiB of metadata; read some of them at a time"
                .to_owned(),
        })?;
        Ok(())
    }
}

/// The directory with the metadata: `dir`, or `dir/kernel` (a snapshot's directory, or an LTTng session's).
pub(super) fn trace_dir(dir: &Path) -> Result<PathBuf, Error> {
    let inside = dir.join("kernel");
    for candidate in [dir, &inside] {
        if has_metadata(candidate)? {
            return Ok(candidate.to_owned());
        }
    }
    Err(Error::NoTrace(dir.to_owned()))
}

/// What may not be looked at is not called missing.
fn has_metadata(dir: &Path) -> Result<bool, Error> {
    let path = dir.join("metadata");
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::io("read", &path)(error)),
        found => Ok(found.is_ok_and(|found| found.is_file())),
    }
}

/// The directories of all traces in `path`: itself, or all below it with metadata, as in babeltrace2.
pub(super) fn trace_dirs(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    if has_metadata(path)? {
        found.push(path.to_owned());
    } else if path.is_dir() {
        below(path, 0, &mut found)?;
    }
    found.sort();
    if found.is_empty() { Err(Error::NoTrace(path.to_owned())) } else { Ok(found) }
}

/// Deeper than the directories of any tracing session.
const MAX_DEPTH: u32 = 16;

fn below(dir: &Path, depth: u32, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        let path = entry.path();
        // A link may lead upwards.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if path.join("metadata").is_file() {
            found.push(path.clone());
        }
        if depth < MAX_DEPTH {
            below(&path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// The data streams' files by name: every regular file that is not hidden, as for other readers.
pub(super) fn stream_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        let has_data = || fs::metadata(entry.path()).is_ok_and(|data| data.is_file() && data.len() > 0);
        if !hidden && name != "metadata" && has_data() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The metadata's text.
pub(crate) fn metadata_text(path: &Path) -> Result<String, Error> {
    let fault = |what: &str| Error::Metadata { path: path.to_owned(), line: 1, what: what.to_owned() };
    let mut bytes = Vec::new();
    open_regular(path, Links::Follow)
        .and_then(|file| file.take(METADATA_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(Error::io("read", path))?;
    if bytes.len() as u64 > METADATA_BYTES_MAX {
        return Err(fault("the metadata is larger than 64 MiB, which no tracer writes"));
    }
    let text = if bytes.starts_with(&METADATA_MAGIC.to_le_bytes()) {
        unpack(&bytes, u32::from_le_bytes).ok_or_else(|| fault("a packet of the metadata is cut short"))?
    } else if bytes.starts_with(&METADATA_MAGIC.to_be_bytes()) {
        unpack(&bytes, u32::from_be_bytes).ok_or_else(|| fault("a packet of the metadata is cut short"))?
    } else if bytes.first() == Some(&0x1e) {
        return Err(fault("this is CTF 2; only CTF 1.8 is supported"));
    } else {
        bytes
    };
    String::from_utf8(text).map_err(|_| fault("the metadata is not UTF-8 text"))
}

/// Joins the text of metadata packets: magic, uuid (16), checksum (4), content and packet size in bits (4 each), ...
fn unpack(bytes: &[u8], word: impl Fn([u8; 4]) -> u32) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        let size_at = |at: usize| Some(word(rest.get(at..at + 4)?.try_into().ok()?) as usize / 8);
        let content = size_at(24)?;
        let packet = size_at(28)?;
        if packet < METADATA_HEADER_BYTES {
            return None;
        }
        text.extend_from_slice(rest.get(METADATA_HEADER_BYTES..content)?);
        rest = rest.get(packet..)?;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_that_are_read_together_have_a_bounded_amount_of_metadata() {
        let mut room = Room::new();
        let taken = |room: &mut Room, bytes: usize| {
            (0..).take_while(|_| room.take(Path::new("t"), bytes).is_ok()).count()
        };
        assert_eq!(taken(&mut room, 60 << 20), 4);
        // However little it is, a trace takes something.
        assert_eq!(taken(&mut room, 0), 1024);
        let refused = room.take(Path::new("t"), 0).unwrap_err().to_string();
        assert!(refused.contains("some of them at a time"), "{refused}");
    }

    #[test]
    fn packets_of_metadata_are_joined() {
        let mut bytes = Vec::new();
        for text in ["abc", "de"] {
            let mut packet = vec![0; 64];
            packet[..4].copy_from_slice(&METADATA_MAGIC.to_be_bytes());
            packet[24..28].copy_from_slice(&((37 + u32::try_from(text.len()).unwrap()) * 8).to_be_bytes());
            packet[28..32].copy_from_slice(&(64u32 * 8).to_be_bytes());
            packet[37..37 + text.len()].copy_from_slice(text.as_bytes());
            bytes.extend(packet);
        }
        assert_eq!(unpack(&bytes, u32::from_be_bytes).unwrap(), b"abcde");
        assert_eq!(unpack(&bytes[..100], u32::from_be_bytes), None);
        bytes[28..32].fill(0);
        assert_eq!(unpack(&bytes, u32::from_be_bytes), None);
    }
}

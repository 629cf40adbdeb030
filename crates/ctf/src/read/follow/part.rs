// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory of a trace that grows: its metadata, and files that appear in it.

use super::super::files::METADATA_BYTES_MAX;
use crate::Error;
use crate::regular::{Links, inside, open_directory, open_regular};
use crate::write::RingFileName;
use rtscope_event::exact::index;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const METADATA: &str = "metadata";

/// One of the directories that a recording becomes.
#[derive(Debug)]
pub(super) struct Part {
    /// The directory itself, whatever its name is by now.
    directory: File,
    /// Where it was found.
    growing: PathBuf,
    /// Where it will be.
    complete: PathBuf,
    /// It has its name, or says that it is complete.
    pub(super) is_complete: bool,
    /// It is at neither place: it was removed, or replaced by another.
    pub(super) is_gone: bool,
    /// Device and number of the directory.
    identity: (u64, u64),
    pub(super) metadata: Metadata,
    /// Index of its trace.
    pub(super) trace: usize,
    known: HashSet<OsString>,
}

impl Part {
    /// Opens what is at one of the two places; `None` while nothing is there.
    pub(super) fn open(growing: &Path, complete: &Path, trace: usize) -> Result<Option<Part>, Error> {
        for directory in [growing, complete] {
            let path = directory.join(METADATA);
            let opened = open_directory(directory).and_then(|opened| {
                let file = open_regular(&inside(&opened).join(METADATA), Links::Follow)?;
                Ok((opened, file))
            });
            match opened {
                Ok((opened, file)) => {
                    let identity = identity(&opened).map_err(Error::io("look at", directory))?;
                    return Ok(Some(Part {
                        directory: opened,
                        growing: growing.to_owned(),
                        complete: complete.to_owned(),
                        is_complete: directory == complete,
                        is_gone: false,
                        identity,
                        metadata: Metadata { path, file, read: 0, text: String::new(), is_new: false },
                        trace,
                        known: HashSet::new(),
                    }));
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(Error::io("open", &path)(error)),
            }
        }
        Ok(None)
    }

    /// Whether it becomes this directory.
    pub(super) fn is_of(&self, target: &Path) -> bool {
        self.complete == target
    }

    /// Finds out what has become of the directory and its metadata.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        let is_at = |path: &Path| {
            open_directory(path).and_then(|found| identity(&found)).is_ok_and(|found| found == self.identity)
        };
        // In this order: it may be renamed between the two.
        if !self.is_complete && !is_at(&self.growing) {
            self.is_complete = is_at(&self.complete);
            self.is_gone = !self.is_complete;
        }
        // Of a recording that was killed, somebody has made a trace.
        let path = self.inside().join(METADATA);
        if let Ok(file) = open_regular(&path, Links::Follow) {
            let failed = Error::io("look at", &path);
            let is_same = identity(&file).and_then(|found| Ok(found == identity(&self.metadata.file)?));
            if !is_same.map_err(failed)? {
                (self.metadata.file, self.metadata.read) = (file, 0);
                self.metadata.text.clear();
            }
        }
        Ok(())
    }

    /// A path to the directory that stays valid when it is renamed.
    fn inside(&self) -> PathBuf {
        inside(&self.directory)
    }

    /// Opens a file that was found in it.
    pub(super) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        open_regular(&self.inside().join(name), Links::Follow)
    }

    /// Streams' files that are not known, if they have something in them.
    pub(super) fn new_files(&mut self) -> Result<Vec<(OsString, PathBuf)>, Error> {
        let directory = if self.is_complete { &self.complete } else { &self.growing };
        let failed = |error| Error::io("list", directory)(error);
        let entries = match fs::read_dir(self.inside()) {
            Ok(entries) => entries,
            // It was removed.
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut files = Vec::new();
        let mut known = HashSet::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if self.known.contains(&name) {
                known.insert(name);
                continue;
            }
            let is_ours = !name.as_encoded_bytes().starts_with(b".") && name != METADATA;
            let has_data = || fs::metadata(entry.path()).is_ok_and(|data| data.is_file() && data.len() > 0);
            if is_ours && has_data() {
                let shown = directory.join(&name);
                files.push((name, shown));
            }
        }
        // Others were removed: a ring of files may go on for ever.
        self.known = known;
        // Of each stream in a ring the oldest file first.
        files.sort_by_cached_key(|(name, path): &(OsString, PathBuf)| {
            let file = name.to_str().and_then(RingFileName::parse);
            (file.map(|(_, file)| file.number), path.clone())
        });
        Ok(files)
    }

    pub(super) fn know(&mut self, name: OsString) {
        self.known.insert(name);
    }
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|data| (data.dev(), data.ino()))
}

/// Metadata that grows (`write/growing.rs`).
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) path: PathBuf,
    file: File,
    /// Up to here it is in `text`.
    read: u64,
    pub(super) text: String,
    /// More has come since somebody made use of it.
    pub(super) is_new: bool,
}

impl Metadata {
    /// Takes the lines that are complete by now; whether there are any that nobody has made use of.
    pub(super) fn more(&mut self) -> Result<bool, Error> {
        let length = self.file.metadata().map_err(Error::io("look at", &self.path))?.len();
        if length <= self.read {
            return Ok(self.is_new);
        }
        let fault = |what: &str| Error::Metadata { path: self.path.clone(), line: 1, what: what.to_owned() };
        if length > METADATA_BYTES_MAX {
            return Err(fault("the metadata is larger than 64 MiB, which no tracer writes"));
        }
        let mut bytes = vec![0; index(length - self.read)];
        let mut have = 0;
        while have < bytes.len() {
            match self.file.read_at(bytes.get_mut(have..).unwrap_or_default(), self.read + have as u64) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", &self.path)(error)),
            }
        }
        bytes.truncate(have);
        let taken = complete_lines(&bytes);
        let text = std::str::from_utf8(bytes.get(..taken).unwrap_or_default());
        self.text.push_str(text.map_err(|_| fault("the metadata is not UTF-8 text"))?);
        self.read += taken as u64;
        self.is_new |= taken > 0;
        Ok(self.is_new)
    }
}

/// Length of the lines before the first one that may still change: without its end, of blanks only, or a comment.
fn complete_lines(bytes: &[u8]) -> usize {
    let is_complete = |line: &&[u8]| {
        let Some(line) = line.strip_suffix(b"\n") else { return false };
        let text = line.trim_ascii_start();
        line.is_empty() || !(text.is_empty() || text.starts_with(b"/") && !text.starts_with(b"/*"))
    };
    bytes.split_inclusive(|byte| *byte == b'\n').take_while(is_complete).map(<[u8]>::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_may_change_are_left() {
        let taken = |text: &str| complete_lines(text.as_bytes());
        assert_eq!(taken("/* CTF 1.8 */\n\na {\n};\n"), 22);
        for rest in ["  \n", "//e\n", "  ev", "", " // event {\n  event {};\n", "/ event {\n", "   \n  x;\n"]
        {
            assert_eq!(taken(&format!("a {{ }};\n{rest}")), 7, "{rest:?}");
        }
        assert_eq!(taken("  event { };\n"), 13);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metadata that is complete for what is in the streams, at every instant, and grows by appending only.
//!
//! The file appears with its beginning in it. Declarations are appended as lines, each in four steps, of which a kill may cut any:
//!
//! 1. blanks and a newline behind the last line: blanks mean nothing, however many they are;
//! 2. `//` at the beginning of that line, within a page (see `followed`): it is a comment;
//! 3. the declaration behind it, still a part of the comment;
//! 4. two blanks in place of `//`: it is there.
//!
//! # What a reader may rely on
//!
//! - A class is declared before an event of it is in a stream, and what has been declared does not change. A line that begins with `//`
//!   does: who reads while the file grows reads up to it, and continues there.
//! - `env` comes twice in the trace of a recording that has ended in order: `rtscope_format` and what is known only at the end (losses by
//!   cause among it) come last. Without `rtscope_format` the recording goes on or was killed, and what was lost is not known beyond
//!   `events_discarded`. (Readers join the blocks: babeltrace2 2.0.4 and ours do.)
//! - The directory has its final name once everything is in it.

use super::followed::{PAGE_BYTES, whole_pages};
use super::ring::RingTrace;
use crate::Error;
use nix::fcntl::OFlag;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Readers leave out names that begin with a point.
const HIDDEN: &str = ".metadata";
const NAME: &str = "metadata";
const COMMENT: &[u8; 2] = b"//";
/// Larger metadata was never written: what programs can describe is limited.
const BYTES_MAX: u64 = 1 << 30;
/// How the last line begins.
const END: &[u8] = b"env { rtscope_format =";

/// The metadata of a trace that is being written.
#[derive(Debug)]
pub(super) struct GrowingMetadata {
    file: File,
    directory: PathBuf,
    bytes: u64,
    is_public: bool,
    /// It counts towards the limit of these files.
    ring: Option<RingTrace>,
}

impl GrowingMetadata {
    /// The beginning, in a file that readers do not see yet.
    pub(super) fn create(
        directory: &Path,
        beginning: &str,
        ring: Option<RingTrace>,
    ) -> Result<GrowingMetadata, Error> {
        let path = directory.join(HIDDEN);
        // Of a writer that was killed.
        let _ = fs::remove_file(&path);
        let mut file = File::create_new(&path).map_err(Error::io("make the file", &path))?;
        let bytes = beginning.len() as u64;
        let room = ring.as_ref().map_or(Ok(()), |ring| ring.hold(whole_pages(bytes)));
        let written = room.and_then(|()| file.write_all(beginning.as_bytes()));
        written.map_err(Error::io("write", &path))?;
        Ok(GrowingMetadata { file, directory: directory.to_owned(), bytes, is_public: false, ring })
    }

    /// Of a writer that was killed. Also returns whether it had come to its end.
    pub(super) fn reopen(directory: &Path) -> Result<(GrowingMetadata, bool), Error> {
        let path = directory.join(NAME);
        let file = open_left(&path)?;
        let mut text = Vec::new();
        (&file).take(BYTES_MAX).read_to_end(&mut text).map_err(Error::io("read", &path))?;
        if text.len() as u64 == BYTES_MAX {
            return Err(Error::io("read", &path)(io::ErrorKind::FileTooLarge.into()));
        }
        let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_start);
        let is_finished = lines.any(|line| line.starts_with(END));
        let (bytes, directory) = (text.len() as u64, directory.to_owned());
        Ok((GrowingMetadata { file, directory, bytes, is_public: true, ring: None }, is_finished))
    }

    /// Where it is, and the files of the streams are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What limits the trace's size.
    pub(super) fn ring(&self) -> Option<&RingTrace> {
        self.ring.as_ref()
    }

    /// Gives it its name; other metadata is replaced.
    pub(super) fn publish(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_public, true) {
            fs::rename(self.directory.join(HIDDEN), self.directory.join(NAME))?;
        }
        Ok(())
    }

    /// Appends declarations, each as a line; between two of them there is an empty line. They have no comments, and no text with a newline.
    pub(super) fn append(&mut self, declarations: &str) -> io::Result<()> {
        let one = |declaration: &str| {
            let parts = declaration.lines().map(str::trim_start).filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join(" ")
        };
        let mut lines = declarations.split("\n\n").map(one).filter(|line| !line.is_empty());
        lines.try_for_each(|line| self.append_line(&line))
    }

    fn append_line(&mut self, line: &str) -> io::Result<()> {
        // Both signs of the comment are to be in one page.
        let before = u64::from(self.bytes % PAGE_BYTES == PAGE_BYTES - 1);
        let begin = self.bytes + before;
        let length = COMMENT.len() + line.len();
        let mut blanks = vec![b' '; usize::from(before > 0) + length];
        blanks.push(b'\n');
        if let Some(ring) = &self.ring {
            ring.hold(whole_pages(self.bytes + blanks.len() as u64) - whole_pages(self.bytes))?;
        }
        self.file.write_all_at(&blanks, self.bytes)?;
        self.file.write_all_at(COMMENT, begin)?;
        self.file.write_all_at(line.as_bytes(), begin + COMMENT.len() as u64)?;
        self.file.write_all_at(b"  ", begin)?;
        self.bytes += blanks.len() as u64;
        Ok(())
    }

    /// Waits until it is on the disk, under its name. Returns its size.
    pub(super) fn finish(&mut self) -> io::Result<u64> {
        self.file.sync_all()?;
        self.publish()?;
        Ok(self.bytes)
    }
}

/// Opens a file that a killed writer of ours has left: nothing else is changed, whatever has been put in its place.
pub(super) fn open_left(path: &Path) -> Result<File, Error> {
    // A pipe would wait for somebody who reads it.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).write(true).custom_flags(flags.bits()).open(path);
    let file = file.map_err(Error::io("open", path))?;
    let found = file.metadata().map_err(Error::io("look at", path))?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(Error::io("use", path)(io::Error::other("it is not the file that a recording made")));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_appended_as_lines_wherever_a_page_ends() {
        let directory = tempfile::tempdir().unwrap();
        for beginning in 4080..4100 {
            let mut metadata =
                GrowingMetadata::create(directory.path(), &"\n".repeat(beginning), None).unwrap();
            metadata.append("event {\n\tname = \"a  b\";\n};\n\nenv {\n};\n").unwrap();
            let bytes = metadata.finish().unwrap();
            let text = fs::read_to_string(directory.path().join(NAME)).unwrap();
            assert_eq!(text.len() as u64, bytes);
            assert_eq!(text.trim(), "event { name = \"a  b\"; };\n  env { };", "{beginning}");
        }
    }
}

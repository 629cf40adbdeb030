// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the packets of a stream are written to, while a recording goes on and after it: a file, or one after another of a ring.

use super::followed::GrowingFile;
use super::packet::PacketOutput;
use super::reserved::ReservedFile;
use super::ring::{CompleteFile, FileContent, FileRing, RingAccount};
use crate::Error;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a stream's files are.
#[derive(Debug)]
struct RingPlace {
    ring: FileRing,
    /// Of the trace in the ring.
    trace: usize,
    path: PathBuf,
    directory: Arc<File>,
    name: String,
    /// Of the current file.
    number: u64,
    /// On which files are that begin now, and its generation.
    account: RingAccount,
    latest: Arc<AtomicU64>,
    /// Those that the current file is of.
    file_account: RingAccount,
    generation: u64,
    /// What the current file takes.
    held: u64,
    /// Events of the stream before it, without those of state dumps.
    events: u64,
}

impl RingPlace {
    /// The generation that is being written.
    fn latest(&self) -> u64 {
        // ORDER: relaxed; see Account::generation().
        self.latest.load(Ordering::Relaxed)
    }

    fn file_name(&self) -> String {
        format!("{}_{}_{}", self.name, self.number, self.events)
    }
}

/// What a stream is written to: a file, or several of a ring.
#[derive(Debug)]
pub(super) struct StreamFile {
    /// `None` before the first packet of a file of a ring.
    file: Option<ReservedFile>,
    place: Option<RingPlace>,
}

impl StreamFile {
    /// One file for all.
    pub(super) fn single(file: File) -> StreamFile {
        StreamFile { file: Some(ReservedFile::new(file)), place: None }
    }

    /// The files of a stream of a ring's trace in this directory; their names begin with `name`. They are on the recorder's own account.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub(super) fn of_ring(
        ring: &FileRing,
        trace: usize,
        directory: &Path,
        name: &str,
    ) -> Result<StreamFile, Error> {
        let opened = File::open(directory).map_err(Error::io("open", directory))?;
        let place = RingPlace {
            ring: ring.clone(),
            trace,
            path: directory.to_owned(),
            directory: Arc::new(opened),
            name: name.to_owned(),
            number: 0,
            account: None,
            latest: ring.latest(None),
            file_account: None,
            generation: 0,
            held: 0,
            events: 0,
        };
        Ok(StreamFile { file: None, place: Some(place) })
    }

    /// After the last packet.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.place.is_some() {
            return Ok(());
        }
        self.file.take().map_or(Ok(()), ReservedFile::finish)
    }

    /// What follows is on this account, in other files of a ring.
    pub(super) fn set_account(&mut self, account: RingAccount) {
        if let Some(place) = &mut self.place {
            (place.account, place.latest) = (account, place.ring.latest(account));
        }
    }

    fn file(&mut self) -> io::Result<&mut ReservedFile> {
        let missing = || io::Error::other("a stream has no file");
        if let (None, Some(place)) = (&self.file, &mut self.place) {
            let path = place.path.join(place.file_name());
            (place.file_account, place.generation) = (place.account, place.latest());
            self.file = Some(ReservedFile::plain(File::create_new(path)?));
        }
        self.file.as_mut().ok_or_else(missing)
    }
}

impl GrowingFile for StreamFile {
    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file()?.rewrite(at, bytes)
    }

    fn rewrite_both(&mut self, at: u64, pieces: [&[u8]; 2]) -> io::Result<()> {
        self.file()?.rewrite_both(at, pieces)
    }

    fn extend(&mut self, pages: &[u8]) -> io::Result<usize> {
        let is_begun = self.file.is_some();
        if let Some(place) = &mut self.place {
            let account = if is_begun { place.file_account } else { place.account };
            place.ring.add(account, pages.len() as u64)?;
            place.held += pages.len() as u64;
        }
        self.file()?.extend(pages)
    }

    fn most_ahead(&self) -> u64 {
        self.packet_bytes()
    }

    fn cut(&mut self, at: u64) -> io::Result<()> {
        if let Some(place) = &mut self.place {
            place.ring.give_back(place.held.saturating_sub(at), place.file_account, place.generation);
            place.held = place.held.min(at);
        }
        self.file()?.cut(at)
    }
}

impl Write for StreamFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.file()?.write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PacketOutput for StreamFile {
    fn packet_bytes(&self) -> u64 {
        self.place.as_ref().map_or(u64::MAX, |place| place.ring.packet_bytes())
    }

    fn is_due(&self) -> bool {
        let is_other = |place: &RingPlace| self.file.is_some() && place.file_account != place.account;
        self.place.as_ref().is_some_and(|place| place.generation != place.latest() || is_other(place))
    }

    fn next_file(&mut self, content: FileContent, events: u64) -> io::Result<()> {
        let Some(place) = &mut self.place else { return Ok(()) };
        let latest = place.latest();
        let generation = std::mem::replace(&mut place.generation, latest);
        let Some(file) = self.file.take() else { return Ok(()) };
        let complete = CompleteFile {
            directory: Arc::clone(&place.directory),
            name: place.file_name(),
            trace: place.trace,
            account: place.file_account,
            generation,
            // As the disk has it: a file system may need more than the content.
            bytes: file.blocks()?.max(place.held),
            content,
        };
        place.ring.complete(complete, place.held);
        place.number += 1;
        (place.held, place.events) = (0, events);
        Ok(())
    }
}

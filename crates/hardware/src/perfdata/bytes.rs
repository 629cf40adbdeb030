// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes at places: a file, memory, or what came through a pipe and was kept in a file without a name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Something that can be read at any place.
pub trait ReadAt {
    /// Fills as much as there is; fewer bytes only at the end.
    ///
    /// # Errors
    /// When the system refuses.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// How many bytes there are.
    ///
    /// # Errors
    /// When the system refuses.
    fn size(&self) -> io::Result<u64>;
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|from| self.get(from..)).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match FileExt::read_at(self, &mut into[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, into)
    }

    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, into)
    }

    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }
}

/// What a pipe sent, in a temporary file that has no name.
#[derive(Debug)]
pub struct Spooled(File);

impl Spooled {
    /// Takes all that comes.
    ///
    /// # Errors
    /// When it cannot be read or written (a full disk).
    pub fn new(mut from: impl Read) -> io::Result<Spooled> {
        let mut file = tempfile::tempfile()?;
        io::copy(&mut from, &mut file)?;
        file.flush()?;
        Ok(Spooled(file))
    }

    /// The file.
    #[must_use]
    pub fn into_file(self) -> File {
        self.0
    }
}

/// A window on bytes that are read from front to back.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    /// Where its first byte is.
    at: u64,
}

impl Window {
    const BYTES: usize = 256 << 10;

    /// `count` bytes from `offset` on; `None` where there are fewer. More than a record can have is never asked for.
    pub(super) fn get(
        &mut self,
        input: &impl ReadAt,
        offset: u64,
        count: usize,
    ) -> io::Result<Option<&[u8]>> {
        let begins_in = offset.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok());
        let is_there =
            begins_in.is_some_and(|skip| skip.checked_add(count).is_some_and(|end| end <= self.bytes.len()));
        if !is_there {
            self.bytes.resize(count.max(Window::BYTES), 0);
            let read = input.read_at(offset, &mut self.bytes)?;
            self.bytes.truncate(read);
            self.at = offset;
        }
        let skip = usize::try_from(offset - self.at).unwrap_or(usize::MAX);
        Ok(self.bytes.get(skip..).and_then(|rest| rest.get(..count)))
    }
}

/// Takes numbers from bytes, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'b>(pub(super) &'b [u8]);

impl<'b> Cursor<'b> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
    }

    /// Text up to a NUL, or to the end.
    pub(super) fn text(&mut self) -> &'b [u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = &self.0[..end];
        self.0 = &self.0[end..];
        text
    }
}

/// A word of an array of words.
pub(super) fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let from = index.checked_mul(8)?;
    bytes.get(from..from.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

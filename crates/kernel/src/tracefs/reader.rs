// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one CPU's raw pages.
//!
//! Whole pages are spliced: the kernel hands them over without copying, through a pipe into the file. The last page, which
//! is still being filled, can only be read, which copies it. Neither waits. Nothing is waited for at all by default: a
//! waiting reader costs each writer an interrupt to wake it, a reader that looks now and then costs them nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Wanted for the pipe: as many pages in flight. The default is 64 KiB; root may have more than `pipe-max-size`.
const PIPE_BYTES: libc::c_int = 1 << 20;

/// One CPU's `trace_pipe_raw`.
#[derive(Debug)]
pub struct RawReader {
    cpu: u32,
    raw: File,
    page_bytes: usize,
    from_pipe: File,
    to_pipe: OwnedFd,
    pipe_bytes: usize,
    /// Bytes in the pipe that the file did not take yet.
    pending: usize,
    /// The target cannot be spliced to.
    copies: bool,
}

impl RawReader {
    pub(super) fn open(cpu: u32, path: &Path, page_bytes: usize) -> io::Result<RawReader> {
        let raw = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let mut ends = [0; 2];
        // SAFETY: the array has room for the two descriptors that pipe2 writes.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pipe2 succeeded, so this descriptor is open and nobody else's.
        let from_pipe = unsafe { OwnedFd::from_raw_fd(ends[0]) };
        // SAFETY: as above, the other end.
        let to_pipe = unsafe { OwnedFd::from_raw_fd(ends[1]) };
        let pipe_bytes = largest_pipe(&to_pipe);
        Ok(RawReader {
            cpu,
            raw,
            page_bytes,
            from_pipe: File::from(from_pipe),
            to_pipe,
            pipe_bytes,
            pending: 0,
            copies: false,
        })
    }

    /// Whose buffer it is.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Readable when the buffer is filled to the instance's `buffer_percent`. Waiting for it makes writers wake the reader.
    #[must_use]
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }

    /// Moves all whole pages to the end of `out` (at its own position; it must not be opened for appending), and says how
    /// many bytes. Does not wait. After an error of `out` (a full disk) the pages that were on their way stay in the pipe
    /// and go out first the next time.
    ///
    /// # Errors
    /// What the system says of `out` or of the buffer.
    pub fn splice_to(&mut self, out: &File) -> io::Result<u64> {
        self.splice_some(out, u64::MAX)
    }

    /// The same for at most `most` bytes.
    ///
    /// # Errors
    /// As [`RawReader::splice_to`].
    pub fn splice_some(&mut self, out: &File, most: u64) -> io::Result<u64> {
        let mut moved = self.empty_pipe(out)?;
        loop {
            let left = usize::try_from(most.saturating_sub(moved)).unwrap_or(usize::MAX);
            let room = self.pipe_bytes.min(left) / self.page_bytes * self.page_bytes;
            if room == 0 {
                return Ok(moved);
            }
            let taken = match splice(self.raw.as_raw_fd(), self.to_pipe.as_raw_fd(), room) {
                Ok(0) => return Ok(moved),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.pending += taken;
            moved += self.empty_pipe(out)?;
        }
    }

    /// Bytes that were taken from the kernel and not yet written, because `out` had an error.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending
    }

    fn empty_pipe(&mut self, mut out: &File) -> io::Result<u64> {
        let before = self.pending;
        while self.pending > 0 {
            if self.copies {
                let mut buffer = [0; 1 << 14];
                let wanted = buffer.len().min(self.pending);
                let bytes = self.from_pipe.read(&mut buffer[..wanted])?;
                self.pending -= bytes;
                out.write_all(&buffer[..bytes])?;
                continue;
            }
            match splice(self.from_pipe.as_raw_fd(), out.as_raw_fd(), self.pending) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.pending -= bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // File systems without splice.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.copies = true,
                Err(error) => return Err(error),
            }
        }
        Ok((before - self.pending) as u64)
    }

    /// Reads one page, also a partly filled one, into `page` (of at least [`RawReader::page_bytes`] bytes); `false`: the
    /// buffer is empty. Does not wait.
    ///
    /// # Errors
    /// What the system says of the buffer.
    pub fn read_page(&mut self, page: &mut [u8]) -> io::Result<bool> {
        loop {
            return match self.raw.read(&mut page[..self.page_bytes]) {
                Ok(0) => Ok(false),
                Ok(bytes) => {
                    page[bytes..self.page_bytes].fill(0);
                    Ok(true)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Reads the next page, also a partly filled one, and writes it to `out` as a whole one. Says how many bytes; 0: the buffer is empty.
    /// Does not wait.
    ///
    /// # Errors
    /// As [`RawReader::splice_to`].
    pub fn flush_to(&mut self, mut out: &File) -> io::Result<u64> {
        let mut page = vec![0; self.page_bytes];
        if !self.read_page(&mut page)? {
            return Ok(0);
        }
        out.write_all(&page)?;
        Ok(self.page_bytes as u64)
    }

    /// Moves everything to `out`, the partly filled page too, and says how many bytes. For the end, when nothing is
    /// recorded any more: otherwise it may never be done.
    ///
    /// # Errors
    /// As [`RawReader::splice_to`].
    pub fn drain_to(&mut self, out: &File) -> io::Result<u64> {
        let mut moved = self.splice_to(out)?;
        loop {
            match self.flush_to(out)? {
                0 => return Ok(moved),
                bytes => moved += bytes,
            }
        }
    }
}

/// Makes the pipe as large as wanted or allowed, and says how large it is.
fn largest_pipe(pipe: &OwnedFd) -> usize {
    let mut wanted = PIPE_BYTES;
    while wanted > 1 << 16 {
        // SAFETY: the descriptor is owned by the argument, and the command takes a plain number.
        if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, wanted) } >= 0 {
            break;
        }
        wanted /= 2;
    }
    // SAFETY: as above; the command has no argument.
    let bytes = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
    usize::try_from(bytes).unwrap_or(1 << 16)
}

fn splice(from: RawFd, to: RawFd, bytes: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: both descriptors are open files of the caller; without offsets the kernel touches no memory of ours.
    let moved = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), bytes, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

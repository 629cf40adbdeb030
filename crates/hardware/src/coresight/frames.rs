// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formatter frames, taken apart.
//!
//! A frame has 16 bytes: those at even places are data or the identifier of a source, those at odd places data, the last one
//! has the low bits of the former (IHI 0029, D4.2). A frame's identifier holds on into the next frame, so nothing is known
//! of data before the first one: it is counted as lost.

use crate::{Lost, LostCause};

/// Bytes of a frame.
pub const FRAME: usize = 16;
/// Bytes of a block of a DSTREAM file, and of the frames in it; the rest is a footer.
const DSTREAM_BLOCK: usize = 512;
const DSTREAM_FRAMES: usize = 504;
const FSYNC: [u8; 4] = [0xFF, 0xFF, 0xFF, 0x7F];
const HSYNC: [u8; 2] = [0xFF, 0x7F];

/// How frames follow each other in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Memory of an ETB, ETF or ETR: frames from the first byte on. Four FSYNC in the place of a frame (a barrier, as the
    /// kernel writes it where a buffer wrapped) are a discontinuity.
    Memory,
    /// The port of a TPIU: FSYNC between frames. Bytes before the first one are lost.
    Fsync,
    /// As [`Framing::Fsync`], with HSYNC between halfwords.
    FsyncHsync,
    /// A file of a DSTREAM probe: as [`Framing::Fsync`], in blocks of 512 bytes of which the last eight are a footer. Offsets do
    /// not count the footers.
    Dstream,
    /// Frames without synchronisation, from the first byte on, as [`super::align`] found them. A frame that cannot be one is
    /// lost, but the next one begins right after it.
    Aligned,
}

/// What a [`Deformatter`] finds.
pub trait FrameSink {
    /// Data of a source. The offset is that of the frame, or within it of the identifier's byte where the source changed: all
    /// the data between identifiers is given at once, so that an offset is exact to 16 bytes.
    fn data(&mut self, id: u8, offset: u64, bytes: &[u8]);
    /// Bytes of the stream that are of no source.
    fn lost(&mut self, lost: Lost);
    /// What comes now does not continue what came before: decoders of all sources have to synchronise again.
    fn discontinuity(&mut self, _offset: u64) {}
}

/// Where the bytes went: [`Counts::input`] is the sum of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Bytes given.
    pub input: u64,
    /// Identifiers, low bits and synchronisation.
    pub framing: u64,
    /// Bytes reported lost.
    pub lost: u64,
    /// Bytes of frames of which the rest has not come yet.
    pub pending: u64,
    data: [u64; 128],
}

impl Counts {
    /// Bytes of data of a source.
    #[must_use]
    pub fn data_bytes(&self, id: u8) -> u64 {
        self.data.get(usize::from(id)).copied().unwrap_or(0)
    }

    /// The sources that had data, padding included.
    pub fn ids(&self) -> impl Iterator<Item = u8> + '_ {
        (0u8..128).filter(|&id| self.data_bytes(id) > 0)
    }

    /// Whether every byte is accounted for.
    #[must_use]
    pub fn balanced(&self) -> bool {
        self.data.iter().sum::<u64>() + self.framing + self.lost + self.pending == self.input
    }
}

/// Takes frames apart, as bytes come.
#[derive(Clone, Debug)]
pub struct Deformatter {
    framing: Framing,
    synchronised: bool,
    id: Option<u8>,
    frame: [u8; FRAME],
    filled: usize,
    /// Offset of the first byte of the frame that is being filled.
    frame_offset: u64,
    /// Bytes at the end that may be the beginning of a synchronisation.
    held: [u8; 4],
    held_len: usize,
    offset: u64,
    /// Place within a block of a DSTREAM file.
    block: usize,
    lost: Option<Lost>,
    counts: Counts,
}

impl Deformatter {
    /// A deformatter at the beginning of a stream.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            synchronised: matches!(framing, Framing::Memory | Framing::Aligned),
            id: None,
            frame: [0; FRAME],
            filled: 0,
            frame_offset: 0,
            held: [0; 4],
            held_len: 0,
            offset: 0,
            block: 0,
            lost: None,
            counts: Counts { input: 0, framing: 0, lost: 0, pending: 0, data: [0; 128] },
        }
    }

    /// Where the bytes went so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl FrameSink) {
        self.counts.input += bytes.len() as u64;
        match self.framing {
            Framing::Memory | Framing::Aligned => self.push_plain(bytes, sink),
            Framing::Fsync | Framing::FsyncHsync => {
                for &byte in bytes {
                    self.push_port(byte, sink);
                }
            }
            Framing::Dstream => {
                for &byte in bytes {
                    if self.block < DSTREAM_FRAMES {
                        self.push_port(byte, sink);
                    } else {
                        self.counts.framing += 1;
                    }
                    self.block = (self.block + 1) % DSTREAM_BLOCK;
                }
            }
        }
        self.counts.pending = (self.filled + self.held_len) as u64;
    }

    /// Ends the stream: what is left of a frame is lost.
    pub fn finish(&mut self, sink: &mut impl FrameSink) {
        let cause = if self.synchronised { LostCause::Truncated } else { LostCause::NotSynchronised };
        let rest = self.filled + self.held_len;
        self.lose(self.offset - rest as u64, rest as u64, cause, sink);
        self.flush_lost(sink);
        (self.filled, self.held_len, self.id) = (0, 0, None);
        self.counts.pending = 0;
    }

    fn push_plain(&mut self, mut bytes: &[u8], sink: &mut impl FrameSink) {
        if self.filled > 0 {
            let taken = bytes.len().min(FRAME - self.filled);
            self.frame[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            self.offset += taken as u64;
            bytes = &bytes[taken..];
            if self.filled < FRAME {
                return;
            }
            self.filled = 0;
            let frame = self.frame;
            self.frame(&frame, self.offset - FRAME as u64, sink);
        }
        let mut chunks = bytes.chunks_exact(FRAME);
        for chunk in &mut chunks {
            let mut frame = [0; FRAME];
            frame.copy_from_slice(chunk);
            self.offset += FRAME as u64;
            self.frame(&frame, self.offset - FRAME as u64, sink);
        }
        let rest = chunks.remainder();
        self.frame[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.offset += rest.len() as u64;
    }

    /// One byte of a port. Pairs are looked at, and at the beginning of a frame four bytes, as an FSYNC ends like an HSYNC.
    fn push_port(&mut self, byte: u8, sink: &mut impl FrameSink) {
        self.held[self.held_len] = byte;
        self.held_len += 1;
        self.offset += 1;
        if !self.synchronised {
            self.search(sink);
            return;
        }
        if self.held_len < 2 {
            return;
        }
        if self.held[..2] == FSYNC[..2] {
            if self.held_len == 4 {
                if self.held == FSYNC {
                    self.break_frame(sink);
                    self.counts.framing += 4;
                } else {
                    // An identifier 7F is reserved, so this was no frame (D4.2.3).
                    self.break_frame(sink);
                    self.synchronised = false;
                    self.lose(self.offset - 4, 4, LostCause::Malformed, sink);
                }
                self.held_len = 0;
            }
            return;
        }
        if self.held_len != 2 {
            return;
        }
        if self.held[..2] == HSYNC {
            self.held_len = 0;
            if self.framing == Framing::FsyncHsync {
                self.counts.framing += 2;
            } else {
                self.break_frame(sink);
                self.synchronised = false;
                self.lose(self.offset - 2, 2, LostCause::Malformed, sink);
            }
            return;
        }
        if self.filled == 0 {
            self.frame_offset = self.offset - 2;
        }
        self.frame[self.filled..self.filled + 2].copy_from_slice(&self.held[..2]);
        self.filled += 2;
        self.held_len = 0;
        if self.filled == FRAME {
            self.filled = 0;
            let frame = self.frame;
            self.frame(&frame, self.frame_offset, sink);
        }
    }

    /// Bytewise, until an FSYNC.
    fn search(&mut self, sink: &mut impl FrameSink) {
        if self.held_len < 4 {
            return;
        }
        if self.held == FSYNC {
            self.synchronised = true;
            self.counts.framing += 4;
            self.held_len = 0;
        } else {
            self.lose(self.offset - 4, 1, LostCause::NotSynchronised, sink);
            self.held.copy_within(1.., 0);
            self.held_len = 3;
        }
    }

    /// A frame that was begun does not go on.
    fn break_frame(&mut self, sink: &mut impl FrameSink) {
        if self.filled > 0 {
            self.lose(self.frame_offset, self.filled as u64, LostCause::Malformed, sink);
            self.filled = 0;
            self.flush_lost(sink);
            sink.discontinuity(self.offset);
        }
    }

    fn frame(&mut self, frame: &[u8; FRAME], offset: u64, sink: &mut impl FrameSink) {
        if frame[..2] == FSYNC[..2] && frame.chunks_exact(4).all(|word| word == FSYNC) {
            self.counts.framing += FRAME as u64;
            self.id = None;
            self.flush_lost(sink);
            sink.discontinuity(offset);
            return;
        }
        let low = frame[15];
        let mut data = [0u8; FRAME];
        // Without an identifier, which is usual, all of it is data of one source.
        let mut ids = 0u8;
        for pair in 0..8 {
            data[pair * 2] = frame[pair * 2] | (low >> pair & 1);
            data[pair * 2 + 1] = frame[pair * 2 + 1];
            ids |= frame[pair * 2] & 1;
        }
        self.counts.framing += 1;
        if ids == 0 {
            self.run(offset, &data[..15], sink);
        } else {
            self.mixed(frame, offset, sink);
        }
    }

    fn mixed(&mut self, frame: &[u8; FRAME], offset: u64, sink: &mut impl FrameSink) {
        let mut run = [0u8; FRAME];
        let mut len = 0;
        let mut run_offset = offset;
        for pair in 0..8 {
            let (even, odd) = (frame[pair * 2], frame[pair * 2 + 1]);
            let low = frame[15] >> pair & 1;
            let last = pair == 7;
            if even & 1 == 0 {
                run[len] = even | low;
                len += 1;
                if !last {
                    run[len] = odd;
                    len += 1;
                }
                continue;
            }
            self.counts.framing += 1;
            let id = even >> 1;
            let delayed = low == 1 && self.id != Some(id);
            if delayed && !last {
                // The byte after the identifier still belongs to the source before it (D4.2.2).
                run[len] = odd;
                len += 1;
            }
            if self.id != Some(id) {
                if len > 0 {
                    self.run(run_offset, &run[..len], sink);
                    len = 0;
                    run_offset = offset + pair as u64 * 2;
                }
                self.id = Some(id);
            }
            if !delayed && !last {
                run[len] = odd;
                len += 1;
            }
        }
        if len > 0 {
            self.run(run_offset, &run[..len], sink);
        }
    }

    fn run(&mut self, offset: u64, bytes: &[u8], sink: &mut impl FrameSink) {
        match self.id {
            None => self.lose(offset, bytes.len() as u64, LostCause::NotSynchronised, sink),
            Some(id) => {
                self.counts.data[usize::from(id & 0x7F)] += bytes.len() as u64;
                self.flush_lost(sink);
                if id != super::ID_NULL {
                    sink.data(id, offset, bytes);
                }
            }
        }
    }

    fn lose(&mut self, offset: u64, bytes: u64, cause: LostCause, sink: &mut impl FrameSink) {
        if bytes == 0 {
            return;
        }
        self.counts.lost += bytes;
        match &mut self.lost {
            Some(lost) if lost.cause == cause => lost.bytes += bytes,
            _ => {
                self.flush_lost(sink);
                self.lost = Some(Lost { offset, bytes, cause });
            }
        }
    }

    fn flush_lost(&mut self, sink: &mut impl FrameSink) {
        if let Some(lost) = self.lost.take() {
            sink.lost(lost);
        }
    }
}

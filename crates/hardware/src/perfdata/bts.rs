// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel BTS: records of 24 bytes, from, to and flags (Intel SDM volume 3, "Branch Trace Store", table of the 64-bit record).
//!
//! They have no time and no thread. There is nothing to synchronise by either: a stream begins with a whole record, as the kernel
//! writes it, and only its end can be cut.

use crate::{Lost, LostCause};

/// A branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtsRecord {
    /// Where its record begins, from the beginning of the stream.
    pub offset: u64,
    /// Where it is.
    pub from: u64,
    /// Where it led.
    pub to: u64,
    /// The flags as they are.
    pub flags: u64,
}

impl BtsRecord {
    /// Bit 4: it was predicted.
    #[must_use]
    pub fn predicted(&self) -> bool {
        self.flags & 1 << 4 != 0
    }
}

/// What a stream consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtsElement {
    /// A branch.
    Record(BtsRecord),
    /// Bytes that are in no record.
    Lost(Lost),
}

/// Decodes a stream that comes in pieces of any size.
#[derive(Clone, Debug, Default)]
pub struct BtsDecoder {
    part: [u8; BtsDecoder::BYTES],
    held: usize,
    offset: u64,
}

impl BtsDecoder {
    /// Size of a record.
    pub const BYTES: usize = 24;

    /// At the beginning of a stream.
    #[must_use]
    pub fn new() -> BtsDecoder {
        BtsDecoder::default()
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut impl FnMut(BtsElement)) {
        while !bytes.is_empty() {
            let count = bytes.len().min(BtsDecoder::BYTES - self.held);
            self.part[self.held..self.held + count].copy_from_slice(&bytes[..count]);
            self.held += count;
            bytes = &bytes[count..];
            if self.held == BtsDecoder::BYTES {
                let word = |index: usize| super::bytes::word(&self.part, index).unwrap_or(0);
                let record = BtsRecord { offset: self.offset, from: word(0), to: word(1), flags: word(2) };
                out(BtsElement::Record(record));
                self.offset += BtsDecoder::BYTES as u64;
                self.held = 0;
            }
        }
    }

    /// The stream ends, or is interrupted.
    pub fn finish(&mut self, out: &mut impl FnMut(BtsElement)) {
        if self.held > 0 {
            let bytes = self.held as u64;
            out(BtsElement::Lost(Lost { offset: self.offset, bytes, cause: LostCause::Truncated }));
            self.offset += bytes;
            self.held = 0;
        }
    }
}

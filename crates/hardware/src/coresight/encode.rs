// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formatter frames, made: the inverse of [`Deformatter`](super::Deformatter), for streams whose expected content is known.

use super::ID_NULL;
use super::frames::FRAME;
use alloc::vec::Vec;

/// Writes data of several sources as frames.
#[derive(Clone, Debug, Default)]
pub struct Formatter {
    out: Vec<u8>,
    frame: [u8; FRAME],
    place: usize,
    id: Option<u8>,
    fsync: bool,
}

impl Formatter {
    /// Frames as in memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Frames as of a port, each after an FSYNC.
    #[must_use]
    pub fn with_fsync() -> Self {
        Self { fsync: true, ..Self::default() }
    }

    /// Data of a source.
    pub fn write(&mut self, id: u8, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.id != Some(id) {
            self.change(id);
        }
        for &byte in bytes {
            self.put(byte);
        }
    }

    /// Fills the last frame with padding and gives all frames.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if self.place > 0 {
            self.change(ID_NULL);
            while self.place > 0 {
                self.put(0);
            }
        }
        self.out
    }

    /// A frame that says that what follows does not continue what was before.
    pub fn barrier(&mut self) {
        while self.place > 0 {
            self.change(ID_NULL);
            self.put(0);
        }
        self.out.extend([0xFF, 0xFF, 0xFF, 0x7F].repeat(4));
        self.id = None;
    }

    fn change(&mut self, id: u8) {
        if self.id == Some(id) {
            return;
        }
        let identifier = id << 1 | 1;
        if self.place % 2 == 0 {
            self.frame[self.place] = identifier;
            self.advance();
        } else {
            // Even places only take an identifier. The old source's last byte is there: it moves to the odd place, and the flag
            // says that it comes before the change (D4.2.2).
            let pair = self.place / 2;
            let low = self.frame[15] >> pair & 1;
            self.frame[self.place] = self.frame[self.place - 1] | low;
            self.frame[self.place - 1] = identifier;
            self.frame[15] |= 1 << pair;
            self.advance();
        }
        self.id = Some(id);
    }

    fn put(&mut self, byte: u8) {
        if self.place % 2 == 0 {
            self.frame[self.place] = byte & !1;
            self.frame[15] |= (byte & 1) << (self.place / 2);
        } else {
            self.frame[self.place] = byte;
        }
        self.advance();
    }

    fn advance(&mut self) {
        self.place += 1;
        if self.place == FRAME - 1 {
            if self.fsync {
                self.out.extend([0xFF, 0xFF, 0xFF, 0x7F]);
            }
            self.out.extend(self.frame);
            self.frame = [0; FRAME];
            self.place = 0;
        }
    }
}

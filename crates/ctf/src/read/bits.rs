// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading integers and bytes at bit positions of a packet, never beyond its content.

use super::class::ByteOrder;

/// The packet's content ended within a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// A position in a packet. Positions count from the packet's first bit, as alignments in CTF do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Next bit.
    bit: u64,
    /// First bit that must not be read; never beyond `bytes`.
    end: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, bit: 0, end: (bytes.len() as u64).saturating_mul(8) }
    }

    /// Ends the content here (in bits) if that is earlier.
    pub(crate) fn limit(&mut self, end: u64) {
        self.end = self.end.min(end);
    }

    pub(crate) fn position(&self) -> u64 {
        self.bit
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.bit)
    }

    /// Moves on to a multiple of `align` bits (a power of two, at least 1).
    pub(crate) fn align(&mut self, align: u32) {
        let mask = u64::from(align) - 1;
        self.bit = self.bit.saturating_add(mask) & !mask;
    }

    pub(crate) fn skip(&mut self, bits: u64) -> Result<(), Overrun> {
        if bits > self.remaining() {
            return Err(Overrun);
        }
        self.bit += bits;
        Ok(())
    }

    /// An unsigned number of 1 to 64 bits.
    pub(crate) fn unsigned(&mut self, bits: u32, order: ByteOrder) -> Result<u64, Overrun> {
        let start = self.bit;
        self.skip(bits.into())?;
        if start % 8 == 0 && bits % 8 == 0 {
            let first = (start / 8) as usize;
            let bytes = self.bytes.get(first..first + bits as usize / 8).ok_or(Overrun)?;
            let mut word = [0; 8];
            return Ok(match order {
                ByteOrder::Little => {
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                }
                ByteOrder::Big => {
                    word[8 - bytes.len()..].copy_from_slice(bytes);
                    u64::from_be_bytes(word)
                }
            });
        }
        self.odd_unsigned(start, bits, order)
    }

    /// Byte by byte. Little-endian fills bytes from their lowest bit, big-endian from their highest.
    fn odd_unsigned(&self, start: u64, bits: u32, order: ByteOrder) -> Result<u64, Overrun> {
        let mut value = 0;
        let mut got = 0;
        while got < bits {
            let position = start + u64::from(got);
            let byte = *self.bytes.get((position / 8) as usize).ok_or(Overrun)?;
            let offset = (position % 8) as u32;
            let take = (8 - offset).min(bits - got);
            let mask = (1u64 << take) - 1;
            match order {
                ByteOrder::Little => value |= ((u64::from(byte) >> offset) & mask) << got,
                ByteOrder::Big => value = (value << take) | ((u64::from(byte) >> (8 - offset - take)) & mask),
            }
            got += take;
        }
        Ok(value)
    }

    /// Whole bytes; the position must be aligned to a byte.
    pub(crate) fn bytes(&mut self, length: u64) -> Result<&'a [u8], Overrun> {
        let first = (self.bit / 8) as usize;
        self.skip(length.checked_mul(8).ok_or(Overrun)?)?;
        self.bytes.get(first..first + length as usize).ok_or(Overrun)
    }

    /// Bytes up to a NUL, which is taken, too.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Overrun> {
        let rest = self.bytes.get((self.bit / 8) as usize..(self.end / 8) as usize).ok_or(Overrun)?;
        let length = rest.iter().position(|byte| *byte == 0).ok_or(Overrun)?;
        self.skip((length as u64 + 1) * 8)?;
        Ok(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_bits_in_both_orders() {
        let bytes = [0b1010_0101, 0b0000_1111];
        let mut little = Cursor::new(&bytes);
        assert_eq!(little.unsigned(5, ByteOrder::Little), Ok(0b00101));
        assert_eq!(little.unsigned(7, ByteOrder::Little), Ok(0b111_1101));
        let mut big = Cursor::new(&bytes);
        assert_eq!(big.unsigned(5, ByteOrder::Big), Ok(0b10100));
        assert_eq!(big.unsigned(7, ByteOrder::Big), Ok(0b101_0000));
        assert_eq!(big.unsigned(5, ByteOrder::Big), Err(Overrun));
    }

    #[test]
    fn whole_bytes_in_both_orders() {
        let bytes = [1, 2, 3, 4];
        assert_eq!(Cursor::new(&bytes).unsigned(24, ByteOrder::Little), Ok(0x03_0201));
        assert_eq!(Cursor::new(&bytes).unsigned(24, ByteOrder::Big), Ok(0x01_0203));
    }

    #[test]
    fn nothing_beyond_the_limit() {
        let mut cursor = Cursor::new(b"ab\0");
        cursor.limit(16);
        assert_eq!(cursor.text(), Err(Overrun));
        assert_eq!(cursor.bytes(u64::MAX), Err(Overrun));
        assert_eq!(cursor.bytes(2), Ok(&b"ab"[..]));
        cursor.align(64);
        assert_eq!(cursor.remaining(), 0);
        assert_eq!(cursor.skip(1), Err(Overrun));
        assert_eq!(cursor.text(), Err(Overrun));
    }
}

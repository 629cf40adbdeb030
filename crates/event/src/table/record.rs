// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A field of a record that an eBPF program wrote.

/// Where a field is. Its place comes from the record contract (`field_of!`), so it cannot drift from the kernel side.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordField<'w> {
    pub(super) words: &'w [u64],
    /// The byte that it begins at.
    pub(super) at: usize,
    pub(super) size: usize,
    /// Of the record's word.
    pub(super) flags: u8,
}

/// The size of a field, from an expression that goes to it.
pub(super) const fn size_of_field<R, F>(_: fn(&R) -> &F) -> usize {
    size_of::<F>()
}

/// A field of a record in some words.
macro_rules! field_of {
    ($words:expr, $flags:expr, $record:ident . $field:ident) => {
        $crate::table::record::RecordField {
            words: $words,
            at: std::mem::offset_of!(rtscope_abi::$record, $field),
            size: $crate::table::record::size_of_field(|record: &rtscope_abi::$record| &record.$field),
            flags: $flags,
        }
    };
}

impl RecordField<'_> {
    #[inline(always)]
    pub(super) fn word(self, word: usize) -> u64 {
        self.words.get(self.at / 8 + word).copied().unwrap_or(0)
    }

    /// The bits of a number of up to 8 bytes, none of which crosses a word (`kernel_abi.h`: natural alignment).
    #[inline(always)]
    pub(super) fn number(self) -> i128 {
        let bits = self.word(0) >> (self.at % 8 * 8);
        let bits = if self.size < 8 { bits & ((1 << (self.size * 8)) - 1) } else { bits };
        bits.into()
    }

    /// As many bytes as wanted, from its beginning.
    #[inline(always)]
    pub(super) fn bytes<const N: usize>(self) -> [u8; N] {
        std::array::from_fn(|byte| {
            let at = self.at % 8 + byte;
            self.word(at / 8).to_le_bytes()[at % 8]
        })
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conversions of integers that lose nothing, for a reason that the compiler does not see, or whose purpose is to take a part.
//!
//! The crates that read what others wrote deny casts that can lose something. The few that cannot, or are meant to, are here.

const _: () = assert!(usize::BITS == u64::BITS, "rtscope is built for machines with 64-bit addresses only");
const _: () = assert!(cfg!(target_endian = "little"), "rtscope is built for little-endian machines only");

/// A 64-bit number as an index or a length in memory. Exact: `usize` has 64 bits (asserted above).
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits")]
pub const fn index(number: u64) -> usize {
    number as usize
}

/// The low half of a word.
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "taking the low half is the purpose")]
pub const fn low_half(word: u64) -> u32 {
    word as u32
}

/// The bits of a negative number as they are: two's complement.
#[inline(always)]
#[must_use]
#[expect(clippy::cast_sign_loss, reason = "the bits are wanted, not the number")]
pub const fn bits(number: i64) -> u64 {
    number as u64
}

/// The number with these bits in two's complement.
#[inline(always)]
#[must_use]
pub const fn signed(bits: u64) -> i64 {
    bits as i64
}

/// The low half of a product.
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "taking the low half is the purpose")]
pub const fn low_word(product: u128) -> u64 {
    product as u64
}

/// A count of things that are in memory one by one, each of several bytes. Should there be more than 2³² − 1, it says this largest number.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "compared before")]
pub const fn count(things: usize) -> u32 {
    if things > u32::MAX as usize { u32::MAX } else { things as u32 }
}

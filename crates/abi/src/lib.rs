// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record contract in Rust, generated from `kernel_abi.h` beside this crate's manifest, which is the only
//! definition. Sizes are asserted in that header; bindgen asserts sizes, alignments and offsets on this side.
#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]
#![allow(missing_docs, reason = "generated; the documentation is in kernel_abi.h")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::missing_safety_doc,
    reason = "generated: bindgen's Default implementations"
)]

type rts_u8 = u8;
type rts_u16 = u16;
type rts_s16 = i16;
type rts_u32 = u32;
type rts_s32 = i32;
type rts_u64 = u64;
type rts_s64 = i64;

/// A point in time that never comes.
pub const RTS_NEVER: u64 = u64::MAX;

include!(concat!(env!("OUT_DIR"), "/kernel_abi.rs"));

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record contracts in Rust, generated from `kernel_abi.h` beside this crate's manifest and from the programs'
//! `include/rtscope/abi.h`, which are the only definitions. Sizes are asserted in those headers; bindgen asserts sizes, alignments and offsets on this side.
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

/// What the eBPF programs that follow file descriptors tell: `kernel_fds.h`.
pub mod fds {
    use super::{rts_u8, rts_u16, rts_u32, rts_u64};
    include!(concat!(env!("OUT_DIR"), "/kernel_fds.rs"));
}

/// The memory that instrumented programs share with the collector: `include/rtscope/abi.h`.
pub mod program {
    include!(concat!(env!("OUT_DIR"), "/program_abi.rs"));
}

// The same as at the end of kernel_abi.h, for the constants as Rust has them: a loss is counted by its record's type, masked.
const _: () = assert!(RTS_RECORD_TYPES <= RTS_LOST_TYPES && RTS_LOST_TYPES.is_power_of_two());

/// Whether a stream's records of this type are there for the names of tasks only: their tracepoints fire with interrupts on, so
/// the events themselves are left to ftrace, if they are asked for.
#[must_use]
pub fn only_names_tasks(kind: u32) -> bool {
    matches!(kind, RTS_PROCESS_FORK | RTS_PROCESS_EXIT | RTS_TASK_RENAME)
}

/// Whether a stream's record of this type is an event of its own: a lost one is a lost event.
#[must_use]
pub fn is_streamed_event(kind: u32) -> bool {
    kind != RTS_SYSCALL_PATH && !only_names_tasks(kind)
}

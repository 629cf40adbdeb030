// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading the kernel's rings: map, read the control words, copy out, frame, decode.
//!
//! This is the only crate that touches memory which the kernel writes at the same time. It copies banks
//! into private memory first, word by word with atomic loads, and trusts no length in them. What leaves this crate is
//! private: [`BankImage`]s with [`Frame`]s in them, events, and plain numbers. A stream's complete records are the exception:
//! no writer touches them until they are given back, so [`SharedMemory::write_to`] hands them to the kernel where they are.
//!
//! The layout is that of `kernel_abi.h` (crate `rtscope-abi`); offsets are taken from there, never written by hand.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kernel writes at the same time: a number that does not fit must be seen, not cut"
)]

mod bank;
mod control;
mod decode;
mod expiry;
mod late;
#[cfg(test)]
mod model;
mod record;
mod report;
mod shared;
mod stacks;
mod stream;
mod syscall;

pub use bank::{BankImage, Frame, Gaps};
pub use control::{Controls, Trigger, TriggerState};
pub use decode::decode;
pub use expiry::{Expiry, TimerInterrupt};
pub use late::{LateResponseRings, RawLateResponse};
pub use record::{Slot, first_record};
pub use report::{late_response, pending, pending_pair, pending_request};
pub use shared::SharedMemory;
pub use stacks::StackCopies;
pub use stream::{CompleteRecords, StreamReader};
pub use syscall::SyscallRecord;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One trace: what decoders of any unit find becomes events like those of any tracer.
//!
//! ```text
//! lane (a stream with its decoder) ─┐
//! lane                              ├─ HardwareSource, in order of time ─► any analysis, or a CTF trace (`write_ctf`)
//! lane                              ┘
//! calls: branches of a thread ─► entries and exits of functions
//! ```
//!
//! Lanes are pulled: each decodes the next piece of its stream when its events have been taken, so that memory is that of a piece
//! for each stream.

mod calls;
mod classes;
mod ctf;
mod source;

pub use calls::{BranchKind, CallStack, Edge};
pub use classes::{EventClassKind, HardwareEvent, LossReason, UNKNOWN_ADDRESS};
pub use ctf::{HardwareTrace, TraceError, trace_info, write_ctf};
pub use source::{HardwareSource, Lane, LaneInfo, Totals};

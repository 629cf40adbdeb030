// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CTF 1.8 in the LTTng kernel layout: writer and reader.
//!
//! A snapshot on disk is a trace that tools which know nothing of rtscope can open: babeltrace2 prints it, the kernel
//! analyses of Trace Compass run on it. So the writer ([`write_trace`]) uses LTTng's event and field names, and puts what
//! only rtscope knows into *extra* fields and `env` entries, which those tools ignore. The reader ([`read_trace`]) is
//! one for CTF in general (it learns every layout from the trace's own metadata) with the kernel layout mapped on top;
//! it treats every byte as hostile.
//!
//! A trace is a directory of its own. Every other regular file in it would be taken for a data stream, so what
//! accompanies a trace goes beside it:
//!
//! ```text
//! SNAPSHOT/
//!   trigger.json, explain.txt     beside, never inside
//!   kernel/                       what `write_trace` writes
//!     metadata, kernel_0, kernel_1, ...
//! ```
//!
//! `babeltrace2 SNAPSHOT` and [`read_trace`] both find the directory inside. [`StagedDir`] makes either level appear at
//! once or not at all.
//!
//! Writing: [`TraceWriter`] ([`write_trace`] for a whole recording): `state` (dump), `encode` (our own events, as `layout` says)
//! and `tracepoint` (any of the kernel's, as its format says), then `packet`, then files; `metadata` prints the `classes`.
//! Reading: [`read_trace`]: `tsdl` → `class` → `decode` (bits to values) → `stream` (packets to events, by `kernel`) →
//! `reader` (merge, names, losses).
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a trace may be damaged or made to harm: a number that does not fit must be seen, not cut"
)]

mod error;
mod info;
mod layout;
mod private_env;
mod read;
mod regular;
mod staged;
mod write;

pub use error::Error;
pub use info::TraceInfo;
pub use read::*;
pub use regular::{Links, open_regular};
pub use staged::StagedDir;
pub use write::{
    Classes, EventLoss, Evidence, GivenText, NameLookup, PlainEvent, StreamSummary, StreamWriter, TaskStatus,
    TraceWriter, TracepointId, UserClass, UserContext, UserStreamSummary, UserStreamWriter, UserTraceWriter,
    WriteSummary, initial_states, write_trace,
};

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CTF 1.8 in the LTTng kernel layout: writer and reader.
//!
//! A snapshot on disk is a trace that tools without any knowledge of rtscope can open: babeltrace2 prints it, and the kernel
//! analyses of Trace Compass run on it. So the writer uses LTTng's event and field names, and puts rtscope's additional facts
//! into *extra* fields and `env` entries, which those tools ignore. The reader is for CTF in general (it learns every layout
//! from the trace's own metadata), with the kernel layout mapped on top; it treats every byte as hostile.
//!
//! A trace has a directory for itself. Any other regular file in it would be taken for a data stream, so accompanying files are
//! in the directory above:
//!
//! ```text
//! SNAPSHOT/
//!   trigger.json, explain.txt     next to the trace, never in it
//!   kernel/                       what `write_trace` writes
//!     metadata, kernel_0, kernel_1, ...
//! ```
//!
//! `babeltrace2 SNAPSHOT` and [`read_trace`] both find the directory inside. [`StagedDir`] makes either level appear at
//! once or not at all.
//!
//! Writing: [`TraceWriter`] ([`write_trace`] for a whole recording): `state` (dump), `encode` (built-in events, by `layout`)
//! and `tracepoint` (any of the kernel's, by its format), then `packet`, then files; `metadata` prints the `classes` with the
//! types of `tsdl`. [`UserMetadata`] and [`UserStreamWriter`] are for traces of instrumented programs.
//!
//! Reading: metadata → `lexer` → `parser`, `blocks` → `resolve` → `class` → `compile` → `plan`, once per trace; then `index`
//! finds the packets, and `cursor` and `run` walk through events by their plans. On these are [`read_trace`] (`recording`,
//! `kernel`, `gather`: the events that rtscope analyses, with names and losses), [`count`] (`rtscope stat`) and [`print`]
//! (`slices`: all streams in order of time, as text), the latter two for a [`Selection`] of events in a [`TraceSet`].
//! [`cut()`] makes a trace of such a selection.
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a trace may be damaged or made to harm: a number that does not fit must be seen, not cut"
)]

mod cut;
mod error;
mod info;
mod layout;
mod private_env;
mod read;
mod regular;
mod staged;
mod write;

pub use cut::{Cut, CutSummary, cut};
pub use error::{Error, because};
pub use info::TraceInfo;
pub use private_env::{EARLIER_EVENTS, OVERWRITTEN_OF_USER};
pub use read::*;
pub use regular::{Links, open_regular};
pub use staged::{Abandoned, StagedDir, remove_abandoned};
pub use write::{
    Classes, EventLoss, EventThread, Evidence, FILES_MIN, FileRing, GivenText, Overwritten, PlainEvent,
    RingAccount, RingTrace, StreamSummary, StreamWriter, TaskStatus, TraceWriter, TracepointId, UserClass,
    UserContext, UserMetadata, UserStreamSummary, UserStreamWriter, WriteSummary, initial_states,
    write_trace,
};

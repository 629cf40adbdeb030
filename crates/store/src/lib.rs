// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording on disk: raw, and behind that one CTF trace.
//!
//! While events are recorded, each instruction spent on them slows down what is being recorded. So the recorder writes
//! the kernel's data unchanged to a *spool*: records of the eBPF programs in chunks, sub-buffers of ftrace whole
//! ([ADR 0005](../../../docs/adr/0005-spool-first-convert-after.md)). A [`LiveConversion`] merges both by time into one trace behind it, in
//! time that nobody needs ([ADR 0021](../../../docs/adr/0021-the-kernels-trace-is-made-behind-its-spool.md)); or [`convert()`] does so
//! when the recording is over, each CPU on its own, on all cores.
//!
//! A killed recorder leaves its spool behind, which can be converted at any time, and the trace so far, which can be read. Facts that only an
//! orderly end records (events lost since the last chunk, skipped eBPF programs) are then reported as unknown.
//!
//! - [`spool`]: the files, writing them, opening them.
//! - [`description`]: the spool's description: its start and its end.
//! - `conversion`, the engine of both: `scan` (one cheap pass for names, late paths, and which events there are), then for each
//!   CPU (`lane`) `bank` and `pages` → `stream` (merge) → `rtscope_ctf::StreamWriter`.
//! - [`snapshot`]: the same merge for a snapshot of `watch`, whose eBPF events are in memory.
//! - [`trigger`]: `trigger.json`, beside a snapshot of `watch`.
//! - [`user`]: recordings of instrumented programs.
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a spool may be cut or changed: a number that does not fit must be seen, not cut"
)]

mod address;
mod bank;
mod conversion;
mod convert;
pub mod description;
mod error;
mod forks;
mod formats;
mod in_use;
mod lane;
mod live;
mod losses;
mod names;
mod pages;
mod paths;
mod scan;
pub mod snapshot;
mod sorted;
pub mod spool;
mod stream;
mod tasks;
pub mod trigger;
pub mod user;

pub use convert::{ConversionSummary, Options, Progress, convert, events_in};
pub use description::{
    End, EndLoss, FormatText, FtraceDescription, Source, SpoolDescription, SpoolTask, SyscallFormat,
};
pub use error::Error;
pub use in_use::is_abandoned;
pub use lane::{LaneExtent, LaneFiles};
pub use live::{AHEAD_NS, LiveConversion, SpoolShare};
pub use snapshot::{Pages, SnapshotSummary, Tracepoints, write_snapshot};
pub use spool::{BankWriter, Spool, SpoolPlace, SpoolWriter, remove_unbegun};

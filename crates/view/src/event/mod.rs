// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of any trace, one a line: text, JSON, CSV.
//!
//! The constant text of each event class is made once, as a [`rtscope_ctf::Style`] says; per event only values are
//! formatted, straight from the trace's bytes into the output.

mod csv;
mod json;
mod number;
mod pretty;
mod printing;
mod resolve;
mod said;
mod shared;
mod tame;
mod who;

pub use csv::{CsvFormat, CsvWriter};
pub use json::{EVENT_SCHEMA, JsonFormat, JsonWriter};
pub use pretty::{PrettyFormat, PrettyWriter};
pub use printing::{EventFormat, EventPrinter};
pub(crate) use resolve::error;
pub use resolve::{Addition, Architecture, Resolver, Resolving, ResolvingWriter, to_read, why_not};
pub use said::{Saying, SayingWriter};
pub use who::Who;

/// Seconds since 1970 → `HH:MM:SS.` on the clock on the wall. Handed in, since only the command knows the time zone.
pub type Clock = fn(i64) -> [u8; 9];

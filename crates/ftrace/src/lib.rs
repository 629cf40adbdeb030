// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The formats in which the kernel's own tracer (ftrace) describes and stores events. Pure: text and bytes in, values out.
//!
//! - [`mod@format`]: the content of a tracepoint's `format` file: fields, their offsets and sizes. `parse` reads it, and
//!   [`Symbols`] are the names for a field's numbers.
//! - [`page`]: events from the ring buffer's sub-buffers.
//! - [`pattern`]: which tracepoints a user asks for.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a trace's file may be damaged: a number that does not fit must be seen, not cut"
)]

pub mod format;
pub mod page;
mod parse;
pub mod pattern;
mod symbols;

pub use parse::ParseError;
pub use symbols::Symbols;

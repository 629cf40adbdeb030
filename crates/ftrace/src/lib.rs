// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The formats in which the kernel's own tracer (ftrace) describes and stores events. Pure: text and bytes in, values out.
//!
//! - [`format`]: what a tracepoint's `format` file says: fields, their offsets and sizes, names for their
//!   numbers.

pub mod format;
mod parse;
mod symbols;

pub use parse::ParseError;
pub use symbols::Symbols;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the macros expand to. Not for others: it changes with the header.
//!
//! `fields` is what a payload is made of, `event` what a call site has, `header` the way into the compiled header. The last two
//! are not there when events are disabled.

mod description;
#[cfg(not(rtscope_disabled))]
mod event;
mod fields;
#[cfg(not(rtscope_disabled))]
mod header;
mod span;

pub use description::{Enumeration, EnumerationType, Labels, checked, checked_labels};
#[cfg(not(rtscope_disabled))]
pub use event::{Event, Place};
#[cfg(not(rtscope_disabled))]
pub(crate) use header::{init, thread_exit, thread_init};

pub use fields::{Arguments, Fields, array, label, marked_text, number, sequence, text};
pub use span::Span;

/// The words that the macros take for types, but for those of one use.
#[allow(non_camel_case_types, missing_docs)]
pub mod kinds {
    pub type u8 = ::core::primitive::u8;
    pub type u16 = ::core::primitive::u16;
    pub type u32 = ::core::primitive::u32;
    pub type u64 = ::core::primitive::u64;
    pub type i8 = ::core::primitive::i8;
    pub type i16 = ::core::primitive::i16;
    pub type i32 = ::core::primitive::i32;
    pub type i64 = ::core::primitive::i64;
    pub type f32 = ::core::primitive::f32;
    pub type f64 = ::core::primitive::f64;
    pub type x8 = ::core::primitive::u8;
    pub type x16 = ::core::primitive::u16;
    pub type x32 = ::core::primitive::u32;
    pub type x64 = ::core::primitive::u64;
}

#[cfg(rtscope_disabled)]
mod disabled {
    use crate::Options;
    use std::io;

    pub(crate) fn init(_: &Options) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn thread_init() -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn thread_exit() {}
}
#[cfg(rtscope_disabled)]
pub(crate) use disabled::{init, thread_exit, thread_init};

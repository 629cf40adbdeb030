// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instrumented programs, seen from the collector: finding them, enabling their events, emptying their rings.
//!
//! A program never contacts anybody; it leaves files in `/dev/shm/rtscope-UID/` (include/rtscope/abi.h), which this crate looks
//! for. Everything in those files may be a lie: whoever owns the directory can write them. So nothing read from there is
//! used as a length, a place or a name before it has been checked, what has been checked is not read again, and a file that
//! shrinks under us gives zeros instead of a signal (`memory`). A program that lies loses its own trace, nobody else's.
//!
//! `containers` (containers) → `directory` (files) → `provider` (descriptions, enabling) and `ring` (records) → `programs` (all of them, as they come and
//! go) under a `session` (what is wanted). `clock` relates the programs' counter to CLOCK_MONOTONIC; `records` reads what was taken.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "programs may lie: a number that does not fit must be seen, not cut"
)]

pub mod clock;
mod containers;
pub mod description;
pub mod directory;
mod memory;
pub mod patterns;
pub mod programs;
mod provider;
pub mod records;
mod ring;
pub mod session;
mod walk;

pub use provider::ProviderInfo;
pub use ring::RingInfo;

/// What can go wrong, beside programs that lie.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Somebody else records the programs of this user.
    #[error(
        "process {0} already records the programs of this user; end it first, or record other users' programs"
    )]
    Busy(u32),
    /// A directory that is not what it should be.
    #[error(
        "{0} is not its user's alone, or not what it should be; somebody may have put it there: remove it, and start the programs again"
    )]
    NotOurs(String),
    /// A pattern.
    #[error("'{0}': {1}")]
    Pattern(String, &'static str),
}

/// Whether nothing is wrong with a file but that no more of them may be open, or memory is short: of the file it tells nothing.
#[must_use]
pub fn is_shortage(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
}

impl Error {
    fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.display().to_string();
        move |source| Error::Io { what, path, source }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instrumented programs, seen from the collector: finding them, enabling their events, emptying their rings.
//!
//! A program contacts no other process; it leaves files in `/dev/shm/rtscope-UID/` (include/rtscope/abi.h), which this crate
//! looks for. Everything in those files may be a lie: the owner of the directory can write anything into them. So nothing read
//! from there is used as a length, an offset or a name before it has been checked, checked values are not read again, and a
//! file that shrinks while it is mapped gives zeros instead of a signal (`memory`). A program that lies loses its own trace
//! only.
//!
//! `containers` (their `/dev/shm`, by the way that `mounts` judges) → `directory` (files) → `provider` (descriptions, enabling) and
//! `ring` (records), all of that in a thread of its own (`look`) → `collector` (all of them, as they come and go) under a `session`
//! (the requested events, chosen by `patterns`; `asked`: those that no program has). What root makes and removes in others' directories is done by processes (`hand`). What one user can cost is in `budget`
//! (with his subordinate users, `subordinate`). `description` reads the text of a provider,
//! `shelf` keeps each once and in limits, `walk` finds the complete records of a ring, `records` decodes them once they have been taken, and
//! `clock` relates the programs' counter to CLOCK_MONOTONIC.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "programs may lie: a number that does not fit must be seen, not cut"
)]

mod asked;
pub mod budget;
pub mod bytes;
mod census;
pub mod channels;
pub mod clock;
pub mod clock_watch;
pub mod collector;
mod containers;
pub mod description;
pub mod directory;
mod fault;
mod hand;
mod image;
mod look;
mod memory;
#[cfg(test)]
mod model;
pub mod mounts;
mod namespaces;
pub mod patterns;
mod provider;
pub mod records;
pub mod requests;
mod ring;
pub mod session;
mod shelf;
mod subordinate;
pub mod values;
mod visitor;
mod voucher;
mod walk;

pub use image::RingImage;
pub use provider::ProviderInfo;
pub use ring::{RingInfo, ThreadChoice};

/// Errors of the collector; what is wrong with a single program is in its report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// The action, as a verb.
        what: &'static str,
        /// The path.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another process records the programs of this user.
    #[error(
        "process {0} already records the programs of this user; end it first, or record other users' programs"
    )]
    Busy(u32),
    /// A directory that others than its user may access, or that is not a directory.
    #[error(
        "{0} is open to others than its user, or not a directory; somebody may have put it there: remove it, and start the programs again"
    )]
    NotOurs(String),
    /// A user holds the lock of his directory.
    #[error("{0} is held by its user: what is asked of it is not answered")]
    Held(String),
    /// A pattern.
    #[error("'{0}': {1}")]
    Pattern(String, &'static str),
}

/// Whether an error only means that too many files are open, memory is short, or a user holds his directory: it tells nothing about the file.
#[must_use]
pub fn is_shortage(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ETIMEDOUT))
}

impl Error {
    fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.display().to_string();
        move |source| Error::Io { what, path, source }
    }

    /// Whether there is no room for a file.
    fn is_no_room(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Error::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors; each message tells the reader what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action} {}: {}", path.display(), because(source))]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The trace's path exists already.
    #[error("{} exists already: choose another directory or remove it", .0.display())]
    Exists(PathBuf),
    /// The path has no last part that could be a directory's name.
    #[error("{} cannot be the name of a directory: end the path with a name", .0.display())]
    NoName(PathBuf),
    /// The recording is not in time order.
    #[error(
        "event {index} is older than the one before it (CPU {cpu}): sort the recording by time before writing it"
    )]
    Unordered {
        /// Index into the recording's events.
        index: usize,
        /// The CPU.
        cpu: u32,
    },
    /// The directory has no trace.
    #[error("{} has no CTF trace: name the directory that has a file `metadata`, or the one above it", .0.display())]
    NoTrace(PathBuf),
    /// A part of a stream cannot be made into a stream.
    #[error("{stream} cannot be cut like this: {what}; leave options out, or cut by other times")]
    Cut {
        /// The name of its file.
        stream: String,
        /// What is in the way.
        what: String,
    },
    /// The directory would be found when the trace is read again.
    #[error("{} is in the trace itself: choose another directory", .0.display())]
    InsideTrace(PathBuf),
    /// It was to end before its end.
    #[error("stopped before the end; no trace was made")]
    Stopped,
    /// The metadata cannot be used.
    #[error("{}: line {line}: {what}", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// The line, from 1.
        line: u32,
        /// What is wrong.
        what: String,
    },
}

/// The system's error; a full disk is named, since that is what the user can change.
#[must_use]
pub fn because(error: &io::Error) -> String {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => format!("the disk is full: {error}"),
        _ => error.to_string(),
    }
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path: crate::staged::named(&path), source }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors; each message tells the reader what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a spool could not be written, opened or converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action} {}: {}", path.display(), rtscope_ctf::because(source))]
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
    /// An earlier recording to the same place was not finished.
    #[error(
        "{} is what an interrupted recording left: finish it with `rtscope record --recover {}`, or remove it",
        spool.display(), target.display()
    )]
    Unfinished {
        /// The spool.
        spool: PathBuf,
        /// The trace that it was to become.
        target: PathBuf,
    },
    /// The path is not a spool.
    #[error("{} is not an interrupted recording: it has no file session.json", .0.display())]
    NoSpool(PathBuf),
    /// Another process uses the spool.
    #[error("{} is in use: it is still being recorded or converted by another rtscope", .0.display())]
    Busy(PathBuf),
    /// The spool is another user's.
    #[error("{} belongs to user {owner}: recover it as that user", spool.display())]
    OfAnother {
        /// The spool.
        spool: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The path has no last part that could be a directory's name.
    #[error("{} cannot be the name of a directory: end the path with a name", .0.display())]
    NoName(PathBuf),
    /// A file of the spool makes no sense.
    #[error("{}: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] rtscope_ctf::Error),
    /// The disk is full.
    #[error(
        "the disk is full: the recording stays in {}; free some space there and run `rtscope record --recover {}`",
        spool.display(), target.display()
    )]
    DiskFull {
        /// The spool.
        spool: PathBuf,
        /// The trace that it was to become.
        target: PathBuf,
    },
    /// The caller cancelled the conversion.
    #[error("stopped: the recording stays in {}; `rtscope record --recover` finishes it", .0.display())]
    Cancelled(PathBuf),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }

    pub(crate) fn broken(path: &Path, what: impl ToString) -> Error {
        Error::Broken { path: path.to_owned(), what: what.to_string() }
    }

    /// Whether the disk is full (or the quota, or the largest size of a file).
    pub(crate) fn is_no_room(&self) -> bool {
        let source = match self {
            Error::Io { source, .. } | Error::Trace(rtscope_ctf::Error::Io { source, .. }) => source,
            _ => return false,
        };
        matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

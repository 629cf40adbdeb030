// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes: the one place where errors become numbers. `rtscope --help` lists them.

use rtscope_ctf::Error as TraceError;
use rtscope_programs::Error as UserError;
use rtscope_store::Error as StoreError;
use std::io;
use std::process::ExitCode;

/// Why a command ended without success.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something went wrong while it ran.
    #[error("{0}")]
    Failed(String),
    /// An argument cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The kernel or our privileges lack something.
    #[error("{0}")]
    Missing(String),
    /// COMMAND could not be started, or ended as a shell does then.
    #[error("{0}")]
    NoCommand(String),
    /// A trace cannot be read as a whole; what could be read was.
    #[error("{0}")]
    Damaged(String),
    /// A check of `rtscope shield verify` failed.
    #[error("{0}")]
    ChecksFailed(String),
    /// Late responses were found, and `--fail-if-late` was given.
    #[error("{0} late responses")]
    Late(u64),
}

impl Failure {
    /// Says what was being done when a lower error came.
    pub fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Failure {
        Failure::Failed(format!("{what}: {error}"))
    }

    /// The same for an error of the system. A full disk is named: that is what the user can change.
    pub fn system(what: impl std::fmt::Display, error: &io::Error) -> Failure {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let full = if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            "the disk is full: "
        } else {
            ""
        };
        Failure::Failed(format!("{what}: {full}{error}"))
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Missing(_) => 3,
            Failure::Late(_) | Failure::ChecksFailed(_) => 4,
            Failure::Damaged(_) => 5,
            Failure::NoCommand(_) => 127,
        }
    }
}

impl From<rtscope_kernel::Error> for Failure {
    fn from(error: rtscope_kernel::Error) -> Failure {
        match error {
            rtscope_kernel::Error::Missing(_) => Failure::Missing(error.to_string()),
            rtscope_kernel::Error::Config(_) => Failure::Usage(error.to_string()),
            _ => Failure::Failed(error.to_string()),
        }
    }
}

/// What the caller can do something about is a mistake of usage: a place that is taken, or somebody else's recording.
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match &error {
            StoreError::Exists(_)
            | StoreError::Unfinished { .. }
            | StoreError::NoSpool(_)
            | StoreError::Busy(_)
            | StoreError::NoName(_)
            | StoreError::Trace(TraceError::Exists(_) | TraceError::NoName(_)) => {
                Failure::Usage(error.to_string())
            }
            StoreError::Io { action, path, source }
            | StoreError::Trace(TraceError::Io { action, path, source }) => {
                Failure::system(format!("cannot {action} {}", path.display()), source)
            }
            _ => Failure::Failed(error.to_string()),
        }
    }
}

/// As for the store's.
impl From<UserError> for Failure {
    fn from(error: UserError) -> Failure {
        match &error {
            UserError::Pattern(..) | UserError::Busy(_) => Failure::Usage(error.to_string()),
            UserError::Io { what, path, source } => Failure::system(format!("cannot {what} {path}"), source),
            UserError::NotOurs(_) => Failure::Failed(error.to_string()),
        }
    }
}

impl From<rtscope_artis::Error> for Failure {
    fn from(error: rtscope_artis::Error) -> Failure {
        match error {
            rtscope_artis::Error::Missing(_) => Failure::Missing(error.to_string()),
            rtscope_artis::Error::Cpus(_) => Failure::Usage(error.to_string()),
            rtscope_artis::Error::Bpf { .. } => Failure::Failed(error.to_string()),
        }
    }
}

impl From<rtscope_kernel::tracefs::TracefsError> for Failure {
    fn from(error: rtscope_kernel::tracefs::TracefsError) -> Failure {
        match &error {
            missing if missing.is_missing() => Failure::Missing(error.to_string()),
            usage if usage.is_usage() => Failure::Usage(error.to_string()),
            _ => Failure::Failed(error.to_string()),
        }
    }
}

/// The exit codes for `--help`, after a command's own examples. A macro, since only literals can be joined at compile time.
macro_rules! help {
    ($examples:literal) => {
        concat!(
            $examples,
            "\n
Exit codes:
  0    success
  1    something failed at run time (also: a full disk)
  2    an argument cannot be used
  3    a kernel feature or a privilege is missing (rtscope caps lists them)
  4    late responses were found (--fail-if-late), or a check of rtscope shield verify failed
  5    a trace is damaged; the readable part was shown
  127  COMMAND could not be started
  130  a second Ctrl-C ended it at once"
        )
    };
}
pub(crate) use help;

/// Prints the error, if any, and gives the code.
pub fn report(result: Result<(), Failure>) -> ExitCode {
    let printed = || match crate::output::failure() {
        Some(error) => Err(Failure::doing("writing to standard output", error)),
        None => Ok(()),
    };
    match result.and_then(|()| printed()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing more can be done when standard error is closed.
            let _ =
                crate::output::try_note(&format!("rtscope: {}", rtscope_view::clean(&failure.to_string())));
            ExitCode::from(failure.code())
        }
    }
}

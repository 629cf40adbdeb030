// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes wrong, of every engine: a kind and a sentence. The kinds are what callers can act on; the program gives each an exit code.

use rtscope_ctf::Error as TraceError;
use rtscope_programs::Error as ProgramsError;
use rtscope_store::Error as StoreError;
use std::io;

/// Why something ended without success: the kind, and what to tell people.
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
    #[error("{}", rtscope_event::counted(*.0, "late response", "late responses"))]
    Late(u64),
    /// A condition of `--fail-if` is fulfilled.
    #[error("{0}")]
    Limit(String),
    /// Events were lost, and `--fail-if-lost` was given.
    #[error("{0}")]
    Lost(String),
    /// What was to be judged was not measured: a target that never appeared, or too few samples.
    #[error("{0}")]
    Unmeasured(String),
    /// COMMAND ended with this status; all that was asked of rtscope was done.
    #[error("{text}")]
    Command {
        /// As shells have it: the exit status, or 128 and the signal's number.
        status: u8,
        /// A sentence.
        text: String,
    },
}

impl Failure {
    /// Says what was being done when a lower error came.
    pub fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Failure {
        Failure::Failed(format!("{what}: {error}"))
    }

    /// The same for an error of the system. A full disk is named, and a privilege that is missing is one: that is what the user can change.
    pub fn system(what: impl std::fmt::Display, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::PermissionDenied {
            return Failure::Missing(format!("{what}: {error}"));
        }
        Failure::Failed(format!("{what}: {}", rtscope_ctf::because(error)))
    }
}

impl From<rtscope_kernel::Error> for Failure {
    fn from(error: rtscope_kernel::Error) -> Failure {
        match error {
            rtscope_kernel::Error::Missing(_) | rtscope_kernel::Error::TooMuch(_) => {
                Failure::Missing(error.to_string())
            }
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
impl From<ProgramsError> for Failure {
    fn from(error: ProgramsError) -> Failure {
        match &error {
            ProgramsError::Pattern(..) | ProgramsError::Busy(_) => Failure::Usage(error.to_string()),
            ProgramsError::Io { what, path, source } => {
                Failure::system(format!("cannot {what} {path}"), source)
            }
            ProgramsError::NotOurs(_) | ProgramsError::Held(_) => Failure::Failed(error.to_string()),
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

impl From<rtscope_shield::Error> for Failure {
    fn from(error: rtscope_shield::Error) -> Failure {
        use rtscope_shield::Error;
        match error {
            Error::Cpus(_) => Failure::Usage(error.to_string()),
            Error::Io { ref source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Failure::Missing(error.to_string())
            }
            _ => Failure::Failed(error.to_string()),
        }
    }
}

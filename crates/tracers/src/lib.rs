// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other tracers, run as their users run them: `rtscope impact` and the benchmarks compare rtscope with them.
//!
//! They are child processes. They end with this process, however it ends; what they need so that nothing of them stays is done
//! when their owners here are dropped.

mod lttng;
mod process;

pub use lttng::{Channel, Lttng, Session, Wakeup, compile};
pub use process::{ChildProcess, finished};

/// Why another tracer cannot be used, or its error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command is not installed.
    #[error("{program} is not installed")]
    Missing {
        /// Its name.
        program: String,
        /// How to install it.
        remedy: String,
    },
    /// It ran and failed.
    #[error("{0}")]
    Failed(String),
    /// The user asked to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Error {
        Error::Failed(format!("{what}: {error}"))
    }

    /// What the user can do about it, if that is known.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Error::Missing { remedy, .. } => Some(remedy),
            _ => None,
        }
    }
}

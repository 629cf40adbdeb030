// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A shield: CPUs kept free for real-time work, by settings that every kernel has, and the way back.
//!
//! What to set is a table (`knobs`); what of it this machine has, and what it is now, becomes a `plan`; making the shield
//! carries out the plan (`apply`), after every old value is on disk (`journal`). Undoing reads the journal only, so it works
//! whatever became of the process that made the shield, and compares before it writes: settings changed by somebody else
//! since are reported and left alone.
//!
//! All paths are below a directory ([`System`]), so that the same code runs on a tree of plain files.

pub mod admission;
pub mod apply;
pub mod boot;
pub mod effective;
pub mod form;
pub mod health;
pub mod journal;
pub mod keeper;
pub mod kept;
pub mod knobs;
pub mod partition;
pub mod place;
pub mod plan;
pub mod policy;
pub mod rt0;
pub mod step;
pub mod system;
pub mod tasks;

pub use rtscope_cpus::Cpus;
pub use system::System;

use std::path::Path;

/// What can go wrong with a shield as a whole. A single setting that is refused is not an error: see [`step::Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CPUs that were asked for cannot be shielded.
    #[error("{0}")]
    Cpus(String),
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
    /// There is a shield already.
    #[error("CPUs {0} are shielded already; there is one shield at a time: rtscope shield undo ends it")]
    Exists(String),
    /// A shield was left half made.
    #[error(
        "making or undoing a shield was interrupted here; rtscope shield undo puts everything back as it was"
    )]
    Interrupted,
    /// Another process makes or undoes a shield now.
    #[error("another rtscope makes or undoes a shield now; wait until it has ended")]
    Busy,
    /// There is none.
    #[error("there is no shield; rtscope shield create --rt CPUS makes one")]
    None,
    /// The journal is not one of ours.
    #[error(
        "{path} cannot be used: {reason}; it has the old values of the settings. If it is of no use, remove it; a reboot sets \
         all settings back"
    )]
    Journal {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Deadlines would be missed, or the kernel does not schedule a task as it was asked to.
    #[error("{0}")]
    NotAdmitted(String),
    /// CPUs could not be isolated; everything else was undone.
    #[error("the CPUs cannot be isolated: {0}; everything is as it was before")]
    Partition(String),
    /// The process that holds the scheduler.
    #[error("the process that holds the scheduler: {0}")]
    Keeper(String),
}

impl Error {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.display().to_string();
        move |source| Error::Io { what, path, source }
    }
}

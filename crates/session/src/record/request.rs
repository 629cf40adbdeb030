// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks the flight recorder that a user runs to save what it holds, and waits for it. Root may ask another user's: nothing that the other
//! user says is acted upon, in particular no process is signalled.

use crate::Failure;
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::requests::ask_for_snapshot;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// A trace that a flight recorder says to have saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTrace {
    /// The recorder's process, as the kernel says.
    pub pid: u32,
    /// Its directory: another user's word when root asks.
    pub trace: String,
}

/// Asks, and waits. `user`: whose recorder; without one this user's.
///
/// # Errors
/// When there is no such recorder, or it saves nothing in time.
pub fn request_snapshot(user: Option<u32>, timeout: Duration) -> Result<SavedTrace, Failure> {
    let uid = user.unwrap_or_else(|| nix::unistd::geteuid().as_raw());
    let answer = match ask_for_snapshot(Path::new(SHARED_MEMORY), uid, timeout) {
        Ok(Some(answer)) => answer,
        Ok(None) if !nix::unistd::geteuid().is_root() && uid != nix::unistd::geteuid().as_raw() => {
            return Err(Failure::Missing(format!(
                "only root and user {uid} can see whether user {uid} runs a flight recorder"
            )));
        }
        Ok(None) => {
            return Err(Failure::Usage(format!(
                "user {uid} runs no flight recorder; start one with rtscope record -u PATTERNS --flight-recorder -o DIR"
            )));
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            return Err(Failure::Failed(format!(
                "the flight recorder of user {uid} has saved no trace yet (its standard error may tell why; --timeout waits longer)"
            )));
        }
        Err(error) => return Err(Failure::doing("asking the flight recorder", error)),
    };
    let pid = answer.pid;
    let trace = answer.trace.map_err(|why| {
        Failure::Failed(format!("the flight recorder (process {pid}) could not save a trace: {why}"))
    })?;
    Ok(SavedTrace { pid, trace })
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope snapshot`: asks the flight recorder that a user runs to save what it holds, and waits for it. Root may ask another user's:
//! nothing that the other user says is acted upon, in particular no process is signalled.

use crate::exit::{Failure, help};
use crate::output::result;
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::requests::ask_for_snapshot;
use rtscope_view::{clean, snapshot_request_json};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

pub const EXAMPLES: &str = help!(
    "Example:
  rtscope record -u 'motor:*' --flight-recorder -o late/ &
  rtscope snapshot
      Prints the directory of the new trace, late/1."
);

#[derive(Debug, clap::Args)]
pub struct SnapshotOptions {
    /// Ask the flight recorder that this user runs (a number). Without it: your own
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// How long to wait for the trace
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: rtscope_session::units::DurationNs,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Asks, and waits.
pub fn run(options: &SnapshotOptions) -> Result<(), Failure> {
    let uid = options.user.unwrap_or_else(|| nix::unistd::geteuid().as_raw());
    let timeout = Duration::from_nanos(options.timeout.0);
    let answer = match ask_for_snapshot(Path::new(SHARED_MEMORY), uid, timeout) {
        Ok(Some(answer)) => answer,
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
    // Both are another user's words when root asks.
    let trace = answer.trace.map_err(|why| {
        Failure::Failed(format!(
            "the flight recorder (process {}) could not save a trace: {}",
            answer.pid,
            clean(&why)
        ))
    })?;
    let trace = clean(&trace);
    result(&if options.json { snapshot_request_json(&trace, answer.pid) } else { format!("{trace}\n") });
    Ok(())
}

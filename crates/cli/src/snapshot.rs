// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope snapshot`: asks the flight recorder that a user runs to save what it holds, and waits for it.

use crate::exit::{Failure, help};
use crate::output::result;
use rtscope_session::record::request_snapshot;
use rtscope_view::{clean, snapshot_request_json};
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
    let saved = request_snapshot(options.user, Duration::from_nanos(options.timeout.0))?;
    let trace = clean(&saved.trace);
    result(&match options.json {
        true => snapshot_request_json(&trace, saved.pid),
        false => format!("{trace}\n"),
    });
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope snapshot`: asks the flight recorder of this user's programs to save what it holds, and waits for it.

use crate::exit::{Failure, help};
use crate::output::result;
use crate::schema;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_user::directory::SHARED_MEMORY;
use rtscope_user::session::flight_recorder;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = help!(
    "Example:
  rtscope record -u 'motor:*' --flight-recorder -o late/ &
  rtscope snapshot
      Prints the directory of the new trace, late/1."
);

#[derive(Debug, clap::Args)]
pub struct SnapshotOptions {
    /// Ask the flight recorder of this user (a number). Without it: your own
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// How long to wait for the trace
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: crate::units::DurationNs,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Asks, and waits.
pub fn run(options: &SnapshotOptions) -> Result<(), Failure> {
    let uid = options.user.unwrap_or_else(|| nix::unistd::geteuid().as_raw());
    let Some((pid, place)) = flight_recorder(Path::new(SHARED_MEMORY), uid) else {
        return Err(Failure::Usage(format!(
            "user {uid} has no running flight recorder; start one with rtscope record -u PATTERNS --flight-recorder -o DIR"
        )));
    };
    let before = newest(&place);
    let process = i32::try_from(pid)
        .map_err(|_| Failure::Failed("the process id of the flight recorder is not valid".to_string()))?;
    kill(Pid::from_raw(process), Signal::SIGUSR1)
        .map_err(|errno| Failure::doing(format!("signalling process {pid}"), errno.desc()))?;
    let asked = Instant::now();
    loop {
        let now = newest(&place);
        if now > before {
            let trace = place.join(now.to_string());
            let text = trace.display().to_string();
            result(&if options.json {
                json!({ "schema": schema::SNAPSHOT_REQUEST, "trace": text, "pid": pid }).to_string()
            } else {
                format!("{text}\n")
            });
            return Ok(());
        }
        if asked.elapsed() > Duration::from_nanos(options.timeout.0) {
            return Err(Failure::Failed(format!(
                "process {pid} has saved no trace in {} yet (its standard error may tell why; --timeout waits longer)",
                place.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The highest number of a trace there; 0: none.
fn newest(place: &PathBuf) -> u64 {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max().unwrap_or(0)
}

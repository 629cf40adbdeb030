// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope state`: what is under way, now, in the watches that this user runs.

use crate::exit::{Failure, help};
use crate::output::result;
use crate::terminal;
use rtscope_session::units::DurationNs;
use rtscope_session::watch::state::{WatchState, ask_all, directory};
use rtscope_view::{Style, state_text};

pub const EXAMPLES: &str = help!(
    "Example:
  rtscope watch offcpu --pid 1234 --threshold 1s --and syscall:1s --and block:1s &
  rtscope state --older 1s
      What hangs in that process now: its system calls with their arguments, for what its threads wait,
      and where in the kernel they are."
);

#[derive(Debug, clap::Args)]
pub struct StateOptions {
    /// Only what has been under way for longer
    #[arg(long, value_name = "TIME")]
    pub older: Option<DurationNs>,
    /// List each operation, not only the longest
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object a watch (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Asks each watch, and prints what it says.
pub fn run(options: &StateOptions) -> Result<(), Failure> {
    let Some(directory) = directory() else {
        return Err(Failure::Missing(
            "there is no runtime directory (XDG_RUNTIME_DIR), in which watches could be found; log in, or run it as root"
                .to_owned(),
        ));
    };
    let answers = ask_all(&directory)
        .map_err(|error| Failure::doing(format!("looking for watches in {}", directory.display()), error))?;
    if answers.is_empty() && !options.json {
        result("no watch runs\n");
    }
    let mut silent = Vec::new();
    let least_ns = options.older.map_or(0, |older| older.0);
    let style = terminal::style(options.all);
    for (pid, answer) in answers {
        match answer {
            Ok(state) => print(&state.older(least_ns), options.json, style),
            Err(error) => silent.push(format!("watch {pid} gives no answer: {error}")),
        }
    }
    match silent.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(silent.join("; "))),
    }
}

fn print(state: &WatchState, json: bool, style: Style) {
    match json {
        true => result(&format!("{}\n", serde_json::to_string(state).unwrap_or_default())),
        false => result(&state_text(state, style)),
    }
}

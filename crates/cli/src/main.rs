// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `rtscope` command: typed arguments, then a plan, then the stages, then an exit code.

#![forbid(unsafe_code)]

mod args;
mod caps;
mod convert;
#[cfg(test)]
mod documented_tests;
mod exit;
mod explain;
mod fds;
mod generate;
mod hardware;
mod help;
mod hist;
mod impact;
mod io_profile;
mod list;
mod npt;
mod observer;
mod output;
mod print;
mod progress;
mod record;
mod shield;
mod snapshot;
mod stat;
mod state;
mod stop;
mod terminal;
mod top;
mod trace_args;
mod watch;

use args::{Args, Command};
use clap::FromArgMatches;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = help::command().get_matches();
    let args = match Args::from_arg_matches(&matches) {
        Ok(args) => args,
        // The matches are those of the same definitions.
        Err(error) => error.exit(),
    };
    if args.json_strings {
        output::large_integers_as_strings();
    }
    let result = match args.command {
        Command::Watch(options) => watch::run(options, &matches),
        Command::Hist(options) => hist::run(*options),
        Command::Top(options) => top::run(*options),
        Command::IoProfile(options) => io_profile::run(*options),
        Command::Fds(options) => fds::run(*options),
        Command::List(options) => list::run(&options),
        Command::Record(options) => record::run(&options),
        Command::Snapshot(options) => snapshot::run(&options),
        Command::State(options) => state::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Print(options) => print::run(&options),
        Command::Stat(options) => stat::run(&options),
        Command::Convert(options) => convert::run(&options),
        Command::Npt(options) => npt::run(&options),
        Command::Impact(options) => impact::run(&options),
        Command::Shield(options) => shield::run(&options),
        Command::Hardware(options) => hardware::run(&options),
        Command::Caps(options) => caps::run(&options),
        Command::Completions { shell } => generate::completions(shell),
        Command::Sweep => stop::sweep(),
        Command::Man { dir } => generate::man_pages(&dir),
    };
    exit::report(result)
}

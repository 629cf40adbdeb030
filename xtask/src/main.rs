// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kit behind `./x`: lint, test, documentation and benchmarks.
//!
//! `./x` finds or installs what these need and then calls them, on a laptop and in CI alike.

mod bench;
mod build;
mod captures;
mod check;
mod fuzz;
mod kernel_log;
mod libtest;
mod lint;
mod lint_c;
mod mutants;
mod outcome;
mod queue;
mod status;
mod tables;
mod test;
mod tidy;
mod timings;
mod tracefs;
mod vm;
mod workspace;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

const HELP: &str = "cargo xtask check | test [--all] [--timings FILE] [CRATE|NAME…] | truth | lint | tidy | fmt | docs | bench NAME [--json] | mutants CRATE | fuzz NAME | miri | captures DIRECTORY | vm [KERNEL…]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["check", rest @ ..] => check::run(rest),
        ["test", rest @ ..] => test::run(rest),
        ["truth"] => test::run(&tables::TRUTH),
        ["lint"] => lint::run(),
        ["tidy"] => lint::run_tidy(),
        ["fmt"] => lint::format(),
        ["docs"] => docs(),
        ["bench", rest @ ..] => bench::run(rest),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["miri"] => fuzz::miri(),
        ["captures", rest @ ..] => captures::run(rest),
        ["vm", rest @ ..] => vm::run(rest),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

/// The workspace's directory.
fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).unwrap_or(own)
}

/// The cargo that runs this program.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

fn docs() -> Result<ExitCode> {
    let status =
        cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").status()?;
    if !status.success() {
        bail!("the documentation has errors");
    }
    Ok(ExitCode::SUCCESS)
}

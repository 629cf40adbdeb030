// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kit behind `./x`: lint, test, documentation and benchmarks.
//!
//! `./x` finds or installs what these need and then calls them, on a laptop and in CI alike.

mod bench;
mod complete;
mod kernel_log;
mod libtest;
mod lint;
mod outcome;
mod test;
mod tidy;
mod vm;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

const HELP: &str =
    "cargo xtask test [--quick] | lint | tidy | fmt | docs | bench NAME [--json] | vm [KERNEL…]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test"] => test::run(false),
        ["test", "--quick"] => test::run(true),
        ["lint"] => lint::run(),
        ["tidy"] => lint::run_tidy(),
        ["fmt"] => lint::format(),
        ["docs"] => docs(),
        ["bench", rest @ ..] => bench::run(rest),
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

/// The workspace's folder.
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

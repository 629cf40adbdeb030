// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x lint`: formatting, compiler lints, scripts and the project's own rules.

use std::collections::BTreeSet;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::outcome::{Outcome, Tally};
use crate::{cargo, lint_c, root, tidy};

/// Shell scripts.
pub const SCRIPTS: [&str; 13] = [
    "x",
    ".ci/run",
    "dist/install.sh",
    "dist/man-aliases.sh",
    "dist/uninstall.sh",
    "xtask/src/vm/init.sh",
    "examples/production-line/run",
    "examples/stories/audio/run",
    "examples/stories/ci-job/run",
    "examples/stories/cyclictest/run",
    "examples/stories/damaged-traces/run",
    "examples/stories/order-engine/run",
    "examples/stories/pgbench/run",
];

/// All checks, and their sum.
pub fn run() -> Result<ExitCode> {
    let mut tally = Tally::default();
    add_all(&mut tally)?;
    Ok(tally.finish())
}

/// The project's own rules only.
pub fn run_tidy() -> Result<ExitCode> {
    let mut tally = Tally::default();
    tidy::add_all(&root(), &mut tally)?;
    Ok(tally.finish())
}

/// Adds the results of all checks.
pub fn add_all(tally: &mut Tally) -> Result<()> {
    add_quick(tally)?;
    tally.add("clippy", clippy(&BTreeSet::new()));
    Ok(())
}

/// Adds the results of the checks that take seconds: all but clippy, which builds.
pub fn add_quick(tally: &mut Tally) -> Result<()> {
    tally.add("rustfmt", rustfmt());
    lint_c::add_all(tally)?;
    tally.add("bash -n", scripts(&["bash", "-n"]));
    tally.add("shellcheck", scripts(&["shellcheck"]));
    tidy::add_all(&root(), tally)
}

/// Formats everything in place.
pub fn format() -> Result<ExitCode> {
    let status = cargo().args(["fmt", "--all"]).status().context("cargo fmt")?;
    if !status.success() {
        bail!("cargo fmt failed");
    }
    let status =
        Command::new("clang-format-19").arg("-i").args(lint_c::files()?).current_dir(root()).status();
    if !status.context("clang-format-19 (./x setup installs it)")?.success() {
        bail!("clang-format-19 failed");
    }
    Ok(ExitCode::SUCCESS)
}

fn rustfmt() -> Outcome {
    if !works(cargo().args(["fmt", "--version"])) {
        return Outcome::Skip("this Rust has no rustfmt (rustup component add rustfmt)".into());
    }
    judge(cargo().args(["fmt", "--all", "--check"]))
}

/// The compiler's lints, of these packages; none named: all.
pub fn clippy(packages: &BTreeSet<String>) -> Outcome {
    if !works(cargo().args(["clippy", "--version"])) {
        return Outcome::Skip("this Rust has no clippy (rustup component add clippy)".into());
    }
    let chosen = packages.iter().flat_map(|package| ["-p", package.as_str()]);
    let all = packages.is_empty().then_some("--workspace");
    let mut command = cargo();
    command.args(["clippy", "--quiet", "--all-targets"]).args(all).args(chosen);
    judge(command.args(["--", "-D", "warnings"]))
}

fn scripts(checker: &[&str]) -> Outcome {
    if !works(Command::new(checker[0]).arg("--version")) {
        return Outcome::Skip(format!("{} is not installed", checker[0]));
    }
    for script in SCRIPTS {
        let result = judge(Command::new(checker[0]).args(&checker[1..]).arg(script).current_dir(root()));
        if result != Outcome::Pass {
            return result;
        }
    }
    Outcome::Pass
}

/// Whether a tool can be run at all.
pub fn works(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Runs a checker; what it says goes to the terminal.
pub fn judge(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Pass,
        Ok(status) => Outcome::Fail(format!("see above ({status})")),
        Err(error) => Outcome::Fail(error.to_string()),
    }
}

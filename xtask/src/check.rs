// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x check`: what a change could have broken, without root, while one waits.
//!
//! Formatting, the project's rules, clippy, and the tests without root of the crates with changed files and of those that
//! depend on them. Changed is what differs from the commit where this branch left the one that it follows, or from
//! `--since`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::outcome::Tally;
use crate::workspace::{self, Workspace};
use crate::{lint, test};

/// What `./x check --help` prints.
const HELP: &str = "\
./x check [--since COMMIT]

Formatting, the project's rules, clippy, and the tests without root of the crates with changed
files and of those that depend on them. Without --since: what differs from the branch that this
one follows, else from the last commit.

  ./x check                  what is not committed or not pushed yet
  ./x check --since HEAD~3   the last three commits, too
";

/// `./x check …`
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    let since = match arguments {
        [] => workspace::base()?,
        ["-h" | "--help"] => {
            print!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
        ["--since", commit] => (*commit).to_owned(),
        other => bail!("'{}' is not understood (./x check --help)", other.join(" ")),
    };
    let start = Instant::now();
    let mut tally = Tally::default();
    lint::add_quick(&mut tally)?;
    let files = workspace::changed_files(&since).context("what changed is asked of git")?;
    let workspace = Workspace::read()?;
    let changed = workspace.owners(&files);
    if changed.is_empty() {
        println!("No crate has changed since {since}: nothing is built.");
        return Ok(tally.finish());
    }
    let reached = workspace.with_dependents(&changed);
    println!("changed: {}; with what depends on it: {}", listed(&changed), listed(&reached));
    let with_collecting = !changed.is_disjoint(&test::collected_from());
    test::run_unprivileged(&workspace.packages(&reached), &reached, with_collecting, &mut tally)?;
    if !with_collecting {
        println!("left to ./x test: tests that collect from programs, which the change does not reach");
    }
    let timings = &tally.timings;
    timings.iter().filter(|timing| timing.test.is_empty() && timing.time.as_secs() > 0).for_each(|step| {
        println!("{:>8.1} s  {}", step.time.as_secs_f64(), step.program);
    });
    println!("{:>8.1} s  in all", start.elapsed().as_secs_f64());
    Ok(tally.finish())
}

fn listed(crates: &BTreeSet<&str>) -> String {
    crates.iter().copied().collect::<Vec<_>>().join(", ")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running one libtest program: its output goes to a file, one line to the terminal, and what failed in full.
//!
//! A run has some 4 000 lines of output, in which one failure would drown. So what passed takes one line a program, and whatever
//! a failed test said is repeated.
//!
//! A test that failed is run once more, alone. Many tests compare rtscope with what the kernel did on a machine that others use,
//! too, whose host now and then takes the CPU away for longer than a test allows for. What passes then is
//! not counted as failed, but it is no clean pass either: it is listed as unstable, with its first words, so that it gets mended.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::outcome::{Outcome, Tally};
use crate::root;

/// So many lines of a failed test are shown; all are in its file.
const SHOWN: usize = 60;
/// When more have failed, it is not the machine's moods.
const TRIED_AGAIN: usize = 8;

/// Runs a libtest program and counts.
///
/// `make`: the program, without options for libtest. `options`: these.
pub fn run(name: &str, make: impl Fn() -> Command, options: &[&str], tally: &mut Tally) -> Result<()> {
    let start = Instant::now();
    let log = log_path(name)?;
    let first =
        execute(make().args(options), File::create(&log).with_context(|| log.display().to_string())?)?;
    first.output.iter().for_each(|line| tally.completeness.read("this machine", line));
    let Counts { passed, failures, skips } = &first.counts;
    let mut passed = passed.saturating_sub(skips.len() as u64);
    let (mut failed, mut unstable) = (0, 0);
    for test in failures {
        println!("{name}: {test} failed:");
        let said = first.of(test);
        said.iter().skip(said.len().saturating_sub(SHOWN)).for_each(|line| println!("    {line}"));
        if failures.len() <= TRIED_AGAIN && passes_alone(&make, test, &log)? {
            println!("  and passed when it was run again.");
            (passed, unstable) = (passed + 1, unstable + 1);
            tally.unstable.push(format!("{name}: {test}: {}", first_words(said).unwrap_or_default()));
        } else {
            failed += 1;
            tally.failures.push(format!("{name}: {test}"));
        }
    }
    let time = start.elapsed().as_secs_f64();
    if passed + failed + skips.len() as u64 > 0 {
        let unstable = if unstable > 0 { format!(" ({unstable} at the second try)") } else { String::new() };
        println!("{name}: {passed} passed{unstable}, {failed} failed, {} skipped ({time:.1} s)", skips.len());
    }
    tally.passed += passed;
    tally.skips.extend(skips.iter().cloned());
    if !first.status.success() && failures.is_empty() {
        let lines = &first.output;
        lines.iter().skip(lines.len().saturating_sub(SHOWN)).for_each(|line| println!("    {line}"));
        let what = format!("the test program ended without an account ({}); {}", first.status, log.display());
        tally.add(name, Outcome::Fail(what));
    }
    Ok(())
}

/// Whether a test that failed among others passes by itself.
fn passes_alone(make: &impl Fn() -> Command, test: &str, log: &PathBuf) -> Result<bool> {
    let file = File::options().append(true).open(log)?;
    let again = execute(make().args(["--show-output", "--exact", test]), file)?;
    Ok(again.status.success() && again.counts.passed == 1 && again.counts.skips.is_empty())
}

/// Where a test program's output is kept until the next run.
pub fn log_path(name: &str) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = target.join("test-logs");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    Ok(folder.join(format!("{}.txt", name.replace(": ", "-").chars().map(plain).collect::<String>())))
}

/// What a program did.
struct Done {
    counts: Counts,
    output: Vec<String>,
    status: ExitStatus,
}

impl Done {
    /// What a failed test printed: libtest's section of it among the failures.
    fn of(&self, test: &str) -> &[String] {
        section(&self.output, test)
    }
}

fn section<'a>(output: &'a [String], test: &str) -> &'a [String] {
    let heading = format!("---- {test} stdout ----");
    let failures = output.iter().position(|line| line == "failures:").unwrap_or(output.len());
    let Some(at) = output[failures..].iter().position(|line| *line == heading) else { return &[] };
    let rest = &output[failures + at + 1..];
    let is_end =
        |line: &String| (line.starts_with("---- ") && line.ends_with(" stdout ----")) || line == "failures:";
    &rest[..rest.iter().position(is_end).unwrap_or(rest.len())]
}

/// What the first panic said.
fn first_words(said: &[String]) -> Option<String> {
    let at = said.iter().position(|line| line.contains("panicked at "))?;
    said.get(at + 1).cloned()
}

fn execute(command: &mut Command, mut log: File) -> Result<Done> {
    let name = command.get_program().to_string_lossy().into_owned();
    // What tests' own children say goes past libtest.
    let mut child = command.stdout(Stdio::piped()).stderr(log.try_clone()?).spawn().context(name)?;
    let stdout = child.stdout.take().context("the test's output was asked for as a pipe")?;
    let mut counts = Counts::default();
    let mut output = Vec::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(log, "{line}")?;
        counts.read(&line);
        output.push(line);
    }
    Ok(Done { counts, output, status: child.wait()? })
}

/// What libtest's lines say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that did not fail; skipped ones are among them.
    pub passed: u64,
    /// Names.
    pub failures: Vec<String>,
    /// Names and reasons.
    pub skips: Vec<String>,
}

impl Counts {
    /// Takes the next line of a test program's output.
    pub fn read(&mut self, line: &str) {
        if let Some(skip) = line.strip_prefix("SKIP: ") {
            self.skips.push(skip.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += result.split(' ').zip(result.split(' ').skip(1)).find_map(passed).unwrap_or(0);
        } else if let Some(test) = line.strip_prefix("test ") {
            if let Some(test) = test.strip_suffix(" ... FAILED") {
                self.failures.push(test.to_owned());
            } else if let Some((test, _)) = test.split_once(" ... ignored") {
                // Not among libtest's passed tests, so it is made to cancel out.
                self.passed += 1;
                self.skips.push(format!("{test}: marked #[ignore]"));
            }
        }
    }
}

fn passed((number, word): (&str, &str)) -> Option<u64> {
    if word == "passed;" { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_output_is_counted() {
        let mut counts = Counts::default();
        let output = "running 4 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored, slow\n\
            test d ... ok\nSKIP: d: needs root\ntest result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured;";
        output.lines().for_each(|line| counts.read(line));
        let skips = vec!["c: marked #[ignore]".to_owned(), "d: needs root".to_owned()];
        assert_eq!(counts, Counts { passed: 3, failures: vec!["b".to_owned()], skips });
        assert_eq!(counts.passed - counts.skips.len() as u64, 1);
    }

    #[test]
    fn what_a_failed_test_said_is_found() {
        let output = "successes:\n---- a stdout ----\nfine\nfailures:\n---- b stdout ----\nthread 'b' panicked at x.rs:1:\n\
            not equal\n---- c stdout ----\nSKIP\n\nfailures:\n    b\n    c\ntest result: FAILED.";
        let output: Vec<String> = output.lines().map(str::to_owned).collect();
        assert_eq!(section(&output, "b"), ["thread 'b' panicked at x.rs:1:", "not equal"]);
        assert_eq!(first_words(section(&output, "b")).as_deref(), Some("not equal"));
        assert_eq!(section(&output, "c"), ["SKIP", ""]);
        assert!(section(&output, "a").is_empty(), "it passed");
    }
}

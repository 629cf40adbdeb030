// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running one test binary: its output goes to a file, one line to the terminal, and what failed in full.
//!
//! A run has some 4 000 lines of output, in which one failure would drown. So what passed takes one line a test binary, and
//! what a failed test printed is repeated.
//!
//! A test that failed is run once more, alone. Many tests compare rtscope with what the kernel did on a machine that others use
//! as well, whose host now and then takes the CPU away for longer than a test allows for. A test that passes then is not
//! counted as failed, but it did not simply pass either: it is listed as unstable, with its first words, so that it gets mended.
//!
//! The time of each test: where one test runs at a time, it is the time since the one before it ended. Where they run all at
//! once libtest measures it (`--report-time`), which it only does when `RUSTC_BOOTSTRAP` allows options that are not stable;
//! tests of that kind start no compilers, which would read that, too.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::outcome::{Outcome, Tally, with_reason};
use crate::root;
use crate::timings::{THIS_MACHINE, Timing};

/// At most this many lines of a failed test are shown; all are in its file.
const SHOWN: usize = 60;
/// When more have failed, the machine's moods are not the reason.
const TRIED_AGAIN: usize = 8;
/// Who says nothing for so long hangs, and is killed: otherwise a run would end without a word of it. The longest test takes 100 s, and a slow host four times as long.
const SILENCE: Duration = Duration::from_secs(600);
/// Lets libtest of a stable Rust take options that are not.
const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// How the tests of a binary run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// One at a time: they load real CPUs, or measure time.
    Serial,
    /// All at once.
    Parallel,
    /// As cargo runs documentation examples: it knows how.
    Cargo,
}

impl Manner {
    fn prepare(self, command: &mut Command) -> &mut Command {
        match self {
            Manner::Serial => command.args(["--show-output", "--test-threads=1"]),
            Manner::Parallel => {
                let (name, value) = UNSTABLE;
                command.env(name, value).args(["--show-output", "-Z", "unstable-options", "--report-time"])
            }
            Manner::Cargo => command,
        }
    }
}

/// Runs a test binary and counts.
///
/// `make`: its command, without options for libtest. `choice`: those that choose tests.
pub fn run(
    name: &str,
    make: impl Fn() -> Command,
    choice: &[&str],
    manner: Manner,
    tally: &mut Tally,
) -> Result<()> {
    let start = Instant::now();
    let log = log_path(name)?;
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    let first = execute(manner.prepare(make().args(choice)), file)?;
    first.output.iter().for_each(|line| tally.tables.read(THIS_MACHINE, line));
    tally.timings.extend(first.timings(name));
    let Counts { passed, failures, skips, .. } = &first.counts;
    let mut passed = passed.saturating_sub(skips.len() as u64);
    let (mut failed, mut unstable) = (0, 0);
    for test in failures {
        println!("{name}: {test} failed:");
        let printed = first.of(test);
        let told = with_reason(&format!("{name}: {test}"), &first_words(printed));
        printed.iter().skip(printed.len().saturating_sub(SHOWN)).for_each(|line| println!("    {line}"));
        if failures.len() <= TRIED_AGAIN && passes_alone(&make, test, &log)? {
            println!("  and passed when it was run again.");
            (passed, unstable) = (passed + 1, unstable + 1);
            tally.unstable.push(told);
        } else {
            failed += 1;
            tally.failures.push(told);
        }
    }
    let time = start.elapsed().as_secs_f64();
    if passed + failed + skips.len() as u64 > 0 {
        let unstable = if unstable > 0 { format!(" ({unstable} at the second try)") } else { String::new() };
        println!("{name}: {passed} passed{unstable}, {failed} failed, {} skipped ({time:.1} s)", skips.len());
    }
    tally.passed += passed;
    tally.skips.extend(skips.iter().cloned());
    let ended = first.counts.ended.len() as u64 + first.counts.ignored;
    if ended != first.counts.announced || (!first.status.success() && failures.is_empty()) {
        let lines = &first.output;
        lines.iter().skip(lines.len().saturating_sub(SHOWN)).for_each(|line| println!("    {line}"));
        let announced = first.counts.announced;
        let what =
            format!("it ended after {ended} of {announced} tests ({}); {}", first.status, log.display());
        tally.add(name, Outcome::Fail(what));
    }
    Ok(())
}

/// Whether a test that failed among others passes by itself.
fn passes_alone(make: &impl Fn() -> Command, test: &str, log: &PathBuf) -> Result<bool> {
    let file = File::options().append(true).open(log)?;
    let again = execute(make().args(["--show-output", "--test-threads=1", "--exact", test]), file)?;
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
    /// What each test took.
    fn timings(&self, name: &str) -> Vec<Timing> {
        let skipped = |test: &str| {
            self.counts
                .skips
                .iter()
                .any(|skip| skip.strip_prefix(test).is_some_and(|rest| rest.starts_with(": ")))
        };
        let timing = |test: &EndedTest| Timing {
            place: THIS_MACHINE.to_owned(),
            program: name.to_owned(),
            test: test.name.clone(),
            result: match test.failed {
                true => "fail",
                false if skipped(&test.name) => "skip",
                false => "pass",
            },
            time: test.time.unwrap_or_default(),
        };
        self.counts.ended.iter().map(timing).collect()
    }

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

/// Where the first panic was and what it said: the next lines, with the two sides of a comparison.
fn first_words(said: &[String]) -> String {
    const LINES: usize = 4;
    let Some(at) = said.iter().position(|line| line.contains("panicked at ")) else { return String::new() };
    let place = said[at].split("panicked at ").nth(1).unwrap_or_default();
    let words = said[at + 1..].iter().take_while(|line| !line.starts_with("note: run with"));
    let words: Vec<&str> = words.take(LINES).map(String::as_str).collect();
    format!("{place} {}", words.join(" "))
}

fn execute(command: &mut Command, log: File) -> Result<Done> {
    execute_within(SILENCE, command, log)
}

fn execute_within(silence: Duration, command: &mut Command, mut log: File) -> Result<Done> {
    let name = command.get_program().to_string_lossy().into_owned();
    // What tests' own children say goes past libtest.
    let mut child = command.stdout(Stdio::piped()).stderr(log.try_clone()?).spawn().context(name)?;
    let mut stdout = child.stdout.take().context("the test's output was asked for as a pipe")?;
    let (send, pieces) = channel();
    // It ends with the last process that has this end of the pipe: nobody waits for it.
    thread::spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = stdout.read(&mut piece) {
            if send.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let (mut counts, mut output, mut before) = (Counts::default(), Vec::new(), Instant::now());
    let (mut unfinished, mut silence) = (Vec::new(), silence);
    loop {
        match pieces.recv_timeout(silence) {
            Ok(piece) => unfinished.extend(piece),
            // A child of its own may keep the pipe open.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_none() => {
                unfinished.extend(format!("\nkilled: it said nothing for {} s\n", silence.as_secs()).bytes());
                child.kill()?;
                silence = Duration::from_secs(1);
            }
            Err(_) => break,
        }
        while let Some(end) = unfinished.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unfinished.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            writeln!(log, "{line}")?;
            if let Some(test) = counts.read(&line) {
                test.time.get_or_insert(before.elapsed());
                before = Instant::now();
            }
            output.push(line);
        }
    }
    output.extend((!unfinished.is_empty()).then(|| String::from_utf8_lossy(&unfinished).into_owned()));
    counts.add_listed(&output);
    Ok(Done { counts, output, status: ended(&mut child)? })
}

/// How a program ended that says nothing more. One that waits for what never comes (a request to a file system of its own) cannot be killed.
fn ended(child: &mut Child) -> Result<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < SILENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(ExitStatus::from_raw(nix::libc::SIGKILL))
}

/// A test that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTest {
    name: String,
    failed: bool,
    /// As libtest measured it, or as it was seen here.
    time: Option<Duration>,
}

/// `test NAME ... ok`, with ` <0.012s>` behind it where the time is reported.
fn ended_test(line: &str) -> Option<EndedTest> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (result, time) = match result.split_once(" <") {
        Some((result, time)) => (result, time.strip_suffix("s>")?.parse().ok().map(Duration::from_secs_f64)),
        None => (result, None),
    };
    let failed = result == "FAILED";
    (failed || result == "ok").then(|| EndedTest { name: name.to_owned(), failed, time })
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
    /// All that ended, in that order.
    pub ended: Vec<EndedTest>,
    /// How many tests were to run, and how many of these are marked `#[ignore]`.
    announced: u64,
    ignored: u64,
    /// A test whose result is not in its line, since a process that it started has written behind its name.
    open: Option<String>,
}

impl Counts {
    /// Takes the next line of a test binary's output. Returns a test that has just ended.
    pub fn read(&mut self, line: &str) -> Option<&mut EndedTest> {
        if let Some(skip) = line.strip_prefix("SKIP: ") {
            self.skips.push(skip.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += result.split(' ').zip(result.split(' ').skip(1)).find_map(passed).unwrap_or(0);
        } else if let Some(count) = line.strip_prefix("running ").and_then(announced) {
            self.announced += count;
        } else if let Some(ended) = ended_test(line).or_else(|| self.ended_late(line)) {
            self.open = None;
            if ended.failed {
                self.failures.push(ended.name.clone());
            }
            self.ended.push(ended);
            return self.ended.last_mut();
        } else if let Some((test, _)) =
            line.strip_prefix("test ").and_then(|test| test.split_once(" ... ignored"))
        {
            // Not among libtest's passed tests, so it is made to cancel out.
            self.passed += 1;
            self.skips.push(format!("{test}: marked #[ignore]"));
            self.ignored += 1;
        }
        None
    }

    /// Adds the failures of libtest's list at the end, which nothing is written into.
    fn add_listed(&mut self, output: &[String]) {
        let list = output.iter().rposition(|line| line == "failures:").map_or(output.len(), |at| at + 1);
        let names = output[list..].iter().map_while(|line| line.strip_prefix("    "));
        let missing = names.filter(|name| !self.failures.iter().any(|known| known == name));
        let missing: Vec<String> = missing.map(str::to_owned).collect();
        self.failures.extend(missing);
    }

    /// The result of a test at the end of a line into which a child of it has written, or of a later one.
    fn ended_late(&mut self, line: &str) -> Option<EndedTest> {
        let (begun, line) = match line.strip_prefix("test ").and_then(|test| test.split_once(" ... ")) {
            Some((test, rest)) => (Some(test), rest),
            None => (None, line),
        };
        if begun.is_some_and(|_| line.starts_with("ignored")) {
            return None;
        }
        self.open = begun.map(str::to_owned).or(self.open.take());
        let name = self.open.clone()?;
        let failed = line.ends_with("FAILED");
        (failed || line.ends_with("ok")).then_some(EndedTest { name, failed, time: None })
    }
}

/// "3 tests", behind "running ".
fn announced(text: &str) -> Option<u64> {
    text.strip_suffix(" tests").or_else(|| text.strip_suffix(" test"))?.parse().ok()
}

fn passed((number, word): (&str, &str)) -> Option<u64> {
    if word == "passed;" { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_is_killed_and_what_he_was_at_is_known() {
        let mut command = Command::new("sh");
        // Also if a child of his keeps the pipe open.
        command.args(["-c", "echo 'test a ... ok'; printf 'test b ... '; sleep 60 & exec sleep 60"]);
        let log = File::create("/dev/null").unwrap();
        let done = execute_within(Duration::from_millis(300), &mut command, log).unwrap();
        assert_eq!(done.counts.ended.len(), 1);
        assert!(!done.status.success());
        assert_eq!(done.output, ["test a ... ok", "test b ... ", "killed: it said nothing for 0 s"]);
    }

    #[test]
    fn libtest_output_is_counted() {
        let mut counts = Counts::default();
        let output = "running 4 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored, slow\n\
            test d ... ok\nSKIP: d: needs root\ntest result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured;";
        for line in output.lines() {
            counts.read(line);
        }
        let skips = vec!["c: marked #[ignore]".to_owned(), "d: needs root".to_owned()];
        assert_eq!((counts.passed, &counts.failures, &counts.skips), (3, &vec!["b".to_owned()], &skips));
        assert_eq!(counts.passed - counts.skips.len() as u64, 1);
        assert_eq!(counts.ended.iter().map(|test| test.name.as_str()).collect::<Vec<_>>(), ["a", "b", "d"]);
    }

    #[test]
    fn a_result_behind_what_a_child_wrote_counts_and_a_missing_one_is_noticed() {
        let mut counts = Counts::default();
        let output = "running 3 tests\ntest a ... hello\nworld\nFAILED\ntest b ... a line without an endok\ntest c ... ";
        for line in output.lines() {
            counts.read(line);
        }
        counts.add_listed(&["failures:", "    a", "    c", "", "test result: FAILED."].map(str::to_owned));
        assert_eq!(counts.failures, ["a", "c"]);
        let ended: Vec<(&str, bool)> =
            counts.ended.iter().map(|test| (test.name.as_str(), test.failed)).collect();
        assert_eq!(ended, [("a", true), ("b", false)]);
        assert_eq!(counts.announced, 3);
    }

    #[test]
    fn the_time_of_a_test_is_read_where_it_is_reported() {
        let test = ended_test("test tests::a ... ok <0.250s>").expect("it ended");
        assert_eq!(
            (test.name.as_str(), test.failed, test.time),
            ("tests::a", false, Some(Duration::from_millis(250)))
        );
        assert!(ended_test("test b ... FAILED <1.000s>").expect("it ended").failed);
        assert_eq!(ended_test("test c ... ok").expect("it ended").time, None);
        assert_eq!(ended_test("test result: ok. 1 passed"), None);
    }

    #[test]
    fn what_a_failed_test_said_is_found() {
        let output = "successes:\n---- a stdout ----\nfine\nfailures:\n---- b stdout ----\nthread 'b' panicked at x.rs:1:\n\
            not equal\n---- c stdout ----\nSKIP\n\nfailures:\n    b\n    c\ntest result: FAILED.";
        let output: Vec<String> = output.lines().map(str::to_owned).collect();
        assert_eq!(section(&output, "b"), ["thread 'b' panicked at x.rs:1:", "not equal"]);
        assert_eq!(first_words(section(&output, "b")), "x.rs:1: not equal");
        assert_eq!(section(&output, "c"), ["SKIP", ""]);
        assert!(section(&output, "a").is_empty(), "it passed");
    }
}

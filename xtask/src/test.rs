// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x test`: lint, build once, run every test program, and account for each result.
//!
//! The test programs are run one by one (`libtest`) and not through `cargo test`, for three reasons: the time of each is known, a
//! test that is skipped can be told from one that passed, and the integration tests, which load real CPUs with real-time
//! tasks, run one test at a time while the others use all CPUs.
//!
//! The long watch (crates/cli/tests/soak.rs) takes ten minutes, and would be no test without other load on the machine. It runs
//! beside the documentation examples and the virtual machines, which take about half of that. `--quick` makes it short.
//!
//! A test says that it is skipped by printing a line `SKIP: name: reason` and returning.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::cargo;
use crate::kernel_log::KernelLog;
use crate::libtest;
use crate::lint;
use crate::outcome::Tally;
use crate::vm;

/// The test program of the long watch.
const SOAK: &str = "cli: soak";
/// What it reads its time from.
const SOAK_SECONDS: &str = "RTSCOPE_SOAK_SECONDS";
/// Its time, and with `--quick`.
const SOAK_TIMES: [&str; 2] = ["600", "20"];

/// One built test program.
#[derive(Debug, PartialEq, Eq)]
pub struct TestProgram {
    /// The crate and the file.
    pub name: String,
    /// Where it is.
    pub executable: PathBuf,
    package_folder: PathBuf,
    /// An integration test: its tests run one after the other.
    integration: bool,
}

impl TestProgram {
    /// Starts it where its crate is.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.package_folder);
        command
    }

    /// What libtest is told.
    fn options(&self) -> &'static [&'static str] {
        if self.integration { &["--show-output", "--test-threads=1"] } else { &["--show-output"] }
    }
}

/// What cargo built.
#[derive(Debug, Default)]
pub struct Build {
    /// The test programs.
    pub tests: Vec<TestProgram>,
    /// The workspace's other programs.
    pub programs: Vec<PathBuf>,
}

/// Runs everything and prints the account.
pub fn run(quick: bool) -> Result<ExitCode> {
    let mut tally = Tally::default();
    let mut times = Vec::new();
    timed(&mut times, "lint", || lint::add_all(&mut tally))?;
    let build = timed(&mut times, "build", build)?;
    let log = KernelLog::read();
    for program in build.tests.iter().filter(|program| program.name != SOAK) {
        let run = || libtest::run(&program.name, || program.command(), program.options(), &mut tally);
        timed(&mut times, &program.name, run)?;
    }
    let machines = format!("documentation examples, virtual machines, and {SOAK}");
    timed(&mut times, &machines, || machines_and_soak(&build, quick, &mut tally))?;
    tally.add("kernel log", log.check());
    print_times(times);
    Ok(tally.finish())
}

fn machines_and_soak(build: &Build, quick: bool, tally: &mut Tally) -> Result<()> {
    let (of_soak, of_machines) = thread::scope(|scope| {
        let soak = scope.spawn(|| run_soak(build, quick));
        let of_machines = run_doc_tests(tally).and_then(|()| vm::add_all(build, tally));
        (soak.join(), of_machines)
    });
    tally.append(of_soak.map_err(|_| anyhow!("{SOAK} could not be run: its thread panicked"))??);
    of_machines
}

fn run_soak(build: &Build, quick: bool) -> Result<Tally> {
    let mut tally = Tally::default();
    let program = build.tests.iter().find(|program| program.name == SOAK);
    let program = program.with_context(|| format!("there is no test program {SOAK}"))?;
    let make = || {
        let mut command = program.command();
        if std::env::var_os(SOAK_SECONDS).is_none() {
            command.env(SOAK_SECONDS, SOAK_TIMES[usize::from(quick)]);
        }
        command
    };
    libtest::run(SOAK, make, program.options(), &mut tally)?;
    Ok(tally)
}

fn timed<T>(times: &mut Vec<(String, Duration)>, name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    times.push((name.to_owned(), start.elapsed()));
    result
}

fn print_times(mut times: Vec<(String, Duration)>) {
    let total: Duration = times.iter().map(|(_, t)| *t).sum();
    times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    println!("\nWhere the time went ({:.1} s in all):", total.as_secs_f64());
    for (name, time) in times.iter().filter(|(_, t)| t.as_millis() >= 2000) {
        println!("{:>8.1} s  {name}", time.as_secs_f64());
    }
    println!();
}

/// Builds all programs and tests in one profile, so that nothing is compiled twice.
pub fn build() -> Result<Build> {
    built_by(&["test", "--workspace", "--no-run", "--bins", "--lib", "--tests"])
}

/// Builds the programs and no tests.
pub fn build_programs() -> Result<Build> {
    built_by(&["build", "--workspace", "--bins"])
}

fn built_by(arguments: &[&str]) -> Result<Build> {
    let mut child = cargo()
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo")?;
    let stdout = child.stdout.take().context("cargo's output was asked for as a pipe")?;
    let mut build = Build::default();
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        build.tests.extend(test_program(&line));
        build.programs.extend(other_program(&line));
    }
    if !child.wait()?.success() {
        bail!("the build failed; see above");
    }
    Ok(build)
}

/// The folder of a build: `target/debug` for the program of a test in its `deps`.
pub fn build_folder(program: &Path) -> Option<&Path> {
    let folder = program.parent()?;
    if folder.ends_with("deps") { folder.parent() } else { Some(folder) }
}

/// Reads one of cargo's messages: is it about a program that is no test?
fn other_program(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message.get("profile")?.get("test")?.as_bool()?;
    let is_program = message.get("target")?.get("kind")?.as_array()?.iter().any(|kind| kind == "bin");
    message.get("executable")?.as_str().filter(|_| is_program && !is_test).map(PathBuf::from)
}

/// Reads one of cargo's messages: is it about a test program?
fn test_program(line: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message.get("profile")?.get("test")?.as_bool()?;
    let executable = message.get("executable")?.as_str().filter(|_| is_test)?;
    let target = message.get("target")?;
    let integration = target.get("kind")?.as_array()?.iter().any(|kind| kind == "test");
    let package_folder = PathBuf::from(message.get("manifest_path")?.as_str()?).parent()?.to_owned();
    let package = package_folder.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package}: {}", target.get("name")?.as_str()?);
    Some(TestProgram { name, executable: executable.into(), package_folder, integration })
}

fn run_doc_tests(tally: &mut Tally) -> Result<()> {
    let make = || {
        let mut command = cargo();
        command.args(["test", "--quiet", "--workspace", "--doc"]);
        command
    };
    libtest::run("documentation examples", make, &[], tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_messages_name_the_test_programs() {
        let line = r#"{"manifest_path":"/p/crates/ring/Cargo.toml","target":{"kind":["test"],"name":"bank"},
            "profile":{"test":true},"executable":"/t/bank-1"}"#;
        let program = test_program(line).expect("a test program");
        assert_eq!((program.name.as_str(), program.integration), ("ring: bank", true));
        assert_eq!(test_program(&line.replace("true", "false")), None);
        assert_eq!(other_program(line), None);
        let other = line.replace("true", "false").replace(r#"["test"]"#, r#"["bin"]"#);
        assert_eq!(other_program(&other), Some(PathBuf::from("/t/bank-1")));
        assert_eq!(test_program(r#"{"reason":"build-finished","success":true}"#), None);
    }
}

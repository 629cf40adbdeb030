// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x test`: lint, build once, run every test binary, and sum up each result.
//!
//! The test binaries are run one by one (`libtest`) and not through `cargo test`, for three reasons: the time of each test is
//! known, a test that is skipped can be distinguished from one that passed, and tests that measure time run alone.
//!
//! The order: a few tests that nothing may disturb; then, one after the other, those that load the machine, measure time or collect from programs. They leave
//! the CPUs idle most of their time, which everything else gets from one queue (`queue`): guests, clippy, unit tests, documentation examples, all with the
//! priority of idle, so that a test that measures has a CPU at once when it wants it.
//!
//! A test says that it is skipped by printing a line `SKIP: name: reason` and returning.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::build::{self, Build, TestBinary};
use crate::kernel_log::KernelLog;
use crate::libtest::{self, Manner};
use crate::outcome::{Outcome, Tally};
use crate::queue::{self, Job};
use crate::timings::{self, Estimates, Timing};
use crate::tracefs::Tracefs;
use crate::workspace::{self, Workspace};
use crate::{cargo, lint, status, vm};

/// What `./x test --help` prints.
pub const HELP: &str = "\
./x test [OPTIONS] [CRATE|NAME…]

Lint, then all tests: on this machine, and of the privileged ones those in emulated machines
that say something new there. As root, or the privileged ones are skipped.
With names, only the tests of these crates and those with these texts in their names; without
root, the privileged ones among them are run through sudo.

  --all           every privileged test on every kernel, every kill point, the long watch
                  (hours); writes docs/test-status.md and docs/test-timings.json
  --timings FILE  the time of each test in each place, as JSON

  ./x test                            everything that CI runs
  ./x test analyze                    the tests of one crate
  ./x test root_a_long_watch          one test
  ./x vm --test killed 6.12-rt        one test on one kernel
";

/// Crates whose integration tests load real CPUs, measure time, or start collectors of programs, which find each other: one test at a time.
const SERIAL: [&str; 10] = [
    "artis",
    "cli",
    "embed",
    "flight",
    "kernel",
    "production-line",
    "programs",
    "queue",
    "shield",
    "testkit",
];
/// Tests that what has the priority of idle would disturb, by crate and what their names have: they compare CPU times, caches' included, fill the memory, or
/// are right only if each of many responses, or who was on a CPU at each moment, is known, or two clocks are read without a pause between them.
const ALONE: [(&str, &str); 5] = [
    ("bench", "own_cost::tests::root_"),
    ("cli", "stories::root_the_xruns_"),
    ("cli", "watch::blame::"),
    ("flight", "replay::root_handlers_and_softirqs_"),
    ("programs", "liars::thousands_"),
];
/// Tests that take a minute and test few crates: `./x check` leaves them out where these have not changed. Crate and modules; none named: all.
const COLLECTING: [(&str, &[&str]); 3] = [
    ("cli", &["help::", "json::", "list::", "programs::", "refusals::", "traces::"]),
    ("queue", &[]),
    ("programs", &[]),
];
/// What clippy and the documentation examples take on two CPUs, in seconds: they begin early.
const CLIPPY_S: f64 = 240.0;
/// What a test binary without real loads is expected to take; and one that takes much longer, and must not be the last.
const BINARY_S: f64 = 20.0;
const LONG_BINARY: (&str, f64) = ("bench", 120.0);

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    all: bool,
    timings: Option<PathBuf>,
    names: Vec<String>,
}

fn parse(arguments: &[&str]) -> Result<Option<Request>> {
    let mut request = Request::default();
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        match argument {
            "-h" | "--help" => return Ok(None),
            "--all" => request.all = true,
            "--timings" => request.timings = Some(arguments.next().context("--timings needs a file")?.into()),
            option if option.starts_with('-') => bail!("there is no option '{option}' (./x test --help)"),
            name => request.names.push(name.to_owned()),
        }
    }
    if request.all && !request.names.is_empty() {
        bail!("--all is for all tests; ./x vm --test NAME runs one on every kernel");
    }
    Ok(Some(request))
}

/// Which tests were asked for.
#[derive(Debug, Default)]
struct Selection {
    crates: BTreeSet<String>,
    names: Vec<String>,
}

impl Selection {
    fn new(names: &[String], workspace: &Workspace) -> Selection {
        let mut selection = Selection::default();
        for name in names {
            match workspace.find(name) {
                Some(member) => drop(selection.crates.insert(member.name.clone())),
                None => selection.names.push(name.clone()),
            }
        }
        selection
    }

    fn is_everything(&self) -> bool {
        self.crates.is_empty() && self.names.is_empty()
    }

    fn takes(&self, binary: &TestBinary, test: &str) -> bool {
        let named = || self.names.iter().any(|name| test.contains(name.as_str()));
        self.is_everything() || self.crates.contains(&binary.member) || named()
    }
}

/// `./x test …`
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    let Some(request) = parse(arguments)? else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    // Known now rather than after the tests.
    if let Some(path) = &request.timings {
        File::create(path).with_context(|| path.display().to_string())?;
    }
    let start = Instant::now();
    let _tracefs = Tracefs::mount();
    let mut tally = Tally::default();
    let selection = Selection::new(&request.names, &Workspace::read()?);
    if selection.is_everything() {
        run_everything(&request, &selection, &mut tally)?;
    } else {
        run_part(&selection, &mut tally)?;
    }
    let (date, seconds) = (status::today(), start.elapsed().as_secs_f64());
    let all = timings::to_json(&tally.timings, &workspace::commit(), &date, seconds);
    if let Some(path) = &request.timings {
        timings::write(path, &all)?;
    }
    if request.all {
        timings::write(&Estimates::path(), &all)?;
        status::write(&tally, &date, seconds)?;
    }
    println!("\nThe slowest tests:");
    timings::slowest(&tally.timings).iter().for_each(|line| println!("{line}"));
    println!("\nThe modules that took longest:");
    timings::longest_modules(&tally.timings).iter().for_each(|line| println!("{line}"));
    print_steps(&tally.timings, seconds);
    Ok(tally.finish())
}

fn run_everything(request: &Request, selection: &Selection, tally: &mut Tally) -> Result<()> {
    step(tally, "lint", lint::add_quick)?;
    let build = step(tally, "build", |_| build::everything())?;
    let log = KernelLog::read();
    let full = request.all.then_some((vm::ALL, "1"));
    step(tally, "tests that run alone", |tally| {
        ALONE.iter().try_for_each(|(member, test)| run_alone(&build, member, test, tally))
    })?;
    let asked = if request.all { vm::Asked::All } else { vm::Asked::Turn };
    step(tally, "virtual machines, clippy, other tests", |tally| {
        let plan = vm::plan_for_test(&build, asked, |binary, name| selection.takes(binary, name), tally)?;
        let estimates = Estimates::read();
        let mut jobs = vec![clippy_and_examples(), unit_tests(&build)];
        jobs.extend(quiet(&build).map(|binary| Job {
            name: binary.name.clone(),
            seconds: if binary.member == LONG_BINARY.0 { LONG_BINARY.1 } else { BINARY_S },
            work: Box::new(|| tests_of(binary, Manner::Parallel)),
        }));
        jobs.extend(plan.iter().flat_map(|plan| plan.jobs(&estimates)));
        queue::run(jobs, vec![serial(&build, full)], workers(), tally);
        plan.map_or(Ok(()), |plan| plan.report(tally))
    })?;
    tally.add("kernel log", log.check());
    Ok(())
}

/// One job for each CPU: a guest keeps one busy.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn is_serial(binary: &TestBinary) -> bool {
    binary.integration && SERIAL.contains(&binary.member.as_str())
}

fn run_alone(build: &Build, member: &str, test: &str, tally: &mut Tally) -> Result<()> {
    let mut found = false;
    for binary in build.tests.iter().filter(|binary| binary.member == member) {
        if names_of(binary)?.iter().any(|name| name.contains(test)) {
            found = true;
            let name = format!("{} (alone)", binary.name);
            libtest::run(&name, || binary.command(), &[test], Manner::Serial, tally)?;
        }
    }
    // It would run beside others without a word.
    if !found {
        tally.add(test, Outcome::Fail(format!("{member} has no test of that name any more")));
    }
    Ok(())
}

/// The options that leave out those that run alone.
fn without_alone(binary: &TestBinary) -> Vec<&'static str> {
    let alone = ALONE.iter().filter(|(member, _)| binary.member == *member);
    alone.flat_map(|(_, test)| ["--skip", test]).collect()
}

/// The modules of a binary that collect from programs; none named: all.
fn collecting_modules(binary: &TestBinary) -> Option<&'static [&'static str]> {
    COLLECTING
        .iter()
        .find(|(member, _)| binary.integration && binary.member == *member)
        .map(|(_, modules)| *modules)
}

/// All tests of [`SERIAL`], which wait for programs, compilers and clocks. `full`: what tells tests with a short form to run their long one.
fn serial<'a>(build: &'a Build, full: Option<(&'static str, &'static str)>) -> Job<'a> {
    let work = move || {
        let mut tally = Tally::default();
        let start = Instant::now();
        for binary in build.tests.iter().filter(|binary| is_serial(binary)) {
            let make = || {
                let mut command = binary.command();
                command.envs(full);
                command
            };
            libtest::run(&binary.name, make, &without_alone(binary), Manner::Serial, &mut tally)?;
        }
        tally.timings.push(Timing::step("tests one at a time, beside the others", start.elapsed()));
        Ok(tally)
    };
    // Nothing waits for its turn.
    Job { name: "tests that run one at a time".into(), seconds: 0.0, work: Box::new(work) }
}

/// Integration tests that read and write files.
fn quiet(build: &Build) -> impl Iterator<Item = &TestBinary> {
    build.tests.iter().filter(|binary| binary.integration && !is_serial(binary))
}

fn tests_of(binary: &TestBinary, manner: Manner) -> Result<Tally> {
    let mut tally = Tally::default();
    libtest::run(&binary.name, || binary.command(), &without_alone(binary), manner, &mut tally)?;
    Ok(tally)
}

fn unit_tests(build: &Build) -> Job<'_> {
    let work = || {
        let mut tally = Tally::default();
        for binary in build.tests.iter().filter(|binary| !binary.integration) {
            tally.append(tests_of(binary, Manner::Parallel)?);
        }
        Ok(tally)
    };
    Job { name: "unit tests".into(), seconds: CLIPPY_S / 2.0, work: Box::new(work) }
}

/// Both want cargo for themselves.
fn clippy_and_examples() -> Job<'static> {
    let work = || {
        let mut tally = Tally::default();
        step(&mut tally, "clippy", |tally| tally.add("clippy", lint::clippy(&BTreeSet::new())));
        let make = || {
            let mut command = cargo();
            command.args(["test", "--workspace", "--doc"]);
            command
        };
        step(&mut tally, "documentation examples", |tally| {
            libtest::run("documentation examples", make, &[], Manner::Cargo, tally)
        })?;
        Ok(tally)
    };
    Job { name: "clippy and documentation examples".into(), seconds: CLIPPY_S, work: Box::new(work) }
}

/// The tests that were asked for, here and in guests.
fn run_part(selection: &Selection, tally: &mut Tally) -> Result<()> {
    let build = step(tally, "build", |_| build::everything())?;
    let mut found = false;
    for binary in &build.tests {
        let names: Vec<String> =
            names_of(binary)?.into_iter().filter(|name| selection.takes(binary, name)).collect();
        let (privileged, plain): (Vec<String>, Vec<String>) =
            names.into_iter().partition(|name| is_privileged(name) && !is_root());
        found |= !privileged.is_empty() || !plain.is_empty();
        for (names, through_sudo) in [(plain, false), (privileged, true)] {
            run_named(binary, &names, through_sudo, tally)?;
        }
    }
    if !found {
        bail!("there is no crate and no test of that name");
    }
    if let Some(plan) =
        vm::plan_for_test(&build, vm::Asked::Stated, |binary, name| selection.takes(binary, name), tally)?
    {
        queue::run(plan.jobs(&Estimates::read()), Vec::new(), workers(), tally);
        plan.report(tally)?;
    }
    Ok(())
}

fn run_named(binary: &TestBinary, names: &[String], through_sudo: bool, tally: &mut Tally) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let make = || {
        let mut command = binary.command();
        if through_sudo {
            let mut sudo = Command::new("sudo");
            sudo.arg("-E").arg(&binary.executable);
            sudo.current_dir(command.get_current_dir().unwrap_or(std::path::Path::new(".")));
            command = sudo;
        }
        command
    };
    let choice: Vec<&str> = ["--exact"].into_iter().chain(names.iter().map(String::as_str)).collect();
    libtest::run(&binary.name, make, &choice, manner(binary), tally)
}

fn manner(binary: &TestBinary) -> Manner {
    if is_serial(binary) { Manner::Serial } else { Manner::Parallel }
}

fn is_privileged(test: &str) -> bool {
    test.rsplit("::").next().unwrap_or(test).starts_with("root_")
}

/// Whether this process may do what root may.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The names of a binary's tests.
pub fn names_of(binary: &TestBinary) -> Result<Vec<String>> {
    let mut command = binary.command();
    command.args(["--list", "--format", "terse"]).stdin(Stdio::null());
    let output = command.output().with_context(|| binary.executable.display().to_string())?;
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn step<T>(tally: &mut Tally, name: &str, work: impl FnOnce(&mut Tally) -> T) -> T {
    let start = Instant::now();
    let result = work(tally);
    tally.timings.push(Timing::step(name, start.elapsed()));
    result
}

fn print_steps(timings: &[Timing], seconds: f64) {
    println!("\nWhere the time went ({seconds:.1} s in all):");
    for step in timings.iter().filter(|timing| timing.test.is_empty()) {
        println!("{:>8.1} s  {}", step.time.as_secs_f64(), step.program);
    }
    println!();
}

/// For `./x check`: clippy and the tests without root of the crates that a change reached. `with_collecting`: with those that
/// collect from programs, which take a minute and test few crates.
pub fn run_unprivileged(
    packages: &BTreeSet<String>,
    crates: &BTreeSet<&str>,
    with_collecting: bool,
    tally: &mut Tally,
) -> Result<()> {
    step(tally, "clippy", |tally| tally.add("clippy", lint::clippy(packages)));
    let build = step(tally, "build", |_| build::of(packages))?;
    for binary in build.tests.iter().filter(|binary| crates.contains(binary.member.as_str())) {
        let collecting = collecting_modules(binary).filter(|_| !with_collecting);
        if collecting.is_some_and(<[&str]>::is_empty) {
            continue;
        }
        let left_out = collecting.unwrap_or_default().iter().copied().chain(["root_"]);
        let choice: Vec<&str> = left_out.flat_map(|module| ["--skip", module]).collect();
        step(tally, &binary.name, |tally| {
            libtest::run(&binary.name, || binary.command(), &choice, manner(binary), tally)
        })?;
    }
    Ok(())
}

/// The crates whose changes the tests that collect from programs could notice.
pub fn collected_from() -> BTreeSet<&'static str> {
    let own = COLLECTING.iter().map(|(member, _)| *member);
    own.chain(["ctf", "probe", "ring", "store", "testkit"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let request = parse(&["--timings", "t.json", "analyze", "root_x"]).expect("good").expect("not help");
        assert_eq!((request.timings, request.names.len(), request.all), (Some("t.json".into()), 2, false));
        assert!(parse(&["--all"]).expect("good").is_some_and(|request| request.all));
        assert!(parse(&["--help"]).expect("good").is_none());
        for wrong in [&["--fast"][..], &["--timings"], &["--all", "analyze"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_part_is_a_crate_or_a_name() {
        let binary = TestBinary::of;
        let selection = Selection { crates: BTreeSet::from(["ring".to_owned()]), names: vec!["late".into()] };
        assert!(selection.takes(&binary("ring"), "any"));
        assert!(selection.takes(&binary("cli"), "watch::root_late_ones"));
        assert!(!selection.takes(&binary("cli"), "watch::root_early_ones"));
        assert!(Selection::default().takes(&binary("cli"), "any"));
    }

    #[test]
    fn privileged_tests_are_told_by_their_names() {
        let names = ["a_root_of_two", "root_it_loads", "tests::root_it_runs"].map(is_privileged);
        assert_eq!(names, [false, true, true]);
    }
}

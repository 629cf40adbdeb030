// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x vm`: the privileged tests on other kernels than this machine's, in emulated machines.
//!
//! What depends on the kernel shows only on that kernel: its verifier, its tracepoints, whether a handler is a thread. Each
//! test says what it needs (`needs`), and runs on the kernels that have it, or on all. The tests of one kernel are divided
//! into jobs of some minutes, which are run by one queue (`crate::queue`), so that all CPUs are busy until the end. A job
//! boots its kernel (`boot`) with its tests in memory (`initramfs`, `suite`), reads from the console how they go (`init.sh`,
//! `guest`), and adds to the kernel's column (`column`) of the table (`table`).

mod apt;
mod boot;
mod column;
mod command;
mod guest;
mod headers;
mod initramfs;
mod kernels;
mod locks;
mod modules;
pub mod needs;
mod options;
mod qemu;
mod serial;
mod suite;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

use crate::build::{self, Build, TestBinary};
use crate::libtest;
use crate::outcome::{Outcome, Tally, with_reason};
use crate::queue::{self, Job};
use crate::timings::Estimates;
use crate::workspace;
use boot::Machine;
pub use column::ALL;
use column::{KernelJob, KernelRun};
use guest::Verdict;
use kernels::{Image, Kernel};
pub use needs::Asked;
use options::Action;
pub use options::Options;
use qemu::Qemu;
use suite::Suite;

/// A job is expected to take about this long, so that the last ones of all end together.
const JOB_S: f64 = 150.0;
/// A boot takes about this long.
const BOOT_S: f64 = 8.0;
/// A test that has never run here is expected to take this long; one in virtual time or of stress, that long.
const TEST_S: f64 = 8.0;
const LONG_TEST_S: f64 = 100.0;

/// `./x vm …`
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    let options = match options::parse(arguments)? {
        Action::Help => {
            print!("{}", options::HELP);
            return Ok(ExitCode::SUCCESS);
        }
        Action::List => return list(),
        Action::Run(options) => options,
    };
    if let Some(missing) = missing_tool() {
        bail!("{missing}");
    }
    if let Some(command) = &options.command {
        return command::run(command, &options, &build::programs()?);
    }
    let build = build::everything()?;
    let plan = Plan::new(options, &build, |_, _| true)?;
    if plan.is_empty() {
        bail!("no privileged test has a name with '{}'", plan.options.filter);
    }
    let mut tally = Tally::default();
    queue::run(plan.jobs(&Estimates::read()), Vec::new(), plan.options.jobs, &mut tally);
    plan.report(&mut tally)?;
    if plan.options.json {
        return Ok(if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Ok(tally.finish())
}

/// The part of `./x test`, of the tests that are wanted. `asked`: all, or those that are named, or those that have their turn. What cannot be had is a skip,
/// and nothing is left to do then.
pub fn plan_for_test(
    build: &Build,
    asked: Asked,
    wanted: impl Fn(&TestBinary, &str) -> bool,
    tally: &mut Tally,
) -> Result<Option<Plan>> {
    let options = Options { asked, ..Options::for_test(asked == Asked::All) };
    let reason = missing_tool().or_else(|| fetch(&options).err().map(|error| format!("{error:#}")));
    if let Some(reason) = reason {
        let names: Vec<&str> = options.kernels.iter().map(|kernel| kernel.name).collect();
        tally.add(&format!("virtual machines: {}", names.join(", ")), Outcome::Skip(reason));
        return Ok(None);
    }
    Plan::new(options, build, wanted).map(Some)
}

fn missing_tool() -> Option<String> {
    let works = Qemu::installed().version().is_some();
    (!works).then(|| format!("{} is not installed (apt install qemu-system-x86)", qemu::PROGRAM))
}

fn list() -> Result<ExitCode> {
    let cache = kernels::cache_folder()?;
    for kernel in &kernels::KERNELS {
        let state = match kernels::cached(&cache, kernel) {
            Some(image) => image.release,
            None => format!("not fetched yet; the current one of Debian {}", kernel.suite),
        };
        println!("{:<10}  {state}", kernel.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// The images of all wanted kernels, and busybox; fetches what is not there.
fn fetch(options: &Options) -> Result<(Vec<(Kernel, Image)>, PathBuf)> {
    kernels::provide(&options.kernels, options.update)
}

/// The tests for the guests, and what they gave so far.
pub struct Plan {
    options: Options,
    images: Vec<(Kernel, Image)>,
    suite: Suite,
    base: PathBuf,
    /// The day of the commit: whose turn it is. Commits of one day ask the same kernels, so that what a developer ran is what CI runs.
    day: usize,
    runs: Mutex<Vec<KernelRun>>,
}

impl Plan {
    /// Fetches the kernels, chooses the tests, and makes the archive that all guests share.
    fn new(options: Options, build: &Build, wanted: impl Fn(&TestBinary, &str) -> bool) -> Result<Plan> {
        let (images, busybox) = fetch(&options)?;
        let suite = Suite::new(build, |binary, name| name.contains(&options.filter) && wanted(binary, name))?;
        let base = suite.pack(&busybox)?;
        Ok(Plan { options, images, suite, base, day: workspace::commit_day(), runs: Mutex::new(Vec::new()) })
    }

    /// Whether no test was chosen.
    pub fn is_empty(&self) -> bool {
        self.suite.tests.is_empty()
    }

    /// For the queue.
    pub fn jobs(&self, estimates: &Estimates) -> Vec<Job<'_>> {
        let mut jobs = Vec::new();
        for (kernel, image) in &self.images {
            for (at, (numbers, seconds)) in self.divided(kernel, estimates).into_iter().enumerate() {
                let label = format!("{}.{at}", kernel.name);
                let job = KernelJob { kernel: *kernel, image, numbers, label: label.clone() };
                let work = move || {
                    let run = column::run(&job, &self.suite, &self.base, &self.options)?;
                    if self.options.brief {
                        println!("virtual machine {}: {}", job.label, table::summary(&run));
                    }
                    self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
                    Ok(Tally::default())
                };
                jobs.push(Job { name: format!("virtual machine {label}"), seconds, work: Box::new(work) });
            }
        }
        jobs
    }

    fn turn(&self, test: &suite::Test) -> usize {
        self.day.wrapping_add(test.place())
    }

    /// The tests of a kernel in groups for one machine, each with the time that it is expected to take.
    fn divided(&self, kernel: &Kernel, estimates: &Estimates) -> Vec<(Vec<usize>, f64)> {
        let mut open: Vec<(Machine, Vec<usize>, f64)> = Vec::new();
        let mut groups = Vec::new();
        for (number, test) in self.suite.tests.iter().enumerate() {
            if !test.needs.runs_on(kernel, self.options.asked, self.turn(test)) {
                continue;
            }
            let machine = test.machine();
            let unknown = if machine.virtual_time || test.needs.stress { LONG_TEST_S } else { TEST_S };
            let seconds = estimates.seconds(kernel.name, &test.name).unwrap_or(unknown);
            match open.iter().position(|(of, ..)| *of == machine) {
                Some(at) if open[at].2 + seconds > JOB_S => {
                    let full = std::mem::replace(&mut open[at], (machine, vec![number], BOOT_S + seconds));
                    groups.push((full.1, full.2));
                }
                Some(at) => {
                    open[at].1.push(number);
                    open[at].2 += seconds;
                }
                None => open.push((machine, vec![number], BOOT_S + seconds)),
            }
        }
        groups.extend(open.into_iter().map(|(_, numbers, seconds)| (numbers, seconds)));
        groups
    }

    /// One column for each kernel that ran something, oldest first.
    fn columns(&self) -> Vec<KernelRun> {
        let mut columns: Vec<KernelRun> = Vec::new();
        for run in std::mem::take(&mut *self.runs.lock().unwrap_or_else(PoisonError::into_inner)) {
            match columns.iter_mut().find(|column| column.kernel == run.kernel) {
                Some(column) => column.append(run),
                None => columns.push(run),
            }
        }
        columns.sort_by_key(|run| self.images.iter().position(|(kernel, _)| kernel.name == run.kernel));
        columns
    }

    /// Prints the table and adds everything, once all jobs are done.
    pub fn report(&self, tally: &mut Tally) -> Result<()> {
        let (suite, runs) = (&self.suite, self.columns());
        if self.options.json {
            runs.iter().for_each(|run| println!("{}", table::to_json(suite, run)));
        } else if self.options.brief {
            let file = libtest::log_path("vm: table")?;
            std::fs::write(&file, table::lines(suite, &runs).join("\n") + "\n")?;
            runs.iter().for_each(|run| println!("{}", table::summary(run)));
        } else {
            println!();
            table::lines(suite, &runs).iter().for_each(|line| println!("{line}"));
            println!();
        }
        let is_asked_later =
            |test: &&suite::Test| self.options.asked == Asked::Turn && test.needs.waits(self.turn(test));
        match suite.tests.iter().filter(is_asked_later).count() {
            0 => {}
            count => tally.add(
                &format!("virtual machines: {count} tests"),
                Outcome::Skip("they have their turn with other days' commits (./x vm runs all)".into()),
            ),
        }
        for run in runs {
            tally.unstable.extend(run.unstable.iter().map(|test| format!("{}: {test}", run.kernel)));
            run.rows.iter().for_each(|line| tally.tables.read(run.kernel, line));
            let named = suite.tests.iter().map(|test| test.name.as_str()).zip(&run.verdicts);
            let ran = named.filter_map(|(name, verdict)| Some((name, verdict.as_ref()?)));
            for (name, verdict) in ran.chain([("kernel log", &run.log)]) {
                let name = format!("{}: {name}", run.kernel);
                match verdict {
                    Verdict::Pass => tally.passed += 1,
                    Verdict::Fail(why) => tally.failures.push(with_reason(&name, why)),
                    Verdict::Skip(why) => tally.skips.push(format!("{name}: {why}")),
                }
            }
            tally.timings.extend(run.timings);
        }
        Ok(())
    }
}

/// The emulator for a machine.
fn emulator(machine: Machine) -> Result<Qemu> {
    // Two jobs at once shall not fetch it twice.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match machine.virtual_time {
        true => Qemu::for_virtual_time(&kernels::cache_folder()?),
        false => Ok(Qemu::installed()),
    }
}

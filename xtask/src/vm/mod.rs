// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x vm`: the privileged tests on other kernels than this machine's, in emulated machines.
//!
//! What depends on the kernel shows only on that kernel: its verifier, its tracepoints, whether a handler is a thread. Each
//! kernel boots in a machine of its own (`boot`) with the tests in its memory (`initramfs`, `suite`), says on its console how
//! they go (`init.sh`, `guest`), and gets a column in a table (`table`). Two kernels run at once where there are CPUs.
//!
//! A guest that crashes or hangs is booted again and goes on at the test where it died; that is said in the table.

mod boot;
mod command;
mod guest;
mod initramfs;
mod kernels;
mod options;
mod qemu;
mod serial;
mod suite;
mod table;
mod timing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::complete;
use crate::libtest;
use crate::outcome::{Outcome, Tally};
use crate::test::{self, Build};
use boot::{Ended, Limits, Machine};
use guest::{Console, Finished, Verdict};
use kernels::{Apt, Image, Kernel};
use options::{Action, Options};
use qemu::Qemu;
use suite::Suite;

/// A kernel has so long for all tests, boots included; tests of stress have their time beside it.
const KERNEL_LIMIT: Duration = Duration::from_secs(3000);
/// Where tests of stress read how long they are to last.
const STRESS: &str = "RTSCOPE_STRESS_SECONDS";
/// When more have failed, it is not the host's moods.
const TRIED_AGAIN: usize = 8;
/// A test in which the guest died so often has failed.
const DEATHS: u32 = 3;

/// One kernel's column.
#[derive(Debug)]
pub struct KernelRun {
    /// As it is called on the command line.
    pub kernel: &'static str,
    /// `uname -r`, once it has booted.
    pub release: Option<String>,
    /// How each test went, in the order of the suite.
    pub verdicts: Vec<Verdict>,
    /// Whether the kernel complained.
    pub log: Verdict,
    /// What else is to be said.
    pub notes: Vec<String>,
    /// Tests that failed first and passed when they were run again, and how they failed.
    pub unstable: Vec<String>,
    /// Lines that tests printed for the table of completeness.
    pub complete: Vec<String>,
    /// All of its time.
    pub time: Duration,
}

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
    let mut tally = Tally::default();
    if let Some(command) = &options.command {
        return command::run(command, &options, &test::build_programs()?);
    }
    let build = test::build()?;
    run_all(&options, &build, &mut tally)?;
    if options.json {
        return Ok(if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Ok(tally.finish())
}

/// The part of `./x test`. Kernels that cannot be had are a skip.
pub fn add_all(build: &Build, tally: &mut Tally) -> Result<()> {
    for options in Options::for_test() {
        let fetched = missing_tool()
            .map_or_else(|| Ok(()), Err)
            .and_then(|()| fetch(&options).map(|_| ()).map_err(|error| format!("{error:#}")));
        match fetched {
            Ok(()) => run_all(&options, build, tally)?,
            Err(reason) => {
                let names: Vec<&str> = options.kernels.iter().map(|kernel| kernel.name).collect();
                tally.add(&format!("virtual machines: {}", names.join(", ")), Outcome::Skip(reason));
            }
        }
    }
    Ok(())
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
fn fetch(options: &Options) -> Result<(Vec<(Kernel, Image)>, std::path::PathBuf)> {
    let cache = kernels::cache_folder()?;
    std::fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
    let mut apt = None;
    let mut images = Vec::new();
    for kernel in &options.kernels {
        let here = kernels::cached(&cache, kernel).filter(|_| !options.update);
        let image = match here {
            Some(image) => image,
            None => {
                fetcher(&mut apt, &cache)?.fetch(kernel).with_context(|| format!("kernel {}", kernel.name))?
            }
        };
        images.push((*kernel, image));
    }
    let busybox = match kernels::cached_busybox(&cache) {
        Some(busybox) => busybox,
        None => fetcher(&mut apt, &cache)?.fetch_busybox().context("busybox")?,
    };
    Ok((images, busybox))
}

fn fetcher<'a>(apt: &'a mut Option<Apt>, cache: &Path) -> Result<&'a Apt> {
    if apt.is_none() {
        *apt = Some(Apt::new(cache)?);
    }
    apt.as_ref().context("just made")
}

fn run_all(options: &Options, build: &Build, tally: &mut Tally) -> Result<()> {
    let (images, busybox) = fetch(options)?;
    let suite = Suite::new(build, &options.filter, &options.programs)?;
    if suite.tests.is_empty() {
        bail!("no privileged test has a name with '{}'", options.filter);
    }
    let base = suite.pack(&busybox)?;
    let wanted: Vec<&'static str> = images.iter().map(|(kernel, _)| kernel.name).collect();
    if options.brief {
        println!(
            "virtual machines: {} tests on each of {} (some minutes)",
            suite.tests.len(),
            wanted.join(", ")
        );
    }
    let (queue, runs) = (Mutex::new(VecDeque::from(images)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((kernel, image)) = next else { break };
                    let run = run_kernel(&kernel, &image, &suite, &base, options);
                    runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
                }
            });
        }
    });
    let runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut runs = runs.into_iter().collect::<Result<Vec<KernelRun>>>()?;
    runs.sort_by_key(|run| wanted.iter().position(|name| *name == run.kernel));
    report(&suite, &runs, options, tally)
}

fn report(suite: &Suite, runs: &[KernelRun], options: &Options, tally: &mut Tally) -> Result<()> {
    let wanted: Vec<&str> = runs.iter().map(|run| run.kernel).collect();
    if options.json {
        runs.iter().for_each(|run| println!("{}", table::to_json(suite, run)));
    } else if options.brief {
        let file = libtest::log_path(&format!("vm: {}", wanted.join("+")))?;
        std::fs::write(&file, table::lines(suite, runs).join("\n") + "\n")?;
        runs.iter().for_each(|run| println!("{}", table::summary(run)));
    } else {
        println!();
        table::lines(suite, runs).iter().for_each(|line| println!("{line}"));
        println!();
    }
    for run in runs {
        tally.unstable.extend(run.unstable.iter().map(|test| format!("{}: {test}", run.kernel)));
        for line in &run.complete {
            tally.completeness.read(run.kernel, line);
        }
        let named = suite.tests.iter().map(|test| test.name.as_str()).zip(&run.verdicts);
        for (name, verdict) in named.chain([("kernel log", &run.log)]) {
            let name = format!("{}: {name}", run.kernel);
            match verdict {
                Verdict::Pass => tally.passed += 1,
                Verdict::Fail(_) => tally.failures.push(name),
                Verdict::Skip(why) => tally.skips.push(format!("{name}: {why}")),
            }
        }
    }
    Ok(())
}

/// All tests on one kernel, in as many boots as it takes.
fn run_kernel(
    kernel: &Kernel,
    image: &Image,
    suite: &Suite,
    base: &Path,
    options: &Options,
) -> Result<KernelRun> {
    let start = Instant::now();
    let end = start + KERNEL_LIMIT + 2 * Duration::from_secs(options.stress_s.into());
    // What the kernel does not know is in the environment of its first program.
    let append = format!("{} {STRESS}={}", kernel.append, options.stress_s);
    let mut column = Column::new(kernel.name, suite, options.timing);
    while let Some((machine, numbers)) = column.next(suite) {
        let machine = Machine { virtual_time: machine.virtual_time || options.virtual_time, ..machine };
        let limits = Limits { end, silence: machine.silence() };
        let qemu = match emulator(machine) {
            Ok(qemu) => qemu,
            Err(error) => {
                column.skip(&numbers, &format!("{error:#}"));
                continue;
            }
        };
        let archive = suite.archive(base, kernel.name, &numbers, options.stress_s)?;
        let mut console = Console::default();
        let ended = boot::boot(&qemu, &image.path, &append, &archive, machine, limits, |line| {
            if options.verbose {
                eprintln!("[{}] {line}", kernel.name);
            }
            if let Some(finished) = console.read(line) {
                let is_failure = matches!(finished.verdict, Verdict::Fail(_));
                if is_failure || !options.brief {
                    say(kernel.name, &suite.tests[finished.number].name, finished);
                }
            }
        })?;
        std::fs::remove_file(archive)?;
        column.take(console, &ended, suite, &numbers);
    }
    Ok(KernelRun {
        kernel: kernel.name,
        release: column.release,
        verdicts: column
            .verdicts
            .into_iter()
            .map(|v| v.unwrap_or(Verdict::Fail("did not run".into())))
            .collect(),
        log: column.log,
        notes: column.notes,
        unstable: column.unstable,
        complete: column.complete,
        time: start.elapsed(),
    })
}

/// The emulator for a machine.
fn emulator(machine: Machine) -> Result<Qemu> {
    // Two kernels at once shall not fetch it twice.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match machine.virtual_time {
        true => Qemu::for_virtual_time(&kernels::cache_folder()?),
        false => Ok(Qemu::installed()),
    }
}

/// Says at once how a test went, and shows what a failed one said.
fn say(kernel: &str, test: &str, finished: &Finished) {
    let seconds = finished.time.as_secs();
    match &finished.verdict {
        Verdict::Pass => eprintln!("[{kernel}] pass {test} ({seconds} s)"),
        Verdict::Skip(reason) => eprintln!("[{kernel}] skip {test}: {reason} ({seconds} s)"),
        Verdict::Fail(reason) => {
            let output: String =
                finished.output.iter().map(|line| format!("[{kernel}]     {line}\n")).collect();
            eprintln!("[{kernel}] FAIL {test} ({seconds} s): {reason}\n{output}");
        }
    }
}

/// What is known of one kernel so far.
struct Column {
    kernel: &'static str,
    release: Option<String>,
    verdicts: Vec<Option<Verdict>>,
    deaths: Vec<u32>,
    /// Deaths before the first test.
    boot_deaths: u32,
    log: Verdict,
    notes: Vec<String>,
    /// Those that failed once, and how.
    failed: BTreeMap<usize, String>,
    unstable: Vec<String>,
    complete: Vec<String>,
    left: Vec<usize>,
}

impl Column {
    fn new(kernel: &'static str, suite: &Suite, timing: bool) -> Column {
        let skip = |why: &str| Verdict::Skip(format!("timing: {why}"));
        let verdicts: Vec<Option<Verdict>> =
            suite.tests.iter().map(|test| test.timing.filter(|_| !timing).map(skip)).collect();
        let left = (0..verdicts.len()).filter(|&number| verdicts[number].is_none()).collect();
        Column {
            kernel,
            release: None,
            deaths: vec![0; verdicts.len()],
            verdicts,
            boot_deaths: 0,
            log: Verdict::Skip("no boot came to its end".into()),
            notes: Vec::new(),
            failed: BTreeMap::new(),
            unstable: Vec::new(),
            complete: Vec::new(),
            left,
        }
    }

    /// What the next boot has to run: all that want the same machine, which comes first.
    fn next(&self, suite: &Suite) -> Option<(Machine, Vec<usize>)> {
        let machine = self.left.iter().map(|&number| suite.tests[number].machine()).min()?;
        let these = self.left.iter().copied().filter(|&number| suite.tests[number].machine() == machine);
        Some((machine, these.collect()))
    }

    /// These cannot run here.
    fn skip(&mut self, numbers: &[usize], why: &str) {
        for &number in numbers {
            self.verdicts[number] = Some(Verdict::Skip(why.to_owned()));
        }
        self.left.retain(|number| !numbers.contains(number));
    }

    /// Takes over what one boot gave, and decides what is left to run. `numbers`: what that boot had to run.
    fn take(&mut self, console: Console, ended: &Ended, suite: &Suite, numbers: &[usize]) {
        if self.release.is_none() {
            self.release = console.release().map(str::to_owned);
        }
        // One clean boot does not make another one good.
        let failed = matches!(self.log, Verdict::Fail(_));
        if let Some(complaints) = console.complaints().filter(|_| !failed) {
            self.log =
                if complaints.is_empty() { Verdict::Pass } else { Verdict::Fail(complaints.join(" | ")) };
        }
        let (off, running) = (console.is_off(), console.running());
        let why = match ended {
            Ended::PowerOff => console.last_words().unwrap_or("the guest ended without a word").to_owned(),
            Ended::Hung => "the guest hung".to_owned(),
            Ended::OutOfTime => format!("the kernel's {} s were over", KERNEL_LIMIT.as_secs()),
            Ended::Qemu(words) => format!("QEMU: {words}"),
        };
        let all = console.into_finished();
        let has_run = all.iter().map(|finished| finished.number).collect::<BTreeSet<_>>();
        for finished in all {
            if !matches!(finished.verdict, Verdict::Fail(_)) {
                let rows = finished.output.into_iter().filter(|line| line.starts_with(complete::MARK));
                self.complete.extend(rows);
            }
            self.judge(finished.number, finished.verdict, &suite.tests[finished.number].name);
        }
        self.left.retain(|&number| self.verdicts[number].is_none());
        if off && numbers.iter().all(|number| has_run.contains(number)) {
            return;
        }
        if matches!(ended, Ended::OutOfTime | Ended::Qemu(_)) {
            self.give_up(&why);
            return;
        }
        let place = running.map_or("outside of tests", |number| suite.tests[number].name.as_str());
        let note = format!("died in {place} ({why}), and was booted again");
        eprintln!("[{}] {note}", self.kernel);
        self.notes.push(note);
        self.count_death(running, &why);
    }

    /// What fails is run once more, in a boot of its own, as on this machine (see `libtest`): the host's moods are a guest's, too.
    fn judge(&mut self, number: usize, verdict: Verdict, test: &str) {
        match (&verdict, self.failed.get(&number)) {
            (Verdict::Fail(why), None) if self.failed.len() < TRIED_AGAIN => {
                self.failed.insert(number, why.clone());
                return;
            }
            (Verdict::Pass, Some(why)) => self.unstable.push(format!("{test}: {why}")),
            _ => {}
        }
        self.verdicts[number] = Some(verdict);
    }

    fn count_death(&mut self, running: Option<usize>, why: &str) {
        let Some(number) = running else {
            self.boot_deaths += 1;
            if self.boot_deaths == DEATHS {
                self.give_up(why);
            }
            return;
        };
        self.deaths[number] += 1;
        if self.deaths[number] == DEATHS {
            self.verdicts[number] =
                Some(Verdict::Fail(format!("the guest died {DEATHS} times in it; last: {why}")));
            self.left.retain(|&left| left != number);
        }
    }

    fn give_up(&mut self, why: &str) {
        for number in self.left.drain(..) {
            let why = self.failed.get(&number).map_or(why, String::as_str);
            self.verdicts[number] = Some(Verdict::Fail(why.to_owned()));
        }
    }
}

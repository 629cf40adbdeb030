// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Some tests on one kernel, in as many boots as it takes: what a kernel's column in the table is made of.
//!
//! A guest that crashes or hangs is booted again and goes on after the test in which it died; the table says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::boot::{self, Ended, Limits, Machine};
use super::guest::{Console, Finished, Verdict};
use super::kernels::{Image, Kernel};
use super::options::Options;
use super::suite::Suite;
use crate::tables;
use crate::timings::Timing;

/// The tests of one job have this long, boots included; tests of stress have their time besides.
const LIMIT: Duration = Duration::from_secs(3000);
/// Where tests of stress read how long they are to last.
const STRESS: &str = "RTSCOPE_STRESS_SECONDS";
/// What makes tests with a short form run their long one.
pub const ALL: &str = "RTSCOPE_TEST_ALL";
/// When more have failed, the host's moods are not the reason.
const TRIED_AGAIN: usize = 8;
/// A test in which the guest died this often has failed.
const DEATHS: u32 = 3;

/// What one job found, or one kernel's column.
#[derive(Debug)]
pub struct KernelRun {
    /// As it is called on the command line.
    pub kernel: &'static str,
    /// `uname -r`, once it has booted.
    pub release: Option<String>,
    /// How each test went, in the order of the suite; `None`: it does not run here.
    pub verdicts: Vec<Option<Verdict>>,
    /// Whether the kernel complained.
    pub log: Verdict,
    /// What else is to be said.
    pub notes: Vec<String>,
    /// Tests that failed first and passed when they were run again, and how they failed.
    pub unstable: Vec<String>,
    /// Lines that tests printed for tables.
    pub rows: Vec<String>,
    /// What each test took.
    pub timings: Vec<Timing>,
    /// All of its time.
    pub time: Duration,
}

impl KernelRun {
    /// Adds another job's findings on the same kernel.
    pub fn append(&mut self, other: KernelRun) {
        for (verdict, other) in self.verdicts.iter_mut().zip(other.verdicts) {
            *verdict = verdict.take().or(other);
        }
        self.release = self.release.take().or(other.release);
        // One boot without complaints does not excuse another.
        let rank = |log: &Verdict| match log {
            Verdict::Fail(_) => 2,
            Verdict::Pass => 1,
            Verdict::Skip(_) => 0,
        };
        if rank(&other.log) > rank(&self.log) {
            self.log = other.log;
        }
        self.notes.extend(other.notes);
        self.unstable.extend(other.unstable);
        self.rows.extend(other.rows);
        self.timings.extend(other.timings);
        self.time += other.time;
    }
}

/// What a job runs.
#[derive(Debug)]
pub struct KernelJob<'a> {
    /// On which kernel.
    pub kernel: Kernel,
    /// It, to boot.
    pub image: &'a Image,
    /// Tests, by their place in the suite.
    pub numbers: Vec<usize>,
    /// Names its archives; no other job has this one.
    pub label: String,
}

/// Runs a job in as many boots as it takes.
pub fn run(job: &KernelJob<'_>, suite: &Suite, base: &Path, options: &Options) -> Result<KernelRun> {
    let kernel = &job.kernel;
    let start = Instant::now();
    let end = start + LIMIT + 2 * Duration::from_secs(options.stress_s.into());
    // What the kernel does not know is in the environment of its first program.
    let all = if options.all { format!(" {ALL}=1") } else { String::new() };
    let append = format!("{} {STRESS}={}{all}", kernel.append, options.stress_s);
    let mut column = Column::new(kernel.name, suite, &job.numbers, options.timing);
    while let Some((machine, numbers)) = column.next(suite) {
        let machine = Machine { virtual_time: machine.virtual_time || options.virtual_time, ..machine };
        let limits = Limits { end, silence: machine.silence() };
        let qemu = match super::emulator(machine) {
            Ok(qemu) => qemu,
            Err(error) => {
                column.skip(&numbers, &format!("{error:#}"));
                continue;
            }
        };
        let archive = suite.archive(base, &job.label, &job.image.modules, &numbers, options.stress_s)?;
        let mut console = Console::default();
        let ended = boot::boot(&qemu, &job.image.path, &append, &archive, machine, limits, |line| {
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
    Ok(column.finish(&job.numbers, start.elapsed()))
}

/// Says at once how a test went, and shows what a failed one printed.
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
    rows: Vec<String>,
    timings: Vec<Timing>,
    left: Vec<usize>,
}

impl Column {
    fn new(kernel: &'static str, suite: &Suite, numbers: &[usize], timing: bool) -> Column {
        let mut verdicts: Vec<Option<Verdict>> = vec![None; suite.tests.len()];
        for &number in numbers {
            let reason = suite.tests[number].needs.real_time.as_deref().filter(|_| !timing);
            verdicts[number] = reason.map(|why| Verdict::Skip(format!("it needs real time: {why}")));
        }
        let left = numbers.iter().copied().filter(|&number| verdicts[number].is_none()).collect();
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
            rows: Vec::new(),
            timings: Vec::new(),
            left,
        }
    }

    /// What came out of it. What should have run and did not has failed.
    fn finish(mut self, numbers: &[usize], time: Duration) -> KernelRun {
        for &number in numbers {
            self.verdicts[number].get_or_insert_with(|| Verdict::Fail("did not run".into()));
        }
        KernelRun {
            kernel: self.kernel,
            release: self.release,
            verdicts: self.verdicts,
            log: self.log,
            notes: self.notes,
            unstable: self.unstable,
            rows: self.rows,
            timings: self.timings,
            time,
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
        let last_words = console.last_words().to_vec();
        let why = match ended {
            Ended::PowerOff => {
                last_words.first().map_or("the guest ended without a word", String::as_str).to_owned()
            }
            Ended::Hung => "the guest hung".to_owned(),
            Ended::OutOfTime => format!("its {} s were over", LIMIT.as_secs()),
            Ended::Qemu(words) => format!("QEMU: {words}"),
        };
        let all = console.into_finished();
        let has_run = all.iter().map(|finished| finished.number).collect::<BTreeSet<_>>();
        for finished in all {
            let test = &suite.tests[finished.number];
            self.timings.push(Timing {
                place: self.kernel.to_owned(),
                program: test.program.clone(),
                test: test.name.clone(),
                result: finished.verdict.word(),
                time: finished.time,
            });
            if !matches!(finished.verdict, Verdict::Fail(_)) {
                let rows = finished.output.into_iter().filter(|line| tables::is_row(line));
                self.rows.extend(rows);
            }
            self.judge(finished.number, finished.verdict, &test.name);
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
        for line in &last_words {
            eprintln!("[{}]     {line}", self.kernel);
        }
        self.unstable.push(format!("guest {note}"));
        if let Some(words) = last_words.first() {
            self.log = Verdict::Fail(words.clone());
        }
        self.notes.push(note);
        self.count_death(running, &why);
    }

    /// A test that fails is run once more, in a separate boot, as on this machine (see `libtest`): load on the host disturbs guests, too.
    fn judge(&mut self, number: usize, verdict: Verdict, test: &str) {
        match (&verdict, self.failed.get(&number)) {
            (Verdict::Fail(why), None) if self.failed.len() < TRIED_AGAIN => {
                self.failed.insert(number, why.clone());
                return;
            }
            (Verdict::Pass, Some(why)) => self.unstable.push(format!("{test}: {why}")),
            // What could not be checked at the second try has failed at the first.
            (Verdict::Skip(_), Some(why)) => {
                self.verdicts[number] = Some(Verdict::Fail(why.clone()));
                return;
            }
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

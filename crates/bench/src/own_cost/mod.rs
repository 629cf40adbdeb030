// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `self`: what a real-time loop feels of rtscope. It runs on the last CPU; `rtscope watch` starts beside it, takes 20 snapshots and ends,
//! and `rtscope record -k -u` starts, records a program and ends. Rounds without rtscope come between them in random order.
//!
//! trace-cmd records each round from outside, and `judge` finds in its report who had the CPU while a response was late. rtscope
//! is started as people start it: with all CPUs. `--plant` binds it to the loop's CPU, which has to show.

mod beat;
mod judge;

use crate::blocks::Order;
use crate::host::Host;
use crate::pipe_cpu;
use crate::progress;
use crate::record::trace_cmd_command;
use crate::table::{Promise, Report, Row};
use anyhow::{Context, Result, anyhow, bail, ensure};
use beat::Beat;
use judge::{Late, Verdict};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_cpus::{Cpus, Thread};
use rtscope_testkit::process::program;
use rtscope_testkit::sched::{self, Policy};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// A response that begins later than this is late.
const LATE_NS: u64 = 200_000;
/// What the watch takes for late: iterations that work for longer are.
const THRESHOLD: &str = "250us";
const SNAPSHOTS: usize = 20;
/// Each CPU's buffer of trace-cmd.
const BUFFER_KIB: u32 = 16 << 10;
const EVENTS: [&str; 7] =
    ["sched_switch", "sched_process_fork", "workqueue", "irq", "irq_vectors", "ipi", "sched_waking"];
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a round without rtscope is, until one with it was seen.
const FIRST_CONTROL: Duration = Duration::from_secs(4);

/// What one round gave.
struct Round {
    /// How late each iteration woke, in us.
    wakes: Row,
    late: usize,
    verdict: Verdict,
    /// rtscope's own opinion, from the watch's summary.
    opinion: Option<serde_json::Value>,
}

/// Runs it.
pub fn run(quick: bool, plant: bool) -> Result<Report> {
    rounds(if quick { 2 } else { 20 }, plant)
}

fn rounds(rounds: usize, plant: bool) -> Result<Report> {
    let cpu = pipe_cpu();
    ensure!(cpu > 0, "it takes two CPUs");
    let all = Thread::Calling.cpus().context("which CPUs may be used")?;
    let others: Cpus = all.iter().filter(|other| *other != cpu as u32).collect();
    Thread::Calling.set_cpus(&others).context("leaving the loop's CPU")?;
    sched::lock_memory(Policy::Fifo(1))?;
    let directory = tempfile::Builder::new().prefix("rtscope-bench").tempdir()?;
    let bench = Bench { cpu, all, directory: directory.path().to_owned(), plant };
    let (mut order, mut length) = (Order::new(), FIRST_CONTROL);
    let mut found = [Vec::new(), Vec::new()];
    for round in progress::rounds("with rtscope and without", rounds) {
        for which in order.shuffled(2) {
            let begin = Instant::now();
            let done = bench.round((which == 1).then_some(()).ok_or(length));
            found[which].push(done.with_context(|| format!("round {}", round + 1))?);
            if which == 1 {
                length = begin.elapsed().min(FIRST_CONTROL);
            }
        }
    }
    Ok(report(cpu, &found))
}

struct Bench {
    cpu: usize,
    all: Cpus,
    directory: PathBuf,
    plant: bool,
}

impl Bench {
    /// A round with rtscope, or one without of this length.
    fn round(&self, with: Result<(), Duration>) -> Result<Round> {
        let trace = self.directory.join("trace.dat");
        let mut recorder = start_recorder(&trace)?;
        let beat = Beat::start(self.cpu);
        sleep(Duration::from_millis(100));
        let mut first = Vec::new();
        let mut opinion = None;
        let done = match with {
            Ok(()) => self.watch(&mut first, &mut opinion).and_then(|()| self.record(&mut first)),
            Err(length) => {
                sleep(length);
                Ok(())
            }
        };
        let notes = beat.stop();
        end(&mut recorder)?;
        done?;
        let notes = notes?;
        let late: Vec<Late> = notes.iter().copied().filter(|(asked, woke)| woke - asked > LATE_NS).collect();
        let output = Command::new("trace-cmd")
            .args(["report", "-t", "-i"])
            .arg(&trace)
            .stderr(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let verdict = judge::judge(&text, self.cpu, &first, &late).map_err(|why| anyhow!(why))?;
        let wakes = notes.iter().map(|(asked, woke)| woke.saturating_sub(*asked) as f64 / 1e3).collect();
        Ok(Round { wakes: Row::new("", wakes), late: late.len(), verdict, opinion })
    }

    /// Start, 20 snapshots and end of a watch.
    fn watch(&self, first: &mut Vec<u32>, opinion: &mut Option<serde_json::Value>) -> Result<()> {
        let late = self.fresh("late")?;
        let mut command = self.rtscope()?;
        command.args(["watch", "response", "--task", beat::NAME, "--threshold", THRESHOLD, "--json"]);
        command.args(["--rate", "100/s", "--post", "5ms", "--pre", "50ms", "--snapshot-dir"]).arg(&late);
        let mut child = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))?;
        first.push(child.0.id());
        let planted = self.plant.then(|| Planted::start(child.0.id(), self.cpu));
        let (start, mut snapshots, mut asked) = (Instant::now(), 0, false);
        let output = child.0.stdout.take().context("its output")?;
        for line in BufReader::new(output).lines() {
            let line: serde_json::Value = serde_json::from_str(line?.as_str())?;
            snapshots += usize::from(line["type"] == "snapshot");
            if line["type"] == "summary" {
                *opinion = Some(line["own"].clone());
            }
            if snapshots >= SNAPSHOTS && !asked {
                interrupt(&child)?;
                asked = true;
            }
            ensure!(start.elapsed() < PATIENCE, "{snapshots} snapshots came in a minute");
        }
        let status = child.0.wait()?;
        drop(planted);
        ensure!(status.success() && asked, "rtscope watch ended with {status} after {snapshots} snapshots");
        Ok(())
    }

    /// Start and end of a recording of the kernel and of a program, which runs elsewhere.
    fn record(&self, first: &mut Vec<u32>) -> Result<()> {
        let target = self.fresh("recording")?;
        let mut command = self.rtscope()?;
        command.args(["record", "-k", "sched:*,irq:*", "-u", "bench:*", "--json", "-o"]).arg(&target);
        let mut child = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()))?;
        first.push(child.0.id());
        let planted = self.plant.then(|| Planted::start(child.0.id(), self.cpu));
        let words = BufReader::new(child.0.stderr.take().context("its words")?);
        let mut lines = words.lines();
        while !lines.next().context("rtscope record ended before it began")??.contains("recording") {}
        // What it says later must not fill the pipe.
        let rest = spawn(move || lines.count());
        let mut emitter = Command::new(program("rtscope-bench-events")?);
        let status = emitter.args([&self.others(), "3", "2000"]).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "the program with events ended with {status}");
        interrupt(&child)?;
        let status = child.0.wait()?;
        drop((planted, rest.join()));
        ensure!(status.success(), "rtscope record ended with {status}");
        Ok(())
    }

    /// With all CPUs, as people have them: its first instructions may be anywhere. By way of taskset, since a child of this process would free
    /// a copy of its memory in `exec`, which takes half a millisecond, on whatever CPU that is.
    fn rtscope(&self) -> Result<Command> {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(self.all.to_string()).arg(program("rtscope")?).stdin(Stdio::null());
        Ok(command)
    }

    /// A CPU that is not the loop's.
    fn others(&self) -> String {
        self.all.iter().find(|cpu| *cpu != self.cpu as u32).unwrap_or_default().to_string()
    }

    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                bail!("{}: {error}", path.display())
            }
            _ => Ok(path),
        }
    }
}

/// A child process that does not outlive a benchmark that fails.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Running> {
        let child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
        Ok(Running(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Binds all threads of a process to a CPU, again and again.
struct Planted(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Planted {
    fn start(pid: u32, cpu: usize) -> Planted {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let there: Cpus = [cpu as u32].into_iter().collect();
        let bind = move || {
            // ORDER: relaxed; a flag that stands for itself.
            while !theirs.load(Ordering::Relaxed) {
                for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                    let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok());
                    // It has ended: nothing to bind.
                    let _ = tid.map(|tid| Thread::Tid(tid).set_cpus(&there));
                }
                sleep(Duration::from_micros(500));
            }
        };
        Planted(stop, Some(spawn(bind)))
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        // ORDER: relaxed; as above.
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            // It panicked: its message is on standard error already.
            let _ = thread.join();
        }
    }
}

/// trace-cmd, recording.
fn start_recorder(trace: &Path) -> Result<Running> {
    let _ = fs::remove_file(trace);
    let mut command = trace_cmd_command(trace, BUFFER_KIB);
    for event in EVENTS {
        command.args(["-e", event]);
    }
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Running::start(command)?;
    let is_one = |file: &str| {
        let text = fs::read_to_string(Path::new("/sys/kernel/tracing").join(file));
        text.is_ok_and(|text| text.trim() == "1")
    };
    let start = Instant::now();
    while !(is_one("tracing_on") && is_one("events/sched/sched_switch/enable")) {
        ensure!(child.0.try_wait()?.is_none(), "trace-cmd ended");
        ensure!(start.elapsed() < PATIENCE, "trace-cmd did not begin");
        sleep(Duration::from_millis(5));
    }
    Ok(child)
}

fn end(recorder: &mut Running) -> Result<()> {
    interrupt(recorder)?;
    let status = recorder.0.wait()?;
    ensure!(status.success(), "trace-cmd ended with {status}");
    Ok(())
}

fn interrupt(Running(child): &Running) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGINT)?)
}

fn report(cpu: usize, [without, with]: &[Vec<Round>; 2]) -> Report {
    let row = |what: &str, rounds: &[Round], value: &dyn Fn(&Round) -> f64| {
        Row::new(what, rounds.iter().map(value).collect())
    };
    let mut rows = Vec::new();
    for (name, rounds) in [("without rtscope", without), ("with rtscope", with)] {
        rows.push(row(&format!("{name}: 99.9 %"), rounds, &|round| round.wakes.quantile(0.999)));
        rows.push(row(&format!("{name}: maximum"), rounds, &|round| round.wakes.quantile(1.0)));
        rows.push(row(&format!("{name}: late responses"), rounds, &|round| round.late as f64));
    }
    let longest = |round: &Round| round.verdict.longest.as_ref().map_or(0.0, |(_, ns)| *ns as f64 / 1e3);
    rows.push(row("rtscope's longest stay on the CPU", with, &longest));
    let caused: Vec<&(String, u64)> = with.iter().flat_map(|round| &round.verdict.of_rtscope).collect();
    let mut checks = vec![format!(
        "99.9 % with / without: {:.2}; maximum with / without: {:.2} (medians of {} rounds each)",
        rows[3].median() / rows[0].median(),
        rows[4].median() / rows[1].median(),
        with.len()
    )];
    checks.extend(
        caused.iter().map(|(who, ns)| format!("late by {:.0} us because of {who}", *ns as f64 / 1e3)),
    );
    let stays = with.iter().filter_map(|round| round.verdict.longest.as_ref()).max_by_key(|(_, ns)| *ns);
    checks
        .extend(stays.map(|(who, ns)| format!("rtscope's longest stay: {:.0} us, {who}", *ns as f64 / 1e3)));
    for (name, rounds) in [("without", without), ("with", with)] {
        let mut culprits = BTreeMap::<&str, u64>::new();
        for (who, count) in rounds.iter().flat_map(|round| &round.verdict.of_others) {
            *culprits.entry(who).or_default() += count;
        }
        let mut culprits: Vec<(&str, u64)> = culprits.into_iter().collect();
        culprits.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let words: Vec<String> =
            culprits.iter().take(6).map(|(who, count)| format!("{who} {count}")).collect();
        let words = if words.is_empty() { "nobody".to_string() } else { words.join(", ") };
        checks.push(format!("{name} rtscope, late because of others: {words}"));
    }
    let says = |round: &Round| round.opinion.as_ref().and_then(|own| own["culprit"].as_u64());
    let opinions: Option<u64> = with.iter().map(says).sum();
    checks.push(match opinions {
        Some(count) => format!("rtscope itself says that it made {count} responses late"),
        None => "rtscope itself does not say how many responses it made late".to_string(),
    });
    let caused = caused.len() as f64;
    Report {
        schema: "rtscope.bench.self/1",
        name: "self",
        unit: "us that a 1 ms loop (SCHED_FIFO 50) wakes late, for each round".to_string(),
        host: Host::this(cpu),
        rows,
        promises: vec![Promise::at_most("late responses caused by rtscope, in all rounds", caused, 0.0)],
        checks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // NEEDS: host
    #[test]
    fn root_rtscope_bound_to_the_loops_cpu_is_found_by_the_judge() {
        if rtscope_testkit::skip::without_watching() || rtscope_testkit::skip::without_tool("trace-cmd") {
            return;
        }
        if pipe_cpu() == 0 {
            rtscope_testkit::skip!("it takes two CPUs");
        }
        let report = rounds(1, true).expect("a round");
        let promise = report.promises.first().expect("one promise");
        assert!(!promise.held && promise.value.is_some_and(|late| late > 0.0), "{}", report.text());
        let without = report.rows.iter().find(|row| row.what == "without rtscope: late responses");
        assert_eq!(without.map(|row| row.samples.len()), Some(1));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `user-events`: what an event adds to a program, with rtscope, with LTTng-UST as it is and with its best settings, and
//! what one reading of the CPU's counter costs.
//!
//! One C program (c/user_events.c) is compiled for each tracer; a Rust program has the same loops. It runs loops with and without an event right after each
//! other, so that the machine's drift falls out, and leaves time between them for the buffers to be emptied. A round runs it
//! under each tracer, in random order; its value is the median of its loops. A loss anywhere ends the benchmark. What the collectors
//! cost is measured in `user_collector`.

use crate::blocks::Order;
use crate::host::Host;
use crate::pipe_cpu;
use crate::progress;
use crate::table::{Promise, Report, Row};
use crate::user_collector::{self, children_us};
use crate::user_full;
use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rtscope_testkit::process::program;
use rtscope_tracers::{Channel, Wakeup};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;

/// The programs' names.
const WITH_RTSCOPE: &str = "with-rtscope";
const WITH_LTTNG: &str = "with-lttng";
/// Iterations of one loop: what they write fits easily into LTTng's default buffers.
const ITERATIONS: u64 = 5000;
/// What is compared, as the program prints it, and in words.
const LOOPS: [(&str, &str); 4] = [
    ("two", "two 64-bit fields"),
    ("two-arithmetic", "the same, in arithmetic"),
    ("small", "3 bytes"),
    ("large", "100 bytes"),
];

/// The tracer of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tracer {
    Rtscope,
    Disabled,
    Rust,
    LttngDefault,
    LttngBest,
}

impl Tracer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tracer::Rtscope => "rtscope",
            Tracer::Disabled => "rtscope, disabled",
            Tracer::Rust => "rtscope, in Rust",
            Tracer::LttngDefault => "LTTng-UST, default",
            Tracer::LttngBest => "LTTng-UST, best",
        }
    }
}

/// What one run of the program gave: samples of each loop, bytes of the trace for each event.
pub(crate) struct Run {
    samples: BTreeMap<String, Vec<f64>>,
    pub(crate) emitted: f64,
    event_bytes: Option<f64>,
    /// rtscope's summary.
    pub(crate) summary: Option<Value>,
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let directory = tempfile::Builder::new().prefix("rtscope-bench").tempdir()?;
    let bench = Bench::new(directory.path(), if quick { 5 } else { 40 })?;
    let rounds = if quick { 2 } else { 9 };
    let mut tracers = vec![Tracer::Rtscope, Tracer::Disabled, Tracer::Rust];
    let mut checks = Vec::new();
    match &bench.lttng {
        Ok(_) => tracers.extend([Tracer::LttngDefault, Tracer::LttngBest]),
        Err(missing) => {
            let remedy = missing.remedy().unwrap_or_default();
            checks.push(format!("LTTng-UST was left out: {missing}; {remedy}"));
        }
    }
    let (mut order, mut costs) = (Order::new(), BTreeMap::<(Tracer, &str), Vec<f64>>::new());
    let (mut counter, mut bytes) = (Vec::new(), BTreeMap::<Tracer, Vec<f64>>::new());
    for round in progress::rounds("an event, all tracers by turns", rounds + 1) {
        for which in order.shuffled(tracers.len()) {
            let tracer = tracers[which];
            let run = bench.run(tracer).with_context(|| format!("the program under {}", tracer.name()))?;
            // The first round warms everything up.
            if round == 0 {
                continue;
            }
            for (name, _) in LOOPS {
                costs.entry((tracer, name)).or_default().push(run.median(name)?);
            }
            counter.push(run.median("counter")?);
            bytes.entry(tracer).or_default().extend(run.event_bytes);
        }
    }
    checks.push("no tracer lost an event in any round; each recorded what was emitted".to_string());
    let mut report = report(bench.cpu, &tracers, costs, counter, bytes, checks);
    tails(&bench, rounds, &mut report)?;
    user_full::measure(&bench, rounds, &mut report)?;
    user_collector::measure(&bench, &tracers, rounds.min(5), &mut order, &mut report)?;
    Ok(report)
}

/// Only what the collectors cost.
pub fn run_collector(quick: bool) -> Result<Report> {
    let directory = tempfile::Builder::new().prefix("rtscope-bench").tempdir()?;
    let bench = Bench::new(directory.path(), 1)?;
    let mut tracers = vec![Tracer::Rtscope];
    let mut report = Report {
        schema: "rtscope.bench.user-events/1",
        name: "user-events",
        unit: "CPU time of the collector, ms for a million events".to_string(),
        host: Host::this(bench.cpu),
        rows: Vec::new(),
        promises: Vec::new(),
        checks: Vec::new(),
    };
    match &bench.lttng {
        Ok(_) => tracers.extend([Tracer::LttngDefault, Tracer::LttngBest]),
        Err(missing) => report.checks.push(format!("LTTng-UST was left out: {missing}")),
    }
    let rounds = if quick { 2 } else { 5 };
    user_collector::measure(&bench, &tracers, rounds, &mut Order::new(), &mut report)?;
    Ok(report)
}

fn tails(bench: &Bench, rounds: usize, report: &mut Report) -> Result<()> {
    let mut tails = [Vec::new(), Vec::new()];
    for _ in progress::rounds("the tail of rtscope npt", rounds) {
        let found = bench.tail_ns().context("the tail of rtscope npt")?;
        tails.iter_mut().zip(found).for_each(|(tails, ns)| tails.push(ns));
    }
    let [traced, untraced] = tails;
    let rows = [
        Row::new("rtscope npt, traced: 99.99 % of iterations", traced),
        Row::new("rtscope npt, untraced: 99.99 % of iterations", untraced),
    ];
    let added = rows[0].median() - rows[1].median();
    report.promises.push(Promise::at_most("added to the 99.99th percentile of npt, ns", added, 1000.0));
    report.rows.extend(rows);
    Ok(())
}

fn report(
    cpu: usize,
    tracers: &[Tracer],
    mut costs: BTreeMap<(Tracer, &'static str), Vec<f64>>,
    counter: Vec<f64>,
    mut bytes: BTreeMap<Tracer, Vec<f64>>,
    mut checks: Vec<String>,
) -> Report {
    let mut take = |tracer: Tracer, name: &'static str, words: &str| {
        Row::new(&format!("{}: {words}", tracer.name()), costs.remove(&(tracer, name)).unwrap_or_default())
    };
    let mut rows = vec![Row::new("one reading of the counter", counter)];
    let mut promises = Vec::new();
    for (name, words) in LOOPS {
        let of_tracers: Vec<Row> = tracers.iter().map(|tracer| take(*tracer, name, words)).collect();
        // Limits are for the event with two fields; the other loops are there to be looked at.
        if name == "two" {
            promises.push(Promise::at_most(
                "rtscope / one reading of the counter",
                of_tracers[0].median() / rows[0].median(),
                1.35,
            ));
            promises.push(Promise::at_most("a disabled event, ns", of_tracers[1].median(), 1.0));
            promises.push(Promise::at_most(
                "rtscope in Rust / rtscope",
                of_tracers[2].median() / of_tracers[0].median(),
                1.3,
            ));
            // What a tracer does besides reading the clock, which no time stamp can do without.
            let net = |row: &Row| row.median() - rows[0].median();
            checks.extend(
                of_tracers.iter().zip(tracers).filter(|(_, tracer)| **tracer != Tracer::Disabled).map(
                    |(row, tracer)| {
                        format!("{} without one reading of the counter: {:.2} ns", tracer.name(), net(row))
                    },
                ),
            );
            let peers = of_tracers.iter().zip(tracers).skip(3);
            promises.extend(peers.map(|(row, tracer)| {
                let limit = if *tracer == Tracer::LttngDefault { 0.10 } else { 0.13 };
                Promise::at_most(
                    &format!("rtscope / {}", tracer.name()),
                    of_tracers[0].median() / row.median(),
                    limit,
                )
            }));
        }
        rows.extend(of_tracers);
    }
    let sizes: Vec<(Tracer, Row)> = tracers
        .iter()
        .filter_map(|tracer| Some((*tracer, bytes.remove(tracer).filter(|sizes| !sizes.is_empty())?)))
        .map(|(tracer, sizes)| {
            (tracer, Row::new(&format!("{}: bytes of trace per event", tracer.name()), sizes))
        })
        .collect();
    if let [(Tracer::Rtscope, ours), .., (Tracer::LttngBest, theirs)] = sizes.as_slice() {
        promises.push(Promise::at_most(
            "size of the trace: rtscope / LTTng-UST",
            ours.median() / theirs.median(),
            1.0,
        ));
    }
    rows.extend(sizes.into_iter().map(|(_, row)| row));
    Report {
        schema: "rtscope.bench.user-events/1",
        name: "user-events",
        unit:
            "ns that an event adds to a loop iteration; LTTng-UST at its best: read-timer, 16 MiB sub-buffers"
                .to_string(),
        host: Host::this(cpu),
        rows,
        promises,
        checks,
    }
}

impl Run {
    pub(crate) fn median(&self, name: &str) -> Result<f64> {
        let samples = self.samples.get(name).with_context(|| format!("the program printed no '{name}'"))?;
        Ok(Row::new(name, samples.clone()).median())
    }
}

pub(crate) struct Bench {
    cpu: usize,
    directory: PathBuf,
    program: PathBuf,
    rounds: u64,
    lttng: Result<Lttng, rtscope_tracers::Error>,
}

impl Bench {
    fn new(directory: &Path, rounds: u64) -> Result<Bench> {
        // Collectors inherit this; the program goes to its own CPU.
        let mut others = CpuSet::new();
        let cpu = pipe_cpu();
        (0..cpu).try_for_each(|other| others.set(other))?;
        if cpu > 0 {
            sched_setaffinity(Pid::from_raw(0), &others)?;
        }
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        let program = compile(directory, WITH_RTSCOPE, &["-I", &include.to_string_lossy()])?;
        Ok(Bench { cpu, directory: directory.to_owned(), program, rounds, lttng: Lttng::new(directory) })
    }

    /// Where programs and traces are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn run(&self, tracer: Tracer) -> Result<Run> {
        self.run_with(tracer, "4M", &[&self.rounds.to_string(), &ITERATIONS.to_string()])
    }

    /// The program with rtscope's events, beside whatever records them.
    pub(crate) fn run_alone(&self) -> Result<Run> {
        self.run_with(Tracer::Disabled, "", &[&self.rounds.to_string(), &ITERATIONS.to_string()])
    }

    /// The program's name, as the kernel shows it.
    pub(crate) fn program_name(&self, tracer: Tracer) -> &'static str {
        match tracer {
            Tracer::LttngDefault | Tracer::LttngBest => WITH_LTTNG,
            Tracer::Rtscope | Tracer::Disabled | Tracer::Rust => WITH_RTSCOPE,
        }
    }

    /// `buffer`: of rtscope.
    pub(crate) fn run_with(&self, tracer: Tracer, buffer: &str, arguments: &[&str]) -> Result<Run> {
        let cpu = self.cpu.to_string();
        let arguments = [&[cpu.as_str()], arguments].concat();
        let trace = self.directory.join("trace");
        match fs::remove_dir_all(&trace) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                bail!("{}: {error}", trace.display())
            }
            _ => {}
        }
        let output = match (tracer, &self.lttng) {
            (Tracer::Rtscope | Tracer::Rust, _) => {
                let in_rust = program("rtscope-bench-events")?;
                let traced = if tracer == Tracer::Rust { &in_rust } else { &self.program };
                let mut command = Command::new(program("rtscope")?);
                command
                    // As LTTng's default, which adds no context: what it costs is in ADR 0028.
                    .args([
                        "record",
                        "--json",
                        "-u",
                        "bench:*",
                        "--context",
                        "none",
                        "--user-buffer",
                        buffer,
                        "-o",
                    ])
                    .arg(&trace);
                finished(command.arg("--").arg(traced).args(&arguments))?
            }
            (Tracer::Disabled, _) => finished(Command::new(&self.program).args(&arguments))?,
            (_, Ok(lttng)) => lttng.run(tracer, &trace, &arguments)?,
            (_, Err(missing)) => bail!("{missing}"),
        };
        // Beside rtscope's JSON a program prints on standard error.
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let mut samples = BTreeMap::<String, Vec<f64>>::new();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        for (name, number) in pairs.filter_map(|(name, number)| Some((name, number.parse::<f64>().ok()?))) {
            samples.entry(name.to_string()).or_default().push(number);
        }
        let emitted =
            samples.remove("emitted").and_then(|all| all.first().copied()).context("nothing emitted")?;
        let before = children_us()?;
        let event_bytes = if tracer == Tracer::Disabled { None } else { Some(complete(&trace, emitted)?) };
        samples.insert("reader_us".to_string(), vec![children_us()? - before]);
        let summary = text.lines().find(|line| line.contains("rtscope.record.user/1"));
        let summary = summary.map(serde_json::from_str).transpose()?;
        Ok(Run { samples, emitted, event_bytes, summary })
    }
}

impl Bench {
    /// The 99.99th percentile of the iterations of npt in windows with an event in each and without, in ns.
    fn tail_ns(&self) -> Result<[f64; 2]> {
        let (trace, cpu) = (self.directory.join("tail"), self.cpu.to_string());
        let _ = fs::remove_dir_all(&trace);
        let rtscope = program("rtscope")?;
        let mut command = Command::new(&rtscope);
        command.args(["record", "--json", "-u", "npt:*", "--user-buffer", "256M", "-o"]).arg(&trace);
        command.args(["--", "taskset", "-c", &cpu]).arg(&rtscope);
        command.args(["npt", "--json", "--cpu", &cpu, "--fifo", "80", "--windows", "2ms", "--loops", "5M"]);
        let output = finished(&mut command)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line =
            text.lines().find(|line| line.contains("rtscope.npt/1")).context("npt printed no result")?;
        let npt: Value = serde_json::from_str(line)?;
        let events = &npt["events"];
        ensure!(
            events["lost"] == 0 && events["recorded"] == true,
            "events were lost or not recorded: {events}"
        );
        // And npt:start and npt:stop.
        complete(&trace, events["generated"].as_f64().context("generated")? + 2.0)?;
        let tail = |at: usize| {
            let percentiles = npt["measured"][at]["percentiles"].as_array();
            let wanted = percentiles.and_then(|all| all.iter().find(|it| it["percent"] == 99.99));
            wanted.and_then(|it| it["ns"].as_f64()).context("too few iterations")
        };
        Ok([tail(0)?, tail(1)?])
    }
}

/// That a trace has all events and lost none: as the reader says. Gives the bytes of an event.
fn complete(trace: &Path, emitted: f64) -> Result<f64> {
    let output = finished(Command::new(program("rtscope")?).args(["stat", "--json"]).arg(trace))?;
    let stat: Value = serde_json::from_slice(&output.stdout)?;
    let streams = stat["streams"].as_array().context("streams")?;
    let lost: u64 = streams.iter().filter_map(|stream| stream["lost_events"].as_u64()).sum();
    let (events, bytes) =
        (stat["events"].as_f64().context("events")?, stat["bytes"].as_f64().context("bytes")?);
    ensure!(lost == 0 && events == emitted, "{emitted} events emitted, {events} recorded, {lost} lost");
    Ok(bytes / events)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c")
}

fn compile(directory: &Path, name: &str, before: &[&str]) -> Result<PathBuf> {
    let out = directory.join(name);
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-std=gnu11"])
        .args(before)
        .arg("-I")
        .arg(sources())
        .arg(sources().join("user_events.c"))
        .arg("-o")
        .arg(&out);
    finished(&mut command)?;
    Ok(out)
}

/// Runs a command to its end, which has to be a good one.
fn finished(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
    Ok(output)
}

/// LTTng, and the program with its events.
struct Lttng {
    program: PathBuf,
    lttng: Rc<rtscope_tracers::Lttng>,
}

impl Lttng {
    fn new(directory: &Path) -> Result<Lttng, rtscope_tracers::Error> {
        let program = directory.join(WITH_LTTNG);
        rtscope_tracers::compile([
            OsStr::new("-DWITH_LTTNG"),
            OsStr::new("-I"),
            sources().as_os_str(),
            sources().join("user_events.c").as_os_str(),
            OsStr::new("-o"),
            program.as_os_str(),
        ])?;
        let lttng = Rc::new(rtscope_tracers::Lttng::start(directory, false, &|| false)?);
        Ok(Lttng { program, lttng })
    }

    fn run(&self, tracer: Tracer, trace: &Path, arguments: &[&str]) -> Result<Output> {
        let best = Channel { sub_buffer_bytes: 16 << 20, sub_buffers: 4, wakeup: Wakeup::Timer(1000) };
        let channel = (tracer == Tracer::LttngBest).then_some(best);
        let name = format!("rtscope-bench-{}", std::process::id());
        let session = self.lttng.session(&name, trace, channel, "bench:*")?;
        session.start()?;
        let output = finished(self.lttng.dress(Command::new(&self.program).args(arguments)))?;
        session.destroy()?;
        Ok(output)
    }
}

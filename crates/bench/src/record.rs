// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `record`: the run time that recording to disk adds to a load, with rtscope, trace-cmd and perf.
//!
//! The load runs as each recorder's COMMAND and says itself how long it took, so starting and stopping do not count. A round
//! runs the load alone and under each recorder, in random order; a recorder's cost is the difference within the round. Loads:
//! hackbench (switches, wakeups, reads and writes) and a loop of one cheap system call, which is the worst case.

use crate::blocks::Order;
use crate::host::Host;
use crate::progress;
use crate::requirements::{CC, PlainPath};
use crate::table::{Promise, Report, Row};
use anyhow::{Context, Result, bail, ensure};
use rtscope_testkit::process::program;
use rtscope_tracers::finished;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Buffers of the same size for all: 8 MiB a CPU.
const BUFFER_KIB: u32 = 8192;

/// What is recorded, by name, with a limit against each peer.
struct Events {
    name: &'static str,
    patterns: &'static [&'static str],
    trace_cmd_limit: f64,
    perf_limit: f64,
}

/// The built-in events are those that rtscope always records by eBPF; system calls, where its programs there cannot be preempted; the rest,
/// what it leaves to ftrace.
const SETS: [Events; 3] = [
    Events {
        name: "built-in events",
        patterns: &[
            "sched:sched_switch",
            "sched:sched_waking",
            "sched:sched_wakeup_new",
            "sched:sched_migrate_task",
            "irq:irq_handler_entry",
            "irq:irq_handler_exit",
            "irq:softirq_raise",
        ],
        trace_cmd_limit: 0.7,
        perf_limit: 0.5,
    },
    Events { name: "system calls", patterns: &["syscalls:*"], trace_cmd_limit: 1.05, perf_limit: 0.5 },
    Events {
        name: "sched, irq, system calls",
        patterns: &["sched:*", "irq:*", "syscalls:*"],
        trace_cmd_limit: 1.05,
        perf_limit: 0.5,
    },
];

/// The second one makes the trace when the recording is over, as the peers do; the first one while it records.
const RECORDERS: [&str; 4] = ["rtscope", "rtscope --convert-after", "trace-cmd", "perf"];

/// A load, as a command that prints its seconds.
struct Load {
    name: &'static str,
    /// It is a load for the built-in events: it switches often enough for that to be seen.
    switches: bool,
    /// Each with the load alone and under each recorder.
    rounds: usize,
    command: Vec<String>,
}

/// `plain`: where the library for small pipes is, by a name that LD_PRELOAD does not split.
fn loads(quick: bool, plain: &PlainPath) -> Result<Vec<Load>> {
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    // hackbench: about a second, alone. What takes less than some time slices measures which task got which of them.
    let (calls, messages) = if quick { ("500000", "3000") } else { ("1500000", "60000") };
    let (rounds, short_rounds) = if quick { (3, 6) } else { (11, 61) };
    let hackbench = ["hackbench", "-g", "1", "-f", "4", "-l", messages].map(str::to_string).to_vec();
    // Each message fills a pipe, so each has a switch: a million a second, on one CPU, so that no migration between CPUs is measured.
    // With pipes of the usual size there are sixteen pages to be copied for each switch, and the time of copying wanders
    // more within seconds than a recorder adds. Half a second, and many rounds, for the same reason.
    let pages = if quick { "80000" } else { "200000" };
    let preload = format!("LD_PRELOAD={}/{SMALL_PIPES}", plain.text());
    let mut switching = vec!["env".to_string(), preload];
    switching.extend(
        ["taskset", "-c", "0", "hackbench", "-p", "-g", "1", "-f", "1", "-s", "4096", "-l", pages]
            .map(str::to_string),
    );
    let calling = vec![own, "system-calls".to_string(), calls.to_string()];
    Ok(vec![
        Load { name: "hackbench, full pipes", switches: true, rounds: short_rounds, command: switching },
        Load { name: "hackbench", switches: false, rounds, command: hackbench },
        Load { name: "system-call loop", switches: false, rounds, command: calling },
    ])
}

/// The library that makes the pipes of hackbench small.
const SMALL_PIPES: &str = "small_pipes.so";

fn build_small_pipes(directory: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/small_pipes.c");
    let mut command = Command::new("cc");
    command.args(["-O2", "-shared", "-fPIC", "-o"]).arg(directory.join(SMALL_PIPES)).arg(source);
    finished(&mut command, CC.remedy)?;
    Ok(())
}

/// The second load: this many calls of getppid, which do nearly nothing; prints `Time: SECONDS` as hackbench does.
pub fn system_calls(count: &str) -> Result<()> {
    let count: u64 = count.parse().context("a number of system calls")?;
    let start = Instant::now();
    for _ in 0..count {
        std::hint::black_box(nix::unistd::getppid());
    }
    println!("Time: {}", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs it: every row, or those whose names have `only` in them.
pub fn run(quick: bool, only: &str) -> Result<Report> {
    let directory = tempfile::Builder::new().prefix("rtscope-bench").tempdir()?;
    let mut order = Order::new();
    let mut report = Report {
        schema: "rtscope.bench.record/1",
        name: "record",
        unit: "seconds that recording adds to the load's run time; ratios of medians".to_string(),
        host: Host::this(0),
        rows: Vec::new(),
        promises: Vec::new(),
        checks: Vec::new(),
    };
    build_small_pipes(directory.path())?;
    let plain = PlainPath::of(directory.path())?;
    for load in loads(quick, &plain)? {
        for set in &SETS {
            let what = format!("{}, {}", load.name, set.name);
            if load.switches != (set.name == "built-in events") || !what.contains(only) {
                continue;
            }
            compare(&what, &load, set, directory.path(), &mut order, &mut report)?;
        }
    }
    ensure!(!report.rows.is_empty(), "no row of this benchmark has '{only}' in its name");
    Ok(report)
}

fn compare(
    what: &str,
    load: &Load,
    set: &Events,
    directory: &Path,
    order: &mut Order,
    report: &mut Report,
) -> Result<()> {
    let mut alone = Vec::new();
    let mut added: [Vec<f64>; 4] = Default::default();
    let mut lost = [0_u64; 4];
    for round in progress::rounds(what, load.rounds + 1) {
        let mut times = [0.0; 5];
        for which in order.shuffled(5) {
            times[which] = match which {
                0 => seconds(Command::new(&load.command[0]).args(&load.command[1..]))?.0,
                recorder => {
                    let (time, missing) = patiently(RECORDERS[recorder - 1], set, load, directory)?;
                    lost[recorder - 1] += missing;
                    time
                }
            };
        }
        // The first round warms everything up.
        if round > 0 {
            alone.push(times[0]);
            (0..4).for_each(|recorder| added[recorder].push(times[recorder + 1] - times[0]));
        }
    }
    report.rows.push(Row::new(&format!("{what}: alone"), alone));
    let rows: Vec<Row> = RECORDERS
        .iter()
        .zip(added)
        .map(|(recorder, samples)| Row::new(&format!("{what}: + {recorder}"), samples))
        .collect();
    for (peer, limit) in [(2, set.trace_cmd_limit), (3, set.perf_limit)] {
        let against = format!("{what}: rtscope / {}", RECORDERS[peer]);
        let (cost, peer) = (rows[0].median(), rows[peer].median());
        report.promises.push(Promise::ratio_at_most(&against, cost, peer, limit));
    }
    let both = (lost[0] + lost[1]) as f64;
    report.promises.push(Promise::at_most(&format!("{what}: events lost by rtscope"), both, 0.0));
    report.checks.push(format!("{what}: lost by trace-cmd {}, by perf {}", lost[2], lost[3]));
    report.rows.extend(rows);
    Ok(())
}

/// trace-cmd gives up when /proc/kallsyms grows while it copies it: loading an eBPF program makes it do so. It is tried again then.
fn patiently(recorder: &str, set: &Events, load: &Load, directory: &Path) -> Result<(f64, u64)> {
    under(recorder, set, load, directory)
        .or_else(|_| under(recorder, set, load, directory))
        .or_else(|_| under(recorder, set, load, directory))
}

/// The load under one recorder: its seconds, and the events that the recorder says it lost.
fn under(recorder: &str, set: &Events, load: &Load, directory: &Path) -> Result<(f64, u64)> {
    let target = directory.join(recorder);
    let _ = fs::remove_dir_all(&target);
    let _ = fs::remove_file(&target);
    let mut command = match recorder {
        "rtscope" => rtscope(set, &[], &target)?,
        "rtscope --convert-after" => rtscope(set, &["--convert-after"], &target)?,
        "trace-cmd" => trace_cmd(set, &target),
        _ => perf(set, &target),
    };
    let (time, text) = seconds(command.args(&load.command))?;
    // At once: what is not on the disk yet need not get there, and would while the next one is measured.
    let _ = fs::remove_dir_all(&target);
    let _ = fs::remove_file(&target);
    let lost = match recorder {
        "rtscope" | "rtscope --convert-after" => lost_by_rtscope(&text)?,
        "trace-cmd" => numbers_after(&text, "overrun: "),
        _ => numbers_after(&text, "lost "),
    };
    Ok((time, lost))
}

fn rtscope(set: &Events, options: &[&str], target: &Path) -> Result<Command> {
    let mut command = Command::new(program("rtscope")?);
    command.args(["record", "--json", "--fail-if-lost=100%", "-k", &set.patterns.join(",")]).args(options);
    command.arg("-o").arg(target).arg("--");
    Ok(command)
}

/// Some containers refuse the function tracer's files, which trace-cmd opens though it does not need them here: they are
/// covered by empty ones, in a private mount namespace.
pub(crate) fn trace_cmd_command(target: &Path, buffer_kib: u32) -> Command {
    const COVER: &str = "for f in set_ftrace_filter set_ftrace_notrace set_ftrace_pid set_graph_function set_graph_notrace; do
        f=/sys/kernel/tracing/$f; [ -e $f ] || continue; ( : >> $f ) 2>/dev/null || mount --bind $EMPTY $f; done
        ( echo 1 > /proc/sys/kernel/ftrace_enabled ) 2>/dev/null || mount --bind $ONE /proc/sys/kernel/ftrace_enabled
        exec \"$@\"";
    let (empty, one): (PathBuf, PathBuf) = (target.with_extension("empty"), target.with_extension("one"));
    let _ = fs::write(&empty, "");
    let _ = fs::write(&one, "1\n");
    let mut command = Command::new("unshare");
    command.env("EMPTY", empty).env("ONE", one).args(["-m", "sh", "-c", COVER, "sh"]);
    command.args(["trace-cmd", "record", "-C", "mono", "-b", &buffer_kib.to_string(), "-o"]).arg(target);
    command
}

fn trace_cmd(set: &Events, target: &Path) -> Command {
    let mut command = trace_cmd_command(target, BUFFER_KIB);
    for pattern in set.patterns {
        command.args(["-e", pattern]);
    }
    command
}

fn perf(set: &Events, target: &Path) -> Command {
    let mut command = Command::new("perf");
    let pages = BUFFER_KIB / 4;
    command.args(["record", "-a", "-k", "mono", "-c", "1", "-m", &pages.to_string(), "-o"]).arg(target);
    for pattern in set.patterns {
        // As `perf trace` does: two tracepoints for all calls. With one for each, perf needs half a minute to begin and end.
        command.args(["-e", if *pattern == "syscalls:*" { "raw_syscalls:*" } else { pattern }]);
    }
    command.arg("--");
    command
}

/// Runs a command in which the load prints its time; gives that and all that was printed.
fn seconds(command: &mut Command) -> Result<(f64, String)> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {text}", output.status);
    let line =
        text.lines().find_map(|line| line.split_once("Time: ")).map(|(_, time)| time.trim().to_string());
    let Some(time) = line else { bail!("the load under {command:?} printed no time: {text}") };
    Ok((time.parse().with_context(|| format!("the load's time '{time}'"))?, text))
}

fn lost_by_rtscope(text: &str) -> Result<u64> {
    let line = text.lines().find(|line| line.starts_with('{')).context("rtscope printed no summary")?;
    let summary: serde_json::Value = serde_json::from_str(line)?;
    let losses = summary["losses"].as_array().context("a summary without losses")?;
    // A gap is no lost event: the host hid switches there.
    let losses = losses.iter().filter(|loss| loss["cause"] != "gap");
    Ok(losses.map(|loss| loss["count"].as_u64().unwrap_or(u64::MAX >> 8)).sum())
}

/// The sum of the numbers that follow `key` in a text.
fn numbers_after(text: &str, key: &str) -> u64 {
    let number = |rest: &str| {
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse::<u64>().ok())
    };
    text.split(key).skip(1).filter_map(number).sum()
}

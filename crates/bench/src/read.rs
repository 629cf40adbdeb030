// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `read`: `rtscope stat` and `rtscope print` beside babeltrace2, on the same traces, in random order.
//!
//! Two traces: one as rtscope writes it, with what a busy kernel does, and one of LTTng's user-space tracer. Both readers
//! may use all CPUs and write to the same nowhere. A third, of 10 GB, is for the memory: the files of the first again and
//! again, as hard links.

use crate::host::Host;
use crate::progress;
use crate::table::{Promise, Report, Row};
use anyhow::{Context, Result, bail, ensure};
use rtscope_ctf::{TraceInfo, write_trace};
use rtscope_event::{
    Comm, CpuId, Event, EventKind, Irq, MonotonicNs, Names, Pid, Policy, Priority, Recording, TaskInfo,
    TaskState, Tid, WaitKind,
};
use rtscope_testkit::process::program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CPUS: u32 = 4;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Stat,
    Dummy,
    Print,
    Text,
    Convert,
    Tasks,
    /// As people get it, with names of threads.
    People,
}

const TOOLS: [Tool; 7] =
    [Tool::Stat, Tool::Dummy, Tool::Print, Tool::Text, Tool::Convert, Tool::Tasks, Tool::People];

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Stat => "rtscope stat",
            Tool::Dummy => "babeltrace2 -o dummy",
            Tool::Print => "rtscope print --format babeltrace",
            Tool::People => "rtscope print",
            Tool::Text => "babeltrace2, text",
            Tool::Convert => "rtscope convert --to perfetto",
            Tool::Tasks => "rtscope stat --tasks --irqs",
        }
    }

    fn command(self, trace: &Path) -> Result<Command> {
        let ours = !matches!(self, Tool::Dummy | Tool::Text);
        let mut command = if ours { Command::new(program("rtscope")?) } else { Command::new("babeltrace2") };
        match self {
            Tool::Stat => command.arg("stat").arg(trace),
            Tool::Print => command.args(["print", "--format", "babeltrace"]).arg(trace),
            Tool::People => command.arg("print").arg(trace),
            Tool::Dummy => command.arg(trace).args(["-o", "dummy"]),
            Tool::Text => command.arg(trace),
            Tool::Tasks => command.arg("stat").arg(trace).args(["--tasks", "--irqs"]),
            Tool::Convert => command.arg("convert").arg(trace).args(["-", "--to", "perfetto"]),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let events = if quick { 1_000_000 } else { 10_000_000 };
    let rounds = if quick { 2 } else { 5 };
    let root = tempfile::tempdir()?;
    let ours = root.path().join("ours");
    write_trace(&ours, &recording(events), &TraceInfo::of_this_machine("bench")?)?;
    let mut traces = vec![("ours", ours.clone())];
    let mut checks = Vec::new();
    match lttng(root.path(), events) {
        Ok(dir) => traces.push(("LTTng's", dir)),
        Err(why) => checks.push(format!("no trace of LTTng: {why:#}")),
    }
    let mut rows = Vec::new();
    let mut promises = Vec::new();
    for (name, dir) in &traces {
        let count = counted(dir)?;
        checks.push(format!("{name}: {count} events by rtscope and by babeltrace2"));
        let found = compare(name, dir, count, rounds)?;
        let [stat, dummy, print, text, convert, people] =
            [0, 1, 2, 3, 4, 6].map(|place: usize| found.get(place).map_or(f64::NAN, Row::median));
        promises.push(Promise::at_most(
            &format!("{name}: rtscope stat / babeltrace2 -o dummy"),
            stat / dummy,
            0.1,
        ));
        promises.push(Promise::at_most(
            &format!("{name}: rtscope print --format babeltrace / babeltrace2 as text"),
            print / text,
            0.1,
        ));
        promises.push(Promise::at_most(
            &format!("{name}: rtscope print / babeltrace2 as text"),
            people / text,
            0.1,
        ));
        promises.push(Promise::at_most(
            &format!("{name}: rtscope print / the same with --format babeltrace"),
            people / print,
            1.2,
        ));
        promises.push(Promise::at_most(
            &format!("{name}: rtscope convert --to perfetto, ns per event"),
            convert,
            1000.0,
        ));
        rows.extend(found);
    }
    let big = root.path().join("big");
    let bytes = multiply(&ours, &big, if quick { 1 << 30 } else { 10_000_000_000 })?;
    for tool in [Tool::Stat, Tool::Print, Tool::People, Tool::Convert, Tool::Tasks] {
        let what = format!("{} of {:.1} GB: peak memory, MB", tool.name(), bytes as f64 / 1e9);
        progress::step(&what);
        let peak = peak_mb(tool, &big)?;
        promises.push(Promise::at_most(&what, peak, 200.0));
    }
    Ok(Report {
        schema: "rtscope.bench.read/1",
        name: "read",
        unit: "ns per event, all CPUs, output to nowhere".to_string(),
        host: Host::this(crate::pipe_cpu()),
        rows,
        promises,
        checks,
    })
}

/// Time per event of each tool, in rounds of random order.
fn compare(name: &str, dir: &Path, events: u64, rounds: usize) -> Result<Vec<Row>> {
    let mut random = Random(std::process::id().into());
    let mut samples: [Vec<f64>; TOOLS.len()] = Default::default();
    for _ in progress::rounds(&format!("{name}, {} readers by turns", TOOLS.len()), rounds) {
        let mut order: Vec<usize> = (0..TOOLS.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, random.below(place as u64 + 1) as usize);
        }
        for place in order {
            let mut command = TOOLS[place].command(dir)?;
            let start = Instant::now();
            let status = command.status().with_context(|| TOOLS[place].name())?;
            samples[place].push(start.elapsed().as_nanos() as f64 / events as f64);
            ensure!(status.success(), "{} failed", TOOLS[place].name());
        }
    }
    let rows = TOOLS.iter().zip(samples);
    let row = |(tool, samples): (&Tool, _)| Row::new(&format!("{name}: {}", tool.name()), samples);
    let rows: Vec<Row> = rows.map(row).collect();
    progress::rows(&rows);
    Ok(rows)
}

/// The number of events, on which both must agree.
fn counted(dir: &Path) -> Result<u64> {
    let output = Command::new(program("rtscope")?).args(["stat", "--json"]).arg(dir).output()?;
    ensure!(output.status.success(), "rtscope stat: {}", String::from_utf8_lossy(&output.stderr));
    let stat: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let ours = stat["events"].as_u64().context("rtscope stat says no number of events")?;
    let mut child =
        Command::new("babeltrace2").arg(dir).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut lines = 0;
    if let Some(mut out) = child.stdout.take() {
        let mut buffer = vec![0; 1 << 20];
        loop {
            match std::io::Read::read(&mut out, &mut buffer)? {
                0 => break,
                read => lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64,
            }
        }
    }
    child.wait()?;
    ensure!(ours == lines, "rtscope counts {ours} events, babeltrace2 prints {lines}");
    Ok(ours)
}

/// Copies a trace's directory, by hard links, until there are `wanted` bytes; gives how many there are.
fn multiply(trace: &Path, to: &Path, wanted: u64) -> Result<u64> {
    let metadata = fs::read_to_string(trace.join("metadata"))?;
    let uuid = metadata
        .split("uuid = \"")
        .nth(1)
        .and_then(|rest| rest.get(..36))
        .context("the trace has no UUID")?;
    let mut bytes = 0;
    let mut copy = 0;
    while bytes < wanted {
        let dir = to.join(format!("{copy:04}"));
        fs::create_dir_all(&dir)?;
        // Of the same UUID they would be one trace, with everything in it twice.
        let other = format!("{copy:08x}{}", &uuid[8..]);
        fs::write(dir.join("metadata"), metadata.replace(uuid, &other))?;
        for entry in fs::read_dir(trace)? {
            let entry = entry?;
            if entry.file_name() != "metadata" {
                fs::hard_link(entry.path(), dir.join(entry.file_name()))?;
                bytes += entry.metadata()?.len();
            }
        }
        copy += 1;
    }
    Ok(bytes)
}

/// The most memory that a run had resident.
fn peak_mb(tool: Tool, dir: &Path) -> Result<f64> {
    let mut child = tool.command(dir)?.spawn()?;
    let mut peak = 0.0_f64;
    while child.try_wait()?.is_none() {
        peak = peak.max(high_water_mb(&child).unwrap_or(0.0));
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(child.wait()?.success() && peak > 0.0, "{} failed", tool.name());
    Ok(peak)
}

fn high_water_mb(child: &Child) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1000.0)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// What a busy kernel does: wakeups and switches, timers, interrupts.
fn recording(events: u64) -> Recording {
    let mut random = Random(1);
    let mut time = 1_000_000_000;
    let mut names = Names::default();
    for tid in 1..200 {
        let comm = Comm::from(format!("task-{tid}").as_str());
        let (tid, pid, ppid) = (Tid(tid), Pid(tid), Pid(1));
        names.add_task(TaskInfo {
            tid,
            pid,
            ppid,
            comm,
            prio: Priority(120),
            policy: Policy(0),
            kthread: false,
        });
    }
    let events = (0..events).map(|_| {
        time += random.below(2000);
        let tid = Tid(1 + random.below(199) as u32);
        let next = Tid(1 + random.below(199) as u32);
        let prio = Priority(120);
        let kind = match random.below(8) {
            0..3 => EventKind::SchedSwitch {
                prev_tid: tid,
                prev_prio: prio,
                prev_state: TaskState(1),
                preempt: false,
                prev_kthread: false,
                next_tid: next,
                next_prio: prio,
                next_kthread: false,
                prev_wait: WaitKind::None,
                prev_wait_on: 0,
            },
            3..5 => EventKind::SchedWaking {
                tid,
                prio,
                target_cpu: CpuId(1),
                kthread: false,
                wait: WaitKind::None,
            },
            5 => EventKind::SoftirqEntry { vec: random.below(10) as u32 },
            6 => EventKind::HrtimerExpireExit { timer: 0xffff_8881_0000_0000 + random.below(1 << 20) },
            _ => EventKind::IrqHandlerExit { irq: Irq(random.below(40) as u32), ret: 1 },
        };
        Event { time: MonotonicNs(time), cpu: CpuId(random.below(CPUS.into()) as u32), kind }
    });
    Recording { events: events.collect(), names, losses: Vec::new(), history: Vec::new() }
}

const TRACEPOINT: &str = r#"
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./bench_tp.h"
#if !defined(BENCH_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define BENCH_TP_H
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT(bench, step, LTTNG_UST_TP_ARGS(uint64_t, n, int, s, const char *, t),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, n, n) lttng_ust_field_integer(int, s, s)
        lttng_ust_field_string(t, t)))
#endif
#include <lttng/tracepoint-event.h>
"#;

const PROGRAM: &str = r#"
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "bench_tp.h"
#include <pthread.h>
#include <stdlib.h>
static long count;
static void *run(void *unused)
{
    (void)unused;
    for (long i = 0; i < count; i++)
        lttng_ust_tracepoint(bench, step, i, (int)-i, i % 2 ? "odd" : "an even number");
    return 0;
}
int main(int argc, char **argv)
{
    pthread_t threads[2];
    count = argc > 1 ? atol(argv[1]) / 2 : 0;
    for (int i = 0; i < 2; i++)
        pthread_create(threads + i, 0, run, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    return 0;
}
"#;

/// A trace of LTTng's user-space tracer, made now. Headers and libraries that are not where the compiler looks can be
/// given in CPATH, LIBRARY_PATH and LD_LIBRARY_PATH.
fn lttng(root: &Path, events: u64) -> Result<PathBuf> {
    let (source, out) = (root.join("source"), root.join("lttng"));
    fs::create_dir_all(&source)?;
    fs::write(source.join("bench_tp.h"), TRACEPOINT)?;
    fs::write(source.join("loop.c"), PROGRAM)?;
    let build = "gcc -O2 -I. loop.c -o loop -llttng-ust -ldl -lpthread";
    shell(&source, build, &out).context("building a program for lttng-ust (liblttng-ust-dev)")?;
    let name = format!("rtscope-bench-{}", std::process::id());
    let record = format!(
        "set -e; lttng create {name} --output \"$OUT\"; trap 'lttng destroy {name}' EXIT
        lttng enable-channel -u -s {name} --blocking-timeout=inf ch; lttng enable-event -u -s {name} -c ch 'bench:*'
        lttng add-context -u -s {name} -c ch -t vtid -t procname; lttng start {name}
        LTTNG_UST_ALLOW_BLOCKING=1 ./loop {events}; lttng stop {name}"
    );
    shell(&source, &record, &out).context("recording with lttng")?;
    Ok(out)
}

/// `out`: the script has it as $OUT, whatever is in it.
fn shell(directory: &Path, script: &str, out: &Path) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("OUT", out).current_dir(directory).stdin(Stdio::null());
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.lines().last().unwrap_or("it printed no reason"));
    }
    Ok(())
}

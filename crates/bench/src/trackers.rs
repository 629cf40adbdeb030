// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trackers`: what each tracker of intervals costs while there is nothing to report, against a bpftrace script of the same logic, and what
//! a second instance adds.
//!
//! All of it is on: the task is a target, so each of its intervals is followed, measured and counted.

use crate::blocks::{Load, Plan, Tool, measure};
use crate::calls::Calls;
use crate::host::Host;
use crate::peers::Bpftrace;
use crate::pipe::Pipe;
use crate::rtscope::{Rtscope, TWO_EMPTY};
use crate::table::{Promise, Report, Row};
use anyhow::Result;
use rtscope_event::{Glob, Tracker};
use rtscope_kernel::{EbpfConfig, Follows, Target, TrackerConfig};

/// Empty programs where system calls begin and end.
const CALLS_EMPTY: [&str; 2] = ["empty_sys_enter", "empty_sys_exit"];
const EMPTY_SWITCHES: &str =
    "tracepoint:sched:sched_waking { $unused = 1; } tracepoint:sched:sched_switch { $unused = 1; }";
const EMPTY_CALLS: &str =
    "tracepoint:raw_syscalls:sys_enter { $unused = 1; } tracepoint:raw_syscalls:sys_exit { $unused = 1; }";
/// As runqlat: from the waking to the switch.
const WAKEUP: &str = "tracepoint:sched:sched_waking { @waking[args->pid] = nsecs; }
tracepoint:sched:sched_switch {
  $ns = @waking[args->next_pid];
  if ($ns) { @latency_ns = hist(nsecs - $ns); }
  delete(@waking[args->next_pid]);
}";
/// As offcputime, without its stacks: from the switch out to the switch in, and who woke.
const OFFCPU: &str = "tracepoint:sched:sched_waking { @waker[args->pid] = tid; }
tracepoint:sched:sched_switch {
  @left[args->prev_pid] = nsecs;
  $ns = @left[args->next_pid];
  if ($ns) { @off_ns = hist(nsecs - $ns); }
  delete(@left[args->next_pid]);
}";
/// As syscount with latencies: from the entry to the exit.
const SYSCALL: &str = "tracepoint:raw_syscalls:sys_enter { @begun[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit {
  $ns = @begun[tid];
  if ($ns) { @call_ns = hist(nsecs - $ns); }
  delete(@begun[tid]);
}";

/// So many instances of a tracker, of which nothing is late.
fn config(tracker: Tracker, instances: usize, task: &str) -> Result<EbpfConfig> {
    let one = || -> Result<TrackerConfig> {
        Ok(TrackerConfig {
            target: Target { name: Some(Glob::new(task)?), ..Target::default() },
            threshold_ns: 1 << 40,
            snapshot: false,
            follows: match tracker {
                Tracker::Offcpu => Follows::OffCpu,
                Tracker::Syscall => Follows::Syscalls((0..rtscope_abi::RTS_SYSCALLS as usize).collect()),
                _ => Follows::Wakeups,
            },
        })
    };
    let trackers = (0..instances).map(|_| one()).collect::<Result<_>>()?;
    Ok(EbpfConfig { recorder: None, trackers, only: Vec::new() })
}

fn empty(only: [&'static str; 2]) -> EbpfConfig {
    EbpfConfig { recorder: None, trackers: Vec::new(), only: only.to_vec() }
}

/// The costs of some trackers under one load, with what was promised.
fn compare(
    load: &dyn Load,
    task: &str,
    (empty_programs, empty_script): ([&'static str; 2], &'static str),
    compared: &[(Tracker, &'static str, [&'static str; 3])],
    plan: Plan,
    (rows, promises, checks): (&mut Vec<Row>, &mut Vec<Promise>, &mut Vec<String>),
) -> Result<()> {
    let cpu = crate::pipe_cpu();
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(Rtscope::new("empty programs", cpu, &empty(empty_programs))?),
        Box::new(Bpftrace::new("bpftrace, empty script", empty_script)),
    ];
    for (tracker, script, [one, two, peer]) in compared {
        tools.push(Box::new(Rtscope::new(one, cpu, &config(*tracker, 1, task)?)?));
        tools.push(Box::new(Rtscope::new(two, cpu, &config(*tracker, 2, task)?)?));
        tools.push(Box::new(Bpftrace::new(peer, script)));
    }
    let found = measure(load, &mut tools, plan)?;
    let [empty, empty_script] = [1, 2].map(|index: usize| found[index].median());
    for (place, (tracker, ..)) in compared.iter().enumerate() {
        let [one, two, peer] = [3, 4, 5].map(|first| found[first + 3 * place].median());
        let name = tracker.name();
        promises.push(Promise::ratio_at_most(
            &format!("{name} / bpftrace, each net of its empty program"),
            one - empty,
            peer - empty_script,
            0.5,
        ));
        promises.push(Promise::ratio_at_most(
            &format!("{name}: a second instance / the first one, net of the empty program"),
            two - one,
            one - empty,
            0.5,
        ));
    }
    checks.extend(tools.iter().map(|tool| tool.check()).filter(|check| !check.is_empty()));
    rows.extend(found);
    Ok(())
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let cpu = crate::pipe_cpu();
    let plan = Plan::new(quick);
    let (mut rows, mut promises, mut checks) = (Vec::new(), Vec::new(), Vec::new());
    let switches = [
        (Tracker::Wakeup, WAKEUP, ["wakeup", "wakeup, two instances", "bpftrace, wakeup latency"]),
        (Tracker::Offcpu, OFFCPU, ["offcpu", "offcpu, two instances", "bpftrace, time off CPU"]),
    ];
    {
        let pipe = Pipe::start(cpu)?;
        let report = (&mut rows, &mut promises, &mut checks);
        // Both tasks of the load have its name.
        compare(&pipe, "*", (TWO_EMPTY, EMPTY_SWITCHES), &switches, plan, report)?;
    }
    let calls =
        [(Tracker::Syscall, SYSCALL, ["syscall", "syscall, two instances", "bpftrace, system calls"])];
    let load = Calls::start(cpu)?;
    let report = (&mut rows, &mut promises, &mut checks);
    compare(&load, Calls::NAME, (CALLS_EMPTY, EMPTY_CALLS), &calls, plan, report)?;
    Ok(Report {
        schema: "rtscope.bench.trackers/1",
        name: "trackers",
        unit:
            "added ns per switch (one sched_switch + one sched_waking), then per system call (entry + exit)"
                .to_string(),
        host: Host::this(cpu),
        rows,
        promises,
        checks,
    })
}

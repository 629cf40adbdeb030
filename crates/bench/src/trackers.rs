// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trackers`: what trackers cost while there is nothing to report, against a bpftrace script of the same logic, and what a second instance
//! adds.
//!
//! All of it is on: the task is a target, so each of its intervals is followed, measured and counted. `preemptoff` and `irqoff` have no peer that
//! needs no kprobes: what they add to a switch is shown.

use crate::blocks::{Load, Plan, Tool, measure};
use crate::calls::Calls;
use crate::host::Host;
use crate::peers::Bpftrace;
use crate::pipe::Pipe;
use crate::rtscope::{Rtscope, TWO_EMPTY};
use crate::table::{Promise, Report, Row};
use anyhow::Result;
use rtscope_event::{Glob, Tracker};
use rtscope_kernel::{EbpfConfig, Follows, StackConfig, Target, TrackerConfig};

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

const SOFTIRQS_EMPTY: [&str; 3] = ["empty_softirq_raise", "empty_softirq_entry", "empty_softirq_exit"];
const EMPTY_SOFTIRQS: &str = "tracepoint:irq:softirq_raise { $unused = 1; }
tracepoint:irq:softirq_entry { $unused = 1; } tracepoint:irq:softirq_exit { $unused = 1; }";
/// As softirqs, with the wait for the handler: from where it is raised to the exit.
const SOFTIRQ: &str = "tracepoint:irq:softirq_raise { @raised[cpu, args->vec] = nsecs; }
tracepoint:irq:softirq_entry { @begun[cpu, args->vec] = nsecs; }
tracepoint:irq:softirq_exit {
  $ns = @begun[cpu, args->vec];
  if ($ns) { @run_ns = hist(nsecs - $ns); @all_ns = hist(nsecs - @raised[cpu, args->vec]); }
  delete(@begun[cpu, args->vec]);
}";
/// What a switch or a call may cost more, of which nothing is late, where what is late has stacks: a program on the way, and a look-up.
const STACKS_NS: f64 = 40.0;
/// How far apart samples are where interrupts are watched: the command's default.
const SAMPLES_NS: u64 = 1_000_000;

/// A tracker under a load: rows of one instance and of two, and the script that it is compared with.
struct Compared {
    tracker: Tracker,
    rows: [&'static str; 2],
    /// The row of one instance with stacks of what is late; `None`: there are none.
    stacks: Option<&'static str>,
    peer: Option<(&'static str, &'static str)>,
}

/// So many instances of a tracker, of which nothing is late.
fn config(tracker: Tracker, instances: usize, task: &str) -> Result<EbpfConfig> {
    let one = || -> Result<TrackerConfig> {
        Ok(TrackerConfig {
            counted_by: None,
            target: Target { name: Some(Glob::new(task)?), ..Target::default() },
            threshold_ns: 1 << 40,
            snapshot: false,
            records: false,
            follows: match tracker {
                Tracker::Offcpu => Follows::OffCpu,
                Tracker::Softirq => Follows::Softirqs,
                Tracker::Preemptoff => Follows::PreemptOff,
                Tracker::Irqoff => Follows::IrqOff(SAMPLES_NS),
                Tracker::Syscall => Follows::Syscalls((0..rtscope_abi::RTS_SYSCALLS as usize).collect()),
                _ => Follows::Wakeups,
            },
        })
    };
    let trackers = (0..instances).map(|_| one()).collect::<Result<_>>()?;
    Ok(EbpfConfig { recorder: None, trackers, stacks: None, only: Vec::new() })
}

fn empty(only: &[&'static str]) -> EbpfConfig {
    EbpfConfig { recorder: None, trackers: Vec::new(), stacks: None, only: only.to_vec() }
}

/// The costs of some trackers under one load, with what was promised.
fn compare(
    load: &dyn Load,
    task: &str,
    (empty_programs, empty_script): (&[&'static str], &'static str),
    compared: &[Compared],
    plan: Plan,
    (rows, promises, checks): (&mut Vec<Row>, &mut Vec<Promise>, &mut Vec<String>),
) -> Result<()> {
    let cpu = crate::pipe_cpu();
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(Rtscope::new("empty programs", cpu, &empty(empty_programs))?),
        Box::new(Bpftrace::new("bpftrace, empty script", empty_script)),
    ];
    for Compared { tracker, rows: [one, two], stacks, peer } in compared {
        tools.push(Box::new(Rtscope::new(one, cpu, &config(*tracker, 1, task)?)?));
        tools.push(Box::new(Rtscope::new(two, cpu, &config(*tracker, 2, task)?)?));
        if let Some(name) = stacks {
            let with =
                EbpfConfig { stacks: Some(StackConfig { bytes: 16 << 10 }), ..config(*tracker, 1, task)? };
            tools.push(Box::new(Rtscope::new(name, cpu, &with)?));
        }
        tools.extend(peer.map(|(name, script)| Box::new(Bpftrace::new(name, script)) as Box<dyn Tool>));
    }
    let found = measure(load, &mut tools, plan)?;
    let [empty, empty_script] = [1, 2].map(|index: usize| found[index].median());
    let mut medians = found.iter().skip(3).map(Row::median);
    let mut next = || medians.next().unwrap_or(f64::NAN);
    for Compared { tracker, stacks, peer, .. } in compared {
        let (one, two) = (next(), next());
        let name = tracker.name();
        if stacks.is_some() {
            let with = next() - one;
            promises.push(Promise::at_most(
                &format!("{name}: what stacks of what is late add"),
                with,
                STACKS_NS,
            ));
        }
        if peer.is_none() {
            continue;
        }
        promises.push(Promise::ratio_at_most(
            &format!("{name} / bpftrace, each net of its empty program"),
            one - empty,
            next() - empty_script,
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
        Compared {
            tracker: Tracker::Wakeup,
            rows: ["wakeup", "wakeup, two instances"],
            stacks: None,
            peer: Some(("bpftrace, wakeup latency", WAKEUP)),
        },
        Compared {
            tracker: Tracker::Offcpu,
            rows: ["offcpu", "offcpu, two instances"],
            stacks: Some("offcpu, with stacks"),
            peer: Some(("bpftrace, time off CPU", OFFCPU)),
        },
        Compared {
            tracker: Tracker::Preemptoff,
            rows: ["preemptoff", "preemptoff, two instances"],
            stacks: None,
            peer: None,
        },
        Compared {
            tracker: Tracker::Irqoff,
            rows: ["irqoff", "irqoff, two instances"],
            stacks: None,
            peer: None,
        },
    ];
    {
        let pipe = Pipe::start(cpu)?;
        let report = (&mut rows, &mut promises, &mut checks);
        // Both tasks of the load have its name.
        compare(&pipe, "*", (&TWO_EMPTY, EMPTY_SWITCHES), &switches, plan, report)?;
    }
    let calls = [Compared {
        tracker: Tracker::Syscall,
        rows: ["syscall", "syscall, two instances"],
        stacks: Some("syscall, with stacks"),
        peer: Some(("bpftrace, system calls", SYSCALL)),
    }];
    {
        let load = Calls::start(cpu)?;
        let report = (&mut rows, &mut promises, &mut checks);
        compare(&load, Calls::NAME, (&CALLS_EMPTY, EMPTY_CALLS), &calls, plan, report)?;
    }
    let softirqs = [Compared {
        tracker: Tracker::Softirq,
        rows: ["softirq", "softirq, two instances"],
        stacks: None,
        peer: Some(("bpftrace, softirqs", SOFTIRQ)),
    }];
    let load = Calls::datagrams(cpu)?;
    let report = (&mut rows, &mut promises, &mut checks);
    compare(&load, "*", (&SOFTIRQS_EMPTY, EMPTY_SOFTIRQS), &softirqs, plan, report)?;
    Ok(Report {
        schema: "rtscope.bench.trackers/1",
        name: "trackers",
        unit:
            "added ns per switch (one sched_switch + one sched_waking), then per system call (entry + exit), then per datagram (its softirq)"
                .to_string(),
        host: Host::this(cpu),
        rows,
        promises,
        checks,
    })
}

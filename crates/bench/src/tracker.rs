// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tracker`: what the response tracker costs, against a bpftrace script that measures wakeup latencies; and what one of its
//! programs takes inside.

use crate::blocks::{Plan, Tool, measure};
use crate::host::Host;
use crate::inside;
use crate::peers::Bpftrace;
use crate::pipe::Pipe;
use crate::rtscope::{Rtscope, TWO_EMPTY, recorder, tracker};
use crate::table::{Promise, Report};
use anyhow::Result;
use rtscope_kernel::EbpfConfig;

/// What bpftrace's own runqlat does, on the tracepoints that we use.
const WAKEUP_LATENCY: &str = "tracepoint:sched:sched_waking { @waking[args->pid] = nsecs; }
tracepoint:sched:sched_switch {
  $ns = @waking[args->next_pid];
  if ($ns) { @latency_ns = hist(nsecs - $ns); }
  delete(@waking[args->next_pid]);
}";
const EMPTY: &str =
    "tracepoint:sched:sched_waking { $unused = 1; } tracepoint:sched:sched_switch { $unused = 1; }";

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let cpu = crate::pipe_cpu();
    let tracker_only = EbpfConfig { recorder: None, trackers: tracker()?, stacks: None, only: Vec::new() };
    let both = EbpfConfig { recorder: recorder(), trackers: tracker()?, stacks: None, only: Vec::new() };
    let empty = EbpfConfig { recorder: None, trackers: Vec::new(), stacks: None, only: TWO_EMPTY.to_vec() };
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(Rtscope::new("empty programs", cpu, &empty)?),
        Box::new(Bpftrace::new("bpftrace, empty script", EMPTY)),
        Box::new(Rtscope::new("rtscope tracker", cpu, &tracker_only)?),
        Box::new(Rtscope::new("rtscope recorder + tracker", cpu, &both)?),
        Box::new(Bpftrace::new("bpftrace, wakeup latency", WAKEUP_LATENCY)),
    ];
    let mut rows = {
        let pipe = Pipe::start(cpu)?;
        measure(&pipe, &mut tools, Plan::new(quick))?
    };
    let [_, empty, bpftrace_empty, alone, both, bpftrace] =
        [0, 1, 2, 3, 4, 5].map(|index| rows[index].median());
    let checks = tools.iter().map(|tool| tool.check()).filter(|check| !check.is_empty()).collect();
    drop(tools);
    let inside = inside::measure(cpu, quick)?;
    let peer = bpftrace - bpftrace_empty;
    let promises = vec![
        Promise::at_most("tracker / bpftrace, each net of its empty program", (alone - empty) / peer, 0.5),
        Promise::at_most(
            "recorder + tracker / bpftrace, each net of its empty program",
            (both - empty) / peer,
            0.9,
        ),
        Promise::at_most("tracker / bpftrace, everything counted", alone / bpftrace, 0.5),
        Promise::at_most("recorder + tracker / bpftrace, everything counted", both / bpftrace, 0.9),
        Promise::at_most("no transition, ns an event inside the tracker", inside.quiet.median(), 60.0),
        Promise::at_most("transition, ns an event inside the tracker", inside.transition.median(), 300.0),
    ];
    rows.extend([inside.empty, inside.quiet, inside.transition]);
    Ok(Report {
        schema: "rtscope.bench.tracker/1",
        name: "tracker",
        unit: "added ns per switch: one sched_switch + one sched_waking; 'inside': ns per event".to_string(),
        host: Host::this(cpu),
        rows,
        promises,
        checks,
    })
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kernel-events`: what recording sched_switch and sched_waking costs, against ftrace and perf.

use crate::blocks::{Plan, Tool, measure};
use crate::host::Host;
use crate::peers::{Ftrace, Perf};
use crate::pipe::Pipe;
use crate::rtscope::{Rtscope, TWO_EMPTY, TWO_EVENTS, recorder};
use crate::table::{Promise, Report};
use anyhow::Result;
use rtscope_kernel::EbpfConfig;

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let cpu = crate::pipe_cpu();
    let config = |only: [&'static str; 2], recorded| EbpfConfig {
        recorder: if recorded { recorder() } else { None },
        trackers: Vec::new(),
        stacks: None,
        only: only.to_vec(),
    };
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(Rtscope::new("empty programs", cpu, &config(TWO_EMPTY, false))?),
        Box::new(Rtscope::new("rtscope recorder", cpu, &config(TWO_EVENTS, true))?),
        Box::new(Ftrace::new(cpu)?),
        Box::new(Perf::new(cpu)?),
    ];
    let pipe = Pipe::start(cpu)?;
    let rows = measure(&pipe, &mut tools, Plan::new(quick))?;
    let [_, empty, rtscope, ftrace, perf] = [0, 1, 2, 3, 4].map(|index| rows[index].median());
    Ok(Report {
        schema: "rtscope.bench.kernel-events/1",
        name: "kernel-events",
        unit: "added ns per switch: one sched_switch + one sched_waking".to_string(),
        host: Host::this(cpu),
        promises: vec![
            Promise::at_most(
                "rtscope / ftrace, net of an empty program",
                (rtscope - empty) / (ftrace - empty),
                0.5,
            ),
            Promise::at_most(
                "rtscope / perf, net of an empty program",
                (rtscope - empty) / (perf - empty),
                0.3,
            ),
            Promise::at_most("rtscope / ftrace, everything counted", rtscope / ftrace, 0.5),
            Promise::at_most("rtscope / perf, everything counted", rtscope / perf, 0.3),
        ],
        checks: tools.iter().map(|tool| tool.check()).filter(|check| !check.is_empty()).collect(),
        rows,
    })
}

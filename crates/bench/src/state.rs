// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `state`: where a tracker can keep what belongs to a task. The same smallest tracker three times: in the set-associative
//! table that rtscope uses, in task storage, in a preallocated hash.

use crate::blocks::{Plan, Tool, measure};
use crate::host::Host;
use crate::pipe::Pipe;
use crate::rtscope::{Rtscope, TWO_EMPTY, tracker};
use crate::table::{Promise, Report};
use anyhow::Result;
use rtscope_kernel::EbpfConfig;

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let cpu = crate::pipe_cpu();
    // The tracker's configuration sizes the table.
    let config = |only: [&'static str; 2]| -> Result<EbpfConfig> {
        Ok(EbpfConfig { recorder: None, trackers: tracker()?, stacks: None, only: only.to_vec() })
    };
    let table = config(["bench_table_waking", "bench_table_switch"])?;
    let storage = config(["bench_storage_waking", "bench_storage_switch"])?;
    let hash = config(["bench_hash_waking", "bench_hash_switch"])?;
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(Rtscope::new("empty programs", cpu, &config(TWO_EMPTY)?)?),
        Box::new(Rtscope::new("state in the table", cpu, &table)?),
        Box::new(Rtscope::new("state in task storage", cpu, &storage)?),
        Box::new(Rtscope::new("state in a hash", cpu, &hash)?),
    ];
    let pipe = Pipe::start(cpu)?;
    let rows = measure(&pipe, &mut tools, Plan::new(quick))?;
    let [_, empty, table, storage, hash] = [0, 1, 2, 3, 4].map(|index| rows[index].median());
    Ok(Report {
        schema: "rtscope.bench.state/1",
        name: "state",
        unit: "added ns per switch: one sched_switch + one sched_waking".to_string(),
        host: Host::this(cpu),
        promises: vec![
            Promise::at_most(
                "table / task storage, net of an empty program",
                (table - empty) / (storage - empty),
                1.0,
            ),
            Promise::at_most("table / hash, net of an empty program", (table - empty) / (hash - empty), 1.0),
        ],
        checks: tools.iter().map(|tool| tool.check()).collect(),
        rows,
    })
}

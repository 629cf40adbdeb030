// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paired blocks: base, tool, base, tool, ... in random order. A tool's cost in a block is the block minus the mean of
//! the base blocks on both sides, so the drift of the machine falls out.
//!
//! A block is looked at in slices, and its value is that of the second fastest slice: on a shared machine most of what varies
//! is time taken by other work, which comes in bursts and only ever adds. All blocks are treated alike.

use crate::pipe::Sample;
use crate::progress;
use crate::table::Row;
use anyhow::{Context, Result};
use std::time::Duration;

/// Something that can be switched on and off around a block.
pub trait Tool {
    /// For the table.
    fn name(&self) -> String;
    /// On; returns when it is at work.
    fn on(&mut self) -> Result<()>;
    /// Off; returns when nothing of it is left on the event path. Gets what the block saw, for checks.
    fn off(&mut self, block: Sample) -> Result<()>;
    /// What its own counters say about completeness.
    fn check(&self) -> String {
        String::new()
    }
}

/// What is slowed down.
pub trait Load {
    /// Observes it for a while.
    fn sample(&self, length: Duration) -> Result<Sample>;
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Blocks of each tool.
    pub rounds: usize,
    /// Length of a slice of a block.
    pub slice: Duration,
    /// Slices of a block.
    pub slices: usize,
    /// Time for caches and RCU to settle after a change.
    pub settle: Duration,
}

impl Plan {
    /// The usual, or a short one that only shows that it works.
    pub fn new(quick: bool) -> Plan {
        Plan {
            rounds: if quick { 3 } else { 50 },
            slice: Duration::from_millis(25),
            slices: 10,
            settle: Duration::from_millis(30),
        }
    }
}

/// Nanoseconds per unit of the load (of the pipe a switch: one sched_switch and one sched_waking), net of the base, per tool, in the order of `tools`; the
/// base itself comes first.
pub fn measure(load: &dyn Load, tools: &mut [Box<dyn Tool>], plan: Plan) -> Result<Vec<Row>> {
    let all = format!("{} tools by turns", tools.len());
    let mut order = Order::new();
    let mut base = Vec::new();
    let mut costs = vec![Vec::new(); tools.len()];
    let look = || -> Result<Sample> {
        std::thread::sleep(plan.settle);
        let slices = (0..plan.slices).map(|_| load.sample(plan.slice)).collect::<Result<Vec<_>>>()?;
        let mut speeds: Vec<f64> = slices.iter().map(|slice| slice.ns_per_switch).collect();
        speeds.sort_by(f64::total_cmp);
        Ok(Sample {
            switches: slices.iter().map(|slice| slice.switches).sum(),
            ns_per_switch: speeds.get(1).or(speeds.first()).copied().unwrap_or(f64::NAN),
        })
    };
    let mut before = look()?.ns_per_switch;
    for round in progress::rounds(&all, plan.rounds) {
        for index in order.shuffled(tools.len()) {
            let tool = &mut tools[index];
            tool.on().with_context(|| format!("switching {} on", tool.name()))?;
            let with = look()?;
            tool.off(with).with_context(|| format!("switching {} off", tool.name()))?;
            let after = look()?.ns_per_switch;
            // The first round warms everything up.
            if round > 0 {
                costs[index].push(with.ns_per_switch - (before + after) / 2.0);
                base.push(after);
            }
            before = after;
        }
    }
    let mut rows = vec![Row::new("nothing attached, absolute", base)];
    rows.extend(tools.iter().zip(costs).map(|(tool, samples)| Row::new(&tool.name(), samples)));
    progress::rows(&rows);
    Ok(rows)
}

/// Random orders. The seed is the clock: two runs shall differ.
pub struct Order(u64);

impl Order {
    /// Seeds it.
    pub fn new() -> Order {
        Order(rtscope_flight::monotonic_now().0 | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64 (Marsaglia, 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The numbers below `count`, in a random order.
    pub fn shuffled(&mut self, length: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..length).collect();
        for last in (1..length).rev() {
            order.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
        order
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! rtscope's own programs as tools to be measured.

use crate::blocks::Tool;
use crate::pipe::Sample;
use anyhow::{Result, ensure};
use rtscope_event::Glob;
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, Follows, Memory, RecorderConfig, ResponseConfig, Target, TrackerConfig,
};
use std::mem::size_of;

/// The two tracepoints of the pipe load.
pub const TWO_EVENTS: [&str; 2] = ["sched_switch", "sched_waking"];
/// The same, with empty programs.
pub const TWO_EMPTY: [&str; 2] = ["empty_sched_switch", "empty_sched_waking"];

/// eBPF programs that are attached and detached around each block.
pub struct Rtscope {
    name: &'static str,
    ebpf: EbpfPrograms,
    memory: Memory,
    cpu: usize,
    records: bool,
    written_before: u64,
    expected: u64,
    found: u64,
}

impl Rtscope {
    /// Loads it.
    pub fn new(name: &'static str, cpu: usize, config: &EbpfConfig) -> Result<Rtscope> {
        let ebpf = EbpfPrograms::prepare(config)?;
        let memory = ebpf.memory(config)?;
        let records = config.recorder.is_some();
        Ok(Rtscope { name, ebpf, memory, cpu, records, written_before: 0, expected: 0, found: 0 })
    }

    fn written(&self) -> u64 {
        self.memory.controls.head(self.cpu, 0) + self.memory.controls.head(self.cpu, 1)
    }

    fn misses(&self) -> u64 {
        self.ebpf.recursion_misses().iter().filter_map(|(_, misses)| *misses).sum()
    }
}

impl Tool for Rtscope {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn on(&mut self) -> Result<()> {
        self.ebpf.attach()?;
        self.ebpf.switch_on()?;
        self.written_before = self.written();
        Ok(())
    }

    fn off(&mut self, block: Sample) -> Result<()> {
        let written = self.written() - self.written_before;
        self.ebpf.enable(false);
        self.ebpf.detach();
        if self.records {
            // Space was reserved for a record of every switch, and more for the wakeups: nothing was left out. (A reader that
            // finds its byte there does not sleep, so there are fewer wakeups than switches.)
            let expected = block.switches * size_of::<rtscope_abi::rts_sched_switch>() as u64;
            ensure!(written >= expected, "{} switches, but {written} bytes of records only", block.switches);
            self.expected += expected;
            self.found += written;
        }
        ensure!(self.misses() == 0, "{} events were skipped by the kernel", self.misses());
        Ok(())
    }

    fn check(&self) -> String {
        if !self.records {
            return format!("{}: recursion misses 0", self.name);
        }
        format!(
            "{}: {} bytes for the switches alone, {} bytes written with wakeups and margins; lost 0, recursion misses 0",
            self.name, self.expected, self.found
        )
    }
}

/// The recorder, all banks at their default size.
pub fn recorder() -> Option<RecorderConfig> {
    Some(RecorderConfig { bank_bytes: 8 << 20, snapshot: None, stream: None })
}

/// The tracker with a target that is not there: no chain matches, no response ends.
pub fn tracker() -> Result<Vec<TrackerConfig>> {
    Ok(vec![TrackerConfig {
        counted_by: None,
        target: Target { name: Some(Glob::new("no-such-task")?), ..Target::default() },
        threshold_ns: 1_000_000_000,
        snapshot: false,
        records: false,
        follows: Follows::Responses(ResponseConfig::default()),
    }])
}

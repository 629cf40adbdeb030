// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flight recorder by itself, with the events that say who has a CPU: for gaps that are to be blamed on somebody, and for
//! CPUs that should be quiet.
//!
//! Nobody is woken by it and nothing is emptied: what it adds to a CPU is some hundred nanoseconds for each interrupt or switch
//! that there is anyway. The price is that the buffers hold the newest part only.

use crate::exit::Failure;
use rtscope_collect::FlightRecorder;
use rtscope_event::{MonotonicNs, Recording};
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, PROGRAMS, ProgramSpec, RecorderConfig, interrupts, stream_programs,
};

/// Events that say who has the CPU, or how a task is called.
fn tells_who_runs(spec: &ProgramSpec) -> bool {
    matches!(spec.system, "irq_vectors" | "nmi")
        || matches!(
            spec.name,
            "sched_switch"
                | "irq_handler_entry"
                | "irq_handler_exit"
                | "softirq_entry"
                | "softirq_exit"
                | "cpu_idle"
                | "sched_process_fork"
                | "sched_process_exit"
                | "task_rename"
        )
}

/// The recorder, running.
#[derive(Debug)]
pub struct WhoRuns {
    ebpf: EbpfPrograms,
    recorder: FlightRecorder,
}

impl WhoRuns {
    /// Starts recording, also these tracepoints. `bank_bytes`: for each CPU.
    pub fn start(bank_bytes: usize, also: &[&str]) -> Result<WhoRuns, Failure> {
        let is_wanted = |spec: &&ProgramSpec| tells_who_runs(spec) || also.contains(&spec.name);
        let programs: Vec<&ProgramSpec> = PROGRAMS.iter().filter(is_wanted).collect();
        let config = EbpfConfig {
            recorder: Some(RecorderConfig { bank_bytes, snapshot: None, stream: None }),
            tracker: None,
            only: stream_programs(&programs, false),
        };
        let ebpf = EbpfPrograms::start(&config)?;
        let recorder = FlightRecorder::new(ebpf.memory(&config)?, ebpf.started());
        Ok(WhoRuns { ebpf, recorder })
    }

    /// Records nothing from now on.
    pub fn stop(&self) {
        self.ebpf.enable(false);
    }

    /// Whether this kernel has the tracepoint.
    pub fn has(&self, name: &str) -> bool {
        self.ebpf.absent().iter().all(|spec| spec.name != name)
    }

    /// What the buffers hold from `since` on, and up to when.
    pub fn look(&mut self, since: MonotonicNs) -> Result<(Recording, MonotonicNs), Failure> {
        let tasks = self.ebpf.dump_tasks()?;
        let snapshot = self.recorder.peek(since);
        let until = snapshot.detected;
        let window = snapshot.window(until.since(since), Some(since));
        let recording = snapshot.decode(window, tasks, interrupts());
        self.recorder.recycle(snapshot);
        Ok((recording, until))
    }

    /// How often the kernel skipped a program because it ran already; `None`: not known.
    pub fn misses(&self) -> Option<u64> {
        self.ebpf.recursion_misses().into_iter().map(|(_, count)| count).sum()
    }
}

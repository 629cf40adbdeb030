// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flight recorder without a tracker, with the events that show what runs on a CPU: for gaps whose cause is wanted, and for
//! CPUs that should be quiet.
//!
//! It wakes no task and empties no buffer: what it adds to a CPU is some hundred nanoseconds for each interrupt or switch
//! that there is anyway. The price is that the buffers hold the newest part only.

use crate::Failure;
use rtscope_event::{MonotonicNs, Recording};
use rtscope_flight::FlightRecorder;
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, PROGRAMS, ProgramSpec, RecorderConfig, interrupts, stream_programs,
};

/// Events that show the name of a task.
fn shows_names(spec: &ProgramSpec) -> bool {
    matches!(spec.name, "sched_process_fork" | "sched_process_exit" | "task_rename")
}

/// Events that show what has the CPU, or the name of a task.
fn shows_cpu_use(spec: &ProgramSpec) -> bool {
    shows_names(spec)
        || matches!(spec.system, "irq_vectors" | "nmi")
        || matches!(
            spec.name,
            "sched_switch"
                | "irq_handler_entry"
                | "irq_handler_exit"
                | "softirq_entry"
                | "softirq_exit"
                | "cpu_idle"
        )
}

/// Each CPU's memory for the names of tasks: the least there is. It holds the newest 1000 or so of them.
const NAMES_BYTES: usize = 64 << 10;

/// The recorder, running.
#[derive(Debug)]
pub struct CpuRecorder {
    recorder: FlightRecorder,
    /// Behind its mappings: see [`EbpfPrograms`].
    ebpf: EbpfPrograms,
    /// With one CPU: the names of tasks that began on others. Those that live at the end are asked for, but a short one has ended.
    names: Option<Box<CpuRecorder>>,
}

impl CpuRecorder {
    /// Starts recording on one CPU. On the others there is next to no memory: only for the names of tasks.
    pub fn start_on(cpu: usize, bank_bytes: usize) -> Result<CpuRecorder, Failure> {
        let config = |bank_bytes, is_wanted: fn(&ProgramSpec) -> bool| {
            let programs: Vec<&ProgramSpec> = PROGRAMS.iter().filter(|spec| is_wanted(spec)).collect();
            EbpfConfig {
                recorder: Some(RecorderConfig { bank_bytes, snapshot: None, stream: None }),
                trackers: Vec::new(),
                stacks: None,
                only: stream_programs(&programs, false),
            }
        };
        let names_config = config(NAMES_BYTES, shows_names);
        let names = CpuRecorder::of(EbpfPrograms::start(&names_config)?, &names_config)?;
        let here = config(bank_bytes, shows_cpu_use);
        let here = CpuRecorder::of(EbpfPrograms::start_on(&here, cpu)?, &here)?;
        Ok(CpuRecorder { names: Some(Box::new(names)), ..here })
    }

    /// Starts recording, also these tracepoints. `bank_bytes`: for each CPU.
    pub fn start(bank_bytes: usize, also: &[&str]) -> Result<CpuRecorder, Failure> {
        let is_wanted = |spec: &&ProgramSpec| shows_cpu_use(spec) || also.contains(&spec.name);
        let programs: Vec<&ProgramSpec> = PROGRAMS.iter().filter(is_wanted).collect();
        let config = EbpfConfig {
            recorder: Some(RecorderConfig { bank_bytes, snapshot: None, stream: None }),
            trackers: Vec::new(),
            stacks: None,
            only: stream_programs(&programs, false),
        };
        CpuRecorder::of(EbpfPrograms::start(&config)?, &config)
    }

    fn of(ebpf: EbpfPrograms, config: &EbpfConfig) -> Result<CpuRecorder, Failure> {
        let recorder = FlightRecorder::new(ebpf.memory(config)?, ebpf.started());
        Ok(CpuRecorder { ebpf, recorder, names: None })
    }

    /// Records nothing from now on.
    pub fn stop(&self) {
        self.ebpf.enable(false);
        self.names.iter().for_each(|names| names.stop());
    }

    /// Whether this kernel has the tracepoint.
    pub fn has(&self, name: &str) -> bool {
        self.ebpf.absent().iter().all(|spec| spec.name != name)
    }

    /// What the buffers hold from `since` on, and up to when.
    pub fn read(&mut self, since: MonotonicNs) -> Result<(Recording, MonotonicNs), Failure> {
        let tasks = self.ebpf.dump_tasks()?;
        let snapshot = self.recorder.peek(since);
        let until = snapshot.detected;
        let window = snapshot.window(until.since(since), Some(since));
        let mut recording = snapshot.decode(window, tasks, interrupts());
        self.recorder.recycle(snapshot);
        if let Some(names) = &mut self.names {
            let (of_names, _) = names.read(since)?;
            of_names.events.iter().for_each(|event| recording.names.observe(event));
        }
        Ok((recording, until))
    }

    /// How often the kernel skipped a program because it ran already; `None`: not known.
    pub fn misses(&self) -> Option<u64> {
        self.ebpf.recursion_misses().into_iter().map(|(_, count)| count).sum()
    }
}

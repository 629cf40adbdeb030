// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the settings to what will be done. Everything that can be refused is refused here, before anything is started.

use super::settings::{ExplainText, WatchSettings};
use crate::Failure;
use nix::unistd::{AccessFlags, access};
use rtscope_event::{End, Glob, Irq, Pid, TaskInfo};
use rtscope_kernel::{
    EbpfConfig, OriginFilter, RecorderConfig, SnapshotConfig, Target, TrackerConfig, irq_number,
};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A watch that can be started, but for the process of COMMAND.
#[derive(Debug)]
pub struct Plan {
    /// What runs in the kernel.
    pub ebpf: EbpfConfig,
    /// Whose responses: a name pattern, as typed.
    pub task: Option<String>,
    /// The interrupts that count, with the names they were asked for by.
    pub irqs: Vec<Irq>,
    /// Timers count (also without any option).
    pub timer: bool,
    /// When a response ends.
    pub end: End,
    /// The limit.
    pub threshold_ns: u64,
    /// History requested before a detection.
    pub pre_ns: u64,
    /// Recording goes on for this time after a detection.
    pub post_ns: u64,
    /// Where snapshots go.
    pub snapshot_dir: Option<PathBuf>,
    /// What `explain.txt` says there.
    pub explain_text: Option<ExplainText>,
    /// Patterns of tracepoints that snapshots have in addition to those of eBPF.
    pub kernel: Vec<String>,
    /// Patterns of programs' events that snapshots have.
    pub programs: Vec<String>,
    /// When to stop.
    pub duration_ns: Option<u64>,
    /// A program to start.
    pub command: Vec<OsString>,
}

impl Plan {
    /// Resolves names and checks values.
    pub fn new(settings: &WatchSettings) -> Result<Plan, Failure> {
        let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
        let name = settings.task.as_deref().map(Glob::new).transpose().map_err(|error| usage(&error))?;
        if let Some(pid) = settings.pid {
            if !Path::new(&format!("/proc/{pid}")).exists() {
                return Err(Failure::Usage(format!("there is no process {pid} (--pid)")));
            }
            if !is_process(pid) {
                return Err(Failure::Usage(format!(
                    "{pid} is a thread; --pid takes its process, which /proc/{pid}/status calls Tgid"
                )));
            }
        }
        let irqs: Vec<Irq> = settings
            .irqs
            .iter()
            .map(|text| irq_number(text))
            .collect::<Result<_, _>>()
            .map_err(Failure::Usage)?;
        if let Some(dir) = &settings.snapshot_dir {
            prepare_dir(dir)?;
        }
        let origins = (settings.timer || !irqs.is_empty())
            .then(|| OriginFilter { timer: settings.timer, irqs: irqs.clone() });
        let end = settings.end;
        let snapshot = SnapshotConfig { post_ns: settings.post_ns, interval_ns: settings.interval_ns };
        let ebpf = EbpfConfig {
            recorder: Some(RecorderConfig {
                bank_bytes: settings.bank_bytes,
                snapshot: Some(snapshot),
                stream: None,
            }),
            tracker: Some(TrackerConfig {
                target: Target { name, pid: settings.pid.map(Pid) },
                end,
                threshold_ns: settings.threshold_ns,
                origins,
            }),
            only: Vec::new(),
        };
        Ok(Plan {
            ebpf,
            task: settings.task.clone(),
            timer: settings.timer || irqs.is_empty(),
            irqs,
            end,
            threshold_ns: settings.threshold_ns,
            pre_ns: settings.pre_ns,
            post_ns: settings.post_ns,
            snapshot_dir: settings.snapshot_dir.clone(),
            explain_text: settings.explain_text,
            kernel: settings.kernel.clone(),
            programs: settings.programs.clone(),
            duration_ns: settings.duration_ns,
            command: settings.command.clone(),
        })
    }

    /// The process of COMMAND is the target, unless the user named one.
    pub fn target_command(&mut self, pid: Pid) {
        if let Some(tracker) = &mut self.ebpf.tracker {
            if tracker.target.name.is_none() && tracker.target.pid.is_none() {
                tracker.target.pid = Some(pid);
            }
        }
    }

    /// The process that is the target, if one is.
    pub fn target_pid(&self) -> Option<Pid> {
        self.ebpf.tracker.as_ref().and_then(|tracker| tracker.target.pid)
    }

    /// Bytes of one bank of the flight recorder.
    pub fn bank_bytes(&self) -> usize {
        self.ebpf.recorder.as_ref().map_or(0, |recorder| recorder.bank_bytes)
    }

    /// Whose responses, in words.
    pub fn target_text(&self) -> String {
        match (&self.task, self.target_pid()) {
            (Some(task), None) => format!("tasks named '{task}'"),
            (Some(task), Some(pid)) => format!("tasks of process {pid} named '{task}'"),
            (None, Some(pid)) => format!("tasks of process {pid}"),
            (None, None) => "any user-space task".to_string(),
        }
    }

    /// How many of these tasks match the name or the process.
    pub fn matching_tasks(&self, tasks: &[TaskInfo]) -> usize {
        let Some(tracker) = &self.ebpf.tracker else { return 0 };
        let matches = |task: &&TaskInfo| {
            tracker.target.pid.is_none_or(|wanted| wanted == task.pid)
                && tracker.target.name.as_ref().is_none_or(|name| name.matches(task.comm.as_bytes()))
        };
        tasks.iter().filter(matches).count()
    }
}

/// `/proc/N` also exists for threads.
fn is_process(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
        status.lines().any(|line| line.split_whitespace().eq(["Tgid:", &pid.to_string()]))
    })
}

/// Makes the directory for snapshots, or says why that will not do. Finding that out at the first late response would be late.
fn prepare_dir(dir: &Path) -> Result<(), Failure> {
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::Usage(format!("cannot save snapshots in {} (--snapshot-dir): {why}", dir.display()))
    };
    if dir.exists() && !dir.is_dir() {
        return Err(refuse(&"not a directory; name another one"));
    }
    fs::create_dir_all(dir).map_err(|error| refuse(&error))?;
    access(dir, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| refuse(&error.desc()))
}

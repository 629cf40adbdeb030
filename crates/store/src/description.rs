// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a spool: written at its start, all that is needed to convert it on another day and by another process;
//! written at its end, facts that are known only then.

use rtscope_ctf::TraceInfo;
use rtscope_event::{Comm, CpuId, Irq, LossCause, MonotonicNs, Pid, Policy, Priority, TaskInfo, Tid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Version of `session.json` and of the other files of the spool.
pub const SCHEMA: &str = "rtscope.spool/1";

/// `session.json`: written when the recording starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpoolDescription {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the record contract (`RTS_ABI_VERSION`) of the records in the banks.
    pub abi_version: u32,
    /// Version of rtscope.
    pub producer_version: String,
    /// The machine's name.
    pub hostname: String,
    /// As `uname -r` shows it.
    pub kernel_release: String,
    /// Identifies the clock.
    pub boot_id: String,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub realtime_offset_ns: u64,
    /// Identifies the trace.
    pub trace_id: String,
    /// When all recorders were active, unless `started.json` is more precise. Older events are left out of the trace.
    pub started: MonotonicNs,
    /// What has been converted is freed, and the trace's oldest events are removed: the spool has only the newest ones.
    #[serde(default)]
    pub is_ring: bool,
    /// The CPUs that are recorded.
    pub cpus: Vec<CpuId>,
    /// The process of rtscope.
    pub own_pid: u32,
    /// Threads whose ftrace events are left out. Threads that start later are in [`End`].
    #[serde(default)]
    pub leave_out: Vec<u32>,
    /// Whether the eBPF programs record.
    pub ebpf: bool,
    /// By system call (`openat`): bit i: argument i is a path, whose text is in `RTS_SYSCALL_PATH` records. Such an argument becomes
    /// a text ("?" where it was not read); all other pointers stay addresses.
    pub paths: BTreeMap<String, u8>,
    /// What ftrace records; `None`: nothing.
    pub ftrace: Option<FtraceDescription>,
    /// All switches of all tasks are recorded, so where one does not follow the one before, something is missing.
    #[serde(default)]
    pub has_all_switches: bool,
    /// System calls that eBPF records: the tracepoints whose events they become.
    #[serde(default)]
    pub syscalls: Vec<SyscallFormat>,
    /// All tasks.
    pub tasks: Vec<SpoolTask>,
    /// Interrupts and their names.
    pub irqs: Vec<(Irq, String)>,
    /// The user's options: stored, not interpreted.
    pub config: serde_json::Value,
}

impl SpoolDescription {
    /// Describes this machine, without anything recorded.
    ///
    /// # Errors
    /// When `/proc/sys/kernel` or a clock cannot be read.
    pub fn of_this_machine(producer_version: &str) -> Result<SpoolDescription, rtscope_ctf::Error> {
        let info = TraceInfo::of_this_machine(producer_version)?;
        Ok(SpoolDescription {
            schema: SCHEMA.to_owned(),
            abi_version: rtscope_abi::RTS_ABI_VERSION,
            producer_version: info.producer_version,
            hostname: info.hostname,
            kernel_release: info.kernel_release,
            boot_id: info.clock_uuid.to_string(),
            realtime_offset_ns: info.realtime_offset_ns,
            trace_id: info.trace_uuid.to_string(),
            started: MonotonicNs(0),
            is_ring: false,
            cpus: Vec::new(),
            own_pid: std::process::id(),
            leave_out: Vec::new(),
            ebpf: false,
            paths: BTreeMap::new(),
            ftrace: None,
            has_all_switches: false,
            syscalls: Vec::new(),
            tasks: Vec::new(),
            irqs: Vec::new(),
            config: serde_json::Value::Null,
        })
    }

    pub(crate) fn info(&self) -> TraceInfo {
        let id = |text: &str| Uuid::parse_str(text).unwrap_or(Uuid::nil());
        TraceInfo {
            hostname: self.hostname.clone(),
            kernel_release: self.kernel_release.clone(),
            clock_uuid: id(&self.boot_id),
            realtime_offset_ns: self.realtime_offset_ns,
            trace_uuid: id(&self.trace_id),
            producer_version: self.producer_version.clone(),
            window_begin: Some(self.started),
        }
    }
}

/// The facts needed to read ftrace's sub-buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FtraceDescription {
    /// `events/header_page` of the instance.
    pub header_page: String,
    /// The tracepoints in use.
    pub formats: Vec<FormatText>,
}

/// A tracepoint's `format` file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatText {
    /// The subsystem, which is not in the file.
    pub system: String,
    /// The file.
    pub text: String,
}

/// A system call's entry or exit, recorded by `RTS_SYSCALL_ENTRY` or `RTS_SYSCALL_EXIT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallFormat {
    /// The number of the call.
    pub number: u16,
    /// The tracepoint that ftrace would have recorded: `sys_enter_...` or `sys_exit_...`.
    pub format: FormatText,
}

/// A task of a state dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolTask {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its parent process.
    pub ppid: Pid,
    /// Its name, as the bytes they are.
    #[serde(with = "comm_bytes")]
    pub comm: Comm,
    /// Its effective priority.
    pub prio: Priority,
    /// Its policy.
    pub policy: Policy,
    /// Whether it is a kernel thread.
    pub kthread: bool,
    /// `task->__state`, where known.
    pub state: Option<u32>,
    /// Where it ran last, where known.
    pub cpu: Option<CpuId>,
}

impl From<&TaskInfo> for SpoolTask {
    fn from(task: &TaskInfo) -> SpoolTask {
        SpoolTask {
            tid: task.tid,
            pid: task.pid,
            ppid: task.ppid,
            comm: task.comm,
            prio: task.prio,
            policy: task.policy,
            kthread: task.kthread,
            state: None,
            cpu: None,
        }
    }
}

impl SpoolTask {
    pub(crate) fn info(&self) -> TaskInfo {
        TaskInfo {
            tid: self.tid,
            pid: self.pid,
            ppid: self.ppid,
            comm: self.comm,
            prio: self.prio,
            policy: self.policy,
            kthread: self.kthread,
        }
    }
}

/// A name as text where it is text, else as numbers: escaped text could not be turned back.
mod comm_bytes {
    use rtscope_event::Comm;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum StoredName {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(comm: &Comm, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = comm.as_bytes().to_vec();
        String::from_utf8(bytes)
            .map_or_else(|error| StoredName::Bytes(error.into_bytes()), StoredName::Text)
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Comm, D::Error> {
        Ok(match StoredName::deserialize(deserializer)? {
            StoredName::Text(text) => Comm::from(text.as_str()),
            StoredName::Bytes(bytes) => Comm::from_bytes(&bytes),
        })
    }
}

/// `end.json`: written when the recording ends in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When the recording ended.
    pub ended: MonotonicNs,
    /// Losses of the whole recording.
    pub losses: Vec<EndLoss>,
    /// All tasks, for names that are nowhere else.
    pub tasks: Vec<SpoolTask>,
    /// Interrupts that appeared during the recording.
    pub irqs: Vec<(Irq, String)>,
    /// The threads of rtscope.
    #[serde(default)]
    pub own_tids: Vec<u32>,
}

/// The counter of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The eBPF programs.
    Ebpf,
    /// The kernel's tracer.
    Ftrace,
}

/// A loss as counted over the whole recording. Losses reported in chunks and sub-buffers are part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndLoss {
    /// The counter.
    pub source: Source,
    /// The CPU, if known.
    pub cpu: Option<CpuId>,
    /// The cause.
    pub cause: LossCause,
    /// The event's name, or that of an eBPF program, if known.
    pub event: Option<String>,
    /// The number; `None` where that could not be read.
    pub count: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_its_file_with_names_that_are_not_text() {
        let task = TaskInfo {
            tid: Tid(7),
            pid: Pid(7),
            ppid: Pid(1),
            comm: Comm::from_bytes(b"a\xff\x1b\\x"),
            prio: Priority(120),
            policy: Policy(0),
            kthread: false,
        };
        let mut description = SpoolDescription::of_this_machine("1").unwrap();
        description.tasks = vec![SpoolTask::from(&task)];
        let text = serde_json::to_string(&description).unwrap();
        let back: SpoolDescription = serde_json::from_str(&text).unwrap();
        assert_eq!(back, description);
        assert_eq!(back.tasks[0].info(), task);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What rtscope needs of the kernel and of its privileges: found or not, how it was probed, what is lost without it, and
//! how to get it. Features are probed, never kernel versions. The sentence made here is the one every command prints.

use crate::descriptors::IO_URING_COMPLETE;
use crate::ebpf::{
    EbpfConfig, EbpfPrograms, Follows, OriginFilter, RecorderConfig, ResponseConfig, Target, TrackerConfig,
};
use crate::programs::{BLOCK_START, NEED_RESCHED, PROGRAMS, SCHED_EXIT};
use crate::tracefs::{Instance, InstanceConfig, Tracefs};
use libbpf_rs::{MapCore, MapHandle, MapType, PrintLevel, btf};
use rtscope_event::End;
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::sync::Mutex;

/// Something that rtscope needs.
#[derive(Clone, Debug, Serialize)]
pub struct Capability {
    /// A short stable name, for programs.
    pub id: String,
    /// What it is.
    pub what: String,
    /// `None`: could not be found out.
    pub found: Option<bool>,
    /// Nothing works without it.
    pub required: bool,
    /// How this was found out.
    pub probed: String,
    /// What is lost without it.
    pub lost: String,
    /// How to get it.
    pub remedy: String,
}

impl Capability {
    fn new(id: &str, what: &str, found: Option<bool>, probed: &str) -> Capability {
        Capability {
            id: id.to_string(),
            what: what.to_string(),
            found,
            required: true,
            probed: probed.to_string(),
            lost: "rtscope cannot watch anything".to_string(),
            remedy: String::new(),
        }
    }

    fn optional(mut self) -> Capability {
        self.required = false;
        self
    }

    fn lost(mut self, lost: &str) -> Capability {
        self.lost = lost.to_string();
        self
    }

    fn remedy(mut self, remedy: &str) -> Capability {
        self.remedy = remedy.to_string();
        self
    }

    /// The one sentence for a missing feature.
    #[must_use]
    pub fn sentence(&self) -> String {
        let state = match self.found {
            Some(true) => "found",
            Some(false) => "missing",
            None => "unknown",
        };
        let remedy = if self.remedy.is_empty() { String::new() } else { format!("; {}", self.remedy) };
        format!("{}: {state} ({}). Without it: {}{remedy}.", self.what, self.probed, self.lost)
    }
}

/// The effective capabilities we need, by bit (`include/uapi/linux/capability.h`).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn privilege() -> Capability {
    let found = effective_capabilities().map(|set| {
        let has = |bit: u32| set & (1 << bit) != 0;
        has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
    });
    Capability::new(
        "privilege",
        "the privilege to load eBPF programs for tracing",
        found,
        "CapEff in /proc/self/status",
    )
    .remedy(
        "run as root, or give the program CAP_BPF and CAP_PERFMON (setcap cap_bpf,cap_perfmon+ep rtscope)",
    )
}

fn kernel_types() -> Capability {
    let path = "/sys/kernel/btf/vmlinux";
    Capability::new("btf", "the kernel's type information (BTF)", Some(fs::File::open(path).is_ok()), path)
        .remedy("use a kernel built with CONFIG_DEBUG_INFO_BTF=y (every Debian kernel since 11 is)")
}

fn lockdown() -> Capability {
    let path = "/sys/kernel/security/lockdown";
    let state = fs::read_to_string(path);
    let free = state.as_ref().map_or(true, |text| !text.contains("[confidentiality]"));
    Capability::new("lockdown", "a kernel that lets eBPF programs read its memory", Some(free), path)
        .remedy("boot without lockdown=confidentiality")
}

fn task_iterator(types: Option<&btf::Btf<'_>>) -> Capability {
    let found = types.map(|types| types.type_by_name::<btf::types::Struct<'_>>("bpf_iter__task").is_some());
    Capability::new("task_iterator", "the task iterator", found, "struct bpf_iter__task in the kernel's BTF")
        .remedy("use a kernel with CONFIG_BPF_EVENTS=y (Linux 5.8)")
}

fn mappable_arrays() -> Capability {
    Capability::new("mmap", "array maps that can be mapped", Some(trial_map(4096)), "making one of 4 KiB")
        .remedy("use a kernel with CONFIG_BPF_SYSCALL=y (Linux 5.5)")
}

fn large_values() -> Capability {
    Capability::new(
        "large_maps",
        "map values larger than 4 MiB",
        Some(trial_map(9 << 20)),
        "making one of 9 MiB",
    )
    .optional()
    .lost("a bank holds at most 2 MiB (--buffer 2M), so history is shorter")
    .remedy("use a newer kernel")
}

/// The sentence for a bank that this kernel cannot hold in one map value.
pub(crate) fn check_bank(bank_bytes: usize) -> Result<(), Box<Capability>> {
    let bytes = u32::try_from(rtscope_ring::BankImage::bytes(bank_bytes)).unwrap_or(u32::MAX);
    if bank_bytes <= 2 << 20 || trial_map(bytes) {
        return Ok(());
    }
    let mut missing = large_values();
    missing.found = Some(false);
    missing.probed = format!("making one of {bytes} bytes for a bank of {} MiB", bank_bytes >> 20);
    missing.remedy = "ask for a smaller --buffer, or use a newer kernel".to_string();
    Err(Box::new(missing))
}

fn trial_map(bytes: u32) -> bool {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    MapHandle::create(MapType::Array, Some("rtscope_trial"), 4, bytes, 1, &options)
        .is_ok_and(|map| map.value_size() == bytes)
}

/// The kernel's tracepoints that typed programs can be attached to.
#[derive(Debug, Default)]
pub struct Tracepoints {
    names: HashSet<String>,
}

impl Tracepoints {
    /// Reads them from the kernel's BTF.
    #[must_use]
    pub fn read() -> Tracepoints {
        let Ok(types) = btf::Btf::from_vmlinux() else { return Tracepoints::default() };
        Tracepoints::of(&types)
    }

    fn of(types: &btf::Btf<'_>) -> Tracepoints {
        let has = |name: &str| {
            types.type_by_name::<btf::types::Typedef<'_>>(&format!("btf_trace_{name}")).is_some()
        };
        let names = PROGRAMS.iter().map(|spec| spec.tracepoint).chain([
            BLOCK_START,
            NEED_RESCHED,
            SCHED_EXIT,
            IO_URING_COMPLETE,
        ]);
        let is_safe = |name: &str| name != NEED_RESCHED || !has_preemptible_rcu(types);
        let names = names.filter(|name| has(name) && is_safe(name));
        Tracepoints { names: names.map(str::to_string).collect() }
    }

    /// Whether the kernel has this one (of those rtscope uses).
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// Whether readers of RCU can be preempted. Then the end of a reader may ask for another task, and each eBPF program of a tracepoint is one: a
/// program at `sched_set_need_resched_tp` calls itself by that until the kernel's stack is full, and the machine dies. Seen on Linux 7.2 (PREEMPT(lazy)):
/// bpf_trace_run3, rcu_read_unlock_special, __trace_set_need_resched, and so on.
fn has_preemptible_rcu(types: &btf::Btf<'_>) -> bool {
    let task = types.type_by_name::<btf::types::Struct<'_>>("task_struct");
    // include/linux/sched.h has it with CONFIG_PREEMPT_RCU only. Where nothing is known, it may be so.
    task.is_none_or(|task| {
        task.iter().any(|member| member.name.is_some_and(|name| name == "rcu_read_lock_nesting"))
    })
}

fn tracepoints(types: Option<&btf::Btf<'_>>) -> Vec<Capability> {
    let present = types.map(Tracepoints::of);
    let capability = |spec: &crate::programs::ProgramSpec| {
        let found = present.as_ref().map(|present| present.has(spec.tracepoint));
        let id = format!("tracepoint:{}", spec.tracepoint);
        let what = format!("the tracepoint {}", spec.tracepoint);
        let probed = format!("btf_trace_{} in the kernel's BTF", spec.tracepoint);
        let capability = Capability::new(&id, &what, found, &probed)
            .lost(spec.lost)
            .remedy("use a kernel that has it (some exist on x86 only)");
        if spec.required { capability } else { capability.optional() }
    };
    PROGRAMS.iter().map(capability).collect()
}

/// Everything that is cheap to find out, in the order in which it is needed.
fn quick() -> Vec<Capability> {
    let types = btf::Btf::from_vmlinux().ok();
    let mut found = vec![privilege(), lockdown(), kernel_types(), task_iterator(types.as_ref())];
    found.extend(tracepoints(types.as_ref()));
    found
}

/// The first required thing that is not there.
pub(crate) fn first_missing() -> Option<Capability> {
    quick().into_iter().find(|capability| capability.required && capability.found == Some(false))
}

/// The first thing without which eBPF can record no stream. Tracepoints are not among them: those that are missing are not
/// asked for.
#[must_use]
pub fn stream_missing() -> Option<Capability> {
    let types = btf::Btf::from_vmlinux().ok();
    let needed = [privilege(), lockdown(), kernel_types(), task_iterator(types.as_ref()), mappable_arrays()];
    needed.into_iter().find(|capability| capability.found == Some(false))
}

/// Everything, including a trial run of the programs with small buffers.
#[must_use]
pub fn probe() -> Vec<Capability> {
    let mut all = quick();
    capture_libbpf_log();
    all.extend(tracer());
    all.push(mappable_arrays());
    all.push(large_values());
    let blocked = all.iter().any(|capability| capability.required && capability.found == Some(false));
    let config = EbpfConfig {
        recorder: Some(RecorderConfig { bank_bytes: 1 << 16, snapshot: None, stream: None }),
        trackers: vec![TrackerConfig {
            counted_by: None,
            target: Target::default(),
            threshold_ns: u64::MAX,
            snapshot: true,
            records: false,
            follows: Follows::Responses(ResponseConfig {
                end: End::Blocked,
                origins: OriginFilter::default(),
                sources: Vec::new(),
            }),
        }],
        ..EbpfConfig::default()
    };
    let trial = if blocked { None } else { Some(EbpfPrograms::start(&config)) };
    let how = match &trial {
        None => "not tried, because of what is missing above".to_string(),
        Some(Ok(_)) => "loaded and attached all, for a moment".to_string(),
        Some(Err(error)) => format!("tried: {error}"),
    };
    let works = trial.as_ref().map(Result::is_ok);
    all.push(
        Capability::new("programs", "rtscope's eBPF programs run", works, &how)
            .remedy("report this with its text"),
    );
    let misses = trial
        .and_then(Result::ok)
        .map(|session| session.recursion_misses().iter().all(|(_, misses)| misses.is_some()));
    all.push(
        Capability::new(
            "misses",
            "the count of skipped eBPF program runs",
            misses,
            "recursion_misses in bpf_prog_info",
        )
        .optional()
        .lost("events that the kernel skips are not counted, and losses are said to be unknown")
        .remedy("use Linux 5.12 or newer"),
    );
    all
}

/// The kernel's own tracer: whether it can be read (for `list`), and used (for `record`).
fn tracer() -> Vec<Capability> {
    let tracefs = Tracefs::find();
    let there = "tracefs in /proc/self/mounts";
    let mut all = vec![
        Capability::new("tracefs", "the kernel's trace file system", Some(tracefs.is_ok()), there)
            .optional()
            .lost("only what eBPF records can be recorded, and tracepoints cannot be listed")
            .remedy("mount -t tracefs nodev /sys/kernel/tracing"),
    ];
    let Ok(tracefs) = tracefs else { return all };
    let listed = tracefs.events();
    let how = match &listed {
        Ok(events) => format!("{} tracepoints in available_events", events.len()),
        Err(error) => format!("tried: {error}"),
    };
    all.push(
        Capability::new("tracepoint_list", "the right to list tracepoints", Some(listed.is_ok()), &how)
            .optional()
            .lost("tracepoints cannot be listed, and their fields are unknown")
            .remedy(
                "run as root, or let a group read: mount -o remount,gid=GROUP,mode=750 /sys/kernel/tracing",
            ),
    );
    let config = InstanceConfig { buffer_kib_per_cpu: 64, ..InstanceConfig::default() };
    let made = Instance::create(&tracefs, &config).and_then(Instance::remove);
    let how = match &made {
        Ok(()) => "made one and removed it".to_string(),
        Err(error) => format!("tried: {error}"),
    };
    all.push(
        Capability::new("trace_instance", "the right to record with ftrace", Some(made.is_ok()), &how)
            .optional()
            .lost("only what eBPF records can be recorded")
            .remedy(
                "run as root, or let a user make instances: mount -o remount,gid=GROUP,mode=750 /sys/kernel/tracing && \
                 chown USER /sys/kernel/tracing/instances",
            ),
    );
    all
}

/// Number of CPU numbers that can come into use: the highest present one + 1. Offline ones that are present count, since
/// they can be switched on while we watch; sizing by "possible" ones would waste memory in virtual machines.
#[must_use]
pub(crate) fn present_cpus() -> usize {
    fs::read_to_string("/sys/devices/system/cpu/present")
        .ok()
        .and_then(|list| after_last_cpu(&list))
        .or_else(|| std::thread::available_parallelism().ok().map(std::num::NonZero::get))
        .unwrap_or(1)
}

/// The highest CPU of a list as the kernel writes it, + 1.
fn after_last_cpu(list: &str) -> Option<usize> {
    let number = list.trim().rsplit([',', '-']).next()?.parse::<usize>().ok()?;
    Some(number + 1)
}

static LIBBPF_LOG: Mutex<String> = Mutex::new(String::new());

/// libbpf's log, kept for error messages instead of being printed.
pub(crate) struct LibbpfLog;

/// Takes libbpf's messages from now on.
pub(crate) fn capture_libbpf_log() -> LibbpfLog {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_message)));
    LibbpfLog
}

impl LibbpfLog {
    /// The last lines of what was said since the last time.
    pub(crate) fn take(&self) -> String {
        let mut log = LIBBPF_LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let text = std::mem::take(&mut *log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

fn keep_message(_: PrintLevel, message: String) {
    let mut log = LIBBPF_LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A verifier log can be megabytes: keep the end.
    if log.len() > 1 << 20 {
        log.clear();
    }
    log.push_str(&message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_made_for_every_present_cpu_of_a_large_machine() {
        for (list, cpus) in [("0\n", 1), ("0-4095\n", 4096), ("0-1,4,6-2047", 2048), ("0-3,4095", 4096)] {
            assert_eq!(after_last_cpu(list), Some(cpus), "{list}");
        }
        assert_eq!(after_last_cpu(""), None);
    }
}

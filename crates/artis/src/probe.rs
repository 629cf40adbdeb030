// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler needs of the kernel. Features are probed, never versions: Debian builds the same release with and without
//! schedulers in eBPF.

use libbpf_rs::btf::{Btf, types::Func};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Where the kernel tells of schedulers in eBPF.
pub const DIRECTORY: &str = "/sys/kernel/sched_ext";
/// The name of the one that runs. In pieces, since `xtask tidy` takes a path that begins so for one of somebody's home.
pub const NAME: &str = concat!("/sys/kernel/sched_ext", "/root", "/ops");
/// What the kernel counts of it, a name and a number in each line.
pub const EVENTS: &str = concat!("/sys/kernel/sched_ext", "/root", "/events");

/// The kernel's functions that we call; of each line, one is enough.
const FUNCTIONS: &[&[&str]] = &[
    &["scx_bpf_kick_cpu"],
    &["scx_bpf_task_cpu"],
    &["scx_bpf_create_dsq"],
    &["scx_bpf_dsq_nr_queued"],
    &["scx_bpf_test_and_clear_cpu_idle"],
    &["scx_bpf_exit_bstr"],
    &["scx_bpf_dsq_insert___v2", "scx_bpf_dsq_insert"],
    &["__scx_bpf_dsq_insert_vtime", "scx_bpf_dsq_insert_vtime"],
    &["scx_bpf_dsq_move_to_local___v2", "scx_bpf_dsq_move_to_local"],
    &["scx_bpf_dsq_move"],
    &["bpf_iter_scx_dsq_new"],
    &["bpf_task_from_pid"],
];
/// Empties the queue of a CPU that a real-time task holds, from another CPU.
const EMPTIES_QUEUES: &str = "scx_bpf_dsq_reenq";

/// Ways into the kernel, as tracefs names them, our program and what it sees: without the first there is nothing to be done.
pub const ENTRIES: [(&str, &str, &str, &str); 3] = [
    ("raw_syscalls", "sys_enter", "enter_syscall", "system calls"),
    ("exceptions", "page_fault_user", "enter_fault", "page faults (known on x86 only)"),
    ("signal", "signal_deliver", "enter_signal", "signals"),
];

/// Something that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingFeature {
    /// What.
    pub what: String,
    /// How that was found out.
    pub probed: String,
    /// What to do about it.
    pub remedy: String,
}

impl std::fmt::Display for MissingFeature {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: missing ({}); {}", self.what, self.probed, self.remedy)
    }
}

/// What was found out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProbeResult {
    /// Without these there is no scheduler.
    pub missing: Vec<MissingFeature>,
    /// Without these it does less.
    pub lacking: Vec<MissingFeature>,
}

fn missing(what: impl Into<String>, probed: impl Into<String>, remedy: &str) -> MissingFeature {
    MissingFeature { what: what.into(), probed: probed.into(), remedy: remedy.to_owned() }
}

/// Looks at the kernel that runs.
#[must_use]
pub fn probe() -> ProbeResult {
    let mut probed = ProbeResult::default();
    if !Path::new(DIRECTORY).is_dir() {
        probed.missing.push(missing(
            "schedulers in eBPF",
            format!("there is no {DIRECTORY}"),
            "use a kernel with CONFIG_SCHED_CLASS_EXT=y (Linux 6.12; Debian's kernels from 6.19 on)",
        ));
    }
    match Btf::from_vmlinux() {
        Err(_) => probed.missing.push(missing(
            "the kernel's type information (BTF)",
            "/sys/kernel/btf/vmlinux cannot be read",
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y, and run as root",
        )),
        Ok(types) if probed.missing.is_empty() => functions(&types, &mut probed),
        // All of its functions are missing, which says no more than that it is.
        Ok(_) => {}
    }
    tracepoints(&mut probed);
    probed
}

fn functions(types: &Btf<'_>, probed: &mut ProbeResult) {
    let has = |name: &str| types.type_by_name::<Func<'_>>(name).is_some();
    for names in FUNCTIONS.iter().filter(|names| !names.iter().any(|name| has(name))) {
        let what = format!("the kernel's function {}", names.join(" or "));
        probed.missing.push(missing(what, "no such function in the kernel's BTF", "use a newer kernel"));
    }
    if !has(EMPTIES_QUEUES) {
        probed.lacking.push(missing(
            format!("the kernel's function {EMPTIES_QUEUES}: a task that waits on a CPU that RT0 took waits until RT0 sleeps"),
            "no such function in the kernel's BTF",
            "use Linux 7.1 or newer",
        ));
    }
}

/// Whether tracefs has this one.
pub(crate) fn has_tracepoint(system: &str, name: &str) -> bool {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .any(|directory| fs::exists(format!("{directory}/events/{system}/{name}/id")).unwrap_or(false))
}

fn tracepoints(probed: &mut ProbeResult) {
    for (at, (system, name, _, what)) in ENTRIES.iter().enumerate() {
        if has_tracepoint(system, name) {
            continue;
        }
        let lack = missing(
            format!("the tracepoint {system}/{name}: {what} do not take a task off a real-time CPU"),
            "no such directory in tracefs",
            "mount -t tracefs nodev /sys/kernel/tracing, or use a kernel that has it",
        );
        if at == 0 { probed.missing.push(lack) } else { probed.lacking.push(lack) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_is_missing_says_what_to_do() {
        for one in probe().missing.iter().chain(&probe().lacking) {
            assert!(!one.remedy.is_empty() && one.to_string().contains(&one.what), "{one}");
        }
    }

    #[test]
    fn a_kernel_without_schedulers_is_recognised() {
        let says_so = probe().missing.iter().any(|one| one.what == "schedulers in eBPF");
        assert_eq!(says_so, !Path::new(DIRECTORY).exists());
    }
}

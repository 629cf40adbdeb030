// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of each CPU: the kernel's software event `cpu-clock`, a high-resolution timer, which needs no PMU.

use super::{Error, bpf};
use crate::caps::LibbpfLog;
use libbpf_rs::{Link, ProgramMut};
use std::fs;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

/// Attaches the program to samples that are this far apart, on each CPU that is online. One that comes later has none.
pub(super) fn attach(program: &ProgramMut<'_>, sample_ns: u64, log: &LibbpfLog) -> Result<Vec<Link>, Error> {
    online_cpus().into_iter().map(|cpu| attach_to(program, cpu, sample_ns, log)).collect()
}

fn attach_to(program: &ProgramMut<'_>, cpu: i32, sample_ns: u64, log: &LibbpfLog) -> Result<Link, Error> {
    let event = open(cpu, sample_ns)
        .map_err(|error| Error::Io { doing: format!("opening the event cpu-clock of CPU {cpu}"), error })?;
    let link = program.attach_perf_event(event.as_raw_fd()).map_err(|error| {
        bpf(&format!("attaching an eBPF program to the event cpu-clock of CPU {cpu}"), error, &log.take())
    })?;
    // The link closes it.
    let _ = event.into_raw_fd();
    Ok(link)
}

fn open(cpu: i32, sample_ns: u64) -> std::io::Result<OwnedFd> {
    let mut attributes = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK),
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = sample_ns;
    let flags = libc::c_ulong::from(libbpf_sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the structure is a live local of the size that it names, which the kernel only reads; the other arguments are plain numbers:
    // all tasks, one CPU, no group.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, flags) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor to us, and no other code has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn online_cpus() -> Vec<i32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<i32>().ok()?..=last.parse::<i32>().ok()?)
    };
    let cpus: Vec<i32> = list.trim().split(',').filter_map(range).flatten().collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

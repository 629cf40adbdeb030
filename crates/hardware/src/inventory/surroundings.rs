// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is around this process and decides what it can see: a hypervisor, a container, the kernel's settings.

use super::Machine;
use serde::Serialize;

/// The surroundings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Surroundings {
    /// `x86_64`, `aarch64`, …
    pub architecture: String,
    /// Who made the processor, where it says so.
    pub vendor: Option<String>,
    /// The model, as the kernel has it.
    pub model: Option<String>,
    /// The hypervisor below this system; `None`: no sign of one.
    pub hypervisor: Option<String>,
    /// The container around this process; `None`: no sign of one.
    pub container: Option<String>,
    /// `perf_event_paranoid`: which events a process without privileges may have.
    pub perf_event_paranoid: Option<i64>,
    /// Whether this process has `CAP_PERFMON` or `CAP_SYS_ADMIN`.
    pub is_privileged: Option<bool>,
}

impl Surroundings {
    pub(super) fn of(machine: &Machine) -> Surroundings {
        Surroundings {
            architecture: machine.architecture.clone(),
            vendor: machine.cpuid.vendor(),
            model: model(machine),
            hypervisor: hypervisor(machine),
            container: container(machine),
            perf_event_paranoid: machine.paranoid(),
            is_privileged: machine.is_privileged(),
        }
    }

    /// Why something may be missing here that the machine has.
    pub(super) fn decides(&self) -> String {
        match &self.hypervisor {
            Some(name) => format!(
                "; this is a virtual machine ({name}), whose hypervisor decides what a guest is shown"
            ),
            None => String::new(),
        }
    }

    /// Why something cannot be read.
    pub(super) fn hidden(&self) -> String {
        match &self.container {
            Some(name) => {
                format!("; this is a container ({name}), which may be without it: ask outside of it")
            }
            None => "; mount sysfs at /sys".to_owned(),
        }
    }
}

fn model(machine: &Machine) -> Option<String> {
    let info = machine.text("proc/cpuinfo")?;
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    field("model name").or_else(|| {
        let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("implementer {implementer}, part {part}"))
    })
}

fn hypervisor(machine: &Machine) -> Option<String> {
    if machine.cpuid.bit(1, 0, 2, 31) == Some(true) {
        let name = machine.cpuid.hypervisor().filter(|name| !name.is_empty());
        return Some(name.unwrap_or_else(|| "without a name".to_owned()));
    }
    if let Some(kind) = machine.text("sys/hypervisor/type").filter(|kind| !kind.is_empty()) {
        return Some(kind);
    }
    // Arm has no instruction that tells; firmware does.
    let tree = machine.text("proc/device-tree/hypervisor/compatible");
    let maker = machine.text("sys/class/dmi/id/sys_vendor").filter(|maker| maker == "QEMU");
    tree.or(maker).map(|name| name.trim_end_matches('\0').to_owned())
}

fn container(machine: &Machine) -> Option<String> {
    let marks = [(".dockerenv", "docker"), ("run/.containerenv", "podman")];
    if let Some((_, name)) = marks.iter().find(|(path, _)| machine.exists(path) == Some(true)) {
        return Some((*name).to_owned());
    }
    machine.text("run/systemd/container").filter(|name| !name.is_empty())
}

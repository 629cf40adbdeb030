// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a benchmark ran: a figure without that means nothing.

use serde::Serialize;
use std::fmt;
use std::fs;

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Model of the processor.
    pub processor: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Clock source of the kernel.
    pub clocksource: String,
    /// Runs under a hypervisor.
    pub virtual_machine: bool,
    /// Benchmark CPU.
    pub bench_cpu: usize,
}

impl Host {
    /// This one.
    pub fn this(bench_cpu: usize) -> Host {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split(": ").nth(1))
                .unwrap_or("unknown")
        };
        let text = |path: &str| {
            fs::read_to_string(path).map_or("unknown".to_string(), |text| text.trim().to_string())
        };
        Host {
            processor: field("model name").to_string(),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: text("/proc/sys/kernel/osrelease"),
            clocksource: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            virtual_machine: field("flags").split(' ').any(|flag| flag == "hypervisor"),
            bench_cpu,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.virtual_machine { "virtual" } else { "bare metal" };
        write!(
            f,
            "{} x {} ({kind}), Linux {}, clock {}; pinned to cpu {}",
            self.cpus, self.processor, self.kernel, self.clocksource, self.bench_cpu
        )
    }
}

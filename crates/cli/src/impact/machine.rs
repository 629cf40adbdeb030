// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the machine makes figures differ from run to run, or mean something else: said before the figures.

use super::room::{Room, Sample};
use serde_json::{Value, json};
use std::fs;

/// A change of the core's clock between runs that is worth a note, as a ratio.
const CLOCK_CHANGE: f64 = 1.02;

/// The same of the counter's rate: what is measured in a tenth of a second is not exact, least of all in a virtual machine.
const COUNTER_CHANGE: f64 = 1.002;

/// What was found.
#[derive(Debug)]
pub struct Machine {
    model: String,
    kernel: String,
    cpus: usize,
    notes: Vec<String>,
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

impl Machine {
    /// Looks at the CPU of the loop.
    pub fn look(room: &Room) -> Machine {
        let cpu = room.cpu;
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let mut notes = Vec::new();
        frequencies(cpu, &mut notes);
        isolation(cpu, &mut notes);
        if room.is_alone {
            notes.push("there is no other CPU for the tracers: they interrupt the loop".to_string());
        }
        clock(&field("flags").unwrap_or_default(), &mut notes);
        Machine {
            model: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_string()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            notes,
        }
    }

    /// In one line.
    pub fn name(&self) -> String {
        format!("{}, Linux {}", self.model, self.kernel)
    }

    /// Those of the machine, then those of the runs, each once.
    pub fn notes<'a>(&'a self, samples: impl Iterator<Item = &'a Sample> + Clone) -> Vec<String> {
        let mut notes = self.notes.clone();
        let clocks = samples.clone().flat_map(|sample| sample.core_ghz);
        let (low, high) = clocks.fold((f64::MAX, 0.0_f64), |(low, high), ghz| (low.min(ghz), high.max(ghz)));
        if high > low * CLOCK_CHANGE {
            notes.push(format!(
                "the core's clock changed between {low:.2} and {high:.2} GHz (turbo, power saving or a busy sibling): differences \
                 between tracers are partly that"
            ));
        }
        let rates = samples.clone().map(|sample| sample.ticks_per_second);
        let (low, high) =
            rates.fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        if high > low * COUNTER_CHANGE {
            notes.push(format!(
                "the counter's rate was measured as {:.3} to {:.3} MHz: it is not constant, or the clock that it was compared with jumped",
                low / 1e6,
                high / 1e6
            ));
        }
        // npt says of each run what is said here of all of them.
        let of_runs = samples.flat_map(|sample| &sample.notes);
        for note in
            of_runs.filter(|note| !note.starts_with("the core's clock") && !note.contains("virtual machine"))
        {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }

    /// For `--json`.
    pub fn json(&self) -> Value {
        json!({ "model": self.model, "kernel": self.kernel, "cpus_for_tracers": self.cpus })
    }
}

fn frequencies(cpu: usize, notes: &mut Vec<String>) {
    let turbo = match line("/sys/devices/system/cpu/intel_pstate/no_turbo") {
        Some(off) => Some(off == "0"),
        None => line("/sys/devices/system/cpu/cpufreq/boost").map(|on| on == "1"),
    };
    match turbo {
        Some(true) => notes.push(
            "turbo is on: the core's clock depends on what others do; echo 1 > \
             /sys/devices/system/cpu/intel_pstate/no_turbo or echo 0 > /sys/devices/system/cpu/cpufreq/boost ends that"
                .to_string(),
        ),
        Some(false) => {}
        None => notes.push("whether turbo is on cannot be seen here (no cpufreq); the core's clock is measured".to_string()),
    }
    let governor = line(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"));
    if let Some(governor) = governor.filter(|governor| governor != "performance") {
        notes.push(format!(
            "the frequency of CPU {cpu} changes (governor {governor}); cpupower frequency-set -g performance ends that"
        ));
    }
}

fn isolation(cpu: usize, notes: &mut Vec<String>) {
    let has = |path: &str| line(path).is_some_and(|list| in_list(&list, cpu));
    if !has("/sys/devices/system/cpu/isolated") {
        notes.push(format!(
            "CPU {cpu} is not isolated: others run there, too (isolcpus={cpu} nohz_full={cpu} at boot)"
        ));
    } else if !has("/sys/devices/system/cpu/nohz_full") {
        notes.push(format!("CPU {cpu} is isolated, but has its tick (nohz_full={cpu} at boot)"));
    }
    let siblings = line(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    if let Some(siblings) = siblings.filter(|siblings| siblings.contains([',', '-'])) {
        notes.push(format!(
            "CPU {cpu} shares its core with another ({siblings}), which slows it down when it works"
        ));
    }
}

fn clock(flags: &str, notes: &mut Vec<String>) {
    let has = |flag: &str| flags.split(' ').any(|it| it == flag);
    if has("hypervisor") {
        notes.push(
            "this is a virtual machine: the host takes the CPU when it likes, and gaps may be its"
                .to_string(),
        );
    }
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if cfg!(target_arch = "x86_64") && !(has("constant_tsc") && has("nonstop_tsc")) {
        notes.push("the TSC of this CPU is not said to have a constant rate in all states".to_string());
    }
    if let Some(source) = source.filter(|source| cfg!(target_arch = "x86_64") && source != "tsc") {
        notes.push(format!(
            "the kernel's clock is {source}, not the TSC: it does not trust the TSC, or a hypervisor has its own; tracers that ask \
             the kernel for the time pay for that"
        ));
    }
}

/// Whether `0,2-3` has a CPU.
fn in_list(list: &str, cpu: usize) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok();
        number(first).zip(number(last)).is_some_and(|(first, last)| (first..=last).contains(&cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_understood() {
        assert!(
            in_list("0,2-3", 3)
                && in_list("7", 7)
                && !in_list("0,2-3", 1)
                && !in_list("", 0)
                && !in_list("(null)", 0)
        );
    }

    #[test]
    fn what_is_found_is_said() {
        let mut notes = Vec::new();
        clock("fpu hypervisor", &mut notes);
        assert!(notes[0].contains("virtual machine"), "{notes:?}");
        if cfg!(target_arch = "x86_64") {
            assert!(notes[1].contains("constant rate"), "{notes:?}");
        }
        notes.clear();
        clock("constant_tsc nonstop_tsc", &mut notes);
        assert!(notes.iter().all(|note| note.contains("kernel's clock is")), "{notes:?}");
    }
}

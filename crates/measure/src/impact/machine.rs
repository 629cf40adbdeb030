// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the machine makes figures differ from run to run, or mean something else: reported before the figures.

use super::setup::{Sample, Setup};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// A change of the core's clock between runs that is worth a note, as a ratio.
const CLOCK_CHANGE: f64 = 1.02;

/// The same of the counter's rate: what is measured in a tenth of a second is not exact, least of all in a virtual machine.
const COUNTER_CHANGE: f64 = 1.002;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Of the CPU.
    pub model: String,
    /// Its release.
    pub kernel: String,
    /// On this many the tracers could run.
    #[serde(rename = "cpus_for_tracers")]
    pub cpus: usize,
    #[serde(skip)]
    notes: Vec<String>,
}

/// What sysfs says of CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

fn line(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

impl Machine {
    /// Looks at the CPU of the loop.
    pub(super) fn look(setup: &Setup<'_>) -> Machine {
        let cpu = setup.cpu;
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let mut notes = Vec::new();
        frequencies(Path::new(CPUS), cpu, &mut notes);
        isolation(Path::new(CPUS), cpu, &mut notes);
        if setup.is_alone {
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
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}, Linux {}", self.model, self.kernel)
    }

    /// Those of the machine, then those of the runs, each once.
    pub(super) fn notes<'a>(&'a self, samples: impl Iterator<Item = &'a Sample> + Clone) -> Vec<String> {
        let mut notes = self.notes.clone();
        let clocks = samples.clone().flat_map(|sample| sample.core_ghz);
        let (low, high) = clocks.fold((f64::MAX, 0.0_f64), |(low, high), ghz| (low.min(ghz), high.max(ghz)));
        if high > low * CLOCK_CHANGE {
            notes.push(format!(
                "the core's clock changed between {low:.2} and {high:.2} GHz (turbo, power saving or a busy sibling): part of the \
                 differences between tracers comes from that"
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
        // npt reports for each run what is reported here for all of them.
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
}

fn frequencies(cpus: &Path, cpu: usize, notes: &mut Vec<String>) {
    let turbo = match line(cpus.join("intel_pstate/no_turbo")) {
        Some(off) => Some(off == "0"),
        None => line(cpus.join("cpufreq/boost")).map(|on| on == "1"),
    };
    match turbo {
        Some(true) => notes.push(format!(
            "turbo is on: the core's clock depends on other work; echo 1 > {CPUS}/intel_pstate/no_turbo or echo 0 > \
             {CPUS}/cpufreq/boost turns it off"
        )),
        Some(false) => {}
        None => {
            notes.push("whether turbo is on cannot be seen here (no cpufreq); the core's clock is measured".to_string());
        }
    }
    let governor = line(cpus.join(format!("cpu{cpu}/cpufreq/scaling_governor")));
    if let Some(governor) = governor.filter(|governor| governor != "performance") {
        notes.push(format!(
            "the frequency of CPU {cpu} changes (governor {governor}); cpupower frequency-set -g performance fixes it"
        ));
    }
}

fn isolation(cpus: &Path, cpu: usize, notes: &mut Vec<String>) {
    let has = |file: &str| line(cpus.join(file)).is_some_and(|list| in_list(&list, cpu));
    if !has("isolated") {
        notes.push(format!(
            "CPU {cpu} is not isolated: other tasks run there too (isolcpus={cpu} nohz_full={cpu} at boot)"
        ));
    } else if !has("nohz_full") {
        notes.push(format!("CPU {cpu} is isolated, but has its tick (nohz_full={cpu} at boot)"));
    }
    let siblings = line(cpus.join(format!("cpu{cpu}/topology/thread_siblings_list")));
    if let Some(siblings) = siblings.filter(|siblings| siblings.contains([',', '-'])) {
        notes.push(format!(
            "CPU {cpu} shares its core with another ({siblings}), which slows it down when busy"
        ));
    }
}

fn clock(flags: &str, notes: &mut Vec<String>) {
    let has = |flag: &str| flags.split(' ').any(|it| it == flag);
    if has("hypervisor") {
        notes.push("this is a virtual machine: its host may have caused gaps".to_string());
    }
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if cfg!(target_arch = "x86_64") && !(has("constant_tsc") && has("nonstop_tsc")) {
        notes.push("this CPU does not announce a TSC of constant rate in all states".to_string());
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

    /// A machine as its sysfs says it is.
    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("below the directory")).expect("ours");
            fs::write(path, format!("{text}\n")).expect("ours");
        }
        let mut notes = Vec::new();
        frequencies(directory.path(), 3, &mut notes);
        isolation(directory.path(), 3, &mut notes);
        notes
    }

    #[test]
    fn turbo_and_changing_frequencies_are_reported() {
        let turbo = |files: &[(&str, &str)]| said(files).iter().find(|note| note.contains("turbo")).cloned();
        assert!(turbo(&[("intel_pstate/no_turbo", "0")]).is_some_and(|note| note.starts_with("turbo is on")));
        assert_eq!(turbo(&[("intel_pstate/no_turbo", "1")]), None);
        assert!(turbo(&[("cpufreq/boost", "1")]).is_some_and(|note| note.starts_with("turbo is on")));
        assert_eq!(turbo(&[("cpufreq/boost", "0")]), None);
        assert!(turbo(&[]).is_some_and(|note| note.contains("cannot be seen")));
        let governor = said(&[("cpu3/cpufreq/scaling_governor", "schedutil")]);
        assert!(governor.iter().any(|note| note.contains("governor schedutil")), "{governor:?}");
        let governor = said(&[("cpu3/cpufreq/scaling_governor", "performance")]);
        assert!(!governor.iter().any(|note| note.contains("governor")), "{governor:?}");
    }

    #[test]
    fn missing_isolation_and_busy_siblings_are_reported() {
        let isolated =
            [("isolated", "2-3"), ("nohz_full", "2-3"), ("cpu3/topology/thread_siblings_list", "3")];
        assert_eq!(said(&isolated).len(), 1, "only that turbo cannot be seen");
        assert!(said(&isolated[..1]).iter().any(|note| note.contains("has its tick")));
        assert!(said(&[("isolated", "")]).iter().any(|note| note.contains("not isolated")));
        let siblings = said(&[("cpu3/topology/thread_siblings_list", "1,3")]);
        assert!(
            siblings.iter().any(|note| note.contains("shares its core with another (1,3)")),
            "{siblings:?}"
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

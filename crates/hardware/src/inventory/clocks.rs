// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of time (TSC, Arm's generic timer) and of events: what hardware traces are timed with, and what samples are taken by.

use super::machine::PMUS;
use super::{Fact, FactValue, Machine, State, Surroundings, Unit};

const SOURCE: &str = "sys/devices/system/clocksource/clocksource0";

pub(super) fn units(machine: &Machine, surroundings: &Surroundings) -> Vec<Unit> {
    vec![time(machine, surroundings), counters(machine, surroundings)]
}

fn time(machine: &Machine, surroundings: &Surroundings) -> Unit {
    let is_arm = surroundings.architecture == "aarch64";
    let mut facts = Vec::new();
    let used = machine.text(&format!("{SOURCE}/current_clocksource"));
    let value = used.clone().map_or(FactValue::Unknown, FactValue::Text);
    let meaning = "what the kernel's clocks run by";
    facts.push(Fact::new("clocksource", value, meaning, format!("/{SOURCE}/current_clocksource")));
    let cpuid = &machine.cpuid;
    if !is_arm {
        let invariant = cpuid.bit(0x8000_0007, 0, 3, 8).map_or(FactValue::Unknown, FactValue::Flag);
        let meaning = "it runs at one rate in every power state";
        facts.push(Fact::new("invariant", invariant, meaning, "CPUID 80000007h EDX bit 8"));
        let ratio = cpuid.0.get(&(0x15, 0)).filter(|[a, b, ..]| *a != 0 && *b != 0);
        let text = ratio.map(|[a, b, c, _]| match c {
            0 => format!("{b}/{a} of a crystal of unknown frequency"),
            _ => format!("{b}/{a} of {c} Hz"),
        });
        let value = text.map_or(FactValue::Unknown, FactValue::Text);
        let meaning = "TSC by crystal clock: what MTC packets are converted with";
        facts.push(Fact::new("ratio", value, meaning, "CPUID 15h"));
    }
    let (state, why) = match (is_arm, cpuid.bit(1, 0, 3, 4)) {
        (true, _) if used.as_deref() == Some("arch_sys_counter") => {
            (State::Usable, "the kernel's clocks run by arch_sys_counter".to_owned())
        }
        (true, _) => (State::Unknown, "whether programs may read CNTVCT is not in sysfs".to_owned()),
        (false, Some(true)) => (State::Usable, "CPUID 01h EDX bit 4".to_owned()),
        (false, Some(false)) => (State::Absent, "CPUID 01h EDX bit 4 is 0".to_owned()),
        (false, None) => (State::Unknown, "there is no CPUID to ask".to_owned()),
    };
    Unit {
        id: if is_arm { "generic_timer".into() } else { "tsc".into() },
        name: if is_arm { "Arm generic timer".into() } else { "Time Stamp Counter (TSC)".into() },
        state,
        why,
        good_for: "the clock of hardware traces: the same for all CPUs, converted to the kernel's time"
            .into(),
        privilege: "none".into(),
        allowed: Some(true),
        enable: "always on".into(),
        facts,
    }
}

fn counters(machine: &Machine, surroundings: &Surroundings) -> Unit {
    const NAMES: [&str; 6] = ["cpu", "cpu_core", "cpu_atom", "armv8_pmuv3", "armv8_pmuv3_0", "armv8_cortex"];
    let pmus = machine.names(PMUS);
    let found = pmus.as_ref().and_then(|pmus| pmus.iter().find(|pmu| NAMES.contains(&pmu.as_str())).cloned());
    let (state, why) = match (&pmus, &found) {
        (None, _) => (State::Unknown, format!("/{PMUS} cannot be read{}", surroundings.hidden())),
        (Some(_), Some(pmu)) => (State::Usable, format!("/{PMUS}/{pmu} is there")),
        (Some(_), None) => {
            let why = format!("/{PMUS} has no PMU of the processor{}", surroundings.decides());
            (State::Absent, why)
        }
    };
    let mut facts = Vec::new();
    if let Some(word) = machine.cpuid.register(0xa, 0, 0).filter(|word| word & 0xff != 0) {
        for (name, shift, meaning) in [
            ("version", 0, "version of architectural performance monitoring"),
            ("counters", 8, "general counters of each CPU"),
            ("width", 16, "bits of a general counter"),
        ] {
            let value = FactValue::Number(u64::from(word >> shift & 0xff));
            facts.push(Fact::new(name, value, meaning, format!("CPUID 0Ah EAX bits {}:{shift}", shift + 7)));
        }
    }
    Unit {
        id: "counters".into(),
        name: "Performance counters".into(),
        state,
        why,
        good_for: "cycles, instructions, misses; samples at every so many of them, which branch stacks ride on".into(),
        privilege: "your own programs: none with perf_event_paranoid up to 2; whole CPUs: up to 0, or CAP_PERFMON".into(),
        allowed: machine.may(2),
        enable: "perf stat, perf record. In a virtual machine the hypervisor has to pass the counters on (QEMU: -cpu host,pmu=on)".into(),
        facts,
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arm's trace units: ETM and ETE by the PMU `cs_etm`, TRBE as their sink, SPE as a PMU of its own.

use super::machine::PMUS;
use super::{Component, Fact, FactValue, Machine, State, Surroundings, Unit};

pub(super) fn units(machine: &Machine, surroundings: &Surroundings, components: &[Component]) -> Vec<Unit> {
    vec![
        source(machine, surroundings, components, ("etm", "Embedded Trace Macrocell (ETM)")),
        source(machine, surroundings, components, ("ete", "Embedded Trace Extension (ETE)")),
        trbe(machine, surroundings, components),
        spe(machine, surroundings),
    ]
}

fn is_arm(surroundings: &Surroundings) -> bool {
    matches!(surroundings.architecture.as_str(), "aarch64" | "arm")
}

/// The state where the architecture does not say it all: `there` is what was found, and where that was looked for.
fn state_of(
    surroundings: &Surroundings,
    there: Option<bool>,
    (what, place): (&str, &str),
) -> (State, String) {
    match there {
        _ if !is_arm(surroundings) => (
            State::Absent,
            format!("only Arm's processors have it, and this is {}", surroundings.architecture),
        ),
        Some(true) => (State::Usable, format!("/{place} has {what}")),
        Some(false) => (
            State::Absent,
            format!(
                "/{place} has no {what}: no driver found one. The device tree or ACPI has to describe it, and firmware to switch it on{}",
                surroundings.decides()
            ),
        ),
        None => (
            State::Absent,
            format!(
                "/{place} is not there: the kernel is without that bus (CONFIG_CORESIGHT), or nothing describes it{}",
                surroundings.decides()
            ),
        ),
    }
}

/// What `trcidr` registers of an ETMv4 or ETE say that a user asks for.
fn registers(machine: &Machine, device: &str) -> Vec<Fact> {
    let base = format!("{}/{device}", super::coresight::DEVICES);
    let word = |number: u32| {
        let file = format!("{base}/trcidr/trcidr{number}");
        (machine.number(&file), format!("/{file}"))
    };
    /// Name, register, first bit, number of bits, meaning.
    const FIELDS: [(&str, u32, u32, u32, &str); 7] = [
        ("branch_broadcast", 0, 5, 1, "every branch with its target: a trace without the program"),
        ("conditional", 0, 6, 1, "conditional instructions that are no branches"),
        ("cycle_counting", 0, 7, 1, "cycle counts"),
        ("return_stack", 0, 9, 1, "returns without addresses: less volume"),
        ("timestamp_bits", 0, 24, 5, "size of timestamps: 0 none, 6 is 48 bits, 8 is 64 bits"),
        ("context_id_bytes", 2, 5, 5, "size of the number of the process"),
        ("address_comparators", 4, 0, 4, "pairs of address comparators, for ranges (--at)"),
    ];
    let mut facts = Vec::new();
    for (name, register, first, bits, meaning) in FIELDS {
        let (value, file) = word(register);
        let value =
            value.map_or(FactValue::Unknown, |word| match (word >> first & ((1 << bits) - 1), bits) {
                (value, 1) => FactValue::Flag(value != 0),
                (value, _) => FactValue::Number(value),
            });
        facts.push(Fact::new(name, value, meaning, format!("{file} bit {first}")));
    }
    facts
}

fn source(
    machine: &Machine,
    surroundings: &Surroundings,
    components: &[Component],
    (kind, name): (&str, &str),
) -> Unit {
    let found: Vec<&Component> = components.iter().filter(|component| component.kind == kind).collect();
    let bus = machine.names(super::coresight::DEVICES);
    let there = bus.map(|_| !found.is_empty());
    let what = if kind == "etm" { "an ETM" } else { "an ETE" };
    let (mut state, mut why) = state_of(surroundings, there, (what, super::coresight::DEVICES));
    if state == State::Usable && machine.exists(&format!("{PMUS}/cs_etm")) != Some(true) {
        (state, why) =
            (State::NoDriver, format!("{why}, but /{PMUS}/cs_etm is not there: perf cannot use it"));
    }
    let mut facts = Vec::new();
    if let Some(first) = found.first() {
        let count = FactValue::Number(found.len() as u64);
        let place = format!("/{}", super::coresight::DEVICES);
        facts.push(Fact::new("count", count, "one for each CPU that can be traced", place));
        facts.extend(registers(machine, &first.name));
    }
    Unit {
        id: kind.into(),
        name: name.into(),
        state,
        why,
        good_for: "every branch that ran, with cycle counts and timestamps where asked for".into(),
        privilege: "by perf: your own programs with perf_event_paranoid up to 2, others CAP_PERFMON; by sysfs: root".into(),
        allowed: machine.may(2),
        enable: "perf record -e cs_etm/timestamp,cycacc/u (CONFIG_CORESIGHT and its drivers; then rtscope hardware decode)".into(),
        facts,
    }
}

fn trbe(machine: &Machine, surroundings: &Surroundings, components: &[Component]) -> Unit {
    let there = machine
        .names(super::coresight::DEVICES)
        .map(|_| components.iter().any(|component| component.kind == "trbe"));
    let (state, why) = state_of(surroundings, there, ("a TRBE", super::coresight::DEVICES));
    Unit {
        id: "trbe".into(),
        name: "Trace Buffer Extension (TRBE)".into(),
        state,
        why,
        good_for: "the trace of an ETE straight into memory, one buffer for each CPU, without frames".into(),
        privilege: "as for ETE, which uses it".into(),
        allowed: machine.may(2),
        enable: "CONFIG_CORESIGHT_TRBE; perf takes it for an ETE without being asked".into(),
        facts: Vec::new(),
    }
}

fn spe(machine: &Machine, surroundings: &Surroundings) -> Unit {
    let pmus = machine.names(PMUS);
    let found: Option<String> =
        pmus.as_ref().and_then(|pmus| pmus.iter().find(|name| name.starts_with("arm_spe")).cloned());
    let there = pmus.map(|_| found.is_some());
    let (state, why) = state_of(surroundings, there, ("arm_spe_0", PMUS));
    let mut facts = Vec::new();
    if let Some(pmu) = found {
        for (name, meaning) in [
            ("arch_inst", "samples count instructions of the architecture, not operations of the processor"),
            ("ernd", "intervals are made random by the unit"),
            ("count_size", "bits of latency counters"),
            ("min_interval", "the smallest interval between samples, in operations"),
        ] {
            let file = format!("{PMUS}/{pmu}/caps/{name}");
            let value = machine.number(&file).map_or(FactValue::Unknown, |number| match name {
                "arch_inst" | "ernd" => FactValue::Flag(number != 0),
                _ => FactValue::Number(number),
            });
            facts.push(Fact::new(name, value, meaning, format!("/{file}")));
        }
    }
    Unit {
        id: "spe".into(),
        name: "Statistical Profiling Extension (SPE)".into(),
        state,
        why,
        good_for: "single operations with their latencies, addresses and causes: which accesses to memory are slow".into(),
        privilege: "perf_event_paranoid up to 2 for your own programs; physical addresses and the kernel: CAP_PERFMON".into(),
        allowed: machine.may(2),
        enable: "perf record -e arm_spe// (CONFIG_ARM_SPE_PMU; with KPTI: boot with kpti=off)".into(),
        facts,
    }
}

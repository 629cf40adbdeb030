// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel Processor Trace: whether it is there, and each capability bit.
//!
//! The kernel's files (`intel_pt/caps`) go before CPUID: they are what a user of perf gets. A capability that both have has to be
//! the same, as both are leaf 14h; where only one has it, that one is the source.

use super::machine::PMUS;
use super::{Fact, FactValue, Machine, Surroundings, Unit, pmu_state};

/// A capability: the kernel's file, register (1 is EBX) and bit of CPUID leaf 14h, subleaf 0, and what it means.
type Flag = (&'static str, usize, u32, &'static str);

const FLAGS: [Flag; 15] = [
    ("cr3_filtering", 1, 0, "trace of one address space only (a process), by CR3"),
    (
        "psb_cyc",
        1,
        1,
        "distance of synchronisations can be set; cycle counts (CYC): the finest time there is",
    ),
    ("ip_filtering", 1, 2, "trace of ranges of addresses only, start and stop at an address (--at)"),
    ("mtc", 1, 3, "time from the crystal clock (MTC), at a small cost"),
    ("ptwrite", 1, 4, "values that a program writes into the trace (PTWRITE): software tracepoints in it"),
    (
        "power_event_trace",
        1,
        5,
        "changes of power states (MWAIT, PWRE, PWRX, EXSTOP): what idle states cost a wakeup",
    ),
    ("psb_pmi_preservation", 1, 6, "what was pending survives that the trace is paused"),
    (
        "event_trace",
        1,
        7,
        "interrupts, exceptions, VM exits as events (CFE, EVD): interrupt latency at little volume",
    ),
    ("tnt_disable", 1, 8, "no record of conditional branches: events only, at little volume"),
    ("trigger_tracing", 1, 9, "performance counters and breakpoints start, stop and mark the trace (TRIG)"),
    ("topa_output", 2, 0, "output to memory in a table of pieces (ToPA)"),
    ("topa_multiple_entries", 2, 1, "more than one piece in that table"),
    ("single_range_output", 2, 2, "output to one contiguous piece of memory"),
    ("output_subsys", 2, 3, "output to the trace transport (Intel Trace Hub)"),
    ("payloads_lip", 2, 31, "addresses in packets are linear, with the base of their segment"),
];

/// The same with a number: the kernel's file, register, first bit and number of bits in subleaf 1.
const NUMBERS: [(&str, usize, u32, u32, &str); 4] = [
    ("num_address_ranges", 0, 0, 3, "ranges of addresses for filters"),
    ("mtc_periods", 0, 16, 16, "which distances MTC can have: a bit each, crystal clock / 2^bit"),
    ("cycle_thresholds", 1, 0, 16, "which cycle thresholds can be set: a bit each"),
    ("psb_periods", 1, 16, 16, "which distances PSB can have: a bit each, 2^(bit + 11) bytes"),
];

pub(super) fn unit(machine: &Machine, surroundings: &Surroundings) -> Unit {
    let has = machine.cpuid.bit(7, 0, 1, 25);
    let (state, mut why) =
        pmu_state(machine, surroundings, "intel_pt", has, "CPUID 07h EBX bit 25 has Intel PT");
    if let Some(vendor) = surroundings.vendor.as_deref().filter(|vendor| *vendor != "GenuineIntel") {
        if has != Some(true) {
            why = format!("only Intel's processors have it, and this is {vendor}");
        }
    }
    if surroundings.architecture != "x86_64" {
        why = format!("only Intel's processors have it, and this is {}", surroundings.architecture);
    }
    let is_there = has == Some(true) || machine.exists(&format!("{PMUS}/intel_pt")) == Some(true);
    Unit {
        id: "intel_pt".into(),
        name: "Intel Processor Trace".into(),
        state,
        why,
        good_for: "every branch that ran, with time: what the processor did before a late response, function by function".into(),
        privilege: "your own programs: none with perf_event_paranoid up to 2; the kernel and whole CPUs: up to -1, or CAP_PERFMON".into(),
        allowed: machine.may(2),
        enable: "rtscope hardware capture intel_pt, or perf record -e intel_pt// (decode either with rtscope hardware decode). In a virtual machine: \
                 kvm_intel with pt_mode=1 on the host, and intel-pt=on for the guest's processor"
            .into(),
        facts: if is_there { facts(machine) } else { Vec::new() },
    }
}

fn facts(machine: &Machine) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (name, register, bit, meaning) in FLAGS {
        let file = format!("{PMUS}/intel_pt/caps/{name}");
        let (value, source) = match machine.number(&file) {
            Some(number) => (FactValue::Flag(number != 0), format!("/{file}")),
            None => {
                let flag = machine.cpuid.bit(0x14, 0, register, bit);
                (flag.map_or(FactValue::Unknown, FactValue::Flag), of_cpuid(0, register, bit))
            }
        };
        facts.push(Fact::new(name, value, meaning, source));
    }
    for (name, register, first, bits, meaning) in NUMBERS {
        let file = format!("{PMUS}/intel_pt/caps/{name}");
        let (value, source) = match hex(machine, &file) {
            Some(number) => (FactValue::Number(number), format!("/{file}")),
            None => {
                let word = machine.cpuid.register(0x14, 1, register);
                let number = word.map(|word| u64::from(word >> first) & ((1 << bits) - 1));
                (number.map_or(FactValue::Unknown, FactValue::Number), of_cpuid(1, register, first))
            }
        };
        facts.push(Fact::new(name, value, meaning, source));
    }
    for (name, file, meaning) in [
        (
            "max_nonturbo_ratio",
            "max_nonturbo_ratio",
            "the nominal frequency, in the unit of the ratios in CBR",
        ),
        ("tsc_art_ratio", "tsc_art_ratio", "TSC by crystal clock (CPUID 15h): what MTC is converted with"),
    ] {
        let file = format!("{PMUS}/intel_pt/{file}");
        let value = machine.text(&file).map_or(FactValue::Unknown, FactValue::Text);
        facts.push(Fact::new(name, value, meaning, format!("/{file}")));
    }
    facts
}

/// The kernel writes these in base 16 without a sign of that.
fn hex(machine: &Machine, file: &str) -> Option<u64> {
    u64::from_str_radix(machine.text(file)?.trim_start_matches("0x"), 16).ok()
}

fn of_cpuid(subleaf: u32, register: usize, bit: u32) -> String {
    let name = ["EAX", "EBX", "ECX", "EDX"].get(register).copied().unwrap_or_default();
    format!("CPUID 14h.{subleaf} {name} bit {bit}")
}

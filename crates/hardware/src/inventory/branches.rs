// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of branches: BTS (each branch into memory) and stacks of the last ones (Intel LBR, AMD BRS and LbrExtV2, Arm BRBE).

use super::machine::PMUS;
use super::{Fact, FactValue, Machine, State, Surroundings, Unit, pmu_state};

pub(super) fn bts(machine: &Machine, surroundings: &Surroundings) -> Unit {
    let has = machine.cpuid.bit(1, 0, 3, 21);
    let (state, why) =
        pmu_state(machine, surroundings, "intel_bts", has, "CPUID 01h EDX bit 21 has the debug store");
    Unit {
        id: "intel_bts".into(),
        name: "Intel Branch Trace Store".into(),
        state,
        why,
        good_for: "every taken branch on processors that are too old for Intel PT; slow (each branch is a write), and without time".into(),
        privilege: "perf_event_paranoid up to 1, or CAP_PERFMON: its records have addresses of the kernel".into(),
        allowed: machine.may(1),
        enable: "perf record -e intel_bts//u".into(),
        facts: Vec::new(),
    }
}

/// Every kind; one that belongs to another architecture is absent with that reason.
pub(super) fn stacks(machine: &Machine, surroundings: &Surroundings) -> Vec<Unit> {
    let depth = ["cpu", "cpu_core", "armv8_pmuv3", "armv8_pmuv3_0"].iter().find_map(|pmu| {
        let file = format!("{PMUS}/{pmu}/caps/branches");
        Some((machine.number(&file)?, format!("/{file}")))
    });
    vec![
        lbr(machine, surroundings, depth.as_ref()),
        amd(machine, surroundings, depth.as_ref()),
        brbe(machine, surroundings, depth.as_ref()),
    ]
}

/// What the kernel says of the depth, and where.
type Depth = (u64, String);

struct Stack {
    id: &'static str,
    name: &'static str,
    is_of: &'static str,
    is_vendor: bool,
    has: Option<bool>,
    facts: Vec<Fact>,
}

fn stack(machine: &Machine, surroundings: &Surroundings, depth: Option<&Depth>, stack: Stack) -> Unit {
    let Stack { id, name, is_of, is_vendor, has, mut facts } = stack;
    let (state, why) = match (is_vendor, depth, has) {
        (false, ..) => {
            let here = surroundings.vendor.clone().unwrap_or_else(|| surroundings.architecture.clone());
            (State::Absent, format!("only {is_of} have it, and this is {here}"))
        }
        (true, Some((number, file)), _) => {
            let meaning = "branches in a record, at most";
            facts.insert(0, Fact::new("depth", FactValue::Number(*number), meaning, file.clone()));
            (State::Usable, format!("{file} is there"))
        }
        (true, None, _) if machine.names(PMUS).is_none() => {
            (State::Unknown, format!("/{PMUS} cannot be read{}", surroundings.hidden()))
        }
        (true, None, Some(true)) => (
            State::NoDriver,
            "the processor says it has it, but the kernel's PMU has no caps/branches".to_owned(),
        ),
        (true, None, _) => {
            let why = format!("no PMU of the processor has caps/branches{}", surroundings.decides());
            (State::Absent, why)
        }
    };
    Unit {
        id: id.into(),
        name: name.into(),
        state,
        why,
        good_for: "the last branches before each sample: which path led there, at almost no cost; cycles between them on newer processors".into(),
        privilege: "your own programs: none with perf_event_paranoid up to 2; the kernel: up to 1, or CAP_PERFMON".into(),
        allowed: machine.may(2),
        enable: "perf record -b (decode with rtscope hardware decode)".into(),
        facts: if state == State::Absent { Vec::new() } else { facts },
    }
}

fn lbr(machine: &Machine, surroundings: &Surroundings, depth: Option<&Depth>) -> Unit {
    let cpuid = &machine.cpuid;
    let architectural = cpuid.bit(7, 0, 3, 19);
    let mut facts = vec![Fact::new(
        "architectural",
        architectural.map_or(FactValue::Unknown, FactValue::Flag),
        "described by CPUID 1Ch instead of by the model",
        "CPUID 07h EDX bit 19",
    )];
    if architectural == Some(true) {
        let depths = cpuid.register(0x1c, 0, 0).map(|word| {
            let deep: Vec<String> =
                (0..8).filter(|bit| word >> bit & 1 != 0).map(|bit| (8 * (bit + 1)).to_string()).collect();
            FactValue::Text(deep.join(", "))
        });
        let depths = depths.unwrap_or(FactValue::Unknown);
        facts.push(Fact::new("depths", depths, "depths that can be set", "CPUID 1Ch EAX bits 7:0"));
        let bits = [
            ("cpl_filtering", 1, 0, "branches of the kernel or of programs only"),
            ("branch_filtering", 1, 1, "branches of certain kinds only"),
            (
                "call_stack",
                1,
                2,
                "call stack mode: calls without their returns, a chain of callers without frame pointers",
            ),
            ("mispredict", 2, 0, "whether a branch was predicted"),
            ("timed", 2, 1, "cycles since the branch before"),
            ("branch_type", 2, 2, "the kind of each branch"),
        ];
        for (name, register, bit, meaning) in bits {
            let value = cpuid.bit(0x1c, 0, register, bit).map_or(FactValue::Unknown, FactValue::Flag);
            let register = if register == 1 { "EBX" } else { "ECX" };
            facts.push(Fact::new(name, value, meaning, format!("CPUID 1Ch {register} bit {bit}")));
        }
    }
    let is_vendor = surroundings.vendor.as_deref() == Some("GenuineIntel");
    let parts = Stack {
        id: "intel_lbr",
        name: "Intel Last Branch Records (LBR)",
        is_of: "Intel's processors",
        is_vendor,
        // Older models do not tell by CPUID; only the kernel's tables know their depth.
        has: architectural.filter(|has| *has),
        facts,
    };
    stack(machine, surroundings, depth, parts)
}

fn amd(machine: &Machine, surroundings: &Surroundings, depth: Option<&Depth>) -> Unit {
    let cpuid = &machine.cpuid;
    let brs = cpuid.bit(0x8000_0008, 0, 1, 31);
    let extended = cpuid.bit(0x8000_0022, 0, 0, 1);
    let flag = |value: Option<bool>| value.map_or(FactValue::Unknown, FactValue::Flag);
    let mut facts = vec![
        Fact::new(
            "brs",
            flag(brs),
            "branch sampling of Zen 3: 16 branches, after a fixed event",
            "CPUID 80000008h EBX bit 31",
        ),
        Fact::new(
            "lbr_v2",
            flag(extended),
            "Zen 4 and later: a stack with predictions and speculation",
            "CPUID 80000022h EAX bit 1",
        ),
    ];
    if extended == Some(true) {
        let entries = cpuid.register(0x8000_0022, 0, 1).map(|word| u64::from(word >> 4 & 0x3f));
        let entries = entries.map_or(FactValue::Unknown, FactValue::Number);
        facts.push(Fact::new("entries", entries, "branches in the stack", "CPUID 80000022h EBX bits 9:4"));
    }
    let is_vendor = matches!(surroundings.vendor.as_deref(), Some("AuthenticAMD" | "HygonGenuine"));
    let parts = Stack {
        id: "amd_lbr",
        name: "AMD branch sampling (BRS, LbrExtV2)",
        is_of: "AMD's processors",
        is_vendor,
        has: (brs == Some(true) || extended == Some(true)).then_some(true),
        facts,
    };
    stack(machine, surroundings, depth, parts)
}

fn brbe(machine: &Machine, surroundings: &Surroundings, depth: Option<&Depth>) -> Unit {
    let parts = Stack {
        id: "arm_brbe",
        name: "Arm Branch Record Buffer Extension (BRBE)",
        is_of: "Arm's processors",
        is_vendor: surroundings.architecture == "aarch64",
        // Only the kernel can read the register that tells.
        has: None,
        facts: Vec::new(),
    };
    stack(machine, surroundings, depth, parts)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inventory of machines that are trees of files, and of this one.

use rtscope_hardware::inventory::{Cpuid, FactValue, Inventory, Machine, State};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// `GenuineIntel` or `AuthenticAMD` in EBX, EDX, ECX.
fn vendor(name: &[u8; 12]) -> [u32; 4] {
    let word = |at: usize| u32::from_le_bytes(name[at..at + 4].try_into().unwrap());
    [0x1f, word(0), word(8), word(4)]
}

fn cpuid(name: &[u8; 12], leaves: &[((u32, u32), [u32; 4])]) -> Cpuid {
    let mut table = BTreeMap::from([((0, 0), vendor(name))]);
    table.extend(leaves.iter().copied());
    Cpuid(table)
}

const TSC: u32 = 1 << 4;
const DEBUG_STORE: u32 = 1 << 21;
const PT: [u32; 4] = [0, 1 << 25, 0, 0];

fn fact(inventory: &Inventory, unit: &str, name: &str) -> FactValue {
    let unit = inventory.unit(unit).unwrap();
    let fact = unit.facts.iter().find(|fact| fact.name == name);
    fact.unwrap_or_else(|| panic!("{name} of {unit:?}")).value.clone()
}

fn state(inventory: &Inventory, unit: &str) -> State {
    inventory.unit(unit).unwrap().state
}

fn why<'i>(inventory: &'i Inventory, unit: &str) -> &'i str {
    &inventory.unit(unit).unwrap().why
}

#[test]
fn a_laptop_with_intel_pt_says_each_of_its_bits() {
    let pt = "sys/bus/event_source/devices/intel_pt";
    let files = [
        (format!("{pt}/type"), "8"),
        (format!("{pt}/caps/psb_cyc"), "1"),
        (format!("{pt}/caps/mtc"), "1"),
        (format!("{pt}/caps/ptwrite"), "0"),
        (format!("{pt}/caps/mtc_periods"), "249"),
        (format!("{pt}/max_nonturbo_ratio"), "24"),
        ("sys/bus/event_source/devices/intel_bts/type".to_owned(), "9"),
        ("sys/bus/event_source/devices/cpu/caps/branches".to_owned(), "32"),
        ("proc/sys/kernel/perf_event_paranoid".to_owned(), "2\n"),
        ("proc/self/status".to_owned(), "Name:\tx\nCapEff:\t0000000000000000\n"),
        ("proc/cpuinfo".to_owned(), "processor\t: 0\nmodel name\t: Some Intel\n"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let root = tree(&files);
    // Of the capabilities that have no file here, CPUID has power events and not Event Trace.
    let leaves = [
        ((1, 0), [0, 0, 0, TSC | DEBUG_STORE]),
        ((7, 0), PT),
        ((0x14, 0), [1, 1 << 2 | 1 << 5, 1, 0]),
        ((0x14, 1), [2, 0x3f, 0, 0]),
        ((0x15, 0), [2, 100, 24_000_000, 0]),
    ];
    let machine = Machine::below(root.path(), "x86_64", cpuid(b"GenuineIntel", &leaves));
    let inventory = Inventory::of(&machine);
    assert_eq!(state(&inventory, "intel_pt"), State::Usable);
    let flag = |name: &str| fact(&inventory, "intel_pt", name);
    assert_eq!(flag("psb_cyc"), FactValue::Flag(true));
    assert_eq!(flag("ptwrite"), FactValue::Flag(false));
    assert_eq!(flag("ip_filtering"), FactValue::Flag(true));
    assert_eq!(flag("power_event_trace"), FactValue::Flag(true));
    assert_eq!(flag("event_trace"), FactValue::Flag(false));
    assert_eq!(flag("topa_output"), FactValue::Flag(true));
    // 249 without 0x is base 16, as the kernel writes it.
    assert_eq!(flag("mtc_periods"), FactValue::Number(0x249));
    assert_eq!(flag("num_address_ranges"), FactValue::Number(2));
    assert_eq!(fact(&inventory, "tsc", "ratio"), FactValue::Text("100/2 of 24000000 Hz".into()));
    assert_eq!(fact(&inventory, "intel_lbr", "depth"), FactValue::Number(32));
    // Unprivileged at level 2: PT of one's own programs, but not BTS.
    assert_eq!(inventory.unit("intel_pt").unwrap().allowed, Some(true));
    assert_eq!(inventory.unit("intel_bts").unwrap().allowed, Some(false));
    assert_eq!(state(&inventory, "amd_lbr"), State::Absent);
    assert!(why(&inventory, "amd_lbr").contains("GenuineIntel"));
    assert_eq!(inventory.surroundings.model.as_deref(), Some("Some Intel"));
    assert_eq!(inventory.surroundings.hypervisor, None);
}

#[test]
fn a_processor_with_pt_under_a_kernel_without_is_not_called_absent() {
    let root = tree(&[("sys/bus/event_source/devices/software/type", "1")]);
    let leaves = [((1, 0), [0, 0, 0, TSC]), ((7, 0), PT), ((0x14, 0), [0, 1, 1, 0])];
    let machine = Machine::below(root.path(), "x86_64", cpuid(b"GenuineIntel", &leaves));
    let inventory = Inventory::of(&machine);
    assert_eq!(state(&inventory, "intel_pt"), State::NoDriver);
    assert_eq!(fact(&inventory, "intel_pt", "cr3_filtering"), FactValue::Flag(true));
    assert_eq!(fact(&inventory, "intel_pt", "max_nonturbo_ratio"), FactValue::Unknown);
    // Nothing told whether this process may.
    assert_eq!(inventory.unit("intel_pt").unwrap().allowed, None);
}

#[test]
fn a_guest_says_that_its_hypervisor_decides() {
    let root = tree(&[("sys/bus/event_source/devices/software/type", "1")]);
    let mut kvm = [0u32; 4];
    for (at, word) in [(1, b"KVMK"), (2, b"VMKV"), (3, b"M\0\0\0")] {
        kvm[at] = u32::from_le_bytes(*word);
    }
    let leaves = [((1, 0), [0, 0, 1 << 31, TSC]), ((7, 0), [0; 4]), ((0x4000_0000, 0), kvm)];
    let inventory = Inventory::of(&Machine::below(root.path(), "x86_64", cpuid(b"GenuineIntel", &leaves)));
    assert_eq!(inventory.surroundings.hypervisor.as_deref(), Some("KVMKVMKVM"));
    assert_eq!(state(&inventory, "intel_pt"), State::Absent);
    assert!(why(&inventory, "intel_pt").contains("hypervisor decides"), "{}", why(&inventory, "intel_pt"));
    assert!(inventory.unit("intel_pt").unwrap().enable.contains("pt_mode=1"));
    assert_eq!(state(&inventory, "counters"), State::Absent);
}

#[test]
fn a_container_without_sysfs_does_not_know() {
    let root = tree(&[(".dockerenv", ""), ("proc/self/status", "CapEff:\t0000004000000000\n")]);
    let leaves = [((1, 0), [0, 0, 0, TSC]), ((7, 0), PT)];
    let inventory = Inventory::of(&Machine::below(root.path(), "x86_64", cpuid(b"GenuineIntel", &leaves)));
    assert_eq!(inventory.surroundings.container.as_deref(), Some("docker"));
    for unit in ["intel_pt", "intel_bts", "intel_lbr", "counters"] {
        assert_eq!(state(&inventory, unit), State::Unknown, "{unit}");
        assert!(why(&inventory, unit).contains("container"), "{unit}");
    }
    // CAP_PERFMON alone is enough.
    assert_eq!(inventory.unit("intel_bts").unwrap().allowed, Some(true));
}

fn board() -> TempDir {
    let devices = "sys/bus/coresight/devices";
    let mut files = vec![
        ("sys/bus/event_source/devices/cs_etm/type".to_owned(), "9"),
        ("sys/bus/event_source/devices/arm_spe_0/caps/min_interval".to_owned(), "256"),
        ("sys/bus/event_source/devices/armv8_pmuv3_0/type".to_owned(), "7"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned(), "arch_sys_counter\n"),
        ("sys/class/stm/stm0/masters".to_owned(), "0 127"),
        ("sys/class/stm/stm0/channels".to_owned(), "65536"),
        ("sys/kernel/config/stp-policy/stm0:p_basic.one/user/masters".to_owned(), "48 63"),
        ("sys/kernel/config/stp-policy/stm0:p_basic.one/user/channels".to_owned(), "0 127"),
        (format!("{devices}/etm0/trcidr/trcidr0"), "0x28000ea1"),
        (format!("{devices}/etm0/trcidr/trcidr4"), "0x11170004"),
    ];
    for name in ["etm10", "funnel0", "tmc_etf0", "replicator0", "tmc_etr0", "tpiu0", "stm0"] {
        files.push((format!("{devices}/{name}/name"), ""));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let root = tree(&files);
    let links = [
        ("etm0", "out:0", "funnel0"),
        ("etm10", "out:0", "funnel0"),
        ("stm0", "out:0", "funnel0"),
        ("funnel0", "out:0", "tmc_etf0"),
        ("tmc_etf0", "out:0", "replicator0"),
        ("replicator0", "out:0", "tmc_etr0"),
        ("replicator0", "out:1", "tpiu0"),
        // What no real system has, and a tree of files may have.
        ("tmc_etr0", "out:0", "funnel0"),
    ];
    for (from, name, to) in links {
        let folder = root.path().join(devices).join(from).join("connections");
        fs::create_dir_all(&folder).unwrap();
        symlink(Path::new("../..").join(to), folder.join(name)).unwrap();
    }
    root
}

#[test]
fn a_coresight_board_has_its_components_and_paths() {
    let root = board();
    let inventory = Inventory::of(&Machine::below(root.path(), "aarch64", Cpuid::default()));
    assert_eq!(state(&inventory, "etm"), State::Usable);
    assert_eq!(state(&inventory, "ete"), State::Absent);
    assert_eq!(state(&inventory, "spe"), State::Usable);
    assert_eq!(state(&inventory, "trbe"), State::Absent);
    assert_eq!(state(&inventory, "intel_pt"), State::Absent);
    assert!(why(&inventory, "intel_pt").contains("aarch64"));
    assert_eq!(fact(&inventory, "etm", "count"), FactValue::Number(2));
    assert_eq!(fact(&inventory, "etm", "cycle_counting"), FactValue::Flag(true));
    assert_eq!(fact(&inventory, "etm", "timestamp_bits"), FactValue::Number(8));
    assert_eq!(fact(&inventory, "etm", "address_comparators"), FactValue::Number(4));
    assert_eq!(fact(&inventory, "etm", "context_id_bytes"), FactValue::Unknown);
    assert_eq!(fact(&inventory, "spe", "min_interval"), FactValue::Number(256));
    assert_eq!(state(&inventory, "generic_timer"), State::Usable);
    let paths: Vec<String> = inventory.paths.iter().map(|path| path.join(" > ")).collect();
    for source in ["etm0", "etm10", "stm0"] {
        for way in ["tmc_etf0", "tmc_etf0 > replicator0 > tmc_etr0", "tmc_etf0 > replicator0 > tpiu0"] {
            let path = format!("{source} > funnel0 > {way}");
            assert!(paths.contains(&path), "{path} in {paths:?}");
        }
    }
    assert_eq!(paths.len(), 9, "{paths:?}");
    // Numbers in order, not texts.
    let names: Vec<&str> = inventory.components.iter().map(|component| component.name.as_str()).collect();
    assert!(names.iter().position(|name| *name == "etm0") < names.iter().position(|name| *name == "etm10"));
    assert_eq!(fact(&inventory, "stm", "stm0.masters"), FactValue::Text("0 127".into()));
    let policy = fact(&inventory, "stm", "stm0:p_basic.one/user");
    assert_eq!(policy, FactValue::Text("masters 48 63, channels 0 127".into()));
}

#[test]
fn an_amd_processor_has_its_own_stack() {
    let root = tree(&[("sys/bus/event_source/devices/cpu/caps/branches", "16")]);
    let leaves = [((1, 0), [0, 0, 0, TSC]), ((7, 0), [0; 4]), ((0x8000_0022, 0), [2, 16 << 4, 0, 0])];
    let inventory = Inventory::of(&Machine::below(root.path(), "x86_64", cpuid(b"AuthenticAMD", &leaves)));
    assert_eq!(state(&inventory, "amd_lbr"), State::Usable);
    assert_eq!(fact(&inventory, "amd_lbr", "entries"), FactValue::Number(16));
    assert_eq!(state(&inventory, "intel_lbr"), State::Absent);
    assert!(why(&inventory, "intel_pt").contains("AuthenticAMD"));
}

#[test]
fn this_machine_gives_a_reason_for_each_unit() {
    let inventory = Inventory::of(&Machine::here());
    for unit in &inventory.units {
        assert!(!unit.why.is_empty() && !unit.enable.is_empty() && !unit.good_for.is_empty(), "{unit:?}");
        // sysfs and the answer are the same thing.
        let pmu = Path::new("/sys/bus/event_source/devices").join(&unit.id);
        if unit.id.starts_with("intel_") && unit.id != "intel_lbr" {
            assert_eq!(unit.state == State::Usable, pmu.exists(), "{unit:?}");
        }
    }
}

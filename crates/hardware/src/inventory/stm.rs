// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of the class stm (CoreSight STM, Intel Trace Hub), and the policies by which their channels are given out.

use super::{Fact, FactValue, Machine, State, Surroundings, Unit};

const CLASS: &str = "sys/class/stm";
const POLICIES: &str = "sys/kernel/config/stp-policy";

pub(super) fn unit(machine: &Machine, surroundings: &Surroundings) -> Unit {
    let devices = machine.names(CLASS);
    let (state, why) = match &devices {
        Some(devices) if !devices.is_empty() => {
            (State::Usable, format!("/{CLASS} has {}", devices.join(", ")))
        }
        Some(_) => (
            State::NoDriver,
            format!("the class is there, but no device is: no driver found one{}", surroundings.decides()),
        ),
        None => (
            State::Absent,
            format!(
                "/{CLASS} is not there: the module stm_core is not loaded, or the kernel is without CONFIG_STM"
            ),
        ),
    };
    let mut facts = Vec::new();
    for device in devices.iter().flatten() {
        for (name, meaning) in [("masters", "masters that it has"), ("channels", "channels of each master")] {
            let file = format!("{CLASS}/{device}/{name}");
            let value = machine.text(&file).map_or(FactValue::Unknown, FactValue::Text);
            facts.push(Fact::new(format!("{device}.{name}"), value, meaning, format!("/{file}")));
        }
        let node = format!("dev/{device}");
        let is_there = machine.exists(&node).map_or(FactValue::Unknown, FactValue::Flag);
        let meaning = "the device that programs open";
        facts.push(Fact::new(format!("{device}.node"), is_there, meaning, format!("/{node}")));
    }
    facts.extend(policies(machine));
    Unit {
        id: "stm".into(),
        name: "System Trace Macrocell devices".into(),
        state,
        why,
        good_for: "messages of programs and of the kernel in the hardware's trace, by a store to memory; one clock with the other sources".into(),
        privilege: "read and write on /dev/NAME (root, unless a rule of udev says otherwise); policies: root".into(),
        allowed: machine.is_privileged(),
        enable: "modprobe stm_core and the device's driver; a policy is a directory: mkdir /sys/kernel/config/stp-policy/DEVICE:p_basic.NAME".into(),
        facts,
    }
}

/// `DEVICE:PROTOCOL.POLICY/NODE` with its masters and channels.
fn policies(machine: &Machine) -> Vec<Fact> {
    let mut facts = Vec::new();
    for policy in machine.names(POLICIES).unwrap_or_default() {
        for node in machine.names(&format!("{POLICIES}/{policy}")).unwrap_or_default() {
            let folder = format!("{POLICIES}/{policy}/{node}");
            let range = |name: &str| machine.text(&format!("{folder}/{name}"));
            if let Some((masters, channels)) = range("masters").zip(range("channels")) {
                let value = FactValue::Text(format!("masters {masters}, channels {channels}"));
                let meaning = "what a program that asks by this name is given";
                facts.push(Fact::new(format!("{policy}/{node}"), value, meaning, format!("/{folder}")));
            }
        }
    }
    facts
}

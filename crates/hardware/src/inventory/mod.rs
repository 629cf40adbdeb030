// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which trace units this machine has, and what each of them needs.
//!
//! The processor (CPUID), the kernel (sysfs) and the surroundings (a hypervisor, a container) each have a word: a unit that the
//! processor has and the kernel does not drive is not there for anybody, and one that a hypervisor hides may well exist. So the
//! answer is one of four ([`State`]) and always comes with its reason. Everything is read below a root directory, so that a tree
//! of files from another machine gives that machine's answer.

mod arm;
mod branches;
mod clocks;
mod coresight;
mod machine;
mod pt;
mod stm;
mod surroundings;

pub use machine::{Cpuid, Machine};
pub use surroundings::Surroundings;

use serde::Serialize;
use std::fmt;

/// Whether a unit can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The kernel offers it.
    Usable,
    /// The processor has it, but the kernel does not offer it.
    NoDriver,
    /// Neither has it.
    Absent,
    /// What would tell could not be read.
    Unknown,
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FactValue {
    /// It has this property, or does not.
    Flag(bool),
    /// How many, or which bits.
    Number(u64),
    /// A name or a list.
    Text(String),
    /// It could not be read.
    Unknown,
}

impl fmt::Display for FactValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FactValue::Flag(true) => f.write_str("yes"),
            FactValue::Flag(false) => f.write_str("no"),
            FactValue::Number(number) => write!(f, "{number}"),
            FactValue::Text(text) => f.write_str(text),
            FactValue::Unknown => f.write_str("unknown"),
        }
    }
}

/// A property of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Its name, as the kernel has it where it has one.
    pub name: String,
    /// Its value.
    pub value: FactValue,
    /// What that means for a user.
    pub meaning: String,
    /// Where it was read.
    pub source: String,
}

impl Fact {
    fn new(
        name: impl Into<String>,
        value: FactValue,
        meaning: impl Into<String>,
        source: impl Into<String>,
    ) -> Fact {
        Fact { name: name.into(), value, meaning: meaning.into(), source: source.into() }
    }
}

/// A trace unit, or a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// A short name that stays the same.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whether it can be used.
    pub state: State,
    /// Why this is the state.
    pub why: String,
    /// What it is good for.
    pub good_for: String,
    /// The privilege that using it needs.
    pub privilege: String,
    /// Whether this process has that privilege; `None` when that is not known.
    pub allowed: Option<bool>,
    /// What to do to use it, or to get it.
    pub enable: String,
    /// Its properties.
    pub facts: Vec<Fact>,
}

/// A component of a CoreSight system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Component {
    /// Its name in sysfs.
    pub name: String,
    /// What it is.
    pub kind: String,
    /// The components that its trace goes to.
    pub outputs: Vec<String>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// Around this process.
    pub surroundings: Surroundings,
    /// All units that are known, whether they are there or not.
    pub units: Vec<Unit>,
    /// CoreSight components.
    pub components: Vec<Component>,
    /// Ways from a CoreSight source to a sink, by names.
    pub paths: Vec<Vec<String>>,
}

impl Inventory {
    /// Looks at a machine.
    #[must_use]
    pub fn of(machine: &Machine) -> Inventory {
        let surroundings = Surroundings::of(machine);
        let (components, paths) = coresight::graph(machine);
        let mut units = vec![pt::unit(machine, &surroundings), branches::bts(machine, &surroundings)];
        units.extend(branches::stacks(machine, &surroundings));
        units.extend(arm::units(machine, &surroundings, &components));
        units.push(stm::unit(machine, &surroundings));
        units.extend(clocks::units(machine, &surroundings));
        Inventory { surroundings, units, components, paths }
    }

    /// The unit with this short name.
    #[must_use]
    pub fn unit(&self, id: &str) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.id == id)
    }
}

/// The state of a unit whose driver is a PMU in sysfs.
fn pmu_state(
    machine: &Machine,
    surroundings: &Surroundings,
    pmu: &str,
    has_hardware: Option<bool>,
    hardware: &str,
) -> (State, String) {
    let path = format!("{}/{pmu}", machine::PMUS);
    match (machine.exists(&path), has_hardware) {
        (Some(true), _) => (State::Usable, format!("/{path} is there")),
        (None, _) => (State::Unknown, format!("/{} cannot be read{}", machine::PMUS, surroundings.hidden())),
        (Some(false), Some(true)) => {
            (State::NoDriver, format!("{hardware}, but /{path} is not there: the kernel does not drive it"))
        }
        (Some(false), Some(false)) => (
            State::Absent,
            format!(
                "neither the kernel nor the processor has it (not found: {hardware}){}",
                surroundings.decides()
            ),
        ),
        (Some(false), None) => (State::Absent, format!("/{path} is not there{}", surroundings.decides())),
    }
}

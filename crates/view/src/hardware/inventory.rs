// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inventory: units with their state, its reason, and what to do.

use super::SCHEMA;
use crate::label::clean;
use rtscope_hardware::inventory::{Fact, FactValue, Inventory, State, Surroundings, Unit};
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Report<'i> {
    schema: &'static str,
    #[serde(flatten)]
    inventory: &'i Inventory,
}

/// One object.
///
/// # Errors
/// Never, as all of it is numbers and text.
pub fn inventory_json(inventory: &Inventory) -> serde_json::Result<String> {
    serde_json::to_string(&Report { schema: SCHEMA, inventory })
}

fn state(state: State) -> &'static str {
    match state {
        State::Usable => "usable",
        State::NoDriver => "no driver",
        State::Absent => "absent",
        State::Unknown => "unknown",
    }
}

/// A line for each unit, for a list of other things.
#[must_use]
pub fn inventory_lines(inventory: &Inventory) -> String {
    let line = |unit: &Unit| format!("{:<9}  {}\n", state(unit.state), unit.name);
    inventory.units.iter().map(line).collect()
}

/// The whole; `verbose`: each fact with its meaning and source, and what absent units would be good for.
#[must_use]
pub fn inventory_text(inventory: &Inventory, verbose: bool) -> String {
    let mut text = surroundings(&inventory.surroundings);
    for unit in &inventory.units {
        let is_there = matches!(unit.state, State::Usable | State::NoDriver);
        let _ = writeln!(text, "\n{:<9}  {}", state(unit.state), unit.name);
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{:11}{:<11}{}", "", format!("{name}:"), clean(value));
        };
        line("why", &unit.why);
        if is_there || verbose {
            line("good for", &unit.good_for);
            line("privilege", &format!("{}{}", unit.privilege, allowed(unit.allowed)));
            line("enable", &unit.enable);
        }
        if verbose {
            unit.facts.iter().for_each(|fact| line("has", &whole_fact(fact)));
        } else {
            short_facts(&unit.facts, &mut line);
        }
    }
    graph(inventory, &mut text);
    text
}

fn allowed(allowed: Option<bool>) -> &'static str {
    match allowed {
        Some(true) => " (this process has it)",
        Some(false) => " (this process does not have it)",
        None => "",
    }
}

fn surroundings(around: &Surroundings) -> String {
    let mut parts = vec![around.architecture.clone()];
    parts.extend(around.model.clone().or_else(|| around.vendor.clone()));
    parts.push(match &around.hypervisor {
        Some(name) => format!("virtual machine ({name})"),
        None => "no sign of a hypervisor".to_owned(),
    });
    parts.extend(around.container.as_ref().map(|name| format!("container ({name})")));
    parts.push(match around.perf_event_paranoid {
        Some(level) => format!("perf_event_paranoid {level}"),
        None => "perf_event_paranoid unknown".to_owned(),
    });
    clean(&parts.join(", ")) + "\n"
}

fn whole_fact(fact: &Fact) -> String {
    format!("{} = {}: {} [{}]", fact.name, fact.value, fact.meaning, fact.source)
}

fn short_facts(facts: &[Fact], line: &mut impl FnMut(&str, &str)) {
    let with = |value: &FactValue| {
        let names = facts.iter().filter(|fact| fact.value == *value).map(|fact| fact.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let lists = [
        ("has", FactValue::Flag(true)),
        ("has not", FactValue::Flag(false)),
        ("unknown", FactValue::Unknown),
    ];
    for (name, value) in lists {
        let names = with(&value);
        if !names.is_empty() {
            line(name, &names);
        }
    }
    let numbers = facts.iter().filter(|fact| matches!(fact.value, FactValue::Number(_) | FactValue::Text(_)));
    let numbers: Vec<String> = numbers.map(|fact| format!("{} {}", fact.name, fact.value)).collect();
    if !numbers.is_empty() {
        line("values", &numbers.join(", "));
    }
}

fn graph(inventory: &Inventory, text: &mut String) {
    if inventory.components.is_empty() {
        return;
    }
    text.push_str("\nCoreSight components\n");
    for component in &inventory.components {
        let outputs = match component.outputs.is_empty() {
            true => String::new(),
            false => format!(" → {}", component.outputs.join(", ")),
        };
        let _ = writeln!(text, "{:11}{} ({}){}", "", clean(&component.name), component.kind, clean(&outputs));
    }
    text.push_str("\nPaths from sources to sinks\n");
    for path in &inventory.paths {
        let _ = writeln!(text, "{:11}{}", "", clean(&path.join(" → ")));
    }
}

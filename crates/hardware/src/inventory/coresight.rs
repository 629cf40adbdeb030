// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The components of a CoreSight system and how trace gets from its sources to its sinks.
//!
//! A component has a directory with links `out:0`, `out:1`, … to the components behind it (`connections` since Linux 6.1, in the
//! directory itself before).

use super::{Component, Machine};
use std::collections::BTreeMap;

/// The bus.
pub(super) const DEVICES: &str = "sys/bus/coresight/devices";

/// Beginnings of names, longest first where one begins with another, and what they are.
const KINDS: [(&str, &str); 14] = [
    ("tmc_etr", "etr"),
    ("tmc_etf", "etf"),
    ("tmc_etb", "etb"),
    ("tmc_", "tmc"),
    ("etb", "etb"),
    ("etm", "etm"),
    ("ete", "ete"),
    ("trbe", "trbe"),
    ("tpiu", "tpiu"),
    ("stm", "stm"),
    ("funnel", "funnel"),
    ("replicator", "replicator"),
    ("cti", "cti"),
    ("tpda", "tpda"),
];
const SOURCES: [&str; 3] = ["etm", "ete", "stm"];
const SINKS: [&str; 5] = ["etr", "etf", "etb", "trbe", "tpiu"];
/// Ways beyond this number are not listed: a system has a few for each CPU.
const PATHS_MAX: usize = 4096;

fn kind_of(name: &str) -> &'static str {
    KINDS.iter().find(|(begin, _)| name.starts_with(begin)).map_or("other", |(_, kind)| kind)
}

/// The components and the ways from sources to sinks.
pub(super) fn graph(machine: &Machine) -> (Vec<Component>, Vec<Vec<String>>) {
    let names = machine.names(DEVICES).unwrap_or_default();
    let components: Vec<Component> = names
        .into_iter()
        .map(|name| {
            let outputs = outputs(machine, &name);
            Component { kind: kind_of(&name).to_owned(), outputs, name }
        })
        .collect();
    let by_name: BTreeMap<&str, &Component> =
        components.iter().map(|component| (component.name.as_str(), component)).collect();
    let mut paths = Vec::new();
    for source in components.iter().filter(|component| SOURCES.contains(&component.kind.as_str())) {
        follow(source, &by_name, &mut vec![source.name.clone()], &mut paths);
    }
    (components, paths)
}

fn outputs(machine: &Machine, name: &str) -> Vec<String> {
    let mut outputs = Vec::new();
    for folder in [format!("{DEVICES}/{name}/connections"), format!("{DEVICES}/{name}")] {
        let links = machine.names(&folder).unwrap_or_default();
        for link in links.iter().filter(|link| link.starts_with("out:")) {
            outputs.extend(machine.link(&format!("{folder}/{link}")));
        }
    }
    outputs.dedup();
    outputs
}

fn follow<'c>(
    at: &'c Component,
    by_name: &BTreeMap<&str, &'c Component>,
    path: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
) {
    if paths.len() >= PATHS_MAX {
        return;
    }
    // An ETF in the middle of a way is a sink, too, if it is told to be.
    if SINKS.contains(&at.kind.as_str()) {
        paths.push(path.clone());
    }
    for output in &at.outputs {
        let Some(next) = by_name.get(output.as_str()) else { continue };
        // No tree of files may send this round and round.
        if path.contains(&next.name) {
            continue;
        }
        path.push(next.name.clone());
        follow(next, by_name, path, paths);
        path.pop();
    }
}

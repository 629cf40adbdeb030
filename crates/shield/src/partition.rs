// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Isolating CPUs: a cpuset partition where control groups of version 2 have cpusets, exclusive cpusets of version 1 where
//! those have them, else the affinity of each task.
//!
//! It comes last, so that it is undone first: while CPUs are isolated the kernel accepts no affinity that includes them.

use crate::form::Form;
use crate::knobs::PARTITION;
use crate::step::{Step, Target};
use crate::{Cpus, System};
use serde::{Deserialize, Serialize};

/// Our control group.
const NAME: &str = "rtscope-shield";
/// Everybody else's, with cpusets of version 1.
const OTHERS: &str = "rtscope-others";

/// How CPUs are isolated here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Isolation {
    /// An isolated partition.
    Partition {
        /// Where control groups of version 2 are.
        mount: String,
    },
    /// Exclusive cpusets of version 1, without balancing.
    Cpusets {
        /// Where cpusets are.
        mount: String,
        /// Begins the names of their files, unless they are mounted with noprefix.
        prefix: String,
    },
    /// Not at all: a scheduler lends them (mode artis).
    Lent,
    /// Affinities of tasks only.
    Affinities {
        /// Why nothing better.
        why: String,
    },
}

impl Isolation {
    /// Looks for what this machine has.
    pub fn find(system: &System) -> Isolation {
        let mounts = system.read_whole("/proc/self/mounts").or_else(|_| system.read_whole("/proc/mounts"));
        let mounts = mounts.unwrap_or_default();
        let mounts = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?.to_owned(), words.next()?, words.next()?.split(',').any(|o| o == "cpuset")))
        });
        let mounts: Vec<(String, &str, bool)> = mounts.collect();
        for (mount, ..) in mounts.iter().filter(|(_, kind, _)| *kind == "cgroup2") {
            let controllers = system.read(&format!("{mount}/cgroup.controllers")).unwrap_or_default();
            if controllers.split_whitespace().any(|name| name == "cpuset") {
                return Isolation::Partition { mount: mount.clone() };
            }
        }
        for (mount, ..) in mounts.iter().filter(|(_, kind, cpuset)| *kind == "cgroup" && *cpuset) {
            for prefix in ["cpuset.", ""] {
                if system.exists(&format!("{mount}/{prefix}cpus")) {
                    return Isolation::Cpusets { mount: mount.clone(), prefix: prefix.to_owned() };
                }
            }
        }
        Isolation::Affinities { why: "no cgroup mounted here has the cpuset controller".to_owned() }
    }

    /// The control group for real-time tasks.
    pub fn group(&self) -> Option<String> {
        match self {
            Isolation::Partition { mount } | Isolation::Cpusets { mount, .. } => {
                Some(format!("{mount}/{NAME}"))
            }
            Isolation::Affinities { .. } | Isolation::Lent => None,
        }
    }

    /// Whether tasks stay away by their own affinity, so that each must be changed.
    pub fn needs_affinities(&self) -> bool {
        matches!(self, Isolation::Affinities { .. })
    }

    /// What has to be done.
    pub fn steps(&self, system: &System, rt: &Cpus, others: &Cpus) -> Vec<Step> {
        match self {
            Isolation::Partition { mount } => partition(system, mount, rt),
            Isolation::Cpusets { mount, prefix } => cpusets(system, mount, prefix, rt, others),
            Isolation::Affinities { .. } | Isolation::Lent => Vec::new(),
        }
    }
}

fn step(target: Target, old: Option<String>, wanted: &str) -> Step {
    let knob = PARTITION.to_owned();
    Step { knob, target, label: String::new(), old, wanted: wanted.to_owned(), outcome: None }
}

/// A group that is not there yet, or somebody else's: then it stays.
fn group(system: &System, path: &str) -> Step {
    let old = system.exists(path).then(|| "there".to_owned());
    step(Target::Group { path: path.to_owned() }, old, "there")
}

/// A file of a group. `first`: what it reads in a new group, where that has to be written back before the group can go.
fn file(system: &System, path: String, form: Form, first: Option<&str>, wanted: &str) -> Step {
    let old = system.read(&path).ok().map(|text| form.value(&text)).or(first.map(str::to_owned));
    step(Target::File { read: path.clone(), path, form }, old, wanted)
}

fn partition(system: &System, mount: &str, rt: &Cpus) -> Vec<Step> {
    let path = format!("{mount}/{NAME}");
    let control = format!("{mount}/cgroup.subtree_control");
    let control = file(system, control, Form::Controller, None, "+cpuset");
    let mut steps = Vec::new();
    if control.old.as_deref() != Some("+cpuset") {
        steps.push(control);
    }
    steps.push(group(system, &path));
    steps.push(file(system, format!("{path}/cpuset.cpus"), Form::List, None, &rt.to_string()));
    let state = format!("{path}/cpuset.cpus.partition");
    steps.push(file(system, state, Form::Word, Some("member"), "isolated"));
    steps
}

fn cpusets(system: &System, mount: &str, prefix: &str, rt: &Cpus, others: &Cpus) -> Vec<Step> {
    let mems = system.read(&format!("{mount}/{prefix}mems")).unwrap_or_default();
    let mut steps = Vec::new();
    for (name, cpus) in [(OTHERS, others), (NAME, rt)] {
        let path = format!("{mount}/{name}");
        let set = |file_name: &str, form, wanted: &str| {
            file(system, format!("{path}/{prefix}{file_name}"), form, None, wanted)
        };
        steps.push(group(system, &path));
        steps.push(set("cpus", Form::List, &cpus.to_string()));
        steps.push(set("mems", Form::List, mems.trim()));
        if name == OTHERS {
            steps.push(step(Target::Threads { from: mount.to_owned(), to: path.clone() }, None, OTHERS));
        } else {
            steps.push(set("cpu_exclusive", Form::Word, "1"));
            steps.push(set("sched_load_balance", Form::Word, "0"));
        }
    }
    // The whole machine's: while it is on, its domain spans the isolated CPUs.
    steps.push(file(system, format!("{mount}/{prefix}sched_load_balance"), Form::Word, None, "0"));
    steps
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has become of a shield's CPUs: they can be switched off and on, and the kernel then changes what sets them apart.

use crate::form::Form;
use crate::journal::Journal;
use crate::partition::Isolation;
use crate::{Cpus, System};
use serde::Serialize;

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Which CPUs there are, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The real-time CPUs that are online.
    pub rt: Cpus,
    /// All others that are online.
    pub others: Cpus,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// What is wrong with a shield as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// For people, with what to do.
    pub what: String,
    /// Whether it no longer shields anything.
    pub is_down: bool,
}

/// Looks at it.
pub fn health(system: &System, journal: &Journal) -> Health {
    let list = |text: &str| Cpus::from_list(text).unwrap_or_default();
    let (rt, others) = (list(&journal.rt), list(&journal.others));
    let Ok(online) = system.read(ONLINE).map(|text| list(&text)) else {
        let what = format!("{ONLINE} cannot be read: which CPUs there are is not known");
        return Health { rt, others, problems: vec![Problem { what, is_down: false }] };
    };
    let (rt_off, others_off) = (rt.without(&online), others.without(&online));
    let new = online.without(&rt).without(&others);
    let (rt_on, others_on) = (rt.without(&rt_off), online.without(&rt));
    let switch_on = |cpus: &Cpus| {
        let files = cpus.iter().map(|cpu| format!("echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"));
        files.collect::<Vec<_>>().join("; ")
    };
    let mut problems = Vec::new();
    let mut problem = |is_down: bool, what: String| problems.push(Problem { what, is_down });
    if rt_on.is_empty() {
        problem(
            true,
            format!(
                "all shielded CPUs ({rt}) are offline: their tasks run on the others ({})",
                switch_on(&rt_off)
            ),
        );
    } else if !rt_off.is_empty() {
        problem(false, format!("CPUs {rt_off} of the shield are offline ({})", switch_on(&rt_off)));
    }
    if others_on.is_empty() {
        problem(
            true,
            format!(
                "CPUs {others}, which had everything else, are offline: all of it runs on the shielded CPUs now ({})",
                switch_on(&others_off)
            ),
        );
    } else if !others_off.is_empty() {
        problem(false, format!("CPUs {others_off}, of those for everything else, are offline"));
    }
    if !new.is_empty() {
        problem(
            false,
            format!(
                "CPUs {new} came online after the shield was made; they are not shielded, and have their share of everything else"
            ),
        );
    }
    if let Some(what) = partition(system, journal) {
        problem(true, what);
    }
    Health { rt: rt_on, others: others_on, problems }
}

/// What the kernel says of the partition where that does not hold.
fn partition(system: &System, journal: &Journal) -> Option<String> {
    let Isolation::Partition { .. } = &journal.apart else { return None };
    let file = format!("{}/cpuset.cpus.partition", journal.apart.group()?);
    let state = system.read(&file).ok()?;
    let step = journal.steps.iter().find(|step| step.place() == file)?;
    let is_so = Form::Word.same(&state, &step.wanted);
    (!is_so).then(|| format!("the CPUs are no longer isolated: {file} is '{}'", state.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::Level;
    use crate::plan::plan;
    use std::fs;

    #[test]
    fn cpus_that_went_and_came_are_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        fs::create_dir_all(system.path("/sys/devices/system/cpu")).expect("made");
        let online = |cpus: &str| fs::write(system.path(ONLINE), cpus).expect("written");
        online("0-3\n");
        let plan = plan(&system, "2-3", Level::Basic).expect("a plan");
        let journal = Journal::new(&system, &plan);
        let told = |cpus: &str| {
            online(cpus);
            let health = health(&system, &journal);
            let whats: Vec<(bool, String)> =
                health.problems.into_iter().map(|problem| (problem.is_down, problem.what)).collect();
            (health.rt.to_string(), health.others.to_string(), whats)
        };
        assert_eq!(told("0-3\n"), ("2-3".into(), "0-1".into(), vec![]));
        let (rt, others, whats) = told("0-2\n");
        assert_eq!((rt.as_str(), others.as_str(), whats.len(), whats[0].0), ("2", "0-1", 1, false));
        assert!(whats[0].1.contains("CPUs 3 of the shield are offline (echo 1 > /sys/"), "{whats:?}");
        let (rt, _, whats) = told("0-1\n");
        assert!(rt.is_empty() && whats[0].0 && whats[0].1.contains("all shielded CPUs (2-3) are offline"));
        let (_, others, whats) = told("2-3\n");
        assert!(
            others.is_empty() && whats[0].0 && whats[0].1.contains("all of it runs on the shielded CPUs")
        );
        let (_, others, whats) = told("0,2-5\n");
        assert_eq!((others.as_str(), whats.len()), ("0,4-5", 2));
        assert!(whats.iter().all(|(is_down, _)| !is_down) && whats[1].1.contains("CPUs 4-5 came online"));
    }
}

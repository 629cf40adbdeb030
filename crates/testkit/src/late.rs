// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the iterations that rtscope calls late were by the victim's own clock, one by one.
//!
//! rtscope's response ends when the victim leaves the CPU, the victim's own at its last look at the clock, so rtscope's is never
//! shorter. An iteration that only rtscope calls late was either near the deadline at that look, and the way into sleep did the rest,
//! or in time, and held up on that way: by a hypervisor that took the CPU, or by a thread that came in between. The second kind says
//! nothing of rtscope's limit, however little it is beyond it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::WorkloadOutput;

/// An iteration: its thread, and the time at which it was to begin.
pub type Iteration = (u64, u64);

/// The iterations that a victim noted: late ones and those near its deadline, with their response times.
#[derive(Debug, Default)]
pub struct VictimNotes {
    /// Later than its deadline.
    pub late: BTreeMap<Iteration, u64>,
    /// Not later, but within the victim's margin.
    pub near: BTreeMap<Iteration, u64>,
}

impl VictimNotes {
    /// Reads what a victim printed.
    pub fn of(victim: &WorkloadOutput) -> Result<VictimNotes> {
        let number = |note: &Value, key| note[key].as_u64().with_context(|| format!("no '{key}' in {note}"));
        let read = |key| -> Result<BTreeMap<Iteration, u64>> {
            let note = |note: &Value| {
                let asked_ns = number(note, "asked_ns")?;
                Ok(((number(note, "tid")?, asked_ns), number(note, "done_ns")? - asked_ns))
            };
            victim.all(key).map(note).collect()
        };
        Ok(VictimNotes { late: read("late")?, near: read("near")? })
    }

    /// Compares with what rtscope calls late.
    pub fn compare(&self, by_rtscope: impl IntoIterator<Item = Iteration>) -> Result<Comparison> {
        let mut comparison = Comparison::default();
        let mut told = BTreeSet::new();
        for iteration in by_rtscope {
            ensure!(told.insert(iteration), "rtscope calls iteration {iteration:?} late twice");
            match (self.late.contains_key(&iteration), self.near.contains_key(&iteration)) {
                (true, _) => {}
                (false, true) => comparison.near.push(iteration),
                (false, false) => comparison.after.push(iteration),
            }
        }
        comparison.missed = self.late.keys().filter(|iteration| !told.contains(iteration)).copied().collect();
        Ok(comparison)
    }
}

/// Iterations that only one of the two calls late.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Late by the victim only.
    pub missed: Vec<Iteration>,
    /// Late by rtscope only, and near the deadline by the victim.
    pub near: Vec<Iteration>,
    /// Late by rtscope only, and in time by the victim: it was held up after its last look at the clock.
    pub after: Vec<Iteration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn what_only_one_calls_late_is_told_apart_by_the_victims_clock() {
        let note = |key: &str, asked_ns: u64, done_ns: u64| json!({key: {"tid": 7, "asked_ns": asked_ns, "done_ns": done_ns}});
        let lines = vec![
            note("late", 1000, 1600),
            note("late", 2000, 2501),
            note("near", 3000, 3490),
            note("near", 4000, 4490),
        ];
        let victim = WorkloadOutput { status: ExitStatus::from_raw(0), ready: Value::Null, lines };
        let notes = VictimNotes::of(&victim).expect("complete");
        assert_eq!(notes.late.get(&(7, 2000)), Some(&501));
        let comparison = notes.compare([(7, 1000), (7, 3000), (7, 5000)]).expect("each once");
        assert_eq!(comparison.missed, [(7, 2000)]);
        assert_eq!(comparison.near, [(7, 3000)]);
        assert_eq!(comparison.after, [(7, 5000)]);
        assert_eq!(notes.compare([(8, 1000)]).expect("each once").missed.len(), 2, "another thread's");
        assert!(notes.compare([(7, 1000), (7, 1000)]).is_err());
    }
}

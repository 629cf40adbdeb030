// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of kernels and tests, for people and as JSON.

use serde_json::{Value, json};

use super::column::KernelRun;
use super::guest::Verdict;
use super::suite::{Suite, Test};

/// Lines of the table: a row for each test, a column for each kernel, and the reasons below.
pub fn lines(suite: &Suite, runs: &[KernelRun]) -> Vec<String> {
    let width = suite.tests.iter().map(|test| test.name.len() + 2).max().unwrap_or(0).max(20);
    let mut reasons = Vec::new();
    let mut lines = vec![row(width, "", runs.iter().map(|run| run.kernel.to_owned()))];
    lines.push(row(width, "", runs.iter().map(|run| run.release.clone().unwrap_or_default())));
    let mut program = "";
    for (number, test) in suite.tests.iter().enumerate() {
        if test.program != program {
            program = &test.program;
            lines.push(program.to_owned());
        }
        let cells = runs.iter().map(|run| match &run.verdicts[number] {
            Some(verdict) => cell(verdict, &mut reasons),
            None => "-".to_owned(),
        });
        let cells: Vec<String> = cells.collect();
        lines.push(row(width, &format!("  {}", test.name), cells.into_iter()));
    }
    let logs: Vec<String> = runs.iter().map(|run| cell(&run.log, &mut reasons)).collect();
    lines.push(row(width, "kernel log", logs.into_iter()));
    lines.push(row(width, "time", runs.iter().map(|run| format!("{} s", run.time.as_secs()))));
    lines.extend(reasons.iter().enumerate().map(|(at, reason)| format!("{:>4}  {reason}", at + 1)));
    let notes = |run: &KernelRun| {
        run.notes.iter().map(|note| format!("  {}: {note}", run.kernel)).collect::<Vec<_>>()
    };
    lines.extend(runs.iter().flat_map(notes));
    lines
}

/// A kernel in one line.
pub fn summary(run: &KernelRun) -> String {
    let verdicts = || run.verdicts.iter().flatten().chain([&run.log]);
    let passed = verdicts().filter(|verdict| **verdict == Verdict::Pass).count();
    let failed = verdicts().filter(|verdict| matches!(verdict, Verdict::Fail(_))).count();
    let skipped = verdicts().count() - passed - failed;
    let release = run.release.as_deref().map_or("did not boot", shortened);
    let time = run.time.as_secs();
    format!("{} ({release}): {passed} passed, {failed} failed, {skipped} skipped ({time} s)", run.kernel)
}

fn row(width: usize, name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("  {:<22}", shortened(&cell))).collect();
    format!("{name:<width$}{cells}").trim_end().to_owned()
}

/// Releases are long.
fn shortened(cell: &str) -> &str {
    cell.trim_end_matches("-amd64")
}

/// A word for a verdict, and the number of its reason.
fn cell(verdict: &Verdict, reasons: &mut Vec<String>) -> String {
    let (word, reason) = match verdict {
        Verdict::Pass => return "pass".to_owned(),
        Verdict::Fail(reason) => ("FAIL", reason),
        Verdict::Skip(reason) => ("skip", reason),
    };
    let known = reasons.iter().position(|known| known == reason);
    let at = known.unwrap_or_else(|| {
        reasons.push(reason.clone());
        reasons.len() - 1
    });
    format!("{word} {}", at + 1)
}

/// The same for programs: one object for each kernel.
pub fn to_json(suite: &Suite, run: &KernelRun) -> Value {
    let tests = suite.tests.iter().zip(&run.verdicts).filter_map(|(Test { program, name, .. }, verdict)| {
        let (result, reason) = words(verdict.as_ref()?);
        Some(json!({"program": program, "test": name, "result": result, "reason": reason}))
    });
    let (log, log_reason) = words(&run.log);
    json!({
        "kernel": run.kernel,
        "release": run.release,
        "seconds": run.time.as_secs_f64(),
        "tests": tests.collect::<Vec<_>>(),
        "kernel_log": {"result": log, "reason": log_reason},
        "notes": run.notes,
    })
}

fn words(verdict: &Verdict) -> (&'static str, Option<&str>) {
    let reason = match verdict {
        Verdict::Pass => None,
        Verdict::Fail(reason) | Verdict::Skip(reason) => Some(reason.as_str()),
    };
    (verdict.word(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
        let mut reasons = Vec::new();
        let cells = [
            Verdict::Skip("timing".into()),
            Verdict::Pass,
            Verdict::Fail("not equal".into()),
            Verdict::Skip("timing".into()),
        ]
        .map(|verdict| cell(&verdict, &mut reasons));
        assert_eq!(cells, ["skip 1", "pass", "FAIL 2", "skip 1"]);
        assert_eq!(reasons, ["timing", "not equal"]);
    }
}

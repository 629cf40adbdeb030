// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long each test took, on this machine and in each guest.
//!
//! They are printed (the slowest), written for programs (`--timings FILE`), and read again: the last full run is kept in the
//! tree (`docs/test-timings.json`), so that the queue can start with what takes longest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::root;

/// The form of the file.
const SCHEMA: &str = "rtscope.test-timings/1";
/// This many are printed.
const SHOWN: usize = 20;
/// Where tests run that are in no guest.
pub const THIS_MACHINE: &str = "this machine";

/// One test in one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// [`THIS_MACHINE`], or the kernel of a guest.
    pub place: String,
    /// The test binary, or the step.
    pub program: String,
    /// The test; empty for a step that has none.
    pub test: String,
    /// How it ended: `pass`, `fail` or `skip`.
    pub result: &'static str,
    /// How long it took.
    pub time: Duration,
}

impl Timing {
    /// A step that is no test: a build, a linter.
    pub fn step(name: &str, time: Duration) -> Timing {
        Timing {
            place: THIS_MACHINE.to_owned(),
            program: name.to_owned(),
            test: String::new(),
            result: "pass",
            time,
        }
    }
}

/// The slowest, in lines for people.
pub fn slowest(timings: &[Timing]) -> Vec<String> {
    let mut tests: Vec<&Timing> = timings.iter().filter(|timing| !timing.test.is_empty()).collect();
    tests.sort_by_key(|timing| std::cmp::Reverse(timing.time));
    let line = |timing: &&Timing| {
        let Timing { place, program, test, time, .. } = timing;
        format!("{:>8.1} s  {place:<12}  {program}  {test}", time.as_secs_f64())
    };
    tests.iter().take(SHOWN).map(line).collect()
}

/// The modules whose tests took longest together, in lines for people: where an hour goes is seldom one test.
pub fn longest_modules(timings: &[Timing]) -> Vec<String> {
    let mut modules: BTreeMap<(&str, &str, &str), (Duration, usize)> = BTreeMap::new();
    for timing in timings.iter().filter(|timing| !timing.test.is_empty()) {
        let module = timing.test.rsplit_once("::").map_or("", |(module, _)| module);
        let (time, tests) = modules.entry((&timing.place, &timing.program, module)).or_default();
        *time += timing.time;
        *tests += 1;
    }
    let mut modules: Vec<_> = modules.into_iter().collect();
    modules.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
    let line = |((place, program, module), (time, tests)): &((&str, &str, &str), (Duration, usize))| {
        format!("{:>8.1} s  {place:<12}  {program}  {module} ({tests} tests)", time.as_secs_f64())
    };
    modules.iter().take(2 * SHOWN).map(line).collect()
}

/// Everything, for programs. `seconds`: of the whole run.
pub fn to_json(timings: &[Timing], commit: &str, date: &str, seconds: f64) -> Value {
    let rounded = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
    let (steps, tests): (Vec<&Timing>, Vec<&Timing>) =
        timings.iter().partition(|timing| timing.test.is_empty());
    let step = |timing: &&Timing| json!({ "step": timing.program, "seconds": rounded(timing.time) });
    let test = |timing: &&Timing| {
        json!({ "place": timing.place, "program": timing.program, "test": timing.test, "result": timing.result,
            "seconds": rounded(timing.time) })
    };
    json!({
        "schema": SCHEMA,
        "commit": commit,
        "date": date,
        "seconds": (seconds * 10.0).round() / 10.0,
        "steps": steps.iter().map(step).collect::<Vec<_>>(),
        "tests": tests.iter().map(test).collect::<Vec<_>>(),
    })
}

/// Writes the file, one test a line, so that two of them can be compared by eye.
pub fn write(path: &Path, value: &Value) -> Result<()> {
    let mut text = String::from("{\n");
    for key in ["schema", "commit", "date", "seconds"] {
        text += &format!(" \"{key}\": {},\n", value[key]);
    }
    let list = |key: &str| {
        let rows = value[key].as_array().into_iter().flatten().map(|row| format!("  {row}"));
        format!(" \"{key}\": [\n{}\n ]", rows.collect::<Vec<_>>().join(",\n"))
    };
    text += &format!("{},\n{}\n}}\n", list("steps"), list("tests"));
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// What tests took the last time: what the queue is ordered by.
#[derive(Debug, Default)]
pub struct Estimates(BTreeMap<(String, String), f64>);

impl Estimates {
    /// Where the last full run left them.
    pub fn path() -> PathBuf {
        root().join("docs/test-timings.json")
    }

    /// Reads them; without the file there are none, and the queue's order is a worse one.
    pub fn read() -> Estimates {
        let text = fs::read_to_string(Estimates::path()).unwrap_or_default();
        Estimates::parse(&serde_json::from_str(&text).unwrap_or_default())
    }

    fn parse(value: &Value) -> Estimates {
        let row = |row: &Value| {
            let key = (row["place"].as_str()?.to_owned(), row["test"].as_str()?.to_owned());
            Some((key, row["seconds"].as_f64()?))
        };
        let known = value["schema"] == SCHEMA;
        let rows = value["tests"].as_array().into_iter().flatten().filter(|_| known);
        Estimates(rows.filter_map(row).collect())
    }

    /// Seconds of a test in a place, if it ran there.
    pub fn seconds(&self, place: &str, test: &str) -> Option<f64> {
        self.0.get(&(place.to_owned(), test.to_owned())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(place: &str, test: &str, ms: u64) -> Timing {
        Timing {
            place: place.into(),
            program: "cli: it".into(),
            test: test.into(),
            result: "pass",
            time: Duration::from_millis(ms),
        }
    }

    #[test]
    fn the_slowest_come_first_and_steps_are_no_tests() {
        let timings = [
            timing("6.12", "a", 1200),
            timing(THIS_MACHINE, "b", 3400),
            Timing::step("build", Duration::from_secs(60)),
        ];
        let lines = slowest(&timings);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("3.4 s") && lines[0].ends_with("cli: it  b"), "{lines:?}");
    }

    #[test]
    fn tests_of_a_module_are_summed_in_each_place() {
        let timings =
            [timing("6.12", "a::x", 1200), timing("6.12", "a::y", 900), timing("newest", "a::x", 2000)];
        let lines = longest_modules(&timings);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("2.1 s  6.12") && lines[0].ends_with("a (2 tests)"), "{lines:?}");
    }

    #[test]
    fn what_was_written_is_estimated_again() {
        let value = to_json(&[timing("6.12", "a", 1200)], "abc", "2026-01-01", 61.04);
        assert_eq!(value["seconds"], 61.0);
        let path = std::env::temp_dir().join(format!("rtscope-timings.{}", std::process::id()));
        write(&path, &value).expect("it can be written");
        let again: Value =
            serde_json::from_str(&fs::read_to_string(&path).expect("it is there")).expect("JSON");
        fs::remove_file(path).expect("it is there");
        assert_eq!(again, value);
        assert_eq!(Estimates::parse(&again).seconds("6.12", "a"), Some(1.2));
        assert_eq!(
            Estimates::parse(&json!({ "schema": "x/1", "tests": again["tests"] })).seconds("6.12", "a"),
            None
        );
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `docs/test-status.md`: how the last full run went, for somebody who wants to know before running it for hours.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::outcome::Tally;
use crate::timings::{self, Timing};
use crate::{root, workspace};

/// The date of today, in UTC.
pub fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}

/// Writes the page.
pub fn write(tally: &Tally, date: &str, seconds: f64) -> Result<()> {
    let path = root().join("docs/test-status.md");
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".into());
    let host = format!("{cpus} CPUs, Linux {}", kernel.trim());
    fs::write(&path, page(tally, date, &workspace::commit(), &host, seconds))
        .with_context(|| path.display().to_string())
}

fn page(tally: &Tally, date: &str, commit: &str, host: &str, seconds: f64) -> String {
    let mut text = format!(
        "# The last full run of the tests\n\n`./x test --all` wrote this page: every privileged test on every kernel that has what it needs, every \
         kill point, the long watch. The time of each test in each place is in [test-timings.json](test-timings.json).\n\n\
         - date: {date}\n- commit: {commit}\n- host: {host}\n- time: {:.1} min\n- result: {tally}\n\n",
        seconds / 60.0
    );
    text += "| where | tests | passed | failed | skipped | time of its tests |\n|---|---|---|---|---|---|\n";
    for (place, tests) in by_place(&tally.timings) {
        let count = |result: &str| tests.iter().filter(|timing| timing.result == result).count();
        let time: f64 = tests.iter().map(|timing| timing.time.as_secs_f64()).sum();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {place} | {} | {} | {} | {} | {time:.0} s |",
            tests.len(),
            count("pass"),
            count("fail"),
            count("skip")
        );
    }
    text += &listed("Failed", &tally.failures);
    text += &listed("Passed only when they were run again, alone", &tally.unstable);
    text += &listed("Skipped", &tally.skips);
    text += &format!("\n## The slowest\n\n```text\n{}\n```\n", timings::slowest(&tally.timings).join("\n"));
    text
}

fn by_place(timings: &[Timing]) -> BTreeMap<&str, Vec<&Timing>> {
    let mut places: BTreeMap<&str, Vec<&Timing>> = BTreeMap::new();
    for timing in timings.iter().filter(|timing| !timing.test.is_empty()) {
        places.entry(timing.place.as_str()).or_default().push(timing);
    }
    places
}

fn listed(heading: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    format!("\n## {heading}\n\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_page_has_a_row_for_each_place_and_every_skip() {
        let timing = |place: &str, result| Timing {
            place: place.into(),
            program: "cli: it".into(),
            test: "a".into(),
            result,
            time: Duration::from_secs(2),
        };
        let tally = Tally {
            passed: 1,
            skips: vec!["a: no disk".into()],
            timings: vec![
                timing("6.12", "pass"),
                timing("newest", "skip"),
                Timing::step("build", Duration::from_secs(9)),
            ],
            ..Tally::default()
        };
        let page = page(&tally, "2026-01-02", "abc", "2 CPUs", 90.0);
        assert!(
            page.contains("| 6.12 | 1 | 1 | 0 | 0 | 2 s |\n| newest | 1 | 0 | 0 | 1 | 2 s |\n"),
            "{page}"
        );
        assert!(
            page.contains("- a: no disk\n") && page.contains("1.5 min") && !page.contains("## Failed"),
            "{page}"
        );
    }
}

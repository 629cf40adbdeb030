// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables that tests fill: what was recorded on which kernel, and what an oracle counted; what each tracker found of what was done to it.
//!
//! Tests print a line with a mark and JSON for each row (crates/cli/tests/it/record/complete.rs, crates/cli/tests/it/watch/truth.rs), on this
//! machine and in the virtual ones. Here they become tables.

use std::fmt::Write;

use serde_json::Value;

/// A table.
struct Kind {
    /// What a test's line begins with.
    mark: &'static str,
    /// What its rows are of, and where a row says it.
    of: &'static str,
    columns: &'static [&'static str],
    legend: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        mark: "COMPLETE: ",
        of: "event",
        columns: &["recorded", "edge", "lost", "hidden", "oracle"],
        legend: "recorded: inside the oracle's window; edge: while its counters were read, so counted or not; lost: what rtscope \
                 says is missing; hidden: in threads that this host keeps from eBPF; oracle: perf's counters. Each CPU for itself: \
                 recorded <= oracle <= recorded + edge + lost + hidden.",
    },
    Kind {
        mark: "TRUTH: ",
        of: "tracker and fault",
        columns: &["injected", "found", "false", "hidden"],
        legend: "injected: delays beyond the limit, by the clock of the program that was delayed; found: of these, reported with times \
                 within that program's own; false: reported, and nothing of it was injected; hidden: switches that this host keeps \
                 from eBPF. Who is to blame is checked by each test.",
    },
];

/// The tests that do something to the target of a tracker and tell what was found of it: `./x truth`.
pub const TRUTH: [&str; 9] = [
    "root_the_hog_is_the_culprit_with_its_share",
    "root_a_flood_of_datagrams_is_named_as_the_network_softirq",
    "root_delays_are_those_that_the_program_sees_itself",
    "root_long_system_calls_are_those_that_the_program_sees_itself",
    "root_long_waits_for_a_lock_are_those_that_the_program_knows_of",
    "root_long_softirqs_are_those_that_a_flood_makes",
    "root_block_requests_are_those_that_a_program_makes",
    "root_a_cpu_that_is_not_given_away_is_late_by_as_much_as_the_thread_that_waits_for_it",
    "root_sections_with_interrupts_off_are_found_to_the_period_of_the_samples",
];

/// Whether a line of a test's output is a row.
pub fn is_row(line: &str) -> bool {
    KINDS.iter().any(|kind| line.starts_with(kind.mark))
}

/// The rows so far, by table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tables([Vec<(String, Value)>; KINDS.len()]);

impl Tables {
    /// Takes in a line of a test's output, if it is a row.
    pub fn read(&mut self, kernel: &str, line: &str) {
        for (kind, rows) in KINDS.iter().zip(&mut self.0) {
            let row = line.strip_prefix(kind.mark).and_then(|row| serde_json::from_str(row).ok());
            rows.extend(row.map(|row| (kernel.to_owned(), row)));
        }
    }

    /// Takes over the rows of another.
    pub fn append(&mut self, other: Tables) {
        self.0.iter_mut().zip(other.0).for_each(|(rows, others)| rows.extend(others));
    }

    /// Those with rows.
    pub fn text(&self) -> String {
        let with_rows = KINDS.iter().zip(&self.0).filter(|(_, rows)| !rows.is_empty());
        with_rows.map(|(kind, rows)| kind.text(rows)).collect::<Vec<_>>().join("\n")
    }
}

impl Kind {
    fn text(&self, rows: &[(String, Value)]) -> String {
        let mut text = String::new();
        let mut row = |kernel: &str, of: &str, cells: &[String]| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{kernel:<24}  {of:<44}{cells}");
        };
        row("kernel", self.of, &self.columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>());
        for (kernel, values) in rows {
            let cell =
                |column: &&str| values[*column].as_u64().map_or("?".to_owned(), |count| count.to_string());
            let cells: Vec<String> = self.columns.iter().map(cell).collect();
            row(kernel, values[self.of].as_str().unwrap_or("?"), &cells);
        }
        let _ = writeln!(text, "\n{}", self.legend);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_truth_runs_is_there_and_tells() {
        let folder = crate::root().join("crates/cli/tests/it/watch");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let sources: Vec<String> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        for test in TRUTH {
            let its = |source: &&String| source.contains(&format!("fn {test}("));
            let source = sources.iter().find(its).unwrap_or_else(|| panic!("{test} is not there"));
            assert!(source.contains(".tell("), "the file of {test} tells nothing");
        }
    }

    #[test]
    fn lines_of_tests_become_rows() {
        let mut tables = Tables::default();
        assert_eq!(tables.text(), "");
        tables.read("6.12-rt", "test a ... ok");
        tables.read(
            "6.12-rt",
            r#"TRUTH: {"tracker and fault":"lock: a mutex","injected":9,"found":8,"false":0}"#,
        );
        tables.read(
            "6.12-rt",
            r#"COMPLETE: {"event":"irq:softirq_entry","recorded":7,"edge":0,"lost":1,"oracle":8}"#,
        );
        let text = tables.text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..3], ["kernel", "event", "recorded"]);
        assert_eq!(lines[1], ["6.12-rt", "irq:softirq_entry", "7", "0", "1", "?", "8"]);
        assert_eq!(lines[5][..5], ["kernel", "tracker", "and", "fault", "injected"]);
        assert_eq!(lines[6], ["6.12-rt", "lock:", "a", "mutex", "9", "8", "0", "?"]);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of completeness: what was recorded on which kernel, and what an oracle counted.
//!
//! Tests print a line `COMPLETE: {…}` for each event (crates/cli/tests/it/record/complete.rs), on this machine and in the virtual ones.
//! Here they become one table.

use std::fmt::Write;

use serde_json::Value;

/// What a test's line begins with.
pub const MARK: &str = "COMPLETE: ";

const COLUMNS: [&str; 5] = ["recorded", "edge", "lost", "hidden", "oracle"];

/// The rows so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    rows: Vec<(String, Value)>,
}

impl Completeness {
    /// Takes in a line of a test's output, if it is one of those.
    pub fn read(&mut self, kernel: &str, line: &str) {
        let row = line.strip_prefix(MARK).and_then(|row| serde_json::from_str(row).ok());
        self.rows.extend(row.map(|row| (kernel.to_owned(), row)));
    }

    /// Takes over the rows of another.
    pub fn append(&mut self, other: Completeness) {
        self.rows.extend(other.rows);
    }

    /// The table; nothing when there are no rows.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.rows.is_empty() {
            return text;
        }
        let mut row = |kernel: &str, event: &str, cells: &[String]| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{kernel:<24}  {event:<44}{cells}");
        };
        row("kernel", "event", &COLUMNS.map(str::to_owned));
        for (kernel, values) in &self.rows {
            let cells = COLUMNS
                .map(|column| values[column].as_u64().map_or("?".to_owned(), |count| count.to_string()));
            row(kernel, values["event"].as_str().unwrap_or("?"), &cells);
        }
        text.push_str(
            "\nrecorded: inside the oracle's window; edge: while its counters were read, so counted or not; lost: what rtscope \
             says is missing; hidden: in threads that this host keeps from eBPF; oracle: perf's counters. Each CPU for itself: \
             recorded <= oracle <= recorded + edge + lost + hidden.\n",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tests_become_rows() {
        let mut table = Completeness::default();
        assert_eq!(table.text(), "");
        table.read("6.12-rt", "test a ... ok");
        table.read(
            "6.12-rt",
            r#"COMPLETE: {"event":"irq:softirq_entry","recorded":7,"edge":0,"lost":1,"oracle":8}"#,
        );
        let text = table.text();
        let lines: Vec<Vec<&str>> =
            text.lines().take(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..3], ["kernel", "event", "recorded"]);
        assert_eq!(lines[1], ["6.12-rt", "irq:softirq_entry", "7", "0", "1", "?", "8"]);
    }
}

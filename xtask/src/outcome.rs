// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The three results of a check, and the sums of all of them.

use std::fmt;
use std::process::ExitCode;

use crate::tables::Tables;
use crate::timings::Timing;

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Pass,
    /// Something is wrong; the text says what.
    Fail(String),
    /// It could not be checked here; the text says why.
    Skip(String),
}

/// Counts results. A skip is a separate result: it is listed with its reason, never counted as passed.
#[derive(Debug, Default, PartialEq)]
pub struct Tally {
    /// Checks that passed.
    pub passed: u64,
    /// What failed, and its first words: the end of a log, which is what is kept of a long one, says why.
    pub failures: Vec<String>,
    /// What failed first and passed when it was run again alone (it is among the passed), and its first words.
    pub unstable: Vec<String>,
    /// What was skipped, and why.
    pub skips: Vec<String>,
    /// What tests printed for tables.
    pub tables: Tables,
    /// How long tests and steps took.
    pub timings: Vec<Timing>,
}

impl Tally {
    /// Adds one named check and says how it went.
    pub fn add(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Outcome::Pass => {
                println!("pass {name}");
                self.passed += 1;
            }
            Outcome::Fail(what) => {
                println!("FAIL {name}: {what}");
                self.failures.push(with_reason(name, &what));
            }
            Outcome::Skip(why) => {
                println!("skip {name}: {why}");
                self.skips.push(format!("{name}: {why}"));
            }
        }
    }

    /// Takes over another account.
    pub fn append(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.unstable.extend(other.unstable);
        self.skips.extend(other.skips);
        self.tables.append(other.tables);
        self.timings.extend(other.timings);
    }

    /// Prints what tests told for tables, what was skipped, what passed at the second try and what failed, then the sums in one plain line.
    pub fn finish(&self) -> ExitCode {
        println!("{}", self.tables.text());
        for skip in &self.skips {
            println!("SKIPPED {skip}");
        }
        for unstable in &self.unstable {
            println!("UNSTABLE {unstable}");
        }
        for failure in &self.failures {
            println!("FAILED {failure}");
        }
        println!("{self}");
        if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// A name with why it failed, in one line of bounded length.
pub fn with_reason(name: &str, why: &str) -> String {
    const SHOWN: usize = 400;
    let words: Vec<&str> = why.split_whitespace().collect();
    let line = words.join(" ");
    let cut: String = line.chars().take(SHOWN).collect();
    let more = if cut.len() < line.len() { " …" } else { "" };
    if line.is_empty() { name.to_owned() } else { format!("{name}: {cut}{more}") }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failures.len(), self.skips.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_listed_with_its_reason_in_one_line() {
        assert_eq!(with_reason("a", "one\n  two"), "a: one two");
        assert_eq!(with_reason("a", ""), "a");
        let long = with_reason("a", &"ä ".repeat(1000));
        assert!(long.ends_with(" …") && long.chars().count() < 410, "{long}");
    }
}

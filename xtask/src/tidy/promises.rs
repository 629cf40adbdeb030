// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SPECIFICATION.md makes promises; each has to name what shows it, and what it names has to exist.
//!
//! A promise is a row of a table. Its last cell names tests (`name_of_a_function`) and benchmarks (`bench NAME`) in
//! backticks, or is `_[pending]_`: not shown by anything yet. The same mark in another cell says that a part of the promise is
//! pending; the last cell still names what shows the rest.

use super::File;
use super::catalogue::Catalogue;
use crate::bench::BENCHMARKS;

const SPECIFICATION: &str = "SPECIFICATION.md";
const PENDING: &str = "_[pending]_";

/// Returns what is wrong, and the cells that are pending.
pub fn check(files: &[File], tests: &Catalogue) -> (Vec<String>, Vec<String>) {
    let Some(specification) = files.iter().find(|file| file.path == SPECIFICATION) else {
        return (vec![format!("{SPECIFICATION} is missing")], vec![]);
    };
    let (mut problems, mut pending) = (Vec::new(), Vec::new());
    let lines: Vec<&str> = specification.text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if is_promise(&lines, at) {
            check_promise(&cells(line), files, tests, &mut problems, &mut pending);
        } else if line.contains(PENDING) && !is_definition(line) {
            problems.push(format!("{SPECIFICATION}:{}: {PENDING} is not in a row of a table", at + 1));
        }
    }
    if pending.is_empty() && problems.is_empty() && !lines.iter().any(|line| line.starts_with('|')) {
        problems.push(format!("{SPECIFICATION} has no table"));
    }
    (problems, pending)
}

/// A row that is not a heading, nor the line of dashes below it.
fn is_promise(lines: &[&str], at: usize) -> bool {
    let is_row = |line: &str| line.trim_start().starts_with('|');
    let is_rule = |line: &str| is_row(line) && line.trim().chars().all(|c| "|-: ".contains(c));
    let is_heading = lines.get(at + 1).is_some_and(|next| is_rule(next));
    is_row(lines[at]) && !is_rule(lines[at]) && !is_heading
}

/// The sentence that says what the mark means has it in backticks.
fn is_definition(line: &str) -> bool {
    line.matches(PENDING).count() == line.matches(&format!("`{PENDING}`")).count()
}

/// The cells of a row; `\|` is not the end of one.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').replace("\\|", "\0");
    let row = row.strip_suffix('|').unwrap_or(&row);
    row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

fn check_promise(
    cells: &[String],
    files: &[File],
    tests: &Catalogue,
    problems: &mut Vec<String>,
    pending: &mut Vec<String>,
) {
    let [promise, .., shown_by] = cells else {
        return problems.push(format!("a row has fewer than two cells: {}", cells.join(" ")));
    };
    for (at, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.contains(PENDING)) {
        // A part of a promise says in its cell which.
        let detail = if at == 0 || at == cells.len() - 1 { String::new() } else { format!(": {cell}") };
        pending.push(format!("{promise}{detail}"));
    }
    let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
    if names.is_empty() && !shown_by.contains(PENDING) {
        problems.push(format!("'{promise}' names nothing that shows it"));
    }
    for name in names.into_iter().filter(|name| *name != PENDING) {
        if let Some(objection) = objection(name, files, tests) {
            problems.push(format!("'{promise}' names `{name}`, which {objection}"));
        }
    }
}

/// Why a name shows nothing.
fn objection(name: &str, files: &[File], tests: &Catalogue) -> Option<String> {
    let Some(benchmark) = name.strip_prefix("bench ") else { return tests.objection(name, files) };
    let is_known = BENCHMARKS.iter().any(|(known, _)| *known == benchmark);
    (!is_known).then(|| "is not in the list of benchmarks".to_string())
}

#[cfg(test)]
mod tests {
    use super::super::conditions::Settings;
    use super::super::targets::Target;
    use super::*;

    fn check_text(specification: String) -> (Vec<String>, Vec<String>) {
        let text = "#[test] fn it_is_fast() {} /* #[test] fn it_was_fast() {} */";
        let library = File { path: "a/src/lib.rs".into(), text: text.into() };
        let target = Target { path: library.path.clone(), tested: true, features: vec![] };
        let files = [File { path: SPECIFICATION.into(), text: specification }, library];
        let tests = Catalogue::of(&files, &[target], &Settings::default());
        check(&files, &tests)
    }

    fn check_row(row: &str) -> (Vec<String>, Vec<String>) {
        check_text(format!("| promise | figure | shown by |\n|---|---|---|\n{row}\n"))
    }

    #[test]
    fn promises_are_held_against_the_tree() {
        let counts = |cell: &str| {
            let (problems, pending) = check_row(&format!("| fast | 1 ns | {cell} |"));
            (problems.len(), pending.len())
        };
        assert_eq!(counts("`it_is_fast`"), (0, 0));
        assert_eq!(counts("`it_is_fast`, `bench flip`"), (0, 0));
        assert_eq!(counts("`it_is_slow`"), (1, 0));
        assert_eq!(counts("`it_was_fast`"), (1, 0));
        assert_eq!(counts("`bench nothing`"), (1, 0));
        assert_eq!(counts("trust me"), (1, 0));
        assert_eq!(counts("_[pending]_"), (0, 1));
        assert_eq!(counts("`it_is_fast`, the rest _[pending]_"), (0, 1));
        assert_eq!(counts("`it_is_slow`, the rest _[pending]_"), (1, 1));
        assert_eq!(check(&[], &Catalogue::default()).0.len(), 1);
        assert_eq!(check_text("no table".to_string()).0.len(), 1);
    }

    #[test]
    fn every_pending_cell_is_found_and_the_row_still_names_what_exists() {
        let (problems, pending) = check_row("| fast | 1 ns _[pending]_: 2 measured | `it_is_fast` |");
        assert_eq!((problems.len(), pending), (0, vec!["fast: 1 ns _[pending]_: 2 measured".to_string()]));
        let (problems, pending) = check_row("| fast | 1 ns _[pending]_ | trust me |");
        assert_eq!((problems.len(), pending.len()), (1, 1));
        let (problems, pending) = check_row("| fast | 1 ns _[pending]_ | `it_is_slow` |");
        assert_eq!((problems.len(), pending.len()), (1, 1));
        let (problems, pending) =
            check_row("| fast _[pending]_ | 1 ns _[pending]_ | `it_is_fast`, _[pending]_ |");
        assert_eq!((problems.len(), pending.len()), (0, 3));
    }

    #[test]
    fn a_mark_outside_of_tables_is_refused_where_it_is_not_explained() {
        assert_eq!(check_row("\nThe figure is _[pending]_.").0.len(), 1);
        assert_eq!(check_row("\n`_[pending]_` means: not shown yet.").0, Vec::<String>::new());
    }

    #[test]
    fn a_bar_within_a_cell_does_not_end_it() {
        assert_eq!(cells("| a \\| b | c |"), ["a | b", "c"]);
        let (problems, _) = check_row("| a \\| b | c | `it_is_slow \\| more` |");
        assert!(problems[0].starts_with("'a | b' names `it_is_slow | more`"), "{problems:?}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SPECIFICATION.md makes promises; each has to name what shows it, and what it names has to exist.
//!
//! A promise is a row of a table. Its last cell names tests (`name_of_a_function`) and benchmarks (`bench NAME`) in
//! backticks, or says `_[pending]_`: not shown by anything yet.

use super::File;
use crate::bench::BENCHMARKS;

const SPECIFICATION: &str = "SPECIFICATION.md";
const PENDING: &str = "_[pending]_";

/// Returns what is wrong, and the promises that are pending.
pub fn check(files: &[File]) -> (Vec<String>, Vec<String>) {
    let Some(specification) = files.iter().find(|file| file.path == SPECIFICATION) else {
        return (vec![format!("{SPECIFICATION} is missing")], vec![]);
    };
    let (mut problems, mut pending) = (Vec::new(), Vec::new());
    for (promise, shown_by) in promises(&specification.text) {
        if shown_by.contains(PENDING) {
            pending.push(promise.to_owned());
            continue;
        }
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            problems.push(format!("'{promise}' names nothing that shows it"));
        }
        let missing = names.iter().filter(|name| !exists(name, files));
        problems.extend(missing.map(|name| format!("'{promise}' names `{name}`, which does not exist")));
    }
    (problems, pending)
}

/// First and last cell of every row that is not a heading.
fn promises(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_rule = |line: &str| line.starts_with('|') && line.chars().all(|c| "|-: ".contains(c));
    let lines: Vec<&str> = text.lines().collect();
    let is_row: Vec<bool> = (0..lines.len())
        .map(|at| {
            let heading = lines.get(at + 1).is_some_and(|next| is_rule(next));
            lines[at].starts_with('|') && !is_rule(lines[at]) && !heading
        })
        .collect();
    lines.into_iter().zip(is_row).filter(|(_, is_row)| *is_row).filter_map(|(line, _)| {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        Some((cells.next()?, cells.next_back()?))
    })
}

fn exists(name: &str, files: &[File]) -> bool {
    if let Some(benchmark) = name.strip_prefix("bench ") {
        return BENCHMARKS.iter().any(|(known, _)| *known == benchmark);
    }
    let definition = format!("fn {name}(");
    files.iter().any(|file| file.path.ends_with(".rs") && file.text.contains(&definition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_held_against_the_tree() {
        let row = |cell: &str| {
            format!("| promise | figure | shown by |\n|---|---|---|\n| fast | 1 ns | {cell} |\n")
        };
        let check_row = |cell: &str| {
            let specification = File { path: SPECIFICATION.into(), text: row(cell) };
            let tests = File { path: "crates/a/tests/t.rs".into(), text: "fn it_is_fast() {}".into() };
            let (problems, pending) = check(&[specification, tests]);
            (problems.len(), pending.len())
        };
        assert_eq!(check_row("`it_is_fast`"), (0, 0));
        assert_eq!(check_row("`it_is_fast`, `bench flip`"), (0, 0));
        assert_eq!(check_row("`it_is_slow`"), (1, 0));
        assert_eq!(check_row("`bench nothing`"), (1, 0));
        assert_eq!(check_row("trust me"), (1, 0));
        assert_eq!(check_row("_[pending]_"), (0, 1));
        assert_eq!(check(&[]).0.len(), 1);
    }
}

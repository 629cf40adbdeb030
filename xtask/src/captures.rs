// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x captures DIRECTORY`: recordings that others made of trace units, against what other decoders say of them: one table.
//!
//! The comparison is what the tests of the crate `hardware` do with the directory that `RTSCOPE_CAPTURES` names; each prints a row.
//! Here they run, and the rows become the table.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cargo;

const HELP: &str = "\
./x captures [DIRECTORY] [--json]

Decodes the captures of trace units in a directory (without one: in $RTSCOPE_CAPTURES), and compares
with what other decoders say of them: a row for each.

  ./x captures ../captures          the set that SPECIFICATION.md names, as far as it is there
  ./x captures snapshots/           OpenCSD's own: each directory with a snapshot.ini, at any depth

What is in the set is compared with listings in expected/. Snapshots that the set does not have are
compared with what OpenCSD says of them now (trc_pkt_lister of 1.5 or newer; Debian: libopencsd-bin),
or with expected/opencsd-1.5.5/NAME.ppl.xz.
Exit code 1: something differs, or nothing was compared.
";

const MARK: &str = "CAPTURE: ";

/// `./x captures …`
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    let (mut directory, mut as_json) = (std::env::var_os("RTSCOPE_CAPTURES").map(PathBuf::from), false);
    for argument in arguments {
        match *argument {
            "-h" | "--help" => {
                print!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            "--json" => as_json = true,
            path => directory = Some(path.into()),
        }
    }
    let directory = directory.context("which directory has the captures? (./x captures --help)")?;
    let directory = directory.canonicalize().with_context(|| format!("opening {}", directory.display()))?;
    ensure!(directory.is_dir(), "{} is not a directory", directory.display());
    let mut tests = cargo();
    // One after the other, so that each row is a line of its own.
    tests.args(["test", "-q", "-p", "rtscope-hardware", "--test", "it", "--no-fail-fast", "--"]);
    tests.args(["--nocapture", "--test-threads=1"]).env("RTSCOPE_CAPTURES", &directory);
    let output = tests.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("starting cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = rows(&text);
    if as_json {
        println!(
            "{}",
            json!({"schema": "rtscope.captures/1", "captures": rows, "passed": output.status.success()})
        );
    } else {
        print!("{}", table(&rows));
    }
    if !output.status.success() {
        // What differs, and where.
        text.lines().filter(|line| !line.contains(MARK)).for_each(|line| eprintln!("{line}"));
    }
    // In brackets: streams of our encoders, which are always there.
    let is_of_ours = |row: &&Value| row["capture"].as_str().is_some_and(|name| name.starts_with('('));
    let compared = rows.iter().filter(|row| row["oracle"] != "" && !is_of_ours(row)).count();
    if compared == 0 {
        eprintln!("nothing in {} was compared with anything", directory.display());
    }
    Ok(if output.status.success() && compared > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rows in what the tests printed. A test's name may be before one in its line.
fn rows(text: &str) -> Vec<Value> {
    let mut rows: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line.split_once(MARK)?.1).ok()).collect();
    rows.sort_by_key(|row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap_or("").to_owned();
        (text("capture"), text("oracle"))
    });
    rows
}

fn table(rows: &[Value]) -> String {
    let mut text = String::new();
    let mut line = |cells: [&str; 6]| {
        let [capture, unit, oracle, bytes, lost, compared] = cells;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{capture:<36} {unit:<22} {oracle:<20} {bytes:>8} {lost:>7}  {compared}");
    };
    line(["capture", "unit", "compared with", "bytes", "lost", "the same, of how many"]);
    let mut totals: Vec<(String, u64, u64)> = Vec::new();
    for row in rows {
        let text = |key: &str| row[key].as_str().unwrap_or("").to_owned();
        let number = |key: &str| row[key].as_u64().map_or("-".to_owned(), |number| number.to_string());
        let mut cells: Vec<String> = Vec::new();
        for compared in row["compared"].as_array().into_iter().flatten() {
            let what = compared["what"].as_str().unwrap_or("?");
            let (same, of) = (compared["same"].as_u64().unwrap_or(0), compared["of"].as_u64().unwrap_or(0));
            let mark = if same == of { "" } else { " (DIFFERENT)" };
            cells.push(format!("{what} {same} of {of}{mark}"));
            match totals.iter_mut().find(|(name, ..)| name == what) {
                Some((_, all_same, all)) => (*all_same, *all) = (*all_same + same, *all + of),
                None => totals.push((what.to_owned(), same, of)),
            }
        }
        let notes = text("notes");
        cells.extend((!notes.is_empty()).then_some(notes));
        let (capture, unit, oracle) = (text("capture"), text("unit"), text("oracle"));
        let oracle = if oracle.is_empty() { "-" } else { &oracle };
        line([&capture, &unit, oracle, &number("bytes"), &number("lost_bytes"), &cells.join(", ")]);
    }
    let totals: Vec<String> =
        totals.iter().map(|(what, same, of)| format!("{what} {same} of {of}")).collect();
    let _ = writeln!(text, "\n{} rows: {}", rows.len(), totals.join(", "));
    text + "lost: bytes in no packet, before a synchronisation, cut off or damaged; each other byte is in one packet.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"
running 2 tests
test a ... CAPTURE: {"capture":"juno","unit":"ETM4","oracle":"OpenCSD","compared":[{"what":"packets","same":7,"of":7}],"bytes":20,"lost_bytes":3,"notes":""}
ok
CAPTURE: {"capture":"alone","unit":"STM","oracle":"","compared":[],"bytes":5,"lost_bytes":0,"notes":"no oracle"}
CAPTURE: {"capture":"worse","unit":"ETE","oracle":"OpenCSD","compared":[{"what":"packets","same":1,"of":2}],"bytes":null,"lost_bytes":null,"notes":""}
"#;

    #[test]
    fn rows_of_tests_become_a_table_that_says_what_differs() {
        let rows = rows(OUTPUT);
        assert_eq!(rows.len(), 3);
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].starts_with("alone ") && lines[1].ends_with("0  no oracle"), "{table}");
        assert!(lines[2].ends_with("20       3  packets 7 of 7"), "{table}");
        assert!(lines[3].ends_with("packets 1 of 2 (DIFFERENT)"), "{table}");
        assert!(table.contains("3 rows: packets 8 of 9"), "{table}");
    }
}

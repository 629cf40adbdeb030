// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports keep to the columns that there are: what is too long goes on in the next line.

use crate::command::rtscope;
use std::path::Path;

/// Columns that were asked for, in which no report fits as it is.
const COLUMNS: usize = 60;

/// What a report is like in so many columns; without a number, in a pipe.
fn report(columns: Option<usize>, arguments: &[&str]) -> String {
    let mut command = rtscope();
    command.args(arguments).env_remove("COLUMNS").env("LC_ALL", "C.UTF-8");
    command.envs(columns.map(|columns| ("COLUMNS", columns.to_string())));
    let output = command.output().expect("it starts");
    // Something may be missing on this machine (3), which is said on standard error.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn sentences_of_reports_are_broken_where_the_columns_end() {
    let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctf/tests/corpus/lttng-ust");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = online.trim();
    let saved = saved.to_str().expect("a plain path");
    for arguments in [
        &["caps"][..],
        &["caps", "--verbose"],
        &["hardware"],
        &["hardware", "--verbose"],
        &["npt", "--loops", "10000"],
        &["shield", "plan", "--rt", "1"],
        &["shield", "plan", "--rt", "1", "--mode", "artis"],
        &["shield", "status"],
        &["stat", saved],
    ] {
        if arguments[0] == "shield" && online == "0" {
            continue;
        }
        let text = report(Some(COLUMNS), arguments);
        let is_table = arguments[0] == "stat";
        // Tables of traces have as many columns as they need where no terminal says otherwise.
        let sentences = if is_table { text.split("\n\n").next().unwrap_or_default() } else { &text };
        // A path has no place where it could be broken.
        let is_whole = |line: &str| {
            let words = line.split_whitespace();
            words.clone().count() < 2 || words.clone().any(|word| word.chars().count() > COLUMNS / 2)
        };
        for line in sentences.lines().filter(|line| line.chars().count() > COLUMNS) {
            assert!(is_whole(line), "{arguments:?}: {line}\n{text}");
        }
        // Nothing but breaks is added, and nothing is left out; whoever looks for a sentence in a pipe finds it in one line.
        if matches!(arguments[0], "caps" | "stat") {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let whole = report(None, arguments);
            assert_eq!(words(&text), words(&whole), "{arguments:?}");
            assert_eq!(whole, report(Some(10_000), arguments), "{arguments:?}");
            assert!(arguments[0] == "stat" || whole.lines().count() < text.lines().count(), "{whole}");
        }
    }
}

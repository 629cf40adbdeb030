// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Choosing what is recorded of programs: by process, level and values of fields. What is left out is counted, and is no loss
//! (crates/testkit/c/orders.c).

use super::fixture::{Fixture, Recorded};
use crate::command::rtscope;
use rtscope_testkit::process::KilledWithTest;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const EMITTED: u64 = 4000;

fn orders() -> Option<(Fixture, PathBuf)> {
    let fixture = Fixture::new();
    let program = fixture.program("orders.c", &[], "orders")?;
    Some((fixture, program))
}

/// Records a run with these words, and gives the account. The trace is removed.
fn recorded(fixture: &Fixture, pattern: &str, options: &[&str], command: &[&Path]) -> Recorded {
    let mut recorder = rtscope();
    recorder.args(["record", "--json", "-u", pattern, "-o"]).arg(fixture.trace()).args(options);
    let output = recorder.arg("--").args(command).output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    let recorded = Recorded::of(output);
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    recorded
}

#[track_caller]
fn assert_counts(recorded: &Recorded, expected: &[(&str, u64)]) {
    let all = ["order", "error", "warning", "info"];
    for name in all {
        let wanted = expected.iter().find(|(event, _)| *event == name).map_or(0, |(_, count)| *count);
        assert_eq!(recorded.of_event(&format!("test:{name}")), wanted, "{name}: {}", recorded.account);
    }
    let left_out = recorded.account["filtered"].as_u64().expect("a number");
    assert_eq!(recorded.events() + left_out, EMITTED, "{}", recorded.account);
    assert_eq!(recorded.lost(), 0, "{}", recorded.account);
}

#[test]
fn events_are_chosen_by_the_values_of_their_fields() {
    let Some((fixture, program)) = orders() else { return };
    let cases = [
        ("test:order if price > 990,test:info", &[("order", 10), ("info", 1000)][..]),
        (
            "test:* if n < 5,test:order if side == buy && symbol =~ 'USD*'",
            &[("order", 250), ("error", 5), ("warning", 5), ("info", 5)],
        ),
        ("test:order if symbol != 'a,b',test:info if n < 0", &[("order", 1000)]),
        ("test if id == 7 || n == 7", &[("order", 1), ("error", 1), ("warning", 1), ("info", 1)]),
    ];
    for (pattern, expected) in cases {
        let recorded = recorded(&fixture, pattern, &[], &[&program]);
        let requested: u64 = expected.iter().map(|(_, count)| count).sum();
        assert_eq!(recorded.events(), requested, "{pattern}: {}", recorded.account);
        if !pattern.contains("test:info") {
            assert_counts(&recorded, expected);
        }
    }
    let recorded = recorded(&fixture, "test:* if price > 0", &[], &[&program]);
    assert_counts(&recorded, &[("order", 1000)]);
    assert!(recorded.remarks().contains("test:info has no field 'price'"), "{}", recorded.remarks());
    let recorded = self::recorded(&fixture, "test:order if price > cheap", &[], &[&program]);
    assert_eq!(recorded.events(), 0);
    let wrong = "test:order: price is a number, and 'cheap' in the condition of 'test:order' is not one";
    assert!(recorded.remarks().contains(wrong), "{}", recorded.remarks());
}

#[test]
fn levels_are_named_and_have_a_begin() {
    let Some((fixture, program)) = orders() else { return };
    let cases = [
        ("err..warning", &[("error", 1000), ("warning", 1000)][..]),
        ("4", &[("error", 1000), ("warning", 1000)]),
        ("warning..", &[("order", 1000), ("warning", 1000), ("info", 1000)]),
        ("..err", &[("error", 1000)]),
    ];
    for (level, expected) in cases {
        let recorded = recorded(&fixture, "test:*", &["--level", level], &[&program]);
        let counts: Vec<u64> =
            expected.iter().map(|(name, _)| recorded.of_event(&format!("test:{name}"))).collect();
        assert!(counts.iter().all(|count| *count == 1000), "{level}: {}", recorded.account);
        assert_eq!(recorded.events(), 1000 * expected.len() as u64, "{level}: {}", recorded.account);
    }
    let refused =
        rtscope().args(["record", "-u", "*", "-o", "x", "--level", "debug..err"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has no level in it"), "{refused:?}");
}

#[test]
fn processes_and_threads_are_chosen() {
    let Some((fixture, program)) = orders() else { return };
    assert_counts(&recorded(&fixture, "test:*", &["--comm", "match*"], &[&program]), &[("order", 1000)]);
    let own = nix::unistd::geteuid().to_string();
    let all = [("order", 1000), ("error", 1000), ("warning", 1000), ("info", 1000)];
    assert_counts(&recorded(&fixture, "test:*", &["--uid", &own], &[&program]), &all);
    assert_counts(&recorded(&fixture, "test:*", &["--uid", "12345"], &[&program]), &[]);
    let cgroup = fs::read_to_string("/proc/self/cgroup").expect("it is there");
    if let Some(cgroup) = cgroup.lines().find_map(|line| line.strip_prefix("0::")) {
        if Path::new("/sys/fs/cgroup").join(&cgroup[1..]).join("cgroup.procs").exists() {
            assert_counts(&recorded(&fixture, "test:*", &["--cgroup", cgroup], &[&program]), &all);
        }
    }
    assert_counts(&recorded(&fixture, "test:*", &["--pid", "1"], &[&program]), &[]);
    let refused =
        rtscope().args(["record", "-u", "*", "-o", "x", "--cgroup", "no.slice"]).output().expect("it runs");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("--cgroup no.slice: there is no"),
        "{refused:?}"
    );
}

#[test]
fn only_the_command_and_its_children_are_recorded() {
    let Some((fixture, program)) = orders() else { return };
    // Another one runs all the time, in a shell that starts it again and again.
    let other = format!("while :; do {} 10; done", program.display());
    let mut command = Command::new("sh");
    let mut other =
        KilledWithTest::start(command.args(["-c", &other]).stdout(Stdio::null())).expect("it can be started");
    let deep: [&Path; 3] = [&program, Path::new("1000"), Path::new("deep")];
    let alone = recorded(&fixture, "test:*", &["--only-command"], &[&program]);
    let children = recorded(&fixture, "test:*", &["--only-command"], &deep);
    other.kill().expect("it runs");
    other.wait().expect("it ends");
    for recorded in [alone, children] {
        let counts =
            ["order", "error", "warning", "info"].map(|name| recorded.of_event(&format!("test:{name}")));
        assert_eq!((counts, recorded.events()), ([1000; 4], EMITTED), "{}", recorded.account);
        assert!(recorded.account["filtered"].as_u64() > Some(0), "{}", recorded.account);
    }
}

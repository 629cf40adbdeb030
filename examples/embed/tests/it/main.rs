// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The example does what it says.

use rtscope_ctf::{Selection, TraceSet, count};
use rtscope_testkit::machine::Cpus;
use std::path::Path;
use std::process::Command;

/// Events of a trace, without the description of the machine at its beginning, and without those that nobody asked for: by renamings
/// readers name threads.
fn events_in(trace: &Path) -> u64 {
    let set = TraceSet::open(trace).expect("a trace");
    let found = count(&set, &Selection::default(), &|_| ()).streams;
    let mut events = 0;
    for (stream, found) in set.streams.iter().zip(&found) {
        let is_recorded = |event: usize| {
            let name = set.event_name(stream, event);
            !name.starts_with("lttng_statedump") && name != "task_rename"
        };
        events += found
            .events
            .iter()
            .enumerate()
            .filter(|(event, _)| is_recorded(*event))
            .map(|(_, number)| number)
            .sum::<u64>();
    }
    events
}

// NEEDS: host
#[test]
fn root_a_program_records_and_watches_by_the_libraries_alone() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("trace");
    let output = Command::new(env!("CARGO_BIN_EXE_embed")).arg(&target).output().expect("it was built");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(said.lines().last().is_some_and(|line| line.ends_with(" late responses")), "{said}");
    let announced = |name: &str| {
        let begin = format!("{}: ", target.join(name).display());
        let line = said.lines().find_map(|line| line.strip_prefix(begin.as_str()));
        line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    for name in ["kernel", "ust"] {
        assert_eq!(events_in(&target.join(name)), announced(name), "{name}");
    }
    assert!(announced("kernel") > 100, "a second of any machine: {said}");
}

/// It shows how little it takes.
#[test]
fn the_example_is_short() {
    let lines = include_str!("../../src/main.rs").lines().count();
    assert!(lines < 60, "{lines}");
}

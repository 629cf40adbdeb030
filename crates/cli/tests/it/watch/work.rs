// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker `work`, judged by a program (crates/testkit/c/work.c) that stamps before and after each begin and end.

use crate::command::root;
use rtscope_analyze::summary::Report;
use rtscope_event::{FieldValue, LateResponse, SpanEvent, Tracker};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use rtscope_testkit::watch::WatchOutput;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const COUNT: u64 = 100;
const LIMIT_NS: u64 = 4_000_000;
/// Between a stamp and the clock of the events, which is converted.
const NEAR_NS: u64 = 30_000;

pub fn compiled(directory: &Path) -> Option<PathBuf> {
    if skip::without_tool("cc") {
        return None;
    }
    let program = directory.join("work");
    let mut command = Command::new("cc");
    command.args(["-O2", "-std=c11", "-Wall", "-Werror", "-pthread", "-I"]).arg(root().join("include"));
    command.arg(root().join("crates/testkit/c/work.c")).arg("-o").arg(&program);
    assert!(command.status().expect("it was there").success());
    Some(program)
}

fn cookie(event: &SpanEvent) -> u64 {
    let Some(FieldValue::Unsigned(number)) = event.fields.get("cookie") else { panic!("{event:?}") };
    *number
}

// NEEDS: host
#[test]
fn root_late_work_is_what_the_program_says_with_the_threads_that_had_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = compiled(directory.path()) else { return };
    let record = directory.path().join("watch.json");
    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.arg("watch").arg("work").args(["--threshold", "4ms"]).arg(format!("--json={}", record.display()));
    // Another tracker beside it, which is in the kernel.
    watch.args(["--and", "offcpu:7ms"]);
    watch.arg("--snapshot-dir").arg(directory.path().join("late")).args(["--post", "5ms", "--"]);
    let output = watch.arg(&program).arg(COUNT.to_string()).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).expect("text");
    let (first, rows) = told.split_once('\n').expect("its threads");
    let tids: Vec<u32> = first.split(' ').skip(1).map(|tid| tid.parse().expect("a number")).collect();
    let row =
        |line: &str| -> Vec<u64> { line.split(' ').map(|word| word.parse().expect("a number")).collect() };
    let pieces: BTreeMap<u64, Vec<u64>> =
        rows.lines().map(row).map(|row| (row[0], row[1..].to_vec())).collect();
    assert_eq!(pieces.len() as u64, COUNT);

    let text = std::fs::read_to_string(&record).expect("it was written");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let said = WatchOutput { lines, notes: Vec::new(), status: Some(output.status) };
    let (late, beside): (Vec<_>, Vec<_>) =
        said.late().expect("of its own type").into_iter().partition(|late| late.instance == 0);
    let found: BTreeMap<u64, _> =
        late.iter().map(|late| (cookie(&late.events.as_ref().expect("two events").from), late)).collect();
    assert_eq!(found.len(), late.len(), "each once");
    for (number, times) in &pieces {
        let (least, most) = (times[2] - times[1], times[3] - times[0]);
        let Some(late) = found.get(number) else {
            assert!(least <= LIMIT_NS + NEAR_NS, "{number} is late: {times:?}");
            continue;
        };
        assert!(most + NEAR_NS > LIMIT_NS, "{number} is in time: {times:?}");
        let events = late.events.as_deref().expect("two events");
        let is_near = |at: u64, first: u64, last: u64| (first - NEAR_NS..=last + NEAR_NS).contains(&at);
        assert!(is_near(events.from.time_ns.0, times[0], times[1]), "{late:?}: {times:?}");
        assert!(is_near(events.to.time_ns.0, times[2], times[3]), "{late:?}: {times:?}");
        let steps: Vec<(&str, u32, u64)> =
            events.through.iter().map(|step| (step.event.as_str(), step.tid.0, cookie(step))).collect();
        assert_eq!(steps, [("work:step", tids[1], *number)]);
        assert_eq!((events.from.tid.0, events.to.tid.0), (tids[0], tids[2]));
    }
    assert!(found.len() as u64 >= COUNT / 10, "each tenth sleeps for 8 ms");
    // The second thread slept for 8 ms over each tenth: the other tracker has seen that, inside of the piece.
    assert!(beside.iter().all(|late| (late.instance, late.tracker) == (1, Tracker::Offcpu)));
    for (number, late) in found.iter().filter(|(number, _)| *number % 10 == 9) {
        let events = late.events.as_deref().expect("two events");
        let is_within = |sleep: &&LateResponse| {
            let within = events.from.time_ns..=events.to.time_ns;
            let begun = sleep.chain.origin.time_ns;
            sleep.tid.0 == tids[1] && within.contains(&begun) && within.contains(&sleep.end_ns)
        };
        assert_eq!(beside.iter().filter(is_within).count(), 1, "{number}: {late:?}");
    }
    let mut reports = said
        .of_type("summary")
        .into_iter()
        .map(|summary| serde_json::from_value::<Report>(summary.clone()).expect("of its own type"));
    let (report, other) = (reports.next().expect("of the work"), reports.next().expect("of the other"));
    assert_eq!((report.instance, other.instance, other.tracker), (0, 1, Tracker::Offcpu));
    assert_eq!((other.counters.late, other.between.is_none()), (beside.len() as u64, true));
    assert_eq!((report.counters.seen, report.counters.late), (COUNT, late.len() as u64));
    assert_eq!(report.between.as_ref().expect("counts").unmatched, Default::default());
    // What kept it is explained: the second thread slept.
    let explained = said.explanations().expect("of its own type");
    assert!(!explained.is_empty(), "one a second is saved");
}

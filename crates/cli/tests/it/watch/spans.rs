// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time between two events of a program: counted, judged and explained as the program's own stamps say.

use rtscope_analyze::explain::Explanation;
use rtscope_event::{FieldValue, LateResponse, StepKind, WaitKind};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{Workload, WorkloadOutput, program};
use rtscope_testkit::watch::{Rtscope, WatchOutput, watch_command};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const THREADS: u64 = 2;
const COUNT: u64 = 120;
const PROGRAM: [&str; 4] = ["--threads", "2", "--count", "120"];
const LIMIT_NS: u64 = 4_000_000;
/// Between a stamp and the clock of the events, which is converted.
const NEAR_NS: u64 = 30_000;

/// An iteration as the program itself saw it: the earliest and the latest time of each event.
#[derive(Clone, Copy, Debug)]
struct Iteration {
    tid: u64,
    begun: [u64; 2],
    done: [u64; 2],
    taken: [u64; 2],
    slept: bool,
}

fn iterations(program: &WorkloadOutput) -> BTreeMap<u64, Iteration> {
    let times = |note: &Value, key: &str| [0, 1].map(|place| note[key][place].as_u64().expect("a number"));
    let iteration = |note: &Value| {
        let (begun, done, taken) = (times(note, "begun"), times(note, "done"), times(note, "taken"));
        (
            note["id"].as_u64().expect("a number"),
            Iteration {
                tid: note["tid"].as_u64().expect("one"),
                begun,
                done,
                taken,
                slept: note["slept"].as_bool().expect("yes or no"),
            },
        )
    };
    program.all("iteration").map(iteration).collect()
}

fn watched(options: &[&str]) -> (BTreeMap<u64, Iteration>, WatchOutput) {
    let watch = Rtscope::watch(&[&["--threshold", "4ms"], options].concat()).expect("watches");
    let program =
        Workload::start("rtscope-spans", PROGRAM).and_then(Workload::finish).expect("ends by itself");
    (iterations(&program), watch.stop().expect("stops"))
}

fn id(late: &LateResponse, field: &str) -> u64 {
    let events = late.events.as_ref().expect("an interval");
    let event = if field == "order" { &events.to } else { &events.from };
    let Some(FieldValue::Unsigned(id)) = event.fields.get(field) else { panic!("{event:?}") };
    *id
}

/// The late ones are those that the program calls late, and their ends lie where it says.
fn assert_as_the_program_says(
    said: &WatchOutput,
    all: &BTreeMap<u64, Iteration>,
    (field, end): (&str, fn(&Iteration) -> [u64; 2]),
) {
    let late = said.late().expect("of its own type");
    let found: BTreeMap<u64, &LateResponse> = late.iter().map(|late| (id(late, field), late)).collect();
    assert_eq!(found.len(), late.len(), "each once");
    for (id, iteration) in all {
        let (least, most) = (end(iteration)[0] - iteration.begun[1], end(iteration)[1] - iteration.begun[0]);
        match found.get(id) {
            None => assert!(least <= LIMIT_NS + NEAR_NS, "{id} is late: {iteration:?}"),
            Some(late) => {
                assert!(most + NEAR_NS > LIMIT_NS, "{id} is in time: {iteration:?}");
                let (from, to) = (late.chain.origin.time_ns.0, late.end_ns.0);
                let is_near =
                    |time: u64, [first, last]: [u64; 2]| (first - NEAR_NS..=last + NEAR_NS).contains(&time);
                assert!(
                    is_near(from, iteration.begun) && is_near(to, end(iteration)),
                    "{late:?}: {iteration:?}"
                );
                let events = late.events.as_ref().expect("an interval");
                assert_eq!(u64::from(events.from.tid.0), iteration.tid);
            }
        }
    }
    let sleeping = all
        .values()
        .filter(|iteration| iteration.slept && end(iteration)[0] - iteration.begun[1] > LIMIT_NS + NEAR_NS);
    assert!(sleeping.count() as u64 >= THREADS * COUNT / 10, "each tenth sleeps");
}

/// A thread that sleeps in the middle.
fn assert_sleep(explanation: &Explanation, said: &str) {
    let steps: u64 = explanation.steps.iter().map(|step| step.duration_ns).sum();
    assert_eq!(steps, explanation.response_ns, "{said}");
    let waits = explanation.steps.iter().filter(|step| step.kind == StepKind::Wait);
    let asleep: u64 = waits.filter(|step| step.wait == WaitKind::Sleep).map(|step| step.duration_ns).sum();
    assert!(asleep > 5_000_000, "{said}: {explanation:?}");
}

/// Late ones that are explained from a snapshot; of these, those that the program slept in.
fn slept_in_snapshots(said: &WatchOutput, all: &BTreeMap<u64, Iteration>) -> BTreeSet<u64> {
    let late = said.late().expect("of its own type");
    let ids: BTreeMap<u64, u64> = late.iter().map(|late| (late.sequence, id(late, "id"))).collect();
    let explanations = said.explanations().expect("of its own type");
    assert_eq!(explanations.len(), late.len(), "each is explained once");
    let mut slept = BTreeSet::new();
    for explanation in explanations {
        let id = ids[&explanation.sequence];
        if let Some(snapshot) = explanation.snapshot.filter(|_| all[&id].slept) {
            assert_sleep(&explanation, "watch");
            slept.insert(snapshot);
        }
    }
    slept
}

/// A saved snapshot says the same again, and has the events themselves. Returns the number of those that name a sleep.
fn assert_snapshots_say_it_again(directory: &Path) -> usize {
    let mut told = 0;
    for snapshot in fs::read_dir(directory).expect("there").flatten() {
        let mut command = crate::command::rtscope();
        let explained = command.env("LC_ALL", "C.UTF-8").arg("explain").arg(snapshot.path());
        let explained = explained.output().expect("starts");
        let saved = fs::read(snapshot.path().join("explain.txt")).expect("there");
        assert_eq!(String::from_utf8_lossy(&explained.stdout), String::from_utf8_lossy(&saved));
        let said = String::from_utf8_lossy(&saved).into_owned();
        assert!(
            said.contains("from spans:begin (id: ") && said.contains("to spans:end (id: "),
            "both events with their fields: {said}"
        );
        told += usize::from(said.contains("waited for its timer"));
        let mut command = crate::command::rtscope();
        let counted = command.args(["stat", "--json"]).arg(snapshot.path()).output().expect("starts");
        assert!(String::from_utf8_lossy(&counted.stdout).contains("spans:begin"), "the snapshot has them");
    }
    told
}

/// At most one snapshot a second is one for each run, and on a busy machine it may be of an iteration that lost its CPU: then it runs again.
// NEEDS: host
#[test]
fn root_the_time_between_two_events_is_the_programs_own() {
    const RUNS: usize = 20;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let has_sleep = |_| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().to_str().expect("plain");
        let (all, said) = watched(&[
            "--from",
            "spans:begin",
            "--to",
            "spans:end",
            "--snapshot-dir",
            path,
            "--post",
            "10ms",
        ]);
        assert_eq!(all.len() as u64, THREADS * COUNT);
        assert_eq!(said.code(), Some(0), "{:?}", said.notes);
        assert_as_the_program_says(&said, &all, ("id", |iteration| iteration.done));
        let report = said.report().expect("it prints one");
        let late = said.late().expect("of its own type");
        assert_eq!((report.counters.seen, report.counters.late), (THREADS * COUNT, late.len() as u64));
        let between = report.between.as_ref().expect("what was counted");
        assert_eq!(between.unmatched, rtscope_analyze::summary::UnmatchedEvents::default());
        assert_eq!(between.missed_looks, 0);
        let threads: Vec<u64> = between.threads.iter().map(|thread| thread.intervals).collect();
        assert_eq!(threads, [COUNT; THREADS as usize], "{between:?}");
        assert!(
            between.threads.iter().all(|thread| thread.comm.to_string().starts_with("worker-")),
            "{between:?}"
        );
        let slept = slept_in_snapshots(&said, &all);
        let snapshots = fs::read_dir(directory.path()).expect("there").count();
        assert!(snapshots > 0 && report.snapshots == snapshots as u64, "{report:?}");
        let told = assert_snapshots_say_it_again(directory.path());
        assert!(told >= slept.len(), "{told} of {} name the sleep", slept.len());
        !slept.is_empty()
    };
    assert!((0..RUNS).any(has_sleep), "no snapshot of a sleep in {RUNS} runs");
}

// NEEDS: host
#[test]
fn root_events_with_the_same_key_are_paired_across_threads() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (all, said) = watched(&["--from", "spans:begin", "--to", "spans:taken", "--by", "id=order"]);
    assert_as_the_program_says(&said, &all, ("order", |iteration| iteration.taken));
    let report = said.report().expect("it prints one");
    assert_eq!(report.counters.seen, THREADS * COUNT, "{report:?}");
    let between = report.between.as_ref().expect("what was counted");
    assert_eq!((between.by.as_deref(), between.threads.len()), (Some("id=order"), 1));
    assert_eq!(between.threads[0].comm.to_string(), "taker");
    assert_eq!(between.unmatched, rtscope_analyze::summary::UnmatchedEvents::default());
    // Only what ends in the target counts, and a thread of another name takes them all.
    let (_, said) =
        watched(&["--from", "spans:begin", "--to", "spans:taken", "--by", "id=order", "--task", "worker*"]);
    assert_eq!(said.report().expect("it prints one").counters.seen, 0);
}

// NEEDS: host
#[test]
fn root_a_late_interval_of_a_command_decides_its_exit_code() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let run = |to: &str, arguments: &[&str]| {
        let mut command =
            watch_command(&["--threshold", "4ms", "--fail-if-late", "--from", "spans:begin", "--to", to]);
        let command = command.as_mut().expect("built");
        command.arg("--").arg(program("rtscope-spans").expect("built")).args(arguments);
        let taken = std::mem::replace(command, std::process::Command::new("true"));
        Rtscope::start(taken).and_then(Rtscope::finish).expect("ends with COMMAND")
    };
    assert_eq!(run("spans:end", &PROGRAM).code(), Some(4));
    let in_time = run("spans:end", &["--threads", "1", "--count", "50", "--sleep", "1us"]);
    let late = in_time.report().expect("it prints one").counters.late;
    // This machine may take the CPU away for as long.
    assert_eq!(in_time.code(), Some(if late > 0 { 4 } else { 0 }), "{:?}", in_time.notes);
    let nothing = run("spans:nothing", &PROGRAM);
    assert_eq!(nothing.code(), Some(7), "{:?}", nothing.notes);
    let unmatched = nothing.report().expect("it prints one").between.expect("what was counted").unmatched;
    assert_eq!(
        (unmatched.begun_again, unmatched.without_end),
        (THREADS * (COUNT - 1), THREADS),
        "{unmatched:?}"
    );
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope impact`, with the tracers that are here: each one's events are all accounted for, who is not there is said, and
//! nothing is left behind.

use crate::command::number;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const UPROBES: &str = "/sys/kernel/tracing/uprobe_events";

fn rtscope(arguments: &[&str]) -> Command {
    let mut command = crate::command::rtscope();
    command.arg("impact").args(arguments);
    command
}

fn object(output: &Output, schema: &str) -> Value {
    assert!(output.status.success(), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(object["schema"], schema);
    object
}

fn measured(arguments: &[&str]) -> Value {
    let output = rtscope(arguments).arg("--json").output().expect("it can be run");
    object(&output, "rtscope.impact/1")
}

fn case<'a>(report: &'a Value, name: &str) -> &'a Value {
    let cases = report["cases"].as_array().expect("a list");
    cases.iter().find(|case| case["case"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Which of these were measured here. Of the others the reason is said, as a skip.
fn there<'a>(report: &Value, names: &[&'a str]) -> Vec<&'a str> {
    let absent = report["absent"].as_array().expect("a list");
    for absent in absent {
        skip::say(format_args!("{} is not measured here: {}", absent["tracer"], absent["reason"]));
    }
    let is_there = |name: &&&str| absent.iter().all(|absent| absent["tracer"] != **name);
    names.iter().filter(is_there).copied().collect()
}

/// Each of its events is in the trace, or known to be lost.
#[track_caller]
fn assert_accounted_for(report: &Value, name: &str, turns: u64) {
    let case = case(report, name);
    let events = &case["events"];
    let (emitted, recorded, lost) =
        (count(&events["emitted"]), count(&events["recorded"]), count(&events["lost"]));
    println!(
        "{name}: emitted {emitted}, recorded {recorded}, lost {lost}; mean {}",
        case["median"]["mean_ns"]
    );
    // And those of the warm-up iterations.
    assert!(emitted >= turns && emitted <= turns + 50, "{events}");
    assert_eq!(recorded + lost, emitted);
    assert!(recorded > 0);
    // What is missing in the trace is what it says itself that it lost. perf counts records of other kinds with it; bpftrace is
    // not told of those after which nothing found room any more.
    let said = count(&events["lost_said_by_tracer"]);
    let agrees = match name {
        "perf" => said >= lost,
        "bpftrace" => said <= lost,
        _ => said == lost,
    };
    assert!(agrees, "{name}: {events}");
}

#[test]
fn a_turn_is_measured_untraced_with_a_disabled_event_and_recorded_by_rtscope() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let report = measured(&["--tracers", "rtscope,flight", "--loops", "100k", "--rounds", "3"]);
    assert_eq!((count(&report["rounds"]), report["absent"].as_array().map(Vec::len)), (3, Some(0)));
    let [untraced, disabled, recorder, flight] =
        ["untraced", "disabled", "rtscope", "flight"].map(|name| case(&report, name));
    for case in [untraced, disabled, recorder, flight] {
        let [min, mean, max] = ["min_ns", "mean_ns", "max_ns"].map(|key| number(&case["median"][key]));
        assert!(0.0 < min && min <= mean && mean <= max, "{min} {mean} {max}");
        assert!(number(&case["median"]["variance_ns2"]) > 0.0);
        // 100 000 iterations are too few for one in a million.
        assert!(number(&case["median"]["p99.999_ns"]) > 0.0 && case["median"]["p99.9999_ns"].is_null());
        let runs = case["runs"].as_array().expect("a list");
        let turns = |run: &Value| -> u64 {
            run["histogram"].as_array().expect("buckets").iter().map(|bucket| count(&bucket[2])).sum()
        };
        assert_eq!(runs.iter().map(turns).collect::<Vec<_>>(), [100_000; 3]);
    }
    assert_eq!((count(&untraced["events"]["emitted"]), number(&untraced["added"]["mean_ns"])), (0, 0.0));
    assert!(disabled["events"]["recorded"].is_null() && count(&disabled["events"]["emitted"]) >= 300_000);
    assert_accounted_for(&report, "rtscope", 300_000);
    assert!(flight["events"]["overwrites"] == true && count(&flight["events"]["recorded"]) > 0);
    // An event costs something, and much less when nobody records it.
    let added = |case: &Value| number(&case["added"]["p50_ns"]);
    println!("disabled {} ns, rtscope {} ns, flight {} ns", added(disabled), added(recorder), added(flight));
    assert!(added(recorder) > 0.0 && added(flight) > 0.0 && added(disabled) < added(recorder) / 2.0);
}

#[test]
fn lttng_records_what_the_loop_emits_by_both_ways() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let report = measured(&["--tracers", "lttng,lttng-timer", "--loops", "100k", "--rounds", "1"]);
    if there(&report, &["lttng", "lttng-timer"]).len() < 2 {
        return;
    }
    // Its event costs next to nothing when nobody records it.
    let added = |name: &str| number(&case(&report, name)["added"]["p50_ns"]);
    assert!(added("lttng-off") < added("lttng") / 2.0, "{} {}", added("lttng-off"), added("lttng"));
    assert!(case(&report, "lttng-off")["events"]["recorded"].is_null());
    assert_accounted_for(&report, "lttng", 100_000);
    assert_accounted_for(&report, "lttng-timer", 100_000);
}

#[test]
fn two_runs_of_lttng_at_once_do_not_see_each_others_events() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let start = || {
        rtscope(&["--tracers", "lttng,lttng-timer", "--loops", "50k", "--rounds", "2", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be started")
    };
    for child in [start(), start()] {
        let report = object(&child.wait_with_output().expect("it ends"), "rtscope.impact/1");
        let names = there(&report, &["lttng", "lttng-timer"]);
        names.iter().for_each(|name| assert_accounted_for(&report, name, 100_000));
    }
}

// NEEDS: host
#[test]
fn root_perf_and_bpftrace_record_the_loops_usdt_probe() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let report = measured(&["--tracers", "perf,bpftrace", "--loops", "100k", "--rounds", "1"]);
    for name in there(&report, &["perf", "bpftrace"]) {
        assert_accounted_for(&report, name, 100_000);
        // A probe that is hit is a trap into the kernel.
        assert!(number(&case(&report, name)["added"]["p50_ns"]) > 50.0);
    }
}

// NEEDS: host
#[test]
fn root_a_buffer_that_is_too_small_loses_and_the_losses_are_counted() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let all = ["rtscope", "lttng", "lttng-timer", "perf", "bpftrace"];
    let names = all.join(",");
    let report = measured(&["--tracers", &names, "--loops", "500k", "--rounds", "1", "--buffer", "64K"]);
    there(&report, &all).iter().for_each(|name| assert_accounted_for(&report, name, 500_000));
    // What an emulated CPU emits can be kept up with.
    if !rtscope_testkit::machine::is_emulated() {
        let rtscope = case(&report, "rtscope");
        assert!(count(&rtscope["events"]["lost"]) > 0);
        assert!(
            rtscope["notes"][0].as_str().is_some_and(|note| note.contains("the cost is too low")),
            "{rtscope}"
        );
    }
}

#[test]
fn a_tracer_that_is_not_there_is_said_with_the_way_to_get_it() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let empty = tempfile::tempdir().expect("a temporary directory");
    let output =
        rtscope(&["--tracers", "rtscope,lttng,lttng-timer,perf,bpftrace", "--loops", "1k", "--rounds", "1"])
            .args(["--json"])
            .env("PATH", empty.path())
            .output()
            .expect("it can be run");
    let report = object(&output, "rtscope.impact/1");
    let absent = report["absent"].as_array().expect("a list");
    let names: Vec<&str> = absent.iter().filter_map(|absent| absent["tracer"].as_str()).collect();
    assert_eq!(names, ["lttng", "lttng-timer", "perf", "bpftrace"]);
    for absent in absent {
        assert!(
            absent["reason"].as_str().is_some_and(|reason| reason.contains("is not installed")),
            "{absent}"
        );
        assert!(absent["remedy"].as_str().is_some_and(|remedy| remedy.contains("install ")), "{absent}");
    }
    let cases = report["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), 3, "no column for who is not there: {report}");
    // In the text, too, where no number stands for it.
    let output =
        rtscope(&["--tracers", "perf", "--loops", "1k", "--rounds", "1"]).env("PATH", empty.path()).output();
    let output = output.expect("it can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("perf: not measured: perf is not installed; install"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("loop iteration") && line.contains("perf")), "{text}");
}

#[test]
fn the_text_has_the_published_rows_and_the_picture_a_panel_for_each_case() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("impact.svg");
    let output =
        rtscope(&["--tracers", "rtscope", "--loops", "20k", "--rounds", "1", "--plot"]).arg(&file).output();
    let output = output.expect("it can be run");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for row in [
        "min ",
        "mean ",
        "max ",
        "std deviation ",
        "variance, 10³ ns² ",
        "99.99 % ",
        "emitted ",
        "recorded ",
        "lost ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row}: {text}");
    }
    let picture = fs::read_to_string(&file).expect("it was written");
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    // Three histograms, and the untraced one behind two of them.
    assert_eq!(picture.matches("<path").count(), 5, "{picture}");
}

#[test]
fn the_highest_rate_is_one_that_was_recorded_without_a_loss() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let output = rtscope(&["--max-rate", "--tracers", "rtscope", "--duration", "50ms", "--json"]).output();
    let report = object(&output.expect("it can be run"), "rtscope.impact.rate/1");
    let found = &report["tracers"][0]["user_events"];
    println!("{} events a second after {} tries", found["events_per_second"], found["tries"]);
    assert!(number(&found["events_per_second"]) > 0.0, "{report}");
    assert!(count(&found["emitted"]) > 0 && found["emitted"] == found["recorded"], "{report}");
    assert!(count(&found["tries"]) >= 2, "the first to pass has to pass again: {report}");
    // With the kernel's: a rate, or why there is none.
    let with = &report["tracers"][0]["with_kernel_events"];
    if with["events_per_second"].is_null() {
        assert!(with["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{report}");
    } else {
        assert!(with["emitted"] == with["recorded"] && count(&with["kernel_events"]) > 0, "{report}");
    }
}

#[test]
fn the_highest_rate_is_held_as_long_as_asked() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let output = rtscope(&["--max-rate", "--tracers", "rtscope", "--duration", "20ms", "--hold", "300ms"])
        .args(["--without-kernel", "--json"])
        .output();
    let report = object(&output.expect("it can be run"), "rtscope.impact.rate/1");
    let found = &report["tracers"][0]["user_events"];
    let seconds = number(&found["emitted"]) / number(&found["events_per_second"]);
    assert!(seconds > 0.29 && found["emitted"] == found["recorded"], "{seconds} s: {report}");
    assert_eq!(report["tracers"][0]["with_kernel_events"]["reason"], "not requested");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, word) in [
        (["--loops", "0"], "--loops"),
        (["--duration", "0s"], "--duration"),
        (["--cpu", "1023"], "no such CPU"),
        (["--rounds", "0"], "--rounds"),
        (["--tracers", "magic"], "magic"),
        (["--max-rate", "--loops=5"], "--loops"),
    ] {
        let output = rtscope(&arguments).output().expect("it can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

/// Processes that have a directory in their environment: what was started under it, and what those have started.
fn of_folder(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().expect("plain");
    let of = |entry: fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let is_of = String::from_utf8_lossy(&environment).contains(directory);
        is_of.then(|| String::from_utf8_lossy(&words).replace('\0', " "))
    };
    fs::read_dir("/proc").expect("it is there").flatten().filter_map(of).collect()
}

fn interrupt(child: &mut Child) -> Option<i32> {
    kill(Pid::from_raw(child.id().try_into().expect("a process id")), Signal::SIGINT).expect("it runs");
    child.wait().expect("it ends").code()
}

/// Starts it for a long time and waits until the loop runs under `tracer`; `None` where that is not to be had.
fn in_the_middle(tracer: &str, directory: &Path) -> Option<Child> {
    // The order is random: until the tracer is the first.
    loop {
        let mut child = rtscope(&["--tracers", tracer, "--duration", "10min"])
            .env("TMPDIR", directory)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("is not measured") || line.contains("round 1 of"));
        let line = line.expect("it says what it does");
        if line.ends_with(&format!(": {tracer}")) {
            // Whatever the tracer needs is there when the loop is.
            while !of_folder(directory).iter().any(|words| words.contains(" npt --json")) {
                std::thread::yield_now();
            }
            return Some(child);
        }
        interrupt(&mut child);
        if line.contains("is not measured") {
            skip::say(format_args!("{line}"));
            return None;
        }
    }
}

#[test]
fn a_signal_ends_it_with_the_rounds_that_were_complete() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let mut child = rtscope(&["--tracers", "rtscope", "--loops", "10k", "--rounds", "1000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("round 3 of")));
    kill(Pid::from_raw(child.id().try_into().expect("a process id")), Signal::SIGINT).expect("it runs");
    let said: Vec<String> = lines.collect();
    let report = object(&child.wait_with_output().expect("it ends"), "rtscope.impact/1");
    let rounds = count(&report["rounds"]);
    assert!(rounds >= 2, "{rounds}");
    assert!(
        said.iter().any(|line| line.ends_with(&format!("stopped after {rounds} of 1000 rounds"))),
        "{said:?}"
    );
    for case in report["cases"].as_array().expect("a list") {
        assert_eq!(case["runs"].as_array().map(Vec::len), usize::try_from(rounds).ok(), "{}", case["case"]);
    }
}

// NEEDS: host
#[test]
fn root_after_ctrl_c_nothing_is_left_of_any_tracer() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    for tracer in ["rtscope", "flight", "lttng", "perf", "bpftrace"] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let Some(mut child) = in_the_middle(tracer, directory.path()) else { continue };
        let uprobe = format!("rtscope_impact_{}/", child.id());
        let uprobes = || fs::read_to_string(UPROBES).unwrap_or_default();
        assert_eq!(uprobes().contains(&uprobe), tracer == "perf", "{}", uprobes());
        // No round was ended, so there is no result.
        assert_eq!(interrupt(&mut child), Some(1), "{tracer}");
        assert_eq!(of_folder(directory.path()), Vec::<String>::new(), "{tracer}");
        assert_eq!(
            fs::read_dir(directory.path()).expect("it is ours").count(),
            0,
            "{tracer}: its directory is gone"
        );
        assert!(!uprobes().contains(&uprobe), "{tracer}: {}", uprobes());
    }
}

// NEEDS: host
#[test]
fn root_what_a_killed_run_left_is_removed_by_the_next() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(mut child) = in_the_middle("perf", directory.path()) else { return };
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let uprobe = format!("rtscope_impact_{}/", child.id());
    let uprobes = || fs::read_to_string(UPROBES).unwrap_or_default();
    assert!(uprobes().contains(&uprobe), "{}", uprobes());
    // Its children end with it.
    while !of_folder(directory.path()).is_empty() {
        std::thread::yield_now();
    }
    let left = || fs::read_dir(directory.path()).expect("it is ours").count();
    assert_eq!(left(), 1, "the directory of the killed one");
    let next = rtscope(&["--tracers", "perf", "--loops", "1k", "--rounds", "1"])
        .env("TMPDIR", directory.path())
        .output();
    assert!(next.expect("it can be run").status.success());
    assert!(!uprobes().contains(&uprobe), "{}", uprobes());
    assert_eq!(left(), 0);
}

#[test]
fn two_at_once_leave_each_others_folders_alone() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(mut child) = in_the_middle("rtscope", directory.path()) else { return };
    let left = || fs::read_dir(directory.path()).expect("it is ours").count();
    assert_eq!(left(), 1);
    // The other one records programs, so this one cannot, and says by whom they are recorded.
    let second = rtscope(&["--tracers", "rtscope", "--loops", "1k", "--rounds", "1", "--json"])
        .env("TMPDIR", directory.path())
        .output();
    let report = object(&second.expect("it can be run"), "rtscope.impact/1");
    let reason = report["absent"][0]["reason"].as_str().expect("it is absent").to_string();
    assert!(reason.contains("process "), "{reason}");
    assert_eq!(left(), 1);
    assert_eq!(interrupt(&mut child), Some(1));
    assert_eq!(left(), 0);
}

// NEEDS: host
#[test]
fn root_a_search_that_is_stopped_says_what_it_has_found() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let mut child = rtscope(&["--max-rate", "--tracers", "rtscope", "--duration", "50ms", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("with the kernel's events")));
    kill(Pid::from_raw(child.id().try_into().expect("a process id")), Signal::SIGINT).expect("it runs");
    lines.for_each(drop);
    let report = object(&child.wait_with_output().expect("it ends"), "rtscope.impact.rate/1");
    assert!(number(&report["tracers"][0]["user_events"]["events_per_second"]) > 0.0);
    let with = &report["tracers"][0]["with_kernel_events"];
    assert!(with["events_per_second"].is_null() && with["reason"].is_string(), "{report}");
}

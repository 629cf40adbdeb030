// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope npt`: what it measures agrees with itself, and what is recorded of it agrees with what it says it did.

use crate::command::number;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{Workload, wait_until};
use rtscope_testkit::skip;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn rtscope(arguments: &[&str]) -> Output {
    crate::command::rtscope().args(arguments).output().expect("it can be run")
}

/// The object of `--json` among what was printed.
fn result(output: &Output, schema: &str) -> Value {
    // Beside the JSON of a recorder it goes to standard error.
    let all = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&all);
    let line = text.lines().find(|line| line.contains(schema));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{schema}: {output:?}"))).expect("JSON")
}

fn npt(arguments: &[&str]) -> Value {
    let words = [&["npt", "--json", "--spin", "20ms"], arguments].concat();
    let output = rtscope(&words);
    assert!(output.status.success(), "{output:?}");
    result(&output, "rtscope.npt/1")
}

#[test]
fn every_turn_is_counted_once_and_the_gaps_are_the_time_it_took() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let report = npt(&["--loops", "2M", "--warm-up", "0"]);
    let all = &report["measured"][0];
    assert_eq!((&all["windows"], &all["turns"]), (&Value::from("all"), &Value::from(2_000_000)));
    let histogram = all["histogram"].as_array().expect("buckets");
    assert_eq!(histogram.iter().map(|bucket| bucket[2].as_u64().expect("a count")).sum::<u64>(), 2_000_000);
    let (min, mean, max) = (number(&all["min_ns"]), number(&all["mean_ns"]), number(&all["max_ns"]));
    assert!(0.0 < min && min <= mean && mean <= max, "{min} {mean} {max}");
    let percentiles: Vec<f64> =
        all["percentiles"].as_array().expect("a list").iter().map(|it| number(&it["ns"])).collect();
    assert!(percentiles.is_sorted() && percentiles.len() == 7, "{percentiles:?}");
    assert!(min <= percentiles[0] && percentiles[6] <= max);
    // Every nanosecond of the loop is in one gap.
    let (sum, duration) = (number(&all["sum_ns"]), number(&report["duration_ns"]));
    assert!((sum - duration).abs() <= duration * 1e-9 + 1.0, "{sum} {duration}");
    assert_eq!(report["events"]["generated"], 2_000_000);
    assert_eq!(report["events"]["recorded"], false);
}

#[test]
fn a_percentile_beyond_the_sample_is_not_known() {
    let report = npt(&["--loops", "100k"]);
    let percentiles = report["measured"][0]["percentiles"].as_array().expect("a list");
    let known: Vec<bool> = percentiles.iter().map(|it| it["ns"].is_number()).collect();
    assert_eq!(known, [true, true, true, true, true, true, false]);
    let text = rtscope(&["npt", "--loops", "100k", "--spin", "20ms"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.lines().any(|line| line.starts_with("99.9999 %") && line.ends_with("n/a")), "{text}");
}

#[test]
fn what_is_recorded_of_it_is_what_it_generated() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let mut command = crate::command::rtscope();
    command.args(["record", "--json", "-u", "npt:*", "--user-buffer", "64M", "-o"]).arg(&trace).arg("--");
    command.arg(crate::command::path());
    command.args(["npt", "--json", "--spin", "20ms", "--loops", "500k", "--windows", "2ms"]);
    let output = command.output().expect("it can be run");
    assert!(output.status.success(), "{output:?}");
    let (report, account) = (result(&output, "rtscope.npt/1"), result(&output, "rtscope.record.user/1"));
    let generated = report["events"]["generated"].as_u64().expect("a number");
    let lost: u64 = account["losses"]
        .as_array()
        .expect("losses")
        .iter()
        .map(|loss| loss["count"].as_u64().expect("a known number"))
        .sum();
    // And npt:start and npt:stop.
    assert_eq!(account["events"].as_u64().expect("a number") + lost, generated + 2, "{account}");
    assert_eq!(report["events"]["recorded"], true);
    assert_eq!(report["events"]["lost"].as_u64(), Some(lost));
    let [traced, untraced] = [0, 1].map(|at| &report["measured"][at]);
    assert_eq!([&traced["windows"], &untraced["windows"]], ["traced", "untraced"]);
    let [with, without] = [traced, untraced].map(|windows| windows["turns"].as_u64().expect("a number"));
    assert_eq!(with + without, 500_000);
    // Windows begin and end within an iteration, and the iterations of the warm-up have events too.
    assert!(generated.abs_diff(with) <= 6, "{generated} events in {with} turns");
    let cost = number(&traced["percentiles"][0]["ns"]) - number(&untraced["percentiles"][0]["ns"]);
    println!("an event costs about {cost:.1} ns here");
    assert!(cost > 0.0);
    let printed = rtscope(&["print", "--event", "npt:st*", &trace.to_string_lossy()]);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let [start, stop] = printed.lines().collect::<Vec<_>>()[..] else { panic!("two events: {printed}") };
    assert!(start.contains("npt:start") && start.contains("turns = 500000"), "{start}");
    assert!(stop.contains("npt:stop") && stop.contains(&format!("events = {generated}")), "{stop}");
}

// NEEDS: host
#[test]
fn root_long_gaps_are_blamed_on_who_took_them() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let last = std::thread::available_parallelism().expect("known").get() - 1;
    let cpu = last.to_string();
    let hog = ["--name", "blame-hog", "--cpu", &cpu, "--burst", "3ms", "--every", "20ms"];
    let _hog = Workload::start("rtscope-hog", hog).expect("it starts");
    let report = npt(&["--cpu", &cpu, "--duration", "500ms", "--blame", "--threshold", "100us"]);
    let blamed = &report["blamed"];
    let gaps = blamed["gaps"].as_array().expect("a list");
    assert_eq!(gaps.len() as u64, report["long_gaps"]["count"].as_u64().expect("a number"));
    let (mut whole, mut known) = (0.0, 0.0);
    for gap in gaps {
        let parts = gap["parts"].as_array().unwrap_or_else(|| panic!("held: {gap}"));
        let sum: f64 = parts.iter().map(|part| number(&part["time_ns"])).sum();
        // The two clocks' roundings.
        assert!((sum - number(&gap["ns"])).abs() <= 2.0, "{gap}");
        whole += sum;
        let unknown = |part: &&Value| part["kind"] == "unknown";
        known += sum - parts.iter().filter(unknown).map(|part| number(&part["time_ns"])).sum::<f64>();
    }
    let totals = blamed["totals"].as_array().expect("a list");
    let hog =
        totals.iter().find(|total| total["name"] == "blame-hog").unwrap_or_else(|| panic!("{totals:?}"));
    println!("the hog took {hog}; {known} of {whole} ns are known");
    let (time, most) = (number(&hog["time_ns"]), number(&hog["most_ns"]));
    // It keeps the CPU for 3 ms, 25 times; a hypervisor may keep it from that, and hide a switch.
    assert!((15.0 * 3e6..50.0 * 3e6).contains(&time) && (2.5e6..30e6).contains(&most), "{hog}");
    assert!(known > 0.9 * whole);
}

/// Binds the threads of a process to CPU 0 until it ends, whatever it does about that.
fn bind(pid: u32, has_ended: impl Fn() -> bool) {
    let cpu: rtscope_cpus::Cpus = [0].into_iter().collect();
    let tasks = format!("/proc/{pid}/task");
    while !has_ended() {
        for task in std::fs::read_dir(&tasks).into_iter().flatten().flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|tid| tid.parse().ok()) else { continue };
            // It may have ended.
            let _ = rtscope_cpus::Thread::Tid(tid).set_cpus(&cpu);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Gaps over 10 µs of a FIFO 50 program that is recorded, by whom they are blamed on. `plant`: the recorder has the program's CPU only, and
/// comes before it.
fn blamed_while_recorded(plant: bool) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let own = crate::command::path();
    let mut command = Command::new(&own);
    command.args(["record", "--json", "-u", "npt:*", "--user-buffer", "64M", "-o"]);
    command.arg(directory.path().join("trace"));
    if plant {
        command.args(["--fifo", "60"]);
    }
    // For less than a period's real-time share, so that it is not made to give up the CPU.
    let spin = ["--fifo", "50", "--spin", "20ms", "--duration", "500ms", "--rate", "100000/s"];
    command.arg("--").arg(&own).args(["npt", "--json"]).args(spin);
    if plant {
        command.args(["--cpu", "0"]);
    }
    command.args(["--blame", "--threshold", "10us"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it can be run");
    let pid = child.id();
    // A report of many gaps is larger than a pipe: it is read meanwhile.
    let reader = std::thread::spawn(move || child.wait_with_output());
    if plant {
        bind(pid, || reader.is_finished());
    }
    let output = reader.join().expect("it does not panic").expect("it can be run");
    assert!(output.status.success(), "{output:?}");
    let report = result(&output, "rtscope.npt/1");
    let events =
        report["events"]["recorded"] == true && report["events"]["generated"].as_u64() > Some(10_000);
    assert!(events, "{}", report["events"]);
    let totals = report["blamed"]["totals"].as_array().expect("a list").clone();
    println!("gaps over 10 us: {totals:?}");
    totals
}

/// The names of the recorder's threads.
fn is_recorders(total: &Value) -> bool {
    ["rtscope", "user", "look"].iter().any(|name| total["name"] == *name)
}

// NEEDS: host
#[test]
fn root_no_long_gap_of_a_recorded_program_is_rtscopes() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if std::thread::available_parallelism().expect("known").get() < 2 {
        skip!("with one CPU the recorder has to run between the program's turns");
    }
    assert_eq!(blamed_while_recorded(false).iter().find(|total| is_recorders(total)), None);
    // What it takes when it may is seen, unless the host hides its few switches.
    assert!((0..5).any(|_| blamed_while_recorded(true).iter().any(is_recorders)));
}

#[test]
fn rate_and_burst_limit_the_events() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    let report = npt(&["--duration", "200ms", "--rate", "1000/s"]);
    let events = report["events"]["generated"].as_u64().expect("a number");
    assert!((1..=202).contains(&events), "{events} events in 200 ms");
    let report = npt(&["--duration", "200ms", "--rate", "1000/s", "--burst", "10ms,40ms"]);
    let burst = report["events"]["generated"].as_u64().expect("a number");
    // Five windows of ten events, of which the first may have one more.
    assert!((1..=60).contains(&burst), "{burst} events in five windows of 10 ms");
    assert_eq!(report["window_lengths"]["untraced_ns"], 40_000_000);
    // An iteration that is kept waiting lengthens its window; most of the time is untraced still.
    let [traced, untraced] = [0, 1].map(|at| number(&report["measured"][at]["sum_ns"]));
    println!("traced {traced} ns, untraced {untraced} ns");
    assert!(untraced > traced, "{traced} {untraced}");
}

#[test]
fn the_plot_is_a_picture_with_a_line_for_each_kind_of_window() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("npt.svg");
    npt(&["--loops", "100k", "--windows", "1ms", "--plot", &file.to_string_lossy()]);
    let picture = std::fs::read_to_string(&file).expect("it was written");
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    assert_eq!(picture.matches("<path").count(), 2, "{picture}");
    let refused = rtscope(&["npt", "--loops", "1k", "--spin", "1ms", "--plot", "/proc/none/npt.svg"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/proc/none/npt.svg"));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, word) in [
        (["--cpu", "1023"], "no such CPU"),
        (["--loops", "0"], "--loops"),
        (["--duration", "0s"], "--duration"),
        (["--windows", "10ns"], "at least 1us"),
        (["--burst", "10ms"], "pair of times"),
    ] {
        let output = rtscope(&[&["npt"], arguments.as_slice()].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn a_signal_ends_it_with_what_was_measured_so_far() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let mut command = crate::command::rtscope();
    command.args(["npt", "--json", "--spin", "1ms", "--warm-up", "0", "--duration", "10min"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().expect("it can be started");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    // Its thread is there after its handlers are.
    let tasks = format!("/proc/{}/task", child.id());
    while std::fs::read_dir(&tasks).map_or(0, Iterator::count) < 2 {
        std::thread::yield_now();
    }
    kill(pid, Signal::SIGINT).expect("it lives");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    // At least one, however early it was.
    assert!(number(&result(&output, "rtscope.npt/1")["measured"][0]["turns"]) > 0.0);
}

#[test]
fn other_commands_do_not_look_like_instrumented_programs() {
    let _cpus = Cpus::take().expect("the build directory can be written");
    // The list is made by such a command itself.
    let listed = rtscope(&["list", "--json"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && !text.contains("npt"), "{text}");
}

/// Values of a map in the description of a descriptor: their size and number.
fn map_of(description: &str) -> Option<(u64, u64)> {
    let number = |key: &str| description.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    number("value_size:").zip(number("max_entries:"))
}

// NEEDS: host
#[test]
fn root_blame_has_large_buffers_for_the_measured_cpu_only() {
    const LARGE: u64 = 32 << 20;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut command = crate::command::rtscope();
    command.args([
        "npt",
        "--blame",
        "--blame-buffer",
        "32M",
        "--cpu",
        "1",
        "--duration",
        "1h",
        "--spin",
        "1ms",
    ]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be run");
    let descriptors = format!("/proc/{}/fdinfo", child.id());
    let large = || {
        let files = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
        let maps = files.filter_map(|file| map_of(&std::fs::read_to_string(file.path()).ok()?));
        maps.filter(|(bytes, _)| *bytes >= LARGE).max()
    };
    wait_until("the buffers are made", || large().is_some());
    let found = large();
    child.kill().and_then(|()| child.wait()).expect("ours");
    // Two banks, whatever the number of CPUs.
    assert_eq!(found.map(|(_, banks)| banks), Some(2));
}

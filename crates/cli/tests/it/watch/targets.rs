// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose responses count, to what, and until when: names that come and go, many threads, filters, real devices.

use crate::command::count;
use rtscope_event::{End, OriginKind, StepKind};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{Workload, WorkloadOutput};
use rtscope_testkit::skip;
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Watches with these options while rtscope-threads runs with these arguments.
fn watch_threads(options: &[&str], arguments: &[&str]) -> (WorkloadOutput, WatchOutput) {
    watch_threads_above("1s", options, arguments)
}

/// The same with this limit.
fn watch_threads_above(limit: &str, options: &[&str], arguments: &[&str]) -> (WorkloadOutput, WatchOutput) {
    let watch = Rtscope::watch(&[&["--threshold", limit], options].concat()).expect("watches");
    let threads =
        Workload::start("rtscope-threads", [&["--work", "10us"], arguments].concat()).expect("starts");
    let threads = threads.finish().expect("ends by itself");
    (threads, watch.stop().expect("stops"))
}

/// All counted, but for the few that some kernels hide from every tracer (ftrace misses the same ones): one in a hundred, or
/// the one iteration of all `threads` that a hidden timer interrupt woke together.
#[track_caller]
fn assert_all_seen(said: &WatchOutput, responses: u64, threads: u64) {
    let report = said.report().expect("it prints one");
    let seen = report.counters.seen;
    let hidden = responses.saturating_sub(seen);
    if hidden > 0 {
        println!("hidden by the kernel: {hidden} of {responses} responses");
    }
    let allowed = (responses / 100).max(threads);
    assert!(seen <= responses && hidden <= allowed, "{seen} of {responses}: {report:?}");
}

// NEEDS: host
#[test]
fn root_all_of_200_threads_are_counted() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let arguments = ["--name", "e2e-many-", "--threads", "200", "--duration", "1s"];
    let (threads, said) = watch_threads(&["--task", "e2e-many-*"], &arguments);
    let responses = count(threads.summary().expect("it prints one"), "responses");
    assert!(responses >= 5_000, "{responses}");
    assert_all_seen(&said, responses, 200);
}

// NEEDS: host
#[test]
fn root_a_target_that_ends_is_counted_to_its_end() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let arguments = ["--name", "e2e-mortal-", "--threads", "20", "--exit-after", "10", "--duration", "600ms"];
    let (threads, said) = watch_threads(&["--task", "e2e-mortal-*"], &arguments);
    assert_eq!(count(threads.summary().expect("it prints one"), "responses"), 200);
    assert_all_seen(&said, 200, 20);
    assert_eq!(said.code(), Some(0));
}

// NEEDS: one kernel
#[test]
fn root_the_responses_of_each_thread_are_counted() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    // They have ended when the summary is made, each after as many responses.
    let arguments = ["--name", "e2e-each-", "--threads", "20", "--exit-after", "10", "--duration", "600ms"];
    let (program, said) = watch_threads_above("1us", &["--task", "e2e-each-*"], &arguments);
    let report = said.report().expect("it prints one");
    let own: Vec<u64> = program.all("thread").map(|thread| count(thread, "tid")).collect();
    assert_eq!((own.len(), report.threads.len(), report.other_threads.count), (20, 20, 0), "{report:?}");
    let responses = report.threads.iter().map(|thread| thread.responses.expect("its own place"));
    assert_eq!(responses.sum::<u64>(), report.counters.seen, "{report:?}");
    for thread in &report.threads {
        let all = thread.responses.expect("its own place");
        assert!(own.contains(&thread.tid.0.into()) && (thread.count..=10).contains(&all), "{thread:?}");
    }
    // Without a late one they are the others.
    let (_, said) = watch_threads(&["--task", "e2e-each-*"], &arguments);
    let report = said.report().expect("it prints one");
    let others = report.other_threads;
    assert_eq!((report.threads.len(), others.count, others.responses), (0, 20, report.counters.seen));
}

const RENAMED: [&str; 10] = [
    "--name",
    "e2e-old-",
    "--new-name",
    "e2e-new",
    "--rename-after",
    "10",
    "--threads",
    "20",
    "--duration",
    "600ms",
];

// NEEDS: host
#[test]
fn root_a_target_that_takes_another_name_is_counted_until_then() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (threads, said) = watch_threads(&["--task", "e2e-old-*"], &RENAMED);
    assert!(count(threads.summary().expect("it prints one"), "responses") > 300);
    assert_all_seen(&said, 200, 20);
}

// NEEDS: host
#[test]
fn root_a_task_that_takes_the_name_is_counted_from_then() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (threads, said) = watch_threads(&["--task", "e2e-new"], &RENAMED);
    assert_all_seen(&said, count(threads.summary().expect("it prints one"), "responses") - 200, 20);
}

// NEEDS: host
#[test]
fn root_a_target_that_does_not_exist_yet_is_waited_for_and_found() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut watch = Rtscope::watch(&["--task", "e2e-awaited", "--threshold", "50us"]).expect("watches");
    watch.wait_for_note("there are no tasks named 'e2e-awaited' yet; waiting for them").expect("it says so");
    let victim =
        Workload::start("rtscope-victim", ["--name", "e2e-awaited", "--deadline", "50us"]).expect("starts");
    watch.wait_for_note("found 1 of tasks named 'e2e-awaited'").expect("it says so");
    watch.wait_for_type("late").expect("it is watched from its first response on");
    drop(victim);
    assert_eq!(watch.stop().expect("stops").code(), Some(0));
}

// NEEDS: host
#[test]
fn root_a_target_that_never_comes_is_waited_for_until_the_time_is_over() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watch = Rtscope::watch(&["--task", "e2e-never", "--threshold", "1us", "--duration", "300ms"]);
    let said = watch.and_then(Rtscope::finish).expect("ends by itself");
    assert_eq!((said.code(), said.report().expect("it prints one").counters.seen), (Some(0), 0));
    assert!(said.noted("waiting for them"), "{:?}", said.notes);
}

/// `late>0` asks what `--fail-if-late` asks: nothing was late, since nothing was there.
// NEEDS: host
#[test]
fn root_what_was_not_seen_was_not_in_time_either() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for condition in ["late>0", "late<=3", "max>1ms"] {
        let options =
            ["--task", "e2e-never", "--threshold", "1us", "--duration", "10ms", "--fail-if", condition];
        let said = Rtscope::watch(&options).and_then(Rtscope::finish).expect("ends by itself");
        assert_eq!(said.code(), Some(7), "{condition}: {:?}", said.notes);
    }
}

// NEEDS: host
#[test]
fn root_a_process_that_is_watched_by_number_may_end() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let victim = Workload::start("rtscope-victim", ["--name", "e2e-by-number"]).expect("starts");
    let pid = victim.pid().to_string();
    let mut watch = Rtscope::watch(&["--pid", &pid, "--threshold", "50us"]).expect("watches");
    let late = watch.wait_for_type("late").expect("it is late at every turn");
    assert_eq!(count(&late, "pid"), u64::from(victim.pid()));
    victim.stop().expect("stops");
    let said = watch.stop().expect("stops");
    assert!(said.late().expect("of its own types").iter().all(|late| late.pid.0.to_string() == pid));
    assert_eq!(said.code(), Some(0));
}

// NEEDS: real time (an emulated CPU is late by itself, so a program and rtscope count other iterations as late)
#[test]
fn root_until_running_a_response_ends_when_the_target_runs() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let name = "e2e-running";
    let watch =
        Rtscope::watch(&["--task", name, "--threshold", "500us", "--end", "running"]).expect("watches");
    let hog = Workload::start("rtscope-hog", ["--every", "41.3ms"]).expect("starts");
    // The work takes longer than the limit: it must not count.
    let arguments =
        ["--name", name, "--period", "4ms", "--work", "600us", "--deadline", "500us", "--duration", "1s"];
    let victim = Workload::start("rtscope-victim", arguments).and_then(Workload::finish).expect("runs");
    drop(hog);
    let late = watch.stop().and_then(|said| said.late()).expect("of its own types");
    assert!(late.len() >= 10, "{}", late.len());
    let turns: Vec<&Value> = victim.all("late").collect();
    assert!(late.len() < turns.len() / 2, "{} of {} turns", late.len(), turns.len());
    let last_ns = count(turns.last().expect("every turn is late"), "asked_ns");
    // The last time it wakes to find that it shall end: that is no iteration.
    for late in late.into_iter().filter(|late| late.chain.origin.time_ns.0 <= last_ns) {
        assert_eq!(
            (late.end, late.chain.steps.last().map(|step| step.kind)),
            (End::Running, Some(StepKind::Wakeup))
        );
        let turn = turns.iter().find(|turn| count(turn, "asked_ns") == late.chain.origin.time_ns.0);
        let woke_ns = count(turn.expect("the victim was late in this turn, too"), "woke_ns");
        assert!(
            (late.end_ns.0..late.end_ns.0 + 100_000).contains(&woke_ns),
            "{late:?}, but it woke at {woke_ns}"
        );
    }
}

// NEEDS: host
#[test]
fn root_timers_are_counted_when_asked_for_and_filtered_when_not() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some((irq, _)) = rtscope_kernel::interrupts().into_iter().next() else {
        skip!("there is no device interrupt");
    };
    let irq = irq.to_string();
    let arguments = ["--name", "e2e-timers-", "--threads", "5", "--duration", "300ms"];
    let task = ["--task", "e2e-timers-*"];
    let (threads, said) = watch_threads(&[&task[..], &["--timer"]].concat(), &arguments);
    assert_all_seen(&said, count(threads.summary().expect("it prints one"), "responses"), 20);
    let (_, said) = watch_threads(&[&task[..], &["--irq", &irq]].concat(), &arguments);
    let counters = said.report().expect("it prints one").counters;
    assert!(counters.seen == 0 && counters.filtered > 50, "{counters:?}");
    let (threads, said) = watch_threads(&[&task[..], &["--irq", &irq, "--timer"]].concat(), &arguments);
    assert_all_seen(&said, count(threads.summary().expect("it prints one"), "responses"), 20);
}

/// A thread that reads from the disk, past the page cache, until dropped.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(name: &str) -> Option<Reader> {
        let path = crate::command::path();
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let read = move || {
            // O_DIRECT wants memory at a multiple of the disk's block.
            let mut memory = vec![0_u8; 8192];
            let at = memory.as_ptr().align_offset(4096);
            // ORDER: relaxed; the flag stands for itself.
            while !asked.load(Ordering::Relaxed) {
                if !matches!(file.read(&mut memory[at..at + 4096]), Ok(4096)) {
                    use std::io::Seek;
                    file.rewind().expect("it is a file");
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(read).expect("starts");
        Some(Reader { stop, thread: Some(thread) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // ORDER: relaxed; see the reader.
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How often each device interrupt came, by number.
fn interrupt_counts() -> Vec<(u32, u64)> {
    let text = fs::read_to_string("/proc/interrupts").expect("every Linux has it");
    let count = |line: &str| {
        let (irq, rest) = line.split_once(':')?;
        let counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        Some((irq.trim().parse().ok()?, counts.sum()))
    };
    text.lines().filter_map(count).collect()
}

/// The interrupt of the disk that a reader reads from: of those that come with its reads, the most frequent.
fn disk_interrupt() -> Option<u32> {
    let before = interrupt_counts();
    let _reader = Reader::start("e2e-prober")?;
    for _ in 0..200 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let grown = interrupt_counts().into_iter().filter_map(|(irq, count)| {
            let (_, earlier) = before.iter().find(|(known, _)| *known == irq)?;
            Some((count - earlier, irq))
        });
        if let Some((_, irq)) = grown.max().filter(|(count, _)| *count >= 200) {
            return Some(irq);
        }
    }
    None
}

// NEEDS: host
#[test]
fn root_responses_to_a_disk_are_found_by_number_and_by_name() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(irq) = disk_interrupt() else {
        skip!("no device interrupt comes with reads of the build directory");
    };
    let names = rtscope_kernel::interrupts();
    let (_, name) = names.iter().find(|(known, _)| known.0 == irq).expect("it has a handler");
    let first_name = name.split(',').next().expect("not empty");
    for asked in [irq.to_string().as_str(), first_name] {
        let options = ["--irq", asked, "--task", "e2e-reader", "--threshold", "1ns", "--rate", "1/h"];
        let mut watch = Rtscope::watch(&options).expect("watches");
        let reader = Reader::start("e2e-reader").expect("it worked before");
        (0..50).for_each(|_| drop(watch.wait_for_type("late").expect("a response to the disk")));
        let explained = watch.wait_for_type("explanation").expect("an explanation");
        drop(reader);
        let said = watch.stop().expect("stops");
        for late in said.late().expect("of its own types") {
            assert_eq!((late.chain.origin.kind, late.chain.origin.id), (OriginKind::Irq, irq), "{late:?}");
        }
        let actor = &explained["origin"]["actor"];
        assert!(actor["type"] == "irq" && actor["name"] == name.as_str(), "{actor}");
    }
}

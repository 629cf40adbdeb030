// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cycles of threads that do other things, too: what they did before they began to work, and what stops them.

use nix::poll::{PollTimeout, poll};
use nix::sys::prctl::set_name;
use nix::sys::signal::{Signal, kill};
use rtscope_event::{StepKind, WaitKind};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use std::ffi::CString;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Cycles of the thread below.
const CYCLES: u64 = 400;

fn watch(name: &str, options: &[&str]) -> Rtscope {
    let arguments = ["--task", name, "--end", "cycle", "--threshold", "1s"];
    Rtscope::watch(&[&arguments, options].concat()).expect("watches")
}

/// A thread that does something, and then waits in poll for a millisecond this many times.
fn work(first: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || {
        first();
        for _ in 0..CYCLES {
            // Without a signal handler there is nothing that could interrupt it.
            let _ = poll(&mut [], PollTimeout::from(1_u8));
        }
    });
    thread.join().expect("it ends");
}

fn name_thread(name: &str) {
    set_name(&CString::new(name).expect("no NUL")).expect("any thread may");
}

/// But for those that some hosts hide: as many as were counted as hidden, and one in a hundred that nobody saw.
#[track_caller]
fn assert_seen(said: &WatchOutput, expected: u64) {
    let counters = said.report().expect("it prints one").counters;
    let missing = expected.saturating_sub(counters.seen);
    assert!(
        counters.seen <= expected && missing <= counters.hidden + expected / 100,
        "{expected}: {counters:?}"
    );
}

/// A program's threads sleep, or wait for something else, and name themselves then. The timer that had ended that wait was the begin of a cycle
/// that never ended: none was measured.
// NEEDS: host
#[test]
fn root_a_thread_that_takes_the_name_after_a_sleep_has_its_cycles() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watch = watch("e2e-named", &[]);
    work(|| {
        thread::sleep(Duration::from_millis(5));
        name_thread("e2e-named");
    });
    assert_seen(&watch.stop().expect("stops"), CYCLES - 1);
}

/// As above, where the sleep is the target's own: it has begun a cycle, which is given up.
// NEEDS: host
#[test]
fn root_a_thread_that_slept_once_has_its_cycles() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watch = watch("e2e-setup", &[]);
    work(|| {
        name_thread("e2e-setup");
        thread::sleep(Duration::from_millis(5));
    });
    let said = watch.stop().expect("stops");
    assert_seen(&said, CYCLES - 64);
    assert_eq!(said.report().expect("as above").counters.abandoned, 1);
}

/// What a stop takes is a stop: not the page fault or the poll in which it came.
// NEEDS: host
#[test]
fn root_a_stop_is_called_a_stop() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut watch = Rtscope::watch(&["--task", "e2e-stopped", "--end", "cycle", "--threshold", "150ms"])
        .expect("watches");
    // It works for most of its period, so that it is stopped at work.
    let script = "import ctypes, time\nctypes.CDLL(None).prctl(15, b'e2e-stopped')\nwhile True:\n time.sleep(0.001)\n \
                  end = time.monotonic() + 0.05\n while time.monotonic() < end: pass\n";
    let mut command = Command::new("python3");
    let Ok(mut child) = rtscope_testkit::process::KilledWithTest::start(command.args(["-c", script])) else {
        rtscope_testkit::skip!("no python3")
    };
    watch.wait_for_note("found 1 of tasks named 'e2e-stopped'").expect("it takes its name");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a process"));
    let mut stops = 0;
    let is_stop = |watch: &Rtscope| {
        let late = watch.received().late().unwrap_or_default();
        let mut steps = late.into_iter().flat_map(|late| late.chain.steps);
        steps.any(|step| step.kind == StepKind::Wait && step.wait == WaitKind::Stop)
    };
    while stops < 20 && !is_stop(&watch) {
        kill(pid, Signal::SIGSTOP).expect("it runs");
        thread::sleep(Duration::from_millis(200));
        kill(pid, Signal::SIGCONT).expect("it is there");
        watch.wait_for_type("late").expect("a stop makes it late");
        stops += 1;
    }
    assert!(is_stop(&watch), "{:?}", watch.received().late());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let said = watch.stop().expect("stops");
    let waits = said.late().expect("JSON").into_iter().flat_map(|late| late.chain.steps);
    let waits: Vec<WaitKind> = waits
        .filter(|step| step.kind == StepKind::Wait && step.duration_ns > 100_000_000)
        .map(|step| step.wait)
        .collect();
    assert!(waits.iter().all(|wait| *wait == WaitKind::Stop), "{waits:?}");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakings that come before the thread has left its CPU: it announced a wait, and the interrupt that ends it came in between. It has waited for
//! nothing, and yet it may respond late: when the CPU itself stood still there, as it does in firmware, or where a host has taken it away.

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::skip;
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use std::thread;
use std::time::Duration;

/// Waits of either kind.
const WAITS: u64 = 500;

/// A thread that waits this often until a time that has come before it can leave its CPU, and as often until one that has not.
/// Returns how often it left.
fn wait_briefly(name: &'static str) -> u64 {
    let thread = thread::spawn(move || {
        sched::set_name(name);
        sched::set_policy(Policy::Fifo(50)).expect("root may");
        let clock = ClockId::CLOCK_MONOTONIC;
        let left = || getrusage(UsageWho::RUSAGE_THREAD).expect("Linux has it").voluntary_context_switches();
        let before = left();
        for _ in 0..WAITS {
            let now = clock.now().expect("it is there");
            // Without a signal handler there is nothing that could interrupt it.
            let _ = clock_nanosleep(clock, ClockNanosleepFlags::TIMER_ABSTIME, &now);
            thread::sleep(Duration::from_micros(200));
        }
        left() - before
    });
    u64::try_from(thread.join().expect("it ends")).expect("it counts up")
}

/// As many as there were waits, but for those that some hosts hide. `each`: how many a hidden switch costs.
fn check(said: &WatchOutput, (expected, each): (u64, u64), left: u64) {
    let counters = said.report().expect("it prints one").counters;
    println!("{WAITS} and {WAITS} waits, left its CPU {left} times: {counters:?}");
    assert!(counters.seen <= expected && counters.seen + each * counters.hidden >= expected, "{expected}");
    // Where it left for them, too, nothing was shown.
    if 2 * WAITS - left.min(2 * WAITS) < WAITS / 2 {
        skip!("the thread left its CPU for {left} of {} waits", 2 * WAITS);
    }
    assert!(counters.busy > 0);
}

fn watch(name: &str, end: &str) -> Rtscope {
    Rtscope::watch(&["--task", name, "--timer", "--end", end, "--threshold", "1s"]).expect("watches")
}

/// When the thread has come to its CPU unseen, that it runs when it is woken next is not known, either: of two responses there is no end, and one
/// switch is counted as hidden (the summary said 13 of 26).
// NEEDS: real time (the timers of an emulated CPU come after the switch)
#[test]
fn root_a_wait_that_is_over_before_its_thread_has_left_is_a_response_until_it_runs() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watch = watch("e2e-brief-run", "running");
    let left = wait_briefly("e2e-brief-run");
    check(&watch.stop().expect("stops"), (2 * WAITS, 2), left);
}

/// Its last response has no end: the thread ends.
// NEEDS: real time (the timers of an emulated CPU come after the switch)
#[test]
fn root_a_wait_that_is_over_before_its_thread_has_left_is_a_response_until_it_waits() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watch = watch("e2e-brief", "blocked");
    let left = wait_briefly("e2e-brief");
    check(&watch.stop().expect("stops"), (2 * WAITS - 1, 1), left);
}

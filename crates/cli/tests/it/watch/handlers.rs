// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trackers `irq` and `softirq`, judged by a program that keeps a CPU in the network softirq for as long as it says.

use super::truth::Truth;
use rtscope_analyze::explain::{Delayed, DelayedHow};
use rtscope_event::{End, LateResponse, OriginKind, StepKind, Tracker};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::notes::Burst;
use rtscope_testkit::process::{Workload, WorkloadOutput};
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use std::process::Command;

const NET_RX: u32 = 3;
/// Two readings of one clock.
const STAMPS_NS: u64 = 5_000;

/// A flood whose sends take 2 ms, each of which is one softirq; and what rtscope says of that.
fn flooded(name: &str, options: &[&str]) -> (WorkloadOutput, WatchOutput) {
    let mut watch = Rtscope::start(tracker_command(options)).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let flood = ["--name", name, "--burst", "2ms", "--every", "31.3ms", "--duration", "2s"];
    let flood = Workload::start("rtscope-flood", flood).expect("it starts").finish().expect("it ends");
    (flood, watch.stop().expect("it stops"))
}

fn tracker_command(options: &[&str]) -> Command {
    let mut command = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    command.arg("watch").args(options).arg("--json");
    command
}

fn is_in(late: &LateResponse, burst: &Burst) -> bool {
    burst.start_ns <= late.chain.origin.time_ns.0 + STAMPS_NS && late.end_ns.0 <= burst.end_ns + STAMPS_NS
}

fn is_received(late: &LateResponse) -> bool {
    (late.chain.origin.kind, late.chain.origin.id) == (OriginKind::Softirq, NET_RX)
}

// NEEDS: host
#[test]
fn root_long_softirqs_are_those_that_a_flood_makes() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (flood, said) = flooded("e2e-softirq", &["softirq", "--task", "e2e-softirq", "--threshold", "1ms"]);
    let tid = flood.ready["tid"].as_u64().expect("a number");
    let late = said.late().expect("of its own types");
    let bursts: Vec<Burst> = flood.lines.iter().filter_map(Burst::from_json).collect();
    let first = bursts.first().expect("it floods").start_ns;
    println!("{} bursts, {} late", bursts.len(), late.len());
    assert!(bursts.len() > 30, "{} bursts", bursts.len());
    // Where the CPU is busy, the kernel leaves a softirq to ksoftirqd: that interrupts nobody. Others may have the CPU in a burst, but that is no
    // time of its thread.
    let received_ns = |burst: &Burst| -> u64 {
        let of_burst = late.iter().filter(|late| is_received(late) && is_in(late, burst));
        of_burst.map(LateResponse::response_ns).sum()
    };
    let found = bursts.iter().filter(|burst| 2 * received_ns(burst) > burst.cpu_ns).count();
    // Before its first burst it finds out how much fits into one.
    let is_known = |one: &LateResponse| one.end_ns.0 < first || bursts.iter().any(|burst| is_in(one, burst));
    let invented = late.iter().filter(|one| !is_known(one)).count();
    Truth { injected: bursts.len(), found, invented, hidden: said.hidden_switches() }
        .tell(Tracker::Softirq, "floods of datagrams");
    assert!(10 * found >= 9 * bursts.len(), "{found} of {} bursts", bursts.len());
    for one in &late {
        assert_eq!((one.tracker, one.end), (Tracker::Softirq, End::Handled), "{one:?}");
        let steps: Vec<StepKind> = one.chain.steps.iter().map(|step| step.kind).collect();
        assert_eq!(steps, [StepKind::SoftirqWait, StepKind::Softirq], "{one:?}");
        assert!(is_known(one) && u64::from(one.tid.0) == tid, "{one:?}");
        // What is raised while the flood is received waits for that.
        let waited_ns = one.chain.steps[0].duration_ns;
        assert!(is_received(one) || 10 * waited_ns > 9 * one.response_ns(), "{one:?}");
    }
    let explained = said.explanations().expect("of its own types");
    assert!(!explained.is_empty());
    for explanation in explained {
        let is_flood = |delayed: &Delayed| {
            u64::from(delayed.thread.tid.0) == tid && delayed.how == DelayedHow::Interrupted
        };
        assert!(explanation.delayed.iter().any(is_flood), "{explanation:?}");
        assert_eq!(explanation.woken_by, None);
    }
}

// NEEDS: host
#[test]
fn root_handlers_of_interrupts_that_delay_a_thread_are_counted_beside_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    // A thread that only runs is interrupted by its CPU's timer, 100 to 1000 times a second.
    let options = ["irq", "--task", "e2e-irq", "--threshold", "1s", "--and", "irq:1ns"];
    let mut watch = Rtscope::start(tracker_command(&options)).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let hog = ["--name", "e2e-irq", "--burst", "50ms", "--every", "60ms", "--duration", "1s"];
    let hog = Workload::start("rtscope-hog", hog).expect("it starts").finish().expect("it ends");
    let said = watch.stop().expect("it stops");
    let tid = hog.ready["tid"].as_u64().expect("a number");
    let late = said.late().expect("of its own types");
    assert!(late.len() > 50, "{} handlers", late.len());
    for one in &late {
        assert_eq!((one.tracker, one.instance, one.end), (Tracker::Irq, 1, End::Handled), "{one:?}");
        assert!(matches!(one.chain.origin.kind, OriginKind::Irq | OriginKind::Vector), "{one:?}");
        assert_eq!(u64::from(one.tid.0), tid, "{one:?}");
        let [step] = one.chain.steps[..] else { panic!("{one:?}") };
        assert_eq!((step.kind, step.duration_ns), (StepKind::Handler, one.response_ns()), "{one:?}");
    }
    // Both instances saw the same; what the second one's ring had no place for is counted.
    let reports: Vec<_> = said.of_type("summary").into_iter().collect();
    let [first, second] = reports[..] else { panic!("{reports:?}") };
    assert_eq!(first["counters"]["seen"], second["counters"]["seen"]);
    assert_eq!(first["counters"]["late"], 0);
    assert_eq!(second["counters"]["late"], second["counters"]["seen"]);
    assert!(second["counters"]["seen"].as_u64() >= Some(late.len() as u64));
}

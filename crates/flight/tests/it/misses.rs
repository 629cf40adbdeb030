// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flight recorder under system calls and a FIFO thread: what it has and what the kernel skipped is all that happened.
//!
//! Its eBPF programs may be skipped where their tracepoints fire with interrupts or preemption on: the kernel counts that, program
//! by program, and an oracle that shares nothing with them (`rtscope_testkit::count`) counts the events. A miss that the kernel
//! does not report would be missing here.

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::{Pid, gettid};
use rtscope_event::{EventKind, LossCause, MonotonicNs, Tid};
use rtscope_flight::FlightRecorder;
use rtscope_kernel::{EbpfConfig, EbpfPrograms, RecorderConfig};
use rtscope_testkit::count::{Counters, Place, windows};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::Workload;
use std::collections::BTreeMap;

/// A tracepoint whose eBPF program can be skipped, and the events that it makes.
type Skippable = (&'static str, fn(&EventKind) -> bool);

const EVENTS: [Skippable; 3] = [
    ("task:task_rename", |kind| matches!(kind, EventKind::TaskRename { .. })),
    ("irq:softirq_entry", |kind| matches!(kind, EventKind::SoftirqEntry { .. })),
    ("irq:softirq_exit", |kind| matches!(kind, EventKind::SoftirqExit { .. })),
];

fn misses(ebpf: &EbpfPrograms) -> BTreeMap<String, u64> {
    ebpf.recursion_misses()
        .into_iter()
        .map(|(name, count)| (name, count.expect("the kernel counts them")))
        .collect()
}

// NEEDS: one kernel
#[test]
fn root_what_is_recorded_and_what_was_skipped_is_all_that_happened() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(counters) = Counters::for_test(&EVENTS.map(|(event, _)| event)) else { return };
    let recorder = RecorderConfig { bank_bytes: 64 << 20, snapshot: None, stream: None };
    let config = EbpfConfig { recorder: Some(recorder), ..EbpfConfig::default() };
    let ebpf = EbpfPrograms::start(&config).unwrap();
    let mut recorder = FlightRecorder::new(ebpf.memory(&config).unwrap(), ebpf.started());
    let before = misses(&ebpf);
    let from = counters.mark().unwrap();
    let load = Workload::start("rtscope-calls", ["--duration", "300ms"]).and_then(Workload::finish).unwrap();
    let until = counters.mark().unwrap();
    ebpf.enable(false);
    let after = misses(&ebpf);
    let windows = windows(from, until);
    let snapshot = recorder.peek(MonotonicNs(0));
    let recording = snapshot.decode(snapshot.window(u64::MAX, None), ebpf.dump_tasks().unwrap(), Vec::new());
    // Some hosts hide some of their threads from eBPF; these rename no task and are found as gaps.
    let ours: Vec<_> = recording.losses.iter().filter(|loss| loss.cause != LossCause::Gap).collect();
    assert!(ours.is_empty(), "{ours:?}");
    let gaps = recording.losses.iter().any(|loss| loss.cause == LossCause::Gap && loss.count != Some(0));
    for (number, (event, is_it)) in EVENTS.iter().enumerate() {
        let program = event.split(':').next_back().unwrap();
        let skipped = after[program] - before[program];
        let (mut inside, mut edge, mut oracle) = (0, 0, 0);
        for window in &windows {
            let here = recording
                .events
                .iter()
                .filter(|event| event.cpu.0 as usize == window.from.cpu && is_it(&event.kind));
            let places: Vec<Place> = here.map(|event| window.place(event.time.0)).collect();
            inside += places.iter().filter(|place| **place == Place::Inside).count() as u64;
            edge += places.iter().filter(|place| **place == Place::AtTheEdge).count() as u64;
            oracle += window.count(number);
        }
        println!(
            "COMPLETE: {{\"event\":\"{event} (flight recorder)\",\"recorded\":{inside},\"edge\":{edge},\"lost\":{skipped},\
             \"oracle\":{oracle}}}"
        );
        assert!(inside <= oracle, "{event}: {inside} recorded of {oracle}");
        let is_reported = oracle <= inside + edge + skipped;
        assert!(
            is_reported || (gaps && number > 0),
            "{event}: {inside} (+{edge}) of {oracle}, and only {skipped} skipped"
        );
    }
    // The load made this many renames at least; others come from its start.
    let made = load.summary().unwrap()["rename"].as_u64().unwrap();
    assert!(made > 500, "{made}");
}

// NEEDS: one kernel
#[test]
fn root_signals_are_recorded_with_who_they_are_for_and_what_became_of_them() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let recorder = RecorderConfig { bank_bytes: 16 << 20, snapshot: None, stream: None };
    let config = EbpfConfig { recorder: Some(recorder), ..EbpfConfig::default() };
    let ebpf = EbpfPrograms::start(&config).unwrap();
    let mut recorder = FlightRecorder::new(ebpf.memory(&config).unwrap(), ebpf.started());
    let before = misses(&ebpf);
    // Ignored unless asked for; and one that is blocked until both are there.
    kill(Pid::this(), Signal::SIGWINCH).unwrap();
    let blocked = SigSet::from(Signal::SIGUSR2);
    blocked.thread_block().unwrap();
    raise(Signal::SIGUSR2).unwrap();
    raise(Signal::SIGUSR2).unwrap();
    assert_eq!(blocked.wait(), Ok(Signal::SIGUSR2));
    ebpf.enable(false);
    let skipped = misses(&ebpf)["signal_generate"] - before["signal_generate"];
    let snapshot = recorder.peek(MonotonicNs(0));
    let recording = snapshot.decode(snapshot.window(u64::MAX, None), ebpf.dump_tasks().unwrap(), Vec::new());
    let [process, thread] = [Pid::this(), gettid()].map(|id| Tid(id.as_raw().unsigned_abs()));
    let ours = recording.events.iter().map(|event| &event.kind).filter(|kind| match kind {
        EventKind::SignalGenerate { tid, .. } => [process, thread].contains(tid),
        _ => false,
    });
    let of = |signal: Signal, tid, group, result| {
        let signal = (signal as i32).unsigned_abs();
        EventKind::SignalGenerate { signal, tid, group, result }
    };
    let expected = [
        of(Signal::SIGWINCH, process, true, 1),
        of(Signal::SIGUSR2, thread, false, 0),
        of(Signal::SIGUSR2, thread, false, 2),
    ];
    assert_eq!((ours.cloned().collect::<Vec<_>>(), skipped), (expected.to_vec(), 0));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same rules twice: what the tracker in the kernel reported must be what the pure state machine finds in the events
//! that the recorder kept. With a limit of 1 ns every response is "late", so every chain is compared, step by step.

use rtscope_analyze::chain::{
    self, Comparison, Config, EndCondition, Response, compare, replay, replay_handlers, replay_intervals,
};
use rtscope_event::{
    End, EventKind, Glob, LateResponse, LossCause, MonotonicNs, OriginKind, Recording, StepKind, Tid,
    Tracker, WaitKind,
};
use rtscope_flight::FlightRecorder;
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, Follows, OriginFilter, RecorderConfig, ResponseConfig, Target, TrackerConfig,
};
use rtscope_testkit::machine::{Cpus, is_emulated, is_preempt_rt};
use rtscope_testkit::process::Workload;
use rtscope_testkit::serial::Serial;
use rtscope_testkit::terminals::Terminals;
use std::collections::BTreeSet;
use std::io::Read;
use std::time::{Duration, Instant};

fn session_config(name: Option<&str>, end: End) -> EbpfConfig {
    EbpfConfig {
        recorder: Some(RecorderConfig { bank_bytes: 16 << 20, snapshot: None, stream: None }),
        trackers: vec![TrackerConfig {
            counted_by: None,
            target: Target { name: name.map(|name| Glob::new(name).unwrap()), ..Target::default() },
            threshold_ns: 1,
            snapshot: true,
            records: false,
            follows: Follows::Responses(ResponseConfig {
                end,
                origins: origins(end),
                sources: WaitKind::SOURCES.to_vec(),
            }),
        }],
        stacks: None,
        only: Vec::new(),
    }
}

/// Cycles begin with whatever ends a wait: the rules of all origins are compared.
fn origins(end: End) -> OriginFilter {
    match end {
        End::Cycle => OriginFilter { kinds: OriginKind::OF_RESPONSES.to_vec(), irqs: Vec::new() },
        _ => OriginFilter::default(),
    }
}

fn pure_config(name: Option<&str>, end: End) -> Config {
    let mut config = Config::new(1);
    config.end = match end {
        End::Running => EndCondition::Running,
        End::Cycle => EndCondition::Cycle,
        End::Blocked
        | End::Rewoken
        | End::Returned
        | End::Acquired
        | End::Handled
        | End::Completed
        | End::Switched
        | End::IrqsOn
        | End::Pending
        | End::Event => EndCondition::Blocked,
    };
    config.origins.kinds = origins(end).kinds;
    if let Some(name) = name {
        config.target = chain::Target::Comm(Glob::new(name).unwrap());
    }
    config
}

/// Records until enough responses were reported, then replays the recording. An event that the kernel skips (a timer interrupt in
/// the program of another timer, on PREEMPT_RT) is missing on both sides, since recorder and tracker are one program.
///
/// `begin` is called when recording has begun.
fn record_and_compare(
    name: Option<&str>,
    end: End,
    enough: usize,
    begin: impl FnOnce(),
) -> (Comparison, Vec<LateResponse>) {
    let (recording, reported, _) = record(name, end, enough, begin);
    let (replayed, counters) = replay(&recording, &pure_config(name, end));
    println!("replay: {} responses, {counters:?}", replayed.len());
    (compare(&recording, &reported, &replayed), reported)
}

/// The recording, what was reported, and how many transitions the tracker gave up because another CPU held the task's state and stood
/// still.
fn record(
    name: Option<&str>,
    end: End,
    enough: usize,
    begin: impl FnOnce(),
) -> (Recording, Vec<LateResponse>, u64) {
    record_with(&session_config(name, end), enough, begin)
}

fn record_with(
    config: &EbpfConfig,
    enough: usize,
    begin: impl FnOnce(),
) -> (Recording, Vec<LateResponse>, u64) {
    let ebpf = EbpfPrograms::start(config).unwrap();
    let mut recorder = FlightRecorder::new(ebpf.memory(config).unwrap(), ebpf.started());
    let mut reported: Vec<LateResponse> = Vec::new();
    begin();
    let deadline = Instant::now() + Duration::from_secs(30);
    while reported.len() < enough {
        assert!(Instant::now() < deadline, "only {} responses in 30 s", reported.len());
        std::thread::sleep(Duration::from_micros(500));
        reported.extend(recorder.late_responses());
    }
    ebpf.enable(false);
    reported.extend(recorder.late_responses());
    let snapshot = recorder.peek(MonotonicNs(0));
    let recording = snapshot.decode(snapshot.window(u64::MAX, None), ebpf.dump_tasks().unwrap(), Vec::new());
    // Some hosts hide threads from tracing; that shows as gaps, and is not ours.
    let ours: Vec<_> = recording.losses.iter().filter(|loss| loss.cause != LossCause::Gap).collect();
    assert!(ours.is_empty(), "{ours:?}");
    let missed: Vec<_> = ebpf.recursion_misses().into_iter().filter(|(_, n)| *n != Some(0)).collect();
    let misses: u64 = missed.iter().map(|(_, misses)| misses.unwrap()).sum();
    assert!(misses * 100 < recording.events.len() as u64, "{missed:?}");
    let stats = recorder.stats(0);
    println!("{} events, reported {}", recording.events.len(), reported.len());
    println!(
        "kernel: seen {} unlinked {} busy {} healed {} folded {} merged {} untracked {} raced {}",
        stats.seen,
        stats.unlinked,
        stats.busy,
        stats.healed,
        stats.folded,
        stats.merged,
        stats.untracked,
        stats.raced
    );
    println!("skipped: {missed:?}");
    (recording, reported, stats.raced)
}

fn assert_agree(name: Option<&str>, end: End, enough: usize) {
    let (comparison, _) = compare_while(name, end, enough, || ());
    assert!(comparison.agrees());
}

/// All agree except one in a hundred, where a wakeup raced with the switch out (there is a test of those races).
fn compare_while(
    name: Option<&str>,
    end: End,
    enough: usize,
    begin: impl FnOnce(),
) -> (Comparison, Vec<LateResponse>) {
    let (comparison, reported) = record_and_compare(name, end, enough, begin);
    for difference in comparison.different.iter().take(3) {
        println!("DIFFERENT\n  kernel {:?}\n  replay {:?}", difference.reported, difference.replayed);
    }
    for missing in comparison.missing.iter().take(3) {
        println!("MISSING {missing:?}");
    }
    println!(
        "equal {} different {} missing {} not covered {}",
        comparison.equal,
        comparison.different.len(),
        comparison.missing.len(),
        comparison.not_covered
    );
    assert!((comparison.different.len() + comparison.missing.len()) * 100 <= comparison.equal as usize);
    assert!(comparison.equal as usize > enough / 2);
    (comparison, reported)
}

/// Readers of terminals, woken by workers: each item's chain must end with the item, and continue in the worker that does it.
// NEEDS: one kernel
#[test]
fn root_chains_through_workers_are_the_same() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let _terminals = Terminals::start("control-tty", 6).unwrap();
    let has = |late: &LateResponse, kind| late.chain.steps.iter().any(|step| step.kind == kind);
    for end in [End::Blocked, End::Running] {
        let (_, reported) = compare_while(Some("control*"), end, 500, || ());
        // Waited for a worker, or woke it: the writer ran, the worker, the reader. (Of a folded chain the last steps are not known.)
        let through = |late: &&LateResponse| {
            let ran = late.chain.steps.iter().filter(|step| step.kind == StepKind::Run);
            has(late, StepKind::WorkWait) || ran.count() >= if end == End::Blocked { 3 } else { 2 }
        };
        let (workers, waited) = (
            reported.iter().filter(through).count(),
            reported.iter().filter(|late| has(late, StepKind::WorkWait)).count(),
        );
        println!("through workers: {workers} of {}, of them {waited} waited for one", reported.len());
        assert!(workers * 10 > reported.len() * 7);
    }
}

/// A device's interrupt, its thread on PREEMPT_RT, a worker, the reader.
// NEEDS: one kernel, serial
#[test]
fn root_chains_from_a_serial_port_are_the_same() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(mut serial) = Serial::for_test() else { return };
    const BYTES: u32 = 200;
    let mut port = serial.port().try_clone().unwrap();
    let read = move || (0..BYTES).for_each(|_| port.read_exact(&mut [0]).unwrap());
    let reader = std::thread::Builder::new().name("control-serial".to_owned()).spawn(read).unwrap();
    let irq = serial.irq().unwrap();
    let ask = || serial.ask(BYTES, Duration::from_millis(20)).unwrap();
    let (_, reported) = compare_while(Some("control*"), End::Blocked, 100, ask);
    let from_port = |late: &&LateResponse| late.chain.origin.id == irq && late.chain.steps.len() >= 5;
    assert!(reported.iter().filter(from_port).count() >= 80, "{reported:?}");
    reader.join().unwrap();
}

/// Sleepers of ordinary tasks. On PREEMPT_RT their timers are handled in a softirq, by a thread that is woken for it; each chain goes
/// from the timer over the interrupt that raised the softirq to the task.
// NEEDS: one kernel
#[test]
fn root_chains_from_timers_of_ordinary_tasks_are_the_same() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let ordinary = ["--policy", "other", "--duration", "600s"];
    let threads = ["--threads", "20", "--period", "11ms", "--name", "control-t"];
    let _threads = Workload::start("rtscope-threads", threads.into_iter().chain(ordinary)).unwrap();
    let victim = ["--period", "2ms", "--work", "100us"];
    let _victim = Workload::start("rtscope-victim", victim.into_iter().chain(ordinary)).unwrap();
    let has_softirq = |late: &&LateResponse| {
        // HRTIMER_SOFTIRQ of the kernel's interrupt.h.
        late.chain.steps.iter().any(|step| step.kind == StepKind::Softirq && step.id == 8)
    };
    for end in [End::Blocked, End::Running] {
        let (_, reported) = compare_while(Some("control*"), end, 1000, || ());
        let soft = reported.iter().filter(has_softirq).count();
        println!("through a softirq: {soft} of {}", reported.len());
        if is_preempt_rt() {
            assert!(soft * 2 > reported.len(), "{:?}", reported.first());
        } else {
            assert_eq!(soft, 0);
        }
    }
}

/// The part of a recording around a response, in which its chain and those before and after it are found.
struct Slice<'a> {
    recording: Recording,
    config: &'a Config,
    reported: Vec<LateResponse>,
    /// Times of a wakeup of the thread, and of its switch-out on another CPU, that were put into the other order.
    exchanged: Vec<(u64, u64)>,
}

impl<'a> Slice<'a> {
    /// What the chains before need, to be found; and what may come of a race.
    const BEFORE_NS: u64 = 200_000_000;
    const AFTER_NS: u64 = 200_000;
    /// Wrong by the same race, or by another one in the same chain.
    const RACES_MAX: usize = 4;

    fn around(
        recording: &Recording,
        late: &LateResponse,
        reported: &[LateResponse],
        config: &'a Config,
    ) -> Slice<'a> {
        let (from, until) =
            (late.chain.origin.time_ns.minus(Self::BEFORE_NS), late.end_ns.plus(Self::AFTER_NS));
        let at = |time: MonotonicNs| recording.events.partition_point(|event| event.time < time);
        let events = recording.events[at(from)..at(until)].to_vec();
        let since = late.chain.origin.time_ns;
        let inside = |other: &&LateResponse| other.chain.origin.time_ns >= since && other.end_ns < until;
        Slice {
            recording: Recording { events, names: recording.names.clone(), ..Recording::default() },
            config,
            reported: reported.iter().filter(inside).cloned().collect(),
            exchanged: Vec::new(),
        }
    }

    /// How many of its responses are not found.
    fn wrong(&self) -> usize {
        let comparison = compare(&self.recording, &self.reported, &replay(&self.recording, self.config).0);
        comparison.different.len() + comparison.missing.len()
    }

    /// The places of wakeups of a thread of this chain and of its switch-outs on another CPU, those nearest to each other first.
    fn pairs(&self, late: &LateResponse) -> Vec<(usize, usize)> {
        let threads: BTreeSet<u32> =
            late.chain.steps.iter().filter(|step| step.kind == StepKind::Run).map(|step| step.id).collect();
        let of_each = threads.iter().flat_map(|id| self.pairs_of(Tid(*id), late.chain.origin.time_ns));
        let events = &self.recording.events;
        let mut pairs: Vec<_> = of_each.collect();
        pairs.sort_by_key(|(out, wakeup)| events[*out].time.0.abs_diff(events[*wakeup].time.0));
        pairs
    }

    fn pairs_of(&self, tid: Tid, from: MonotonicNs) -> Vec<(usize, usize)> {
        let (mut outs, mut wakeups) = (Vec::new(), Vec::new());
        let events = &self.recording.events;
        for (at, event) in events.iter().enumerate().filter(|(_, event)| event.time >= from) {
            match event.kind {
                EventKind::SchedSwitch { prev_tid, .. } if prev_tid == tid => outs.push(at),
                EventKind::SchedWaking { tid: woken, .. } if woken == tid => wakeups.push(at),
                _ => {}
            }
        }
        let pairs = outs.iter().flat_map(|out| wakeups.iter().map(move |wakeup| (*out, *wakeup)));
        pairs.filter(|(out, wakeup)| events[*out].cpu != events[*wakeup].cpu).collect()
    }

    fn exchange(&mut self, (out, wakeup): (usize, usize)) {
        let events = &mut self.recording.events;
        self.exchanged.push((events[out].time.0, events[wakeup].time.0));
        if wakeup < out {
            events[wakeup..=out].rotate_left(1);
        } else {
            events[out..=wakeup].rotate_right(1);
        }
    }

    /// Exchanges pairs, one after the other, as long as that makes more of the responses those that were reported. True: all are.
    fn explain(&mut self, late: &LateResponse) -> bool {
        let mut wrong = self.wrong();
        while wrong > 0 && self.exchanged.len() < Self::RACES_MAX {
            let before = (self.recording.events.clone(), self.exchanged.len());
            let pairs = self.pairs(late);
            let better = pairs.into_iter().take(40).find_map(|pair| {
                self.exchange(pair);
                let now = self.wrong();
                if now < wrong {
                    return Some(now);
                }
                self.recording.events.clone_from(&before.0);
                self.exchanged.truncate(before.1);
                None
            });
            let Some(now) = better else { break };
            wrong = now;
        }
        wrong == 0
    }
}

/// How many groups of responses there are that overlap, or are next to each other.
fn places(responses: &[&LateResponse]) -> u64 {
    const NEXT_NS: u64 = 1_000_000;
    let mut spans: Vec<_> = responses.iter().map(|late| (late.chain.origin.time_ns, late.end_ns)).collect();
    spans.sort_unstable();
    let (mut count, mut until) = (0, MonotonicNs(0));
    for (from, end) in spans {
        count += u64::from(count == 0 || from > until.plus(NEXT_NS));
        until = until.max(end);
    }
    count
}

/// Thousands of wakeups of a task that is being switched out, on two CPUs. A program reads the clock before it changes the task's state, so
/// where both are at it within some hundred nanoseconds the order of the times may not be the order of the changes. There the rules
/// give another chain, and hardly anywhere else: with only these two events in the other order all that the kernel reported is found, step by
/// step, and so is what was right before.
// NEEDS: one kernel
#[test]
fn root_wakings_that_race_with_the_switch_out_lose_nothing() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let _relay = Workload::start("rtscope-relay", ["--duration", "600s"]).unwrap();
    for end in [End::Blocked, End::Running, End::Cycle] {
        let (recording, reported, raced_out) = record(Some("control*"), end, 8000, || ());
        let config = pure_config(Some("control*"), end);
        let comparison = compare(&recording, &reported, &replay(&recording, &config).0);
        let different = comparison.different.iter().map(|different| &different.reported);
        let raced: Vec<&LateResponse> = different.chain(&comparison.missing).collect();
        println!("equal {} of {}, not {}", comparison.equal, reported.len(), raced.len());
        assert!(comparison.equal > 4000, "too little to compare");
        // Each costs some replays; as many as this is another fault.
        assert!(raced.len() * 20 < reported.len(), "{:?}", raced.first());
        let (mut apart, mut others) = (Vec::new(), Vec::new());
        for late in raced {
            let mut slice = Slice::around(&recording, late, &reported, &config);
            if slice.explain(late) {
                apart.extend(slice.exchanged.iter().map(|(out, wakeup)| out.abs_diff(*wakeup)));
            } else {
                others.push(late);
            }
        }
        apart.sort_unstable();
        println!("by races of events that are apart by {apart:?} ns; others: {}", others.len());
        // A transition that was given up, and counted, spoils what its task has part in just then. Nothing else is wrong.
        let places = places(&others);
        assert!(places <= raced_out, "not by a race: {places} places, {:?}", others.first());
    }
}

/// Each wakeup, and each time off a CPU, of tasks that sleep, wait for each other, are preempted, begin and end.
// NEEDS: one kernel
#[test]
fn root_wakeups_and_times_off_a_cpu_are_the_same() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let _victim =
        Workload::start("rtscope-victim", ["--period", "2ms", "--work", "100us", "--duration", "600s"])
            .unwrap();
    let _relay = Workload::start("rtscope-relay", ["--duration", "600s"]).unwrap();
    let _hog =
        Workload::start("rtscope-hog", ["--burst", "1ms", "--every", "17ms", "--duration", "600s"]).unwrap();
    let _threads = Workload::start("rtscope-threads", ["--threads", "20", "--duration", "600s"]).unwrap();
    for name in [Some("control*"), None] {
        let target = || Target { name: name.map(|name| Glob::new(name).unwrap()), ..Target::default() };
        let follow = |follows| TrackerConfig {
            target: target(),
            threshold_ns: 1,
            snapshot: false,
            records: false,
            follows,
            counted_by: None,
        };
        // Both at once, and one of them twice: they do not disturb each other.
        let mut config = session_config(name, End::Blocked);
        config.trackers = vec![follow(Follows::Wakeups), follow(Follows::OffCpu), follow(Follows::Wakeups)];
        let (recording, reported, raced) = record_with(&config, 6000, || ());
        let target = pure_config(name, End::Blocked).target;
        for (instance, tracker) in [Tracker::Wakeup, Tracker::Offcpu, Tracker::Wakeup].into_iter().enumerate()
        {
            let of_it = |late: &&LateResponse| usize::from(late.instance) == instance;
            let reported: Vec<LateResponse> = reported.iter().filter(of_it).cloned().collect();
            assert!(reported.iter().all(|late| late.tracker == tracker));
            let found = compare(&recording, &reported, &replay_intervals(&recording, tracker, &target, 1));
            let wrong = found.different.len() + found.missing.len();
            println!(
                "{name:?} {tracker:?}: equal {} wrong {wrong} not covered {}, raced {raced}",
                found.equal, found.not_covered
            );
            for difference in found.different.iter().take(3) {
                println!("DIFFERENT\n  kernel {:?}\n  replay {:?}", difference.reported, difference.replayed);
            }
            found.missing.iter().take(3).for_each(|missing| println!("MISSING {missing:?}"));
            assert!(found.equal > 1000, "too little to compare");
            // A wakeup that raced with the switch out, as in the test of those races.
            assert!(wrong as u64 * 100 <= found.equal, "{wrong} of {}", found.equal);
        }
    }
}

// NEEDS: one kernel
#[test]
fn root_handlers_and_softirqs_are_the_same() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    // One that runs nearly always, so that its CPU's timer interrupts it.
    let hog = ["--name", "busy-one", "--burst", "50ms", "--every", "60ms", "--duration", "600s"];
    let _hog = Workload::start("rtscope-hog", hog).unwrap();
    let _flood =
        Workload::start("rtscope-flood", ["--burst", "1ms", "--every", "17ms", "--duration", "600s"])
            .unwrap();
    for (name, enough) in [(None, 6000), (Some("busy-*"), 800)] {
        let target = || Target { name: name.map(|name| Glob::new(name).unwrap()), ..Target::default() };
        let follow = |follows| TrackerConfig {
            target: target(),
            threshold_ns: 1,
            snapshot: false,
            records: false,
            follows,
            counted_by: None,
        };
        let mut config = session_config(name, End::Blocked);
        config.trackers = vec![follow(Follows::Irqs), follow(Follows::Softirqs)];
        let (recording, reported, _) = record_with(&config, enough, || ());
        let target = name.map(|_| pure_config(name, End::Blocked).target);
        for (instance, tracker) in [Tracker::Irq, Tracker::Softirq].into_iter().enumerate() {
            let of_it = |late: &&LateResponse| usize::from(late.instance) == instance;
            let reported: Vec<LateResponse> = reported.iter().filter(of_it).cloned().collect();
            assert!(reported.iter().all(|late| late.tracker == tracker));
            let replayed = replay_handlers(&recording, tracker, target.as_ref(), 1);
            let mut found = compare(&recording, &reported, &replayed);
            // Of a thread that is no target, as the recording has it, the replay reports nothing.
            let of_others = name.map_or_else(Vec::new, |_| replay_handlers(&recording, tracker, None, 1));
            let hidden = leave_out_hidden_switches(&recording, &mut found, &of_others);
            assert!(hidden == 0 || !is_emulated(), "nobody hides switches here");
            let wrong = found.different.len() + found.missing.len() + found.unreported.len();
            println!(
                "{name:?} {tracker:?}: equal {} wrong {wrong} not covered {} where a switch was hidden {hidden}",
                found.equal, found.not_covered
            );
            for difference in found.different.iter().take(3) {
                println!("DIFFERENT\n  kernel {:?}\n  replay {:?}", difference.reported, difference.replayed);
            }
            found.missing.iter().take(3).for_each(|missing| println!("MISSING {missing:?}"));
            found.unreported.iter().take(3).for_each(|one| println!("UNREPORTED {one:?}"));
            // With PREEMPT_RT softirqs run in threads, and interrupt nobody else.
            let least = match (name, tracker) {
                (Some(_), Tracker::Softirq) if is_preempt_rt() => 0,
                (Some(_), Tracker::Softirq) => 20,
                _ => 100,
            };
            assert!(found.equal >= least, "too little to compare");
            assert!(wrong as u64 * 100 <= found.equal, "{wrong} of {}", found.equal);
        }
    }
}

/// Who is current where the host hides a switch, the kernel knows and the recording does not. That shows in the recording: the next
/// switch of that CPU is from the thread that the kernel named. Such a pair, alike but for the thread, is no difference; gives how
/// many there were. `of_others`: what there is of threads that are no targets.
fn leave_out_hidden_switches(recording: &Recording, found: &mut Comparison, of_others: &[Response]) -> usize {
    let from_after = |cpu, time: MonotonicNs| {
        let later = recording.events.iter().filter(|event| event.cpu == cpu && event.time > time);
        later.into_iter().find_map(|event| match event.kind {
            EventKind::SchedSwitch { prev_tid, .. } => Some(prev_tid),
            _ => None,
        })
    };
    let before = found.missing.len();
    let unreported = &mut found.unreported;
    found.missing.retain(|late| {
        let is_twin = |response: &Response| {
            let alike = (response.cpu, response.end_ns, response.end) == (late.cpu, late.end_ns, late.end);
            alike && response.chain == late.chain
        };
        if from_after(late.cpu, late.end_ns) != Some(late.tid) {
            return true;
        }
        match unreported.iter().position(is_twin) {
            Some(twin) => {
                unreported.remove(twin);
                false
            }
            None => !of_others.iter().any(is_twin),
        }
    });
    before - found.missing.len()
}

// NEEDS: one kernel
#[test]
fn root_kernel_and_replay_find_the_same_chains() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let _victim =
        Workload::start("rtscope-victim", ["--period", "2ms", "--work", "100us", "--duration", "600s"])
            .unwrap();
    let _hog =
        Workload::start("rtscope-hog", ["--burst", "1ms", "--every", "17ms", "--duration", "600s"]).unwrap();
    let _threads = Workload::start("rtscope-threads", ["--threads", "20", "--duration", "600s"]).unwrap();
    assert_agree(Some("control*"), End::Blocked, 500);
    assert_agree(Some("control*"), End::Running, 500);
    assert_agree(None, End::Blocked, 500);
    assert_agree(None, End::Running, 500);
    assert_agree(Some("control*"), End::Cycle, 500);
    assert_agree(None, End::Cycle, 500);
}

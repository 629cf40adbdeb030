// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trackers `preemptoff` and `irqoff`, judged by a thread that keeps its CPU to itself in the kernel for as long as it is told, and takes down
//! when that was.

use super::ftrace::{Ftrace, Line};
use super::truth::Truth;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_analyze::explain::{Cause, CauseKind, DelayedHow, Explanation};
use rtscope_event::{End, LateResponse, OriginKind, StepKind, Tracker};
use rtscope_kernel::{Spin, SpinKind};
use rtscope_testkit::machine::{Cpus, is_emulated};
use rtscope_testkit::sched::{Policy, last_cpu, pin_to_cpu, set_name, set_policy, tid};
use rtscope_testkit::skip;
use rtscope_testkit::time::{now_ns, sleep_until};
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

const SECTIONS: usize = 40;
const LIMIT_NS: u64 = 2_000_000;
/// With a program at the tracepoint of requests an emulated 7.2 died after some 1340 of them once, and was alive after 2000 once.
const UNMOUNTS: usize = 4000;
/// Two readings of one clock, and what lies between the program that spins and the one that watches.
const STAMPS_NS: u64 = 5_000;
/// What the samples are apart. A sample takes an emulated CPU that others slow down as long as that, and then it does nothing else: there all times of this tracker are ten
/// times as long.
fn period_ns() -> u64 {
    if is_emulated() { 2_000_000 } else { 200_000 }
}

/// How long a section is. Timers of an emulated CPU come when its host has time for it: often later than 5 ms on a busy one, when the section would be
/// over.
fn length_ns() -> u64 {
    if is_emulated() { 60_000_000 } else { 5_000_000 }
}

/// What was done to a CPU.
struct Done {
    /// The sections, from when to when.
    sections: Vec<(u64, u64)>,
    spinner: i32,
    /// The thread that wants the CPU each millisecond, at a higher priority, and its stamps: when it wanted to run, and when it did.
    urgent: i32,
    runs: Vec<(u64, u64)>,
}

impl Done {
    /// Somebody wants the CPU early enough in this section to be kept waiting beyond the limit, and a millisecond.
    fn wants_in(&self, (from_ns, to_ns): (u64, u64)) -> bool {
        let wants =
            |(wanted_ns, _): &(u64, u64)| *wanted_ns >= from_ns && wanted_ns + LIMIT_NS + 1_000_000 < to_ns;
        self.runs.iter().any(wants)
    }
}

/// A thread that spins in the kernel, again and again; and on the same CPU one that has to be let in.
fn spin(kind: SpinKind) -> Done {
    let cpu = last_cpu().expect("there is one");
    let fault = Spin::start(kind).expect("the eBPF program that spins can be loaded");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let over = &over;
        let urgent = scope.spawn(move || {
            pin_to_cpu(cpu).expect("it may");
            set_name("e2e-urgent");
            set_policy(Policy::Fifo(50)).expect("root may");
            send.send(()).expect("it is waited for");
            let mut runs = Vec::new();
            let mut next_ns = now_ns();
            while !over.load(Relaxed) {
                next_ns = now_ns().max(next_ns) + 1_000_000;
                sleep_until(next_ns);
                runs.push((next_ns, now_ns()));
            }
            (tid(), runs)
        });
        receive.recv().expect("it runs");
        let spinner = scope.spawn(|| {
            pin_to_cpu(cpu).expect("it may");
            set_name("e2e-spinner");
            let own = u32::try_from(tid()).expect("positive");
            let sections = (0..SECTIONS).map(|_| {
                sleep_until(now_ns() + 7_300_000);
                match kind {
                    SpinKind::Unpreempted => {
                        fault.set(own, length_ns());
                        set_name("e2e-spinner");
                    }
                    // Somebody is woken, on whatever CPU.
                    SpinKind::Uninterrupted => {
                        let before = fault.last();
                        while fault.last() == before {
                            wake_another(|| fault.set(own, length_ns()));
                        }
                    }
                }
                fault.last()
            });
            (tid(), sections.collect())
        });
        let (spinner, sections) = spinner.join().expect("it ends");
        over.store(true, Relaxed);
        let (urgent, runs) = urgent.join().expect("it ends");
        Done { sections, spinner, urgent, runs }
    })
}

/// A byte to a thread that waits for it.
fn wake_another(before: impl Fn()) {
    let (send, receive) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            ready.send(()).expect("it is waited for");
            receive.recv().is_ok()
        });
        is_ready.recv().expect("it runs");
        thread::sleep(std::time::Duration::from_millis(2));
        before();
        send.send(()).expect("it waits");
    });
}

fn watched(kind: SpinKind, options: &[&str]) -> (Done, WatchOutput) {
    let mut command = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    command.arg("watch").args(options).arg("--json");
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let done = spin(kind);
    (done, watch.stop().expect("it stops"))
}

fn overlaps(late: &LateResponse, (from_ns, to_ns): (u64, u64)) -> bool {
    late.chain.origin.time_ns.0 < to_ns && from_ns < late.end_ns.0
}

fn of_spinner<'a>(late: &'a [LateResponse], done: &Done) -> Vec<&'a LateResponse> {
    late.iter().filter(|late| i64::from(late.tid.0) == i64::from(done.spinner)).collect()
}

/// It is of no section. An emulated CPU is slow enough for others, so there it is invented only if the kernel's own word is that the CPU had been given away before.
fn is_invented(late: &LateResponse, done: &Done, switches: &[Line]) -> bool {
    let (from_ns, to_ns) = (late.chain.origin.time_ns.0 + STAMPS_NS, late.end_ns.0);
    let is_contradicted =
        || switches.iter().any(|line| from_ns < line.time_ns && line.time_ns + STAMPS_NS < to_ns);
    !done.sections.iter().any(|section| overlaps(late, *section)) && (!is_emulated() || is_contradicted())
}

fn is_blamed(explanation: &Explanation, done: &Done) -> bool {
    let is_it = |cause: &Cause| {
        let tid = match &cause.actor {
            Some(rtscope_analyze::explain::Actor::Thread(thread)) => i64::from(thread.tid.0),
            _ => 0,
        };
        cause.kind == CauseKind::BlockingThread && tid == i64::from(done.spinner)
    };
    let of_it = explanation.steps.iter().flat_map(|step| &step.causes).filter(|cause| is_it(cause));
    // Times of an emulated CPU mean nothing; that it is blamed does.
    let share = if is_emulated() { 1 } else { 7 };
    10 * of_it.map(|cause| cause.time_ns).sum::<u64>() > share * explanation.response_ns
}

// NEEDS: verifier
#[test]
fn root_a_cpu_that_is_not_given_away_is_late_by_as_much_as_the_thread_that_waits_for_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let ftrace = match Ftrace::new(&["sched/sched_wakeup", "sched/sched_switch"]) {
        Ok(ftrace) => ftrace,
        Err(why) => skip!("no instance of ftrace: {why}"),
    };
    let (done, said) = watched(SpinKind::Unpreempted, &["preemptoff", "--threshold", "2ms"]);
    let all = said.late().expect("of its own types");
    let late = of_spinner(&all, &done);
    println!("{} sections, {} late, {} of the thread that spins", SECTIONS, all.len(), late.len());
    for one in &late {
        assert_eq!((one.tracker, one.end), (Tracker::Preemptoff, End::Switched), "{one:?}");
        assert_eq!(one.chain.origin.kind, OriginKind::Resched, "{one:?}");
        let [step] = one.chain.steps[..] else { panic!("{one:?}") };
        assert_eq!((step.kind, step.id), (StepKind::NotPreempted, one.tid.0), "{one:?}");
        let section = one.section.as_ref().expect("it has one");
        assert_eq!(section.resolution_ns, None);
        assert!(!section.stack.is_empty(), "{one:?}");
    }
    let (mut due, mut found, mut exact, mut named) = (0, 0, 0, 0);
    let wakings = ftrace.lines(&["sched_wakeup"]);
    for section in &done.sections {
        // On an emulated CPU, the one that wants to run may come too late for that.
        due += usize::from(done.wants_in(*section));
        let Some(one) = late.iter().find(|late| overlaps(late, *section)) else { continue };
        found += usize::from(done.wants_in(*section));
        if is_emulated() {
            continue;
        }
        let (_, ran_ns) = *done.runs.iter().find(|(_, ran_ns)| *ran_ns > section.1).expect("it runs");
        // Or a thread of the kernel came first that is more urgent still.
        named += usize::from(i64::from(one.chain.origin.id) == i64::from(done.urgent));
        let asked_ns = one.chain.origin.time_ns.0;
        let is_inside = asked_ns + STAMPS_NS >= section.0 && one.end_ns.0 + STAMPS_NS >= section.1;
        // As soon as the one that waited had been woken, by the kernel's own word.
        let mut woken = wakings.iter().filter(|line| line.number("pid") == Some(one.chain.origin.id.into()));
        let woken = woken.find(|line| line.time_ns + STAMPS_NS >= section.0);
        let is_asked = woken.is_some_and(|woken| woken.time_ns.abs_diff(asked_ns) <= STAMPS_NS);
        exact +=
            usize::from(is_inside && is_asked && one.end_ns.0 <= ran_ns && one.response_ns() >= LIMIT_NS);
    }
    println!("{found} of {due} found, {exact} from where it was asked for, {named} with who was waiting");
    let cpu = u32::try_from(last_cpu().expect("there is one")).expect("few");
    let mut switches = ftrace.lines(&["sched_switch"]);
    switches.retain(|line| line.cpu == cpu);
    let invented = late.iter().filter(|late| is_invented(late, &done, &switches));
    let invented = invented.count();
    Truth { injected: due, found, invented, hidden: said.hidden_switches() }
        .tell(Tracker::Preemptoff, "eBPF spins with preemption off");
    assert!(is_emulated() || 10 * named >= 9 * SECTIONS, "{named} of {SECTIONS} name who had the CPU then");
    assert!(
        10 * due >= 9 * SECTIONS || is_emulated() && due > 0,
        "{due} of {SECTIONS} kept somebody waiting"
    );
    // The host may keep the CPU for itself for so long that the one that wants it is late without this.
    // Timers of an emulated one are late by milliseconds: who wanted the CPU asked for it too late for the limit in some sections.
    assert!(10 * found >= if is_emulated() { 1 } else { 9 } * due, "{found} of {due}");
    assert!(is_emulated() || 10 * exact >= 9 * SECTIONS, "{exact} of {SECTIONS} are right");
    assert!(10 * invented <= SECTIONS);
    let explained = said.explanations().expect("of its own types");
    let explained: Vec<_> =
        explained.iter().filter(|one| i64::from(one.thread.tid.0) == i64::from(done.spinner)).collect();
    assert!(!explained.is_empty());
    let blamed = explained.iter().filter(|one| is_blamed(one, &done)).count();
    assert!(10 * blamed >= 9 * explained.len(), "{blamed} of {} explanations", explained.len());
    let waited = |one: &&&Explanation| {
        one.delayed.iter().any(|delayed| {
            i64::from(delayed.thread.tid.0) == i64::from(done.urgent) && delayed.how == DelayedHow::Woken
        })
    };
    let waited = explained.iter().filter(waited).count();
    assert!(10 * waited >= 9 * explained.len(), "{waited} of {} name who waited", explained.len());
}

// NEEDS: verifier
#[test]
fn root_sections_with_interrupts_off_are_found_to_the_period_of_the_samples() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let options = match is_emulated() {
        true => ["irqoff", "--threshold", "20ms", "--period", "2ms"],
        false => ["irqoff", "--threshold", "2ms", "--period", "200us"],
    };
    let ftrace = match Ftrace::new(&["timer/hrtimer_start", "timer/hrtimer_expire_entry"]) {
        Ok(ftrace) => ftrace,
        Err(why) => skip!("no instance of ftrace: {why}"),
    };
    let (done, said) = watched(SpinKind::Uninterrupted, &options);
    let all = said.late().expect("of its own types");
    let late = of_spinner(&all, &done);
    println!("{} sections, {} late, {} of the thread that spins", SECTIONS, all.len(), late.len());
    for one in &late {
        assert_eq!((one.tracker, one.end), (Tracker::Irqoff, End::IrqsOn), "{one:?}");
        let [step] = one.chain.steps[..] else { panic!("{one:?}") };
        assert_eq!((step.kind, step.id), (StepKind::IrqsOff, one.tid.0), "{one:?}");
        let section = one.section.as_ref().expect("it has one");
        assert_eq!(section.resolution_ns, Some(period_ns()));
    }
    let (mut found, mut exact) = (0, 0);
    // How late samples are, by the kernel's own word: where they were due is known as far as the least late of them tells; and what is off when one is due may
    // begin as much later as that one would have come.
    let cpu = u32::try_from(last_cpu().expect("there is one")).expect("few");
    let mut delays_ns = ftrace.sample_delays_ns(cpu);
    delays_ns.sort_unstable();
    let delay_ns = |part: usize| delays_ns.get(delays_ns.len() * part / 10).copied().unwrap_or(0);
    let (least_ns, usual_ns) = (delay_ns(0), delay_ns(9));
    assert!(is_emulated() || delays_ns.len() > 1000, "{} samples", delays_ns.len());
    for section in &done.sections {
        let Some(one) = late.iter().find(|late| overlaps(late, *section)) else { continue };
        found += 1;
        if is_emulated() {
            continue;
        }
        // Not longer than it was, but for how late a sample is anyway; and shorter by less than a period.
        let (origin_ns, length_ns) = (one.chain.origin.time_ns.0, section.1 - section.0);
        let is_inside = origin_ns + usual_ns + STAMPS_NS >= section.0
            && origin_ns <= section.0 + period_ns() + least_ns + STAMPS_NS;
        let is_long = one.response_ns() + period_ns() + least_ns + STAMPS_NS >= length_ns;
        let is_placed = !one.section.as_ref().expect("above").stack.is_empty();
        exact += usize::from(is_inside && is_long && is_placed);
    }
    println!(
        "{found} found, {exact} right; samples are late by {least_ns} ns and more, 9 of 10 by less than {usual_ns} ns"
    );
    // Nobody else keeps interrupts out that long.
    let invented = late.iter().filter(|late| !done.sections.iter().any(|section| overlaps(late, *section)));
    let invented = invented.count();
    Truth { injected: SECTIONS, found, invented, hidden: said.hidden_switches() }
        .tell(Tracker::Irqoff, "eBPF spins with interrupts off");
    assert!(10 * found >= 9 * SECTIONS, "{found} of {SECTIONS}");
    assert!(is_emulated() || 10 * exact >= 9 * SECTIONS, "{exact} of {SECTIONS} are right");
    // A hypervisor may: where it has the CPU, it is the same to the samples. An emulated CPU does it by itself.
    assert!(is_emulated() || 10 * invented <= SECTIONS);
    let explained = said.explanations().expect("of its own types");
    // What an emulator or a hypervisor adds has no cause in here.
    let is_injected = |one: &&Explanation| {
        let (from_ns, until_ns) = (one.end_ns.0 - one.response_ns, one.end_ns.0);
        i64::from(one.thread.tid.0) == i64::from(done.spinner)
            && done.sections.iter().any(|section| from_ns < section.1 && section.0 < until_ns)
    };
    let explained: Vec<_> = explained.iter().filter(is_injected).collect();
    assert!(!explained.is_empty());
    let blamed = explained.iter().filter(|one| is_blamed(one, &done)).count();
    let other = explained.iter().find(|one| !is_blamed(one, &done));
    assert!(10 * blamed >= 9 * explained.len(), "{blamed} of {} explanations: {other:?}", explained.len());
}

/// Keeps readers of RCU ending with interrupts off while somebody waits for them: a signal is sent under the lock of its target's handlers, for which the
/// kernel holds such a reader, and taking a mount away waits for all readers, on request at once (rcu_expedited).
fn end_readers_of_rcu(unmounts: usize) {
    let quick = Path::new("/sys/kernel/rcu_expedited");
    fs::write(quick, "1").expect("the guest has it");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    kill(Pid::this(), Signal::SIGURG).expect("it is there");
                }
            });
        }
        let unmounted = unmount_often(unmounts);
        over.store(true, Relaxed);
        unmounted.expect("root may, and nobody uses it");
    });
    fs::write(quick, "0").expect("it was there");
}

fn unmount_often(times: usize) -> nix::Result<()> {
    let place = tempfile::tempdir().expect("there is room");
    for _ in 0..times {
        mount(Some("none"), place.path(), Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
        umount(place.path())?;
    }
    Ok(())
}

// A kernel that dies takes its guest with it, so that nothing after this is reported.
// NEEDS: verifier
#[test]
fn root_vm_no_request_for_a_cpu_ends_the_kernel() {
    if skip::outside_guests() {
        return;
    }
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let name = b"\0btf_trace_sched_set_need_resched_tp\0";
    if !types.windows(name.len()).any(|bytes| bytes == name) {
        skip!("this kernel has no tracepoint of requests (sched_set_need_resched_tp, Linux 6.16)");
    }
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut command = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    command.args(["watch", "preemptoff", "--threshold", "1ms", "--json"]);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    end_readers_of_rcu(UNMOUNTS);
    watch.stop().expect("it stops").report().expect("it reports");
}

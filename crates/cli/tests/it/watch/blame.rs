// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is blamed for a late response, by how much, and how many late ones there are: what rtscope says on the real kernel
//! against what the victim and the disturbers noted with their own clock readings.
//!
//! Every test has names of its own, so that nothing else on the machine is taken for its victim.

use super::truth::Truth;
use crate::command::count;
use rtscope_analyze::explain::{Actor, Explanation, StepExplanation};
use rtscope_event::{LossCause, Tracker};
use rtscope_testkit::late::VictimNotes;
use rtscope_testkit::machine::{self, Cpus};
use rtscope_testkit::notes::Burst;
use rtscope_testkit::process::{Workload, WorkloadOutput};
use rtscope_testkit::sched::last_cpu;
use rtscope_testkit::watch::{Rtscope, WatchOutput, watch_command};
use serde_json::Value;

/// A victim's time: enough for dozens of late responses.
const TIME: &str = "1500ms";
/// What two clock readings around a burst leave out: the way into and out of sleep, under tracing.
const EDGES_NS: u64 = 30_000;
/// Late by a burst, and not by something that the machine did besides.
const PLAINLY_NS: u64 = 300_000;
const NET_RX: u32 = 3;

/// A disturber: program, arguments.
type Disturber<'a> = (&'a str, &'a [&'a str]);

/// All sides of one run.
struct Run {
    victim: WorkloadOutput,
    disturbers: Vec<WorkloadOutput>,
    said: WatchOutput,
}

fn victim_arguments(name: &str) -> Vec<&str> {
    vec!["--name", name, "--deadline", "500us", "--duration", TIME]
}

/// Own stamps against the kernel's events, on the CPU of the victims and of most disturbers.
fn unless_stolen(check: impl Fn()) {
    machine::unless_stolen(last_cpu().expect("it has CPUs"), check);
}

/// Watches a victim from before its first to after its last iteration, with these disturbers.
fn run(name: &str, disturbers: &[Disturber<'_>]) -> Run {
    let watch = Rtscope::watch(&["--task", name, "--threshold", "500us"]).expect("watches");
    let disturbers: Vec<Workload> = disturbers
        .iter()
        .map(|(program, arguments)| Workload::start(program, *arguments).expect("starts"))
        .collect();
    let victim = Workload::start("rtscope-victim", victim_arguments(name)).expect("starts");
    let victim = victim.finish().expect("ends by itself");
    let disturbers = disturbers.into_iter().map(|disturber| disturber.stop().expect("stops")).collect();
    Run { victim, disturbers, said: watch.stop().expect("stops") }
}

fn tid(disturber: &WorkloadOutput) -> u64 {
    count(&disturber.ready, "tid")
}

fn is_thread(actor: Option<&Actor>, tid: u64) -> bool {
    matches!(actor, Some(Actor::Thread(thread)) if u64::from(thread.tid.0) == tid)
}

/// What a disturber took of a response by its own stamps.
fn own_ns(disturber: &WorkloadOutput, explanation: &Explanation) -> u64 {
    let bursts = disturber.lines.iter().filter_map(Burst::from_json);
    bursts.map(|burst| burst.overlap_ns(explanation.origin.time_ns.0, explanation.end_ns.0)).sum()
}

/// What it took by rtscope.
fn told_ns(explanation: &Explanation, tid: u64) -> u64 {
    let causes = explanation.steps.iter().flat_map(|step| &step.causes);
    let its = causes.filter(|cause| cause.kind.is_disturbance() && is_thread(cause.actor.as_ref(), tid));
    its.map(|cause| cause.time_ns).sum()
}

/// What interrupts took beside it, in the same steps: its own stamps cannot tell them from itself.
fn interrupts_beside_ns(explanation: &Explanation, tid: u64) -> u64 {
    let is_beside = |step: &&StepExplanation| step.causes.iter().any(|c| is_thread(c.actor.as_ref(), tid));
    let causes = explanation.steps.iter().filter(is_beside).flat_map(|step| &step.causes);
    let interrupts = causes.filter(|cause| {
        matches!(cause.actor, Some(Actor::Irq { .. } | Actor::Vector { .. } | Actor::Softirq { .. }))
    });
    interrupts.map(|cause| cause.time_ns).sum()
}

/// The thread is blamed where it disturbed, with its share, and nowhere else. Gives the number of responses that it made late.
///
/// Some kernels hide a switch now and then from every tracer (ftrace misses the same ones). rtscope sees by the next switch
/// that it does not know who ran, and must say so: then the thread's time is in what is unknown.
fn check_blame(run: &Run, disturber: &WorkloadOutput) -> usize {
    let (mut blamed, mut hidden, mut longer, tid) = (0, 0, 0, tid(disturber));
    for explanation in run.said.explanations().expect("of its own types") {
        let (own, told) = (own_ns(disturber, &explanation), told_ns(&explanation, tid));
        let what = || format!("{own} ns by its own stamps, {told} ns in {explanation:?}");
        let culprit = explanation.culprit.as_ref().expect("there is always a largest part");
        let is_culprit = culprit.kind.is_disturbance() && is_thread(culprit.actor.as_ref(), tid);
        assert!(!is_culprit || own > 0, "blamed for nothing: {}", what());
        if told > own + own / 20 + EDGES_NS && own > 0 {
            // It had the CPU for longer than it knows: from its last stamp to its sleep, when a hypervisor came in between.
            println!("longer on the CPU than by its own stamps: {}", what());
            longer += 1;
            continue;
        }
        assert!(own > 0 || told <= EDGES_NS, "blamed for too much: {}", what());
        if own >= PLAINLY_NS && explanation.unknown_ns * 20 > own {
            assert!((told + explanation.unknown_ns) * 20 >= own * 19, "somebody else is blamed: {}", what());
            hidden += 1;
            continue;
        }
        if own >= PLAINLY_NS {
            let with_interrupts = told + interrupts_beside_ns(&explanation, tid);
            assert!(told * 20 <= own * 21, "more than 5 % apart: {}", what());
            assert!(with_interrupts * 20 >= own * 19, "more than 5 % apart: {}", what());
        }
        if own * 2 > explanation.response_ns {
            let interrupted = matches!(culprit.actor, Some(Actor::Irq { .. } | Actor::Vector { .. }));
            if interrupted && !is_culprit {
                // An interrupt inside its burst took more than itself: a hypervisor had the CPU in the middle of a handler.
                println!("an interrupt took more: {}", what());
                longer += 1;
                continue;
            }
            assert!(is_culprit, "not blamed: {}", what());
            blamed += 1;
        }
    }
    if hidden > 0 {
        println!("hidden by the kernel: who ran in {hidden} of {} late responses", hidden + blamed);
    }
    assert!(
        longer * 10 <= blamed,
        "{longer} late responses blame it for more than its stamps say, {blamed} do not"
    );
    assert!(hidden * 5 <= blamed, "{hidden} late responses are mostly unknown, {blamed} are explained");
    blamed
}

/// Both call the same iterations late. With a switch, the kernel may hide an iteration: as many as are missing in the number of
/// all may be missing among the late.
/// `fault`: what disturbed it.
fn check_counts(victim: &WorkloadOutput, said: &WatchOutput, fault: &str) {
    let (summary, report) = (victim.summary().expect("it prints one"), said.report().expect("it prints one"));
    let loops = count(summary, "loops");
    let (seen, late) = (report.counters.seen, report.counters.late);
    let hidden = loops - seen.min(loops);
    // Those that rtscope counted itself, and one of a hundred iterations more.
    let told = report.counters.hidden;
    assert!(
        seen <= loops && hidden <= told + loops / 100 && hidden * 10 <= loops,
        "{summary}: rtscope saw {seen}, and counted {told} hidden switches"
    );
    if hidden > 0 {
        println!("hidden by the kernel: {hidden} of {loops} turns");
    }
    let told = said.late().expect("of its own types");
    assert_eq!(told.len() as u64, late, "each is reported");
    let told = told.iter().map(|late| (late.tid.0.into(), late.chain.origin.time_ns.0));
    let comparison = VictimNotes::of(victim).and_then(|notes| notes.compare(told)).expect("each once");
    let (own, missed) = (count(summary, "late") as usize, comparison.missed.len());
    let truth = Truth {
        injected: own,
        found: own - missed,
        invented: comparison.after.len(),
        hidden: report.counters.hidden,
    };
    truth.tell(Tracker::Response, fault);
    assert!(comparison.missed.len() as u64 <= hidden, "{summary}: rtscope saw {seen}: {comparison:?}");
    // A hypervisor may take the CPU between the victim's last stamp and its switch: late by rtscope, and in time by its own clock.
    let stolen = loops / 200;
    assert!(comparison.after.len() as u64 <= stolen, "{summary}: {comparison:?}");
}

fn check_losses(said: &WatchOutput) {
    let report = said.report().expect("it prints one");
    for cause in [LossCause::RecursionMiss, LossCause::ReportRingFull] {
        let loss = report.losses.iter().find(|loss| loss.cause == cause);
        assert_eq!(loss.expect("it is accounted for").count, Some(0), "{cause:?}");
    }
    for explanation in said.explanations().expect("of its own types") {
        // A gap is what the kernel hid: nobody counted it, rtscope found it.
        let mut ours = explanation.losses.iter().filter(|loss| loss.cause != LossCause::Gap);
        assert!(ours.all(|loss| loss.count == Some(0)), "{explanation:?}");
    }
}

const HOG: Disturber<'_> = ("rtscope-hog", &["--name", "e2e-hog", "--burst", "3ms", "--every", "41.3ms"]);

// NEEDS: real time (a program's stamps and the kernel's events are too far apart on an emulated CPU to compare shares)
#[test]
fn root_the_hog_is_the_culprit_with_its_share() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    unless_stolen(|| {
        let run = run("e2e-hogged", &[HOG]);
        let blamed = check_blame(&run, &run.disturbers[0]);
        assert!(blamed >= 10, "only {blamed} responses were made late by the hog");
        check_counts(&run.victim, &run.said, "a more urgent thread");
        check_losses(&run.said);
    });
}

// NEEDS: one kernel
#[test]
fn root_every_late_response_is_explained_once() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let run = run("e2e-each", &[HOG]);
    let key = |tid, end| format!("{tid:?} {end:?}");
    let mut late: Vec<_> =
        run.said.late().expect("typed").iter().map(|late| key(late.tid, late.end_ns)).collect();
    let explanations = run.said.explanations().expect("typed");
    let mut explained: Vec<_> = explanations.iter().map(|e| key(e.thread.tid, e.end_ns)).collect();
    late.sort();
    explained.sort();
    assert_eq!(late, explained);
    for explanation in &explanations {
        let causes = explanation.steps.iter().flat_map(|step| &step.causes);
        let (time, share) = causes.fold((0, 0), |sum, c| (sum.0 + c.time_ns, sum.1 + c.share_permille));
        assert_eq!((time, share), (explanation.response_ns, 1000), "{explanation:?}");
    }
}

// NEEDS: real time (a program's stamps and the kernel's events are too far apart on an emulated CPU to compare shares)
#[test]
fn root_a_bigger_hog_on_the_other_cpu_is_not_blamed() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    unless_stolen(|| {
        let bigger: &[&str] = &["--name", "e2e-bigger", "--cpu", "0", "--burst", "9ms", "--every", "10ms"];
        let run = run("e2e-beside", &[HOG, ("rtscope-hog", bigger)]);
        assert!(check_blame(&run, &run.disturbers[0]) >= 10);
        let tid = tid(&run.disturbers[1]);
        for explanation in run.said.explanations().expect("of its own types") {
            assert_eq!(told_ns(&explanation, tid), 0, "{explanation:?}");
        }
        check_counts(&run.victim, &run.said, "the same, a larger one elsewhere");
    });
}

// NEEDS: real time (a program's stamps and the kernel's events are too far apart on an emulated CPU to compare shares)
#[test]
fn root_a_hog_that_starts_right_after_the_response_is_not_blamed() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    unless_stolen(|| {
        let name = "e2e-before";
        let watch = Rtscope::watch(&["--task", name, "--threshold", "500us"]).expect("watches");
        let arguments = [&victim_arguments(name)[..], &["--period", "20ms"]].concat();
        let victim = Workload::start("rtscope-victim", &arguments).expect("starts");
        let hog = |name: &str, after_ns: i64, burst: &str| {
            // The iterations are at the first time plus multiples of 20 ms; both hogs keep their distance from each of them.
            let first =
                count(victim.ready(), "first_ns").checked_add_signed(200_000_000 + after_ns).expect("small");
            let first = first.to_string();
            let all = ["--name", name, "--start-at", &first, "--burst", burst, "--every", "20ms"];
            Workload::start("rtscope-hog", all).expect("starts")
        };
        let (right, wrong) = (hog("e2e-right", -500_000, "2ms"), hog("e2e-wrong", 1_800_000, "5ms"));
        let victim = victim.finish().expect("ends by itself");
        let disturbers = vec![right.stop().expect("stops"), wrong.stop().expect("stops")];
        let run = Run { victim, disturbers, said: watch.stop().expect("stops") };
        assert!(check_blame(&run, &run.disturbers[0]) >= 20);
        let wrong = tid(&run.disturbers[1]);
        let explanations = run.said.explanations().expect("of its own types");
        for explanation in &explanations {
            let own = own_ns(&run.disturbers[1], explanation);
            assert!(told_ns(explanation, wrong) <= own + own / 20 + EDGES_NS, "{own} ns of {explanation:?}");
        }
        let untouched =
            explanations.iter().filter(|explanation| own_ns(&run.disturbers[1], explanation) == 0);
        assert!(untouched.count() >= 10, "the second hog did not stay behind the responses");
        check_counts(&run.victim, &run.said, "the same, another right after");
    });
}

// NEEDS: real time (a program's stamps and the kernel's events are too far apart on an emulated CPU to compare shares)
#[test]
fn root_a_spinner_of_equal_priority_is_the_culprit() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    unless_stolen(|| {
        let equal: &[&str] =
            &["--name", "e2e-equal", "--policy", "fifo:50", "--burst", "4ms", "--every", "41.3ms"];
        let run = run("e2e-peer", &[("rtscope-hog", equal)]);
        assert!(check_blame(&run, &run.disturbers[0]) >= 10);
        check_counts(&run.victim, &run.said, "a thread of the same priority");
    });
}

// NEEDS: real time (a program's stamps and the kernel's events are too far apart on an emulated CPU to compare shares)
#[test]
fn root_a_flood_of_datagrams_is_named_as_the_network_softirq() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    unless_stolen(|| {
        let flood: &[&str] = &["--name", "e2e-flood", "--burst", "2ms", "--every", "31.3ms"];
        let run = run("e2e-flooded", &[("rtscope-flood", flood)]);
        let mut named = 0;
        for explanation in run.said.explanations().expect("of its own types") {
            // The send that floods returns only after the victim's iteration: it counts until the victim woke.
            let asked_ns = explanation.origin.time_ns.0;
            let turn = run.victim.all("late").find(|late| count(late, "asked_ns") == asked_ns);
            let Some(turn) = turn else { continue };
            let bursts = run.disturbers[0].lines.iter().filter_map(Burst::from_json);
            let own: u64 = bursts.map(|burst| burst.overlap_ns(asked_ns, count(turn, "woke_ns"))).sum();
            if own * 2 > explanation.response_ns {
                let culprit = explanation.culprit.as_ref().expect("there is always a largest part");
                if explanation.unknown_ns * 20 > own {
                    continue; // See check_blame.
                }
                assert_eq!(
                    culprit.actor,
                    Some(Actor::Softirq { vec: NET_RX }),
                    "{own} ns of {explanation:?}"
                );
                named += 1;
            }
        }
        assert!(named >= 5, "only {named} responses were made late by the flood");
        check_counts(&run.victim, &run.said, "floods of datagrams");
        check_losses(&run.said);
    });
}

// NEEDS: real time (an emulated CPU is late by itself, so a program and rtscope count other iterations as late)
#[test]
fn root_where_nothing_disturbs_nothing_is_late_and_nobody_blamed() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    unless_stolen(|| {
        let run = run("e2e-alone", &[]);
        check_counts(&run.victim, &run.said, "nothing");
        let late = count(run.victim.summary().expect("it prints one"), "late");
        if late > 0 {
            println!("the machine itself made {late} responses late");
        }
        for explanation in run.said.explanations().expect("of its own types") {
            // Its own work, when a hypervisor takes the CPU in the middle of it, is nobody else's blame.
            let disturber = explanation.culprit.filter(|culprit| culprit.kind.is_disturbance());
            let named = disturber.and_then(|culprit| culprit.actor);
            let is_ours = matches!(&named, Some(Actor::Thread(thread)) if thread.comm.is_some_and(|c| c.to_string().starts_with("e2e-")));
            assert!(late > 0 && !is_ours, "{named:?} is blamed");
        }
    });
}

// NEEDS: real time (an emulated CPU is late by itself, so a program and rtscope count other iterations as late)
#[test]
fn root_the_late_count_of_a_command_is_the_commands_own() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    unless_stolen(|| {
        let hog = Workload::start(HOG.0, HOG.1).expect("starts");
        let victim = rtscope_testkit::process::program("rtscope-victim").expect("built");
        let victim = victim.to_str().expect("a plain path");
        let watch = ["--task", "e2e-command", "--threshold", "500us", "--fail-if-late", "--", victim];
        let command = watch_command(&[&watch[..], &victim_arguments("e2e-command")].concat()).expect("built");
        let said = Rtscope::start(command).and_then(Rtscope::finish).expect("ends with COMMAND");
        drop(hog);
        assert_eq!(said.code(), Some(4), "--fail-if-late: {:?}", said.notes);
        // With --json, COMMAND's output is on standard error.
        let commands: Vec<Value> =
            said.notes.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let own =
            |key: &str| commands.iter().find(|line| line.get(key).is_some()).expect("COMMAND's own line");
        let victim = WorkloadOutput {
            status: said.status.expect("it ended"),
            ready: own("ready").clone(),
            lines: commands.clone(),
        };
        assert!(count(victim.summary().expect("it is there"), "late") >= 10);
        check_counts(&victim, &said, "a more urgent thread; COMMAND's count");
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What reports look like, compared with files that people have read.
//!
//! `RTSCOPE_BLESS=1 cargo test -p rtscope-view` writes the files again; read the diff before you commit it.

use rtscope_analyze::chain::{Config, Target, replay};
use rtscope_analyze::explain::{Actor, Cause, CauseKind, Explainer, Explanation, StepExplanation};
use rtscope_analyze::histogram::Histogram;
use rtscope_analyze::summary::{HiddenThread, NotObservable, OtherThreads, Report, Summary, ThreadSummary};
use rtscope_event::{
    CallArgument, Comm, CpuHistory, CpuId, End, Glob, Irq, LateResponse, Loss, LossCause, MonotonicNs, Pid,
    Policy, Priority, Recording, Step, StepKind, Stuck, SystemCall, TaskInfo, Tid, Tracker, WaitKind,
    parse_event,
};
use rtscope_store::trigger::TriggerFile;
use rtscope_testkit::recordings::task;
use rtscope_view::{
    Style, WallClock, explanation_file, explanation_json, explanation_text, late_json, late_line, stuck_text,
    summary_json, summary_text,
};
use std::path::PathBuf;

const CLOCK: WallClock = WallClock { unix_offset_ns: 1_700_000_000_000_000_000, utc_offset_s: 3600 };
const PLAIN: Style =
    Style { color: false, ascii: false, width: 100, sentences: None, verbose: false, terminal: None };

fn golden(name: &str, got: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("RTSCOPE_BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(got == expected, "{name} has changed; got:\n{got}");
    for line in expected.lines().filter(|_| name.ends_with(".txt")) {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
}

/// The file of a snapshot that was saved of it, on a machine of 16 CPUs, two of which lost something.
fn trigger(late: LateResponse) -> TriggerFile {
    let end_ns = late.end_ns;
    let history = |cpu| CpuHistory { cpu: CpuId(cpu), complete_since: Some(MonotonicNs(1)), events: 3 };
    let loss = |cpu| Loss { cpu: Some(CpuId(cpu)), cause: LossCause::Overwritten, count: Some(2) };
    TriggerFile {
        schema: "rtscope.trigger/1".to_owned(),
        producer: "rtscope".to_owned(),
        number: 2,
        detected_ns: end_ns,
        detected_at: "2026-11-28T16:22:36.012292Z".to_owned(),
        pre_ns: end_ns.0,
        post_ns: 0,
        from_ns: MonotonicNs(1),
        until_ns: end_ns,
        ftrace_from_ns: None,
        pre_met: false,
        history: (0..16).map(history).collect(),
        losses: vec![loss(3), loss(14)],
        copied_ns: 7,
        watched: "tasks named 'control-loop'".to_owned(),
        late: vec![late],
    }
}

/// A report in any columns: no sentence is wider than asked for. (Figures in columns, with two blanks between them, are no sentence.)
fn fits(report: impl Fn(Style) -> String) {
    for width in [100, 80, 60, 50] {
        let text = report(Style { width, ..PLAIN });
        let is_sentence = |line: &&str| !line.trim_start().contains("  ");
        for line in text.lines().filter(is_sentence) {
            // A word has no place where it could be broken.
            let is_word = line.split_whitespace().count() < 2;
            assert!(is_word || line.chars().count() <= width, "wider than {width}: {line}\n{text}");
        }
    }
}

fn recording(text: &str) -> Recording {
    let events: Vec<_> =
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| parse_event(line).unwrap()).collect();
    let mut recording = Recording { events, ..Recording::default() };
    for cpu in 0..2 {
        let complete_since = Some(MonotonicNs(1));
        recording.history.push(CpuHistory { cpu: CpuId(cpu), complete_since, events: 1 });
    }
    for (tid, comm, policy) in [
        (1234, "control-loop", 1),
        (1240, "hog", 1),
        (900, "shell", 0),
        (40, "irq/36-virtio1", 1),
        (41, "kworker/1:0", 0),
    ] {
        let kthread = comm.starts_with("irq") || comm.starts_with("kworker");
        recording.names.add_task(TaskInfo { policy: Policy(policy), kthread, ..task(tid, comm) });
    }
    recording.names.add_irq(Irq(36), "virtio1-req.0".to_owned());
    recording
}

fn explained(recording: &Recording) -> Vec<(LateResponse, Explanation)> {
    let mut config = Config::new(500_000);
    config.target = Target::Comm(Glob::new("control-*").unwrap());
    let explainer = Explainer::new(recording);
    let (responses, _) = replay(recording, &config);
    let late = responses.iter().filter(|response| response.late).zip(1..);
    late.map(|(response, number)| explainer.report(response, 500_000, number))
        .map(|late| (late.clone(), explainer.explain(&late)))
        .collect()
}

/// A real-time hog of higher priority, then a preemption.
const HOG: &str = "
    500000 1 sched_switch prev_tid=900 prev_state=1 next_tid=0 next_kthread=1
    500100 1 cpu_idle state=2
    1004000 1 cpu_idle state=exit
    1004102 1 vector_entry kind=local_timer vector=236
    1005200 1 hrtimer_expire_entry timer=0x1 softexpires_ns=1000000 expires_ns=1000000
    1006402 1 sched_waking tid=1234 prio=49 target_cpu=1
    1007000 1 hrtimer_expire_exit timer=0x1
    1007600 1 vector_exit kind=local_timer vector=236
    1008500 1 sched_switch prev_tid=0 prev_kthread=1 next_tid=1240 next_prio=19
    2004000 1 vector_entry kind=local_timer vector=236
    2009600 1 vector_exit kind=local_timer vector=236
    4111502 1 sched_switch prev_tid=1240 prev_prio=19 prev_state=1 next_tid=1234 next_prio=49
    4200000 1 irq_handler_entry irq=36
    4201100 1 softirq_raise vec=3
    4201200 1 irq_handler_exit irq=36 ret=1
    4201300 1 softirq_entry vec=3
    4202400 1 softirq_exit vec=3
    4300000 1 sched_switch prev_tid=1234 prev_prio=49 preempt=1 next_tid=1240 next_prio=19
    4350000 1 sched_switch prev_tid=1240 prev_prio=19 prev_state=1 next_tid=1234 next_prio=49
    4411702 1 sched_switch prev_tid=1234 prev_prio=49 prev_state=1 next_tid=0 next_kthread=1
";

/// A threaded interrupt whose target does its own work for too long, with a timer interrupt that came late.
const OWN_WORK: &str = "
    1000 0 sched_switch prev_tid=0 next_tid=900
    1000000 0 irq_handler_entry irq=36
    1001000 0 irq_handler_exit irq=36 ret=2
    1002000 0 sched_waking tid=40 prio=49 target_cpu=0 kthread=1
    1010000 0 sched_switch prev_tid=900 preempt=1 next_tid=40 next_prio=49 next_kthread=1
    1040000 0 sched_waking tid=1234 prio=19 target_cpu=0
    1045000 0 sched_switch prev_tid=40 prev_prio=49 prev_state=1 prev_kthread=1 next_tid=1234 next_prio=19
    1900000 0 nmi_handler handler=0x1 duration_ns=20000 handled=1
    2000000 0 sched_switch prev_tid=1234 prev_prio=19 prev_state=1 next_tid=900
    3300000 0 vector_entry kind=local_timer
    3302000 0 hrtimer_expire_entry softexpires_ns=2500000 expires_ns=2800000
    3303000 0 sched_waking tid=1234 prio=120
    3304000 0 vector_exit kind=local_timer
    3310000 0 sched_switch prev_tid=900 preempt=1 next_tid=1234
    3400000 0 sched_switch prev_tid=1234 prev_state=1 next_tid=900
";

#[test]
fn an_explanation_for_a_terminal() {
    let hog = recording(HOG);
    let (late, explanation) = explained(&hog).remove(0);
    golden("hog.txt", &explanation_text(&explanation, PLAIN));
    fits(|style| explanation_text(&explanation, style));
    golden("hog-color.ansi", &explanation_text(&explanation, Style { color: true, ..PLAIN }));
    let file = trigger(late.clone());
    let explanations = [explanation];
    golden("hog-file.txt", &explanation_file(&file, &explanations, PLAIN));
    fits(|style| explanation_file(&file, &explanations, style));
    let line = late_line(&late, &hog.names, Some(&CLOCK), PLAIN);
    golden("hog-line.log", &format!("{line}\n"));
}

/// Names as long as the kernel has them: figures keep to the columns, too.
#[test]
fn rows_of_an_explanation_keep_to_the_columns_whatever_names_are() {
    for comm in ["hog", "qemu-system-x86"] {
        let (_, mut explanation) = explained(&recording(HOG)).remove(0);
        for cause in explanation.steps.iter_mut().flat_map(|step| &mut step.causes) {
            if let Some(Actor::Thread(thread)) = &mut cause.actor {
                (thread.tid, thread.comm) = (Tid(4_194_303), Some(Comm::from_bytes(comm.as_bytes())));
                cause.kind = CauseKind::BlockingThread;
            }
        }
        // A bar as long as there are.
        explanation.steps[0].share_permille = 1000;
        for width in [100, 80] {
            let text = explanation_text(&explanation, Style { width, ..PLAIN });
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{longest:?} of {width}:\n{text}");
        }
    }
}

#[test]
fn what_hangs_with_its_place_in_the_kernel() {
    let hog = recording(HOG);
    let (mut late, _) = explained(&hog).remove(0);
    late.end = End::Pending;
    late.tracker = Tracker::Syscall;
    let args = vec![CallArgument { name: Some("fd".to_owned()), value: 3 }];
    late.call = Some(Box::new(SystemCall { number: 0, name: Some("read".to_owned()), args, result: None }));
    let functions = ["pipe_read+0x134", "vfs_read+0x2fc", "ksys_read+0xc5", "do_syscall_64+0x71"];
    let kernel_stack = Some(functions.map(str::to_owned).to_vec());
    let stuck = |late: &LateResponse, kernel_stack| {
        let stuck = Stuck { late: late.clone(), kernel_stack };
        stuck_text(&stuck, &hog.names, Some(&CLOCK), PLAIN) + "\n"
    };
    let mut text = stuck(&late, kernel_stack);
    (late.tracker, late.call) = (Tracker::Offcpu, None);
    let mut wait = late.chain.steps[0];
    (wait.kind, wait.wait) = (StepKind::Wait, WaitKind::Read);
    late.chain.steps.push(wait);
    text.push_str(&stuck(&late, Some(Vec::new())));
    late.tracker = Tracker::Wakeup;
    late.chain.steps.push(Step { kind: StepKind::Wakeup, ..wait });
    text.push_str(&stuck(&late, None));
    golden("stuck.log", &text);
}

#[test]
fn verbose_shows_every_row_and_tells_reasons_apart() {
    let verbose = Style { verbose: true, ..PLAIN };
    let (_, mut explanation) = explained(&recording(HOG)).remove(0);
    // More causes than are shown, and a step that took no time.
    let cause = explanation.steps.iter().flat_map(|step| &step.causes).next().expect("it has one").clone();
    let step = explanation.steps.iter_mut().find(|step| step.kind == StepKind::Run).expect("it ran");
    step.causes = (1..=7).map(|ns| Cause { time_ns: ns, ..cause.clone() }).collect();
    explanation.steps.push(StepExplanation {
        duration_ns: 0,
        causes: vec![],
        ..explanation.steps[0].clone()
    });
    let lines = |style| explanation_text(&explanation, style).lines().count();
    // Three causes that were one row, and the step.
    assert_eq!(lines(verbose), lines(PLAIN) + 3);

    let mut report = Report::default();
    (report.counters.healed, report.untracked, report.counters.too_long) = (1, 2, 4);
    let text = |style| summary_text(&report, style).replace("\n    ", " ");
    assert!(text(PLAIN).contains("may begin too late (--verbose: why): 7"), "{}", text(PLAIN));
    for part in ["begun earlier: 1", "responses are missing: 2", "responses are missing: 4"] {
        assert!(text(verbose).contains(part), "{part}: {}", text(verbose));
    }
    assert!(!text(verbose).contains("--verbose"));
}

#[test]
fn a_threads_late_responses_are_beside_all_that_it_had() {
    let thread = |tid, count, responses| ThreadSummary {
        tid: Tid(tid),
        pid: Pid(7005),
        comm: Comm::from("cyclictest"),
        prio: Priority(19),
        count,
        responses,
        own_work: 0,
        worst_ns: 1_144_286,
        sum_ns: 17_852_410,
    };
    let mut report = Report {
        threads: vec![thread(7006, 34, Some(1995)), thread(7007, 5, None)],
        other_threads: OtherThreads { count: 3, responses: 1200 },
        ..Report::default()
    };
    let text = summary_text(&report, PLAIN);
    let lines: Vec<&str> = text.lines().skip_while(|line| *line != "late responses by thread").collect();
    assert_eq!(
        lines[2..5],
        [
            "     34         1 995   1.144 ms   525.1 us         0  cyclictest/7006 (rt 80)",
            "      5       unknown   1.144 ms   3.570 ms         0  cyclictest/7007 (rt 80)",
            "      0  of 1 200 responses of 3 further threads",
        ]
    );
    // One thread that was late, and none besides, is what the rest of the summary is about.
    report.threads.truncate(1);
    report.other_threads = OtherThreads::default();
    assert!(!summary_text(&report, PLAIN).contains("by thread"));
}

#[test]
fn nobody_is_blamed_in_words_either() {
    let mut recording = recording(OWN_WORK);
    recording.losses.push(Loss { cpu: Some(CpuId(0)), cause: LossCause::RecursionMiss, count: None });
    let texts: Vec<String> =
        explained(&recording).iter().map(|(_, explanation)| explanation_text(explanation, PLAIN)).collect();
    golden("own-work.txt", &texts.join("\n"));
}

/// Two device interrupts for one softirq on a CPU that a name tries to paint red, and a wakeup before the target waits.
const MERGED: &str = "
    1000 0 cpu_idle state=2
    2000 1 sched_switch prev_tid=0 next_tid=1234 next_prio=49
    1000000 0 irq_handler_entry irq=36
    1001000 0 softirq_raise vec=3
    1002000 0 irq_handler_exit irq=36 ret=1
    1002500 0 irq_handler_entry irq=37
    1003000 0 softirq_raise vec=3
    1003500 0 irq_handler_exit irq=37 ret=1
    1004000 0 softirq_entry vec=3
    1006000 0 sched_waking tid=1234 prio=49 target_cpu=1
    1007000 0 softirq_exit vec=3
    1700000 1 sched_switch prev_tid=1234 prev_prio=49 prev_state=1 next_tid=0
    2000000 0 sched_waking tid=1234 prio=49 target_cpu=1
";

#[test]
fn merged_origins_and_busy_wakings() {
    let mut recording = recording(MERGED);
    recording.names.add_irq(Irq(37), "red\x1b[31m".to_owned());
    golden("merged.txt", &explanation_text(&explained(&recording)[0].1, PLAIN));
    fits(|style| explanation_text(&explained(&recording)[0].1, style));
}

/// A chain that is handed from CPU to CPU, to a worker that is at work, and to a target that finds a spinlock held.
const HANDED_ON: &str = "
    1000 1 sched_switch prev_tid=0 next_tid=41 next_kthread=1
    1100 0 sched_switch prev_tid=0 next_tid=1240
    900000 1 workqueue_execute_start work=0x1
    1000000 0 irq_handler_entry irq=36
    1005000 0 ipi_send_cpu target_cpu=1 call=1
    1006000 0 irq_handler_exit irq=36 ret=1
    1009000 1 vector_entry kind=call_function_single
    1012000 1 workqueue_queue_work work=0x2
    1013000 1 vector_exit kind=call_function_single
    1400000 1 workqueue_execute_end work=0x1
    1401000 1 workqueue_execute_start work=0x2
    1450000 1 sched_waking tid=1234 prio=49 target_cpu=1
    1451000 1 workqueue_execute_end work=0x2
    1460000 1 sched_switch prev_tid=41 prev_kthread=1 prev_state=1026 next_tid=1234 next_prio=49
    1500000 1 sched_switch prev_tid=1234 prev_prio=49 prev_state=4096 next_tid=0
    1700000 0 sched_waking tid=1234 prio=49 target_cpu=1
    1720000 1 sched_switch prev_tid=0 next_tid=1234 next_prio=49
    1800000 1 sched_switch prev_tid=1234 prev_prio=49 prev_state=1 next_tid=0
";

#[test]
fn what_is_handed_on_says_by_whom() {
    golden("handed-on.txt", &explanation_text(&explained(&recording(HANDED_ON))[0].1, PLAIN));
    fits(|style| explanation_text(&explained(&recording(HANDED_ON))[0].1, style));
}

#[test]
fn shares_shown_add_up() {
    for events in [HOG, OWN_WORK] {
        for (_, explanation) in explained(&recording(events)) {
            let shown: u32 = explanation.steps.iter().map(|step| step.share_permille).sum();
            assert_eq!(shown, 1000);
        }
    }
}

fn report() -> Report {
    let mut summary = Summary::new();
    let mut histogram = Histogram::default();
    for events in [HOG, OWN_WORK, HOG] {
        for (late, explanation) in explained(&recording(events)) {
            summary.add_explanation(&explanation);
            histogram.record(late.response_ns());
        }
    }
    summary.add_late(&explained(&recording(HOG))[0].0);
    for index in 0..20_000_u64 {
        histogram.record(9_000 + index % 5_000 + index % 7 * 3_000);
    }
    let mut report = Report {
        elapsed_ns: 60_000_000_000,
        threshold_ns: 500_000,
        suppressed: 1,
        statistics: histogram.statistics(),
        groups: summary.groups(),
        losses: vec![Loss { cpu: None, cause: LossCause::Overwritten, count: Some(12) }],
        ..Report::default()
    };
    report.counters.seen = histogram.count();
    report.counters.late = summary.count();
    report.counters.unlinked = 3;
    report
}

#[test]
fn a_summary() {
    golden("summary.txt", &summary_text(&report(), PLAIN));
    fits(|style| summary_text(&report(), style));
}

#[test]
fn what_could_not_be_observed_is_listed_once() {
    let thread = |tid: u32, responses| HiddenThread { tid: Tid(tid), comm: Comm::from("tokio"), responses };
    let not_observable = NotObservable { responses: 16, threads: vec![thread(68, 9), thread(75, 7)] };
    let text = summary_text(&Report { not_observable, ..report() }, PLAIN);
    let lines = text.split("not observable: ").nth(1).expect("it is there");
    let lines = lines.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(lines.starts_with(
        "16 responses, which may have been late or not, of tokio/68 (9), tokio/75 (7); this host"
    ));
    assert!(!summary_text(&report(), PLAIN).contains("not observable"));
}

#[test]
fn objects_for_programs() {
    let hog = recording(HOG);
    let (late, explanation) = explained(&hog).remove(0);
    let lines = [
        late_json(&late, Some(&CLOCK)).unwrap(),
        explanation_json(&explanation, Some(&CLOCK)).unwrap(),
        summary_json(&report(), None).unwrap(),
    ];
    golden("watch.jsonl", &format!("{}\n", lines.join("\n")));
    // What is written can be read back.
    let read: Explanation = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!(read, explanation);
    let read: LateResponse = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(read, late);
    let read: Report = serde_json::from_str(&lines[2]).unwrap();
    assert_eq!(read, report());
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What babeltrace2, a reader that we did not write, prints of our traces.

use rtscope_ctf::{WriteSummary, read_trace, write_trace};
use rtscope_event::{
    CpuId, Event, EventKind, Loss, LossCause, MonotonicNs, Policy, Priority, Recording, TaskInfo, TaskState,
    Tid, WaitKind,
};
use rtscope_testkit::babeltrace2;
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{self, START, every_variant, info, task};
use std::fs;

/// Writes a snapshot's directory as the command does: the trace, and files that babeltrace2 has to pass over.
fn snapshot(recording: &Recording) -> (tempfile::TempDir, WriteSummary) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("trigger.json"), "{\"schema\": 1}\n").unwrap();
    fs::write(root.path().join("explain.txt"), "A response took 3 ms.\n").unwrap();
    let summary = write_trace(&root.path().join("kernel"), recording, &info()).unwrap();
    (root, summary)
}

fn line<'l>(lines: &[&'l str], event: &str) -> &'l str {
    lines.iter().find(|line| line.contains(&format!(" {event}: "))).unwrap()
}

#[test]
fn all_events_are_printed_without_complaint() {
    let (root, summary) = snapshot(&every_variant());
    let Some(text) = babeltrace2::text(root.path(), &[]) else { return };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len() as u64, summary.events + summary.dump_events);
    assert!(lines[0].contains("lttng_statedump_start"), "{}", lines[0]);
}

fn fifo_task(tid: u32, comm: &str) -> TaskInfo {
    TaskInfo { prio: Priority(19), policy: Policy(1), ..task(tid, comm) }
}

fn switch(time: u64, cpu: u32) -> Event {
    let kind = EventKind::SchedSwitch {
        prev_tid: Tid(41),
        prev_prio: Priority(19),
        prev_state: TaskState(1),
        preempt: true,
        prev_kthread: false,
        next_tid: Tid(42),
        next_prio: Priority(120),
        next_kthread: false,
        prev_wait: WaitKind::None,
        prev_wait_on: 0,
    };
    Event { time: MonotonicNs(time), cpu: CpuId(cpu), kind }
}

#[test]
fn fields_have_the_values_that_tools_expect() {
    let tasks = vec![fifo_task(41, "motor"), fifo_task(42, "log")];
    let recording = recordings::finish(vec![switch(START + 7, 2)], Vec::new(), tasks);
    let (root, _) = snapshot(&recording);
    let arguments = ["--clock-seconds", "--fields=all"];
    let Some(text) = babeltrace2::text(root.path(), &arguments) else { return };
    let lines: Vec<&str> = text.lines().collect();
    let switch = line(&lines, "sched_switch");
    for part in [
        // 1 700 000 000 s of offset and 1 000 000 s of uptime
        "1701000000.000000007",
        "bench \"7\"",
        "cpu_id = 2",
        "prev_comm = \"motor\"",
        "prev_tid = 41",
        "prev_prio = -81",
        "prev_state = 0",
        "prev_state_raw = 1",
        "preempt = 1",
        "next_comm = \"log\"",
        "next_prio = 20",
    ] {
        assert!(switch.contains(part), "{part}: {switch}");
    }
    let dumped = lines.iter().filter(|line| line.contains("lttng_statedump_process_state"));
    let dumped: Vec<&&str> = dumped.collect();
    assert!(dumped[0].contains("name = \"motor\"") && dumped[0].contains("status = 6"), "{}", dumped[0]);
    assert!(dumped[1].contains("name = \"log\"") && dumped[1].contains("status = 2"), "{}", dumped[1]);
}

#[test]
fn random_recordings_are_printed_without_complaint() {
    for seed in 0..5 {
        let mut recording = Random(1000 + seed).recording(2000);
        recording.losses.clear();
        let (root, summary) = snapshot(&recording);
        let Some(text) = babeltrace2::text(root.path(), &["-o", "dummy"]) else { return };
        assert_eq!(text, "");
        let Some(text) = babeltrace2::text(root.path(), &["--no-delta", "--clock-cycles"]) else { return };
        // Names with ends of lines in them break lines; a line with an event begins with its time in brackets.
        let times: Vec<u64> = text.lines().filter_map(|line| line.get(1..21)?.parse().ok()).collect();
        assert_eq!(times.len() as u64, summary.events + summary.dump_events);
        let expected = recording.events.iter().map(|event| event.time.0);
        assert!(expected.eq(times.into_iter().skip(summary.dump_events as usize)), "seed {seed}");
    }
}

#[test]
fn many_packets_and_empty_streams_are_fine() {
    let mut recording = Random(99).recording(90_000);
    recording.losses.clear();
    recording.events.retain(|event| event.cpu != CpuId(3));
    recording.history[3].complete_since = None;
    recording.history[3].events = 0;
    let (root, summary) = snapshot(&recording);
    assert!(summary.packets > summary.streams && summary.streams == 4, "{summary:?}");
    let Some(counted) = babeltrace2::text(root.path(), &["-c", "sink.utils.counter"]) else { return };
    let events = (summary.events + summary.dump_events).to_string();
    assert!(counted.lines().any(|line| line.trim() == format!("{events} Event messages")), "{counted}");
}

#[test]
fn equal_times_on_all_cpus_are_fine() {
    let events: Vec<Event> = (0..40).map(|i| switch(START, i / 10)).collect();
    let (root, summary) = snapshot(&recordings::finish(events, Vec::new(), Vec::new()));
    let Some(text) = babeltrace2::text(root.path(), &[]) else { return };
    assert_eq!(text.lines().count() as u64, summary.events + summary.dump_events);
}

#[test]
fn an_empty_recording_is_fine() {
    let (root, summary) = snapshot(&Recording::default());
    let Some(text) = babeltrace2::text(root.path(), &[]) else { return };
    assert_eq!(text.lines().count() as u64, summary.dump_events);
}

fn losses(losses: Vec<Loss>) -> Option<String> {
    let events = (0..100).map(|i| switch(START + i * 1000, (i % 2) as u32)).collect();
    let (root, summary) = snapshot(&recordings::finish(events, losses, Vec::new()));
    let output = babeltrace2::run(root.path(), &[])?;
    assert!(output.status.success());
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    assert_eq!(lines as u64, summary.events + summary.dump_events);
    assert_eq!(read_trace(root.path()).unwrap().recording.events.len(), 100);
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_known_loss_is_one_warning_with_its_number() {
    let known =
        |cpu, count| Loss { cpu: Some(CpuId(cpu)), cause: LossCause::Overwritten, count: Some(count) };
    let Some(complaints) = losses(vec![known(1, 5), known(1, 2)]) else { return };
    assert_eq!(complaints.matches("WARNING").count(), 1, "{complaints}");
    assert!(complaints.contains("discarded 7 events"), "{complaints}");
}

#[test]
fn an_unknown_loss_is_one_warning_without_a_number() {
    let unknown = Loss { cpu: Some(CpuId(0)), cause: LossCause::Unreadable, count: None };
    let Some(complaints) = losses(vec![unknown]) else { return };
    assert_eq!(complaints.matches("WARNING").count(), 1, "{complaints}");
    assert!(complaints.contains("may have discarded events"), "{complaints}");
}

#[test]
fn a_loss_of_no_cpu_is_not_in_any_stream() {
    let nowhere = Loss { cpu: None, cause: LossCause::RecursionMiss, count: Some(3) };
    let Some(complaints) = losses(vec![nowhere]) else { return };
    assert!(complaints.is_empty(), "{complaints}");
}

/// The other way round: our reader and a writer that we did not write. Its packets, headers and metadata are laid out
/// otherwise than ours.
#[test]
fn what_babeltrace2_writes_is_read() {
    for seed in [1, 2] {
        let recording = Random(seed).recording(3000);
        let (root, _) = snapshot(&recording);
        let copies = tempfile::tempdir().unwrap();
        let arguments = ["-o", "ctf", "-w", copies.path().to_str().unwrap()];
        if babeltrace2::run(root.path(), &arguments).is_none() {
            return;
        }
        let copy = fs::read_dir(copies.path()).unwrap().next().unwrap().unwrap().path();
        let trace = read_trace(&copy).unwrap();
        assert!(
            trace.warnings.is_empty() && trace.skipped.is_empty(),
            "{:?} {:?}",
            trace.warnings,
            trace.skipped
        );
        for (written, read) in recording.events.iter().zip(&trace.recording.events) {
            assert_eq!(written, read);
        }
        assert_eq!(trace.recording.events.len(), recording.events.len());
        assert_eq!(trace.recording.losses, recording.losses);
        assert!(trace.recording.names.tasks().eq(recording.names.tasks()));
        assert_eq!(trace.info.hostname, info().hostname);
        assert_eq!(trace.info.realtime_offset_ns, info().realtime_offset_ns);
    }
}

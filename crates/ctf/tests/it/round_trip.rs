// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written is what is read.

use rtscope_ctf::{Error, Trace, TraceInfo, read_trace, write_trace};
use rtscope_event::{
    Comm, CpuHistory, CpuId, Event, EventKind, Loss, LossCause, MonotonicNs, Names, Priority, Recording,
    TaskInfo, TaskState, Tid, WaitKind,
};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{self, START, every_variant, info, task, tids};
use std::fs;

fn round_trip(recording: &Recording, info: &TraceInfo) -> Trace {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    let summary = write_trace(&dir, recording, info).unwrap();
    assert_eq!(summary.events, recording.events.len() as u64);
    let on_disk: u64 = fs::read_dir(&dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(summary.bytes, on_disk);
    read_trace(&dir).unwrap()
}

fn assert_same(recording: &Recording, trace: &Trace) {
    let read = &trace.recording;
    for (index, (written, read)) in recording.events.iter().zip(&read.events).enumerate() {
        assert_eq!(written, read, "event {index}");
    }
    assert_eq!(read.events.len(), recording.events.len());
    assert_eq!(read.losses, recording.losses);
    assert_eq!(read.history, recording.history);
    for event in &recording.events {
        for tid in tids(&event.kind) {
            let name = |names: &Names| names.comm(tid, event.time);
            assert_eq!(name(&read.names), name(&recording.names), "{event:?}: {tid}");
        }
    }
    assert!(read.names.tasks().eq(recording.names.tasks()));
    assert!(read.names.irqs().eq(recording.names.irqs()));
    assert!(trace.skipped.is_empty());
    assert!(trace.warnings.is_empty(), "{:?}", trace.warnings);
}

#[test]
fn every_variant_survives() {
    let recording = every_variant();
    let trace = round_trip(&recording, &info());
    assert_same(&recording, &trace);
    assert_eq!(trace.info, info());
}

#[test]
fn random_recordings_survive() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let events = random.below(600);
        let recording = random.recording(events);
        assert_same(&recording, &round_trip(&recording, &info()));
    }
}

#[test]
fn many_packets_survive() {
    let recording = Random(99).recording(90_000);
    let root = tempfile::tempdir().unwrap();
    let summary = write_trace(&root.path().join("trace"), &recording, &info()).unwrap();
    assert!(summary.packets > 4, "{summary:?}");
    assert_same(&recording, &read_trace(&root.path().join("trace")).unwrap());
}

#[test]
fn an_empty_recording_survives() {
    let recording = Recording::default();
    let trace = round_trip(&recording, &TraceInfo { window_begin: None, ..info() });
    assert_same(&recording, &trace);
    assert_eq!(trace.info.window_begin, None);
}

#[test]
fn a_cpu_that_recorded_nothing_has_a_stream() {
    let history = [3, 70].map(|cpu| CpuHistory { cpu: CpuId(cpu), complete_since: None, events: 0 });
    let recording = Recording { history: history.to_vec(), ..Recording::default() };
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write_trace(&dir, &recording, &info()).unwrap();
    assert!(dir.join("kernel_3").is_file() && dir.join("kernel_70").is_file());
    assert_same(&recording, &read_trace(&dir).unwrap());
}

fn switch(time: u64, cpu: u32, prev: u32, next: u32) -> Event {
    let kind = EventKind::SchedSwitch {
        prev_tid: Tid(prev),
        prev_prio: Priority(i16::MIN),
        prev_state: TaskState(u32::MAX),
        preempt: false,
        prev_kthread: true,
        next_tid: Tid(next),
        next_prio: Priority(i16::MAX),
        next_kthread: false,
        prev_wait: WaitKind::None,
        prev_wait_on: 0,
    };
    Event { time: MonotonicNs(time), cpu: CpuId(cpu), kind }
}

/// Names that nothing but the switches' own comms carries: neither dump nor rename is in the window.
#[test]
fn names_are_restored_from_switches_alone() {
    let mut earlier = Names::default();
    earlier.add_task(TaskInfo { comm: Comm::from_bytes(b"caf\xe9"), ..task(5, "") });
    let events = vec![switch(START, 0, 5, 6), switch(START + 1, 0, 6, 5)];
    let recording = Recording { events, names: earlier, ..Recording::default() };
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write_trace(&dir, &recording, &info()).unwrap();
    // Cut the dump's process event out of the reader's sight by giving it an unknown name.
    let metadata = fs::read_to_string(dir.join("metadata")).unwrap();
    fs::write(dir.join("metadata"), metadata.replace("lttng_statedump_process_state", "something_else"))
        .unwrap();
    let trace = read_trace(&dir).unwrap();
    assert_eq!(trace.recording.events, recording.events);
    assert_eq!(trace.recording.names.comm(Tid(5), MonotonicNs(START)), Some(Comm::from_bytes(b"caf\xe9")));
    assert_eq!(trace.recording.names.comm(Tid(6), MonotonicNs(START)), None);
    assert_eq!(trace.skipped.get("something_else"), Some(&1));
}

#[test]
fn equal_times_keep_their_order() {
    let events: Vec<Event> = (0..40).map(|i| switch(START, i / 10, i, i + 1)).collect();
    let recording = recordings::finish(events, Vec::new(), Vec::new());
    assert_same(&recording, &round_trip(&recording, &info()));
}

#[test]
fn a_recording_out_of_order_is_refused_and_leaves_nothing() {
    let events = vec![switch(START + 1, 0, 1, 2), switch(START, 1, 1, 2)];
    let recording = Recording { events, ..Recording::default() };
    let root = tempfile::tempdir().unwrap();
    let result = write_trace(&root.path().join("trace"), &recording, &info());
    assert!(matches!(result, Err(Error::Unordered { index: 1, cpu: 1 })), "{result:?}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn an_existing_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let result = write_trace(root.path(), &Recording::default(), &info());
    assert!(matches!(result, Err(Error::Exists(_))), "{result:?}");
}

#[test]
fn the_folder_above_will_do() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(read_trace(root.path()), Err(Error::NoTrace(_))));
    fs::write(root.path().join("trigger.json"), "{}").unwrap();
    write_trace(&root.path().join("kernel"), &every_variant(), &info()).unwrap();
    assert_same(&every_variant(), &read_trace(root.path()).unwrap());
}

/// Changes the metadata of a written trace and reads it.
fn read_with_metadata(recording: &Recording, change: impl Fn(String) -> String) -> Trace {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write_trace(&dir, recording, &info()).unwrap();
    let metadata = fs::read_to_string(dir.join("metadata")).unwrap();
    fs::write(dir.join("metadata"), change(metadata)).unwrap();
    read_trace(&dir).unwrap()
}

/// The shape of a trace by LTTng: none of our extra fields and entries.
#[test]
fn a_trace_without_our_extras_is_read_as_far_as_it_goes() {
    let mut preempted = switch(START, 0, 5, 6);
    if let EventKind::SchedSwitch { prev_state, preempt, .. } = &mut preempted.kind {
        (*prev_state, *preempt) = (TaskState(1), true);
    }
    let losses = vec![Loss { cpu: Some(CpuId(0)), cause: LossCause::Overwritten, count: Some(4) }];
    let recording = recordings::finish(vec![preempted], losses, Vec::new());
    let trace = read_with_metadata(&recording, |text| {
        let text = text.replace("_prev_state_raw", "_x1").replace("_preempt", "_x2");
        text.replace("_prev_kthread", "_x3").replace("rtscope_format", "x4")
    });
    let EventKind::SchedSwitch { prev_state, preempt, prev_kthread, .. } = trace.recording.events[0].kind
    else {
        panic!("{:?}", trace.recording.events);
    };
    // The shown state of a preempted task is 0, which says no more than that it stays runnable.
    assert_eq!((prev_state, preempt, prev_kthread), (TaskState(0), false, false));
    let loss = Loss { cpu: Some(CpuId(0)), cause: LossCause::Discarded, count: Some(4) };
    assert_eq!(trace.recording.losses, [loss]);
    let begin = trace.recording.history.iter().map(|history| (history.cpu.0, history.complete_since));
    assert_eq!(begin.collect::<Vec<_>>(), [0, 1, 2, 3].map(|cpu| (cpu, Some(MonotonicNs(START - 1000)))));
}

#[test]
fn an_event_without_a_field_it_needs_is_left_out_with_a_warning() {
    let recording = recordings::finish(vec![switch(START, 0, 5, 6)], Vec::new(), Vec::new());
    let trace = read_with_metadata(&recording, |text| text.replace("_next_tid", "_other"));
    assert!(trace.recording.events.is_empty());
    assert!(trace.warnings[0].contains("1 events sched_switch"), "{:?}", trace.warnings);
}

#[test]
fn another_frequency_is_converted() {
    let recording = recordings::finish(vec![switch(START, 0, 5, 6)], Vec::new(), Vec::new());
    let trace = read_with_metadata(&recording, |text| text.replace("freq = 1000000000", "freq = 2500000000"));
    assert_eq!(trace.recording.events[0].time, MonotonicNs(START / 5 * 2));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a cut says about losses and about itself. (Its events: the tests of `view`, against babeltrace2.)

use rtscope_ctf::{Classes, Cut, Evidence, Selection, StreamSummary, TraceSet, TraceWriter, cut, read_trace};
use rtscope_event::{
    CpuHistory, CpuId, Event, EventKind, Loss, LossCause, MonotonicNs, Names, Priority, TaskState, Tid,
    WaitKind,
};
use rtscope_testkit::babeltrace2;
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{START, info};
use std::fs;
use std::path::Path;

fn try_cut(dir: &Path, out: &Path, selection: &Selection) -> Result<(), rtscope_ctf::Error> {
    let set = TraceSet::open(dir).unwrap();
    let part = Cut { set: &set, root: dir, selection, conditions: &[] };
    cut(&part, out, &|_| true).map(drop)
}

/// What packets report as lost in a part of time: count, whether of packets, since and until.
fn losses(dir: &Path, from: i64, to: i64) -> Vec<(Option<u64>, bool, i64, i64)> {
    let set = TraceSet::open(dir).unwrap();
    let gaps = set.streams.iter().flat_map(|stream| &stream.losses.list);
    let gaps = gaps.map(|gap| (gap.count, gap.packets, gap.from_ns.unwrap(), gap.to_ns.unwrap()));
    let inside = gaps.filter(|(.., since, until)| *since <= to && *until >= from);
    inside.map(|(count, packets, since, until)| (count, packets, since.max(from), until.min(to))).collect()
}

fn switch(time: u64, cpu: u32) -> Event {
    let kind = EventKind::SchedSwitch {
        prev_tid: Tid(1),
        prev_prio: Priority(120),
        prev_state: TaskState(1),
        preempt: false,
        prev_kthread: false,
        next_tid: Tid(2),
        next_prio: Priority(120),
        next_kthread: false,
        prev_wait: WaitKind::None,
        prev_wait_on: 0,
    };
    Event { time: MonotonicNs(time), cpu: CpuId(cpu), kind }
}

const STEP: u64 = 1000;
const EVENTS: u64 = 16_000;

/// Two CPUs, an event every microsecond, and losses at 20 places of the first CPU; 5 somewhere on the second.
fn trace_with_losses(dir: &Path) {
    let writer = TraceWriter::create(dir, Classes::new(|_| true, &[]), info()).unwrap();
    let names = Names::default();
    let mut random = Random(77);
    let mut lost = 0;
    let mut summaries: Vec<StreamSummary> = Vec::new();
    for cpu in 0..2 {
        let mut stream = writer.stream(CpuId(cpu), MonotonicNs(START)).unwrap();
        let somewhere = Loss { cpu: Some(CpuId(1)), cause: LossCause::BufferFull, count: Some(5) };
        stream.lost_somewhere(&[somewhere]).unwrap();
        if cpu == 0 {
            stream.dump(&names, |_| None, None).unwrap();
        }
        for event in 0..EVENTS {
            if cpu == 0 && event % (EVENTS / 20) == 700 {
                let count = 1 + random.below(9);
                stream.lost(count).unwrap();
                lost += count;
            }
            stream.event(&switch(START + event * STEP, cpu), &names).unwrap();
        }
        summaries.push(stream.finish(MonotonicNs(START + EVENTS * STEP)).unwrap());
    }
    let loss = |cpu, count| Loss { cpu: Some(CpuId(cpu)), cause: LossCause::BufferFull, count: Some(count) };
    let losses = [loss(0, lost), loss(1, 5)];
    let history =
        |cpu, events| CpuHistory { cpu: CpuId(cpu), complete_since: Some(MonotonicNs(START)), events };
    let evidence =
        Evidence { losses: &losses, history: &[history(0, EVENTS), history(1, EVENTS)], by_event: &[] };
    writer.finish(&evidence, &summaries).unwrap();
}

fn ns(event: u64) -> i64 {
    1_700_000_000_000_000_000 + (START + event * STEP) as i64
}

#[test]
fn losses_are_in_a_cut_where_they_were_and_no_others_are() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    trace_with_losses(&dir);
    let mut random = Random(5);
    let mut sizes = Vec::new();
    for round in 0..12 {
        let (one, other) = (random.below(EVENTS), random.below(EVENTS));
        let (from, to) = (ns(one.min(other)), ns(one.max(other)));
        let selection = Selection { from_ns: Some(from), to_ns: Some(to), ..Selection::default() };
        let out = root.path().join(round.to_string());
        try_cut(&dir, &out, &selection).unwrap();
        let (expected, found) = (losses(&dir, from, to), losses(&out, i64::MIN, i64::MAX));
        assert_eq!(found, expected, "{one} {other}");
        sizes.push(expected.len());
        let Some(printed) = babeltrace2::run(&out, &[]) else { continue };
        let complaints = String::from_utf8_lossy(&printed.stderr);
        assert!(printed.status.success());
        let mut counts: Vec<u64> = Vec::new();
        for part in complaints.split("discarded ").skip(1) {
            counts.extend(part.split(' ').next().and_then(|count| count.parse::<u64>().ok()));
        }
        let mut expected: Vec<u64> = expected.iter().filter_map(|(count, ..)| *count).collect();
        // At one time they come in any order.
        counts.sort_unstable();
        expected.sort_unstable();
        assert_eq!(counts, expected, "{complaints}");
    }
    assert!(sizes.iter().min() < Some(&3) && sizes.iter().max() > Some(&10), "{sizes:?}");
}

#[test]
fn a_cut_says_what_it_is_and_claims_no_more_than_it_knows() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    trace_with_losses(&dir);
    let at = |name: &str| root.path().join(name);
    // Between two losses.
    let (from, to) = (ns(1900), ns(2250));
    let part = Selection { from_ns: Some(from), to_ns: Some(to), ..Selection::default() };
    try_cut(&dir, &at("quiet"), &part).unwrap();
    let recording = read_trace(&at("quiet")).unwrap().recording;
    // The five may be anywhere.
    let anywhere = Loss { cpu: Some(CpuId(1)), cause: LossCause::BufferFull, count: None };
    assert_eq!(recording.losses, [anywhere]);
    let since: Vec<_> = recording.history.iter().map(|history| history.complete_since).collect();
    assert_eq!(since, [Some(MonotonicNs(START + 1900 * STEP)); 2]);
    let set = TraceSet::open(&at("quiet")).unwrap();
    let env = |key: &str| set.traces[0].env()[key].to_string();
    assert_eq!((env("rtscope_cut_from"), env("rtscope_cut_until")), (from.to_string(), to.to_string()));
    assert_eq!(env("rtscope_cut_of"), info().trace_uuid.to_string());
    assert_ne!(set.traces[0].uuid(), Some(info().trace_uuid));
    // What was left out by choice is not "nothing happened".
    let events = rtscope_event::PatternList::new(["irq_*"]);
    try_cut(&dir, &at("some"), &Selection { events, ..Selection::default() }).unwrap();
    let some = read_trace(&at("some")).unwrap().recording;
    assert!(some.history.iter().all(|history| history.complete_since.is_none()) && some.history.len() == 2);
    assert!(TraceSet::open(&at("some")).unwrap().traces[0].is_selection());
    // Of one CPU, nothing is said of the other.
    try_cut(&dir, &at("cpu"), &Selection { cpus: Some([0].into()), ..Selection::default() }).unwrap();
    let one = read_trace(&at("cpu")).unwrap().recording;
    assert_eq!(one.history.len(), 1);
    assert!(one.losses.iter().all(|loss| loss.cpu == Some(CpuId(0)) && loss.count.is_some()));
    // A cut of a cut.
    let later = Selection { from_ns: Some(ns(2000)), ..Selection::default() };
    try_cut(&at("quiet"), &at("again"), &later).unwrap();
    let set = TraceSet::open(&at("again")).unwrap();
    assert_eq!(set.traces[0].cut_from_ns(), Some(ns(2000)));
    assert_eq!(set.traces[0].env()["rtscope_cut_until"].to_string(), to.to_string());
}

#[test]
fn what_could_not_be_read_is_a_loss_of_the_cut() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    trace_with_losses(&dir);
    let file = dir.join("kernel_1");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    try_cut(&dir, &root.path().join("cut"), &Selection::default()).unwrap();
    let set = TraceSet::open(&root.path().join("cut")).unwrap();
    assert!(set.damaged.is_empty());
    assert_eq!(set.streams[1].losses.events, 5 + 1);
    let losses = set.traces[0].losses_by_cause().unwrap();
    let unreadable = Loss { cpu: Some(CpuId(1)), cause: LossCause::Unreadable, count: None };
    assert!(losses.contains(&unreadable), "{losses:?}");
}

#[test]
fn nothing_is_left_of_a_cut_that_failed_or_was_stopped() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    trace_with_losses(&dir);
    let set = TraceSet::open(&dir).unwrap();
    let part = Cut { set: &set, root: &dir, selection: &Selection::default(), conditions: &[] };
    let out = root.path().join("cut");
    let stopped = cut(&part, &out, &|_| false).unwrap_err();
    assert!(matches!(stopped, rtscope_ctf::Error::Stopped));
    for (target, word) in [(&dir, "exists already"), (&dir.join("in"), "is in the trace itself")] {
        let error = cut(&part, target, &|_| true).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["trace"]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Late responses in Perfetto.

use super::{COMPLAINTS, convert, engine, query, text};
use rtscope_event::{
    Chain, Comm, CpuId, End, Event, EventKind, LateResponse, MonotonicNs, Origin, OriginKind, Pid, Priority,
    Step, StepKind, Tid, WaitKind,
};
use rtscope_store::trigger::{SCHEMA, TriggerFile};
use rtscope_testkit::recordings::{START, info};
use rtscope_testkit::simulated::Machine;
use std::fs;

const STEPS: [(StepKind, u32, u64); 4] = [
    (StepKind::TimerLateness, 0, 2_000),
    (StepKind::Handler, 0, 3_000),
    (StepKind::SoftirqWait, 8, 40_000),
    (StepKind::Wakeup, 104, 55_000),
];

/// A response of 100 us, with these steps.
fn late(sequence: u64, end: u64) -> LateResponse {
    let step = |(kind, id, duration_ns)| Step { kind, id, cpu: CpuId(1), duration_ns, wait: WaitKind::None };
    let origin =
        Origin { kind: OriginKind::Timer, id: 0, cpu: CpuId(1), time_ns: MonotonicNs(end - 100_000) };
    let steps = STEPS.map(step).to_vec();
    LateResponse {
        tracker: rtscope_event::Tracker::Response,
        instance: 0,
        sequence,
        cpu: CpuId(1),
        end_ns: MonotonicNs(end),
        end: End::Blocked,
        threshold_ns: 50_000,
        tid: Tid(104),
        pid: Pid(104),
        prio: Priority(20),
        comm: Comm::from("control"),
        snapshot: None,
        chain: Chain { origin, steps, merged: 0, others: Vec::new(), busy: false },
        events: None,
        call: None,
        lock: None,
        block: None,
        section: None,
        stacks: None,
    }
}

fn event(late: &LateResponse) -> Event {
    let kind = EventKind::LateResponse {
        tid: late.tid,
        pid: late.pid,
        origin_kind: OriginKind::Timer,
        origin_id: 0,
        origin_ns: late.chain.origin.time_ns.0,
        response_ns: 100_000,
        threshold_ns: late.threshold_ns,
        sequence: late.sequence,
        end: late.end,
        tracker: late.tracker,
        instance: late.instance.into(),
    };
    Event { time: late.end_ns, cpu: late.cpu, kind }
}

fn trigger(late: Vec<LateResponse>) -> String {
    let detected_ns = late[0].end_ns;
    let trigger = TriggerFile {
        schema: SCHEMA.to_owned(),
        producer: "test".to_owned(),
        number: 1,
        detected_ns,
        detected_at: String::new(),
        pre_ns: 0,
        post_ns: 0,
        from_ns: detected_ns,
        until_ns: detected_ns,
        ftrace_from_ns: None,
        pre_met: true,
        history: Vec::new(),
        losses: Vec::new(),
        copied_ns: 0,
        watched: String::new(),
        late,
    };
    serde_json::to_string(&trigger).unwrap()
}

const SPANS: &str = "select t.name, s.ts, s.dur, s.name, s.depth from slice s join track t on t.id = s.track_id \
    where s.category = 'late' and s.dur > 0 order by s.ts, s.depth";
const MARKS: &str = "select th.tid, m.ts, o.name, o.ts from flow f join slice m on m.id = f.slice_in \
    join slice o on o.id = f.slice_out join thread_track t on t.id = m.track_id join thread th using (utid) \
    where m.name = 'late response' order by m.ts";

#[test]
fn late_responses_are_spans_with_their_steps() {
    let Some(engine) = engine() else { return };
    let root = tempfile::tempdir().unwrap();
    let mut recording = Machine::new(5, 2, 10, false).recording(2_000);
    // The second begins before the first has ended; of the third no steps are known, of the fourth no event.
    let ends = [2_000_000, 2_050_000, 3_000_000, 4_000_000].map(|offset| START + offset);
    let responses: Vec<LateResponse> = (1..).zip(ends).map(|(number, end)| late(number, end)).collect();
    recording.events.extend(responses[..3].iter().map(event));
    recording.events.sort_by_key(|event| (event.time, event.cpu));
    rtscope_ctf::write_trace(&root.path().join("kernel"), &recording, &info()).unwrap();
    let known = [0, 1, 3].map(|place: usize| responses[place].clone());
    fs::write(root.path().join("trigger.json"), trigger(known.to_vec())).unwrap();
    let out = tempfile::tempdir().unwrap();
    let (file, _) = convert(root.path(), out.path(), &[]);
    let answers = query(&engine, &file, &[COMPLAINTS, SPANS, MARKS]);
    assert!(answers[0].is_empty(), "{:?}", answers[0]);
    let mut spans = Vec::new();
    let mut marks = Vec::new();
    for (place, response) in responses.iter().enumerate() {
        let begin = response.chain.origin.time_ns.0;
        spans.push((begin, 0, 100_000, "late: 100 us (timer -> blocked)".to_owned()));
        let mut at = begin;
        for (step, name) in STEPS.iter().zip(["timer lateness", "handler", "softirq wait HRTIMER", "wakeup"])
        {
            if place != 2 {
                spans.push((at, 1, step.2, name.to_owned()));
                at += step.2;
            }
        }
        let (cause, from) = if place == 2 {
            (spans[spans.len() - 1].3.clone(), begin)
        } else {
            ("wakeup".to_owned(), at - 55_000)
        };
        marks.push((104, response.end_ns.0, cause, from));
    }
    spans.sort();
    let number = |cell: &serde_json::Value| cell.as_u64().unwrap();
    let mut shown: Vec<_> = answers[1]
        .iter()
        .map(|row| (number(&row[1]), number(&row[4]), number(&row[2]), text(&row[3])))
        .collect();
    shown.sort();
    assert_eq!(shown, spans);
    assert!(
        answers[1].iter().all(|row| row[0] == "control/104" || row[0] == "task-104/104"),
        "{:?}",
        answers[1]
    );
    let shown: Vec<_> = answers[2]
        .iter()
        .map(|row| (number(&row[0]), number(&row[1]), text(&row[2]), number(&row[3])))
        .collect();
    assert_eq!(shown, marks);
    // A part of the trace does not have the fourth, whose event nobody selected.
    let (file, _) = convert(root.path(), out.path(), &["--event", "rtscope_*"]);
    let spans = "select count(*) from slice where name glob 'late: *'";
    assert_eq!(query(&engine, &file, &[spans])[0][0][0], 3);
}

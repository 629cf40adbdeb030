// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rtscope stat` prints about a trace, as text and as JSON.

use rtscope_ctf::{Selection, Stage, TraceSet, count, write_trace};
use rtscope_event::{CpuId, EventKind, Loss, LossCause};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{every_variant, info};
use rtscope_view::{Style, TraceStat};
use std::path::Path;

fn clock(_: i64) -> [u8; 9] {
    *b"12:00:00."
}

fn stat(dir: &Path) -> (String, serde_json::Value) {
    let set = TraceSet::open(dir).unwrap();
    let selection = Selection::default();
    let counts = count(&set, &selection, &|_| {});
    let stat = TraceStat::new((&set, Stage::Complete), &counts, &selection);
    (stat.text(clock, Style::default()), serde_json::from_str(&stat.json().unwrap()).unwrap())
}

#[test]
fn losses_are_shown_by_cause() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    let mut recording = every_variant();
    recording.losses = vec![
        Loss { cpu: Some(CpuId(1)), cause: LossCause::RecursionMiss, count: Some(41) },
        Loss { cpu: None, cause: LossCause::Overwritten, count: None },
    ];
    write_trace(&dir, &recording, &info()).unwrap();
    let (text, json) = stat(&dir);
    assert!(
        text.contains("Missing:") && text.contains("41") && !text.contains("Nothing is missing"),
        "{text}"
    );
    assert_eq!(json["schema"], "rtscope.stat/1");
    assert_eq!(json["traces"][0]["losses"].as_array().unwrap().len(), 2);
    assert_eq!(json["traces"][0]["losses"][0]["count"], 41);
    let lost: u64 =
        json["streams"].as_array().unwrap().iter().filter_map(|stream| stream["lost_events"].as_u64()).sum();
    assert_eq!(lost, 41, "{json}");
}

#[test]
fn counts_are_those_of_the_recording() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    let mut recording = Random(31).recording(5000);
    recording.losses.clear();
    let summary = write_trace(&dir, &recording, &info()).unwrap();
    let (text, json) = stat(&dir);
    assert_eq!(json["events"], summary.events + summary.dump_events);
    let switches =
        recording.events.iter().filter(|event| matches!(event.kind, EventKind::SchedSwitch { .. })).count();
    let found =
        json["by_event"].as_array().unwrap().iter().find(|event| event["name"] == "sched_switch").unwrap();
    assert_eq!(found["count"], switches);
    assert!(text.contains("Nothing is missing") && text.contains("sched_switch"), "{text}");
    let offset = info().realtime_offset_ns;
    let last = recording.events.last().unwrap().time.0 + offset;
    assert_eq!(json["last_ns"], last);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spans of programs (RTSCOPE_SPAN) as slices of their threads, also where the begin or the end of one is missing.

use super::{convert, text};
use rtscope_ctf::{EventThread, Evidence, UserClass, UserContext, UserMetadata, UserStreamWriter};
use rtscope_event::MonotonicNs;
use rtscope_programs::description::EventDescription;
use rtscope_testkit::perfetto::{COMPLAINTS, engine, query};
use rtscope_testkit::recordings::info;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

const CLASSES: [&str; 6] = [
    "app:outer_begin",
    "app:outer_end",
    "app:inner_begin",
    "app:inner_end",
    "app:the_end",
    "app:lonely_begin",
];

/// Writes events: time, thread, and the number of the class.
fn write(dir: &Path, events: &[(u64, u32, u32)]) {
    let context = UserContext { tid: true, ..UserContext::default() };
    fs::create_dir(dir).unwrap();
    let info = info();
    let class = |name: &&str| UserClass {
        event: EventDescription { index: 0, name: (*name).to_string(), level: 6, fields: Vec::new() },
        labels: BTreeMap::new(),
        origin: "".into(),
    };
    let classes: Vec<UserClass> = CLASSES.iter().map(class).collect();
    let mut metadata = UserMetadata::create(dir, context, &info).unwrap();
    let file = File::create_new(dir.join("user_0")).unwrap();
    let mut stream = UserStreamWriter::in_file(file, 0, info.trace_uuid, classes.len(), MonotonicNs(1000));
    metadata.declare(stream.class(), &classes).unwrap();
    for (time, tid, class) in events {
        let mut head = Vec::new();
        context.encode(EventThread { pid: 1, tid: *tid, comm: "app", uid: 0 }, 0, &mut head);
        stream.event(*class, MonotonicNs(*time), &head, &[]).unwrap();
    }
    stream.finish(MonotonicNs(100_000)).unwrap();
    metadata.finish(&Evidence { losses: &[], history: &[], by_event: &[] }, &[]).unwrap();
}

#[test]
fn the_begin_and_the_end_of_a_span_are_one_slice_of_their_thread() {
    let Some(engine) = engine() else { return };
    let root = tempfile::tempdir().unwrap();
    let trace = root.path().join("trace");
    let (outer, inner) = ((0, 1), (2, 3));
    let events = [
        (2_000, 7, inner.1),
        (3_000, 7, outer.0),
        (4_000, 8, outer.0),
        (5_000, 7, inner.0),
        (6_000, 7, 4),
        (7_000, 7, inner.1),
        (8_000, 7, 5),
        (9_000, 7, inner.0),
        (10_000, 8, outer.1),
        // The inner one never ended.
        (20_000, 7, outer.1),
    ];
    write(&trace, &events);
    let (file, report) = convert(&trace, root.path(), &[]);
    assert_eq!(report, "");
    let slices = "select th.tid, s.name, s.dur from slice s join thread_track t on t.id = s.track_id \
        join thread th using (utid) order by s.ts";
    let answers = query(&engine, &file, &[COMPLAINTS, slices]);
    assert!(answers[0].is_empty(), "{:?}", answers[0]);
    let row = |row: &Vec<Value>| (row[0].as_i64().unwrap(), text(&row[1]), row[2].as_i64().unwrap());
    let found: Vec<(i64, String, i64)> = answers[1].iter().map(row).collect();
    let expected = [
        (7, "app:inner_end", 0),
        (7, "app:outer", 17_000),
        (8, "app:outer", 6_000),
        (7, "app:inner", 2_000),
        (7, "app:the_end", 0),
        (7, "app:lonely_begin", 0),
        (7, "app:inner", 11_000),
    ];
    assert_eq!(found, expected.map(|(tid, name, duration)| (tid, name.to_string(), duration)));
}

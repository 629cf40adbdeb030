// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priorities in JSON: the numbers of the trace, and what people call them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rtscope_ctf::{Selection, TaskNames, TraceSet, print, write_trace};
use rtscope_event::Priority;
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::info;
use rtscope_view::{JsonFormat, Who};
use serde_json::Value;

#[test]
fn priorities_in_json_are_what_people_call_them() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("trace");
    write_trace(&dir, &Random(11).recording(10_000), &info()).unwrap();
    let set = TraceSet::open(&dir).unwrap();
    let mut text = Vec::new();
    let format = JsonFormat::new(&set, Who::new(&set, TaskNames::of(&set)));
    print(&set, &Selection::default(), u64::MAX, &format, &mut |piece| {
        text.extend_from_slice(&piece.text);
        true
    });
    let mut seen = 0;
    for line in String::from_utf8(text).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let raw = event["fields"]["next_prio"].as_i64();
        let Some(raw) = raw.filter(|_| event["event"] == "sched_switch") else {
            assert!(event["event"] != "irq_handler_entry" || event["priorities"].is_null(), "{line}");
            continue;
        };
        seen += 1;
        let called = Priority(i16::try_from(raw + 100).unwrap()).to_string();
        assert_eq!(event["priorities"]["next_prio"], called, "{line}");
        // And back.
        assert_eq!(called.parse(), Ok(Priority(i16::try_from(raw + 100).unwrap())), "{line}");
    }
    assert!(seen > 100, "{seen}");
}

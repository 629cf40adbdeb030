// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions of programs' events, honest and hostile: whatever `rtscope_programs` accepts becomes a trace that babeltrace2 and our
//! reader read without a complaint.
//!
//! Many descriptions are in one trace, since a start of babeltrace2 takes longer than what it reads here. When it complains, the test
//! looks for the first description that is the cause. `RTSCOPE_FUZZ` sets the number of traces, for long runs.

use rtscope_ctf::{
    EventThread, Evidence, Selection, TraceSet, UserClass, UserContext, UserMetadata, UserStreamWriter, count,
};
use rtscope_event::MonotonicNs;
use rtscope_programs::description::{Descriptions, FieldType, Integer, payload_bytes};
use rtscope_programs::patterns::RequestedEvents;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::descriptions::{self, DescriptionText};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::info;
use std::collections::BTreeMap;
use std::path::Path;

const PROVIDERS: usize = 150;

fn parsed(text: &DescriptionText) -> Option<Descriptions> {
    let all = RequestedEvents::default();
    Descriptions::parse(&text.text, text.events, text.enumerations, &all).ok()
}

/// As the conversion of a recording makes them.
fn classes(descriptions: &Descriptions, origin: &str) -> Vec<UserClass> {
    let class = |event: &rtscope_programs::description::EventDescription| {
        let mut labels = BTreeMap::new();
        for field in &event.fields {
            if let FieldType::Enumeration(name) = &field.kind {
                labels.insert(name.clone(), descriptions.enumeration(name).unwrap().labels.clone());
            }
        }
        UserClass { event: event.clone(), labels, origin: origin.into() }
    };
    descriptions.events.iter().map(class).collect()
}

/// A payload that matches the fields of a class.
fn payload(random: &mut Random, class: &UserClass) -> Vec<u8> {
    let mut bytes = Vec::new();
    let noise = |random: &mut Random, bytes: &mut Vec<u8>, count: usize| {
        bytes.extend((0..count).map(|_| random.next() as u8));
    };
    for field in &class.event.fields {
        match &field.kind {
            FieldType::Integer(integer) => noise(random, &mut bytes, integer.bytes.into()),
            FieldType::Bool => noise(random, &mut bytes, 1),
            FieldType::Float(size) => noise(random, &mut bytes, (*size).into()),
            FieldType::Enumeration(_) => bytes.extend((random.below(8) as i32 - 2).to_le_bytes()),
            FieldType::Text => {
                bytes.extend((0..1 + random.below(9)).map(|_| (random.next() as u8).max(1)));
                bytes.push(0);
            }
            FieldType::Array(element, count) => {
                noise(random, &mut bytes, usize::from(element.bytes) * *count as usize);
            }
            FieldType::FloatArray(size, count) => {
                noise(random, &mut bytes, usize::from(*size) * *count as usize);
            }
            FieldType::Sequence(Integer { bytes: size, .. }) | FieldType::FloatSequence(size) => {
                let count = random.below(4) as u32;
                bytes.extend(count.to_le_bytes());
                noise(random, &mut bytes, usize::from(*size) * count as usize);
            }
        }
    }
    assert_eq!(payload_bytes(&class.event.fields, &bytes), Some(bytes.len()));
    bytes
}

/// Writes a trace with an event of each class; returns the number of events.
fn write(dir: &Path, classes: Vec<UserClass>, random: &mut Random) -> u64 {
    let context = UserContext {
        pid: random.flag(),
        tid: random.flag(),
        comm: random.flag(),
        cpu: random.flag(),
        uid: random.flag(),
    };
    std::fs::create_dir(dir).unwrap();
    let info = info();
    let mut metadata = UserMetadata::create(dir, context, &info).unwrap();
    let file = std::fs::File::create_new(dir.join("user_0")).unwrap();
    let mut stream = UserStreamWriter::in_file(file, 0, info.trace_uuid, classes.len(), MonotonicNs(1000));
    metadata.declare(stream.class(), &classes).unwrap();
    let mut head = Vec::new();
    context.encode(EventThread { pid: 1, tid: 2, comm: "a \"name\\", uid: 3 }, 0, &mut head);
    for (number, class) in classes.iter().enumerate() {
        let time = MonotonicNs(2000 + number as u64);
        stream.event(number as u32, time, &head, &payload(random, class)).unwrap();
    }
    stream.finish(MonotonicNs(1 << 32)).unwrap();
    let evidence = Evidence { losses: &[], history: &[], by_event: &[] };
    let remark = "x\" \\ */ was dropped\u{202e}: }; env {".to_string();
    metadata.finish(&evidence, &[("rtscope_remark_0".to_string(), remark)]).unwrap();
    classes.len() as u64
}

/// What is wrong with a trace of these classes.
fn complaint(classes: &[UserClass], seed: u64) -> Option<String> {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    let events = write(&dir, classes.to_vec(), &mut Random(seed));
    let set = TraceSet::open(&dir).map_err(|error| format!("our reader: {error}"));
    let set = match set {
        Ok(set) => set,
        Err(why) => return Some(why),
    };
    let counts = count(&set, &Selection::default(), &|_| ());
    let read: u64 = counts.streams.iter().map(|stream| stream.total()).sum();
    if read != events || !counts.damaged.is_empty() {
        return Some(format!("our reader: {read} of {events} events, {:?}", counts.damaged));
    }
    let output = babeltrace2::run(&dir, &[])?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64;
    let is_fine = output.status.success() && complaints.is_empty() && lines == events;
    (!is_fine)
        .then(|| format!("babeltrace2: {}, {lines} of {events} lines, {complaints:.2000}", output.status))
}

/// Fails with the first class that spoils a trace.
fn assert_readable(classes: &[UserClass], seed: u64) {
    let Some(why) = complaint(classes, seed) else { return };
    for class in classes {
        if let Some(why) = complaint(std::slice::from_ref(class), seed) {
            panic!("seed {seed}: {class:?}: {why}");
        }
    }
    panic!("seed {seed}, only all together: {why}");
}

#[test]
fn no_description_breaks_a_reader() {
    let traces = std::env::var("RTSCOPE_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let (mut accepted, mut refused, mut events) = (0, 0, 0);
    for seed in 0..traces {
        let mut random = Random(seed);
        let mut all = Vec::new();
        for number in 0..PROVIDERS {
            let Some(descriptions) = parsed(&descriptions::provider(&mut random)) else {
                refused += 1;
                continue;
            };
            accepted += 1;
            let origins = ["", "file:/bin/a b", "file:\"\\*/\n};", "build-id:00ff", "file:\u{202e}ä\u{fffd}"];
            all.append(&mut classes(&descriptions, origins[number % origins.len()]));
        }
        events += all.len();
        assert_readable(&all, seed);
    }
    println!("{accepted} providers with {events} events are in {traces} traces; {refused} were refused");
    assert!(accepted > refused && refused > accepted / 50, "{accepted} {refused}");
}

/// What an honest program may write, and what broke babeltrace2.
#[test]
fn fields_of_one_name_and_any_level_are_readable() {
    for text in [
        "p:twice 6\nu32 a\nu32 a\n\0",
        "p:lengths 6\nseq u8 a\nu32 _a_length\nseq u8 a\n\0",
        "p:underscores 6\nu8 _a\nu8 a\nu8 __a\n\0",
        "p:length 6\nseq u8 a\nu32 a_length\n\0",
        "p:level 4294967295\nu32 a\n\0",
        "p:level 15\n\0",
        "p:e 6\nu8 _\nu8 __\nu8 event\nseq u8 stream\nstr string\n\0",
    ] {
        let text = DescriptionText { text: text.as_bytes().to_vec(), events: 1, enumerations: 0 };
        assert_readable(&classes(&parsed(&text).unwrap(), "file:/bin/p"), 1);
    }
}

#[test]
fn what_a_program_may_describe_is_less_than_readers_take_and_no_more_than_was_counted() {
    let load = |events: u32| {
        let event = |event: u32| format!("load:event{event} 6\nu64 first\nseq u32 second\nenum e third\n\0");
        let text: String = (0..events).map(event).chain(["e\n0 idle\n1 busy\n\0".to_string()]).collect();
        parsed(&DescriptionText { text: text.into_bytes(), events, enumerations: 1 })
    };
    // As many as are taken of one program.
    let descriptions = (1..60).rev().find_map(|thousands| load(thousands * 1000)).unwrap();
    assert!(descriptions.events.len() < 59_000);
    let counted = descriptions.bytes();
    assert!(counted > 3 << 20, "{counted}");
    let classes = classes(&descriptions, "");
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write(&dir, classes.clone(), &mut Random(3));
    let size = std::fs::metadata(dir.join("metadata")).unwrap().len() as usize;
    assert!(size < counted && size > counted / 4, "{size} bytes, {counted} counted");
    assert_readable(&classes, 1);
}

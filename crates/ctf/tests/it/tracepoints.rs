// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any tracepoint as an event class: what babeltrace2, a reader that we did not write, prints of them, and what our reader makes of them.

use rtscope_ctf::{Classes, Evidence, StreamSummary, TraceWriter, read_trace};
use rtscope_event::{CpuId, Event, EventKind, MonotonicNs, Names, TaskState, Tid};
use rtscope_ftrace::format::{EventFormat, Field, FieldKind};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{START, info};
use rtscope_testkit::{babeltrace2, skip, tracepoints};
use std::path::Path;

fn format(system: &str, name: &str, fields: &[(&str, u32, u32)]) -> EventFormat {
    EventFormat::parse(system, &tracepoints::description(name, 7, fields)).unwrap()
}

fn events_counted(dir: &Path) -> Option<u64> {
    let text = babeltrace2::text(dir, &["-c", "sink.utils.counter"])?;
    let line = text.lines().find(|line| line.contains(" Event messages")).unwrap_or("0");
    line.split_whitespace().next()?.parse().ok()
}

/// A trace of `records`, each `(format, record)`, one microsecond apart on two CPUs.
fn write(dir: &Path, formats: &[EventFormat], records: &[(usize, Vec<u8>)]) -> Vec<StreamSummary> {
    let given: Vec<(&EventFormat, u8)> = formats.iter().map(|format| (format, 0xff)).collect();
    let classes = Classes::new(|_| false, &given);
    let writer = TraceWriter::create(dir, classes, info()).unwrap();
    let mut done = Vec::new();
    for cpu in 0..2 {
        let mut stream = writer.stream(CpuId(cpu), MonotonicNs(START)).unwrap();
        if cpu == 0 {
            stream.dump(&Names::default(), |_| None, None).unwrap();
        }
        for (index, (format, record)) in
            records.iter().enumerate().filter(|(index, _)| index % 2 == cpu as usize)
        {
            let class = writer.classes().tracepoint(*format).unwrap();
            let time = MonotonicNs(START + 1000 * index as u64);
            assert!(stream.tracepoint(class, time, record, &[Some(b"/etc/ld.so.cache"), None]).unwrap());
        }
        done.push(stream.finish(MonotonicNs(START + 1000 * records.len() as u64)).unwrap());
    }
    writer.finish(&Evidence::default(), &done).unwrap();
    done
}

/// Bytes of the fixed part of a record.
fn fixed_bytes(format: &EventFormat) -> usize {
    let end = |field: &Field| (field.offset + field.size) as usize;
    format.common.iter().chain(&format.fields).map(end).max().unwrap_or(8)
}

/// A record with random content; what is dynamic lies behind its fixed part, or anywhere.
fn random_record(format: &EventFormat, random: &mut Random, sane: bool) -> Vec<u8> {
    let mut record: Vec<u8> = (0..fixed_bytes(format)).map(|_| random.next() as u8).collect();
    if !sane {
        return record;
    }
    for field in &format.fields {
        if let FieldKind::Dynamic { relative, .. } = field.kind {
            let length = random.below(40) as usize;
            let base = if relative { (field.offset + field.size) as usize } else { 0 };
            let word = (length << 16 | (record.len() - base)) as u32;
            record[field.offset as usize..][..4].copy_from_slice(&word.to_le_bytes());
            record.extend((0..length).map(|_| random.next() as u8));
        }
    }
    record
}

fn records(formats: &[EventFormat], seed: u64) -> Vec<(usize, Vec<u8>)> {
    let mut random = Random(seed);
    let mut records = Vec::new();
    for (index, format) in formats.iter().enumerate() {
        records.push((index, vec![0; fixed_bytes(format)]));
        records.push((index, random_record(format, &mut random, true)));
        records.push((index, random_record(format, &mut random, false)));
    }
    records
}

fn nasty() -> Vec<EventFormat> {
    let keywords = [
        "int event",
        "int struct",
        "int string",
        "int clock",
        "int stream",
        "int enum",
        "int integer",
        "int variant",
        "int typealias",
        "int align",
        "int trace",
        "int env",
        "int id",
        "int timestamp",
        "int packet",
    ];
    let fields: Vec<(&str, u32, u32)> =
        keywords.iter().zip(0..).map(|(field, place)| (*field, 8 + 4 * place, 4)).collect();
    vec![
        format("odd", "nothing", &[]),
        format("odd", "keywords", &fields),
        format(
            "odd",
            "duplicates",
            &[("int a", 8, 4), ("int a", 12, 4), ("int _a", 16, 4), ("__data_loc u8[] a", 20, 4)],
        ),
        format(
            "odd",
            "texts",
            &[("char empty[16]", 8, 16), ("__data_loc char[] name", 24, 4), ("char one", 28, 1)],
        ),
        format(
            "odd",
            "sequences",
            &[("__data_loc u64[] words", 8, 4), ("__rel_loc u16[] near", 12, 4), ("int x", 16, 4)],
        ),
        format(
            "odd",
            "masks",
            &[("__data_loc cpumask_t cpumask", 8, 4), ("struct foo f", 12, 7), ("char rest[]", 20, 0)],
        ),
        format("odd", "rest", &[("u32 buf[]", 8, 0)]),
        format("odd", "with \"quotes\" and \\", &[("long long x", 8, 8)]),
        format("one", "same", &[("int a", 8, 4)]),
        format("two", "same", &[("int b", 8, 4)]),
        format(
            "syscalls",
            "sys_enter_openat",
            &[("int __syscall_nr", 8, 4), ("const char * filename", 16, 8)],
        ),
    ]
}

#[test]
fn nasty_formats_and_records_are_printed_without_complaint() {
    for seed in 0..4 {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("trace");
        let formats = nasty();
        let records = records(&formats, seed);
        let done = write(&dir, &formats, &records);
        let events: u64 = done.iter().map(|stream| stream.events).sum();
        assert_eq!(events, records.len() as u64);
        let Some(text) = babeltrace2::text(&dir, &["--fields=all"]) else { return };
        assert!(text.contains("one_same: ") && text.contains("two_same: "), "{text}");
        assert!(text.contains("filename = \"/etc/ld.so.cache\""), "{text}");
        assert_eq!(events_counted(&dir), Some(events + 2));
        let trace = read_trace(&dir).unwrap();
        assert!(trace.warnings.is_empty(), "{:?}", trace.warnings);
    }
}

/// babeltrace2 uses an event's memory again for a later one of the same class: it takes many events until a text could be stale.
#[test]
fn an_empty_text_does_not_show_an_earlier_one() {
    let formats = [
        format("odd", "text", &[("char name[16]", 8, 16), ("__data_loc char[] more", 24, 4)]),
        format(
            "syscalls",
            "sys_enter_renameat",
            &[
                ("int __syscall_nr", 8, 4),
                ("int olddfd", 16, 8),
                ("const char * oldname", 24, 8),
                ("const char * newname", 32, 8),
            ],
        ),
    ];
    let given = [(&formats[0], 0), (&formats[1], 0b110)];
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    let writer = TraceWriter::create(&dir, Classes::new(|_| false, &given), info()).unwrap();
    let mut stream = writer.stream(CpuId(0), MonotonicNs(START)).unwrap();
    let mut random = Random(11);
    let mut expected = Vec::new();
    for number in 0..2_000 {
        let mut text = |what: &str| {
            if random.below(3) == 0 { String::new() } else { format!("{what}{number}") }
        };
        let (one, two) = (text("one"), text("two"));
        let which = number % 2;
        let mut record = vec![0; fixed_bytes(&formats[which])];
        if which == 0 {
            record[8..8 + one.len()].copy_from_slice(one.as_bytes());
            record[24..28].copy_from_slice(&((two.len() as u32 + 1) << 16 | 28).to_le_bytes());
            record.extend(two.bytes().chain([0]));
        }
        let class = writer.classes().tracepoint(which).unwrap();
        let time = MonotonicNs(START + 1000 * number as u64);
        let texts = [Some(one.as_bytes()), Some(two.as_bytes())];
        assert!(stream.tracepoint(class, time, &record, &texts).unwrap());
        let names = [("name", "more"), ("oldname", "newname")][which];
        expected.push(format!("{} = \"{one}\", {} = \"{two}\" }}", names.0, names.1));
    }
    let done = stream.finish(MonotonicNs(START + 2_000_000)).unwrap();
    // The twins of a class have the same name.
    let counts: Vec<(&str, u64)> = done.by_name.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!((counts, done.events), (vec![("syscall_entry_renameat", 1_000), ("text", 1_000)], 2_000));
    writer.finish(&Evidence::default(), &[done]).unwrap();
    let set = rtscope_ctf::TraceSet::open(&dir).unwrap();
    assert_eq!(set.event_count(&set.streams[0]), 8 + dump_classes(&set));
    let Some(text) = babeltrace2::text(&dir, &[]) else { return };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), expected.len());
    for (line, expected) in lines.iter().zip(&expected) {
        assert!(line.ends_with(expected), "{line}\n{expected}");
    }
}

fn dump_classes(set: &rtscope_ctf::TraceSet) -> usize {
    let stream = &set.streams[0];
    let names = (0..set.event_count(stream)).map(|event| set.event_name(stream, event));
    names.filter(|name| name.starts_with("lttng_statedump_")).count()
}

#[test]
fn more_classes_than_a_compact_header_holds_are_fine() {
    let formats: Vec<EventFormat> =
        (0..100).map(|number| format("many", &format!("event_{number}"), &[("int value", 8, 4)])).collect();
    let records = records(&formats, 5);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write(&dir, &formats, &records);
    let Some(counted) = events_counted(&dir) else { return };
    assert_eq!(counted, records.len() as u64 + 2);
    let text = babeltrace2::text(&dir, &["--clock-cycles"]).unwrap();
    let times = text.lines().filter_map(|line| line.get(1..21)?.parse::<u64>().ok()).skip(2);
    assert!(times.eq((0..records.len() as u64).map(|index| START + index * 1000)), "{text}");
}

/// A switch that ftrace recorded is the same event to our reader as one that we recorded.
#[test]
fn a_switch_of_ftrace_is_read_as_a_switch() {
    let fields = [
        ("char prev_comm[16]", 8, 16),
        ("pid_t prev_pid", 24, 4),
        ("int prev_prio", 28, 4),
        ("long prev_state", 32, 8),
        ("char next_comm[16]", 40, 16),
        ("pid_t next_pid", 56, 4),
        ("int next_prio", 60, 4),
    ];
    let formats = [format("sched", "sched_switch", &fields)];
    let mut record = vec![0; 64];
    record[8..13].copy_from_slice(b"motor");
    record[24..32].copy_from_slice(&[41, 0, 0, 0, 19, 0, 0, 0]);
    record[32] = 2;
    record[40..43].copy_from_slice(b"log");
    record[56..64].copy_from_slice(&[42, 0, 0, 0, 120, 0, 0, 0]);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write(&dir, &formats, &[(0, record)]);
    let trace = read_trace(&dir).unwrap();
    let EventKind::SchedSwitch { prev_tid, prev_prio, prev_state, preempt, next_tid, next_prio, .. } =
        trace.recording.events[0].kind
    else {
        panic!("{:?}", trace.recording.events)
    };
    assert_eq!((prev_tid, next_tid, prev_state, preempt), (Tid(41), Tid(42), TaskState(2), false));
    assert_eq!((prev_prio.0, next_prio.0), (19, 120));
    let named = trace.recording.names.comm(Tid(41), MonotonicNs(START)).unwrap();
    assert_eq!(named.to_string(), "motor");
}

/// Our own events and a tracepoint in one stream.
#[test]
fn both_recorders_share_a_stream() {
    let formats = [format("block", "block_rq_issue", &[("dev_t dev", 8, 4)])];
    let kind = EventKind::SoftirqRaise { vec: 3 };
    let class = kind.class();
    let classes = Classes::new(|own| own == class, &[(&formats[0], 0)]);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    let writer = TraceWriter::create(&dir, classes, info()).unwrap();
    let point = writer.classes().tracepoint(0).unwrap();
    let mut stream = writer.stream(CpuId(0), MonotonicNs(START)).unwrap();
    for number in 0..10 {
        let time = MonotonicNs(START + number * 1000);
        stream.event(&Event { time, cpu: CpuId(0), kind: kind.clone() }, &Names::default()).unwrap();
        assert!(stream.tracepoint(point, time, &[0; 12], &[]).unwrap());
        assert!(!stream.tracepoint(point, time, &[0; 11], &[]).unwrap());
        if number == 5 {
            stream.lost(7).unwrap();
        }
    }
    let done = stream.finish(MonotonicNs(START + 20_000)).unwrap();
    writer.finish(&Evidence::default(), &[done]).unwrap();
    let Some(output) = babeltrace2::run(&dir, &[]) else { return };
    let (text, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("block_rq_issue: ").count(), 10);
    assert_eq!(text.matches("irq_softirq_raise: ").count(), 10);
    assert!(complaints.contains("discarded 7 events"), "{complaints}");
    assert_eq!(complaints.matches("WARNING").count(), 1, "{complaints}");
}

/// All tracepoints that the running kernel has, three records of each.
// NEEDS: verifier
#[test]
fn root_every_tracepoint_of_this_kernel_is_printed_without_complaint() {
    let texts = tracepoints::of_this_kernel();
    if texts.is_empty() {
        skip!("tracefs cannot be read");
    }
    let parse = |(system, text): &(String, String)| EventFormat::parse(system, text).unwrap();
    let formats: Vec<EventFormat> = texts.iter().map(parse).collect();
    assert!(formats.len() > 100, "{}", formats.len());
    let records = records(&formats, 77);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    let done = write(&dir, &formats, &records);
    let events: u64 = done.iter().map(|stream| stream.events).sum();
    assert_eq!(events, records.len() as u64);
    if let Some(counted) = events_counted(&dir) {
        assert_eq!(counted, events + 2);
        println!("{} tracepoints, {counted} events", formats.len());
    }
}

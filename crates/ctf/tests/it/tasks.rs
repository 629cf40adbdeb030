// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that have only the number of their thread are found by the name that it had at that time; and selections that cannot match are
//! refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rtscope_ctf::{
    Classes, Comparison, Condition, Evidence, Selection, TaskNames, TaskSpans, TraceSet, TraceWriter, count,
};
use rtscope_event::{
    Comm, CpuId, Event, EventKind, MonotonicNs, Names, PatternList, Pid, Policy, Priority, TaskInfo, Tid,
};
use rtscope_ftrace::format::EventFormat;
use rtscope_testkit::recordings::{START, info};
use rtscope_testkit::tracepoints;
use std::path::Path;
use std::sync::Arc;

fn at(us: u64) -> MonotonicNs {
    MonotonicNs(START + 1000 * us)
}

/// Two CPUs. Thread 7 is `make` throughout; 8 is forked from it at 20, and is `cp` from 40 on; each opens a file every 10 us from 5 on.
fn make_trace(dir: &Path) {
    let format = EventFormat::parse(
        "syscalls",
        &tracepoints::description("sys_enter_openat", 7, &[("long flags", 8, 8)]),
    );
    let format = format.unwrap();
    let writer = TraceWriter::create(dir, Classes::new(|_| false, &[(&format, 0)]), info()).unwrap();
    let call = writer.classes().tracepoint(0).unwrap();
    let mut names = Names::default();
    names.add_task(TaskInfo {
        tid: Tid(7),
        pid: Pid(7),
        ppid: Pid(1),
        comm: Comm::from("make"),
        prio: Priority(120),
        policy: Policy(0),
        kthread: false,
    });
    let mut done = Vec::new();
    for (cpu, tid) in [(0, 7_u32), (1, 8)] {
        let mut stream = writer.stream(CpuId(cpu), at(0)).unwrap();
        let mut processes = Vec::new();
        if cpu == 0 {
            stream.dump(&names, |_| None, None).unwrap();
            let (parent, child) = ((Tid(7), Pid(7)), (Tid(8), Pid(8)));
            processes.push((
                20,
                EventKind::ProcessFork {
                    parent_tid: parent.0,
                    parent_pid: parent.1,
                    child_comm: Comm::from("make"),
                    child_tid: child.0,
                    child_pid: child.1,
                },
            ));
            processes.push((
                40,
                EventKind::TaskRename {
                    tid: child.0,
                    pid: child.1,
                    old_comm: Comm::from("make"),
                    new_comm: Comm::from("cp"),
                },
            ));
        }
        let mut processes = processes.into_iter().peekable();
        for us in (5..100).step_by(10) {
            while let Some((time, kind)) = processes.next_if(|(time, _)| *time < us) {
                let event = Event { time: at(time), cpu: CpuId(cpu), kind };
                stream.process(&event, &names).unwrap();
            }
            let mut record = vec![0; 16];
            record[4..8].copy_from_slice(&tid.to_le_bytes());
            if tid == 7 || us > 20 {
                assert!(stream.tracepoint(call, at(us), &record, &[]).unwrap());
            }
        }
        done.push(stream.finish(at(100)).unwrap());
    }
    // They are no events of the recording.
    assert_eq!(done.iter().map(|stream| stream.events).sum::<u64>(), 18);
    writer.finish(&Evidence::default(), &done).unwrap();
}

fn with_trace(test: impl FnOnce(&TraceSet)) {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("trace");
    make_trace(&dir);
    test(&TraceSet::open(&dir).unwrap());
}

fn counted(set: &TraceSet, selection: &Selection) -> u64 {
    count(set, selection, &|_| ()).streams.iter().flat_map(|stream| &stream.events).sum()
}

#[test]
fn threads_are_found_by_the_name_they_had_at_that_time() {
    with_trace(|set| {
        let names = TaskNames::of(set);
        for (pattern, expected) in [("make", 10 + 2), ("cp", 6), ("c?", 6), ("*", 18), ("ls", 0)] {
            let spans = Arc::new(TaskSpans::new(pattern, names.clone()));
            let selection = Selection {
                events: PatternList::new(["syscalls:sys_enter_*"]),
                conditions: vec![
                    Condition::any_of(&["comm"], Comparison::Like, pattern)
                        .or(Condition::any_task_of(&["tid"], spans)),
                ],
                ..Selection::default()
            };
            assert_eq!(counted(set, &selection), expected, "{pattern}");
        }
        let host = info().hostname;
        let found = |us: u64| {
            let time = i64::try_from(at(us).0 + info().realtime_offset_ns).unwrap();
            names.find(&host, 8, time).map(|name| (name.comm.to_string(), name.pid))
        };
        assert_eq!(found(30), Some(("make".to_owned(), Some(8))));
        assert_eq!(found(41), Some(("cp".to_owned(), Some(8))));
        assert!(names.find("another host", 8, 0).is_none() && names.find(&host, 9, 0).is_none());
    });
}

#[test]
fn what_cannot_match_is_refused_with_the_nearest_name() {
    with_trace(|set| {
        let check = |events: &[&str], condition: &str| {
            let conditions =
                if condition.is_empty() { Vec::new() } else { vec![Condition::parse(condition).unwrap()] };
            let events = PatternList::new(events);
            Selection { events, conditions, ..Selection::default() }.check(set)
        };
        for (events, condition) in [
            (&["syscall_entry_openat"][..], "flags == 0"),
            (&["syscalls"], "fields.flags != 1 && tid == 7"),
            (&[], "prio == rt 90 || prio < 5"),
            (&[], "prio =~ 'rt *'"),
            (&[], "name == make || flags =~ '1*'"),
        ] {
            assert_eq!(check(events, condition), Ok(Vec::new()), "{events:?} {condition}");
        }
        for (events, condition, word) in [
            (&["syscal_entry_openat"][..], "", "syscall_entry_openat"),
            (&["oms:order"], "", "no event oms:order"),
            (
                &["made_up_subsystem:lttng_statedump_proces_state"],
                "",
                "nearest name is lttng_statedump_process_state (",
            ),
            (&[], "flag == 1", "nearest name is flags"),
            (&["syscalls"], "prio < rt 5", "lttng_statedump_process_state has one"),
            (&[], "flags < 5ms", "flags is a number"),
            (&[], "flags == abc", "'abc' is not one"),
            (&[], "prio < 5ms", "rt 90, nice 5 or dl"),
        ] {
            let refused = check(events, condition).unwrap_err();
            assert!(refused.contains(word), "{events:?} {condition}: {refused}");
        }
        let notes = check(&["irq:softirq_entry"], "").unwrap();
        assert_eq!(notes, ["the trace has no event irq:softirq_entry"]);
        let cpu = Selection { cpus: Some([1, 7].into()), ..Selection::default() };
        assert_eq!(cpu.check(set).unwrap(), ["the trace has nothing of CPU 7; it has CPUs 0,1"]);
    });
}

#[test]
fn priorities_are_compared_as_people_say_them() {
    with_trace(|set| {
        // The only one is that of `make`: 120 - 100, as LTTng counts, nice 0.
        for (condition, expected) in [
            ("prio == 20", 1),
            ("prio == nice 0", 1),
            ("prio == 'nice 0'", 1),
            ("prio < rt 1", 1),
            ("prio >= nice 5", 1),
            ("prio > nice -5", 0),
            ("prio >= dl", 0),
            ("prio =~ 'nice *'", 1),
            ("prio =~ 'rt *'", 0),
        ] {
            let conditions = vec![Condition::parse(condition).unwrap()];
            let events = PatternList::new(["lttng_statedump_*"]);
            let selection = Selection { events, conditions, ..Selection::default() };
            assert_eq!(counted(set, &selection), expected, "{condition}");
        }
    });
}

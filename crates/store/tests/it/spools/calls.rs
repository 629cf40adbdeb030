// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls that eBPF recorded become the same events as those that ftrace records.

use super::maker::{
    BLOCK, Cpu, OPENAT, START, block, call, description, end, open, open_formats, opened, pages, path,
    softirq, write,
};
use super::{RecordingPaths, lines_and_complaints};
use rtscope_store::{ConversionSummary, Options, SpoolDescription, SyscallFormat, convert};
use std::fs;

const TID: u32 = 10;
const AT: u64 = START + 1_000;
/// So much later that no call can refer to a text any more.
const LATER: u64 = AT + 100_000_000;

/// For both recorders: paths that were read at once, one that was read late, and one that could not be read.
fn texts() -> Vec<u64> {
    let mut words = Vec::new();
    for number in 0..50 {
        let time = AT + number * 10_000;
        words.extend(path(time + 10, TID, 0x1000 + number, time, false, &format!("/path/{number}")));
    }
    words.extend(path(AT + 1_005_000, TID, 0x7777, AT + 1_000_000, true, "/late"));
    words
}

/// Entries and exits: time, and the pointer or the result.
fn calls() -> Vec<(u64, Result<u64, i64>)> {
    let mut calls = Vec::new();
    for number in 0..50 {
        let time = AT + number * 10_000;
        calls.extend([(time, Ok(0x1000 + number)), (time + 5_000, Err(3))]);
    }
    calls.extend([(AT + 1_000_000, Ok(0x7777)), (AT + 1_005_000, Err(4))]);
    calls.extend([(AT + 2_000_000, Ok(0)), (AT + 2_005_000, Err(-14))]);
    calls.extend([(AT + 3_000_000, Ok(0x8888)), (AT + 3_005_000, Err(-14))]);
    calls
}

fn by_ftrace() -> (SpoolDescription, Cpu) {
    let mut description = description();
    let mut events: Vec<(u64, Vec<u8>)> = calls()
        .into_iter()
        .map(|(time, what)| (time, what.map_or_else(|ret| opened(TID, ret), |pointer| open(TID, pointer))))
        .collect();
    events.push((LATER, block(TID, 7)));
    if let Some(ftrace) = &mut description.ftrace {
        ftrace.formats.extend(open_formats().into_iter().skip(1));
    }
    let bank = [texts(), softirq(LATER + 1, 3)].concat();
    (description, Cpu { chunks: vec![(0, bank)], pages: pages(&events, None) })
}

/// `with_block`: ftrace has an event, too.
fn by_ebpf(with_block: bool) -> (SpoolDescription, Cpu) {
    let mut description = description();
    let formats = open_formats();
    description.syscalls = formats.map(|format| SyscallFormat { number: OPENAT as u16, format }).to_vec();
    let ftrace = description.ftrace.as_mut().expect("it has one");
    ftrace.formats.retain(|format| format.text.contains(&format!("ID: {BLOCK}")));
    if !with_block {
        description.ftrace = None;
    }
    // A call, then the texts of its arguments.
    let mut bank = Vec::new();
    let mut texts = &texts()[..];
    for (time, what) in calls() {
        let (exit, values) = match what {
            Ok(pointer) => (false, vec![-100_i64 as u64, pointer]),
            Err(ret) => (true, vec![ret as u64]),
        };
        while texts.get(1).is_some_and(|text| *text < time) {
            let (first, rest) = texts.split_at((texts[0] & 0xff) as usize);
            bank.extend(first);
            texts = rest;
        }
        bank.extend(call(time, TID, OPENAT, exit, &values));
    }
    bank.extend(texts);
    bank.extend(softirq(LATER + 1, 3));
    let events = if with_block { vec![(LATER, block(TID, 7))] } else { Vec::new() };
    (description, Cpu { chunks: vec![(0, bank)], pages: pages(&events, None) })
}

fn converted((description, cpu): (SpoolDescription, Cpu)) -> (RecordingPaths, ConversionSummary) {
    let paths = RecordingPaths::new();
    let spool = write(&paths.target, &description, &[cpu, Cpu::default()], Some(&end())).unwrap();
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    (paths, converted)
}

#[test]
fn a_system_call_looks_the_same_whichever_recorder_it_came_from() {
    let (theirs, expected) = converted(by_ftrace());
    let (ours, found) = converted(by_ebpf(true));
    assert_eq!((expected.events, expected.without_text), (2 * 53 + 2, 1));
    assert_eq!(found.by_event, expected.by_event);
    assert_eq!((found.without_text, found.losses), (1, expected.losses));
    let (Some((expected, _)), Some((lines, complaints))) =
        (lines_and_complaints(&theirs.target), lines_and_complaints(&ours.target))
    else {
        return;
    };
    assert_eq!(lines, expected, "{complaints}");
    assert_eq!(lines.iter().filter(|line| line.contains("filename = \"/path/")).count(), 50);
    assert!(lines.iter().any(|line| line.contains("filename = \"/late\"")));
}

#[test]
fn system_calls_need_no_ftrace() {
    let (paths, found) = converted(by_ebpf(false));
    assert_eq!((found.events, found.without_text), (2 * 53 + 1, 1));
    let metadata = fs::read(paths.target.join("metadata")).unwrap();
    let metadata = String::from_utf8_lossy(&metadata);
    assert!(metadata.contains("syscall_exit_openat") && !metadata.contains("block_rq_issue"), "{metadata}");
}

#[test]
fn a_call_that_was_not_to_be_recorded_is_counted_as_unreadable() {
    let (description, mut cpu) = by_ebpf(false);
    let chunk = &mut cpu.chunks[0].1;
    for number in [OPENAT + 1, u32::MAX, 0] {
        chunk.extend(call(LATER + 2, TID, number, false, &[1, 2]));
    }
    // Fewer arguments than its tracepoint has fields.
    chunk.extend(call(LATER + 2, TID, OPENAT, false, &[]));
    let (_paths, found) = converted((description, cpu));
    assert_eq!(found.events, 2 * 53 + 1);
    let lost: Vec<_> = found.losses.iter().map(|loss| (loss.cause, loss.count)).collect();
    assert!(lost.contains(&(rtscope_event::LossCause::Unreadable, Some(4))), "{lost:?}");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches that a host hides: nobody counts them, and the recorded ones contradict each other.

use super::maker::{Cpu, START, description, end, ftrace, pages, switch, switched, write};
use super::{RecordingPaths, loss};
use rtscope_ctf::read_trace;
use rtscope_event::{CpuId, LossCause};
use rtscope_store::{ConversionSummary, Options, SpoolDescription, convert};

/// Thread 10 leaves for 11 and comes back, a thousand times; at some, nothing says that it left.
fn switches(hidden: impl Fn(u64) -> bool) -> Vec<Vec<u64>> {
    let pair = |number: u64| {
        let time = START + 1_000 + number * 20_000;
        let out = (!hidden(number)).then(|| switch(time, 10, 11));
        out.into_iter().chain([switch(time + 10_000, 11, 10)])
    };
    (0..1_000).flat_map(pair).collect()
}

fn converted(paths: &RecordingPaths, description: &SpoolDescription, cpus: &[Cpu]) -> ConversionSummary {
    let spool = write(&paths.target, description, cpus, Some(&end())).unwrap();
    convert(spool, &paths.target, &Options::default()).unwrap()
}

fn all_switches() -> SpoolDescription {
    SpoolDescription { has_all_switches: true, ..description() }
}

#[test]
fn switches_that_are_hidden_are_gaps_in_the_account_and_in_the_trace() {
    let paths = RecordingPaths::new();
    let cpu = |words: Vec<Vec<u64>>| Cpu { chunks: vec![(0, words.concat())], pages: Vec::new() };
    let cpus = [cpu(switches(|_| false)), cpu(switches(|number| number % 100 == 50))];
    let summary = converted(&paths, &all_switches(), &cpus);
    assert_eq!(summary.losses, [loss(1, LossCause::Gap, 10)]);
    let trace = read_trace(&paths.target).unwrap();
    assert_eq!(trace.recording.losses, summary.losses);
    assert!(trace.warnings.is_empty(), "{:?}", trace.warnings);
}

#[test]
fn where_records_are_lost_or_unreadable_no_switch_is_hidden_as_well() {
    let paths = RecordingPaths::new();
    let all = switches(|number| number == 700);
    // Behind the second chunk one is missing that was counted, behind the third one that is no record.
    let parts = [&all[..500], &all[500..700], &all[701..1_000], &all[1_001..]];
    let mut chunks: Vec<(u64, Vec<u64>)> = [0, 1, 1, 1].into_iter().zip(parts.map(<[_]>::concat)).collect();
    chunks[2].1.push(0xff);
    let cpus = [Cpu { chunks, pages: Vec::new() }];
    let summary = converted(&paths, &all_switches(), &cpus);
    let lost = |cause| summary.losses.iter().find(|loss| loss.cause == cause).and_then(|loss| loss.count);
    assert_eq!(lost(LossCause::Gap), Some(1), "{:?}", summary.losses);
    assert_eq!((lost(LossCause::Unreadable), lost(LossCause::BufferFull)), (Some(1), Some(1)));
}

#[test]
fn switches_of_ftrace_follow_each_other_unless_only_some_are_recorded() {
    let description = || {
        let mut description = all_switches();
        (description.ebpf, description.ftrace) = (false, Some(ftrace()));
        description.cpus = vec![CpuId(0)];
        description
    };
    let events: Vec<(u64, Vec<u8>)> = (0..1_000_u64)
        .flat_map(|number| {
            let time = START + 1_000 + number * 20_000;
            let out = (number != 500).then(|| (time, switched(10, 11)));
            out.into_iter().chain([(time + 10_000, switched(11, 10))])
        })
        .collect();
    let of = |pages: Vec<u8>| [Cpu { chunks: Vec::new(), pages }];
    let paths = RecordingPaths::new();
    assert_eq!(
        converted(&paths, &description(), &of(pages(&events, None))).losses,
        [loss(0, LossCause::Gap, 1)]
    );
    // One is missing that is counted.
    let paths = RecordingPaths::new();
    let parts = [pages(&events[..600], None), pages(&events[601..], Some((0, 1)))];
    let summary = converted(&paths, &description(), &of(parts.concat()));
    assert_eq!(summary.losses, [loss(0, LossCause::Gap, 1), loss(0, LossCause::Overrun, 1)]);
    let paths = RecordingPaths::new();
    let some = SpoolDescription { has_all_switches: false, ..description() };
    assert_eq!(converted(&paths, &some, &of(pages(&events, None))).losses, []);
}

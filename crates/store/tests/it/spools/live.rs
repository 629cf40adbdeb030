// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spools that are converted while they grow.

use super::maker::{START, block, description, fork, open, pages, path, softirq, switch};
use super::{RecordingPaths, lines_and_complaints};
use rtscope_ctf::{FileRing, RingTrace, read_trace};
use rtscope_event::{CpuId, MonotonicNs};
use rtscope_store::spool::{BankWriter, SpoolWriter};
use rtscope_store::{
    AHEAD_NS, End, LaneExtent, LaneFiles, LiveConversion, Options, Spool, SpoolDescription, SpoolShare,
    convert,
};
use rtscope_testkit::random::Random;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ROUND_NS: u64 = 1_000_000;
const ROUNDS: u64 = 3_000;
const CPUS: u64 = 2;
/// Events of the trace in a round of a CPU.
const EVENTS: u64 = 5;
/// Makes a task that runs on the other CPU at once.
const FORK_AT: u64 = 1_500;

/// What one CPU records in a round: records of eBPF, and events of ftrace.
fn round(cpu: u64, number: u64) -> (Vec<u64>, Vec<(u64, Vec<u8>)>) {
    let time = START + 1_000 + number * ROUND_NS + cpu;
    let pointer = 0x7000 + number + (cpu << 20);
    // A nested program's record stands before that of the one it interrupted.
    let mut words = softirq(time + 3_000, 3);
    if cpu == 1 && number == FORK_AT {
        words.extend(fork(time, 10, 500, "child"));
    }
    words.extend(switch(time + 2_000, 10, if number < FORK_AT { 11 } else { 500 }));
    words.extend(switch(time + 20_000, 11, 10));
    match number % 4 {
        0 => words.extend(path(time + 10_050, 11, pointer, time + 10_050, false, &format!("/path/{number}"))),
        // On the other CPU, when the call was over.
        1 if number > 100 => {
            let before = number - 100;
            let pointer = 0x7000 + before + ((1 - cpu) << 20);
            let entered = START + 1_000 + before * ROUND_NS + (1 - cpu) + 10_000;
            words.extend(path(time + 30_000, 11, pointer, entered, true, &format!("/late/{before}")));
        }
        _ => {}
    }
    (words, vec![(time + 10_000, open(11, pointer)), (time + 30_000, block(10, number as u32))])
}

/// Writes what a CPU records, bit by bit.
struct Recorder {
    cpu: u64,
    bank: BankWriter,
    pages: Arc<File>,
    extent: LaneExtent,
    next: u64,
}

impl Recorder {
    fn new(spool: &SpoolWriter, cpu: u64) -> Recorder {
        let id = CpuId(cpu as u32);
        let (bank, pages) = (spool.bank(id).unwrap(), spool.pages(id).unwrap());
        Recorder { cpu, bank, pages, extent: LaneExtent::default(), next: 0 }
    }

    fn files(&self) -> (CpuId, LaneFiles) {
        (
            CpuId(self.cpu as u32),
            LaneFiles { bank: Some(self.bank.file()), pages: Some(Arc::clone(&self.pages)) },
        )
    }

    fn record(&mut self, rounds: u64) {
        let (mut words, mut events) = (Vec::new(), Vec::new());
        for number in self.next..(self.next + rounds).min(ROUNDS) {
            let (records, of_ftrace) = round(self.cpu, number);
            words.extend(records);
            events.extend(of_ftrace);
            self.next = number + 1;
        }
        let time = MonotonicNs(START + self.next * ROUND_NS);
        let lost = u64::from(self.next > ROUNDS / 2);
        self.bank.chunk(time, lost, &words).unwrap();
        let sub_buffers = pages(&events, None);
        (&*self.pages).write_all(&sub_buffers).unwrap();
        self.extent = LaneExtent {
            bank_bytes: self.bank.bytes(),
            pages_bytes: self.extent.pages_bytes + sub_buffers.len() as u64,
            complete_until: time,
        };
    }
}

fn end() -> End {
    End { ended: MonotonicNs(START + (ROUNDS + 1) * ROUND_NS), ..End::default() }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Records in pieces of random sizes, and converts after each. `look` sees the trace in between.
fn record_and_convert(paths: &RecordingPaths, seed: u64, look: impl FnMut(&Path, u64)) -> LiveConversion {
    record_limited(paths, seed, None, look)
}

/// The same with a limit for the trace's size.
fn record_limited(
    paths: &RecordingPaths,
    seed: u64,
    ring: Option<RingTrace>,
    mut look: impl FnMut(&Path, u64),
) -> LiveConversion {
    let description = || SpoolDescription { is_ring: ring.is_some(), ..description() };
    let spool = SpoolWriter::create(&paths.target, &description()).unwrap();
    let mut recorders: Vec<Recorder> = (0..CPUS).map(|cpu| Recorder::new(&spool, cpu)).collect();
    let files: Vec<_> = recorders.iter().map(Recorder::files).collect();
    let mut live = LiveConversion::new(spool.place(), description(), &files, &[], ring.clone()).unwrap();
    let mut random = Random(seed);
    while recorders.iter().any(|recorder| recorder.next < ROUNDS) {
        for recorder in &mut recorders {
            recorder.record(random.below(100));
        }
        let extents: Vec<LaneExtent> = recorders.iter().map(|recorder| recorder.extent).collect();
        let cancel = AtomicBool::new(random.below(4) == 0);
        let options = Options { cancel: Some(&cancel), ..Options::default() };
        if !live.advance(&extents, SpoolShare::Little, &options).unwrap() {
            // It was interrupted, and goes on.
            cancel.store(false, Ordering::Relaxed);
            assert!(live.advance(&extents, SpoolShare::Little, &options).unwrap());
        }
        let complete = extents.iter().map(|extent| extent.complete_until.0).min().unwrap();
        assert_eq!(live.until().0, complete.saturating_sub(AHEAD_NS).max(START));
        live.free().unwrap();
        look(&paths.partial.join("trace"), live.until().0);
    }
    spool.finish(&end()).unwrap();
    live
}

#[test]
fn what_is_converted_while_it_grows_is_what_is_converted_at_once() {
    for seed in 1..4 {
        let paths = RecordingPaths::new();
        let mut looks = 0;
        let live = record_and_convert(&paths, seed, |trace, until| {
            let rounds = (until - START) / ROUND_NS;
            if rounds == 0 {
                return;
            }
            // All events up to that time are there.
            let events = read_trace(trace).unwrap().recording.events.len() as u64;
            let own = (EVENTS - 2) * CPUS;
            assert!(
                (rounds * own - own..=(rounds + 1) * own).contains(&events),
                "{events} after {rounds} rounds"
            );
            looks += 1;
            if looks % 10 == 0 {
                let Some((lines, complaints)) = lines_and_complaints(trace) else { return };
                assert!(lines.len() as u64 >= (rounds - 1) * EVENTS * CPUS, "{}", lines.len());
                let others: Vec<&str> =
                    complaints.lines().filter(|line| !line.contains("discarded")).collect();
                assert!(others.is_empty(), "{complaints}");
            }
        });
        assert!(looks > 20, "{looks}");
        let at_once = RecordingPaths::new();
        copy(&paths.partial, &at_once.partial);
        let whole =
            convert(Spool::open(&at_once.partial).unwrap(), &at_once.target, &Options::default()).unwrap();
        let live = live.finish(Spool::open(&paths.partial).unwrap(), &Options::default()).unwrap();
        assert_eq!(live.events, ROUNDS * EVENTS * CPUS);
        assert_eq!(
            (live.events, &live.by_event, &live.losses),
            (whole.events, &whole.by_event, &whole.losses)
        );
        assert_eq!((live.moved, live.early, live.without_text), (0, 0, whole.without_text));
        assert!(!paths.partial.exists());
        let of = |trace: &Path| read_trace(trace).unwrap().recording;
        let (live, whole) = (of(&paths.target), of(&at_once.target));
        assert_eq!(
            (&live.events, &live.losses, &live.history),
            (&whole.events, &whole.losses, &whole.history)
        );
        let Some((lines, _)) = lines_and_complaints(&paths.target) else { return };
        let Some((expected, _)) = lines_and_complaints(&at_once.target) else { return };
        assert_eq!(lines, expected);
        let with = |text: &str| lines.iter().filter(|line| line.contains(text)).count() as u64;
        assert_eq!(with("\"/path/"), ROUNDS / 4 * CPUS);
        assert!(with("\"/late/") > ROUNDS / 5 * CPUS, "{}", with("\"/late/"));
        assert_eq!(with("next_comm = \"child\""), (ROUNDS - FORK_AT) * CPUS);
    }
}

#[test]
fn a_conversion_that_is_given_up_leaves_the_spool() {
    let paths = RecordingPaths::new();
    let live = record_and_convert(&paths, 7, |_, _| {});
    assert!(paths.partial.join("trace/metadata").exists());
    live.abandon();
    assert!(!paths.partial.join("trace").exists());
    let spool = Spool::open(&paths.partial).unwrap();
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    assert_eq!(converted.events, ROUNDS * EVENTS * CPUS);
}

#[test]
fn a_recorder_that_was_killed_leaves_a_trace_that_is_replaced() {
    let paths = RecordingPaths::new();
    drop(record_and_convert(&paths, 8, |_, _| {}));
    fs::remove_file(paths.partial.join("end.json")).unwrap();
    let before = read_trace(&paths.partial.join("trace")).unwrap().recording.events.len() as u64;
    assert!(before > ROUNDS * CPUS, "{before}");
    let converted =
        convert(Spool::open(&paths.partial).unwrap(), &paths.target, &Options::default()).unwrap();
    assert!(converted.interrupted);
    assert_eq!(converted.events, ROUNDS * EVENTS * CPUS);
}

/// A directory above that belongs to somebody else: its owner can put a link in the place of the spool's directory.
#[test]
fn a_link_in_the_place_of_a_spool_leads_nowhere() {
    let paths = RecordingPaths::new();
    let live = record_and_convert(&paths, 9, |_, _| {});
    let spool = Spool::open(&paths.partial).unwrap();
    let moved = paths.partial.with_file_name("moved");
    let victim = tempfile::tempdir().unwrap();
    fs::create_dir_all(victim.path().join("trace/important")).unwrap();
    fs::rename(&paths.partial, &moved).unwrap();
    std::os::unix::fs::symlink(victim.path(), &paths.partial).unwrap();
    // The conversion fails at its end, and removes what it has made.
    fs::create_dir(&paths.target).unwrap();
    fs::write(paths.target.join("x"), "").unwrap();
    live.finish(spool, &Options::default()).unwrap_err();
    assert!(victim.path().join("trace/important").is_dir());
    assert!(!moved.join("trace").exists() && moved.join("end.json").exists());
}

/// An idle CPU has no events for a long time, and whoever converts may be set aside between two looks.
#[test]
fn a_cpu_that_is_far_ahead_of_the_others_loses_nothing() {
    const LATER: u64 = START + 20_000_000_000;
    let paths = RecordingPaths::new();
    let spool = SpoolWriter::create(&paths.target, &description()).unwrap();
    let mut recorders: Vec<Recorder> = (0..CPUS).map(|cpu| Recorder::new(&spool, cpu)).collect();
    let files: Vec<_> = recorders.iter().map(Recorder::files).collect();
    let mut live = LiveConversion::new(spool.place(), description(), &files, &[], None).unwrap();
    let ahead = &mut recorders[1];
    ahead.bank.chunk(MonotonicNs(LATER + 10), 0, &switch(LATER, 10, 11)).unwrap();
    let sub_buffers = pages(&[(LATER + 1, block(10, 1)), (LATER + 2, block(10, 2))], None);
    (&*ahead.pages).write_all(&sub_buffers).unwrap();
    let (bank_bytes, pages_bytes) = (ahead.bank.bytes(), sub_buffers.len() as u64);
    ahead.extent = LaneExtent { bank_bytes, pages_bytes, complete_until: MonotonicNs(LATER + 10) };
    for complete in [START + 1_000_000_000, LATER + 10] {
        recorders[0].extent.complete_until = MonotonicNs(complete);
        let extents: Vec<LaneExtent> = recorders.iter().map(|recorder| recorder.extent).collect();
        assert!(live.advance(&extents, SpoolShare::Little, &Options::default()).unwrap());
    }
    spool.finish(&End { ended: MonotonicNs(LATER + 20), ..End::default() }).unwrap();
    let converted = live.finish(Spool::open(&paths.partial).unwrap(), &Options::default()).unwrap();
    assert_eq!((converted.events, converted.losses), (3, Vec::new()));
}

/// By CPU, the events without those of state dumps, and without the time since the event before.
fn by_cpu(lines: &[String]) -> Vec<Vec<String>> {
    let of = |cpu: u64| {
        let own = format!("cpu_id = {cpu} ");
        let lines = lines.iter().filter(|line| line.contains(&own) && !line.contains("lttng_statedump_"));
        let text = |line: &String| {
            let (time, rest) = line.split_once(" (").unwrap();
            format!("{time} {}", rest.split_once(") ").unwrap().1)
        };
        lines.map(text).collect()
    };
    (0..CPUS).map(of).collect()
}

/// What is left of a limited trace is, event for event, the end of what is in one without a limit; the spool is freed behind it, and a
/// task that was made in between has its name in the state that is written again.
#[test]
fn a_limited_conversion_keeps_the_newest_events_and_frees_its_spool() {
    const LIMIT: u64 = 256 << 10;
    let ring = FileRing::new(LIMIT, 8, CPUS).unwrap();
    let paths = RecordingPaths::new();
    let mut most_of_spool = 0;
    let blocks = |path: &Path| {
        let files =
            fs::read_dir(path).into_iter().flatten().flatten().filter_map(|file| file.metadata().ok());
        files.filter(|file| file.is_file()).map(|file| file.blocks() * 512).sum::<u64>()
    };
    let live = record_limited(&paths, 5, Some(ring.trace()), |trace, until| {
        assert!(blocks(trace) <= LIMIT);
        if until > START + ROUNDS * ROUND_NS / 2 {
            most_of_spool = most_of_spool.max(blocks(&paths.partial));
        }
    });
    let limited = live.finish(Spool::open(&paths.partial).unwrap(), &Options::default()).unwrap();
    let overwritten = limited.overwritten.unwrap();
    assert!(overwritten.events > ROUNDS * EVENTS && blocks(&paths.target) > LIMIT / 2);
    assert_eq!(limited.events + overwritten.events, ROUNDS * EVENTS * CPUS);
    let whole = RecordingPaths::new();
    let unlimited = record_and_convert(&whole, 5, |_, _| {});
    let spool = blocks(&whole.partial);
    assert!(most_of_spool < spool * 2 / 3, "{most_of_spool} bytes of {spool} were held");
    unlimited.finish(Spool::open(&whole.partial).unwrap(), &Options::default()).unwrap();
    let Some((lines, complaints)) = lines_and_complaints(&paths.target) else { return };
    assert!(complaints.lines().all(|line| line.contains("discarded")), "{complaints}");
    let state = lines.iter().filter(|line| line.contains("lttng_statedump_process_state"));
    assert!(state.into_iter().any(|line| line.contains("\"child\"")), "the state is that of the beginning");
    let Some((reference, _)) = lines_and_complaints(&whole.target) else { return };
    for (left, all) in by_cpu(&lines).into_iter().zip(by_cpu(&reference)) {
        assert!(left.len() > 100 && all.ends_with(&left));
    }
}

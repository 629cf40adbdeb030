// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of Arm's units in a recording of perf: on its clock where the recording tells how, and of no thread where it does not.

use super::one_trace::{Line, lines};
use rtscope_event::LossCause;
use rtscope_hardware::decode::{Settings, Unit, open};
use rtscope_hardware::etm::v4;
use rtscope_hardware::perfdata::encode::PerfEncoder;
use rtscope_hardware::perfdata::{EventAttribute, SampleId};
use rtscope_hardware::pt::PerfClock;
use rtscope_hardware::spe::{AddressKind, CounterKind, Encoder};
use std::fs;
use std::process::Command;

/// A counter of 100 MHz, which began 7 us before perf's clock.
const COUNTER: PerfClock = PerfClock { shift: 10, mult: 10 << 10, zero: 7_000 };
/// The same without its zero.
const COUNTER_HZ: u64 = 100_000_000;
const SPE: u32 = 4;
const CS_ETM: u32 = 3;
const PMU: u32 = 9;
/// What was recorded of the CPU is in frames, if this is not said of it.
const FORMAT_RAW: u64 = 1 << 8;

fn id(time: u64, tid: u32) -> SampleId {
    SampleId { pid: Some(tid - 1), tid: Some(tid), time: Some(time), cpu: Some(1), id: Some(7) }
}

/// A recording of CPU 1, where thread 41 comes at 8 us and thread 51 at 9 us.
fn recording((kind, words): (u32, &[u64]), clock: Option<&PerfClock>, stream: &[u8]) -> Vec<u8> {
    let event = EventAttribute {
        pmu: PMU,
        // IP, TID, TIME, CPU, IDENTIFIER.
        sample_type: 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16,
        sample_id_all: true,
        ids: vec![7],
        ..EventAttribute::default()
    };
    let mut encoder = PerfEncoder::new(vec![event]);
    clock.map(|clock| encoder.time_conversion(clock));
    encoder.auxtrace_info(kind, words);
    encoder.switch(false, (0, 0), &id(8_000, 41)).switch(false, (40, 41), &id(9_000, 51));
    encoder.lost(3, &id(9_900, 51));
    encoder.aux(0, stream.len() as u64, FORMAT_RAW, &id(9_900, 51));
    encoder.auxtrace(stream, 0, (0, None, Some(1))).finished_round();
    encoder.file()
}

/// A sample in each thread's time.
fn spe_stream() -> Vec<u8> {
    let mut encoder = Encoder::new();
    for (address, ticks) in [(0x40_1000, 110), (0x40_1010, 250)] {
        encoder.address(AddressKind::Instruction, address).counter(CounterKind::Total, 12).timestamp(ticks);
    }
    let mut stream = encoder.finish();
    stream.resize(stream.len().next_multiple_of(8), 0);
    stream
}

fn read(file: &[u8], clock_hz: Option<u64>) -> (Vec<Line>, Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    fs::write(&path, file).unwrap();
    let settings = Settings { clock_hz, ..Settings::default() };
    let capture = open(&path, &settings).unwrap();
    let of_losses: Vec<_> = capture.losses.iter().map(|event| event.time_ns).collect();
    let on_perfs_clock = capture.clock == "perf's clock";
    assert_eq!(of_losses, [on_perfs_clock.then_some(9_900)], "{}", capture.clock);
    (lines(&path, &settings).0, capture.notes, capture.clock)
}

fn said(expected: &[(i64, &str)]) -> Vec<Line> {
    expected.iter().map(|(time, line)| (*time, (*line).to_owned())).collect()
}

#[test]
fn samples_of_spe_are_on_the_recordings_clock_and_of_the_thread_that_ran() {
    let stream = spe_stream();
    let unit = (SPE, &[u64::from(PMU), 0][..]);
    let expected = said(&[
        (8_100, "sample cpu_id=1 vpid=40 vtid=41 address=0x401000 symbol=12 cycles"),
        (9_500, "sample cpu_id=1 vpid=50 vtid=51 address=0x401010 symbol=12 cycles"),
    ]);
    for clock_hz in [None, Some(1)] {
        let (lines, notes, _) = read(&recording(unit, Some(&COUNTER), &stream), clock_hz);
        assert_eq!((lines, notes), (expected.clone(), Vec::new()), "{clock_hz:?}");
    }
    // By the unit's own clock nobody knows who ran.
    let (lines, notes, clock) = read(&recording(unit, None, &stream), Some(COUNTER_HZ));
    let nobodys = said(&[
        (1_100, "sample cpu_id=1 address=0x401000 symbol=12 cycles"),
        (2_500, "sample cpu_id=1 address=0x401010 symbol=12 cycles"),
    ]);
    assert_eq!((lines, clock.as_str()), (nobodys, "the unit's counter"));
    assert!(notes.iter().any(|note| note.contains("of no thread")), "{notes:?}");
}

#[test]
fn the_installed_perf_puts_samples_of_spe_at_the_same_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    let unit = (SPE, &[u64::from(PMU), 0][..]);
    fs::write(&path, recording(unit, Some(&COUNTER), &spe_stream())).unwrap();
    let script = Command::new("perf")
        .args(["script", "--ns", "--itrace=i1i", "-F", "time,ip", "-i"])
        .arg(&path)
        .output();
    let Some(script) = script.ok().filter(|script| script.status.success()) else {
        rtscope_testkit::skip!("perf is not installed, or does not decode SPE");
    };
    let text = String::from_utf8_lossy(&script.stdout).into_owned();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [["0.000008100:", "401000"], ["0.000009500:", "401010"]], "{text}");
}

#[test]
fn times_of_an_etm_are_on_the_recordings_clock_where_its_driver_says_which_counter_it_takes() {
    const MAGIC: u64 = 0x4040_4040_4040_4040;
    let config = v4::Config::default();
    let mut encoder = v4::Encoder::new(&config);
    encoder.synchronise(v4::TraceInfo::default());
    encoder.trace_on();
    let context = v4::Context { level: 1, is_64_bit: true, ..v4::Context::default() };
    for ticks in [110, 250] {
        encoder.address_context(0x40_1000, false, &context);
        encoder.exception(6, false);
        encoder.address(0x40_1004, false);
        encoder.timestamp(ticks, None);
    }
    let mut stream = encoder.finish();
    stream.resize(stream.len().next_multiple_of(8), 0);
    let words = |source: Option<u64>| {
        let registers = [config.configr, 0x10, config.idr0, config.idr1, config.idr2, config.idr8, 0];
        let mut words = vec![1, u64::from(PMU) << 32 | 1, 0, MAGIC, 1];
        words.push(registers.len() as u64 + source.iter().len() as u64);
        words.extend(registers.map(u64::from));
        words.extend(source);
        words
    };
    let exceptions = |(lines, _, clock): (Vec<Line>, Vec<String>, String)| {
        let of = |(time, line): &Line| (*time, line.contains("vtid=41"), line.contains("vtid=51"));
        let lines: Vec<_> = lines.iter().filter(|(_, line)| line.starts_with("exception")).map(of).collect();
        (lines, clock)
    };
    // 1 is the counter that programs read, 0 an unknown one, and older versions of perf say nothing.
    let (lines, _) = exceptions(read(&recording((CS_ETM, &words(Some(1))), Some(&COUNTER), &stream), None));
    assert_eq!(lines, [(8_100, true, false), (9_500, false, true)]);
    for source in [Some(0), None] {
        let words = words(source);
        let file = recording((CS_ETM, &words), Some(&COUNTER), &stream);
        let (lines, clock) = exceptions(read(&file, Some(COUNTER_HZ)));
        assert_eq!(lines, [(1_100, false, false), (2_500, false, false)]);
        assert_eq!(clock, "the unit's counter");
    }
}

#[test]
fn records_of_spe_that_are_not_complete_are_losses() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spe.bin");
    let mut encoder = Encoder::new();
    encoder.address(AddressKind::Instruction, 0x40_1000).timestamp(100);
    // No packet begins so.
    encoder.address(AddressKind::Instruction, 0x40_2000).raw(&[0xff]).timestamp(200);
    // It has no address, which is not 0.
    encoder.counter(CounterKind::Total, 5).timestamp(300);
    encoder.address(AddressKind::Instruction, 0x40_3000);
    fs::write(&file, encoder.finish()).unwrap();
    let settings = Settings { unit: Some(Unit::Spe), clock_hz: Some(1_000_000_000), ..Settings::default() };
    let (lines, losses) = lines(&file, &settings);
    let lost = "lost bytes=0 cause=a record that is not complete";
    let expected = said(&[
        (100, "sample address=0x401000 symbol="),
        (100, "lost bytes=1 cause=unreadable bytes"),
        (100, lost),
        (300, "sample address=0xffffffffffffffff symbol=5 cycles"),
        (300, lost),
    ]);
    assert_eq!(lines, expected);
    assert_eq!(losses, [LossCause::Unreadable; 3]);
}

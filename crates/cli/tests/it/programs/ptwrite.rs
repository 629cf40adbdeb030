// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that go to PTWRITE (ADR 0032). No machine here has the instruction: the program executes it, and its signal handler does what it would do
//! (`testkit/c/ptwrite.c`). What it wrote is made a stream of Intel PT by our encoder, and decoded. That has to be what the same program leaves in
//! its rings, event by event.

use super::channels::{printed, sorted, text};
use super::fixture::{Fixture, Recorded};
use crate::command::rtscope;
use rtscope_hardware::pt::encode::{packet, shortest_ip};
use rtscope_hardware::pt::{ExecMode, Packet};
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// An operand, and who wrote it.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: u64,
    tid: u32,
}

/// What is between operands in a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Surroundings {
    /// Each has the address of its instruction.
    fup: bool,
    /// An overflow at every so many of them: that one and the next are missing.
    overflow_every: Option<usize>,
}

/// A recording of a program that believes to have the instruction.
struct Recording {
    fixture: Fixture,
    recorded: Recorded,
    written: Vec<Written>,
}

impl Recording {
    fn of(backends: &[&str], what: &[&str]) -> Recording {
        let fixture = Fixture::new();
        let operands = fixture.path("operands").display().to_string();
        let emitter = program("rtscope-ptwrite").expect("it is built").display().to_string();
        let backends: Vec<&str> = backends.iter().flat_map(|backend| ["--backend", backend]).collect();
        let recorded = fixture.record(&backends, &[&[emitter.as_str(), &operands], what].concat());
        let bytes = fs::read(operands).unwrap_or_default();
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let one = |bytes: &[u8]| Written { value: word(&bytes[..8]), tid: word(&bytes[12..]) as u32 };
        let written = bytes.chunks_exact(16).map(one).collect();
        Recording { fixture, recorded, written }
    }

    /// The events of a stream, and what the decoder says.
    fn decoded(&self, stream: &[u8], options: &[&str]) -> (Vec<String>, Value) {
        let (file, target) = (self.fixture.path("stream"), self.fixture.path("decoded"));
        fs::write(&file, stream).expect("ours");
        let _ = fs::remove_dir_all(&target);
        let output = rtscope()
            .args(["hardware", "decode", "--unit", "pt", "--json", "-o"])
            .arg(&target)
            .arg("--programs")
            .arg(self.fixture.trace())
            .args(options)
            .arg(file)
            .output();
        let output = output.expect("it can be started");
        assert!(output.status.success(), "{}", text(&output));
        let report = serde_json::from_slice(&output.stdout).expect("it prints one object");
        (printed(&target), report)
    }

    fn emitted(&self) -> u64 {
        self.recorded.printed("emitted ")
    }
}

/// As a processor writes it that traces user space, with times.
fn stream(written: &[Written], surroundings: Surroundings) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last_ip = 0;
    let address = 0x55d0_1234_5678;
    for (at, Written { value, tid }) in written.iter().enumerate() {
        let put = |one: Packet, bytes: &mut Vec<u8>| packet(one, bytes);
        if at % 300 == 0 {
            last_ip = 0;
            for one in [
                Packet::Psb,
                Packet::Pip { cr3: 0x1000 * u64::from(*tid), non_root: false },
                Packet::Tsc { ticks: at as u64 * 100 },
                Packet::ModeExec { mode: ExecMode::Bits64, interrupts_enabled: true },
                Packet::Cbr { ratio: 30 },
                Packet::PsbEnd,
            ] {
                put(one, &mut bytes);
            }
        }
        // Not at the ends, where nothing says how much is missing.
        if let Some(every) = surroundings.overflow_every.filter(|_| (200..written.len() - 200).contains(&at))
        {
            match at % every {
                0 => {
                    put(Packet::Ovf, &mut bytes);
                    continue;
                }
                1 => continue,
                _ => {}
            }
        }
        put(Packet::Mtc { ctc: at as u8 }, &mut bytes);
        put(Packet::Ptw { payload: *value, wide: true, ip: surroundings.fup }, &mut bytes);
        if surroundings.fup {
            put(Packet::Fup(shortest_ip(address, last_ip)), &mut bytes);
            last_ip = address;
        }
    }
    bytes
}

/// Whether programs here can be made to believe that they have it.
fn can_emulate() -> bool {
    if !cfg!(target_arch = "x86_64") {
        skip::say("PTWRITE is an instruction of x86-64");
        return false;
    }
    // Where a hypervisor hides it, CPUID does not tell: the instruction is executed.
    let status = Command::new(program("rtscope-ptwrite").expect("it is built")).status();
    let has = status.expect("it can be started").success();
    if has {
        skip::say("this processor has PTWRITE, so it is not emulated");
    }
    !has
}

#[test]
fn events_through_ptwrite_are_those_of_the_ring() {
    if !can_emulate() {
        return;
    }
    for what in
        [&["1", "100"][..], &["20", "60"], &["3", "20", "fork"], &["1", "70", "rust"], &["1", "40", "faults"]]
    {
        let hardware = Recording::of(&["ptwrite"], what);
        let output = &hardware.recorded.output;
        assert_eq!((hardware.recorded.events(), hardware.recorded.lost()), (0, 0), "{output:?}");
        let decodings = [false, true].map(|fup| {
            let stream = stream(&hardware.written, Surroundings { fup, ..Surroundings::default() });
            hardware.decoded(&stream, &["--fail-if-lost"])
        });
        let (emitted, switches) = (hardware.emitted(), switches(&hardware.written));
        println!(
            "{what:?}: {emitted} events, {} words, {switches} threads kept within a message",
            hardware.written.len()
        );
        assert!(what[0] != "20" || switches > 0, "no thread came between the words of another");
        drop(hardware);
        let ring = Recording::of(&[], what);
        assert_eq!((ring.recorded.lost(), ring.written.len()), (0, 0), "{what:?}");
        let recorded = sorted(printed(&ring.fixture.trace()));
        for (decoded, report) in decodings {
            let notes = report["notes"].as_array().map(Vec::len);
            assert_eq!((decoded.len() as u64, notes), (emitted, Some(0)), "{what:?}: {report}");
            assert_eq!(sorted(decoded), recorded, "{what:?}");
        }
    }
}

/// How often a word is followed by one of another thread that goes on with its message.
fn switches(written: &[Written]) -> usize {
    written.windows(2).filter(|two| two[0].tid != two[1].tid && two[1].value >> 63 == 0).count()
}

/// How many messages began within others of their thread, from how many words each has.
fn nested(written: &[Written]) -> usize {
    let mut open: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut nested = 0;
    for Written { value, tid } in written {
        let stack = open.entry(*tid).or_default();
        if value >> 63 == 1 {
            nested += usize::from(!stack.is_empty());
            // Not known yet.
            stack.push(0);
            continue;
        }
        let left = stack.last_mut().expect("a message has begun");
        let is_first = *left == 0;
        *left = if is_first { (value >> 24 & 0x3ff) * 4 / 3 } else { *left - 1 };
        if *left == 0 {
            stack.pop();
        }
    }
    nested
}

#[test]
fn a_handlers_events_within_those_that_it_interrupts_come_through_ptwrite() {
    if !can_emulate() {
        return;
    }
    let recording = Recording::of(&["ptwrite"], &["1", "400", "timer"]);
    let nested = nested(&recording.written);
    assert!(nested > 0, "no handler came into a message");
    let (decoded, report) =
        recording.decoded(&stream(&recording.written, Surroundings::default()), &["--fail-if-lost"]);
    println!("{} events, {nested} messages within others", decoded.len());
    assert_eq!((decoded.len() as u64, recording.recorded.lost()), (recording.emitted(), 0), "{report}");
    // Each with what it had to say.
    for name in ["test:many", "test:tick", "test:inner"] {
        let of_name = decoded.iter().filter(|event| event.starts_with(&format!("{name}:")));
        let number = |event: &String| {
            let rest = event.split_once("number = ").unwrap_or_else(|| panic!("{event}")).1;
            rest.split([',', ' ']).next().and_then(|number| number.parse::<usize>().ok()).expect("a number")
        };
        let mut numbers: Vec<usize> = of_name.map(number).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().enumerate().all(|(place, number)| place == *number), "{name}: {numbers:?}");
        assert!(name == "test:inner" || numbers.len() == 400, "{name}: {}", numbers.len());
    }
}

/// The processor drops packets, and says so. What is left is what was written, and the rest is counted.
#[test]
fn overflows_take_the_events_in_them_from_a_stream_of_ptwrite_and_no_others() {
    if !can_emulate() {
        return;
    }
    for (what, every) in [(&["1", "300"][..], 97), (&["6", "100"], 151)] {
        let recording = Recording::of(&["ptwrite"], what);
        let (all, _) = recording.decoded(&stream(&recording.written, Surroundings::default()), &[]);
        let surroundings = Surroundings { fup: true, overflow_every: Some(every) };
        let (decoded, report) = recording.decoded(&stream(&recording.written, surroundings), &[]);
        let (all, decoded) = (sorted(all), sorted(decoded));
        let messages = recording.written.iter().filter(|word| word.value >> 63 == 1).count();
        let (emitted, lost) = (all.len(), report["trace"]["losses"].as_u64().expect("a number") as usize);
        println!(
            "{what:?}: {emitted} events, {messages} messages, {} read, {lost} lost: {}",
            decoded.len(),
            report["notes"]
        );
        assert_eq!(emitted as u64, recording.emitted());
        assert!(decoded.len() < emitted && decoded.len() * 4 > emitted, "{report}");
        // Messages that say who writes are lost, too.
        assert!((emitted..=messages).contains(&(decoded.len() + lost)), "{report}");
        let mut rest = all.iter();
        assert!(
            decoded.iter().all(|event| rest.any(|other| other == event)),
            "an event that was not written"
        );
        let overflows = report["streams"][0]["gaps"].as_u64().expect("a number");
        assert!(overflows > 10, "{report}");
    }
}

#[test]
fn a_choice_for_each_event_sends_some_to_ptwrite() {
    if !can_emulate() {
        return;
    }
    let recording = Recording::of(&["ptwrite", "test:tick=software"], &["3", "40"]);
    let (decoded, _) =
        recording.decoded(&stream(&recording.written, Surroundings::default()), &["--fail-if-lost"]);
    let recorded = printed(&recording.fixture.trace());
    assert_eq!((decoded.len(), recorded.len()), (120, 120), "{:?}", recording.recorded.output);
    assert!(decoded.iter().all(|event| event.starts_with("test:many")), "{decoded:?}");
    assert!(recorded.iter().all(|event| event.starts_with("test:tick")), "{recorded:?}");
}

/// Here CPUID is asked, and not a test.
#[test]
fn a_program_without_ptwrite_loses_its_events_with_the_reason_or_uses_its_rings() {
    if rtscope_hardware::inventory::Cpuid::here().has_ptwrite() == Some(true) {
        skip::say("this processor has PTWRITE");
        return;
    }
    let fixture = Fixture::new();
    let emitter = program("rtscope-channels").expect("it is built").display().to_string();
    let recorded = fixture.record(&["--backend", "ptwrite"], &[&emitter, "3", "20"]);
    assert_eq!((recorded.events(), recorded.lost()), (0, 120), "{:?}", recorded.output);
    assert!(
        recorded.remarks().contains("the processor has no PTWRITE, as CPUID says"),
        "{}",
        recorded.remarks()
    );
    assert!(text(&recorded.output).contains("programs lose these events, and count them"));
    fs::remove_dir_all(fixture.trace()).expect("ours");
    let recorded = fixture.record(&["--backend", "ptwrite,or-software"], &[&emitter, "3", "20"]);
    assert_eq!((recorded.events(), recorded.lost()), (120, 0), "{:?}", recorded.output);
    assert!(text(&recorded.output).contains("programs use their buffers instead"));
}

#[test]
fn streams_of_another_unit_than_a_recordings_are_refused() {
    let fixture = Fixture::new();
    let emitter = program("rtscope-channels").expect("it is built").display().to_string();
    fixture.record(&["--backend", "ptwrite"], &[&emitter, "1", "1"]);
    let stream = fixture.path("stream");
    fs::write(&stream, "").expect("ours");
    let output = rtscope()
        .args(["hardware", "decode", "--unit", "stp", "-o"])
        .arg(fixture.path("decoded"))
        .arg("--programs")
        .args([fixture.trace(), stream])
        .output()
        .expect("it can be started");
    assert!(!output.status.success());
    assert!(text(&output).contains("a raw stream is --unit pt"), "{}", text(&output));
}

#[test]
fn an_event_through_ptwrite_takes_so_many_instructions() {
    if !can_emulate() {
        return;
    }
    let recording = Recording::of(&["ptwrite"], &["1", "1", "steps"]);
    let said = text(&recording.recorded.output);
    let line = said.lines().find(|line| line.starts_with("channel ")).expect("it counts them");
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    println!("instructions of an event with two fields of 64 bits: {line}");
    // Nobody asks for the other event, so it takes what a disabled one does.
    assert!(numbers[0] < 500 && numbers[1] < 30, "{line}");
}

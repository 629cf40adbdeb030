// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that go to PTWRITE (ADR 0032). No machine here has the instruction: the program executes it, and its signal handler does what it would do
//! (`testkit/c/ptwrite.c`). What it wrote is made a stream of Intel PT by our encoder, and decoded. That has to be what the same program leaves in
//! its rings, event by event.

use super::fixture::{Fixture, Recorded};
use crate::command::rtscope;
use rtscope_hardware::pt::encode::{packet, shortest_ip};
use rtscope_hardware::pt::{ExecMode, Packet};
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

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
    /// An overflow before every so many of them: that one and the next are missing.
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

/// Each event's name and fields, without its time, its thread and its CPU.
fn printed(trace: &Path) -> Vec<String> {
    let output = rtscope().arg("print").arg(trace).output().expect("it can be started");
    assert!(output.status.success(), "{}", text(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let event = |line: &str| line.find(" test:").map(|at| line[at + 1..].to_string());
    let events: Vec<String> = lines.lines().filter_map(event).collect();
    assert_eq!(events.len(), lines.lines().count(), "{lines}");
    events
}

fn sorted(mut events: Vec<String>) -> Vec<String> {
    events.sort();
    events
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
        let every = surroundings.overflow_every.unwrap_or(usize::MAX);
        match at % every {
            0 if at > 0 => {
                put(Packet::Ovf, &mut bytes);
                continue;
            }
            1 if at > every => continue,
            _ => {}
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
    let Some(has) = rtscope_hardware::inventory::Cpuid::here().has_ptwrite() else { return true };
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
    for what in [&["1", "100"][..]] {
        let hardware = Recording::of(&["ptwrite"], what);
        assert_eq!(
            (hardware.recorded.events(), hardware.recorded.lost()),
            (0, 0),
            "{:?}",
            hardware.recorded.output
        );
        let decodings: Vec<(Vec<String>, Value)> = [false, true]
            .map(|fup| {
                hardware.decoded(
                    &stream(&hardware.written, Surroundings { fup, ..Surroundings::default() }),
                    &["--fail-if-lost"],
                )
            })
            .into();
        let emitted = hardware.emitted();
        drop(hardware);
        let ring = Recording::of(&[], what);
        assert_eq!((ring.recorded.lost(), ring.written.len()), (0, 0), "{what:?}");
        let recorded = sorted(printed(&ring.fixture.trace()));
        for (decoded, report) in decodings {
            assert_eq!(
                (decoded.len() as u64, report["notes"].as_array().map(Vec::len)),
                (emitted, Some(0)),
                "{what:?}: {report}"
            );
            assert_eq!(sorted(decoded), recorded, "{what:?}");
        }
    }
}

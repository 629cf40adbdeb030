// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast spools become traces: `cargo run --release -p rtscope-store --example conversion_speed -- [EVENTS] [FOLDER]`.
//!
//! Two CPUs; once eBPF records only, once ftrace's only, once both with a path for each system call. Prints nanoseconds of
//! one CPU for each event, and the most memory that the process ever had.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

#[path = "../tests/it/spools/maker.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod maker;

use maker::{Cpu, START, block, description, open, pages, path, softirq, switch, write};
use rtscope_event::{CpuId, MonotonicNs};
use rtscope_store::{End, Options, Spool, SpoolWriter, convert};
use std::path::{Path, PathBuf};
use std::process::Command;

const KINDS: [(&str, bool, bool); 3] =
    [("eBPF", true, false), ("ftrace", false, true), ("both, with paths", true, true)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [make, kind, events, target] = &arguments[..] {
        assert_eq!(make, "--make");
        return make_spool(KINDS[kind.parse::<usize>().unwrap()], events.parse().unwrap(), target.as_ref());
    }
    let events = arguments.first().map_or("4000000", String::as_str);
    let directory = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    println!("to the spool: {} ns a record", chunk_ns(&directory));
    for (kind, (what, ..)) in KINDS.into_iter().enumerate() {
        let root = tempfile::tempdir_in(&directory).unwrap();
        let target = root.path().join("trace");
        // Another process makes it, so that its memory is not in the peak below.
        let made = Command::new(std::env::current_exe().unwrap())
            .args(["--make", &kind.to_string(), events])
            .arg(&target)
            .status();
        assert!(made.unwrap().success());
        let begin = cpu_time_ns();
        let options = Options { threads: 1, ..Options::default() };
        let converted = convert(Spool::open(&target).unwrap(), &target, &options).unwrap();
        let ns = cpu_time_ns() - begin;
        println!(
            "{what}: {} events, {} MB to {} MB, {} ns an event, {} paths not found, {} kB at most",
            converted.events,
            converted.spool_bytes >> 20,
            converted.bytes >> 20,
            ns / converted.events,
            converted.without_text,
            peak_kb()
        );
    }
}

/// What a recorder pays for a record of 32 bytes beyond taking it out of the ring.
fn chunk_ns(directory: &Path) -> u64 {
    const CHUNKS: u64 = 500;
    let root = tempfile::tempdir_in(directory).unwrap();
    let words: Vec<u64> = (0..16_384).flat_map(|turn| switch(START + turn, 10, 11)).collect();
    let writer = SpoolWriter::create(&root.path().join("trace"), &description()).unwrap();
    let mut bank = writer.bank(CpuId(0)).unwrap();
    let begin = cpu_time_ns();
    for _ in 0..CHUNKS {
        bank.chunk(MonotonicNs(START), 0, &words).unwrap();
    }
    (cpu_time_ns() - begin) / (CHUNKS * 16_384)
}

fn make_spool((_, bank, ftrace): (&str, bool, bool), events: u64, target: &Path) {
    let cpus: Vec<Cpu> = (0..2).map(|cpu| content(events / 2, cpu, bank, ftrace)).collect();
    let end = End { ended: MonotonicNs(START + events * 1_000), ..End::default() };
    write(target, &description(), &cpus, Some(&end)).unwrap();
}

fn content(events: u64, cpu: u64, bank: bool, ftrace: bool) -> Cpu {
    let mut content = Cpu::default();
    let (mut words, mut records) = (Vec::new(), Vec::new());
    let step = 1_000;
    for turn in 0..events / 4 {
        let time = START + 1_000 + turn * 4 * step;
        let (tid, other) = (10 + (turn % 50) as u32, 10 + ((turn + 1) % 50) as u32);
        if bank {
            words.extend(switch(time, tid, other));
            words.extend(softirq(time + step, 3));
        }
        if ftrace {
            let pointer = 0x7000_0000 + turn + (cpu << 40);
            records.push((time + 2 * step, open(other, pointer)));
            records.push((time + 3 * step, block(other, 8)));
            if bank {
                words.extend(path(
                    time + 2 * step + 90,
                    other,
                    pointer,
                    time + 2 * step + 90,
                    false,
                    "/etc/ld.so.cache",
                ));
            }
        }
        if words.len() > 1 << 16 {
            content.chunks.push((0, std::mem::take(&mut words)));
        }
    }
    content.chunks.push((0, words));
    content.pages = pages(&records, None);
    content
}

/// Of this process: wall time would measure who else is on the machine.
fn cpu_time_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
    std::time::Duration::from(nix::time::clock_gettime(clock).unwrap()).as_nanos() as u64
}

fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

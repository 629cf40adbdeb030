// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes spools as a recorder does, from events that the test knows.

use rtscope_abi as abi;
use rtscope_event::{CpuId, MonotonicNs};
use rtscope_store::{End, FormatText, FtraceDescription, Spool, SpoolDescription, SpoolTask, SpoolWriter};
use rtscope_testkit::{recordings, tracepoints};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

pub const START: u64 = 5_000_000_000_000;
pub const PAGE_BYTES: usize = 4096;
pub const OPENAT: u32 = 257;

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

fn format(system: &str, name: &str, id: u16, fields: &[(&str, u32, u32)]) -> FormatText {
    FormatText { system: system.to_owned(), text: tracepoints::description(name, id, fields) }
}

pub const BLOCK: u16 = 900;
pub const OPEN: u16 = 901;
pub const OPENED: u16 = 902;
const SWITCHED: u16 = 903;

pub fn ftrace() -> FtraceDescription {
    let [open, _] = open_formats();
    let formats = vec![
        format("block", "block_rq_issue", BLOCK, &[("dev_t dev", 8, 4), ("__data_loc char[] cmd", 12, 4)]),
        open,
        switch_format(),
    ];
    FtraceDescription { header_page: HEADER_PAGE.to_owned(), formats }
}

pub fn task(tid: u32, comm: &str) -> SpoolTask {
    SpoolTask::from(&recordings::task(tid, comm))
}

pub fn description() -> SpoolDescription {
    let mut description = SpoolDescription::of_this_machine("0.1.0").unwrap();
    description.started = MonotonicNs(START);
    description.cpus = vec![CpuId(0), CpuId(1)];
    description.ebpf = true;
    description.ftrace = Some(ftrace());
    description.paths = BTreeMap::from([("openat".to_owned(), 1 << 1)]);
    description.tasks = vec![task(10, "motor"), task(11, "shell")];
    description
}

fn record(kind: u32, time: u64, words: &[u64]) -> Vec<u64> {
    let length = words.len() as u64 + 2;
    let word = length | u64::from(kind) << 8 | u64::from(abi::RTS_COMMITTED) << 16 | 1 << 32;
    [&[word, time][..], words].concat()
}

fn two(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

pub fn switch(time: u64, prev: u32, next: u32) -> Vec<u64> {
    record(abi::RTS_SCHED_SWITCH, time, &[two(prev, next), two(120 | 120 << 16, 1), 0])
}

pub fn softirq(time: u64, vec: u32) -> Vec<u64> {
    record(abi::RTS_SOFTIRQ_RAISE, time, &[u64::from(vec)])
}

fn text_words(text: &str, bytes: usize) -> Vec<u64> {
    let mut raw = text.as_bytes().to_vec();
    raw.resize(bytes, 0);
    raw.chunks_exact(8).map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap())).collect()
}

pub fn fork(time: u64, parent: u32, child: u32, comm: &str) -> Vec<u64> {
    let ids = [two(parent, parent), two(child, child)];
    record(abi::RTS_PROCESS_FORK, time, &[&ids[..], &text_words(comm, 16)].concat())
}

pub fn path(time: u64, tid: u32, pointer: u64, entry: u64, late: bool, text: &str) -> Vec<u64> {
    path_with(0, (time, entry), tid, pointer, late, text)
}

/// The same, of a text that was cut.
pub fn cut_path(time: u64, tid: u32, pointer: u64, entry: u64, late: bool, text: &str) -> Vec<u64> {
    path_with(abi::RTS_PATH_TRUNCATED, (time, entry), tid, pointer, late, text)
}

fn path_with(flags: u32, times: (u64, u64), tid: u32, pointer: u64, late: bool, text: &str) -> Vec<u64> {
    let (time, entry) = times;
    let flags = flags | if late { abi::RTS_PATH_AT_EXIT } else { 0 };
    let what = u64::from(tid) | u64::from(OPENAT) << 32 | 1 << 48 | u64::from(flags) << 56;
    let bytes = (text.len() + 8) & !7;
    record(abi::RTS_SYSCALL_PATH, time, &[&[pointer, entry, what][..], &text_words(text, bytes)].concat())
}

/// A system call as eBPF records it: `exit` or entry.
pub fn call(time: u64, tid: u32, number: u32, exit: bool, values: &[u64]) -> Vec<u64> {
    let kind = if exit { abi::RTS_SYSCALL_EXIT } else { abi::RTS_SYSCALL_ENTRY };
    record(kind, time, &[&[two(number, tid)][..], values].concat())
}

/// A record of ftrace.
pub fn block(tid: u32, dev: u32) -> Vec<u8> {
    let mut bytes = BLOCK.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend([tid.to_ne_bytes(), dev.to_ne_bytes(), (4_u32 << 16 | 16).to_ne_bytes()].concat());
    bytes.extend(b"abc\0");
    bytes
}

/// A switch as ftrace records it.
pub fn switched(prev: u32, next: u32) -> Vec<u8> {
    let mut bytes = SWITCHED.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(prev.to_ne_bytes());
    for (tid, state) in [(prev, Some(1_u64)), (next, None)] {
        bytes.extend(b"a task\0\0\0\0\0\0\0\0\0\0");
        bytes.extend([tid.to_ne_bytes(), 120_u32.to_ne_bytes()].concat());
        bytes.extend(state.iter().flat_map(|state| state.to_ne_bytes()));
    }
    bytes
}

fn switch_format() -> FormatText {
    let fields = [
        ("char prev_comm[16]", 8, 16),
        ("pid_t prev_pid", 24, 4),
        ("int prev_prio", 28, 4),
        ("long prev_state", 32, 8),
        ("char next_comm[16]", 40, 16),
        ("pid_t next_pid", 56, 4),
        ("int next_prio", 60, 4),
    ];
    format("sched", "sched_switch", SWITCHED, &fields)
}

pub fn open(tid: u32, pointer: u64) -> Vec<u8> {
    let mut bytes = OPEN.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend([tid.to_ne_bytes(), OPENAT.to_ne_bytes(), [0; 4]].concat());
    bytes.extend([(-100_i64).to_ne_bytes(), (pointer as i64).to_ne_bytes()].concat());
    bytes
}

/// The exit of the same call.
pub fn opened(tid: u32, ret: i64) -> Vec<u8> {
    let mut bytes = OPENED.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend([tid.to_ne_bytes(), OPENAT.to_ne_bytes(), 0_u32.to_ne_bytes()].concat());
    bytes.extend(ret.to_ne_bytes());
    bytes
}

/// The tracepoints of that call.
pub fn open_formats() -> [FormatText; 2] {
    let [number, value] = [("int __syscall_nr", 8, 4), ("long ret", 16, 8)];
    let entry = [number, ("int dfd", 16, 8), ("const char * filename", 24, 8)];
    [
        format("syscalls", "sys_enter_openat", OPEN, &entry),
        format("syscalls", "sys_exit_openat", OPENED, &[number, value]),
    ]
}

/// Sub-buffers of events `(time, record)`, with this many lost before the sub-buffer of this number.
pub fn pages(events: &[(u64, Vec<u8>)], lost_before: Option<(usize, u64)>) -> Vec<u8> {
    const IN_USE: usize = PAGE_BYTES - 16 - 8;
    let mut out = Vec::new();
    let mut rest = events;
    let mut number = 0;
    while let Some((first, _)) = rest.first() {
        let (mut data, mut before, mut taken) = (Vec::new(), *first, 0);
        for (time, record) in rest {
            // The length in words, and the time since the event before.
            let word = (record.len() as u32).div_ceil(4) | ((time - before) as u32) << 5;
            if data.len() + 4 + record.len() > IN_USE || time - before >= 1 << 27 {
                break;
            }
            data.extend(word.to_ne_bytes());
            data.extend(record);
            (before, taken) = (*time, taken + 1);
        }
        let lost = lost_before.filter(|(page, _)| *page == number).map(|(_, lost)| lost);
        let flags = if lost.is_some() { 3_u64 << 30 } else { 0 };
        out.extend(first.to_ne_bytes());
        out.extend((data.len() as u64 | flags).to_ne_bytes());
        let used = data.len();
        data.resize(PAGE_BYTES - 16, 0);
        if let Some(lost) = lost {
            data[used..used + 8].copy_from_slice(&lost.to_ne_bytes());
        }
        out.extend(data);
        rest = &rest[taken..];
        number += 1;
    }
    out
}

/// Everything of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// Records lost so far, and records.
    pub chunks: Vec<(u64, Vec<u64>)>,
    pub pages: Vec<u8>,
}

/// Writes a spool for `target`; without an end it is what a kill leaves.
pub fn write(
    target: &Path,
    description: &SpoolDescription,
    cpus: &[Cpu],
    end: Option<&End>,
) -> Option<Spool> {
    let writer = write_to(target, description, cpus);
    end.map(|end| writer.finish(end).unwrap())
}

/// The same, which goes on.
pub fn write_to(target: &Path, description: &SpoolDescription, cpus: &[Cpu]) -> SpoolWriter {
    let writer = SpoolWriter::create(target, description).unwrap();
    for (cpu, content) in (0..).zip(cpus) {
        let mut bank = writer.bank(CpuId(cpu)).unwrap();
        for (lost, words) in &content.chunks {
            bank.chunk(MonotonicNs(START + 3_600_000_000_000), *lost, words).unwrap();
        }
        writer.pages(CpuId(cpu)).unwrap().write_all(&content.pages).unwrap();
    }
    writer
}

/// A spool with a bit of everything: 2 CPUs, both recorders, records out of order, paths, a fork, losses.
pub fn everything() -> Vec<Cpu> {
    let mut cpus = vec![Cpu::default(), Cpu::default()];
    for (cpu, content) in (0..).zip(&mut cpus) {
        let mut chunks: Vec<(u64, Vec<u64>)> = vec![(0, Vec::new())];
        let mut events = Vec::new();
        for number in 0..2_000_u64 {
            let time = START + 1_000 + number * 40_000 + cpu;
            // A nested program's record stands before that of the one it interrupted.
            let mut words = softirq(time + 2_000, 3);
            words.extend(switch(time, 10, 11));
            words.extend(switch(time + 20_000, 11, 500));
            let pointer = 0x7000 + number + (cpu << 20);
            if number % 4 == 0 {
                words.extend(path(
                    time + 10_050,
                    11,
                    pointer,
                    time + 10_050,
                    false,
                    &format!("/path/{number}"),
                ));
            }
            if number == 1_000 && cpu == 1 {
                words.extend(fork(time + 500, 10, 500, "child"));
            }
            events.push((time + 10_000, open(11, pointer)));
            events.push((time + 30_000, block(10, number as u32)));
            let (lost, chunk) = chunks.last_mut().unwrap();
            chunk.extend(words);
            if number % 100 == 99 {
                let lost = *lost + u64::from(number == 499);
                chunks.push((lost, Vec::new()));
            }
        }
        if cpu == 1 {
            // Read at the exit of a call on the other CPU, long after.
            let time = START + 1_000 + 2 * 40_000 + 10_050;
            chunks.last_mut().unwrap().1.extend(path(START + 90_000_000, 11, 0x7002, time, true, "/late"));
        }
        content.chunks = chunks;
        content.pages = pages(&events, Some((5, 70)));
    }
    cpus
}

pub fn end() -> End {
    End { ended: MonotonicNs(START + 100_000_000), ..End::default() }
}

/// All files of a spool, by name.
pub fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

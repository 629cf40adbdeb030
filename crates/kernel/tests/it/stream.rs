// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recorder as a stream, on the running kernel: each record once and complete, and the paths of system calls.

use super::skip_without_ebpf;
use rtscope_abi as abi;
use rtscope_kernel::syscalls::are_not_preempted;
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, Memory, PROGRAMS, RecorderConfig, StreamConfig, stream_programs,
};
use rtscope_ring::StreamReader;
use std::fs::File;
use std::time::{Duration, Instant};

const BANK: usize = 1 << 20;

fn start() -> (EbpfPrograms, Memory) {
    let built_in: Vec<_> = PROGRAMS.iter().filter(|spec| spec.interrupts_off).collect();
    // open, openat: argument 0 and 1.
    let paths = vec![(libc::SYS_openat as usize, 1 << 1), (libc::SYS_chdir as usize, 1 << 0)];
    let stream = StreamConfig { paths, ..StreamConfig::default() };
    let config = EbpfConfig {
        recorder: Some(RecorderConfig { bank_bytes: BANK, snapshot: None, stream: Some(stream) }),
        only: stream_programs(&built_in, true),
        ..EbpfConfig::default()
    };
    let ebpf = EbpfPrograms::start(&config).unwrap();
    let memory = ebpf.memory(&config).unwrap();
    (ebpf, memory)
}

/// All records of all CPUs, from now until all that was written is read.
fn drain(ebpf: &EbpfPrograms, memory: &Memory, readers: &mut [StreamReader]) -> Vec<u64> {
    ebpf.enable(false);
    let banks = memory.banks.as_ref().unwrap();
    let mut words = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while readers.iter().any(|reader| reader.waiting(&memory.controls) > 0) {
        assert!(Instant::now() < deadline, "a record was never completed");
        for reader in &mut *readers {
            reader.take(banks, &memory.controls, &mut words, u64::MAX);
        }
    }
    words
}

fn records(words: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let length = (*rest.first()? & 0xff) as usize;
        let (record, behind) = rest.split_at(length);
        rest = behind;
        Some(record)
    })
}

fn path_of(record: &[u64]) -> Option<(u32, u64, Vec<u8>)> {
    if (record[0] >> 8) as u32 & 0xff != abi::RTS_SYSCALL_PATH {
        return None;
    }
    let bytes: Vec<u8> = record.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let head = size_of::<abi::rts_syscall_path>();
    let flags = bytes[std::mem::offset_of!(abi::rts_syscall_path, flags)];
    let path = bytes.get(head..)?.split(|byte| *byte == 0).next()?.to_vec();
    Some((u32::from(flags), record[2], path))
}

// NEEDS: verifier
#[test]
fn root_a_stream_has_the_paths_of_system_calls() {
    if skip_without_ebpf() {
        return;
    }
    let (mut ebpf, memory) = start();
    let mut readers: Vec<_> = (0..ebpf.cpus()).map(|cpu| StreamReader::new(cpu, BANK)).collect();
    // Calls of this process have no paths, so a child makes them.
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", "cd /usr/lib; read x < /proc/self/../version; exec /bin/cat /dev/null"])
        .status()
        .unwrap();
    assert!(status.success());
    drop(File::open("/etc/hostname"));
    ebpf.enable(false);
    let words = drain(&ebpf, &memory, &mut readers);
    ebpf.detach();
    let paths: Vec<_> = records(&words).filter_map(path_of).collect();
    for wanted in ["/usr/lib", "/proc/self/../version", "/dev/null"] {
        let found = paths.iter().find(|(_, _, path)| path == wanted.as_bytes());
        assert!(found.is_some_and(|(_, pointer, _)| *pointer != 0), "{wanted}");
    }
    assert!(!paths.iter().any(|(_, _, path)| path == b"/etc/hostname"));
}

// NEEDS: verifier
#[test]
fn root_a_full_stream_counts_what_it_leaves_out() {
    if skip_without_ebpf() {
        return;
    }
    let (ebpf, memory) = start();
    let mut readers: Vec<_> = (0..ebpf.cpus()).map(|cpu| StreamReader::new(cpu, BANK)).collect();
    // Nothing is read: 1 MiB per CPU is full after some ten thousand switches.
    let deadline = Instant::now() + Duration::from_secs(60);
    let lost = |cpu| memory.controls.lost(cpu).iter().sum::<u64>();
    while (0..ebpf.cpus()).all(|cpu| lost(cpu) == 0) {
        assert!(Instant::now() < deadline, "the ring was never full");
        std::thread::sleep(Duration::from_micros(1));
    }
    let full: Vec<usize> = (0..ebpf.cpus()).filter(|cpu| lost(*cpu) > 0).collect();
    let words = drain(&ebpf, &memory, &mut readers);
    assert!(full.iter().all(|cpu| readers[*cpu].records() > 10_000), "{full:?}");
    let unknown = records(&words).find(|record| (record[0] >> 8) as u32 & 0xff >= abi::RTS_RECORD_TYPES);
    assert_eq!(unknown, None);
    // It continues after it was read.
    ebpf.enable(true);
    let before = readers[full[0]].records();
    while readers[full[0]].waiting(&memory.controls) == 0 {
        assert!(Instant::now() < deadline, "it does not continue");
        std::thread::yield_now();
    }
    drain(&ebpf, &memory, &mut readers);
    assert!(readers[full[0]].records() > before);
}

// NEEDS: verifier
#[test]
fn root_whether_system_calls_can_be_recorded_is_found_out() {
    if skip_without_ebpf() {
        return;
    }
    // The answer depends on the kernel; that there is one does not.
    println!("handlers of system calls are not preempted: {}", are_not_preempted().unwrap());
}

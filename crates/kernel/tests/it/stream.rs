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
    // The first and only path, by its argument.
    start_with(vec![(libc::SYS_openat as usize, 1 << 1), (libc::SYS_chdir as usize, 1 << 0)])
}

fn start_with(paths: Vec<(usize, u8)>) -> (EbpfPrograms, Memory) {
    let built_in: Vec<_> = PROGRAMS.iter().filter(|spec| spec.interrupts_off).collect();
    let stream = StreamConfig { paths, ..StreamConfig::default() };
    let config = EbpfConfig {
        recorder: Some(RecorderConfig { bank_bytes: BANK, snapshot: None, stream: Some(stream) }),
        stacks: None,
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

/// The calls below, made by a child whose paths lie in pages that it has never touched or not, and what it says at the end.
mod untouched {
    use std::ffi::CString;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    /// A text in a file's page, which is not in the memory of the process before it is touched.
    pub struct Text {
        file: File,
    }

    impl Text {
        pub fn new(text: &str) -> Text {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(CString::new(text).unwrap().as_bytes_with_nul()).unwrap();
            Text { file }
        }

        /// Where it is; touched already if requested. The mapping stays, and ends with the process.
        fn map(&self, touch: bool) -> *const libc::c_char {
            // SAFETY: a new mapping at an address that the kernel chooses takes nothing away.
            let page = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    1,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE,
                    self.file.as_raw_fd(),
                    0,
                )
            };
            assert_ne!(page, libc::MAP_FAILED);
            if touch {
                // SAFETY: just mapped, and the file has this byte.
                unsafe { page.cast::<u8>().read_volatile() };
            }
            page.cast()
        }
    }

    /// What a child does: calls only, as it is the fork of a process with threads.
    pub type Calls<'a> = &'a dyn Fn(&dyn Fn(&Text, bool) -> *const libc::c_char);

    /// Runs it in a child; calls of this process itself are not recorded.
    pub fn start_child(calls: Calls<'_>) -> libc::pid_t {
        // SAFETY: the child makes system calls only, and ends by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            calls(&|text, touch| text.map(touch));
            // SAFETY: it does not return.
            unsafe { libc::_exit(0) };
        }
        child
    }

    /// The status of a child that has ended.
    pub fn reap(child: libc::pid_t) -> libc::c_int {
        let mut status = 0;
        // SAFETY: the pointer is to a live integer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }
}

use untouched::{Text, reap, start_child};

// NEEDS: verifier
#[test]
fn root_each_of_two_paths_is_read_whichever_was_not_in_memory() {
    if skip_without_ebpf() {
        return;
    }
    let two = 1 << 1 | 1 << 3;
    let (mut ebpf, memory) =
        start_with(vec![(libc::SYS_renameat2 as usize, two), (libc::SYS_linkat as usize, two)]);
    let mut readers: Vec<_> = (0..ebpf.cpus()).map(|cpu| StreamReader::new(cpu, BANK)).collect();
    let at_start = ebpf.calls_with_waiting_paths().unwrap();
    // Whether the first and the second path were in memory before the call. None of them exists.
    let all = [(true, true), (true, false), (false, true), (false, false)];
    let texts = all.map(|(first, second)| {
        ["renameat2", "linkat"]
            .map(|call| [1, 2].map(|which| format!("/nowhere/{call}-{first}-{second}-{which}")))
    });
    let pages = texts
        .each_ref()
        .map(|calls| calls.each_ref().map(|pair| pair.each_ref().map(|text| Text::new(text))));
    let child = start_child(&|map| {
        for ((first, second), [rename, link]) in all.into_iter().zip(&pages) {
            let at = libc::AT_FDCWD;
            // SAFETY: both paths are texts that end with a NUL, in mappings that stay.
            unsafe {
                libc::syscall(libc::SYS_renameat2, at, map(&rename[0], first), at, map(&rename[1], second), 0)
            };
            // SAFETY: as above.
            unsafe {
                libc::syscall(libc::SYS_linkat, at, map(&link[0], first), at, map(&link[1], second), 0)
            };
        }
    });
    assert_eq!(reap(child), 0);
    let at_end = ebpf.calls_with_waiting_paths().unwrap();
    let words = drain(&ebpf, &memory, &mut readers);
    ebpf.detach();
    let found: Vec<_> = records(&words).filter_map(path_of).collect();
    for ((first, second), calls) in all.into_iter().zip(&texts) {
        for pair in calls {
            for (text, in_memory) in pair.iter().zip([first, second]) {
                let times: Vec<_> = found.iter().filter(|(_, _, path)| path == text.as_bytes()).collect();
                let [(flags, ..)] = times[..] else { panic!("{text}: {times:?}") };
                assert_eq!(flags & abi::RTS_PATH_AT_EXIT == 0, in_memory, "{text}");
            }
        }
    }
    assert_eq!((at_start, at_end), (0, 0));
}

// NEEDS: verifier
#[test]
fn root_exits_look_for_paths_only_while_some_are_waiting() {
    if skip_without_ebpf() {
        return;
    }
    let two = 1 << 1 | 1 << 3;
    let (ebpf, memory) =
        start_with(vec![(libc::SYS_renameat2 as usize, two), (libc::SYS_openat as usize, 1 << 1)]);
    let mut readers: Vec<_> = (0..ebpf.cpus()).map(|cpu| StreamReader::new(cpu, BANK)).collect();
    let (one, other) = (Text::new("/nowhere/one"), Text::new("/nowhere/other"));
    let fifo = tempfile::tempdir().unwrap();
    let fifo_path = fifo.path().join("fifo");
    let fifo_text = Text::new(fifo_path.to_str().unwrap());
    let made = std::process::Command::new("mkfifo").arg(&fifo_path).status().unwrap();
    assert!(made.success());
    for _ in 0..200 {
        let child = start_child(&|map| {
            let at = libc::AT_FDCWD;
            // SAFETY: both paths are texts that end with a NUL, in mappings that stay.
            unsafe { libc::syscall(libc::SYS_renameat2, at, map(&one, false), at, map(&other, false), 0) };
            // A pointer that nothing can be read from, at the entry as at the exit.
            // SAFETY: the kernel answers with EFAULT.
            unsafe { libc::syscall(libc::SYS_renameat2, at, 8, at, map(&other, false), 0) };
        });
        assert_eq!(reap(child), 0);
        // One that is killed in its call: nobody writes to the FIFO.
        let waits = start_child(&|map| {
            // SAFETY: the path is a text that ends with a NUL, in a mapping that stays.
            unsafe {
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, map(&fifo_text, false), libc::O_RDONLY, 0)
            };
        });
        let its_call = format!("/proc/{waits}/syscall");
        let in_call = format!("{} ", libc::SYS_openat);
        while !std::fs::read_to_string(&its_call).unwrap().starts_with(&in_call) {
            std::thread::yield_now();
        }
        // SAFETY: a signal to our child, which is not reaped yet.
        unsafe { libc::kill(waits, libc::SIGKILL) };
        assert_eq!(reap(waits), libc::SIGKILL);
    }
    let waiting = ebpf.calls_with_waiting_paths().unwrap();
    let words = drain(&ebpf, &memory, &mut readers);
    let late = records(&words)
        .filter_map(path_of)
        .filter(|(flags, _, path)| flags & abi::RTS_PATH_AT_EXIT != 0 && path == b"/nowhere/one");
    assert!(late.count() > 0, "no path had to wait: the test shows nothing");
    assert_eq!(waiting, 0);
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One start of a kernel in QEMU.
//!
//! QEMU emulates the CPUs in software (TCG), so this runs everywhere, and its times mean nothing. `thread=single` makes
//! one thread emulate all CPUs, one after the other: with a thread for each CPU, kernels hang or die of "int3" now and then when they
//! change their own code, which is what attaching to a tracepoint does. It is also faster.
//!
//! In virtual time the guest's clocks count its instructions, so that what the host does is no latency in the guest
//! (docs/adr/0013).

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::qemu::{PROGRAM, Qemu};
use super::serial;

/// An old CPU, for two reasons. QEMU 7.2 spoils the flags register in a 16-byte compare-and-exchange (`cx16`), which the
/// kernel's memory allocator uses where it can: 3 of 5 boots of Linux 6.12 died of double faults or worse; without it, none of
/// 24. And what newer CPUs have for protection (SMAP, five levels of page tables) costs an emulator a lot.
const CPU: &str = "Nehalem,-cx16";
/// An oops is the end, so that nothing is tested on a broken kernel; only such last words go to the console by themselves.
/// The kernel's own watchdogs measure the host's load here, not the guest's faults; as does its check whether timer interrupts come, which ended a boot
/// while other tests had the CPU.
const APPEND: &str = "console=ttyS0 loglevel=1 oops=panic panic=-1 rdinit=/init mitigations=off nokaslr tsc=reliable \
    no_timer_check nowatchdog rcupdate.rcu_cpu_stall_timeout=300";
/// Virtual time: an instruction takes 4 ns, whichever CPU it is of; while all CPUs sleep, the clock goes to the next timer at once.
///
/// A CPU goes on for its part of the time until the next timer of any of them. A network filter that nothing passes through is a timer
/// inside the emulator: it limits a time slice to its interval (in us), and the guest does not see it.
const VIRTUAL_TIME: [&str; 8] = [
    "-icount",
    "shift=2,align=off,sleep=off",
    "-rtc",
    "clock=vm",
    "-netdev",
    "hubport,id=turns,hubid=0",
    "-object",
    "filter-buffer,id=turn,netdev=turns,interval=50",
];
/// A guest with tests that prints nothing for this long hangs. Longer than any test may take.
const SILENCE: Duration = Duration::from_secs(1000);
/// In virtual time a second takes the host as long as it takes.
const SILENCE_IN_VIRTUAL_TIME: Duration = Duration::from_secs(1000);

/// What is emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    /// CPUs, which run one at a time.
    pub cpus: u32,
    /// Whether its clocks count its instructions; else they go with the host's.
    pub virtual_time: bool,
}

impl Machine {
    /// How long it may print nothing while it runs tests.
    pub fn silence(self) -> Duration {
        if self.virtual_time { SILENCE_IN_VIRTUAL_TIME } else { SILENCE }
    }
}

/// When a guest is given up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// All its time is over.
    pub end: Instant,
    /// It has printed nothing for this long.
    pub silence: Duration,
}

/// How a guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// QEMU ended; whether all was done is in what the guest printed.
    PowerOff,
    /// Nothing came for too long.
    Hung,
    /// Its time was over.
    OutOfTime,
    /// QEMU could not run; its words.
    Qemu(String),
}

/// Boots a kernel and gives every line that it prints to `on_line`, until it ends or its time is over.
pub fn boot(
    qemu: &Qemu,
    kernel: &Path,
    append: &str,
    initramfs: &Path,
    machine: Machine,
    limits: Limits,
    mut on_line: impl FnMut(&str),
) -> Result<Ended> {
    let socket = Socket::new();
    let listener = UnixListener::bind(&socket.0).with_context(|| socket.0.display().to_string())?;
    let mut child = command(qemu, kernel, append, initramfs, machine, &socket.0).spawn().context(PROGRAM)?;
    // It ends with QEMU, which closes the connection.
    thread::spawn(move || listener.accept().map(|(stream, _)| serial::serve(stream)));
    let lines = lines(&mut child)?;
    let ended = loop {
        let left = limits.end.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left.min(limits.silence)) {
            Ok(line) => on_line(&line),
            Err(RecvTimeoutError::Disconnected) => break Ended::PowerOff,
            Err(RecvTimeoutError::Timeout) if left <= limits.silence => break Ended::OutOfTime,
            Err(RecvTimeoutError::Timeout) => break Ended::Hung,
        }
    };
    if ended != Ended::PowerOff {
        child.kill()?;
    }
    let mut said = String::new();
    child.stderr.take().context("its errors were asked for as a pipe")?.read_to_string(&mut said)?;
    let status = child.wait()?;
    let failed = ended == Ended::PowerOff && !status.success();
    Ok(if failed { Ended::Qemu(said.trim().to_owned()) } else { ended })
}

fn command(
    qemu: &Qemu,
    kernel: &Path,
    append: &str,
    initramfs: &Path,
    machine: Machine,
    socket: &Path,
) -> Command {
    let mut command = qemu.command();
    command.args([
        "-accel",
        "tcg,thread=single",
        "-cpu",
        CPU,
        "-m",
        "1536",
        "-smp",
        &machine.cpus.to_string(),
    ]);
    if machine.virtual_time {
        command.args(VIRTUAL_TIME);
    }
    command.args(["-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"]);
    command.args(["-serial", "stdio", "-serial"]).arg(format!("unix:{}", socket.display()));
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    command.arg("-append").arg(format!("{APPEND} {append}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The lines of the guest's console as they come.
fn lines(child: &mut Child) -> Result<Receiver<String>> {
    let mut console = BufReader::new(child.stdout.take().context("its output was asked for as a pipe")?);
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut line = Vec::new();
        while console.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

/// The name of a socket, which goes when it is dropped. Not in the build directory: such names have at most 108 bytes.
struct Socket(PathBuf);

impl Socket {
    fn new() -> Socket {
        let thread = format!("{:?}", thread::current().id());
        let number: String = thread.chars().filter(char::is_ascii_digit).collect();
        let name = format!("rtscope-vm.{}.{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // One that a killed run with our number left.
        let _ = std::fs::remove_file(&path);
        Socket(path)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop's USDT probe by bpftrace, which prints each event with its fields and its time into a file.

use super::super::setup::Setup;
use super::usdt::plain_name;
use super::{KernelEvents, TraceCounts, Tracer};
use nix::sys::signal::Signal;
use rtscope_tracers::{ChildProcess, Error, finished};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const REMEDY: &str = "install bpftrace (Debian, Fedora: bpftrace)";
const OUTPUT: &str = "bpftrace.txt";
/// bpftrace says this word when all probes are attached, if the environment asks for it: its own tests wait for it.
const ATTACHED: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";
/// Its own system calls would be recorded by its own recording of them.
const KERNEL: &str = "tracepoint:sched:*,tracepoint:irq:*,tracepoint:raw_syscalls:* \
                      /comm != \"bpftrace\"/ { printf(\"k %llu %s\\n\", nsecs, probe); }";

/// Between two polls of whether it still works; and how many of them have to find it asleep.
const LOOK: Duration = Duration::from_millis(25);
const CALM_LOOKS: u32 = 10;

#[derive(Debug)]
struct Bpftrace {
    kernel: KernelEvents,
    running: Option<ChildProcess>,
}

/// If it is installed, and allowed.
pub fn find() -> Result<Box<dyn Tracer>, Error> {
    finished(Command::new("bpftrace").arg("--version"), REMEDY)?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Failed("bpftrace takes root".to_string()));
    }
    Ok(Box::new(Bpftrace { kernel: KernelEvents::No, running: None }))
}

impl Tracer for Bpftrace {
    fn start(&mut self, setup: &Setup<'_>, kernel: KernelEvents) -> Result<(), Error> {
        let mut script = format!(
            "usdt:{}:npt:loop {{ printf(\"u %llu %llu %llu\\n\", nsecs, arg0, arg1); }}",
            plain_name(&setup.rtscope).display()
        );
        if kernel == KernelEvents::Yes {
            script.push_str(&format!("\n{KERNEL}"));
        }
        let pages = (setup.buffer_bytes / page_bytes()).max(1);
        let mut command = Command::new("bpftrace");
        command.env(ATTACHED, "1").env("BPFTRACE_PERF_RB_PAGES", pages.to_string());
        command.arg("-o").arg(setup.fresh(OUTPUT)?).args(["-e", &script]);
        self.kernel = kernel;
        let running = self.running.insert(setup.start(&mut command, REMEDY, "bpftrace.out")?);
        running.until("its probes are attached", &|| setup.stopped(), |running| {
            running.said().iter().any(|line| line.contains(ATTACHED))
        })
    }

    fn stop(&mut self, setup: &Setup<'_>) -> Result<TraceCounts, Error> {
        let Some(mut running) = self.running.take() else { return Ok(TraceCounts::default()) };
        let path = setup.path(OUTPUT);
        let patience =
            if self.kernel == KernelEvents::Yes { Duration::from_secs(1) } else { Duration::from_secs(20) };
        let_it_read(setup, running.id(), &path, patience);
        running.end(Signal::SIGINT)?;
        let file =
            File::open(&path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
        let (mut recorded, mut kernel, mut lost) = (0, 0, 0);
        let of_file = BufReader::new(file).split(b'\n').map_while(Result::ok);
        for line in of_file.chain(running.said().into_iter().map(String::into_bytes)) {
            match line.get(..2) {
                Some(b"u ") => recorded += 1,
                Some(b"k ") => kernel += 1,
                _ => lost += said_lost(&line).unwrap_or(0),
            }
        }
        let kernel = (self.kernel == KernelEvents::Yes).then_some(kernel);
        Ok(TraceCounts { recorded, lost_reported: Some(lost), kernel, ..TraceCounts::default() })
    }

    fn abandon(&mut self) {
        self.running = None;
    }
}

/// An interrupted bpftrace leaves in its buffers what it has not read yet, which is no loss of the recording: it may go on until it
/// sleeps and writes no more. Where it also records the kernel that never comes.
fn let_it_read(setup: &Setup<'_>, id: u32, path: &Path, patience: Duration) {
    let is_asleep = || {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    let bytes = || fs::metadata(path).map_or(0, |file| file.len());
    let start = Instant::now();
    let (mut calm, mut last) = (0, bytes());
    while calm < CALM_LOOKS && start.elapsed() < patience && !setup.stopped() {
        std::thread::sleep(LOOK);
        let now = bytes();
        calm = if is_asleep() && now == last { calm + 1 } else { 0 };
        last = now;
    }
}

/// `Lost 123 events`
fn said_lost(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    text.trim().strip_prefix("Lost ")?.split(' ').next()?.parse().ok()
}

fn page_bytes() -> usize {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .map_or(4096, |bytes| bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_from_what_it_says() {
        assert_eq!(said_lost(b"Lost 17 events"), Some(17));
        assert_eq!(said_lost(b"Attaching 1 probe..."), None);
    }
}

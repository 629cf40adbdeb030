// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tools that people use today, driven as they drive them.

use crate::blocks::Tool;
use crate::pipe::Sample;
use crate::requirements::{BPFTRACE, PERF};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rtscope_tracers::{ChildProcess, finished};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// ftrace: a private instance, monotonic clock, overwriting, 8 MiB a CPU.
pub struct Ftrace {
    directory: PathBuf,
    cpu: usize,
    before: u64,
    expected: u64,
    found: u64,
}

impl Ftrace {
    /// Makes the instance.
    pub fn new(cpu: usize) -> Result<Ftrace> {
        let root = Path::new("/sys/kernel/tracing");
        if !root.join("instances").is_dir() {
            let mut command = Command::new("mount");
            finished(command.args(["-t", "tracefs", "tracefs"]).arg(root), "install mount (Debian: mount)")?;
        }
        let directory = root.join(format!("instances/rtscope_bench_{}", std::process::id()));
        fs::create_dir(&directory).context("making an ftrace instance")?;
        let ftrace = Ftrace { directory, cpu, before: 0, expected: 0, found: 0 };
        ftrace.write("trace_clock", "mono")?;
        ftrace.write("buffer_size_kb", "8192")?;
        ftrace.write("tracing_on", "1")?;
        Ok(ftrace)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.directory.join(file), text).with_context(|| format!("writing {text} to {file}"))
    }

    fn statistic(&self, names: &[&str]) -> Result<u64> {
        let text = fs::read_to_string(self.directory.join(format!("per_cpu/cpu{}/stats", self.cpu)))?;
        Ok(text
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter(|(name, _)| names.contains(name))
            .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
            .sum())
    }
}

impl Tool for Ftrace {
    fn name(&self) -> String {
        "ftrace instance, mono clock".to_string()
    }

    fn on(&mut self) -> Result<()> {
        self.before = self.statistic(&["entries", "overrun"])?;
        self.write("events/sched/sched_switch/enable", "1")?;
        self.write("events/sched/sched_waking/enable", "1")
    }

    fn off(&mut self, block: Sample) -> Result<()> {
        self.write("events/sched/sched_switch/enable", "0")?;
        self.write("events/sched/sched_waking/enable", "0")?;
        let found = self.statistic(&["entries", "overrun"])? - self.before;
        let dropped = self.statistic(&["dropped events"])?;
        ensure!(dropped == 0 && found >= block.switches, "ftrace lost events: {found} of {}", block.switches);
        self.expected += block.switches;
        self.found += found;
        Ok(())
    }

    fn check(&self) -> String {
        format!(
            "ftrace: {} switches, {} events recorded with wakeups and margins, dropped 0",
            self.expected, self.found
        )
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        // Left behind, the instance costs memory; a failure to remove it cannot be reported from here.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// perf: `perf record --overwrite` of the two events on one CPU, started for each block.
pub struct Perf {
    cpu: usize,
    directory: tempfile::TempDir,
    running: Option<(ChildProcess, File)>,
}

impl Perf {
    /// Makes its control pipes.
    pub fn new(cpu: usize) -> Result<Perf> {
        let directory = tempfile::Builder::new().prefix("rtscope-bench-perf").tempdir()?;
        for name in ["control", "ack"] {
            nix::unistd::mkfifo(&directory.path().join(name), nix::sys::stat::Mode::S_IRWXU)?;
        }
        Ok(Perf { cpu, directory, running: None })
    }

    /// Gives perf an order and waits until it says that it has obeyed, or has ended.
    fn order(&self, perf: &mut ChildProcess, control: &mut File, word: &str) -> Result<()> {
        // Opened for both directions, so that opening does not wait for perf.
        let mut ack = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.directory.path().join("ack"))?;
        control.write_all(word.as_bytes())?;
        let mut answer = Vec::new();
        perf.until("perf answers", &|| false, |_| {
            let mut bytes = [0; 16];
            // Nothing is there yet: it will be asked again.
            let read = ack.read(&mut bytes).unwrap_or(0);
            answer.extend(&bytes[..read]);
            answer.starts_with(b"ack\n")
        })?;
        Ok(())
    }
}

impl Tool for Perf {
    fn name(&self) -> String {
        "perf record --overwrite".to_string()
    }

    fn on(&mut self) -> Result<()> {
        let [control, ack, data] = ["control", "ack", "data"].map(|name| self.directory.path().join(name));
        let mut control_file = OpenOptions::new().read(true).write(true).open(&control)?;
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-e", "sched:sched_switch,sched:sched_waking", "-a", "-C"])
            .arg(self.cpu.to_string())
            .args(["--overwrite", "-m", "2048", "-D", "-1", "-o"])
            .arg(data)
            .arg(format!("--control=fifo:{},{}", control.display(), ack.display()))
            .stdout(Stdio::null());
        let mut perf = ChildProcess::start(&mut command, PERF.remedy, None)?;
        self.order(&mut perf, &mut control_file, "enable\n")?;
        self.running = Some((perf, control_file));
        Ok(())
    }

    fn off(&mut self, _: Sample) -> Result<()> {
        let Some((mut perf, mut control)) = self.running.take() else { return Ok(()) };
        self.order(&mut perf, &mut control, "disable\n")?;
        let status = perf.end(Signal::SIGINT)?;
        ensure!(
            status.success() || status.signal().is_some(),
            "perf ended with {status}: {}",
            perf.last_words()
        );
        Ok(())
    }

    fn check(&self) -> String {
        "perf: overwriting, so it cannot lose by a full buffer".to_string()
    }
}

/// With this in its environment, bpftrace says the same word when all probes are attached: its own tests wait for it.
const ATTACHED: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";

/// bpftrace with a script, started for each block.
pub struct Bpftrace {
    name: &'static str,
    script: &'static str,
    running: Option<ChildProcess>,
}

impl Bpftrace {
    /// With a name for the table.
    pub fn new(name: &'static str, script: &'static str) -> Bpftrace {
        Bpftrace { name, script, running: None }
    }
}

impl Tool for Bpftrace {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn on(&mut self) -> Result<()> {
        let mut command = Command::new("bpftrace");
        command.env(ATTACHED, "1").args(["-e", self.script]).stdout(Stdio::null());
        let running = self.running.insert(ChildProcess::start(&mut command, BPFTRACE.remedy, None)?);
        running.until("its probes are attached", &|| false, |running| {
            running.said().iter().any(|line| line.contains(ATTACHED))
        })?;
        Ok(())
    }

    fn off(&mut self, _: Sample) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            running.end(Signal::SIGINT)?;
        }
        Ok(())
    }
}

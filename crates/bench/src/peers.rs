// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tools that people use today, driven as they drive them.

use crate::blocks::Tool;
use crate::pipe::Sample;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// ftrace: an instance of its own, monotonic clock, overwriting, 8 MiB a CPU.
pub struct Ftrace {
    dir: PathBuf,
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
            let status =
                Command::new("mount").args(["-t", "tracefs", "tracefs", "/sys/kernel/tracing"]).status()?;
            ensure!(status.success(), "tracefs cannot be mounted");
        }
        let dir = root.join(format!("instances/rtscope_bench_{}", std::process::id()));
        fs::create_dir(&dir).context("making an ftrace instance")?;
        let ftrace = Ftrace { dir, cpu, before: 0, expected: 0, found: 0 };
        ftrace.write("trace_clock", "mono")?;
        ftrace.write("buffer_size_kb", "8192")?;
        ftrace.write("tracing_on", "1")?;
        Ok(ftrace)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.dir.join(file), text).with_context(|| format!("writing {text} to {file}"))
    }

    fn statistic(&self, names: &[&str]) -> Result<u64> {
        let text = fs::read_to_string(self.dir.join(format!("per_cpu/cpu{}/stats", self.cpu)))?;
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
            "ftrace: {} switches, {} events recorded with wakings and margins, dropped 0",
            self.expected, self.found
        )
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        // Left behind, the instance costs memory; there is nobody to tell if it cannot be removed.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// perf: `perf record --overwrite` of the two events on one CPU, started for each block.
pub struct Perf {
    cpu: usize,
    dir: PathBuf,
    running: Option<(Child, File)>,
}

impl Perf {
    /// Makes its control pipes.
    pub fn new(cpu: usize) -> Result<Perf> {
        let dir = std::env::temp_dir().join(format!("rtscope-bench-perf-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        for name in ["control", "ack"] {
            let path = dir.join(name);
            // A stale pipe of an earlier try is as good as a new one.
            let _ = fs::remove_file(&path);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU)?;
        }
        Ok(Perf { cpu, dir, running: None })
    }

    fn order(control: &mut File, ack: &Path, word: &str) -> Result<()> {
        let mut answer = OpenOptions::new().read(true).write(true).open(ack)?;
        control.write_all(word.as_bytes())?;
        let mut bytes = [0; 5];
        answer.read_exact(&mut bytes).context("waiting for perf's answer")?;
        ensure!(bytes.starts_with(b"ack"), "perf answered {bytes:?}");
        Ok(())
    }
}

impl Tool for Perf {
    fn name(&self) -> String {
        "perf record --overwrite".to_string()
    }

    fn on(&mut self) -> Result<()> {
        let (control, ack) = (self.dir.join("control"), self.dir.join("ack"));
        // Opened for both directions, so that opening does not wait for perf.
        let mut control_file = OpenOptions::new().read(true).write(true).open(&control)?;
        let child = Command::new("perf")
            .args(["record", "-q", "-e", "sched:sched_switch,sched:sched_waking", "-a", "-C"])
            .arg(self.cpu.to_string())
            .args(["--overwrite", "-m", "2048", "-D", "-1", "-o"])
            .arg(self.dir.join("data"))
            .arg(format!("--control=fifo:{},{}", control.display(), ack.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting perf (package linux-perf)")?;
        Perf::order(&mut control_file, &ack, "enable\n")?;
        self.running = Some((child, control_file));
        Ok(())
    }

    fn off(&mut self, _: Sample) -> Result<()> {
        let Some((mut child, mut control)) = self.running.take() else { return Ok(()) };
        Perf::order(&mut control, &self.dir.join("ack"), "disable\n")?;
        interrupt(&child);
        let status = child.wait()?;
        ensure!(status.success() || status.signal().is_some(), "perf ended with {status}");
        Ok(())
    }

    fn check(&self) -> String {
        "perf: overwriting, so it cannot lose by a full buffer".to_string()
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            interrupt(&child);
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// bpftrace with a script, started for each block.
pub struct Bpftrace {
    name: &'static str,
    script: String,
    running: Option<Child>,
}

impl Bpftrace {
    /// A script without its BEGIN, which is added.
    pub fn new(name: &'static str, script: &str) -> Bpftrace {
        Bpftrace { name, script: format!("BEGIN {{ printf(\"attached\\n\"); }}\n{script}"), running: None }
    }
}

impl Tool for Bpftrace {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn on(&mut self) -> Result<()> {
        let mut child = Command::new("bpftrace")
            .args(["-e", &self.script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting bpftrace")?;
        let Some(out) = child.stdout.take() else { bail!("bpftrace has no output") };
        let mut out = BufReader::new(out);
        // BEGIN runs when all probes are attached.
        let attached = out.by_ref().lines().map_while(Result::ok).any(|line| line.contains("attached"));
        ensure!(attached, "bpftrace did not attach");
        // Nobody reads its summary; it must not block on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        self.running = Some(child);
        Ok(())
    }

    fn off(&mut self, _: Sample) -> Result<()> {
        if let Some(mut child) = self.running.take() {
            interrupt(&child);
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn interrupt(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // It may have ended by itself.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT);
    }
}

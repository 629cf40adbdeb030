// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recorders of a round: started, killed, stopped and continued; at the end the last one ends in order, and what the others
//! left is recovered.

use super::judge::{TraceFiles, Verdict};
use super::plan::{Recorder, RoundPlan};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::process::program;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A recorder that takes longer to start or to end counts as hanging.
const PATIENCE: Duration = Duration::from_secs(40);

/// All recorders of a round, one after the other.
#[derive(Debug)]
pub struct Recorders<'a> {
    plan: &'a RoundPlan,
    directory: PathBuf,
    runs: Vec<Run>,
    /// Peak resident memory of any of them, in bytes.
    pub peak_bytes: u64,
    /// Another recorder of this machine was in the way.
    pub disturbed: Option<String>,
}

#[derive(Debug)]
struct Run {
    target: PathBuf,
    child: Option<Child>,
    killed: bool,
}

impl<'a> Recorders<'a> {
    pub fn new(plan: &'a RoundPlan, directory: &Path) -> Recorders<'a> {
        let directory = directory.to_owned();
        Recorders { plan, directory, runs: Vec::new(), peak_bytes: 0, disturbed: None }
    }

    /// Starts one, without waiting for it.
    pub fn start(&mut self) -> Result<()> {
        let target = self.directory.join(format!("t{}", self.runs.len()));
        let mut command = Command::new(program("rtscope")?);
        command.args(["record", "--json", "--fail-if-lost=100%", "-u", "violence:*"]);
        command.args(["--user-buffer", self.plan.buffer, "-o"]);
        command.arg(&target);
        match self.plan.recorder {
            Recorder::Programs => {}
            Recorder::WithKernel => drop(command.args(["-k", "sched:sched_switch"])),
            Recorder::Flight => drop(command.arg("--flight-recorder")),
        }
        let output = File::create(target.with_extension("json"))?;
        let notes = File::create(target.with_extension("notes"))?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(notes).spawn().context("rtscope")?;
        self.runs.push(Run { target, child: Some(child), killed: false });
        Ok(())
    }

    /// Waits until the newest one records.
    pub fn wait_until_ready(&mut self, verdict: &mut Verdict) -> Result<()> {
        let run = self.runs.last_mut().context("one was started")?;
        let began = Instant::now();
        while !run.is_ready() {
            if let Some(status) = run.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                let notes = run.notes();
                if notes.contains("records programs")
                    || notes.contains("already")
                    || notes.contains("another")
                {
                    self.disturbed = Some(notes);
                    return Ok(());
                }
                verdict.fault("recorder", format!("{} ended with {status}: {notes}", run.name()));
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                verdict.fault("hang", format!("{} does not begin: {}", run.name(), run.where_it_is()));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Sends a signal to the newest one. SIGKILL: it is over.
    pub fn send(&mut self, signal: Signal, verdict: &mut Verdict) -> Result<()> {
        let run = self.runs.last_mut().context("one was started")?;
        let name = run.name();
        let Some(child) = &mut run.child else { return Ok(()) };
        // Nobody but this ends it before the end of the round.
        if let Some(status) = child.try_wait()? {
            verdict.fault("recorder", format!("{name} ended with {status} before it was killed"));
        }
        // One that has ended by itself is not reaped by this.
        let _ = kill(Pid::from_raw(child.id() as i32), signal);
        if signal == Signal::SIGKILL {
            child.wait()?;
            run.child = None;
            run.killed = true;
        }
        Ok(())
    }

    /// Whether one runs.
    pub fn is_running(&self) -> bool {
        self.runs.last().is_some_and(|run| run.child.is_some())
    }

    /// Notes how much memory it uses.
    pub fn measure(&mut self) {
        let Some(child) = self.runs.last().and_then(|run| run.child.as_ref()) else { return };
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        self.peak_bytes = self.peak_bytes.max(kib.unwrap_or(0) << 10);
    }

    /// Asks a flight recorder for a trace.
    pub fn snapshot(&mut self, verdict: &mut Verdict) -> Result<()> {
        // One that is still starting cannot be asked yet.
        let is_ready = self.runs.last().is_some_and(Run::is_ready);
        let output = Command::new(program("rtscope")?).args(["snapshot", "--timeout", "20s"]).output()?;
        if !output.status.success() && is_ready {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            verdict.fault("snapshot", format!("{}: {words}", output.status));
        }
        Ok(())
    }

    /// Ends the last one and makes traces of all.
    pub fn finish(mut self, verdict: &mut Verdict) -> Result<(Vec<TraceFiles>, u64)> {
        let last = self.runs.len().saturating_sub(1);
        let mut traces = Vec::new();
        self.measure();
        for (index, run) in self.runs.iter_mut().enumerate() {
            if index == last {
                run.end(verdict)?;
            }
            let summaries = if run.killed && self.plan.recorder != Recorder::Flight {
                run.recover(verdict)?
            } else {
                run.summaries()
            };
            let flight = self.plan.recorder == Recorder::Flight;
            for summary in summaries {
                let Some(directory) = summary["trace"].as_str().map(PathBuf::from) else { continue };
                if !summary["schema"].as_str().unwrap_or_default().starts_with("rtscope.record") {
                    continue;
                }
                traces.push(TraceFiles { directory, killed: run.killed, flight, summary });
            }
        }
        Ok((traces, self.peak_bytes))
    }
}

impl Run {
    fn name(&self) -> String {
        self.target.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.target.with_extension("notes")).unwrap_or_default()
    }

    /// Whether it has said that it records.
    fn is_ready(&self) -> bool {
        let notes = self.notes();
        notes.contains("recording '") || notes.contains("record into memory")
    }

    /// The objects that it printed.
    fn summaries(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.target.with_extension("json")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn where_it_is(&self) -> String {
        self.child.as_ref().map(|child| super::round::whereabouts(child.id())).unwrap_or_default()
    }

    /// As Ctrl-C does.
    fn end(&mut self, verdict: &mut Verdict) -> Result<()> {
        let Some(child) = &mut self.child else { bail!("the last recorder of a round runs to its end") };
        let before = child.try_wait()?;
        if before.is_none() {
            kill(Pid::from_raw(child.id() as i32), Signal::SIGINT)?;
        }
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if began.elapsed() > PATIENCE {
                let what = format!("{} does not end: {}", self.name(), self.where_it_is());
                verdict.fault("hang", what);
                let child = self.child.as_mut().context("it runs")?;
                child.kill()?;
                child.wait()?;
                self.killed = true;
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        verdict.figures.insert("end_ms".to_string(), began.elapsed().as_millis() as u64);
        if !status.success() || before.is_some() {
            verdict.fault("recorder", format!("{} ended with {status}: {}", self.name(), self.notes()));
        }
        Ok(())
    }

    /// Finishes what a killed one left.
    fn recover(&self, verdict: &mut Verdict) -> Result<Vec<Value>> {
        let parts = ["kernel", "ust"].map(|part| self.target.join(part));
        let mut summaries = Vec::new();
        for part in parts {
            let partial = part.with_file_name(format!(
                "{}.partial",
                part.file_name().unwrap_or_default().to_string_lossy()
            ));
            if part.exists() && !partial.exists() {
                // It was killed after it had finished.
                summaries.extend(self.summaries());
                continue;
            }
            if !partial.exists() {
                // Killed before there was anything.
                continue;
            }
            let output = Command::new(program("rtscope")?)
                .args(["record", "--json", "--recover"])
                .arg(&part)
                .output()?;
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            if !output.status.success() {
                verdict.fault(
                    "recover",
                    format!("{} is not recovered ({}): {words}", self.name(), output.status),
                );
                continue;
            }
            let text = String::from_utf8_lossy(&output.stdout);
            summaries.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        Ok(summaries)
    }
}

impl Drop for Recorders<'_> {
    fn drop(&mut self) {
        for child in self.runs.iter_mut().filter_map(|run| run.child.as_mut()) {
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs `rtscope watch --json` and reads its output.
//!
//! The output is JSON, so that the demo can check it, and the demo prints what rtscope prints for people: the same objects
//! through the same code.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::summary::Report;
use rtscope_event::{LateResponse, Names};
use rtscope_testkit::late::Iteration;
use rtscope_testkit::process::{PATIENCE, read_lines};
use rtscope_view::Style;
use serde::Deserialize;
use serde_json::Value;

/// Late responses and explanations shown per phase; all are checked.
const SHOWN: usize = 1;

/// What rtscope reported in a phase.
#[derive(Debug)]
pub struct Observations {
    pub report: Report,
    pub explanations: Vec<Explanation>,
    /// Thread and origin of every late response.
    pub late: Vec<Iteration>,
}

/// A running `rtscope watch`. Dropping it kills the program.
#[derive(Debug)]
pub struct Watch {
    child: Child,
    lines: Receiver<Value>,
    explanations: Vec<Explanation>,
    report: Option<Report>,
    late: Vec<Iteration>,
    quiet: bool,
}

impl Watch {
    /// Starts watching the control loop, and returns when rtscope is attached.
    pub fn start(rtscope: &Path, snapshots: &Path, duration: Duration, quiet: bool) -> Result<Self> {
        let mut command = Command::new(rtscope);
        command.args(["watch", "response", "--task", "control*", "--threshold", "500us", "--end", "blocked"]);
        command.arg("--snapshot-dir").arg(snapshots).arg("--json");
        // Only so that it ends if this program is killed.
        command.arg("--duration").arg(format!("{}s", (duration + PATIENCE).as_secs()));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", rtscope.display()))?;
        let lines = read_lines(&mut child)?;
        let mut watch =
            Watch { child, lines, explanations: Vec::new(), report: None, late: Vec::new(), quiet };
        watch.wait_until_watching()?;
        Ok(watch)
    }

    fn wait_until_watching(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.take(&line)?;
                    if kind(&line) == "start" {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("rtscope watch did not report that it is watching"),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    bail!("rtscope watch ended at once ({status}); the reason is above");
                }
            }
        }
    }

    /// Reads and shows lines until a moment.
    pub fn listen_until(&mut self, end: Instant) -> Result<()> {
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(&line)?,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => bail!("rtscope watch ended too early"),
            }
        }
    }

    /// Ends rtscope as Ctrl-C does, and reads the rest of its lines.
    pub fn stop(mut self) -> Result<Observations> {
        let pid = i32::try_from(self.child.id()).context("process id")?;
        kill(Pid::from_raw(pid), Signal::SIGINT).context("SIGINT to rtscope watch")?;
        let status = self.read_to_end()?;
        if !status.success() {
            bail!("rtscope watch ended with {status}");
        }
        let report = self.report.take().ok_or_else(|| anyhow!("rtscope watch printed no summary"))?;
        Ok(Observations {
            report,
            explanations: std::mem::take(&mut self.explanations),
            late: std::mem::take(&mut self.late),
        })
    }

    fn read_to_end(&mut self) -> Result<ExitStatus> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(&line)?,
                Err(RecvTimeoutError::Timeout) => bail!("rtscope watch does not end on SIGINT"),
                Err(RecvTimeoutError::Disconnected) => return Ok(self.child.wait()?),
            }
        }
    }

    fn take(&mut self, line: &Value) -> Result<()> {
        match kind(line) {
            "late" => {
                let late: LateResponse = read(line)?;
                self.late.push((late.tid.0.into(), late.chain.origin.time_ns.0));
                let text = rtscope_view::late_line(&late, &Names::default(), None, Style::default());
                self.show(self.late.len() <= SHOWN, &text);
            }
            "explanation" => {
                let explanation: Explanation = read(line)?;
                let text = rtscope_view::explanation_text(&explanation, Style::default());
                self.explanations.push(explanation);
                self.show(self.explanations.len() <= SHOWN, &text);
            }
            "summary" => {
                let report: Report = read(line)?;
                self.show(true, &rtscope_view::summary_text(&report, Style::default()));
                self.report = Some(report);
            }
            _ => {}
        }
        Ok(())
    }

    fn show(&self, wanted: bool, text: &str) {
        if wanted && !self.quiet {
            text.trim_end().lines().for_each(|line| println!("    {line}"));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Both fail only for a program that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kind(line: &Value) -> &str {
    line.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn read<T: for<'a> Deserialize<'a>>(line: &Value) -> Result<T> {
    T::deserialize(line)
        .with_context(|| format!("rtscope printed a line that does not fit its types: {line}"))
}

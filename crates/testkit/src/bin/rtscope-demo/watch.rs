// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs `rtscope watch --json` and reads what it says.
//!
//! What the demo needs of its lines, each a JSON object with a `type`:
//!
//! - `watching`: everything is attached; a target that starts now misses nothing.
//! - `late`: a late response, when it happens.
//! - `explanation`: one of them explained: `origin_ns`, `response_ns` and `culprits`, a list of
//!   `{kind, name, tid, ns}` with the largest first. Kinds are `thread`, `softirq`, `irq` and others.
//! - `summary`: at the end, with `late`, the number of late responses.
//!
//! A `text` in an object is what people read instead of it; the demo shows that.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::process::{PATIENCE, read_lines};
use serde_json::Value;

/// Late responses and explanations shown per phase; the rest is only counted.
const SHOWN: usize = 2;

/// Somebody who ran while the target waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub kind: String,
    pub name: String,
    pub tid: Option<i64>,
    pub ns: u64,
}

/// An explained late response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub origin_ns: u64,
    pub response_ns: u64,
    /// The largest first.
    pub culprits: Vec<Named>,
}

/// What rtscope said in a phase.
#[derive(Debug, Default)]
pub struct Observations {
    pub late: u64,
    pub explanations: Vec<Explanation>,
}

/// A running `rtscope watch`. Dropping it kills the program.
#[derive(Debug)]
pub struct Watch {
    child: Child,
    lines: Receiver<Value>,
    explanations: Vec<Explanation>,
    summary: Option<Value>,
    late_lines: usize,
    quiet: bool,
}

impl Watch {
    /// Starts watching the control loop, and returns when rtscope is attached.
    pub fn start(rtscope: &Path, snapshots: &Path, duration: Duration, quiet: bool) -> Result<Self> {
        let mut command = Command::new(rtscope);
        command.args(["watch", "response", "--task", "control*", "--threshold", "500us", "--end", "blocked"]);
        command.arg("--snapshot-dir").arg(snapshots).arg("--json");
        // Only so that it ends by itself if this program is killed.
        command.arg("--duration").arg(format!("{}s", (duration + PATIENCE).as_secs()));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", rtscope.display()))?;
        let lines = read_lines(&mut child)?;
        let mut watch = Watch { child, lines, explanations: Vec::new(), summary: None, late_lines: 0, quiet };
        watch.wait_until_watching()?;
        Ok(watch)
    }

    fn wait_until_watching(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.take(&line)?;
                    if kind(&line) == "watching" {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("rtscope watch did not say that it is watching"),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    bail!("rtscope watch ended at once ({status}); it says why above");
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
        let summary = self.summary.take().ok_or_else(|| anyhow!("rtscope watch printed no summary"))?;
        Ok(Observations {
            late: number(&summary, "late")?,
            explanations: std::mem::take(&mut self.explanations),
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
        let show = match kind(line) {
            "late" => {
                self.late_lines += 1;
                self.late_lines <= SHOWN
            }
            "explanation" => {
                self.explanations.push(explanation(line)?);
                self.explanations.len() <= SHOWN
            }
            "summary" => {
                self.summary = Some(line.clone());
                true
            }
            _ => true,
        };
        if show && !self.quiet {
            println!("{}", text(line));
        }
        Ok(())
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

/// What people read: the line's text, or the line itself.
fn text(line: &Value) -> String {
    let text = line.get("text").and_then(Value::as_str).or(line.as_str());
    let text = text.map_or_else(|| line.to_string(), str::to_owned);
    text.trim_end().lines().map(|l| format!("    {l}")).collect::<Vec<_>>().join("\n")
}

fn number(object: &Value, key: &str) -> Result<u64> {
    object
        .get(key)
        .and_then(Value::as_u64)
        .ok_or_else(|| anyhow!("rtscope's line has no number '{key}': {object}"))
}

fn word(object: &Value, key: &str) -> String {
    object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn explanation(line: &Value) -> Result<Explanation> {
    let list = line.get("culprits").and_then(Value::as_array);
    let list = list.ok_or_else(|| anyhow!("rtscope's explanation has no list 'culprits': {line}"))?;
    let named = |c: &Value| -> Result<Named> {
        let tid = c.get("tid").and_then(Value::as_i64);
        Ok(Named { kind: word(c, "kind"), name: word(c, "name"), tid, ns: number(c, "ns")? })
    };
    Ok(Explanation {
        origin_ns: number(line, "origin_ns")?,
        response_ns: number(line, "response_ns")?,
        culprits: list.iter().map(named).collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn explanations_are_read() {
        let line = json!({"type": "explanation", "origin_ns": 5, "response_ns": 10,
            "culprits": [{"kind": "thread", "name": "hog", "tid": 7, "ns": 8}, {"kind": "irq", "name": "eth0", "ns": 1}]});
        let read = explanation(&line).expect("complete");
        assert_eq!((read.origin_ns, read.response_ns), (5, 10));
        assert_eq!(
            read.culprits[0],
            Named { kind: "thread".into(), name: "hog".into(), tid: Some(7), ns: 8 }
        );
        assert!(explanation(&json!({"origin_ns": 5})).is_err());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the real `rtscope` and reads its output.
//!
//! A test waits for a line or a note, with one generous deadline. All output is retained, so that a test can ask later for what
//! came earlier.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::summary::Report;
use rtscope_event::LateResponse;
use serde::Deserialize;
use serde_json::Value;

use crate::process::{patience, program, read_lines};

/// A running `rtscope`. Dropping it kills the program.
#[derive(Debug)]
pub struct Rtscope {
    child: Child,
    output: Receiver<Value>,
    errors: Receiver<String>,
    received: WatchOutput,
}

/// What rtscope has printed, so far or in all.
#[derive(Debug, Default)]
pub struct WatchOutput {
    /// Lines of standard output: JSON, or strings.
    pub lines: Vec<Value>,
    /// Lines of standard error.
    pub notes: Vec<String>,
    /// Once it has ended.
    pub status: Option<ExitStatus>,
}

/// Only so that it ends if the test is killed.
const LIMIT: &str = "300s";

/// `rtscope watch response --json ARGUMENTS`, with a limit of its time unless they have one.
pub fn watch_command<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Command> {
    let mut command = Command::new(program("rtscope")?);
    command.args(["watch", "response", "--json"]);
    if !arguments.iter().any(|argument| argument.as_ref() == "--duration") {
        command.args(["--duration", LIMIT]);
    }
    command.args(arguments);
    Ok(command)
}

impl Rtscope {
    /// Starts [`watch_command`], and returns when it watches.
    pub fn watch<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Rtscope> {
        let mut rtscope = Rtscope::start(watch_command(arguments)?)?;
        rtscope.wait_for_type("start")?;
        Ok(rtscope)
    }

    /// Starts rtscope with any command line.
    pub fn start(mut command: Command) -> Result<Rtscope> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start rtscope")?;
        let output = read_lines(&mut child)?;
        let stderr = child.stderr.take().context("its errors were asked for as a pipe")?;
        let (sender, errors) = channel();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Rtscope { child, output, errors, received: WatchOutput::default() })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The lines and notes up to those that were waited for.
    pub fn received(&self) -> &WatchOutput {
        &self.received
    }

    /// The next line of this type.
    pub fn wait_for_type(&mut self, kind: &str) -> Result<Value> {
        self.wait_for(kind, |line| type_of(line) == kind)
    }

    /// The next line for which `is_it` holds; `what` names it in the error.
    pub fn wait_for(&mut self, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Result<Value> {
        let end = Instant::now() + patience();
        loop {
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.received.lines.push(line.clone());
                    if is_it(&line) {
                        return Ok(line);
                    }
                }
                Err(error) => return self.missing(what, error),
            }
        }
    }

    /// Takes the lines that have come since the last wait. They are not retained: a long watch prints more than fits into memory.
    pub fn take_lines(&mut self) -> Vec<Value> {
        self.output.try_iter().collect()
    }

    /// A note with these words: one that has come, or the next one that comes.
    pub fn wait_for_note(&mut self, words: &str) -> Result<String> {
        if let Some(note) = self.received.notes.iter().find(|note| note.contains(words)) {
            return Ok(note.clone());
        }
        let end = Instant::now() + patience();
        loop {
            match self.errors.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(note) => {
                    self.received.notes.push(note.clone());
                    if note.contains(words) {
                        return Ok(note);
                    }
                }
                Err(error) => return self.missing(words, error),
            }
        }
    }

    /// What is known of a watch that does not end: where its threads are, or who else has its output.
    fn hangs(&mut self) -> String {
        self.received.notes.extend(self.errors.try_iter());
        let lines: Vec<&str> = self.received.lines.iter().map(type_of).collect();
        let is_over = self.child.try_wait().is_ok_and(|status| status.is_some());
        let threads = if is_over {
            "it has, and another process has its output".to_owned()
        } else {
            threads(self.pid())
        };
        format!("rtscope does not end: {threads}; its notes: {:?}; its lines: {lines:?}", self.received.notes)
    }

    fn missing<T>(&mut self, what: &str, error: RecvTimeoutError) -> Result<T> {
        self.received.notes.extend(self.errors.try_iter());
        let how = if error == RecvTimeoutError::Timeout {
            "did not print in time"
        } else {
            "ended without printing"
        };
        bail!("rtscope {how}: {what}; its notes: {:?}", self.received.notes)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.pid())?), signal).context("signal to rtscope")
    }

    /// Closes this end of its standard output.
    pub fn close_output(&mut self) {
        self.output = channel().1;
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(self) -> Result<WatchOutput> {
        self.signal(Signal::SIGINT)?;
        self.finish()
    }

    /// Waits until it ends, and returns all that it printed.
    pub fn finish(mut self) -> Result<WatchOutput> {
        let end = Instant::now() + patience();
        loop {
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.received.lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("{}", self.hangs()),
            }
        }
        // COMMAND may outlive rtscope and hold its standard error open; but all notes of rtscope have come by now.
        self.received.status = Some(self.child.wait()?);
        while let Ok(note) = self.errors.recv_timeout(std::time::Duration::from_millis(200)) {
            self.received.notes.push(note);
        }
        Ok(std::mem::take(&mut self.received))
    }
}

impl Drop for Rtscope {
    fn drop(&mut self) {
        // Both fail only for a program that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The threads of a process: name, state, and the function of the kernel and the system call in which each is.
fn threads(pid: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return "it is gone".to_owned() };
    let of = |task: std::fs::DirEntry| {
        let text = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let state =
            text("stat").rsplit(") ").next().and_then(|rest| rest.split(' ').next().map(str::to_owned));
        let call = text("syscall").split(' ').next().map(str::to_owned);
        format!(
            "{} {} {} {}",
            text("comm").trim(),
            state.unwrap_or_default(),
            text("wchan"),
            call.unwrap_or_default().trim()
        )
    };
    tasks.flatten().map(of).collect::<Vec<_>>().join(", ")
}

fn type_of(line: &Value) -> &str {
    line.get("type").and_then(Value::as_str).unwrap_or_default()
}

impl WatchOutput {
    /// Its exit code; `None` when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Whether a note has these words.
    pub fn noted(&self, words: &str) -> bool {
        self.notes.iter().any(|note| note.contains(words))
    }

    /// All lines of a type.
    pub fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| type_of(line) == kind).collect()
    }

    /// The late responses.
    pub fn late(&self) -> Result<Vec<LateResponse>> {
        self.read("late")
    }

    /// The explanations.
    pub fn explanations(&self) -> Result<Vec<Explanation>> {
        self.read("explanation")
    }

    /// The summary.
    pub fn report(&self) -> Result<Report> {
        self.read("summary")?.pop().with_context(|| format!("rtscope printed no summary: {:?}", self.notes))
    }

    /// Switches that the host hid, as the summaries count them: the same ones for each instance.
    pub fn hidden_switches(&self) -> u64 {
        let hidden = |summary: &&Value| -> u64 {
            let losses = summary["losses"].as_array().into_iter().flatten();
            losses.filter(|loss| loss["cause"] == "gap").filter_map(|loss| loss["count"].as_u64()).sum()
        };
        self.of_type("summary").iter().map(hidden).max().unwrap_or(0)
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, kind: &str) -> Result<Vec<T>> {
        let read =
            |line: &Value| T::deserialize(line).with_context(|| format!("it does not fit its type: {line}"));
        self.of_type(kind).into_iter().map(read).collect()
    }
}

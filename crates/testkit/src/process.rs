// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the workloads, for tests and for the demo.
//!
//! Nothing here sleeps and hopes: a test waits for the line in which the program reports that it is ready, with one generous
//! deadline, after which the program counts as broken.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// How long a program may take to get ready, or to end, before it counts as broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// [`PATIENCE`], or more where the CPUs are emulated, and other tests run on what emulates them.
pub fn patience() -> Duration {
    if crate::machine::is_emulated() { PATIENCE * 10 } else { PATIENCE }
}

/// The path of one of this workspace's programs, from the same build as the running program.
///
/// `env!("CARGO_BIN_EXE_...")` only works inside the package that owns the program; this works everywhere.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = build_directory()?.join(name);
    if !path.is_file() {
        bail!("{} is not built; ./x build makes it (or: cargo build --workspace)", path.display());
    }
    Ok(path)
}

/// The directory of the build that the running program is from.
pub(crate) fn build_directory() -> Result<PathBuf> {
    let running = env::current_exe().context("path of the running program")?;
    let directory =
        built_in(&running).with_context(|| format!("{} is not in a directory", running.display()))?;
    Ok(directory.to_owned())
}

/// `target/debug` for both `target/debug/rtscope-demo` and the test `target/debug/deps/catch-0123abcd`.
fn built_in(program: &Path) -> Option<&Path> {
    let directory = program.parent()?;
    let is_inner = directory.ends_with("deps") || directory.ends_with("examples");
    if is_inner { directory.parent() } else { Some(directory) }
}

/// Waits until something is so, with the deadline that all have.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + patience();
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A running workload. Dropping it kills the program.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    name: String,
    lines: Receiver<Value>,
    ready: Value,
}

/// A workload that has ended, with all that it printed.
#[derive(Debug)]
pub struct WorkloadOutput {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its `{"ready":true,...}` line.
    pub ready: Value,
    /// All lines after it.
    pub lines: Vec<Value>,
}

impl Workload {
    /// Starts one of this package's programs and returns when it reports that it is ready.
    pub fn start<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(name: &str, arguments: I) -> Result<Self> {
        let mut command = Command::new(program(name)?);
        command.args(arguments);
        Self::start_command(name, command)
    }

    /// The same for any command that prints JSON lines and keeps the manners of this package.
    pub fn start_command(name: &str, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let lines = read_lines(&mut child)?;
        let mut workload = Workload { child, name: name.to_owned(), lines, ready: Value::Null };
        match workload.lines.recv_timeout(patience()) {
            Ok(line) if line.get("ready") == Some(&Value::Bool(true)) => workload.ready = line,
            Ok(line) => bail!("{name}: its first line is not the ready line: {line}"),
            Err(RecvTimeoutError::Timeout) => bail!("{name} was not ready after {:?}", patience()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = workload.child.wait()?;
                bail!("{name} ended before it was ready ({status}); the reason is above");
            }
        }
        Ok(workload)
    }

    /// The ready line.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its input.
    pub fn tell(&mut self, bytes: &[u8]) -> Result<()> {
        let input = self.child.stdin.as_mut().context("its input is a pipe")?;
        input.write_all(bytes).and_then(|()| input.flush()).with_context(|| self.name.clone())
    }

    /// Asks the program to stop by closing its input, and collects what it prints.
    pub fn stop(mut self) -> Result<WorkloadOutput> {
        drop(self.child.stdin.take());
        self.collect()
    }

    /// Waits until the program ends (`--duration`), and collects what it prints.
    pub fn finish(mut self) -> Result<WorkloadOutput> {
        self.collect()
    }

    fn collect(&mut self) -> Result<WorkloadOutput> {
        let mut lines = Vec::new();
        let end = Instant::now() + patience();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("{} did not end within {:?}", self.name, patience()),
            }
        }
        let status = self.child.wait()?;
        Ok(WorkloadOutput { status, ready: self.ready.take(), lines })
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // Both fail only for a program that has ended and was waited for: nothing to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl WorkloadOutput {
    /// All values that are printed under `key`, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter_map(move |line| line.get(key))
    }

    /// The first summary.
    pub fn summary(&self) -> Result<&Value> {
        self.all("summary").next().ok_or_else(|| anyhow!("no summary line ({})", self.status))
    }
}

/// A child process that is killed when this is dropped, so that it never outlives a test that fails.
#[derive(Debug)]
pub struct KilledWithTest(Option<Child>);

impl KilledWithTest {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Result<KilledWithTest> {
        let child = command
            .spawn()
            .with_context(|| format!("{} does not start", command.get_program().to_string_lossy()))?;
        Ok(KilledWithTest(Some(child)))
    }

    /// Waits until it ends, and gives what it printed.
    pub fn wait_with_output(mut self) -> Result<Output> {
        let child = self.0.take().context("it is there until this is dropped")?;
        Ok(child.wait_with_output()?)
    }
}

impl Deref for KilledWithTest {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("it is there until this is dropped")
    }
}

impl DerefMut for KilledWithTest {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is there until this is dropped")
    }
}

impl Drop for KilledWithTest {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail only for a process that has ended and was waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The lines of a program's standard output as they come. A thread reads them, so that a full pipe never blocks the
/// program; a line that is not JSON comes as a string.
pub fn read_lines(child: &mut Child) -> Result<Receiver<Value>> {
    let stdout = child.stdout.take().context("its output was asked for as a pipe")?;
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            if sender.send(value).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_beside_the_tests_that_use_them() {
        for (running, directory) in
            [("/t/debug/deps/catch-01", "/t/debug"), ("/t/release/rtscope-demo", "/t/release")]
        {
            assert_eq!(built_in(Path::new(running)), Some(Path::new(directory)));
        }
        let error = program("rtscope-never-built").map(|_| ()).expect_err("it does not exist");
        assert!(error.to_string().contains("./x build"), "{error}");
    }

    #[test]
    fn a_program_that_ends_early_is_an_error_and_not_a_wait() {
        let error =
            Workload::start_command("false", Command::new("false")).map(|_| ()).expect_err("no ready line");
        assert!(error.to_string().contains("ended before it was ready"), "{error}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes that run for a while: started, waited for by what they print, ended by a signal.

use crate::Error;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use rtscope_cpus::{Affinity, Cpus, Thread};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Time between two polls of a child.
const TICK: Duration = Duration::from_millis(5);
/// A child that does not end in this time after its signal is killed.
const PATIENCE: Duration = Duration::from_secs(30);
/// At most this many lines that a child prints are retained.
const LINES_MAX: usize = 1000;

/// A child process. Dropped, it is ended.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl ChildProcess {
    /// Starts it. Its standard error is read here; of standard output the caller decides before. It has a separate process
    /// group, so that a Ctrl-C on the terminal does not reach it, and ends with the thread that starts it. `cpus`: where it may run.
    pub fn start(command: &mut Command, remedy: &str, cpus: Option<&Cpus>) -> Result<ChildProcess, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        // Made here, since the child cannot allocate it.
        let affinity = cpus.map(Affinity::new);
        let before_exec = move || {
            set_pdeathsig(Signal::SIGTERM)?;
            // A script that runs rtscope in the background makes it ignore this signal, and children inherit that; `end` sends it.
            // SAFETY: the default action is not a function.
            unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) }?;
            affinity.as_ref().map_or(Ok(()), |affinity| affinity.apply(Thread::Calling))?;
            Ok(())
        };
        // SAFETY: between fork and exec only three system calls are made, and no memory is allocated: nix's errors are numbers.
        unsafe { command.pre_exec(before_exec) };
        let mut child = command.spawn().map_err(|error| not_started(&name, remedy, &error))?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let reader = child.stderr.take().map(|stderr| {
            let said = Arc::clone(&said);
            spawn(move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    let mut said = lines(&said);
                    if said.len() < LINES_MAX {
                        said.push(String::from_utf8_lossy(&line).into_owned());
                    }
                }
            })
        });
        Ok(ChildProcess { name, child, said, reader })
    }

    /// Its process number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines that it has printed on standard error.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        lines(&self.said).clone()
    }

    /// Waits until `fact` holds; an error when the child ends before, or `stop` says so.
    pub fn until(
        &mut self,
        what: &str,
        stop: &dyn Fn() -> bool,
        mut fact: impl FnMut(&ChildProcess) -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            if fact(self) {
                return Ok(());
            }
            if stop() {
                return Err(Error::Stopped);
            }
            if let Some(status) = self.ended()? {
                self.join_reader();
                // What it said last may have been the fact.
                if fact(self) {
                    return Ok(());
                }
                return Err(Error::Failed(format!(
                    "{} ended with {status}: {}",
                    self.name,
                    self.last_words()
                )));
            }
            if start.elapsed() > PATIENCE {
                return Err(Error::Failed(format!(
                    "{}: waited in vain until {what}: {}",
                    self.name,
                    self.last_words()
                )));
            }
            sleep(TICK);
        }
    }

    /// Its status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child.try_wait().map_err(|error| Error::doing(format!("waiting for {}", self.name), error))
    }

    /// Waits for its own end; after `stop` it gets an interrupt first.
    pub fn wait(&mut self, stop: &dyn Fn() -> bool) -> Result<ExitStatus, Error> {
        loop {
            if let Some(status) = self.ended()? {
                self.join_reader();
                return Ok(status);
            }
            if stop() {
                self.end(Signal::SIGINT)?;
                return Err(Error::Stopped);
            }
            sleep(TICK);
        }
    }

    /// Asks it to end, and waits; it is killed when it does not.
    pub fn end(&mut self, signal: Signal) -> Result<ExitStatus, Error> {
        let start = Instant::now();
        let mut asked = None;
        loop {
            if let Some(status) = self.ended()? {
                self.join_reader();
                return Ok(status);
            }
            let wanted = if start.elapsed() > PATIENCE { Signal::SIGKILL } else { signal };
            if asked != Some(wanted) {
                // It may have ended in between: nothing to do then.
                let _ = i32::try_from(self.child.id()).map(|pid| kill(Pid::from_raw(pid), wanted));
                asked = Some(wanted);
            }
            sleep(TICK);
        }
    }

    /// The end of what it said, in one line.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_words(&self.said().join("\n"))
    }

    fn join_reader(&mut self) {
        // A grandchild may hold the pipe open: what was said so far is enough then.
        let start = Instant::now();
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) {
            if start.elapsed() > Duration::from_millis(500) {
                return;
            }
            sleep(TICK);
        }
        if let Some(reader) = self.reader.take() {
            // It panicked: then there are no lines.
            let _ = reader.join();
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It cannot be asked any more: nothing to do then.
        let _ = self.end(Signal::SIGTERM);
    }
}

fn lines(said: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command to its end, which has to be a good one. A Ctrl-C on the terminal is not for it: it may be one that tidies up.
pub fn finished(command: &mut Command, remedy: &str) -> Result<Output, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let command = command.stdin(Stdio::null()).process_group(0);
    let output = command.output().map_err(|error| not_started(&name, remedy, &error))?;
    if output.status.success() {
        return Ok(output);
    }
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    Err(Error::Failed(format!("{name} {}: {}: {}", words.join(" "), output.status, last_words(&said))))
}

fn not_started(name: &str, remedy: &str, error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::Missing { program: name.to_string(), remedy: remedy.to_string() };
    }
    Error::doing(format!("starting {name}"), error)
}

/// The last lines that say something.
fn last_words(said: &str) -> String {
    let mut lines: Vec<&str> =
        said.lines().map(str::trim).filter(|line| !line.is_empty()).rev().take(6).collect();
    lines.reverse();
    if lines.is_empty() { "it said nothing".to_string() } else { lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_missing_with_its_remedy() {
        let error = finished(&mut Command::new("rtscope-none"), "apt install none").expect_err("not there");
        assert_eq!(
            (error.to_string().as_str(), error.remedy()),
            ("rtscope-none is not installed", Some("apt install none"))
        );
    }

    #[test]
    fn a_command_is_not_in_the_group_that_a_terminal_interrupts() {
        // pid (name) state parent group
        let output = finished(Command::new("cat").arg("/proc/self/stat"), "").expect("cat is there");
        let stat = String::from_utf8_lossy(&output.stdout).into_owned();
        let fields: Vec<&str> = stat.split(' ').collect();
        assert_eq!(fields[0], fields[4], "it leads a separate group: {stat}");
    }

    #[test]
    fn what_failed_says_its_last_words() {
        let error = finished(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"]), "");
        let text = error.expect_err("3 is no success").to_string();
        assert!(text.contains("exit status: 3") && text.contains("two"), "{text}");
    }

    #[test]
    fn a_child_is_waited_for_by_what_it_says_and_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'echo bye >&2; exit 0' INT; echo ready >&2; while :; do sleep 0.01; done"]);
        let mut child = ChildProcess::start(&mut command, "", None).expect("sh is there");
        let ready = |child: &ChildProcess| child.said().iter().any(|line| line == "ready");
        child.until("it is ready", &|| false, ready).expect("it says so");
        assert!(child.ended().expect("it can be asked").is_none());
        assert!(child.end(Signal::SIGINT).expect("it ends").success());
        assert_eq!(child.said(), ["ready", "bye"]);
    }

    #[test]
    fn a_child_that_ends_too_early_is_said_with_its_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such thing >&2; exit 4"]);
        let mut child = ChildProcess::start(&mut command, "", None).expect("sh is there");
        let text = child.until("never", &|| false, |_| false).expect_err("it ended").to_string();
        assert!(text.contains("exit status: 4") && text.contains("no such thing"), "{text}");
    }
}

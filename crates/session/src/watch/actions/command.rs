// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a command for each detection, with its record on standard input.
//!
//! At most a few run at once; a detection that finds all places taken is counted, and not queued: a command that comes minutes late
//! says nothing about now. The record is in a file in memory and not in a pipe, so that a command which reads slowly, or never, keeps
//! nobody waiting. A command inherits our CPUs, which are apart from those of the targets, and none of our descriptors.

use crate::watch::rates::UserRates;
use crate::{Failure, Observer, command};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid};
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Commands that run at once.
const AT_ONCE: usize = 4;
/// How long those that run at the end of the watch have until they are killed.
const GRACE_NS: u64 = 2_000_000_000;
/// For how long after its end a command is remembered: that a watch is told of what it has done may take as long.
const MEMORY_NS: u64 = 5_000_000_000;
/// Between two looks at a command of which the kernel gives no descriptor.
const LOOK_MS: u16 = 50;

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandAction {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The least time between two runs.
    pub interval_ns: u64,
}

/// The words of a command: a JSON array of strings is run as it is, anything else by `/bin/sh -c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandWords(pub Vec<OsString>);

impl FromStr for CommandWords {
    type Err = String;

    fn from_str(text: &str) -> Result<CommandWords, String> {
        if !text.trim_start().starts_with('[') {
            return match text.trim() {
                "" => Err("a command is missing".to_string()),
                _ => Ok(CommandWords(["/bin/sh", "-c", text].map(OsString::from).into())),
            };
        }
        let words: Vec<String> = serde_json::from_str(text)
            .map_err(|error| format!("'{text}' is not a JSON array of strings: {error}"))?;
        match words.first() {
            None => Err("a command is missing".to_string()),
            Some(_) if words.iter().any(|word| word.contains('\0')) => {
                Err("a word of the command contains a NUL byte".to_string())
            }
            Some(_) => Ok(CommandWords(words.into_iter().map(OsString::from).collect())),
        }
    }
}

/// What became of the command. Each detection is in one of `begun`, `not_started` and the three of `suppressed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandCounts {
    /// Times that it was started.
    pub begun: u64,
    /// Of these: those that ended with a status other than 0, or by a signal of others.
    pub failed: u64,
    /// Of these: those that were killed with the watch.
    pub killed: u64,
    /// Times that it could not be started.
    pub not_started: u64,
    /// Detections without a run, since a command of the watch itself was late: it would have itself run again and again.
    pub suppressed_own: u64,
    /// Detections without a run, since as many as may run at once did.
    pub suppressed_busy: u64,
    /// Detections without a run, as the last was too short a time ago.
    pub suppressed_rate: u64,
}

/// On whose account a command is run (`rates`).
type Account = Option<u32>;

#[derive(Debug)]
struct State {
    waiting: Vec<(Account, String)>,
    /// Of those that wait and those that run.
    places: Vec<Account>,
    rates: UserRates,
    is_ending: bool,
    /// Process groups of commands, and when each has ended, if it has. At most one of them begins in each interval, and four run at once.
    own: Vec<(Pid, Option<MonotonicNs>)>,
    counts: CommandCounts,
}

impl State {
    fn new(interval_ns: u64) -> State {
        State {
            waiting: Vec::new(),
            places: Vec::new(),
            rates: UserRates::new(interval_ns),
            is_ending: false,
            own: Vec::new(),
            counts: CommandCounts::default(),
        }
    }

    /// One user may have half of the places: commands may take longer than the interval.
    fn has_place(&self, account: Account) -> bool {
        let own = self.places.iter().filter(|one| **one == account).count();
        self.places.len() < AT_ONCE && (account.is_none() || own < AT_ONCE / 2)
    }

    fn leave(&mut self, account: Account) {
        let place = self.places.iter().position(|one| *one == account);
        if let Some(place) = place {
            self.places.swap_remove(place);
        }
    }

    fn is_own(&mut self, pid: Pid, now: MonotonicNs) -> bool {
        self.own.retain(|(_, ended)| ended.is_none_or(|ended| now.since(ended) < MEMORY_NS));
        // Of a process that has gone, no group is known: then only the command itself is.
        let group = getpgid(Some(pid)).unwrap_or(pid);
        self.own.iter().any(|(own, _)| *own == group || *own == pid)
    }

    fn has_ended(&mut self, (account, pid): (Account, Pid)) {
        let now = monotonic_now();
        let ended = self.own.iter_mut().filter(|(own, ended)| *own == pid && ended.is_none());
        ended.for_each(|(_, ended)| *ended = Some(now));
        self.leave(account);
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: EventFd,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that starts commands and waits for them. It lives as long as they do: the kernel kills them with it.
#[derive(Debug)]
pub struct Runner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Runner {
    /// Nothing is run yet.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(action: &CommandAction, observer: Arc<dyn Observer>) -> Result<Runner, Failure> {
        let failed = |error: io::Error| Failure::doing("preparing to run commands", error);
        command::keep_ends_of_children().map_err(|error| failed(error.into()))?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared { state: Mutex::new(State::new(action.interval_ns)), wake });
        let worker = Worker {
            shared: Arc::clone(&shared),
            observer,
            words: action.words.clone(),
            running: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("rtscope-actions".to_string())
            .spawn(move || worker.work())
            .map_err(failed)?;
        Ok(Runner { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Has the command run with this record of what was late in a process, on this account, if there is a place and its last run is long enough ago. Does not
    /// wait.
    pub fn give(
        &self,
        (account, of): (Account, rtscope_event::Pid),
        record: impl FnOnce() -> Option<String>,
    ) {
        let mut state = self.shared.state();
        let now = monotonic_now();
        if i32::try_from(of.0).is_ok_and(|pid| pid > 0 && state.is_own(Pid::from_raw(pid), now)) {
            state.counts.suppressed_own += 1;
        } else if !state.rates.admits(account, now) {
            state.counts.suppressed_rate += 1;
        } else if !state.has_place(account) || state.is_ending {
            state.counts.suppressed_busy += 1;
        } else if let Some(record) = record() {
            state.places.push(account);
            state.rates.taken(account, now);
            state.waiting.push((account, record));
            // Full means that the thread will wake anyhow.
            let _ = self.shared.wake.write(1);
        }
    }

    /// So far.
    pub fn counts(&self) -> CommandCounts {
        self.shared.state().counts.clone()
    }

    /// Waits for those that run, for a while, and kills the rest.
    pub fn end(&self) {
        self.shared.state().is_ending = true;
        let _ = self.shared.wake.write(1);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It panicked: its message is on standard error already.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.end();
    }
}

struct Running {
    child: Child,
    account: Account,
    /// Its number, and that of its process group.
    pid: Pid,
    /// Can be read when it has ended.
    end: Option<OwnedFd>,
}

impl Running {
    fn of(child: Child, account: Account) -> Running {
        // A pid_t of the kernel's: it fits.
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        Running { child, account, pid, end: command::end_of(pid) }
    }

    fn kill_group(&self) {
        // It may have ended in between: until it is waited for, the number is its own.
        let _ = killpg(self.pid, Signal::SIGKILL);
    }

    /// How it ended, if it has; and its process group with it.
    fn ended(&mut self) -> Option<io::Result<ExitStatus>> {
        if !command::has_ended_unseen(self.pid) {
            return None;
        }
        self.kill_group();
        self.child.try_wait().transpose()
    }
}

struct Worker {
    shared: Arc<Shared>,
    observer: Arc<dyn Observer>,
    words: Vec<OsString>,
    running: Vec<Running>,
}

impl Worker {
    fn work(mut self) {
        let mut deadline = None;
        loop {
            let (waiting, is_ending) = {
                let mut state = self.shared.state();
                (std::mem::take(&mut state.waiting), state.is_ending)
            };
            waiting.iter().for_each(|(account, record)| self.begin(*account, record));
            self.reap();
            let now = monotonic_now();
            if is_ending {
                let until = *deadline.get_or_insert(now.plus(GRACE_NS));
                if self.running.is_empty() {
                    return;
                }
                if now >= until {
                    return self.kill();
                }
            }
            self.wait(deadline.map(|until: MonotonicNs| until.since(now)));
        }
    }

    /// Until one has ended, there is something to do, or this time is over.
    fn wait(&self, limit_ns: Option<u64>) {
        let ends = self.running.iter().filter_map(|running| running.end.as_ref());
        let mut all = vec![PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN)];
        all.extend(ends.map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)));
        let is_blind = self.running.iter().any(|running| running.end.is_none());
        let limit_ms = limit_ns.map(|ns| u16::try_from(ns / 1_000_000 + 1).unwrap_or(u16::MAX));
        let limit_ms = if is_blind { Some(limit_ms.map_or(LOOK_MS, |ms| ms.min(LOOK_MS))) } else { limit_ms };
        // Interrupted, it looks again.
        let _ = poll(&mut all, limit_ms.map_or(PollTimeout::NONE, PollTimeout::from));
        // Nothing to be read: it was one of the commands.
        let _ = self.shared.wake.read();
    }

    fn begin(&mut self, account: Account, record: &str) {
        match start(&self.words, record) {
            Ok(child) => {
                let running = Running::of(child, account);
                let mut state = self.shared.state();
                state.own.push((running.pid, None));
                state.counts.begun += 1;
                drop(state);
                self.running.push(running);
            }
            Err(error) => {
                let mut state = self.shared.state();
                state.leave(account);
                state.counts.not_started += 1;
                let is_first = state.counts.not_started == 1;
                drop(state);
                if is_first {
                    let name = self.words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
                    self.observer.note(&format!("cannot run {name} (--exec): {error}; watching goes on"));
                }
            }
        }
    }

    /// What a command has left in the background ends with it: it would be in nobody's place, and live for longer than the watch.
    fn reap(&mut self) {
        let shared = &self.shared;
        self.running.retain_mut(|running| match running.ended() {
            None => true,
            Some(ended) => {
                let mut state = shared.state();
                state.has_ended((running.account, running.pid));
                state.counts.failed += u64::from(!ended.is_ok_and(|status| status.success()));
                false
            }
        });
    }

    /// Each with what it has started, as far as that has stayed in its process group. What the kernel does not let die (it waits for a disk
    /// that does not answer) holds up the watch no longer than others may: it dies when the kernel lets it.
    fn kill(&mut self) {
        self.running.iter().for_each(Running::kill_group);
        let until = monotonic_now().plus(GRACE_NS);
        while !self.running.is_empty() {
            let is_over = monotonic_now() >= until;
            let (shared, observer) = (&self.shared, &self.observer);
            self.running.retain_mut(|running| {
                let ended = running.ended();
                if ended.is_none() && !is_over {
                    return true;
                }
                if ended.is_none() {
                    observer.note(&format!(
                        "the command with the process number {} (--exec) was killed and does not end: it waits in the kernel, and is left to it",
                        running.pid
                    ));
                }
                let mut state = shared.state();
                state.has_ended((running.account, running.pid));
                let has_succeeded = ended.is_some_and(|ended| ended.is_ok_and(|status| status.success()));
                state.counts.killed += u64::from(!has_succeeded);
                false
            });
            if !self.running.is_empty() {
                self.wait(Some(u64::from(LOOK_MS) * 1_000_000));
            }
        }
    }
}

/// The record, in a file in memory, from its beginning.
fn file_of(record: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"rtscope-record", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(record.as_bytes())?;
    file.write_all(b"\n")?;
    file.rewind()?;
    Ok(file)
}

fn start(words: &[OsString], record: &str) -> io::Result<Child> {
    let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(name);
    command.args(arguments).stdin(file_of(record)?).process_group(0);
    // Our standard output may be JSON for a program.
    command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
    let parent = std::process::id();
    // SAFETY: it makes system calls only, without memory of others or locks, as is allowed between fork and exec.
    unsafe { command.pre_exec(move || leave_nothing_behind(parent)) };
    command.spawn()
}

/// In the child: it dies with the thread that has started it, and takes no descriptor along but the first three.
fn leave_nothing_behind(parent: u32) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have died before that.
    if nix::unistd::getppid().as_raw().unsigned_abs() != parent {
        return Err(Errno::ESRCH.into());
    }
    // SAFETY: a system call without pointers; marks descriptors to be closed by exec, so that std's own stays usable until then.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    // Before Linux 5.11: ours are all opened so that exec closes them.
    match Errno::result(marked) {
        Ok(_) | Err(Errno::ENOSYS | Errno::EINVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::Pid as ProcessId;
    use std::path::Path;
    use std::time::{Duration, Instant};

    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Observer for Notes {
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_string());
        }
    }

    fn runner(text: &str, interval_ns: u64) -> (Runner, Arc<Notes>) {
        let notes = Arc::new(Notes::default());
        let action = CommandAction { words: text.parse::<CommandWords>().unwrap().0, interval_ns };
        let observer: Arc<dyn Observer> = Arc::clone(&notes) as _;
        (Runner::start(&action, observer).unwrap(), notes)
    }

    /// Nobody's.
    const OTHERS: ProcessId = ProcessId(0);

    fn wait_for(what: &str, mut is_it: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_it() {
            assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
            std::thread::yield_now();
        }
    }

    fn lives(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn words_are_an_array_or_for_the_shell() {
        let words_of = |text: &str| text.parse::<CommandWords>().map(|words| words.0);
        assert_eq!(words_of("logger -t x").unwrap(), ["/bin/sh", "-c", "logger -t x"]);
        assert_eq!(words_of(r#"["logger", "-t", "a b"]"#).unwrap(), ["logger", "-t", "a b"]);
        for wrong in ["", " ", "[]", "[1]", "[\"a\"", "[\"a\\u0000\"]"] {
            assert!(words_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_command_has_the_record_on_its_input_and_no_descriptor_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let (input, fds) = (dir.path().join("input"), dir.path().join("fds"));
        // One that would be inherited, as exec does not close it.
        let open = File::open("/dev/null").unwrap();
        nix::fcntl::fcntl(&open, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        // The shell keeps copies of what it redirects; `ls` has one of its own, for the directory.
        let text = format!("cat > {}; exec ls /proc/self/fd > {}", input.display(), fds.display());
        let (runner, _) = runner(&text, 0);
        // More than a pipe holds.
        let record = "x".repeat(200_000);
        runner.give((None, OTHERS), || Some(record.clone()));
        runner.end();
        assert_eq!(read(&input), record + "\n");
        assert_eq!(read(&fds), "0\n1\n2\n3\n");
        let counts = runner.counts();
        assert_eq!((counts.begun, counts.failed, counts.killed), (1, 0, 0));
    }

    #[test]
    fn so_many_run_at_once_and_the_rest_is_counted_and_what_hangs_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let text = format!("echo $$ >> {}; sleep 600 & wait", pids.display());
        let (runner, _) = runner(&text, 0);
        (0..AT_ONCE + 3).for_each(|_| runner.give((None, OTHERS), || Some(String::new())));
        wait_for("all of them run", || read(&pids).lines().count() == AT_ONCE);
        runner.end();
        let counts = runner.counts();
        let expected = CommandCounts {
            begun: AT_ONCE as u64,
            killed: AT_ONCE as u64,
            suppressed_busy: 3,
            ..CommandCounts::default()
        };
        assert_eq!(counts, expected);
        assert!(!read(&pids).lines().any(lives));
    }

    #[test]
    fn what_a_command_leaves_in_the_background_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left");
        let (runner, _) = runner(&format!("sleep 600 & echo $! > {}; exit 3", left.display()), 0);
        runner.give((None, OTHERS), || Some(String::new()));
        wait_for("it has ended", || runner.counts().failed == 1);
        wait_for("what it has left ends", || !lives(&read(&left)));
        runner.end();
        assert_eq!(runner.counts().killed, 0);
    }

    #[test]
    fn a_place_is_free_again_when_a_command_has_ended() {
        let (runner, _) = runner("exit 3", 0);
        for round in 1..=3 * AT_ONCE as u64 {
            runner.give((None, OTHERS), || Some(String::new()));
            wait_for("it has ended", || runner.counts().failed == round);
        }
        assert_eq!(runner.counts().suppressed_busy, 0);
    }

    #[test]
    fn the_rate_is_kept_and_what_it_suppresses_counted() {
        let (runner, _) = runner("true", 3_600_000_000_000);
        (0..10).for_each(|_| runner.give((None, OTHERS), || Some(String::new())));
        runner.end();
        assert_eq!((runner.counts().begun, runner.counts().suppressed_rate), (1, 9));
    }

    #[test]
    fn a_user_who_is_late_all_the_time_takes_no_runs_of_others() {
        let (first, _) = runner("true", 3_600_000_000_000);
        (0..10).for_each(|_| first.give((Some(1000), OTHERS), || Some(String::new())));
        first.give((Some(1001), OTHERS), || Some(String::new()));
        first.end();
        assert_eq!((first.counts().begun, first.counts().suppressed_rate), (2, 9));
        // Of commands that take long, half of the places.
        let (second, _) = runner("sleep 600", 0);
        (0..10).for_each(|_| second.give((Some(1000), OTHERS), || Some(String::new())));
        second.give((Some(1001), OTHERS), || Some(String::new()));
        second.end();
        assert_eq!((second.counts().begun, second.counts().suppressed_busy), (AT_ONCE as u64 / 2 + 1, 8));
    }

    #[test]
    fn what_cannot_be_started_is_told_once_and_counted() {
        let (runner, notes) = runner(r#"["/nonexistent/program"]"#, 0);
        for round in 1..=3 {
            runner.give((None, OTHERS), || Some(String::new()));
            wait_for("it was tried", || runner.counts().not_started == round);
        }
        runner.end();
        let notes = notes.0.lock().unwrap();
        assert!(notes.len() == 1 && notes[0].contains("cannot run /nonexistent/program"), "{notes:?}");
    }
}

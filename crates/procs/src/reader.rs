// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that reads what a process can keep from being read, and that nobody waits for beyond a limit.
//!
//! A thread that is held up is left behind with that one read, and another one does the rest. Who holds it up need not stop: he who has no CPU (a thread of
//! lowest priority that forks a large process where others keep the CPU) holds the lock of his mappings as long as that lasts.

use crate::user::is_trusted;
use nix::unistd::{Pid, gettid};
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Reads that hang, in all: each holds a thread. Of one user there is one.
const HANGING_MAX: usize = 16;

/// So many times the limit, where the thread has a CPU or waits for one at each of them: nobody holds it up, and a machine that is busy is no reason
/// to tell a process that it does not answer.
const BUSY: u32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// That thread, and those that were left behind.
#[derive(Debug)]
pub struct Reader {
    /// Of its threads.
    name: &'static str,
    thread: Option<Running>,
    /// By the user whose process does not answer; `None`: it had ended before that was known.
    hanging: Vec<(Option<u32>, JoinHandle<()>)>,
}

/// A thread that does jobs until its sender is dropped.
#[derive(Debug)]
struct Running {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
    tid: Pid,
}

/// A read that did not end in time, with its thread.
#[derive(Debug)]
pub struct Hanging(JoinHandle<()>);

impl Hanging {
    /// Whether it has ended by now.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.is_finished()
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NotRead {
    /// It did not come in time: to be given to [`Reader::leave`].
    Hangs(Hanging),
    /// There is no thread, or it has ended.
    Failed(String),
}

impl Reader {
    /// `name`: of its threads.
    #[must_use]
    pub fn new(name: &'static str) -> Reader {
        Reader { name, thread: None, hanging: Vec::new() }
    }

    /// What `read` returns, if it does so within this time. Who has a read that hangs waits until it ends. An error says why there is nothing.
    ///
    /// # Errors
    /// When it does not answer, or there is no thread.
    pub fn read<T: Send + 'static>(
        &mut self,
        user: Option<u32>,
        limit: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.may_read(user)?;
        self.attempt(limit, read).map_err(|error| match error {
            NotRead::Failed(why) => why,
            NotRead::Hangs(hanging) => {
                self.leave(user, hanging);
                format!("the process did not answer within {} ms", limit.as_millis())
            }
        })
    }

    /// Whether something of this user's may be read now.
    ///
    /// # Errors
    /// When one of his reads hangs, or too many of others'.
    pub fn may_read(&mut self, user: Option<u32>) -> Result<(), String> {
        self.hanging.retain(|(_, thread)| !thread.is_finished());
        if self.hanging.iter().any(|(whose, _)| *whose == user) {
            return Err("a process of this user does not answer".to_owned());
        }
        // Of those who are trusted there are few, and no others may take their place.
        if self.hanging.len() >= HANGING_MAX && !user.is_some_and(is_trusted) {
            return Err(format!("{HANGING_MAX} other processes do not answer"));
        }
        Ok(())
    }

    /// As [`Reader::read`], of processes whose user is not known yet.
    ///
    /// # Errors
    /// When it does not answer, or there is no thread.
    pub fn attempt<T: Send + 'static>(
        &mut self,
        limit: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotRead> {
        let running = match self.thread.take() {
            Some(running) => running,
            None => {
                start(self.name).map_err(|error| NotRead::Failed(format!("no thread to read it: {error}")))?
            }
        };
        let (answer, answers) = sync_channel(1);
        // It ends only when this sender does, or by a panic, after which there is no answer.
        let _ = running.jobs.send(Box::new(move || {
            // Nobody may wait for it any more.
            let _ = answer.send(read());
        }));
        let busy_end = Instant::now() + limit * BUSY;
        let answered = loop {
            match answers.recv_timeout(limit) {
                Err(RecvTimeoutError::Timeout) if Instant::now() < busy_end && has_work(running.tid) => {}
                answered => break answered,
            }
        };
        match answered {
            Ok(result) => {
                self.thread = Some(running);
                Ok(result)
            }
            // Without its sender it ends after this read, if that ever does.
            Err(RecvTimeoutError::Timeout) => Err(NotRead::Hangs(Hanging(running.thread))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(NotRead::Failed("the thread that reads it has ended".to_owned()))
            }
        }
    }

    /// Whose read hangs; `None`: the process had ended before that was known.
    pub fn leave(&mut self, user: Option<u32>, hanging: Hanging) {
        self.hanging.push((user, hanging.0));
    }
}

fn start(name: &str) -> std::io::Result<Running> {
    let (sender, jobs) = channel::<Job>();
    let (tell, told) = sync_channel(1);
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        // Whoever started it waits for that.
        let _ = tell.send(gettid());
        jobs.iter().for_each(|job| job());
    })?;
    let tid = told.recv().map_err(std::io::Error::other)?;
    Ok(Running { jobs: sender, thread, tid })
}

/// Whether a thread of this process has a CPU or waits for one: state R of proc_pid_stat(5).
fn has_work(tid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Receiver;

    const LIAR: u32 = 4_000_000_000;
    /// For what answers.
    const LONG: Duration = Duration::from_secs(60);

    /// A read that hangs until the sender is dropped.
    fn hang(reader: &mut Reader, user: u32) -> (Sender<()>, Result<(), String>) {
        let (release, gate): (_, Receiver<()>) = channel();
        let held = move || gate.iter().for_each(drop);
        (release, reader.read(Some(user), Duration::from_millis(1), held))
    }

    #[test]
    fn a_read_that_hangs_holds_up_its_user_and_nobody_else() {
        let mut reader = Reader::new("test");
        let (release, result) = hang(&mut reader, LIAR);
        assert_eq!(result, Err("the process did not answer within 1 ms".to_owned()));
        assert_eq!(reader.read(Some(LIAR + 1), LONG, || 5), Ok(5));
        let waits = reader.read(Some(LIAR), LONG, || -> u32 { panic!("it is not tried") });
        assert_eq!(waits, Err("a process of this user does not answer".to_owned()));
        drop(release);
        while !reader.hanging.iter().all(|(_, thread)| thread.is_finished()) {
            std::thread::yield_now();
        }
        assert_eq!(reader.read(Some(LIAR), LONG, || 6), Ok(6), "it has ended");
        assert!(reader.hanging.is_empty());
    }

    #[test]
    fn a_read_that_nobody_holds_up_has_longer() {
        let limit = Duration::from_millis(50);
        let spin = move || {
            let end = Instant::now() + limit * 3;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            7
        };
        assert_eq!(Reader::new("test").read(Some(LIAR), limit, spin), Ok(7));
    }

    #[test]
    fn reads_that_hang_are_a_few_and_who_is_trusted_has_a_place() {
        let mut reader = Reader::new("test");
        let hanging: Vec<_> = (0..100).map(|number| hang(&mut reader, LIAR + number)).collect();
        assert_eq!(reader.hanging.len(), HANGING_MAX);
        assert_eq!(hanging[99].1, Err("16 other processes do not answer".to_owned()));
        assert_eq!(reader.read(Some(0), LONG, || 5), Ok(5));
    }
}

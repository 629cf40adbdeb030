// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is under way in the watches that run now: each answers whoever connects to its socket, in a directory that only its user can enter.
//!
//! A socket and no file, so that nothing is written while nobody asks, and nothing is stale: the answer is made when somebody asks. It is
//! given at the listener's next poll. What a killed watch leaves is a socket that refuses, and is removed by whoever asks next.

use rtscope_event::{LateResponse, Stuck, Tracker};
use rtscope_kernel::kernel_stack;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `rtscope state --json`, and what a watch answers.
pub const SCHEMA: &str = "rtscope.state/1";
/// Operations in an answer; the rest is a number.
const MOST: usize = 500;
/// How long an answer may keep the listener from its work.
const WRITE_TIME: Duration = Duration::from_millis(100);
/// How long a watch has to answer: it may be stopped, or saving a snapshot.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// No answer is longer.
const ANSWER_BYTES: u64 = 16 << 20;
/// Answers between two polls.
const AT_ONCE: usize = 4;

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedTracker {
    /// By which tracker.
    pub tracker: Tracker,
    /// What takes longer is late.
    pub threshold_ns: u64,
    /// Whether operations can be seen while they are under way; responses, interrupts and softirqs are known when they have ended.
    pub is_seen_pending: bool,
}

/// What is under way in a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchState {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process that watches.
    pub pid: u32,
    /// Whose operations, in words.
    pub target: String,
    /// By instance.
    pub trackers: Vec<FollowedTracker>,
    /// What is under way, the longest first: once for each instance that follows it.
    pub operations: Vec<Stuck>,
    /// Further ones that are not listed.
    pub more: u64,
}

impl WatchState {
    /// Lists as many operations as an answer has place for. `all`: the longest first.
    #[must_use]
    pub fn new(target: String, trackers: Vec<FollowedTracker>, mut all: Vec<LateResponse>) -> WatchState {
        let more = all.len().saturating_sub(MOST) as u64;
        all.truncate(MOST);
        let placed = |late: LateResponse| Stuck { kernel_stack: kernel_stack(late.tid), late };
        let operations = all.into_iter().map(placed).collect();
        let (schema, pid) = (SCHEMA.to_owned(), std::process::id());
        WatchState { schema, pid, target, trackers, operations, more }
    }

    /// Without what is younger. Those that are not listed are the shortest.
    #[must_use]
    pub fn older(mut self, least_ns: u64) -> WatchState {
        let all = self.operations.len();
        self.operations.retain(|operation| operation.late.response_ns() >= least_ns);
        if self.operations.len() < all {
            self.more = 0;
        }
        self
    }
}

/// Where this user's watches can be asked; `None`: the user has no runtime directory.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    if nix::unistd::geteuid().is_root() {
        return Some(PathBuf::from("/run/rtscope/watches"));
    }
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    runtime.is_absolute().then(|| runtime.join("rtscope/watches"))
}

/// The socket of a watch, until it is dropped.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// In the user's directory.
    ///
    /// # Errors
    /// When the directory or the socket cannot be made.
    pub fn open(directory: &Path) -> io::Result<Door> {
        // Others may look into what is above it: the journal of a shield is there.
        if let Some(above) = directory.parent() {
            std::fs::create_dir_all(above)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let path = directory.join(std::process::id().to_string());
        // Of a process with our number that was killed.
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok(Door { listener, path })
    }

    /// Answers those who have come. One who does not read gets no more than fits, and keeps nobody waiting for long.
    pub fn answer(&self, mut state: impl FnMut() -> Option<WatchState>) {
        for _ in 0..AT_ONCE {
            let Ok((mut asking, _)) = self.listener.accept() else { return };
            let Some(text) = state().and_then(|state| serde_json::to_vec(&state).ok()) else { return };
            let is_ready = asking.set_nonblocking(false).and(asking.set_write_timeout(Some(WRITE_TIME)));
            if is_ready.is_ok() {
                // Who has gone or does not read has no answer, and knows that.
                let _ = asking.write_all(&text);
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Asks each watch in a directory; by process number. What a killed one left is removed.
///
/// # Errors
/// When the directory cannot be read; that it is not there only means that there is no watch.
pub fn ask_all(directory: &Path) -> io::Result<Vec<(u32, io::Result<WatchState>)>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut answers = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(pid) = name.and_then(|name| name.parse().ok()) else { continue };
        match ask(&path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = std::fs::remove_file(&path);
            }
            // It has ended since the directory was read, or before it came to answer.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            answer => answers.push((pid, answer)),
        }
    }
    answers.sort_by_key(|(pid, _)| *pid);
    Ok(answers)
}

fn ask(path: &Path) -> io::Result<WatchState> {
    let asked = UnixStream::connect(path)?;
    asked.set_read_timeout(Some(ANSWER_TIME))?;
    let mut text = Vec::new();
    asked.take(ANSWER_BYTES).read_to_end(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
        _ => error,
    })?;
    if text.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    serde_json::from_slice(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn state() -> WatchState {
        let lock = FollowedTracker { tracker: Tracker::Lock, threshold_ns: 5, is_seen_pending: true };
        WatchState::new("all".to_owned(), vec![lock], Vec::new())
    }

    #[test]
    fn a_watch_answers_and_leaves_no_socket() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("a/b");
        assert!(ask_all(&place).unwrap().is_empty());
        let door = Door::open(&place).unwrap();
        let asking = std::thread::spawn({
            let place = place.clone();
            move || ask_all(&place).unwrap()
        });
        while !asking.is_finished() {
            door.answer(|| Some(state()));
            std::thread::yield_now();
        }
        let answers = asking.join().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&place), 0o700);
        let usual = directory.path().join("usual");
        std::fs::create_dir(&usual).unwrap();
        assert_eq!(mode(place.parent().unwrap()), mode(&usual));
        let [(pid, Ok(answer))] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((*pid, answer), (std::process::id(), &state()));
        drop(door);
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_watch_left_is_removed_and_other_files_are_not() {
        let directory = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(directory.path().join("7")).unwrap());
        std::fs::write(directory.path().join("note"), "x").unwrap();
        assert!(ask_all(directory.path()).unwrap().is_empty());
        let left: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["note"]);
    }

    #[test]
    fn who_does_not_read_does_not_stop_the_watch() {
        let directory = tempfile::tempdir().unwrap();
        let door = Door::open(directory.path()).unwrap();
        let _asking = UnixStream::connect(&door.path).unwrap();
        let large = WatchState { target: "x".repeat(8 << 20), ..state() };
        let begun = std::time::Instant::now();
        door.answer(|| Some(large.clone()));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

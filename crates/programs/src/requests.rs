// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asking a flight recorder for a snapshot: a socket in the directory of the user who runs it.
//!
//! Everything in that directory may be another user's lie, and root may ask, too. So nothing from there is acted upon: no process number,
//! no path. Who answers is what the kernel says of the socket's other end; the answer is text, to be shown.
//!
//! A recorder that is killed leaves the socket. Whether somebody listens at one is told by the kernel: a connection of another kind is refused in either
//! case, but for another reason, and whoever listens does not notice. Only its own user removes it.

use crate::Error;
use crate::directory::{UserDirectory, pause_before_try};
use crate::mounts::open_below;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt,
};
use nix::sys::stat::Mode;
use nix::sys::time::TimeVal;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The socket's name.
const NAME: &str = "snapshot";
/// A path has at most 4096 bytes, a message fewer.
const ANSWER_BYTES_MAX: usize = 8192;
/// Requests that are answered by one snapshot.
const REQUESTS_MAX: usize = 64;
/// Each is a little longer than the one before: 50 ms in all. Whoever holds the directory looks at one name and lets go.
const HOLD_TRIES: usize = 100;

/// Receives requests of `rtscope snapshot`.
#[derive(Debug)]
pub struct SnapshotRequests {
    listener: UnixListener,
    directory: UserDirectory,
}

/// A request, until it is answered.
#[derive(Debug)]
pub struct SnapshotRequest(UnixStream);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotAnswer {
    /// The process that answered, as the kernel says.
    pub pid: u32,
    /// The directory of the trace; or why there is none. Whoever has the directory can write anything here.
    pub trace: Result<String, String>,
}

/// What is under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    /// Nothing, or it cannot be looked at.
    Absent,
    /// A socket of nobody, or no socket.
    Dead,
    /// Somebody's socket.
    Alive,
}

fn listener(directory: &UserDirectory) -> Listener {
    let Ok(place) = open_below(directory.dir(), NAME, OFlag::O_PATH, Mode::empty()) else {
        return Listener::Absent;
    };
    let probe = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
    let address = UnixAddr::new(&PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd())));
    match (probe, address) {
        (Ok(probe), Ok(address)) => match connect(probe.as_raw_fd(), &address) {
            Err(Errno::ECONNREFUSED) => Listener::Dead,
            // Of another kind (EPROTOTYPE), as ours are.
            _ => Listener::Alive,
        },
        _ => Listener::Absent,
    }
}

/// While this is held, no other recorder of this user looks at its socket, removes or makes one. `None`: somebody does not let go of it.
fn hold(directory: &UserDirectory) -> Option<Flock<File>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    for turn in 0..HOLD_TRIES {
        // The lock is the open file's: it needs its own.
        let again = openat(directory.dir(), ".", flags, Mode::empty()).ok().map(File::from)?;
        if let Ok(held) = Flock::lock(again, FlockArg::LockExclusiveNonblock) {
            return Some(held);
        }
        pause_before_try(turn);
    }
    None
}

/// Removes the socket of a recorder of this user that was killed.
pub(crate) fn remove_dead(directory: &UserDirectory) {
    if directory.uid != nix::unistd::geteuid().as_raw() || directory.is_containers() {
        return;
    }
    let held = hold(directory);
    if held.is_some() && listener(directory) == Listener::Dead {
        directory.remove_named(NAME);
    }
}

impl SnapshotRequests {
    /// In the directory of this process's user. `Ok(None)`: another recorder of this user receives them.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(base: &Path) -> Result<Option<SnapshotRequests>, Error> {
        let directory = UserDirectory::make(base)?;
        let path = directory.path.join(NAME);
        let _held = hold(&directory);
        match listener(&directory) {
            Listener::Alive => return Ok(None),
            Listener::Dead => directory.remove_named(NAME),
            Listener::Absent => {}
        }
        let listener =
            UnixListener::bind(directory.descriptor_path().join(NAME)).map_err(Error::io("make", &path))?;
        listener.set_nonblocking(true).map_err(Error::io("make", &path))?;
        Ok(Some(SnapshotRequests { listener, directory }))
    }

    /// The requests that have come.
    pub fn received(&self) -> Vec<SnapshotRequest> {
        std::iter::from_fn(|| self.listener.accept().ok())
            .take(REQUESTS_MAX)
            .map(|(one, _)| SnapshotRequest(one))
            .collect()
    }
}

impl Drop for SnapshotRequests {
    fn drop(&mut self) {
        self.directory.remove_named(NAME);
    }
}

impl SnapshotRequest {
    /// Answers: the directory of the trace, or why there is none.
    pub fn answer(mut self, trace: &Result<PathBuf, String>) {
        let text = match trace {
            Ok(path) => format!("trace {}\n", path.display()),
            Err(why) => format!("error {}\n", why.replace('\n', " ")),
        };
        // Whoever asked may have gone. Never waited for: the socket has space for one answer.
        let _ = self.0.set_nonblocking(true).and_then(|()| self.0.write_all(text.as_bytes()));
    }
}

/// Asks the flight recorder that a user runs to save what it holds, and waits for the answer. `Ok(None)`: there is no such recorder.
///
/// # Errors
/// When the system refuses, or no answer comes in time.
pub fn ask_for_snapshot(base: &Path, uid: u32, timeout: Duration) -> io::Result<Option<SnapshotAnswer>> {
    let until = Instant::now() + timeout;
    let Ok(directory) = UserDirectory::open(base, uid) else { return Ok(None) };
    // Nothing behind a link, and nothing mounted there.
    let Ok(place) = open_below(directory.dir(), NAME, OFlag::O_PATH, Mode::empty()) else { return Ok(None) };
    let stream = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let limit = TimeVal::new(i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX).max(1), 0);
    // A queue that nobody empties is full some day, and connect(2) waits.
    setsockopt(&stream, sockopt::SendTimeout, &limit)?;
    let address = UnixAddr::new(&PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd())))?;
    match connect(stream.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(refused) => {
            if refused == Errno::ECONNREFUSED {
                remove_dead(&directory);
            }
            return Ok(None);
        }
    }
    let peer = getsockopt(&stream, sockopt::PeerCredentials)?;
    if peer.uid() != uid {
        return Ok(None);
    }
    let mut stream = UnixStream::from(stream);
    let mut text = Vec::new();
    let mut part = [0; 512];
    while !text.contains(&b'\n') && text.len() < ANSWER_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => text.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    let trace = match line.split_once(' ') {
        Some(("trace", path)) => Ok(path.to_string()),
        Some(("error", why)) => Err(why.to_string()),
        _ => Err("its answer makes no sense".to_string()),
    };
    Ok(Some(SnapshotAnswer { pid: peer.pid().unsigned_abs(), trace }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_by_whoever_listens() {
        let base = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        let ask = |time: u64| ask_for_snapshot(base.path(), uid, Duration::from_millis(time));
        assert_eq!(ask(1000).unwrap(), None);
        let requests = SnapshotRequests::new(base.path()).unwrap().unwrap();
        std::thread::scope(|scope| {
            for answer in [Ok(PathBuf::from("/a/1")), Err("no\nspace".to_string())] {
                let asking = scope.spawn(|| ask(60_000).unwrap().unwrap());
                let request = loop {
                    if let Some(request) = requests.received().pop() {
                        break request;
                    }
                };
                request.answer(&answer);
                let trace =
                    answer.map(|path| path.display().to_string()).map_err(|why| why.replace('\n', " "));
                assert_eq!(asking.join().unwrap(), SnapshotAnswer { pid: std::process::id(), trace });
            }
        });
        // Nobody answers.
        assert_eq!(ask(50).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Another recorder does not take its place, nor does it notice.
        assert!(SnapshotRequests::new(base.path()).unwrap().is_none());
        // The one that nobody has answered.
        assert_eq!(requests.received().len(), 1);
        drop(requests);
        assert_eq!(ask(1000).unwrap(), None);
    }

    /// A recorder that was killed leaves its name.
    #[test]
    fn the_socket_of_a_killed_recorder_is_removed_by_the_next_one_and_by_whoever_asks() {
        let base = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        let directory = UserDirectory::make(base.path()).unwrap();
        let path = directory.path.join(NAME);
        let left = || drop(UnixListener::bind(&path).unwrap());
        left();
        assert_eq!(ask_for_snapshot(base.path(), uid, Duration::from_secs(60)).unwrap(), None);
        assert!(!path.exists(), "who asks removes it");
        left();
        remove_dead(&directory);
        assert!(!path.exists(), "a recorder of programs removes it");
        left();
        let requests = SnapshotRequests::new(base.path()).unwrap().unwrap();
        assert_eq!(listener(&directory), Listener::Alive);
        remove_dead(&directory);
        assert!(path.exists(), "one that lives stays");
        drop(requests);
        assert!(!path.exists());
    }

    // NEEDS: host
    #[test]
    fn root_the_socket_of_another_users_killed_recorder_is_left() {
        if rtscope_testkit::skip::without_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let theirs = base.path().join("rtscope-12345");
        std::fs::create_dir(&theirs).unwrap();
        std::fs::set_permissions(&theirs, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        drop(UnixListener::bind(theirs.join(NAME)).unwrap());
        for path in [theirs.join(NAME), theirs.clone()] {
            std::os::unix::fs::chown(path, Some(12345), Some(12345)).unwrap();
        }
        assert_eq!(ask_for_snapshot(base.path(), 12345, Duration::from_secs(60)).unwrap(), None);
        assert!(theirs.join(NAME).exists());
    }
}

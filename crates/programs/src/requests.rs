// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asking a flight recorder for a snapshot: a socket in the directory of the user who runs it.
//!
//! Everything in that directory may be another user's lie, and root may ask, too. So nothing from there is acted upon: no process number,
//! no path. Who answers is what the kernel says of the socket's other end; the answer is text, to be shown.

use crate::Error;
use crate::directory::UserDirectory;
use crate::mounts::open_below;
use nix::fcntl::OFlag;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt,
};
use nix::sys::stat::Mode;
use nix::sys::time::TimeVal;
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

impl SnapshotRequests {
    /// In the directory of this process's user, which this process must be recording.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(base: &Path) -> Result<SnapshotRequests, Error> {
        let directory = UserDirectory::make(base)?;
        let path = directory.path.join(NAME);
        // One of a recorder that was killed.
        directory.remove_named(NAME);
        let listener =
            UnixListener::bind(directory.descriptor_path().join(NAME)).map_err(Error::io("make", &path))?;
        listener.set_nonblocking(true).map_err(Error::io("make", &path))?;
        Ok(SnapshotRequests { listener, directory })
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
    if connect(stream.as_raw_fd(), &address).is_err() {
        return Ok(None);
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
        let requests = SnapshotRequests::new(base.path()).unwrap();
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
        // One that was killed leaves its name.
        std::mem::forget(requests);
        let again = SnapshotRequests::new(base.path()).unwrap();
        drop(again);
        assert_eq!(ask(1000).unwrap(), None);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looking for programs, in a thread of its own: what is found is handed over, and emptying rings never waits for a look.
//!
//! Directories, containers and processes are other users'. A user can make any number of names in `/dev/shm`, hold up whoever walks into
//! a file system of his, or start thousands of processes. Here that costs the time of looking for that user's files only: users take
//! turns (`looker`), each with a limit of time and number (`budget`), and a walk that may hang has a thread that nobody waits for
//! (`walker`; whose turn it is: `queue`). `place` is one user's directory, `life` recognises processes, `watch` hears of new files.
//!
//! The other side is `programs`: it owns what was found, and asks for files to be removed.

mod base;
mod counter;
mod life;
mod looker;
mod place;
mod queue;
mod share;
mod tracked;
mod walker;
mod watch;

use crate::Error;
use crate::asked::AskedNames;
use crate::budget::Cause;
use crate::directory::{FileName, ProcessId, UserDirectory};
use crate::fault::guarded;
use crate::provider::{Provider, Refused};
use crate::ring::Ring;
use crate::session::{ServedDirectory, Settings, SharedSession};
pub(crate) use life::Offsets;
use looker::Looker;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Findings that wait to be fetched, at most: then looking waits, too.
const FOUND_MAX: usize = 1024;

/// A number of a directory that was found; never used twice.
pub(crate) type PlaceId = u32;

/// Who takes turns: a user with all of his directories; but each of root's, since those of containers without a user namespace are root's, too.
pub(crate) type Whose = (u32, PlaceId);

pub(crate) fn whose(account: u32, place: PlaceId) -> Whose {
    (account, if account == 0 { place } else { 0 })
}

/// A directory of programs.
#[derive(Debug)]
pub(crate) struct NewPlace {
    pub(crate) id: PlaceId,
    /// The user whose account it is on.
    pub(crate) account: u32,
    pub(crate) directory: Arc<UserDirectory>,
    /// It is recorded by this process.
    pub(crate) served: Option<ServedDirectory>,
    /// The process that serves it, if this one only watches.
    pub(crate) other: Option<u32>,
}

/// The content of a file.
#[derive(Debug)]
pub(crate) enum Content {
    Provider(Box<Provider>),
    Ring(Box<Ring>),
    Untraced(i32),
    /// It is refused, and its program with it.
    Refused(Refused),
}

/// Something that was found.
#[derive(Debug)]
pub(crate) enum Found {
    Place(NewPlace),
    /// The directory is not there any more.
    PlaceGone(PlaceId),
    /// Nothing more is found in this directory, for a fault of this program; and what that was.
    GivenUp(PlaceId, String),
    File(PlaceId, FileName, Content),
    /// The number of a process in this PID namespace.
    Located(PlaceId, ProcessId, u32),
    /// It makes no system call any more.
    Confined(PlaceId, ProcessId),
    Ended(PlaceId, ProcessId),
    /// These processes, and no others of the directory, make rings faster than they are opened.
    Behind(PlaceId, BTreeSet<ProcessId>),
    /// It has ended, and no name of it is left.
    Vanished(PlaceId, ProcessId),
    Busy(RecordedElsewhere),
    /// A directory cannot be used, and why.
    Unusable(String),
    Refusal(u32, Cause, String),
    /// A census of all processes takes, or took, longer than it may.
    CensusLate(Duration),
    /// Programs of anybody may be missing, and why; an example.
    Missing(Cause, String),
    /// The answer to [`Request::Look`] of this number.
    Looked(u64),
    /// The thread has ended for a fault of its own, with these words: nothing is found any more.
    Fallen(String),
}

/// Programs that another process records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedElsewhere {
    /// Whose they are: the user on whose account they are, where they are in a container.
    pub user: u32,
    /// The process, as it calls itself: whoever made the directory can have written any number.
    pub pid: u32,
    /// The container's directory.
    pub container: Option<String>,
}

/// What the thread is asked to do.
#[derive(Debug)]
enum Request {
    /// Look everywhere once, and answer.
    Look(u64, Until),
    /// Enable nothing any more, and serve no directory.
    Withdraw,
    /// Remove files whose records were taken.
    Remove(PlaceId, Vec<FileName>),
    /// Remove all files of a process that has ended.
    Sweep(PlaceId, ProcessId),
}

/// When a look is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// All that is there has been looked at.
    AllSeen,
    /// And walks to containers have ended, too.
    AllWalked,
}

/// The sessions in containers' `/dev/shm`, by container; `None` once there are to be none any more.
pub(crate) type Sessions = Arc<Mutex<Option<BTreeMap<u64, SharedSession>>>>;

/// Users who wait for their turn of a look, and the newest look that this knows of.
pub(crate) type Unseen = Arc<Mutex<NotSeen>>;

/// What has not been looked at since the newest request.
#[derive(Clone, Debug, Default)]
pub(crate) struct NotSeen {
    /// The request.
    pub(super) number: u64,
    /// At whose files.
    pub(super) users: Vec<u32>,
    /// A directory of users' directories was not read to its end: there may be users of whom nobody knows yet.
    pub(super) is_unread: bool,
}

/// What a recording asks of programs.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) settings: Settings,
    pub(crate) asked: Arc<AskedNames>,
}

/// The thread that looks.
#[derive(Debug)]
pub(crate) struct Look {
    found: Receiver<Found>,
    /// `None` only when this is dropped.
    requests: Option<Sender<Request>>,
    /// Wakes the thread.
    ask: Arc<EventFd>,
    /// Wakes whoever waits for findings.
    told: Arc<EventFd>,
    sessions: Sessions,
    unseen: Unseen,
    asked: u64,
}

/// The thread's end of the channels.
#[derive(Debug)]
pub(crate) struct Outbox {
    found: SyncSender<Found>,
    told: Arc<EventFd>,
    has_told: bool,
}

impl Outbox {
    /// False: nobody wants it any more.
    fn tell(&mut self, found: Found) -> bool {
        self.has_told = true;
        match self.found.try_send(found) {
            Ok(()) => true,
            Err(std::sync::mpsc::TrySendError::Full(found)) => {
                self.flush();
                self.found.send(found).is_ok()
            }
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => false,
        }
    }

    /// Wakes the other side, if there is something new.
    fn flush(&mut self) {
        if std::mem::take(&mut self.has_told) {
            // It fails only when it is full, and so set.
            let _ = self.told.write(1);
        }
    }
}

fn event_descriptor() -> io::Result<Arc<EventFd>> {
    Ok(Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
}

impl Look {
    /// Starts looking below `base`. `session`: a recording, with this user's own directory, which is served already.
    pub(crate) fn start(
        base: &Path,
        recording: Option<(Session, Arc<UserDirectory>, ServedDirectory)>,
    ) -> Result<Look, Error> {
        let failed = |error: io::Error| Error::io("look for programs in", base)(error);
        let (ask, told) = (event_descriptor().map_err(failed)?, event_descriptor().map_err(failed)?);
        let (found_sender, found) = sync_channel(FOUND_MAX);
        let (requests, requested) = channel();
        let sessions: Sessions = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let outbox = Outbox { found: found_sender, told: Arc::clone(&told), has_told: false };
        let (base, theirs, wake) = (base.to_owned(), Arc::clone(&sessions), Arc::clone(&ask));
        let unseen = Unseen::default();
        let (last_words, awakes) = (outbox.found.clone(), Arc::clone(&told));
        let looker = Looker::new(&base, recording, (theirs, Arc::clone(&unseen)), wake, outbox)?;
        Builder::new()
            .name("look".to_string())
            .spawn(move || {
                crate::memory::let_bus_errors_through();
                if let Err(why) = guarded(|| looker.run(&requested)) {
                    // The first fails when nobody wants it any more, the second when it is set.
                    let _ = last_words.send(Found::Fallen(why));
                    let _ = awakes.write(1);
                    // Whoever asks for a look has it: there is nothing to be found.
                    while let Ok(request) = requested.recv() {
                        if let Request::Look(number, _) = request {
                            let _ = last_words.send(Found::Looked(number));
                            let _ = awakes.write(1);
                        }
                    }
                }
            })
            .map_err(Error::io("look for programs in", &base))?;
        Ok(Look { found, requests: Some(requests), ask, told, sessions, unseen, asked: 0 })
    }

    fn ask(&self, request: Request) {
        // Both fail only when the thread has ended, which the findings show.
        let _ = self.requests.as_ref().map(|requests| requests.send(request));
        let _ = self.ask.write(1);
    }

    /// The next finding, if there is one.
    pub(crate) fn next(&self) -> Option<Found> {
        self.found.try_recv().ok()
    }

    /// Asks for a look; it is answered by [`Found::Looked`] with the number.
    pub(crate) fn look(&mut self, until: Until) -> u64 {
        self.asked += 1;
        self.ask(Request::Look(self.asked, until));
        self.asked
    }

    /// The number of the newest look.
    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    /// Lets programs that start from now on enable nothing. Waits until sessions are removed, but not beyond this time.
    pub(crate) fn withdraw(&self, settled: Instant) {
        // Dropped here: also when the thread hangs, no session stays.
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).take();
        let hands: Vec<_> = sessions.iter().flatten().filter_map(|(_, session)| session.hand()).collect();
        drop(sessions);
        hands.iter().for_each(|hand| hand.settle(settled));
        self.ask(Request::Withdraw);
    }

    /// Lets files of an ended process be removed.
    pub(crate) fn remove(&self, place: PlaceId, names: Vec<FileName>) {
        if !names.is_empty() {
            self.ask(Request::Remove(place, names));
        }
    }

    /// Lets all files of an ended process be removed.
    pub(crate) fn sweep(&self, place: PlaceId, process: ProcessId) {
        self.ask(Request::Sweep(place, process));
    }

    /// Waits for findings.
    pub(crate) fn wait(&self, time: Duration) {
        let mut all = [PollFd::new(self.told.as_fd(), PollFlags::POLLIN)];
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        // Interrupted or not: the caller looks what there is.
        let _ = poll(&mut all, time);
        self.clear();
    }

    /// Users at whose files the thread has not looked since the last request, or the one before, as the last may have come just now, and whether
    /// there may be others. `None`: it has not begun either of them.
    pub(crate) fn unseen(&self) -> Option<(Vec<u32>, bool)> {
        let unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // All was seen for the one before, and what came since is not known.
        let is_behind = unseen.number < self.asked && unseen.users.is_empty();
        (unseen.number + 1 >= self.asked).then_some((unseen.users, unseen.is_unread || is_behind))
    }

    /// The descriptor that is readable when there are findings.
    pub(crate) fn told(&self) -> &EventFd {
        &self.told
    }

    /// Forgets that there were findings, before they are fetched.
    pub(crate) fn clear(&self) {
        // It fails when it is not set.
        let _ = self.told.read();
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        // The thread ends when it sees that nobody asks any more. Nobody waits for it: it may hang.
        self.requests = None;
        let _ = self.ask.write(1);
    }
}

/// A limit of time, of which nothing is left at some moment.
pub(crate) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

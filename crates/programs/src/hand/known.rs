// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directories that have hands, and the process that starts these.

use super::waits::Waits;
use super::{Answer, At, Hand, Owner, Request, Seems, State, Work, held, pair, receive, send, worker};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::stat::fstat;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The starter has closed its descriptors in this time.
const STARTED: u16 = 10_000;
/// The starter has ended in this time, when nobody asks any more.
const ENDED: u16 = 1000;

/// The process that starts hands.
#[derive(Debug)]
pub(super) struct Starter {
    /// `None` only when this is dropped.
    socket: Option<OwnedFd>,
    pub(super) process: Option<OwnedFd>,
}

impl Starter {
    fn socket(&self) -> io::Result<&OwnedFd> {
        self.socket.as_ref().ok_or_else(held)
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        // It ends when nobody asks any more, and is nobody's zombie then. It waits for no user; its hands are not waited for.
        self.socket = None;
        if let Some(process) = &self.process {
            let _ = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], ENDED);
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
            let _ = waitid(Id::PIDFd(process.as_fd()), flags);
        }
    }
}

/// The directories that have hands.
#[derive(Debug)]
pub(crate) struct Hands {
    pub(super) starter: Starter,
    known: Mutex<KnownHands>,
}

#[derive(Debug, Default)]
struct KnownHands {
    /// By device and inode number.
    hands: Vec<(Owner, (u64, u64), Arc<Hand>)>,
    /// Also of those who have none any more.
    waits: BTreeMap<Owner, Arc<Waits>>,
}

impl KnownHands {
    /// One that is behind stays known, or its user could have any number of them.
    fn drop_unused(hands: &mut Vec<(Owner, (u64, u64), Arc<Hand>)>) {
        hands.retain(|(.., hand)| {
            let seems = hand.seems();
            seems != Seems::Over && (Arc::strong_count(hand) > 1 || seems == Seems::Behind)
        });
    }
}

impl Hands {
    /// Lets hands go that nobody has any more, with the descriptors that they have of directories.
    pub(crate) fn drop_unused(&self) {
        KnownHands::drop_unused(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner).hands);
    }

    pub(crate) fn new() -> io::Result<Hands> {
        let (socket, theirs) = pair()?;
        let process = worker::fork_starter(theirs.as_raw_fd())?;
        drop(theirs);
        let starter = Starter { socket: Some(socket), process };
        // Until it has closed what it got from this process, among it locks that end with this process. It waits for nobody.
        let _ = poll(&mut [PollFd::new(starter.socket()?.as_fd(), PollFlags::POLLIN)], STARTED);
        // Without it every directory would count as held.
        receive::<Answer>(starter.socket()?.as_raw_fd(), libc::MSG_DONTWAIT)?.ok_or(Errno::EPIPE)?;
        Ok(Hands { starter, known: Mutex::default() })
    }

    /// The hand for a directory.
    ///
    /// # Errors
    /// ETIMEDOUT: another one of the same user's is behind, or has been waited for too long. Or the system refuses.
    pub(crate) fn hand(&self, owner: Owner, at: At<'_>) -> io::Result<Arc<Hand>> {
        // Nobody waits while he has it: not for a hand either, of which another thread awaits an answer.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let KnownHands { hands, waits } = &mut *known;
        KnownHands::drop_unused(hands);
        let status = fstat(at.dir)?;
        let id = (status.st_dev, status.st_ino);
        if let Some((.., hand)) = hands.iter().find(|(_, known, _)| *known == id) {
            return Ok(Arc::clone(hand));
        }
        let now = Instant::now();
        waits.retain(|_, waits| Arc::strong_count(waits) > 1 || !waits.are_over(now));
        let waits = Arc::clone(waits.entry(owner).or_default());
        let is_behind =
            |(whose, _, hand): &(Owner, _, Arc<Hand>)| *whose == owner && hand.seems() == Seems::Behind;
        // In this order: an answer that has come meanwhile gives back what was charged.
        if hands.iter().any(is_behind) || waits.are_used_up(now) {
            return Err(held());
        }
        let (ours, theirs) = pair()?;
        let mut request = Request::new(Work::Answer, "", std::process::id());
        (request.uid, request.gid) = (at.uid, at.gid);
        request.is_as_owner = u32::from(at.is_as_owner);
        send(self.starter.socket()?.as_raw_fd(), &request, &[theirs.as_raw_fd(), at.dir.as_raw_fd()])
            .map_err(|_| held())?;
        let hand = Arc::new(Hand { socket: ours, uid: at.uid, waits, state: Mutex::new(State::default()) });
        hands.push((owner, id, Arc::clone(&hand)));
        Ok(hand)
    }
}

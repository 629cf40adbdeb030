// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that walks to the `/dev/shm` of containers, and that nobody waits for: a walk can hang (`mounts`).
//!
//! Walks are asked for, wait for their user's turn (`queue`), and results are fetched later. After a walk that hangs the thread is left
//! behind, with that walk alone, and another one does the rest.

use super::queue::Queue;
use crate::budget::{HANGING_MAX, HANGING_OF_USER, WALK};
use crate::containers::is_at_home;
use crate::hand::{At, Hands};
use crate::mounts::{Shm, enter, open_shm};
use nix::sys::eventfd::EventFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// So many processes show their way to a container, until one does.
const TRIED: usize = 8;

/// A walk: the mount namespace, its processes, and whose account it is on.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) mounts: u64,
    pub(super) pids: Vec<u32>,
    /// Who made it; `None`: somebody of this process's user namespace.
    pub(super) owner: Option<u32>,
    pub(super) user: u32,
}

impl Walk {
    /// Whether it is to the same mount namespace. A number alone may have gone to another user's.
    pub(super) fn is_same(&self, other: &Walk) -> bool {
        (self.mounts, self.user) == (other.mounts, other.user)
    }
}

/// The number of a walk, what a thread has found, and how long that took.
type Walked = (u64, Way, Duration);

/// Of hands on the way to containers: beyond those for their `/dev/shm`.
const ON_THE_WAY: u64 = 1 << 33;

/// Walks to a process's.
type WalkTo = fn(&Walk, u32, Option<&Hands>) -> Way;

/// The open directory, `None` if there is none; or what was in the way.
pub(super) type Way = Result<Option<Shm>, String>;

#[derive(Debug)]
pub(super) struct Walker {
    thread: Option<Sender<(u64, Walk)>>,
    queue: Queue,
    /// What the thread is at, and since when.
    current: Option<(u64, Walk, Instant)>,
    hanging: Vec<(u64, Walk)>,
    begun: u64,
    results: Receiver<Walked>,
    /// For further threads.
    sender: Sender<Walked>,
    wake: Arc<EventFd>,
    walk: WalkTo,
    hands: Option<Arc<Hands>>,
}

impl Walker {
    /// `wake` is written to when there is a result. `hands`: of root.
    pub(super) fn new(wake: Arc<EventFd>, hands: Option<Arc<Hands>>) -> Walker {
        Walker { hands, ..Walker::with(wake, walk_to) }
    }

    fn with(wake: Arc<EventFd>, walk: WalkTo) -> Walker {
        let (sender, results) = channel();
        let (queue, hanging) = (Queue::default(), Vec::new());
        let (thread, current, hands) = (None, None, None);
        Walker { thread, queue, current, hanging, begun: 0, results, sender, wake, walk, hands }
    }

    /// Whether results may come soon: not of walks whose users have used up their time.
    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Asks for a walk, unless it was asked for before.
    pub(super) fn ask(&mut self, walk: Walk) {
        let current = self.current.iter().map(|(_, walk, _)| walk);
        let hanging = self.hanging.iter().map(|(_, walk)| walk);
        if !current.chain(hanging).any(|known| known.is_same(&walk)) {
            self.queue.ask(walk, Instant::now());
            self.go_on();
        }
    }

    /// Drops walks to mount namespaces that are gone. Returns those of them that have waited for longer than `for_long`.
    pub(super) fn retain(&mut self, for_long: Duration, is_there: impl Fn(u64) -> bool) -> Vec<Walk> {
        self.queue.retain(Instant::now(), for_long, is_there)
    }

    /// Walks that wait for too long: each is told once.
    pub(super) fn late(&mut self) -> Vec<Walk> {
        self.queue.late(Instant::now())
    }

    /// Begins the next walk. Who has one that hangs waits for it.
    fn go_on(&mut self) {
        if self.current.is_some() || self.hanging.len() >= HANGING_MAX {
            return;
        }
        let hanging = &self.hanging;
        let may = |user: u32| hanging.iter().filter(|(_, walk)| walk.user == user).count() < HANGING_OF_USER;
        if let Some(walk) = self.queue.next(Instant::now(), may) {
            self.send(walk);
        }
    }

    fn send(&mut self, walk: Walk) {
        if self.thread.is_none() {
            let (sender, walks) = channel();
            let (results, wake) = (self.sender.clone(), Arc::clone(&self.wake));
            let (way, hands) = (self.walk, self.hands.clone());
            let thread = Builder::new().name("containers".to_string());
            // Without a thread no container is found now; the next look tries again.
            if thread.spawn(move || work(&walks, (&results, &wake), way, hands.as_deref())).is_err() {
                return;
            }
            self.thread = Some(sender);
        }
        if let Some(thread) = &self.thread {
            self.begun += 1;
            self.current = Some((self.begun, walk.clone(), Instant::now()));
            // It ends only when this sender does.
            let _ = thread.send((self.begun, walk));
        }
    }

    /// The results that have come. A walk that hangs has one, too: what is in the way.
    pub(super) fn results(&mut self) -> Vec<(Walk, Way)> {
        let mut came = Vec::new();
        while let Ok((number, way, time)) = self.results.try_recv() {
            if let Some(place) = self.hanging.iter().position(|(hanging, _)| *hanging == number) {
                // Its user may have changed what it found, or lets it hang again.
                self.hanging.swap_remove(place);
            } else if let Some((_, walk, _)) = self.current.take_if(|(current, ..)| *current == number) {
                self.queue.charge(walk.user, Instant::now(), time);
                came.push((walk, way));
                self.go_on();
            }
        }
        if let Some((number, walk, since)) = self.current.take_if(|(.., since)| since.elapsed() > WALK) {
            self.queue.charge(walk.user, Instant::now(), since.elapsed());
            self.hanging.push((number, walk.clone()));
            came.push((walk, Err("the way to /dev/shm of a container does not answer".to_string())));
            // The old thread ends after this walk, if that ever does.
            self.thread = None;
        }
        self.go_on();
        came
    }
}

fn walk_to(walk: &Walk, pid: u32, hands: Option<&Hands>) -> Way {
    open_shm(pid, |dir, name| {
        let Some(hands) = hands else { return Ok(enter(&dir, name)?) };
        // Whoever holds one of root's may be anybody.
        let whose = (walk.user, if walk.user == 0 { ON_THE_WAY | walk.mounts } else { ON_THE_WAY });
        hands.hand(whose, At::of_root(dir, (0, 0)))?.enter(name)
    })
}

fn work(
    walks: &Receiver<(u64, Walk)>,
    (results, wake): (&Sender<Walked>, &EventFd),
    way: WalkTo,
    hands: Option<&Hands>,
) {
    while let Ok((number, walk)) = walks.recv() {
        let (mut found, begun) = (Ok(None), Instant::now());
        // Who shares a container with a user who has made a user namespace in it cannot be hidden by however many roots of that user's.
        let mut at_home = walk.pids.iter().filter(|pid| is_at_home(**pid)).peekable();
        let others = if at_home.peek().is_none() { walk.pids.as_slice() } else { &[] };
        for pid in at_home.chain(others).take(TRIED) {
            found = way(&walk, *pid, hands);
            if !matches!(found, Ok(None)) {
                break;
            }
        }
        if results.send((number, found, begun.elapsed())).is_err() {
            return;
        }
        // It fails only when it is full, and so set.
        let _ = wake.write(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::EfdFlags;

    /// Process 1 never answers.
    fn way(_: &Walk, pid: u32, _: Option<&Hands>) -> Way {
        if pid == 1 {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        Err(format!("of {pid}"))
    }

    #[test]
    fn a_walk_that_hangs_stops_no_other() {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
        let mut walker = Walker::with(wake, way);
        let walk = |mounts: u64, pid: u32, user: u32| Walk { mounts, pids: vec![pid], owner: None, user };
        for (mounts, pid, user) in [(10, 1, 1000), (11, 2, 1000), (12, 3, 0), (12, 3, 0)] {
            walker.ask(walk(mounts, pid, user));
        }
        let results = |walker: &mut Walker| {
            let mut came = Vec::new();
            while walker.is_busy() {
                came.extend(walker.results());
                std::thread::sleep(Duration::from_millis(1));
            }
            came.into_iter().map(|(walk, way)| (walk.mounts, way.err().unwrap())).collect::<Vec<_>>()
        };
        let came = results(&mut walker);
        assert!(came[0].0 == 10 && came[0].1.contains("does not answer"), "{came:?}");
        // That user's containers wait for it; those of others do not.
        assert_eq!(came[1..], [(12, "of 3".to_string())]);
        walker.ask(walk(13, 4, 1000));
        walker.ask(walk(14, 5, 0));
        assert_eq!(results(&mut walker), [(14, "of 5".to_string())]);
    }
}

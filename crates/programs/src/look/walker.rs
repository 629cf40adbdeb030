// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that walks to the `/dev/shm` of containers, and that nobody waits for: a walk can hang (`mounts`).
//!
//! Walks are asked for, wait for their user's turn (`queue`), and results are fetched later. After a walk that hangs the thread is left
//! behind, with that walk alone, and another one does the rest.

use super::queue::Queue;
use crate::budget::{HANGING_MAX, HANGING_OF_ROOT, HANGING_OF_USER, WALK};
use crate::fault::guarded;
use crate::hand::{At, Hands};
use crate::mounts::{Shm, enter, open_shm};
use crate::namespaces::{is_at_home, namespace_of};
use nix::sys::eventfd::EventFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// So many processes show their way to a container, until one does.
const TRIED: usize = 8;

/// A walk: the mount namespace, its processes that answered, and whose account it is on.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) mounts: u64,
    pub(super) pids: Vec<u32>,
    /// Those are all that it has.
    pub(super) do_all_answer: bool,
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

/// Walks to a process's, which may have to be at home. `None`: it was not, or not there, when that was done.
type WalkTo = fn(&Walk, (u32, bool), Option<&Hands>) -> Option<Way>;

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

    /// Begins the next walk. Who has one that hangs waits for it; root, whose containers may be of anybody, for several.
    fn go_on(&mut self) {
        if self.current.is_some() || self.hanging.len() >= HANGING_MAX {
            return;
        }
        let hanging = &self.hanging;
        let may = |user: u32| {
            let most = if user == 0 { HANGING_OF_ROOT } else { HANGING_OF_USER };
            hanging.iter().filter(|(_, walk)| walk.user == user).count() < most
        };
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

/// What it shows counts if it is still where it was: whoever is in the mount namespace, and at home, has never been elsewhere since, as nobody comes back from a user
/// namespace of his own. A user who leaves home between two steps can have any directory as his root by then, also one of his in the container's `/dev/shm`.
fn walk_to(walk: &Walk, (pid, is_of_home): (u32, bool), hands: Option<&Hands>) -> Option<Way> {
    let found = open_shm(pid, |dir, name| {
        let Some(hands) = hands else { return Ok(enter(&dir, name)?) };
        // Whoever holds one of root's may be anybody.
        let whose = (walk.user, if walk.user == 0 { ON_THE_WAY | walk.mounts } else { ON_THE_WAY });
        hands.hand(whose, At::of_root(dir, (0, 0)))?.enter(name)
    });
    let is_there = namespace_of(&pid.to_string(), "mnt") == Some(walk.mounts);
    (is_there && (!is_of_home || is_at_home(pid))).then_some(found)
}

fn work(
    walks: &Receiver<(u64, Walk)>,
    (results, wake): (&Sender<Walked>, &EventFd),
    way: WalkTo,
    hands: Option<&Hands>,
) {
    while let Ok((number, walk)) = walks.recv() {
        let (mut found, begun) = (Ok(None), Instant::now());
        // Who shares a container with a user who has made a user namespace in it cannot be hidden by however many roots of that user's: others are asked only where
        // nobody is at home.
        let mut at_home = walk.pids.iter().filter(|pid| is_at_home(**pid)).peekable();
        let is_of_home = at_home.peek().is_some() || !walk.do_all_answer;
        let others = if is_of_home { &[] } else { walk.pids.as_slice() };
        // Those that are gone are none of them, or they would stand before others.
        let way = |pid: &u32| {
            guarded(|| way(&walk, (*pid, is_of_home), hands)).unwrap_or_else(|why| Some(Err(why)))
        };
        let ways = at_home.chain(others).filter_map(way);
        for way in ways.take(TRIED) {
            found = way;
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

    /// No process has this number, or the next ones; this one never answers.
    const NEVER: u32 = 4_100_000_001;

    fn way(_: &Walk, (pid, _): (u32, bool), _: Option<&Hands>) -> Option<Way> {
        if pid == NEVER {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        Some(Err(format!("of {}", pid - NEVER + 1)))
    }

    #[test]
    fn a_walk_that_hangs_stops_no_other() {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
        let mut walker = Walker::with(wake, way);
        let walk = |mounts: u64, pid: u32, user: u32| {
            let pids = vec![NEVER - 1 + pid];
            Walk { mounts, pids, do_all_answer: true, owner: None, user }
        };
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
        // Containers of root's are of anybody: one that hangs holds up none of the others, nor do several.
        walker.ask(walk(15, 1, 0));
        assert_eq!(results(&mut walker).len(), 1);
        walker.ask(walk(16, 6, 0));
        assert_eq!(results(&mut walker), [(16, "of 6".to_string())]);
    }

    // NEEDS: host
    #[test]
    fn root_who_has_left_home_shows_nothing() {
        if !nix::unistd::geteuid().is_root() {
            rtscope_testkit::skip!("it needs root");
        }
        let own = std::process::id();
        let mounts = namespace_of("self", "mnt").unwrap();
        let walk = |mounts| Walk { mounts, pids: vec![], do_all_answer: true, owner: None, user: 0 };
        assert!(walk_to(&walk(mounts), (own, true), None).is_some());
        assert!(walk_to(&walk(mounts + 1), (own, false), None).is_none(), "it is elsewhere");
        for (option, is_same) in [("-U", true), ("-Um", false)] {
            let mut child =
                std::process::Command::new("unshare").args([option, "sleep", "60"]).spawn().unwrap();
            let name = format!("/proc/{}/comm", child.id());
            while std::fs::read_to_string(&name).unwrap_or_default() != "sleep\n" {
                assert_eq!(child.try_wait().unwrap(), None);
            }
            let found = [true, false]
                .map(|is_of_home| walk_to(&walk(mounts), (child.id(), is_of_home), None).is_some());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found, [false, is_same], "{option}");
        }
    }

    #[test]
    fn nobody_else_shows_the_way_where_who_is_at_home_does_not_answer() {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
        let mut walker = Walker::with(wake, way);
        for do_all_answer in [true, false] {
            let mounts = u64::from(do_all_answer);
            walker.ask(Walk { mounts, pids: vec![NEVER + 1], do_all_answer, owner: None, user: 0 });
            let mut came = Vec::new();
            while walker.is_busy() {
                came.extend(walker.results());
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(came.len(), 1);
            assert_eq!(came[0].1.is_err(), do_all_answer, "{came:?}");
        }
    }
}

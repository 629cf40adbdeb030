// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that walks to the `/dev/shm` of containers, and that nobody waits for: a walk can hang (`mounts`).
//!
//! Walks are asked for, and results fetched later. After a walk that hangs the thread is left behind, with that walk alone, and
//! another one does the rest.

use crate::budget::{HANGING_MAX, HANGING_OF_USER, WALK};
use crate::mounts::open_shm;
use nix::sys::eventfd::EventFd;
use nix::sys::stat::FileStat;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Instant;

/// A walk: the mount namespace, some of its processes, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) mounts: u64,
    pub(super) pids: Vec<u32>,
    pub(super) user: u32,
}

/// The open directory, `None` if there is none; or what was in the way.
pub(super) type Way = Result<Option<(OwnedFd, FileStat)>, String>;

#[derive(Debug)]
pub(super) struct Walker {
    thread: Option<Sender<Walk>>,
    /// Walks that the thread has not finished, and since when it has been at the first one.
    asked: VecDeque<Walk>,
    since: Instant,
    hanging: Vec<Walk>,
    results: Receiver<(u64, Way)>,
    /// For further threads.
    sender: Sender<(u64, Way)>,
    wake: Arc<EventFd>,
    walk: fn(u32) -> Way,
}

impl Walker {
    /// `wake` is written to when there is a result.
    pub(super) fn new(wake: Arc<EventFd>) -> Walker {
        Walker::with(wake, open_shm)
    }

    fn with(wake: Arc<EventFd>, walk: fn(u32) -> Way) -> Walker {
        let (sender, results) = channel();
        let (asked, hanging) = (VecDeque::new(), Vec::new());
        Walker { thread: None, asked, since: Instant::now(), hanging, results, sender, wake, walk }
    }

    /// Whether results may come soon.
    pub(super) fn is_busy(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Asks for a walk; false: it was asked for before, or its user has one that hangs.
    pub(super) fn ask(&mut self, walk: Walk) -> bool {
        let mut both = self.asked.iter().chain(&self.hanging);
        let of_user = self.hanging.iter().filter(|hanging| hanging.user == walk.user).count();
        if both.any(|known| known.mounts == walk.mounts)
            || of_user >= HANGING_OF_USER
            || self.hanging.len() >= HANGING_MAX
        {
            return false;
        }
        if self.asked.is_empty() {
            self.since = Instant::now();
        }
        self.asked.push_back(walk.clone());
        self.send(walk);
        true
    }

    fn send(&mut self, walk: Walk) {
        if self.thread.is_none() {
            let (sender, walks) = channel();
            let (results, wake, way) = (self.sender.clone(), Arc::clone(&self.wake), self.walk);
            let thread = Builder::new().name("containers".to_string());
            // Without a thread no container is found now; the next look tries again.
            if thread.spawn(move || work(&walks, &results, &wake, way)).is_err() {
                self.asked.clear();
                return;
            }
            self.thread = Some(sender);
        }
        if let Some(thread) = &self.thread {
            // It ends only when this sender does.
            let _ = thread.send(walk);
        }
    }

    /// The results that have come. A walk that hangs has one, too: what is in the way.
    pub(super) fn results(&mut self) -> Vec<(Walk, Way)> {
        let mut came = Vec::new();
        while let Ok((mounts, way)) = self.results.try_recv() {
            if let Some(place) = self.hanging.iter().position(|hanging| hanging.mounts == mounts) {
                // Its user may have changed what it found, or lets it hang again.
                self.hanging.swap_remove(place);
            } else if self.asked.front().is_some_and(|first| first.mounts == mounts) {
                came.extend(self.asked.pop_front().map(|walk| (walk, way)));
                self.since = Instant::now();
            }
        }
        if self.since.elapsed() > WALK {
            if let Some(walk) = self.asked.pop_front() {
                self.hanging.push(walk.clone());
                came.push((walk, Err("the way to /dev/shm of a container does not answer".to_string())));
                // The old thread ends after this walk, if that ever does.
                self.thread = None;
                self.since = Instant::now();
                let rest: Vec<Walk> = self.asked.iter().cloned().collect();
                rest.into_iter().for_each(|walk| self.send(walk));
            }
        }
        came
    }
}

fn work(walks: &Receiver<Walk>, results: &Sender<(u64, Way)>, wake: &EventFd, way: fn(u32) -> Way) {
    while let Ok(walk) = walks.recv() {
        let mut found = Ok(None);
        for pid in walk.pids {
            found = way(pid);
            if !matches!(found, Ok(None)) {
                break;
            }
        }
        if results.send((walk.mounts, found)).is_err() {
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
    use std::time::Duration;

    /// Process 1 never answers.
    fn way(pid: u32) -> Way {
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
        let walk = |mounts: u64, pid: u32, user: u32| Walk { mounts, pids: vec![pid], user };
        assert!(walker.ask(walk(10, 1, 1000)) && walker.ask(walk(11, 2, 1000)) && walker.ask(walk(12, 3, 0)));
        assert!(!walker.ask(walk(12, 3, 0)), "it is asked for already");
        let mut came = Vec::new();
        while walker.is_busy() {
            came.extend(walker.results());
            std::thread::sleep(Duration::from_millis(1));
        }
        let texts: Vec<(u64, String)> =
            came.into_iter().map(|(walk, way)| (walk.mounts, way.err().unwrap())).collect();
        assert!(texts[0].0 == 10 && texts[0].1.contains("does not answer"), "{texts:?}");
        assert_eq!(texts[1..], [(11, "of 2".to_string()), (12, "of 3".to_string())]);
        // That user's containers wait for it; those of others do not.
        assert!(!walker.ask(walk(13, 4, 1000)) && walker.ask(walk(14, 5, 0)));
    }
}

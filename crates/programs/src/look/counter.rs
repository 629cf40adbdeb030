// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that takes the census of all processes (`census`), and that nobody waits for: a user can have tens of thousands of them,
//! and each visit takes some 20 µs (15 000 of another PID namespace: 0.31 s; 40 µs and more before Linux 6.11, where a text is read).
//!
//! A census is asked for, and fetched later. It judges only what was seen before it began.

use crate::budget::{CENSUS_LATE, rest_after};
use crate::census::Census;
use crate::fault::guarded;
use crate::visitor::Visitor;
use nix::sys::eventfd::EventFd;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Counter {
    newest: Arc<Census>,
    /// Whether all processes are to be visited.
    requests: Sender<bool>,
    results: Receiver<Census>,
    /// What is under way: since when, and whether of all.
    current: Option<(Instant, bool)>,
    /// What is to follow.
    next: Option<bool>,
    /// What the last one asks for.
    rests_until: Option<Instant>,
    took: Duration,
    /// The census that is under way has been told to be late.
    is_told: bool,
    /// One is to be told.
    late: Option<Duration>,
}

impl Counter {
    /// `wake` is written to when there is a result.
    pub(super) fn start(wake: Arc<EventFd>) -> io::Result<Counter> {
        Counter::with(wake, |census, visitor, is_of_all| match is_of_all {
            true => census.take(visitor),
            false => census.update(visitor),
        })
    }

    pub(super) fn with(
        wake: Arc<EventFd>,
        visit: fn(&mut Census, &mut Visitor, bool),
    ) -> io::Result<Counter> {
        let ((requests, asked), (sender, results)) = (channel(), channel());
        let newest = Arc::new(Census::of_own_namespace());
        let mut census = Census::of_own_namespace();
        Builder::new().name("census".to_string()).spawn(move || {
            let mut visitor = Visitor::default();
            while let Ok(is_of_all) = asked.recv() {
                // Nobody knows whose programs a census that failed has missed. It stays as old as it was: nobody in it has ended.
                if guarded(|| visit(&mut census, &mut visitor, is_of_all)).is_err() {
                    census.is_crowd = true;
                }
                if sender.send(census.clone()).is_err() {
                    return;
                }
                // It fails only when it is full, and so set.
                let _ = wake.write(1);
            }
        })?;
        Ok(Counter {
            newest,
            requests,
            results,
            current: None,
            next: None,
            rests_until: None,
            took: Duration::ZERO,
            is_told: false,
            late: None,
        })
    }

    /// The newest one.
    pub(super) fn newest(&self) -> &Arc<Census> {
        &self.newest
    }

    /// Whether one is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the last one took so long that another one has to wait: what a program says of itself can ask for it.
    pub(super) fn rests(&self) -> bool {
        self.rests_until.is_some_and(|until| until > Instant::now())
    }

    /// The time from one scan for containers to the next: `least`, or twice as long as the last one took.
    pub(super) fn interval(&self, least: Duration) -> Duration {
        least.max(self.took * 2)
    }

    /// Whether the newest one began after `time`, and visited all processes if that `is_of_all`. If not, there will be one.
    pub(super) fn is_later(&mut self, time: Instant, is_of_all: bool) -> bool {
        let suits = |begun: Instant, of_all: bool| begun > time && (of_all || !is_of_all);
        if self.newest.begun.is_some_and(|begun| suits(begun, self.newest.is_of_all)) {
            return true;
        }
        if !self.current.is_some_and(|(begun, of_all)| suits(begun, of_all)) {
            self.next = Some(is_of_all || self.next == Some(true));
            self.go_on();
        }
        false
    }

    /// How long the census takes, or took, if that is too long: each one once. Containers that were there for a shorter time may not have been seen by any.
    pub(super) fn late(&mut self) -> Option<Duration> {
        if let Some((begun, _)) = self.current {
            self.note_late(begun);
        }
        self.late.take()
    }

    fn note_late(&mut self, begun: Instant) {
        let took = begun.elapsed();
        if took > CENSUS_LATE && !std::mem::replace(&mut self.is_told, true) {
            self.late = Some(took);
        }
    }

    fn go_on(&mut self) {
        if let (None, Some(is_of_all)) = (self.current, self.next) {
            self.next = None;
            self.current = Some((Instant::now(), is_of_all));
            // It ends only when this sender does.
            let _ = self.requests.send(is_of_all);
        }
    }

    /// Takes over the newest one. False: there is none that is new.
    pub(super) fn fetch(&mut self) -> bool {
        let Ok(census) = self.results.try_recv() else { return false };
        self.rests_until = census.begun.map(rest_after);
        self.took = census.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        self.newest = Arc::new(census);
        if let Some((begun, _)) = self.current.take() {
            self.note_late(begun);
        }
        self.is_told = false;
        self.go_on();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::EfdFlags;

    #[test]
    fn a_census_that_began_before_is_not_taken_for_a_later_one() {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_SEMAPHORE).unwrap());
        let mut counter = Counter::start(Arc::clone(&wake)).unwrap();
        let first = Instant::now();
        assert!(!counter.is_later(first, true));
        // It waits until there is a result: what is asked for from now on has to begin later.
        wake.read().unwrap();
        let second = Instant::now();
        assert!(!counter.is_later(second, true));
        assert!(counter.fetch());
        assert!(counter.is_later(first, true) && !counter.is_later(second, true));
        assert!(counter.is_busy(), "the second one is under way");
        wake.read().unwrap();
        assert!(counter.fetch());
        assert!(counter.is_later(second, true) && counter.is_later(first, false));
        assert!(!counter.fetch(), "and no other");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Visits of all processes, by a thread that is left behind where one does not answer (`rtscope_procs`).
//!
//! Visits are made some at a time: to wait for an answer of each would take longer than it. One that does not answer is waited for once, and left out until it
//! does. Whether it is of this PID namespace the kernel says all the same (`is_here`): then there is nothing more to find out, and other such processes of its user
//! are not visited either. Of other namespaces some of a user are waited for at a time; beyond that no others of his are visited. Who that is goes by his number on this
//! machine, so a container of root's with a user namespace can have any number of users: what all hold together is limited, too (`is_crowd`).

use crate::budget::{SILENT_MAX, SILENT_OF_USER, VISIT, VISIT_CROWD};
use crate::fault::guarded;
use crate::subordinate::Subordinates;
use rtscope_procs::{Hanging, NotRead, Reader, user_of};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// So many at a time: some 2 ms.
const TOGETHER: usize = 128;

#[derive(Debug)]
pub(crate) struct Visitor {
    reader: Reader,
    accounts: Subordinates,
    hanging: Vec<Silent>,
}

/// A process that does not answer.
#[derive(Debug)]
struct Silent {
    pid: u32,
    /// Whose account it is on.
    user: u32,
    hanging: Hanging,
}

/// What was not found out.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Users with a process that did not answer just now.
    pub(crate) silent: Vec<(u32, u32)>,
    /// All processes of which nothing was found out.
    pub(crate) left_out: HashSet<u32>,
    /// So many do not answer that nobody else was visited either.
    pub(crate) is_crowd: bool,
}

/// Of visits that are made together.
#[derive(Debug)]
struct Progress<T> {
    found: Vec<Option<T>>,
    /// Nobody waits for the rest.
    is_left: bool,
}

impl Default for Visitor {
    fn default() -> Visitor {
        let (accounts, hanging) = (Subordinates::default(), Vec::new());
        Visitor { reader: Reader::new("visits"), accounts, hanging }
    }
}

impl Visitor {
    /// Visits processes, in the order of their numbers, and gives what is found of each to `take`. `is_here`: whether one is of this PID namespace, asked so that it cannot
    /// hang.
    pub(crate) fn visit<T: Send + 'static>(
        &mut self,
        pids: BTreeSet<u32>,
        visit: impl Fn(u32) -> T + Clone + Send + 'static,
        is_here: fn(u32) -> bool,
        mut take: impl FnMut(u32, T),
    ) -> Silence {
        let (mut silence, mut rest) = (Silence::default(), VecDeque::from_iter(pids));
        self.hanging.retain(|silent| !silent.hanging.has_ended());
        let known: BTreeSet<u32> = self.hanging.iter().map(|silent| silent.user).collect();
        known.into_iter().for_each(|user| self.leave_out(user, is_here, &mut rest, &mut silence));
        while !rest.is_empty() {
            if self.hanging.len() >= SILENT_MAX {
                silence.left_out.extend(rest);
                silence.is_crowd = true;
                break;
            }
            let together: Vec<u32> = rest.drain(..TOGETHER.min(rest.len())).collect();
            let patience = if silence.silent.len() < SILENT_OF_USER { VISIT } else { VISIT_CROWD };
            let (found, hanging) = self.visit_together(&together, patience, visit.clone());
            let visited = found.len();
            for (pid, found) in together.iter().zip(found) {
                match found {
                    Some(found) => take(*pid, found),
                    // A fault: of this one nothing is known.
                    None => drop(silence.left_out.insert(*pid)),
                }
            }
            let mut left = together.into_iter().skip(visited);
            match (left.next(), hanging) {
                (Some(pid), Ok(hanging)) => {
                    left.rev().for_each(|pid| rest.push_front(pid));
                    let user = user_of(pid).map_or(0, |user| self.accounts.account_of(user));
                    self.hanging.push(Silent { pid, user, hanging });
                    if !is_here(pid) {
                        silence.silent.push((user, pid));
                        silence.left_out.insert(pid);
                    }
                    self.leave_out(user, is_here, &mut rest, &mut silence);
                }
                // Without a thread nobody is visited.
                (Some(pid), Err(())) => silence.left_out.extend(left.chain([pid])),
                (None, _) => {}
            }
        }
        silence
    }

    /// What was found of the first ones, and the thread that was left at the next one. `Err`: there is none.
    fn visit_together<T: Send + 'static>(
        &mut self,
        pids: &[u32],
        patience: Duration,
        visit: impl Fn(u32) -> T + Send + 'static,
    ) -> (Vec<Option<T>>, Result<Hanging, ()>) {
        let progress = Arc::new(Mutex::new(Progress { found: Vec::new(), is_left: false }));
        let (here, pids) = (Arc::clone(&progress), pids.to_vec());
        let visited = self.reader.attempt(patience, move || {
            for pid in pids {
                let found = guarded(|| visit(pid)).ok();
                let mut progress = here.lock().unwrap_or_else(PoisonError::into_inner);
                if progress.is_left {
                    return;
                }
                progress.found.push(found);
            }
        });
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.is_left = true;
        let hanging = match visited {
            Err(NotRead::Hangs(hanging)) => Ok(hanging),
            Ok(()) | Err(NotRead::Failed(_)) => Err(()),
        };
        (std::mem::take(&mut progress.found), hanging)
    }

    /// Leaves out what need not, or may not, be visited of a user of whom a process does not answer.
    fn leave_out(
        &mut self,
        user: u32,
        is_here: fn(u32) -> bool,
        rest: &mut VecDeque<u32>,
        silence: &mut Silence,
    ) {
        let (hanging, accounts) = (&self.hanging, &mut self.accounts);
        let is_full =
            user != 0 && hanging.iter().filter(|silent| silent.user == user).count() >= SILENT_OF_USER;
        let mut is_his = |pid: u32| user_of(pid).is_some_and(|number| accounts.account_of(number) == user);
        rest.retain(|pid| {
            let does_hang = hanging.iter().any(|silent| silent.pid == *pid);
            if !(does_hang || user != 0 && is_his(*pid)) {
                return true;
            }
            let is_here = is_here(*pid);
            if !is_here && (does_hang || is_full) {
                silence.left_out.insert(*pid);
            }
            !(is_here || does_hang || is_full)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    #[test]
    fn one_that_does_not_answer_is_left_out_and_no_other() {
        let mut visitor = Visitor::default();
        let (release, gate): (_, Receiver<()>) = channel();
        let gate = Arc::new(Mutex::new(gate));
        let visit = move |pid: u32| {
            if pid == 4_000_000_300 {
                gate.lock().unwrap().iter().for_each(drop);
            }
            pid / 2
        };
        // No process has these numbers, so they are on root's account.
        let pids = || (4_000_000_000..4_000_001_000).collect::<BTreeSet<u32>>();
        let visited = |visitor: &mut Visitor| {
            let mut found = BTreeSet::new();
            let silence = visitor.visit(
                pids(),
                visit.clone(),
                |_| false,
                |pid, answer| {
                    assert_eq!(answer, pid / 2);
                    assert!(found.insert(pid), "{pid} twice");
                },
            );
            (found, silence.silent, silence.left_out)
        };
        let others = || pids().into_iter().filter(|pid| *pid != 4_000_000_300).collect::<BTreeSet<u32>>();
        let left_out = || HashSet::from([4_000_000_300]);
        assert_eq!(visited(&mut visitor), (others(), vec![(0, 4_000_000_300)], left_out()));
        // It is not asked again.
        assert_eq!(visited(&mut visitor), (others(), vec![], left_out()));
        drop(release);
        while !visitor.hanging.iter().all(|silent| silent.hanging.has_ended()) {
            std::thread::yield_now();
        }
        assert_eq!(visited(&mut visitor), (pids(), vec![], HashSet::new()));
    }

    #[test]
    fn one_of_this_namespace_hides_nothing_and_a_crowd_leaves_out_all() {
        let (release, gate): (_, Receiver<()>) = channel();
        let gate = Arc::new(Mutex::new(gate));
        let hang = move |_: u32| gate.lock().unwrap().iter().for_each(drop);
        let pids = |count: u32| (4_000_000_000..4_000_000_000 + count).collect::<BTreeSet<u32>>();
        let mut visitor = Visitor::default();
        let silence = visitor.visit(pids(3), hang.clone(), |_| true, |_, ()| {});
        assert_eq!((silence.silent, silence.left_out.len(), silence.is_crowd), (vec![], 0, false));
        let many = u32::try_from(SILENT_MAX).unwrap() + 9;
        let mut visitor = Visitor::default();
        let begun = std::time::Instant::now();
        let silence = visitor.visit(pids(many), hang, |_| false, |_, ()| {});
        assert_eq!((silence.silent.len(), silence.is_crowd), (SILENT_MAX, true));
        assert_eq!(silence.left_out.len(), many as usize);
        println!("{:?}", begun.elapsed());
        drop(release);
    }
}

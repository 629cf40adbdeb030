// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings whose records are taken together. A trace has fewer streams than programs have threads, so some share a stream, and events of a
//! stream are in the order of their times: the rings that share one are merged, all of a user at once.
//!
//! That is done in place: what is not written yet stays in the rings, where it survives a kill. Nobody is waited for: what a thread has
//! not finished is taken when it is, and may be late then. Each user has a merge of his own, in his turn: whoever floods his rings
//! holds up only himself.

use super::process::Process;
use super::{DrainSummary, Poll, Sink};
use crate::directory::ProcessId;
use crate::ring::{Left, Ring, Turn};
use crate::walk::Records;
use std::collections::BTreeMap;
use std::io;

/// A ring that is merged.
#[derive(Debug)]
pub(super) struct Member<'a> {
    index: u32,
    ring: &'a mut Ring,
    /// Nothing of it will be finished any more.
    last: bool,
    /// `None`: something is wrong with it.
    turn: Option<Turn>,
}

impl<'a> Member<'a> {
    pub(super) fn new(index: u32, ring: &'a mut Ring, last: bool) -> Member<'a> {
        Member { index, ring, last, turn: None }
    }

    /// Begins to take its records.
    fn begin(&mut self, poll: Poll) {
        match self.ring.turn(self.last, poll.stopping) {
            Ok(turn) => self.turn = Some(turn),
            Err(why) => self.ring.fault = Some(why),
        }
    }

    /// Its turn, if there is something to take.
    fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref().filter(|turn| self.ring.has_turn(turn))
    }

    /// After a walk. Returns whether another one may take more.
    fn went(&mut self, left: Left) -> bool {
        let Some(turn) = &mut self.turn else { return false };
        match self.ring.went(left, turn) {
            Ok(goes_on) => goes_on,
            Err(why) => {
                self.ring.fault = Some(why);
                self.turn = None;
                false
            }
        }
    }

    fn is_over(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| self.ring.is_over(turn))
    }

    fn taken(&self) -> u64 {
        self.turn.as_ref().map_or(0, |turn| self.ring.taken(turn))
    }
}

/// Takes the complete records of all rings of the processes with these numbers, in order, that share streams; others have none. Returns whether there
/// was time for all.
pub(super) fn drain(
    processes: &mut BTreeMap<ProcessId, Process>,
    ids: &[ProcessId],
    poll: Poll,
    sink: &mut dyn Sink,
    drained: &mut DrainSummary,
) -> io::Result<bool> {
    let mut is_wanted = false;
    for id in ids {
        let process = processes.get_mut(id);
        is_wanted |= process.is_some_and(|process| process.wants_merge(poll, sink, drained));
    }
    let (true, Some(first), Some(last)) = (is_wanted, ids.first(), ids.last()) else { return Ok(true) };
    let mut members = Vec::new();
    processes.range_mut(first..=last).for_each(|(_, process)| process.members(poll, &mut members));
    drained.begin(poll, sink);
    members.iter_mut().for_each(|member| member.begin(poll));
    while merge_once(&mut members, sink)? {
        // If the others went on without one that has had its share, its events would be late.
        let is_over = members.iter().any(Member::is_over);
        if poll.is_over() || is_over && !poll.stopping {
            drained.bytes += members.iter().map(Member::taken).sum::<u64>();
            drained.fullest = drained.fullest.max(1.0);
            return Ok(!poll.is_over());
        }
        if is_over {
            // The last call takes all that there is time for.
            drained.bytes += members.iter().map(Member::taken).sum::<u64>();
            members.iter_mut().for_each(|member| member.begin(poll));
        }
    }
    drained.bytes += members.iter().map(Member::taken).sum::<u64>();
    Ok(true)
}

/// Lets the sink take some records of each ring. Returns whether it may take more.
fn merge_once(members: &mut [Member<'_>], sink: &mut dyn Sink) -> io::Result<bool> {
    let (mut visits, mut walks) = (Vec::new(), Vec::<(u32, Records<'_>)>::new());
    for (at, member) in members.iter().enumerate() {
        if let Some(turn) = member.turn() {
            visits.push((at, member.ring.visit()));
            walks.push((member.index, member.ring.records(turn)));
        }
    }
    if walks.is_empty() {
        return Ok(false);
    }
    sink.merge(&mut walks)?;
    let left: Vec<(usize, Left)> =
        visits.into_iter().zip(&walks).map(|((at, visit), (_, records))| (at, visit.end(records))).collect();
    let mut goes_on = false;
    for (at, left) in left {
        let Some(member) = members.get_mut(at) else { continue };
        let before = member.taken();
        // Those of which nothing was taken may have their turn when others have had theirs.
        goes_on |= member.went(left) || member.taken() > before;
    }
    Ok(goes_on)
}

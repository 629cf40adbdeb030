// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings whose records are taken together. A trace has fewer streams than programs have threads, so some share a stream, and events of a
//! stream are in the order of their times: their rings are merged.
//!
//! That takes all rings of a group at once, in place: what is not written yet stays in the rings, where it survives a kill.
//! Nobody is waited for: what a thread has not finished is taken when it is, and may be late then.

use super::{DrainSummary, Poll, Programs, Sink};
use crate::budget::{DRAIN_GROUPS, LAST_DRAIN};
use crate::ring::{Left, Ring, Turn};
use crate::walk::Records;
use std::collections::BTreeMap;
use std::io;

/// A ring of a group.
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
    pub(super) fn new(index: u32, ring: &'a mut Ring, is_dead: bool) -> Member<'a> {
        Member { index, ring, last: is_dead, turn: None }
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

impl Programs {
    /// Takes the complete records of all rings that are in a group. `is_alone`: no other users wait for their turn.
    pub(super) fn drain_groups(
        &mut self,
        poll: Poll,
        is_alone: bool,
        sink: &mut dyn Sink,
        drained: &mut DrainSummary,
    ) -> io::Result<()> {
        let mut groups: BTreeMap<u32, Vec<Member<'_>>> = BTreeMap::new();
        for user in self.users.values_mut().filter(|user| user.served.is_some()) {
            user.processes.values_mut().for_each(|process| process.members(sink, &mut groups));
        }
        let time = if poll.stopping { LAST_DRAIN } else { DRAIN_GROUPS };
        let until = (!is_alone).then(|| poll.now + time);
        let poll = Poll { until, ..poll };
        let first = groups.split_off(&self.group_turn);
        self.group_turn = 0;
        for (group, mut members) in first.into_iter().chain(groups) {
            if poll.is_over() {
                // The others come first in the next poll.
                self.group_turn = group;
                drained.fullest = drained.fullest.max(1.0);
                break;
            }
            drain_group(group, &mut members, poll, sink, drained)?;
        }
        Ok(())
    }
}

fn drain_group(
    group: u32,
    members: &mut [Member<'_>],
    poll: Poll,
    sink: &mut dyn Sink,
    drained: &mut DrainSummary,
) -> io::Result<()> {
    let mut can_wait = !poll.stopping;
    for member in members.iter_mut() {
        // Read before the ring: records written before the end are then seen.
        member.last |= poll.stopping || member.ring.has_ended();
        drained.see(member.ring);
        can_wait &= member.ring.can_wait(poll.now) && !(member.last && member.ring.waiting_bytes() > 0);
    }
    if can_wait {
        return Ok(());
    }
    drained.begin(poll, sink);
    members.iter_mut().for_each(|member| member.begin(poll));
    while merge_once(group, members, sink)? {
        // One that goes on without the others would make their events late.
        if members.iter().any(Member::is_over) || poll.is_over() {
            drained.fullest = drained.fullest.max(1.0);
            break;
        }
    }
    drained.bytes += members.iter().map(Member::taken).sum::<u64>();
    Ok(())
}

/// Lets the sink take some records of each ring. Returns whether it may take more.
fn merge_once(group: u32, members: &mut [Member<'_>], sink: &mut dyn Sink) -> io::Result<bool> {
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
    sink.merge(group, &mut walks)?;
    let left: Vec<(usize, Left)> =
        visits.into_iter().zip(&walks).map(|((at, visit), (_, records))| (at, visit.end(records))).collect();
    let mut goes_on = false;
    for (at, left) in left {
        goes_on |= members.get_mut(at).is_some_and(|member| member.went(left));
    }
    Ok(goes_on)
}

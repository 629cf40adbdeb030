// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was found is taken over: directories, files, and what became of their processes.

use super::user::User;
use super::{LEFT_WAITING, PAST_MAX, Process, Programs, Sink};
use crate::budget::Cause;
use crate::look::{Found, PlaceId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

impl Programs {
    pub(super) fn adopt_all(&mut self, until: Instant, sink: &mut dyn Sink) -> io::Result<()> {
        while let Some(found) = self.look.next() {
            self.adopt(found, sink)?;
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn adopt(&mut self, found: Found, sink: &mut dyn Sink) -> io::Result<()> {
        match found {
            Found::Place(place) => {
                self.users.insert(place.id, User::new(place));
            }
            Found::PlaceGone(id) => {
                if let Some(mut user) = self.users.remove(&id) {
                    user.part(sink)?;
                    self.past_over += user.over;
                    let more = self.past_more.entry(user.directory.uid).or_default();
                    more.merge(&user.past());
                    let free = PAST_MAX.saturating_sub(self.past.len());
                    self.past.extend(user.reports().take(free));
                    user.reports().skip(free).for_each(|report| more.add(&report));
                }
            }
            Found::File(id, name, content) => {
                let Some(user) = self.users.get_mut(&id) else { return Ok(()) };
                if let Some(cause) = user.adopt(name, content, sink, &mut self.rings)? {
                    self.refusals.add(user.account, cause, &name.to_string());
                }
            }
            Found::Located(id, process, here) => {
                self.process(id, process).into_iter().for_each(|process| process.locate(here));
            }
            Found::Confined(id, process) => {
                self.process(id, process).into_iter().for_each(|process| process.confine());
            }
            Found::Ended(id, process) => {
                self.users.get_mut(&id).into_iter().for_each(|user| user.ended(process));
            }
            Found::Behind(id, processes) => {
                if let Some(user) = self.users.get_mut(&id) {
                    user.behind = processes;
                }
            }
            Found::Vanished(id, process) => {
                if let Some(user) = self.users.get_mut(&id) {
                    user.vanished(process, sink)?;
                    sink.process_over(user.directory.uid, process.pid, process.birth_ns);
                }
            }
            Found::Busy(programs) => self.busy.push(programs),
            Found::Unusable(why) => self.refused.push(why),
            Found::Refusal(user, cause, example) => self.refusals.add(user, cause, &example),
            Found::CensusLate(took) => {
                let example = format!("{:.1} s", took.as_secs_f64());
                self.refusals.add_of(None, Cause::CensusLate, &example);
            }
            Found::Missing(cause, example) => self.refusals.add_of(None, cause, &example),
            Found::Looked(number) => self.looked = self.looked.max(number),
            Found::GivenUp(id, why) => self.give_up(id, &why),
            Found::Fallen(why) => self.fall(&why),
        }
        Ok(())
    }

    /// Nothing more is found in a directory, for a fault of the look's.
    fn give_up(&mut self, id: PlaceId, why: &str) {
        if let Some(user) = self.users.get_mut(&id) {
            self.refusals.add(user.account, Cause::Fault, why);
            user.give_up();
        }
    }

    /// Nothing more is found at all.
    fn fall(&mut self, why: &str) {
        self.refusals.add_of(None, Cause::Fault, why);
        self.users.values_mut().for_each(User::give_up);
        // Programs that start from now on enable nothing: nobody finds what they would leave.
        self.for_all = None;
        self.look.withdraw(Instant::now());
        // What was asked before has no other answer.
        self.looked = self.look.asked();
    }

    fn process(&mut self, id: PlaceId, process: crate::directory::ProcessId) -> Option<&mut Process> {
        self.users.get_mut(&id)?.processes.get_mut(&process)
    }

    /// Gives up the files that were found and not taken over. Returns whose they are.
    pub(super) fn left_waiting(&mut self) -> BTreeSet<u32> {
        let (mut left, mut places) = (BTreeSet::new(), BTreeMap::new());
        let until = Instant::now() + LEFT_WAITING;
        while let Some(found) = self.look.next() {
            match found {
                Found::Place(place) => {
                    places.insert(place.id, place.account);
                }
                Found::File(id, ..) => {
                    let known = self.users.get(&id).map(|user| user.account);
                    left.extend(known.or_else(|| places.get(&id).copied()));
                }
                Found::Refusal(user, cause, example) => self.refusals.add(user, cause, &example),
                Found::Missing(cause, example) => self.refusals.add_of(None, cause, &example),
                Found::GivenUp(id, why) => self.give_up(id, &why),
                Found::Fallen(why) => self.fall(&why),
                _ => {}
            }
            if Instant::now() >= until {
                break;
            }
        }
        left
    }
}

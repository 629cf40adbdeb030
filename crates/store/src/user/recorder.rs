// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the trace of a recording of programs: what the collector gives it becomes events at once.

use super::end::{Undescribed, UserEnd};
use super::filter::UserFilter;
use super::finish::UserRecording;
use super::merge::Live;
use super::session_file::{FIRST, Line, SessionFile, UserSession};
use super::streams::StreamLimits;
use crate::Error;
use rtscope_ctf::RingTrace;
use rtscope_event::{MonotonicNs, counted};
use rtscope_programs::clock::{Pair, counter_kind};
use rtscope_programs::clock_watch::ClockProblem;
use rtscope_programs::collector::{Looks, LossesByUser, Records, Sink, UserLosses};
use rtscope_programs::{ProviderInfo, RingInfo};
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// Writes a recording.
#[derive(Debug)]
pub struct UserRecorder {
    file: SessionFile,
    session: UserSession,
    live: Live,
    undescribed: Undescribed,
    /// Of the programs' counter, until they are in the file.
    jumps: Vec<ClockProblem>,
    rings: usize,
    bytes: u64,
    events: u64,
}

impl UserRecorder {
    /// Makes the directory `TARGET.partial`.
    ///
    /// # Errors
    /// When `target` or the directory exist, or the directory cannot be made.
    pub fn create(target: &Path, session: &UserSession) -> Result<UserRecorder, Error> {
        UserRecorder::of(target, session, StreamLimits::RECORDING, None, (None, UserFilter::default()))
    }

    /// The same; `ring`: what limits the trace's size; `filter`: what is wanted.
    ///
    /// # Errors
    /// As [`UserRecorder::create`].
    pub fn limited(
        target: &Path,
        session: &UserSession,
        (ring, filter): (Option<RingTrace>, UserFilter),
    ) -> Result<UserRecorder, Error> {
        UserRecorder::of(target, session, StreamLimits::RECORDING, None, (ring, filter))
    }

    pub(super) fn of(
        target: &Path,
        session: &UserSession,
        limits: StreamLimits,
        window: Option<(MonotonicNs, MonotonicNs)>,
        (ring, filter): (Option<RingTrace>, UserFilter),
    ) -> Result<UserRecorder, Error> {
        let file = SessionFile::create(target, session)?;
        let live = Live::new(file.trace(), session, (limits, ring), window, filter);
        let (session, undescribed) = (session.clone(), Undescribed::default());
        let jumps = Vec::new();
        Ok(UserRecorder { file, session, live, undescribed, jumps, rings: 0, bytes: 0, events: 0 })
    }

    /// Adds pairs of counter and time.
    ///
    /// # Errors
    /// When the system refuses (a full disk).
    pub fn clock(&mut self, pairs: &[Pair]) -> io::Result<()> {
        self.jumps.extend(pairs.iter().filter_map(|pair| self.live.clock(*pair)));
        self.live.turn()?;
        self.jumps.drain(..).try_for_each(|jump| self.file.append(&Line::Clock(jump)))
    }

    /// Number of bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Completes all streams after an orderly end of the recording.
    ///
    /// # Errors
    /// When the system refuses. The recording can be opened as if the recorder had been killed.
    pub fn finish(mut self, end: &UserEnd) -> Result<UserRecording, Error> {
        let path = self.file.directory.shown.join(FIRST);
        let of_rings: HashMap<u32, (u64, u64)> =
            end.rings.iter().map(|(ring, lost, unfinished)| (*ring, (*lost, *unfinished))).collect();
        let of_ring = |ring: u32| of_rings.get(&ring).copied().unwrap_or_default();
        let (lost, unfinished) = self.live.end_rings(of_ring).map_err(Error::io("write", &path))?;
        let (unreadable, by_user) = (self.live.garbage(), self.by_user(end));
        let left_out = self.live.left_out();
        let remarks = left_out.iter().map(|(uid, events)| {
            format!(
                "{} left out of user {uid}, who had written more than his share when there was little room on the disk",
                counted(*events, "event was", "events were")
            )
        });
        let remarks = end.remarks.iter().cloned().chain(remarks).collect();
        let left_out = left_out.values().fold(0, |sum: u64, events| sum.saturating_add(*events));
        let end = UserEnd { lost, unfinished, unreadable, left_out, by_user, remarks, ..end.clone() };
        // Before the streams are complete: whoever is killed now has nothing more to find out.
        let line = Line::End(Box::new(end.clone()));
        self.file.append(&line).map_err(Error::io("write", &path))?;
        let live = self.live.finish(end.ended_ns).map_err(Error::io("write", &path))?;
        let (undescribed, rings) = (self.undescribed.finish(), Some(self.rings));
        Ok(UserRecording {
            file: self.file,
            session: self.session,
            clock: Vec::new(),
            undescribed,
            rings,
            end: Some(end),
            live: Some(live),
        })
    }

    /// Whose all losses are, once all rings are over.
    fn by_user(&self, end: &UserEnd) -> LossesByUser {
        let mut all = end.by_user.clone();
        for (uid, of_rings) in self.live.by_user() {
            all.entry(*uid).or_default().add(*of_rings);
        }
        for (uid, events) in self.live.left_out() {
            all.entry(uid).or_default().add(UserLosses { lost: events, ..UserLosses::default() });
        }
        let refused = end.refused.iter().filter_map(|refusal| refusal.user);
        for uid in self.undescribed.users().into_iter().chain(refused) {
            all.entry(uid).or_default().is_uncounted = true;
        }
        all.retain(|uid, losses| {
            losses.is_unasked = !self.live.wants_user(*uid);
            losses.lost > 0 || losses.is_uncounted || losses.filtered > 0 || losses.moved > 0
        });
        all
    }

    /// Removes everything.
    pub fn discard(self) {
        // The caller has an error of its own to report.
        let _ = self.file.directory.remove();
    }

    /// Leaves the recording as after a kill: it could not go on.
    #[must_use]
    pub fn abandon(self) -> UserRecording {
        UserRecording {
            file: self.file,
            session: self.session,
            clock: Vec::new(),
            undescribed: self.undescribed.finish(),
            rings: Some(self.rings),
            end: None,
            live: None,
        }
    }

    /// Takes what there is of some rings. Returns the number of events.
    pub(super) fn take(&mut self, rings: &mut [(u32, &mut Records<'_>)]) -> io::Result<u64> {
        let taken = self.live.take(rings)?;
        self.events += taken.events;
        self.bytes += taken.bytes;
        Ok(taken.events)
    }
}

impl Sink for UserRecorder {
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()> {
        self.live.provider(info);
        match self.undescribed.add(info) {
            Some(remark) => self.file.append(&Line::Undescribed(remark)),
            None => Ok(()),
        }
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        let number = rtscope_event::exact::count(self.rings);
        self.rings += 1;
        self.live.ring(number, info)
    }

    fn ring_over(&mut self, ring: u32, lost: u64, unfinished: u64) -> io::Result<()> {
        self.live.ring_over(ring, lost, unfinished)
    }

    fn process_over(&mut self, uid: u32, pid: u32, birth_ns: u64) {
        self.live.process_over((uid, pid, birth_ns));
    }

    fn needs_look(&self) -> bool {
        self.live.needs_look()
    }

    fn begin(&mut self, looks: Looks) {
        self.live.begin(looks);
        self.jumps.extend(self.live.clock(Pair::now(counter_kind())));
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        self.take(&mut [(ring, records)]).map(drop)
    }

    fn shares(&self, ring: u32) -> bool {
        self.live.shares(ring)
    }

    fn merge(&mut self, rings: &mut [(u32, Records<'_>)]) -> io::Result<()> {
        let mut rings: Vec<(u32, &mut Records<'_>)> =
            rings.iter_mut().map(|(ring, records)| (*ring, records)).collect();
        self.take(&mut rings).map(drop)
    }
}

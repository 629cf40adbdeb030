// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One instrumented process: its providers, its rings, whether it is alive, and what is wrong with it.

use super::described::Described;
use super::report::{ProcessReport, RingReport, RingTotals, UserLosses};
use super::shared::Member;
use super::snapshot::UserSpace;
use super::wanted::WantedEvents;
use super::{DrainSummary, Poll, Sink, Snapshot};
use crate::budget::{Cause, Charge, TAKE_BYTES};
use crate::description::{PROGRAM_BYTES_MAX, TOO_LARGE};
use crate::directory::{FileName, ProcessId};
use crate::image::RingImage;
use crate::look::Content;
use crate::memory::CUT;
use crate::provider::{ProcessCounters, Provider, ProviderInfo, Refused};
use crate::ring::{Ring, RingInfo};
use rtscope_abi::program as abi;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// So long the file of a library that was unloaded stays: should this recorder be killed, the next one has to read what is in the rings. Each ring is emptied
/// more often.
const UNLOADED: Duration = Duration::from_secs(2);
/// Rings between two looks at the clock.
const RINGS_AT_ONCE: usize = 16;

/// A process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) providers: BTreeMap<u32, Provider>,
    /// What these take in a trace.
    described: Described,
    /// Of libraries that are gone; only of flight recorders, whose rings may hold their events.
    pub(super) gone_providers: Vec<(ProviderInfo, Charge)>,
    /// Numbers of libraries that are gone, and since when: their files wait for [`UNLOADED`].
    unloaded: VecDeque<(u32, Instant)>,
    comm: String,
    pub(super) rings: Vec<(u32, Ring)>,
    /// Of rings that were taken to their end. They are not retained one by one: an endless recording may see any number.
    over: RingTotals,
    /// Those of them that the sink has not been told of.
    untold: Vec<RingReport>,
    untraced: Option<i32>,
    pub(super) dead: bool,
    /// Dead, and all of its records were taken.
    quiet: bool,
    /// Its files were given up.
    is_swept: bool,
    /// What is wrong with it; from then on nothing is taken from it.
    dropped: Option<String>,
    counters: ProcessCounters,
    counters_before: ProcessCounters,
    /// The ring that the next poll begins with.
    first_ring: usize,
    /// Its number in this PID namespace, once that is known.
    pid_here: Option<u32>,
    is_containers: bool,
    /// Recorded by this process, which may then write into its files.
    is_recorded: bool,
    /// How often its providers have changed.
    pub(super) providers_changed: u64,
    /// The events that somebody acts on.
    pub(super) wanted: WantedEvents,
}

impl Process {
    /// Takes over one of its files. `sink`: only when it is recorded. Returns why it is refused, if it is.
    pub(super) fn adopt(
        &mut self,
        name: FileName,
        content: Content,
        sink: Option<&mut dyn Sink>,
        rings: &mut u32,
    ) -> io::Result<Option<Cause>> {
        if let (Content::Provider(provider), Some(_)) = (&content, &self.dropped) {
            if self.is_recorded {
                disable(provider);
            }
        }
        if self.dropped.is_some() {
            return Ok(None);
        }
        (self.quiet, self.is_swept) = (false, false);
        match content {
            Content::Untraced(errno) => self.untraced = Some(errno),
            Content::Provider(provider) if self.described.bytes_with(&provider) > PROGRAM_BYTES_MAX => {
                if self.is_recorded {
                    disable(&provider);
                }
                let comm = provider.info.comm.clone();
                let refused = Refused { cause: Cause::TooMuchText, why: TOO_LARGE.to_string(), comm };
                return Ok(Some(self.refuse(name, refused)));
            }
            Content::Provider(provider) => {
                if let Some(sink) = sink {
                    sink.provider(&provider.info)?;
                }
                let number = provider.info.number;
                if number == 0 || self.comm.is_empty() {
                    self.comm.clone_from(&provider.info.comm);
                }
                if number == 0 {
                    self.counters_before = provider.reported();
                }
                self.described.add(&provider);
                if let Some(before) = self.providers.insert(number, *provider) {
                    self.described.remove(&before);
                }
                self.providers_changed += 1;
            }
            Content::Ring(mut ring) => {
                ring.info.host_pid = self.pid_here.filter(|here| *here != ring.info.pid);
                if let Some(sink) = sink {
                    sink.ring(&ring.info)?;
                }
                self.rings.push((*rings, *ring));
                *rings += 1;
            }
            Content::Refused(refused) => return Ok(Some(self.refuse(name, refused))),
        }
        Ok(None)
    }

    /// A process that has just been found.
    pub(super) fn new(is_containers: bool, is_recorded: bool) -> Process {
        Process { is_containers, is_recorded, ..Process::default() }
    }

    /// Stops taking from it, because of one of its files.
    fn refuse(&mut self, name: FileName, Refused { cause, why, comm }: Refused) -> Cause {
        if self.comm.is_empty() {
            self.comm = comm;
        }
        self.drop_it(format!("{name}: {why}"));
        cause
    }

    /// Its number in this PID namespace is known.
    pub(super) fn locate(&mut self, here: u32) {
        self.pid_here = Some(here);
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        self.dead = true;
        self.quiet = false;
        self.counters = self.counters();
    }

    /// It makes no system call any more: its threads get no further rings, unless they ask.
    pub(super) fn confine(&self) {
        if let (Some(leader), true) = (self.providers.get(&0), self.is_recorded) {
            leader.set_flags(leader.flags() | abi::RTU_NO_LAZY);
        }
    }

    /// Nothing more is taken, and nothing is owed: what a thread finishes later is nobody's.
    pub(super) fn settle(&self) {
        if let (Some(leader), true) = (self.providers.get(&0), self.is_recorded) {
            leader.set_flags(0);
        }
    }

    fn drop_it(&mut self, why: String) {
        self.counters = self.counters();
        // A process that only watches changes nothing: the recording is another's, and the trouble may be the watcher's own (no
        // memory). The session's flags are cleared with the events: no thread may wait for a collector that takes nothing any more.
        if self.is_recorded {
            self.disable();
            self.settle();
        }
        self.dropped = Some(why);
        let rings = std::mem::take(&mut self.rings);
        self.done_with(&rings);
        self.forget_providers();
    }

    fn done_with<'a>(&mut self, rings: impl IntoIterator<Item = &'a (u32, Ring)>) {
        for (index, ring) in rings {
            let report = ring_report(*index, ring);
            self.over.add(report.totals());
            if self.is_recorded {
                self.untold.push(report);
            }
        }
    }

    /// Tells the sink of rings that are over.
    pub(super) fn tell(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        self.untold.drain(..).try_for_each(|ring| sink.ring_over(ring.index, ring.lost, ring.unfinished))
    }

    /// Nothing more is taken from it: its directory is gone.
    pub(super) fn part(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        self.counters = self.counters();
        let rings = std::mem::take(&mut self.rings);
        self.done_with(&rings);
        self.forget_providers();
        self.tell(sink)
    }

    /// Finds its rings whose records are taken together with those of others (`shared`). Returns whether any of them cannot wait.
    pub(super) fn wants_merge(&mut self, poll: Poll, sink: &dyn Sink, drained: &mut DrainSummary) -> bool {
        let mut is_wanted = false;
        for (index, ring) in &mut self.rings {
            ring.is_shared = sink.shares(*index);
            if ring.is_shared {
                drained.see(ring);
                is_wanted |= !ring.can_wait(poll.now) || poll.stopping && ring.waiting_bytes() > 0;
            }
        }
        is_wanted
    }

    /// These rings.
    pub(super) fn members<'a>(&'a mut self, poll: Poll, members: &mut Vec<Member<'a>>) {
        let is_last = poll.stopping || self.dead;
        for (index, ring) in self.rings.iter_mut().filter(|(_, ring)| ring.is_shared) {
            // Read before the ring: records written before the end are then seen.
            let last = is_last || ring.has_ended();
            ring.is_taken(poll.now);
            members.push(Member::new(*index, ring, last));
        }
    }

    /// There is nothing to report: once nothing of it is left, it can be dropped.
    pub(super) fn is_unremarkable(&self) -> bool {
        let outside = self.counters();
        let has_trouble = outside.lost() > 0
            || outside.rings_refused > 0
            || outside.objects_refused > 0
            || !self.over.is_nothing()
            || !self.rings.is_empty();
        !has_trouble && self.untraced.is_none() && self.dropped.is_none()
    }

    /// Nothing of it is mapped any more.
    pub(super) fn is_unmapped(&self) -> bool {
        self.rings.is_empty() && self.providers.is_empty()
    }

    /// Nothing more comes of it: of one whose files were given up, what described its events is needed no longer.
    pub(super) fn let_go(&mut self) {
        if self.is_swept && self.rings.is_empty() && !self.providers.is_empty() {
            self.counters = self.counters();
            self.forget_providers();
        }
    }

    fn forget_providers(&mut self) {
        self.providers.clear();
        self.described = Described::default();
        self.gone_providers.clear();
        // Descriptions that somebody holds are on their user's account.
        self.wanted = WantedEvents::default();
    }

    /// Disables all events.
    pub(super) fn disable(&mut self) {
        self.providers.values().for_each(disable);
    }

    /// Of a flight recorder: its rings are no longer overwritten, and what was is nobody's.
    pub(super) fn give_back_overwritten(&mut self) {
        self.rings.iter_mut().for_each(|(_, ring)| ring.give_back_overwritten());
    }

    /// Tells it that somebody takes its records, and looks for libraries that were unloaded and for files that were cut. `is_flight`:
    /// rings may hold events of those libraries. `is_behind`: it is told nothing, and makes few further rings. Tells the sink of rings that
    /// are over.
    pub(super) fn beat(&mut self, is_flight: bool, is_behind: bool, sink: &mut dyn Sink) -> io::Result<()> {
        // Nobody else looks at the rings of a flight recorder all the time.
        if self.providers.values().any(Provider::is_cut) || self.rings.iter().any(|(_, ring)| ring.is_cut()) {
            self.drop_it(CUT.to_string());
        }
        let is_told = self.is_recorded && !self.dead && !is_behind;
        if let (Some(leader), true) = (self.providers.get(&0), is_told) {
            leader.beat();
        }
        self.find_unloaded(is_flight);
        self.tell(sink)
    }

    /// Libraries that are gone.
    pub(super) fn find_unloaded(&mut self, is_flight: bool) {
        let unloaded: Vec<_> = self
            .providers
            .iter()
            .filter(|(_, provider)| provider.is_unloaded())
            .map(|(key, _)| *key)
            .collect();
        let now = Instant::now();
        self.unloaded.extend(unloaded.iter().map(|number| (*number, now)));
        for provider in unloaded.iter().filter_map(|key| self.providers.remove(key)) {
            self.described.remove(&provider);
            self.providers_changed += 1;
            if is_flight {
                self.gone_providers.push(provider.into_description());
            }
        }
    }

    /// Takes complete records; from nearly empty rings only now and then. Returns whether there was time for all rings. Files of rings that
    /// are over are added to `over`.
    pub(super) fn drain(
        &mut self,
        poll: Poll,
        over: &mut Vec<FileName>,
        sink: &mut dyn Sink,
        drained: &mut DrainSummary,
    ) -> io::Result<bool> {
        let mut wrong = None;
        let mut ended_rings = Vec::new();
        let mut left = false;
        let count = self.rings.len();
        let mut visited = 0;
        while visited < count {
            if visited % RINGS_AT_ONCE == 0 && visited > 0 && poll.is_over() {
                break;
            }
            let Some((index, ring)) = self.rings.get_mut((self.first_ring + visited) % count) else { break };
            visited += 1;
            let state = if ring.is_shared {
                state_of_member(ring, poll)
            } else {
                drain_ring(*index, ring, self.dead, poll, sink, drained)?
            };
            match state {
                Ok(RingState::HasMore) => left = true,
                Ok(RingState::Over) => ended_rings.push(*index),
                Ok(RingState::Live) => {}
                Err(why) => wrong = wrong.or(Some(format!("{}: {why}", ring.name))),
            }
        }
        self.first_ring = if count == 0 { 0 } else { (self.first_ring + visited) % count };
        let is_complete = visited == count;
        if let Some(why) = wrong {
            self.drop_it(why);
        }
        if let (Some(leader), true) = (self.providers.get(&0), poll.stopping) {
            leader.set_reported(&leader.counters());
        }
        self.quiet = self.dead && !left && is_complete;
        if !ended_rings.is_empty() {
            ended_rings.sort_unstable();
            let is_over = |(index, _): &(u32, Ring)| ended_rings.binary_search(index).is_ok();
            let (ended, rings) = std::mem::take(&mut self.rings).into_iter().partition(is_over);
            self.rings = rings;
            over.extend(ended.iter().map(|(_, ring): &(u32, Ring)| ring.name));
            self.done_with(&ended);
            // Their streams are for others now.
            self.tell(sink)?;
            self.first_ring = 0;
        }
        Ok(is_complete)
    }

    /// Numbers of the libraries that were unloaded so long ago (`is_last`: at any time) that nobody needs their files. While it is not recorded, a
    /// program removes them itself.
    pub(super) fn take_unloaded(&mut self, is_last: bool) -> Vec<u32> {
        let is_over = |(_, since): &(u32, Instant)| is_last || since.elapsed() >= UNLOADED;
        let count = self.unloaded.iter().take_while(|one| is_over(one)).count();
        self.unloaded.drain(..count).map(|(number, _)| number).collect()
    }

    /// Whether the files of this dead process can be removed. When it is recorded, only after its last record was taken; otherwise only
    /// when they hold nothing for a later recording. Then nothing of it is mapped any more.
    pub(super) fn sweep(&mut self, recorded: bool) -> bool {
        let empty = self.rings.iter().all(|(_, ring)| ring.waiting_bytes() == 0);
        if !self.dead || self.is_swept || !(recorded && self.quiet || !recorded && empty) {
            return false;
        }
        let rings = std::mem::take(&mut self.rings);
        self.done_with(&rings);
        self.counters = self.counters();
        self.forget_providers();
        self.is_swept = true;
        true
    }

    /// Whether nobody asks for any of its events: what a killed recorder asked for, and what was lost of that, is nothing of this recording.
    fn is_unasked(&self) -> bool {
        let gone = self.gone_providers.iter().map(|(info, _)| info);
        let mut all = self.providers.values().map(|provider| &provider.info).chain(gone).peekable();
        self.is_recorded && all.peek().is_some() && all.all(|info| !info.is_asked_for())
    }

    fn counters(&self) -> ProcessCounters {
        if self.is_unasked() {
            return ProcessCounters::default();
        }
        let Some(leader) = self.providers.get(&0) else { return self.counters };
        let (now, before) = (leader.counters(), self.counters_before);
        ProcessCounters {
            lost_no_ring: now.lost_no_ring.saturating_sub(before.lost_no_ring),
            lost_in_setup: now.lost_in_setup.saturating_sub(before.lost_in_setup),
            lost_too_large: now.lost_too_large.saturating_sub(before.lost_too_large),
            lost_in_child: now.lost_in_child.saturating_sub(before.lost_in_child),
            rings_made: now.rings_made,
            rings_refused: now.rings_refused.saturating_sub(before.rings_refused),
            refused_errno: now.refused_errno,
            lost_nobody: now.lost_nobody.saturating_sub(before.lost_nobody),
            lost_no_file: now.lost_no_file.saturating_sub(before.lost_no_file),
            objects_refused: now.objects_refused.saturating_sub(before.objects_refused),
            object_errno: now.object_errno,
            lost_no_channel: now.lost_no_channel.saturating_sub(before.lost_no_channel),
            channels: now.channels,
            channel_errno: now.channel_errno,
        }
    }

    /// Events lost because a ring was full or missing.
    pub(super) fn lost(&self) -> u64 {
        let rings = self.rings.iter().map(|(index, ring)| ring_report(*index, ring).lost);
        rings.chain([self.over.lost]).fold(self.counters().lost(), u64::saturating_add)
    }

    /// What was lost outside of its rings.
    pub(super) fn outside(&self) -> UserLosses {
        let is_uncounted = self.untraced.is_some() || self.dropped.is_some();
        UserLosses { lost: self.counters().lost(), is_uncounted, ..UserLosses::default() }
    }

    pub(super) fn report(&self, id: ProcessId, uid: u32) -> ProcessReport {
        let providers: Vec<ProviderInfo> =
            self.providers.values().map(|provider| provider.info.clone()).collect();
        let rings = self.rings.iter().map(|(index, ring)| ring_report(*index, ring)).collect();
        ProcessReport {
            pid: id.pid,
            host_pid: self.pid_here.filter(|here| *here != id.pid),
            container: self.is_containers,
            uid,
            comm: self.comm.clone(),
            enabled: self.providers.values().map(Provider::enabled).sum(),
            providers,
            rings,
            over: self.over,
            lost_outside: self.counters(),
            untraced: self.untraced,
            dropped: self.dropped.clone(),
            dead: self.dead,
        }
    }

    /// `space`: what its user may still have in it; less afterwards. False: that was not enough.
    pub(super) fn snapshot(&self, into: &mut Snapshot, space: &mut UserSpace) -> bool {
        into.lost_outside = into.lost_outside.saturating_add(self.counters().lost());
        into.untraced += u64::from(self.untraced.is_some());
        into.dropped += u64::from(self.dropped.is_some());
        let gone = self.gone_providers.iter().map(|(info, _)| info);
        let infos: Vec<&ProviderInfo> =
            self.providers.values().map(|provider| &provider.info).chain(gone).collect();
        // Without its descriptions nothing of it can be read.
        if !space.describe(&infos) {
            return false;
        }
        into.providers.extend(infos.into_iter().cloned());
        let mut is_complete = true;
        for (_, ring) in &self.rings {
            let beside = size_of::<(RingInfo, RingImage)>() as u64;
            // Without memory it is as without space.
            let Ok((image, is_all)) = ring.snapshot(space.left.saturating_sub(beside)) else {
                is_complete = false;
                continue;
            };
            is_complete &= is_all;
            space.hold(image.held_bytes().saturating_add(beside));
            // It begins with a sync record; earlier losses are not part of this snapshot.
            let info = RingInfo { sync: None, lost_before: ring.lost(), ..ring.info.clone() };
            into.rings.push((info, image));
        }
        is_complete
    }

    /// For flight recorders: drops rings of threads that ended longer ago than `before`, and adds their files to `over`. True when nothing
    /// of the process is left.
    pub(super) fn forget_ended(&mut self, over: &mut Vec<FileName>, before: Duration) -> bool {
        let dead = self.dead;
        self.rings.retain(|(_, ring)| {
            let keep = !(dead || ring.has_ended()) || ring.ended_for() < before;
            if !keep {
                over.push(ring.name);
            }
            keep
        });
        self.dead && self.rings.is_empty() && !std::mem::replace(&mut self.is_swept, true)
    }
}

/// Disables all events of a provider. What is in its rings is still owed.
fn disable(provider: &Provider) {
    provider.enable(None);
    if provider.info.number == 0 {
        provider.set_session(0, provider.flags() & abi::RTU_STREAMED, 0);
    }
}

/// What is to come of a ring.
enum RingState {
    /// There will be more records, perhaps.
    Live,
    /// Records are left for later.
    HasMore,
    /// Its thread has ended, and all was taken.
    Over,
}

/// Takes the complete records of a ring. `Err`: what is wrong with it.
fn drain_ring(
    index: u32,
    ring: &mut Ring,
    is_dead: bool,
    poll: Poll,
    sink: &mut dyn Sink,
    drained: &mut DrainSummary,
) -> io::Result<Result<RingState, String>> {
    // Read before the ring: records written before the end are then seen. A thread that ends after this reading is
    // not finished yet, and neither is one some of whose records are left for later.
    let ended = ring.has_ended();
    let last = poll.stopping || is_dead || ended;
    drained.see(ring);
    if !last && ring.can_wait(poll.now) {
        ring.set_reported_lost(ring.lost());
        return Ok(Ok(RingState::Live));
    }
    drained.begin(poll, sink);
    let mut taken_in_all = 0;
    loop {
        match ring.take(last, poll.stopping, |records| sink.data(index, records))? {
            // The last call takes all that there is time for.
            Ok(taken) if taken >= TAKE_BYTES => {
                taken_in_all += taken;
                if !poll.stopping || poll.is_over() {
                    // The rest waits for the other rings, but not long.
                    drained.fullest = drained.fullest.max(1.0);
                    break;
                }
            }
            Ok(taken) => {
                taken_in_all += taken;
                break;
            }
            Err(why) => return Ok(Err(why)),
        }
    }
    drained.bytes += taken_in_all;
    Ok(Ok(state_of(ring, ended, poll)))
}

/// Of a ring from which records were taken; whether its thread had ended before that.
fn state_of(ring: &Ring, ended: bool, poll: Poll) -> RingState {
    ring.set_reported_lost(ring.lost());
    match ring.waiting_bytes() {
        0 if ended && !poll.stopping => RingState::Over,
        0 => RingState::Live,
        _ => RingState::HasMore,
    }
}

/// Of a ring whose records are taken with those of others (`shared`). `Err`: what is wrong with it.
fn state_of_member(ring: &mut Ring, poll: Poll) -> Result<RingState, String> {
    // Read before the ring, as above: then nothing of it is left.
    let ended = ring.has_ended();
    ring.fault.take().map_or_else(|| Ok(state_of(ring, ended, poll)), Err)
}

fn ring_report(index: u32, ring: &Ring) -> RingReport {
    RingReport {
        index,
        tid: ring.info.tid,
        comm: ring.info.comm.clone(),
        bytes: ring.info.layout.ring_bytes,
        waiting_bytes: ring.waiting_bytes(),
        lost: ring.lost().saturating_sub(ring.info.lost_before),
        unfinished: ring.unfinished,
        waits: ring.waits(),
        ended: ring.has_ended(),
    }
}

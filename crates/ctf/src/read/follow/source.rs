// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording that goes on as a [`TraceSource`]: what analyses see of it.
//!
//! An analysis takes events in order of time, and is promised that nothing comes before a moment. So an event that comes after its horizon
//! is not given to it, but counted as lost there and then.

use super::super::class::ClockClass;
use super::super::index::StreamGap;
use super::super::queue::Output;
use super::super::set::TraceSet;
use super::super::slices::{EventView, Work};
use super::super::source::{Batch, Described, Describing, Gathering};
use super::merge::Take;
use super::{Follower, Round, Stage};
use crate::Error;
use rtscope_event::exact::count;
use rtscope_event::{CpuId, EventClass, Item, LossCause, Lost, Schema, StreamId, TraceSource};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

/// Events that are decoded before they are given out.
const BATCH_EVENTS: usize = 4096;

/// What a source asks of whoever runs it.
pub trait Host {
    /// Sleeps until something may have come; false: end.
    fn wait(&mut self) -> bool;
    /// Whether the recorder that made this directory is gone.
    fn is_abandoned(&self, directory: &Path) -> bool;
}

/// The events of a recording in order of time, while it is made.
pub struct FollowSource<'h> {
    follower: Follower,
    host: &'h mut dyn Host,
    wanted: &'h dyn Fn(&EventClass) -> bool,
    delay: Duration,
    stage: Stage,
    /// The follower's, that `describing` is of.
    generation: Option<u64>,
    describing: Describing,
    /// By class: whether it is wanted.
    is_wanted: Vec<bool>,
    batch: Batch,
    /// Of the batch.
    next: usize,
    /// Before which event of the batch to say them.
    losses: VecDeque<(usize, Lost)>,
    /// What has been promised: nothing before this moment.
    promised_ns: i64,
    /// To be said after the batch.
    promise_ns: Option<i64>,
    late: u64,
    is_over: bool,
    failure: Option<Error>,
}

impl<'h> FollowSource<'h> {
    /// Follows; events of classes that are not wanted are passed over. `delay`: how long to wait for events before later ones are given out.
    pub fn new(
        follower: Follower,
        wanted: &'h dyn Fn(&EventClass) -> bool,
        delay: Duration,
        host: &'h mut dyn Host,
    ) -> FollowSource<'h> {
        FollowSource {
            follower,
            host,
            wanted,
            delay,
            stage: Stage::Waiting,
            generation: None,
            describing: Describing::default(),
            is_wanted: Vec::new(),
            batch: Batch::default(),
            next: 0,
            losses: VecDeque::new(),
            promised_ns: i64::MIN,
            promise_ns: None,
            late: 0,
            is_over: false,
            failure: None,
        }
    }

    /// How far the recording was when it was last looked at.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Number of events that came too late, and are counted as lost.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// What is followed, and why it ended early, if it did.
    #[must_use]
    pub fn into_parts(self) -> (Follower, Option<Error>) {
        (self.follower, self.failure)
    }

    /// Decodes more, or waits for more.
    fn fill(&mut self) -> Result<(), Error> {
        self.batch = std::mem::take(&mut self.batch).recycled();
        self.next = 0;
        let host = &self.host;
        self.stage = self.follower.look(&|directory| host.is_abandoned(directory))?;
        self.describe();
        let is_last = self.stage.is_over();
        let horizon_ns = if is_last { i64::MAX } else { self.follower.horizon(self.delay) };
        let mut gathering = Gatherer {
            described: &self.describing.described,
            schema: &self.describing.schema,
            is_wanted: &self.is_wanted,
            batch: &mut self.batch,
            losses: &mut self.losses,
            promised_ns: self.promised_ns,
            late: 0,
        };
        let round = self.follower.round(horizon_ns, &mut gathering)?;
        self.late += gathering.late;
        if round == Round::Dry {
            if is_last || self.follower.is_past() {
                self.is_over = true;
            } else {
                self.promise_ns =
                    Some(self.follower.reached_ns()).filter(|horizon| *horizon > self.promised_ns);
                let has_nothing = self.batch.entries.is_empty() && self.losses.is_empty();
                self.is_over = has_nothing && !self.host.wait();
            }
        }
        Ok(())
    }

    /// Brings the schema up to date.
    fn describe(&mut self) {
        let generation = self.follower.generation();
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        self.describing.extend(self.follower.set());
        let Describing { schema, .. } = &mut self.describing;
        let streams = schema.streams.iter_mut().zip(&self.follower.tails).zip(&self.follower.set.streams);
        for ((info, tail), stream) in streams {
            if info.complete_since_ns.is_none() {
                let begin = tail.begin.zip(self.follower.set.clock(stream));
                let begin_ns = begin.map(|(begin, clock): (u64, &ClockClass)| clock.ns(begin));
                let from_ns = self.follower.selection.from_ns;
                info.complete_since_ns = begin_ns.max(from_ns.filter(|_| begin_ns.is_some()));
            }
        }
        let fresh = schema.classes.iter().skip(self.is_wanted.len());
        self.is_wanted.extend(fresh.map(self.wanted));
    }
}

impl TraceSource for FollowSource<'_> {
    fn schema(&self) -> &Schema {
        &self.describing.schema
    }

    fn next(&mut self) -> Item<'_> {
        loop {
            if self.losses.front().is_some_and(|(before, _)| *before <= self.next) {
                return self.losses.pop_front().map_or(Item::End, |(_, lost)| Item::Lost(lost));
            }
            if self.next < self.batch.entries.len() {
                break;
            }
            if let Some(promise_ns) = self.promise_ns.take() {
                self.promised_ns = promise_ns;
                return Item::NothingBefore(promise_ns);
            }
            if self.is_over {
                return Item::End;
            }
            if let Err(error) = self.fill() {
                self.failure = Some(error);
                self.is_over = true;
            }
        }
        let Some(entry) = self.batch.entries.get(self.next) else { return Item::End };
        self.next += 1;
        Item::Event(self.batch.event(entry, &self.describing.schema))
    }
}

/// Takes the values of a round.
struct Gatherer<'f> {
    described: &'f Described,
    schema: &'f Schema,
    is_wanted: &'f [bool],
    batch: &'f mut Batch,
    losses: &'f mut VecDeque<(usize, Lost)>,
    promised_ns: i64,
    late: u64,
}

impl Take for Gatherer<'_> {
    fn event(&mut self, set: &TraceSet, event: &mut EventView<'_, '_>) -> bool {
        let class = self.described.places.get(event.stream).and_then(|places| places.get(event.event));
        let is_wanted = class.and_then(|class| self.is_wanted.get(*class as usize)).copied().unwrap_or(false);
        let time_ns = event.ns.unwrap_or(i64::MIN);
        if !is_wanted {
            event.pass();
        } else if event.late_ns.is_some() || time_ns < self.promised_ns {
            event.pass();
            self.late += 1;
            let gap = StreamGap {
                packets: false,
                count: Some(1),
                from_ns: Some(time_ns),
                to_ns: Some(time_ns),
                is_overwritten: false,
            };
            return self.lost(set, event.stream, &gap);
        } else {
            Gathering(self.described).event(self.batch, event);
        }
        self.batch.entries.len() < BATCH_EVENTS
    }

    fn lost(&mut self, set: &TraceSet, stream: usize, gap: &StreamGap) -> bool {
        let cpu = set.streams.get(stream).and_then(|stream| u32::try_from(stream.cpu?).ok()).map(CpuId);
        let known = self.schema.streams.get(stream).map(|_| StreamId(count(stream)));
        let lost = Lost {
            cause: if gap.is_overwritten { LossCause::Overwritten } else { LossCause::Discarded },
            count: gap.count,
            packets: gap.packets,
            stream: known,
            cpu,
            since_ns: gap.from_ns,
            until_ns: gap.to_ns,
        };
        self.losses.push_back((self.batch.entries.len(), lost));
        true
    }
}

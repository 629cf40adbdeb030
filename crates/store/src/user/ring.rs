// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring whose records become events: what is known of it, and what each record is.

use super::classes::{FixedSizeEvent, PlainEvents, ProcessClasses};
use rtscope_abi::program as abi;
use rtscope_ctf::{EventThread, PlainEvent, UserContext, UserStreamWriter};
use rtscope_event::MonotonicNs;
use rtscope_event::exact::low_half;
use rtscope_programs::RingInfo;
use rtscope_programs::clock::{EventTime, LiveClock, Pair, Stretch, counter_kind, without_offset};
use rtscope_programs::collector::{Looks, Records};
use rtscope_programs::records::Layout;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long to wait for an event's description. Its file is there before the event, but may be found later.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct LiveRing {
    pub(super) info: RingInfo,
    /// Its stream.
    pub(super) stream: usize,
    /// Its process's events whose payloads have one size, and of which version of what the process describes.
    plain: Arc<PlainEvents>,
    version: u64,
    /// The encoded context of events now, and its CPU.
    pub(super) context: Vec<u8>,
    has_context: bool,
    /// Losses reported so far; and those written into the trace.
    pub(super) lost: u64,
    pub(super) lost_written: u64,
    /// Since when the description of the event at a position has been awaited, and the look that finds it if it is there.
    waiting: Option<(u64, Instant, u64)>,
    looks: Looks,
    /// It waits, and fills up.
    pub(super) needs_look: bool,
    /// A description did not come: none is awaited any more, or a lying program could delay its ring by each event. Until its process
    /// describes more.
    is_impatient: bool,
    /// Whether its events are wanted, and how many were left out.
    pub(super) is_wanted: bool,
    pub(super) filtered: u64,
    /// Invalid records.
    pub(super) garbage: u64,
    /// Events from before the recording, which an earlier recorder had not taken when it was killed; until the first one of its own time.
    pub(super) earlier: u64,
    /// Of its events, those that came too late for their own time.
    pub(super) moved: u64,
    pub(super) has_begun: bool,
    /// This poll has read the clock, because its last pair was old.
    has_asked: bool,
    /// The payload of the event that was decoded last.
    pub(super) payload: Vec<u8>,
}

/// What to do with the current record.
pub(super) enum Step {
    /// Write an event.
    Event(Head),
    /// Skip it: it is not an event.
    Skip,
    Garbage,
    Later,
}

/// A ring's next event: its class and time, how much of the record is its payload, and where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) class: u32,
    pub(super) time_ns: u64,
    pub(super) payload_bytes: usize,
    pub(super) end: u64,
}

impl LiveRing {
    pub(super) fn new(info: &RingInfo, stream: usize, is_wanted: bool) -> LiveRing {
        LiveRing {
            info: info.clone(),
            stream,
            plain: Arc::default(),
            version: 0,
            is_wanted,
            filtered: 0,
            garbage: 0,
            earlier: 0,
            moved: 0,
            has_begun: false,
            context: Vec::new(),
            has_context: false,
            lost: info.lost_before,
            lost_written: info.lost_before,
            waiting: None,
            looks: Looks::default(),
            needs_look: false,
            is_impatient: false,
            has_asked: false,
            payload: Vec::new(),
        }
    }

    /// Records of it are about to be taken. `known`: the events of its process.
    pub(super) fn begin(&mut self, looks: Looks, known: &ProcessClasses) {
        (self.has_asked, self.needs_look, self.looks) = (false, false, looks);
        // Its process has described more. Not done when that comes: a process has any number of rings, and they are emptied in its user's turn.
        if std::mem::replace(&mut self.version, known.version) != known.version {
            (self.is_impatient, self.waiting) = (false, None);
            if self.is_wanted {
                self.plain = Arc::clone(known.plain());
            }
        }
    }

    /// Events that did not fit, so far.
    pub(super) fn told(&self) -> u64 {
        self.lost - self.info.lost_before
    }

    /// What a complete record is; the payload of an event is in `payload` afterwards.
    pub(super) fn step(
        &mut self,
        known: &ProcessClasses,
        clock: &mut LiveClock,
        context: UserContext,
        records: &mut Records<'_>,
        (id, end, low): (u32, u64, u64),
        started_ns: u64,
    ) -> Step {
        // Older than the recording, or not; its event may be one that nobody asks for now.
        let is_left = end <= self.info.left_until;
        if let Some(lost) = records.read_sync(id, end) {
            self.lost = self.lost.max(lost);
            self.set_context(context, records);
            return Step::Skip;
        }
        if id == abi::RTU_ID_PADDING {
            return Step::Skip;
        }
        let Some(sync) = records.sync().filter(|_| id < abi::RTU_EVENTS_MAX) else {
            return if is_left { Step::Skip } else { Step::Garbage };
        };
        if !self.is_wanted {
            self.filtered += 1;
            return Step::Skip;
        }
        let Some(known) = known.event(id) else {
            if is_left || known.is_left_out(id) {
                return Step::Skip;
            }
            return if self.is_patient(records) { Step::Later } else { Step::Garbage };
        };
        records.copy_payload(end, &mut self.payload);
        let payload_bytes = known.payload_bytes(&self.payload);
        if payload_bytes.is_some() && !known.is_wanted(&self.payload) {
            self.filtered += 1;
            return Step::Skip;
        }
        let (used, counter) = (payload_bytes, sync.complete(low));
        let counter = without_offset(counter, self.info.clock_offset_ns);
        let mut when = clock.when(self.info.clock, counter, records.is_final());
        if when == EventTime::Never && !std::mem::replace(&mut self.has_asked, true) {
            // Or the collector did not run since it took the last pair.
            clock.push(Pair::now(counter_kind()));
            when = clock.when(self.info.clock, counter, records.is_final());
        }
        if !self.has_context {
            // An earlier collector may have taken the last sync record.
            self.set_context(context, records);
        }
        match (when, used) {
            (EventTime::Later, _) => Step::Later,
            (EventTime::At(time_ns), _) if self.info.drops_earlier && time_ns < started_ns => Step::Skip,
            (EventTime::At(time_ns), Some(payload_bytes)) => {
                Step::Event(Head { class: known.class, time_ns, payload_bytes, end })
            }
            _ => Step::Garbage,
        }
    }

    fn set_context(&mut self, requested: UserContext, records: &Records<'_>) {
        let cpu = records.sync().map_or(abi::RTU_CPU_UNKNOWN, |sync| sync.cpu);
        self.has_context = true;
        self.context.clear();
        let RingInfo { pid, tid, uid, ref comm, .. } = self.info;
        requested.encode(EventThread { pid, tid, comm, uid }, cpu, &mut self.context);
    }

    fn is_patient(&mut self, records: &Records<'_>) -> bool {
        let position = records.position();
        let before = self.waiting.filter(|(waiting, ..)| *waiting == position);
        let (_, since, look) = before.unwrap_or_else(|| (position, Instant::now(), self.looks.asked + 1));
        self.waiting = Some((position, since, look));
        let is_filling = records.bytes() > self.info.layout.ring_bytes / 2;
        // The file was there before the event: what a look that began after it was seen has not found will not come.
        let is_answered = self.looks.answered >= look;
        self.needs_look = is_filling && !is_answered;
        self.is_impatient |= records.is_final() || is_filling && is_answered || since.elapsed() >= PATIENCE;
        !self.is_impatient
    }

    /// Writes the events that follow, as long as they are simple: payloads of one size, in the time between two pairs of the clock, not
    /// later than `until_ns`. Nearly all events of nearly all programs are taken here. Returns their number.
    pub(super) fn go_on(
        &self,
        records: &mut Records<'_>,
        stretch: Stretch,
        (until_ns, bytes_max): (u64, usize),
        out: &mut UserStreamWriter,
    ) -> u64 {
        let Some(sync) = records.sync() else { return 0 };
        let plain = self.plain.as_ref();
        let (tag, words, times) = (records.tag(), records.words(), stretch.times(sync));
        let next = |at: usize| {
            // ORDER: acquire; pairs with the release in rtscope__commit(): the payload is there.
            let word = words.get(at)?.load(Ordering::Acquire);
            if word & Layout::TAG != tag {
                return None;
            }
            let FixedSizeEvent { class, bytes } = plain.get(low_half(word) & 0xffff)?;
            let end = at + (word >> 24 & 0x3ff) as usize;
            let payload = words.get(at + 1..end)?;
            let (bytes, time) = (bytes as usize, times.monotonic_ns(word >> abi::RTU_TIME_SHIFT)?);
            // ORDER: relaxed; the acquire of the word covers them.
            let words = payload.iter().map(|word| word.load(Ordering::Relaxed));
            let event = PlainEvent { class, time: MonotonicNs(time), words, bytes };
            (bytes <= payload.len() * 8 && time <= until_ns).then_some((event, end))
        };
        let (events, taken) = out.run(bytes_max, &self.context, next);
        records.go_to(records.position() + taken as u64 * 8);
        events
    }
}

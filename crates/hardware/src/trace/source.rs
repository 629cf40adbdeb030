// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of hardware traces as a source of events, in order of time.

use super::classes::{EventClassKind, FieldKind, HardwareEvent};
use rtscope_event::{
    ClassId, CpuId, Domain, EventClass, EventRef, FieldClass, Item, Lost, Schema, StreamId, StreamInfo,
    TraceSource, Value, ValueBuffer,
};
use std::collections::VecDeque;
use std::io;

/// Context of each event, before its own fields.
pub(super) const CONTEXT: [&str; 3] = ["cpu_id", "vpid", "vtid"];
/// An unknown CPU, as in traces of programs.
pub(super) const NO_CPU: u32 = u32::MAX;

/// A stream with its decoder.
pub trait Lane {
    /// Decodes on, and appends the events found. False: the stream has ended.
    ///
    /// # Errors
    /// When the stream cannot be read.
    fn advance(&mut self, out: &mut VecDeque<HardwareEvent>) -> io::Result<bool>;

    /// Which stream it is.
    fn info(&self) -> LaneInfo {
        LaneInfo::default()
    }
}

/// Which stream a lane is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneInfo {
    /// For people.
    pub name: String,
}

/// What could not be given as an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events that were given.
    pub events: u64,
    /// Events without a time, but for losses, which are told where they are noticed; and losses where nothing has a time.
    pub untimed: u64,
    /// Events whose time went back; they have the time of the event before.
    pub moved: u64,
    /// The furthest that one went back.
    pub moved_ns: u64,
}

struct Running<'l> {
    lane: Box<dyn Lane + 'l>,
    events: VecDeque<HardwareEvent>,
    latest_ns: u64,
    has_ended: bool,
    /// Losses before its first time, which is theirs.
    early: VecDeque<HardwareEvent>,
}

/// Losses that wait for the first time of their stream; more of them are of unknown time.
const EARLY_MAX: usize = 1 << 12;

impl Running<'_> {
    /// Places the loss at the front, which has no time of its own. False: it waits for one.
    fn place_loss(&mut self) -> bool {
        if self.latest_ns == 0 && self.early.len() < EARLY_MAX {
            self.early.extend(self.events.pop_front());
            return false;
        }
        if let Some(loss) = self.events.front_mut().filter(|_| self.latest_ns > 0) {
            loss.time_ns = Some(self.latest_ns);
        }
        true
    }

    /// The stream's first time has come: what was lost before it is told there.
    fn place_early(&mut self, time_ns: u64) {
        while let Some(loss) = self.early.pop_back() {
            self.events.push_front(HardwareEvent { time_ns: Some(time_ns), ..loss });
        }
    }
}

/// Streams, merged.
pub struct HardwareSource<'l> {
    lanes: Vec<Running<'l>>,
    schema: Schema,
    values: ValueBuffer,
    current: Option<(usize, HardwareEvent)>,
    /// A loss that follows its event.
    pending: Option<Lost>,
    latest_ns: i64,
    /// The time of the event that was given last, on the capture's clock.
    given_ns: Option<u64>,
    failure: Option<io::Error>,
    /// What is added to all times: from the clock of the capture to the one that is wanted.
    pub offset_ns: i64,
    /// What could not be given.
    pub totals: Totals,
}

impl<'l> HardwareSource<'l> {
    /// Of these streams.
    #[must_use]
    pub fn new(lanes: Vec<Box<dyn Lane + 'l>>) -> HardwareSource<'l> {
        let running = |lane| Running {
            lane,
            events: VecDeque::new(),
            latest_ns: 0,
            has_ended: false,
            early: VecDeque::new(),
        };
        let streams = lanes.len();
        HardwareSource {
            lanes: lanes.into_iter().map(running).collect(),
            schema: schema(streams),
            values: ValueBuffer::default(),
            current: None,
            pending: None,
            latest_ns: i64::MIN,
            given_ns: None,
            failure: None,
            offset_ns: 0,
            totals: Totals::default(),
        }
    }

    /// Why the source ended early, if it did.
    pub fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// The streams.
    pub fn lanes(&self) -> impl Iterator<Item = LaneInfo> + '_ {
        self.lanes.iter().map(|running| running.lane.info())
    }

    /// Takes the next event with its stream. `None` at the end.
    pub(super) fn take(&mut self) -> Option<(usize, HardwareEvent)> {
        for place in 0..self.lanes.len() {
            self.fill(place);
        }
        let heads = self.lanes.iter().enumerate();
        let times = heads.filter_map(|(place, lane)| Some((lane.events.front()?.time_ns?, place)));
        let Some((_, place)) = times.min() else { return self.take_last_loss() };
        let mut event = self.lanes.get_mut(place)?.events.pop_front()?;
        self.given_ns = event.time_ns;
        event.time_ns = event.time_ns.map(|time| time.saturating_add_signed(self.offset_ns));
        self.totals.events += 1;
        Some((place, event))
    }

    /// A loss of a stream in which nothing has a time: it is told at the end.
    fn take_last_loss(&mut self) -> Option<(usize, HardwareEvent)> {
        let (place, lane) = self.lanes.iter_mut().enumerate().find(|(_, lane)| !lane.early.is_empty())?;
        let Some(time) = self.given_ns else {
            // Nor has anything else.
            let early = self.lanes.iter_mut().map(|lane| std::mem::take(&mut lane.early).len() as u64);
            self.totals.untimed += early.sum::<u64>();
            return None;
        };
        let event = lane.early.pop_front()?;
        self.totals.events += 1;
        Some((place, HardwareEvent { time_ns: Some(time.saturating_add_signed(self.offset_ns)), ..event }))
    }

    /// Until the lane has an event with a time, or has ended.
    fn fill(&mut self, place: usize) {
        let Some(lane) = self.lanes.get_mut(place) else { return };
        loop {
            while let Some(event) = lane.events.front() {
                // A loss happened after what was before it; where there was nothing yet, before what comes.
                if event.time_ns.is_none() && event.lost.is_some() && !lane.place_loss() {
                    continue;
                }
                let Some(event) = lane.events.front_mut() else { break };
                // Traces have times of 63 bits, some 292 years: more is none.
                let Some(time) = event.time_ns.filter(|time| i64::try_from(*time).is_ok()) else {
                    self.totals.untimed += 1;
                    lane.events.pop_front();
                    continue;
                };
                if !lane.early.is_empty() {
                    lane.place_early(time);
                    continue;
                }
                if time < lane.latest_ns {
                    self.totals.moved += 1;
                    self.totals.moved_ns = self.totals.moved_ns.max(lane.latest_ns - time);
                    event.time_ns = Some(lane.latest_ns);
                }
                lane.latest_ns = lane.latest_ns.max(time);
                return;
            }
            if lane.has_ended {
                return;
            }
            match lane.lane.advance(&mut lane.events) {
                Ok(more) => lane.has_ended = !more,
                Err(error) => {
                    lane.has_ended = true;
                    self.failure.get_or_insert(error);
                }
            }
        }
    }
}

fn schema(streams: usize) -> Schema {
    let field = |name: &str, is_payload, is_hex| FieldClass {
        name: name.to_owned(),
        is_payload,
        is_hex,
        ..FieldClass::default()
    };
    let class = |kind: &EventClassKind| EventClass {
        name: kind.name().to_owned(),
        domain: Domain::Program,
        fields: CONTEXT
            .iter()
            .map(|name| field(name, false, false))
            .chain(kind.fields().iter().map(|(name, kind)| field(name, true, *kind == FieldKind::Hex)))
            .collect(),
    };
    let stream = StreamInfo { domain: Domain::Program, ..StreamInfo::default() };
    Schema { classes: EventClassKind::ALL.iter().map(class).collect(), streams: vec![stream; streams] }
}

impl TraceSource for HardwareSource<'_> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn next(&mut self) -> Item<'_> {
        if let Some(lost) = self.pending.take() {
            return Item::Lost(lost);
        }
        let Some((place, event)) = self.take() else { return Item::End };
        let time_ns = i64::try_from(event.time_ns.unwrap_or(0)).unwrap_or(i64::MAX);
        let stream = StreamId(u32::try_from(place).unwrap_or(u32::MAX));
        if let Some(reason) = event.lost {
            self.pending = Some(Lost {
                cause: reason.cause(),
                count: None,
                packets: false,
                stream: Some(stream),
                cpu: event.cpu.map(CpuId),
                since_ns: (self.latest_ns != i64::MIN).then_some(self.latest_ns.min(time_ns)),
                until_ns: Some(time_ns),
            });
        }
        self.latest_ns = time_ns;
        self.values.clear();
        let fields = event.class.fields();
        self.values.begin(CONTEXT.len() + fields.len());
        let (pid, tid) = event.thread.map_or((Value::None, Value::None), |(pid, tid)| {
            (Value::Signed(pid.into()), Value::Signed(tid.into()))
        });
        let cpu = event.cpu.map_or(Value::None, |cpu| Value::Unsigned(cpu.into()));
        for (place, value) in [cpu, pid, tid].into_iter().enumerate() {
            self.values.set(place, value);
        }
        let (mut numbers, mut texts) = (event.numbers.into_iter(), event.texts());
        for (place, (_, kind)) in fields.iter().enumerate() {
            let value = match kind {
                FieldKind::Text => Value::Bytes(texts.next().unwrap_or_default().as_bytes()),
                _ => Value::Unsigned(numbers.next().unwrap_or(0)),
            };
            self.values.set(CONTEXT.len() + place, value);
        }
        drop(texts);
        let class = EventClassKind::ALL.iter().position(|kind| *kind == event.class).unwrap_or(0);
        let cpu = event.cpu.map(CpuId);
        self.current = Some((place, event));
        Item::Event(EventRef {
            schema: &self.schema,
            time_ns,
            stream,
            class: ClassId(u32::try_from(class).unwrap_or(0)),
            cpu,
            values: self.values.current(),
        })
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Late responses: a span from the origin to the end, its steps below it, and a mark on the thread that was late, with an arrow to
//! it.
//!
//! The event has when it began and ended. Which steps it took is in the file beside a saved snapshot; without that there is
//! the span alone. Responses of a thread may overlap (an interrupt comes before the last response has ended): then each has a
//! track of its own.

use super::arguments;
use super::fields::Place;
use super::packets::{Category, Packets, Track, TrackKind, Type, event};
use super::threads::Threads;
use crate::label::origin_label;
use crate::units::duration_text;
use rtscope_event::{
    Comm, CpuId, End, EventClass, LateResponse, MonotonicNs, Names, Origin, OriginKind, Step, StepKind,
    Values, softirq_name, step_vector_name,
};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

/// The fields of the event.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateFields {
    comm: Place,
    tid: Place,
    pid: Place,
    origin_kind: Place,
    origin_id: Place,
    origin_ns: Place,
    response_ns: Place,
    threshold_ns: Place,
    sequence: Place,
    end: Place,
}

impl LateFields {
    pub(super) fn new(class: &EventClass) -> LateFields {
        let place = |name: &str| Place::of(class, &[name]);
        LateFields {
            comm: place("comm"),
            tid: place("tid"),
            pid: place("pid"),
            origin_kind: place("origin_kind"),
            origin_id: place("origin_id"),
            origin_ns: place("origin_ns"),
            response_ns: place("response_ns"),
            threshold_ns: place("threshold_ns"),
            sequence: place("sequence"),
            end: place("end"),
        }
    }
}

/// All late responses.
#[derive(Debug, Default)]
pub(super) struct LateResponses {
    /// Those of which the steps are known, by CPU and number.
    known: BTreeMap<(u32, u64), LateResponse>,
    root: Option<Track>,
    /// Of each thread, tracks and when the last response on each ended.
    tracks: HashMap<u32, Vec<(Track, u64)>>,
    /// From the clock of the responses to that of the packets.
    pub(super) shift: i64,
    /// How many.
    pub(super) count: u64,
}

/// A response to be drawn.
struct Span<'l> {
    tid: u32,
    comm: Comm,
    begin: u64,
    end: u64,
    threshold: u64,
    how: &'l str,
    origin: String,
    steps: &'l [Step],
}

impl LateResponses {
    pub(super) fn new(known: &[LateResponse]) -> LateResponses {
        let known = known.iter().map(|late| ((late.cpu.0, late.sequence), late.clone()));
        LateResponses { known: known.collect(), ..LateResponses::default() }
    }

    /// An event.
    pub(super) fn event<W: Write>(
        &mut self,
        cpu: u32,
        fields: &LateFields,
        values: &Values<'_>,
        threads: &mut Threads,
        packets: &mut Packets<W>,
    ) {
        let number = |place: Place| place.u64(values).unwrap_or(0);
        let Some(tid) = fields.tid.u32(values) else { return };
        let (sequence, origin_ns) = (number(fields.sequence), number(fields.origin_ns));
        let begin = origin_ns.saturating_add_signed(self.shift);
        let kind = fields.origin_kind.u64(values).and_then(|kind| u8::try_from(kind).ok());
        let kind = kind.and_then(OriginKind::from_number).unwrap_or(OriginKind::Vector);
        let id = fields.origin_id.u32(values).unwrap_or(0);
        let origin = Origin { kind, id, cpu: CpuId(cpu), time_ns: MonotonicNs(origin_ns) };
        let how = fields.end.u64(values).and_then(|end| End::from_number(u8::try_from(end).ok()?));
        let known = self.known.remove(&(cpu, sequence)).filter(|late| late.tid.0 == tid);
        threads.belongs(tid, fields.pid.u32(values));
        let span = Span {
            tid,
            comm: Comm::from_bytes(fields.comm.bytes(values)),
            begin,
            end: begin.saturating_add(number(fields.response_ns)),
            threshold: number(fields.threshold_ns),
            how: how.map_or("?", End::name),
            origin: origin_label(&origin, &Names::default()),
            steps: known.as_ref().map(|late| late.chain.steps.as_slice()).unwrap_or_default(),
        };
        self.write(&span, threads, packets);
    }

    /// Those whose events are not in the trace.
    pub(super) fn finish<W: Write>(&mut self, threads: &mut Threads, packets: &mut Packets<W>) {
        for late in std::mem::take(&mut self.known).into_values() {
            let span = Span {
                tid: late.tid.0,
                comm: late.comm,
                begin: late.chain.origin.time_ns.0.saturating_add_signed(self.shift),
                end: late.end_ns.0.saturating_add_signed(self.shift),
                threshold: late.threshold_ns,
                how: late.events.as_ref().map_or(late.end.name(), |events| &events.to.event),
                origin: late.events.as_ref().map_or_else(
                    || origin_label(&late.chain.origin, &Names::default()),
                    |events| events.from.event.clone(),
                ),
                steps: &late.chain.steps,
            };
            threads.belongs(late.tid.0, Some(late.pid.0));
            self.write(&span, threads, packets);
        }
    }

    fn write<W: Write>(&mut self, span: &Span<'_>, threads: &mut Threads, packets: &mut Packets<W>) {
        self.count += 1;
        let flow = self.count;
        let track = self.track(span, packets);
        let response = span.end.saturating_sub(span.begin);
        let name = format!("late: {} ({} -> {})", duration_text(response), span.origin, span.how);
        let [comm, tid, limit, took] =
            ["comm", "tid", "threshold_ns", "response_ns"].map(|name| packets.annotation_name(name));
        packets.event(span.begin, Type::Begin, track, (None, Category::Late), |event| {
            event.text(event::NAME, name.as_bytes());
            arguments::text(event, comm, span.comm.to_string().as_bytes());
            arguments::unsigned(event, tid, span.tid.into());
            arguments::unsigned(event, limit, span.threshold);
            arguments::unsigned(event, took, response);
            if span.steps.is_empty() {
                event.fixed(event::FLOW_IDS, flow);
            }
        });
        let mut begin = span.begin;
        for (place, step) in span.steps.iter().enumerate() {
            let end = begin.saturating_add(step.duration_ns);
            let name = packets.event_name(&step_name(step));
            let [cpu, thread] = ["cpu", "tid"].map(|name| packets.annotation_name(name));
            let is_last = place + 1 == span.steps.len();
            packets.event(begin, Type::Begin, track, (Some(name), Category::Late), |event| {
                arguments::unsigned(event, cpu, step.cpu.0.into());
                if has_thread(step) {
                    arguments::unsigned(event, thread, step.id.into());
                }
                if is_last {
                    event.fixed(event::FLOW_IDS, flow);
                }
            });
            packets.event(end, Type::End, track, (None, Category::Late), |_| {});
            begin = end;
        }
        packets.event(span.end, Type::End, track, (None, Category::Late), |_| {});
        let mark = packets.event_name("late response");
        let (thread, _) = threads.track(span.tid, span.comm.as_bytes(), packets);
        packets.event(span.end, Type::Instant, thread, (Some(mark), Category::Late), |event| {
            event.fixed(event::TERMINATING_FLOW_IDS, flow);
            arguments::unsigned(event, took, response);
        });
    }

    /// A track on which nothing overlaps it.
    fn track<W: Write>(&mut self, span: &Span<'_>, packets: &mut Packets<W>) -> Track {
        let root = *self.root.get_or_insert_with(|| packets.track("Late responses", None, TrackKind::Group));
        let tracks = self.tracks.entry(span.tid).or_default();
        if let Some((track, end)) = tracks.iter_mut().find(|(_, end)| *end <= span.begin) {
            *end = span.end;
            return *track;
        }
        let track = packets.track(&format!("{}/{}", span.comm, span.tid), Some(root), TrackKind::Plain);
        tracks.push((track, span.end));
        track
    }
}

/// Softirqs and vectors by name; threads are in the arguments, since each has a number of its own.
fn step_name(step: &Step) -> String {
    let name = step.kind.name();
    match step.kind {
        StepKind::SoftirqWait | StepKind::Softirq => format!("{name} {}", softirq_name(step.id)),
        StepKind::Ipi => format!("{name} {}", step_vector_name(step.id)),
        StepKind::Wait => format!("waited {}", step.wait.words()),
        _ => name.to_owned(),
    }
}

/// Whether the step's id is a thread's.
fn has_thread(step: &Step) -> bool {
    match step.kind {
        StepKind::Wakeup
        | StepKind::Run
        | StepKind::Preempted
        | StepKind::Busy
        | StepKind::WorkWait
        | StepKind::LockWait
        | StepKind::HiddenSwitch
        | StepKind::NotPreempted
        | StepKind::IrqsOff
        | StepKind::Interval => true,
        StepKind::Wait => step.id != 0,
        StepKind::SoftirqWait
        | StepKind::Softirq
        | StepKind::Ipi
        | StepKind::More
        | StepKind::Queue
        | StepKind::Device
        | StepKind::TimerSlack
        | StepKind::TimerLateness
        | StepKind::TimerInterrupt
        | StepKind::Handler => false,
    }
}

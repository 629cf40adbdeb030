// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who: thread, process and name of each event, as far as the trace has them.
//!
//! Many events have the number of their thread only. Its name at that time then comes from the state dump and the process events
//! ([`TaskNames`]). A switch happens in the thread that leaves. Other events without a thread are nobody's here: who ran then follows only
//! from events before them, and lines are made by many threads at once.

use super::number;
use super::shared::SharedByClass;
use rtscope_ctf::{
    EventView, FieldIndex, Integer, NoStyle, NumberPlace, OpenTrace, Plan, Scope, SharedTaskNames, Stream,
    TaskNames, TraceSet, Visit,
};
use rtscope_event::Comm;
use std::sync::Arc;

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) tid: u32,
    pub(super) pid: Option<u32>,
    pub(super) comm: Option<Comm>,
    /// Where it ran.
    pub(super) cpu: Option<u64>,
}

/// Where a class has its thread.
#[derive(Debug, PartialEq)]
struct Class {
    /// As far as these fields.
    plan: Plan,
    tid: usize,
    pid: Option<usize>,
    comm: Option<usize>,
    /// In streams that are not a CPU's.
    cpu: Option<usize>,
    /// Of most events: they say the thread's number only, and where.
    only_tid: Option<NumberPlace>,
}

struct Of {
    /// A number of its host, and its name.
    host: (usize, String),
    /// `None`: it says no thread. Streams of the same class share them.
    classes: Arc<[Option<Arc<Class>>]>,
}

/// Finds out.
pub struct Who {
    streams: Vec<Of>,
    names: SharedTaskNames,
}

impl Who {
    /// For the streams of a set. Threads that events do not name themselves have these names.
    #[must_use]
    pub fn new(set: &TraceSet, names: impl Into<SharedTaskNames>) -> Who {
        let mut shared = SharedByClass::default();
        let mut hosts: Vec<&str> = Vec::new();
        // Most classes have their thread in the same place: what is alike stays in the CPU's cache.
        let mut alike: Vec<Arc<Class>> = Vec::new();
        let of = |stream: &Stream| {
            let host = set.traces.get(stream.trace).map_or("", OpenTrace::host);
            let number = hosts.iter().position(|known| *known == host).unwrap_or_else(|| {
                hosts.push(host);
                hosts.len() - 1
            });
            let mut of_class = |event: usize| {
                let class = class(set, stream, event)?;
                let known = alike.iter().find(|known| ***known == class).map(Arc::clone);
                Some(known.unwrap_or_else(|| {
                    alike.push(Arc::new(class));
                    Arc::clone(&alike[alike.len() - 1])
                }))
            };
            let classes = shared.of(stream, || (0..set.event_count(stream)).map(&mut of_class).collect());
            Of { host: (number, host.to_owned()), classes }
        };
        Who { streams: set.streams.iter().map(of).collect(), names: names.into() }
    }

    /// For one writer, with the names that are known now.
    pub(super) fn namer(&self) -> Namer<'_> {
        Namer { who: self, names: self.names.now(), known: (0..KNOWN).map(|_| None).collect() }
    }

    /// What an event says of its thread; the event can still be shown afterwards.
    fn said(&self, event: &mut EventView<'_, '_>) -> Option<Said> {
        let of = self.streams.get(event.stream)?;
        let class = of.classes.get(event.event)?.as_deref()?;
        if let Some(tid) = class.only_tid.and_then(|place| event.number(place)) {
            let tid = u32::try_from(tid).ok()?;
            return Some(Said { host: of.host.0, tid, pid: None, comm: None, cpu: event.cpu });
        }
        let mut found = Found { class, tid: None, pid: None, comm: None, cpu: None };
        if !event.peek(&class.plan, &mut found) {
            return None;
        }
        let comm = found.comm.filter(|comm| !comm.as_bytes().is_empty());
        Some(Said { host: of.host.0, tid: found.tid?, pid: found.pid, comm, cpu: event.cpu.or(found.cpu) })
    }

    /// The thread, with the time for which that is so.
    fn thread(
        &self,
        names: &TaskNames,
        said: &Said,
        (stream, time_ns): (usize, Option<i64>),
    ) -> (Thread, (i64, i64)) {
        const ALWAYS: (i64, i64) = (i64::MIN, i64::MAX);
        let (known, span) = match (said.pid, said.comm, time_ns) {
            (Some(_), Some(_), _) | (.., None) => (None, ALWAYS),
            (.., Some(ns)) => {
                let host = self.streams.get(stream).map_or("", |of| of.host.1.as_str());
                names.find_for(host, said.tid, ns)
            }
        };
        let idle = (said.tid == 0).then(|| Comm::from("swapper"));
        let thread = Thread {
            tid: said.tid,
            pid: said.pid.or_else(|| known.and_then(|known| known.pid)),
            comm: said.comm.or_else(|| known.map(|known| known.comm)).or(idle),
            cpu: said.cpu,
        };
        (thread, span)
    }
}

/// What an event says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    /// Its number.
    host: usize,
    tid: u32,
    pid: Option<u32>,
    comm: Option<Comm>,
    cpu: Option<u64>,
}

/// Threads that a namer keeps: a power of two.
const KNOWN: usize = 256;

/// A thread that was found before, and what its events' lines say of it.
struct KnownThread {
    said: Said,
    thread: Thread,
    /// For which that is so: from, until.
    span: (i64, i64),
    /// `name/tid `
    text: Vec<u8>,
}

/// Finds the threads of one event after the other. Few threads have most events, so what was found is kept.
pub(super) struct Namer<'w> {
    who: &'w Who,
    names: Arc<TaskNames>,
    known: Box<[Option<KnownThread>]>,
}

impl Namer<'_> {
    /// The thread of an event, which can still be shown afterwards.
    pub(super) fn of(&mut self, event: &mut EventView<'_, '_>) -> Option<Thread> {
        let (known, cpu) = self.find(event)?;
        Some(Thread { cpu, ..known.thread })
    }

    /// Appends `name/tid [cpu] `, or as much of it as is known.
    pub(super) fn prefix(&mut self, text: &mut Vec<u8>, event: &mut EventView<'_, '_>) {
        let mut cpu = event.cpu;
        if let Some((known, of_it)) = self.find(event) {
            text.extend_from_slice(&known.text);
            cpu = of_it;
        }
        append_cpu(text, cpu);
    }

    /// And the event's CPU.
    fn find(&mut self, event: &mut EventView<'_, '_>) -> Option<(&KnownThread, Option<u64>)> {
        let said = self.who.said(event)?;
        // The same thread's switches say its name and its system calls do not: each has a place, or they would take it from each other. So have the idle
        // tasks, which are all number 0 and have names of their own.
        let of_idle = if said.tid == 0 { event.cpu.unwrap_or(0) } else { 0 };
        let number = u64::from(said.tid)
            .wrapping_add(of_idle.wrapping_mul(97))
            .wrapping_add(u64::from(said.comm.is_some()).wrapping_mul(131));
        let place = self.known.get_mut(number as usize % KNOWN)?;
        let (cpu, said) = (said.cpu, Said { cpu: None, ..said });
        let is_it = place.as_ref().is_some_and(|known| {
            let (from, until) = known.span;
            known.said == said && event.ns.is_none_or(|ns| (from..until).contains(&ns))
        });
        if !is_it {
            let (thread, span) = self.who.thread(&self.names, &said, (event.stream, event.ns));
            let mut text = place.take().map(|known| known.text).unwrap_or_default();
            text.clear();
            append_thread(&mut text, thread);
            *place = Some(KnownThread { said, thread, span, text });
        }
        Some((place.as_ref()?, cpu))
    }
}

/// `name/tid `
fn append_thread(text: &mut Vec<u8>, thread: Thread) {
    match thread.comm {
        // Control characters of a name must not drive the terminal.
        Some(comm) => comm.append_to(text),
        None => text.push(b'?'),
    }
    text.push(b'/');
    number::decimal(text, thread.tid.into());
    text.push(b' ');
}

/// `[cpu] `
fn append_cpu(text: &mut Vec<u8>, cpu: Option<u64>) {
    match cpu {
        Some(cpu @ 0..10) => text.extend_from_slice(&[b'[', b'0' + cpu as u8, b']', b' ']),
        Some(cpu) => {
            text.push(b'[');
            number::decimal(text, cpu);
            text.extend_from_slice(b"] ");
        }
        None => {}
    }
}

/// What a field `cpu_id` says where the program was not told its CPU (RTU_CPU_UNKNOWN).
const CPU_UNKNOWN: u64 = u32::MAX as u64;

/// Contexts as LTTng and rtscope name them; perf has its among the fields.
fn class(set: &TraceSet, stream: &Stream, event: usize) -> Option<Class> {
    let plan = set.event_plan(stream, event, &NoStyle);
    let find = |name: &str, payload: bool| {
        plan.fields.iter().position(|field| (field.scope == Scope::Fields) == payload && field.path == name)
    };
    let context = |names: [&str; 2]| names.into_iter().find_map(|name| find(name, false));
    let cpu = find("cpu_id", false).filter(|_| stream.cpu.is_none());
    let (tid, pid, comm) = match set.event_name(stream, event) {
        name if name == "sched_switch" || name == "sched:sched_switch" => {
            (find("prev_tid", true).or_else(|| find("prev_pid", true))?, None, find("prev_comm", true))
        }
        _ => (
            context(["tid", "vtid"]).or_else(|| find("perf_tid", true))?,
            context(["pid", "vpid"]).or_else(|| find("perf_pid", true)),
            find("procname", false),
        ),
    };
    let fields: Vec<usize> = [Some(tid), pid, comm, cpu].into_iter().flatten().collect();
    let plan = plan.up_to(&fields);
    let only_tid = plan.only_number().filter(|_| fields.len() == 1);
    Some(Class { plan, tid, pid, comm, cpu, only_tid })
}

/// The fields of an event's contexts that `name/tid [cpu]` before it says already, and the process: it is the thread's, and JSON has it.
pub(super) fn said_before(set: &TraceSet, stream: &Stream, event: usize) -> Vec<String> {
    let Some(Class { tid, pid, comm, cpu, .. }) = class(set, stream, event) else { return Vec::new() };
    let fields = set.event_plan(stream, event, &NoStyle).fields;
    let said = [Some(tid), pid, comm, cpu].into_iter().flatten().filter_map(|place| fields.get(place));
    said.filter(|field| field.scope != Scope::Fields).map(|field| field.path.clone()).collect()
}

/// What an event says.
struct Found<'c> {
    class: &'c Class,
    tid: Option<u32>,
    pid: Option<u32>,
    comm: Option<Comm>,
    cpu: Option<u64>,
}

impl Visit for Found<'_> {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, _: &Plan, integer: &Integer, value: u64) {
        let (place, number) = (usize::from(integer.field), u32::try_from(value).ok());
        if place == self.class.tid {
            self.tid = number;
        } else if Some(place) == self.class.pid {
            self.pid = number;
        } else if Some(place) == self.class.cpu {
            self.cpu = Some(value).filter(|cpu| *cpu != CPU_UNKNOWN);
        }
    }

    fn float(&mut self, _: FieldIndex, _: f64) {}

    fn text(&mut self, field: FieldIndex, text: &[u8]) {
        if Some(usize::from(field)) == self.class.comm {
            self.comm = Some(Comm::from_bytes(text));
        }
    }

    fn element(&mut self, _: u64) {}

    fn restart(&mut self) {
        (self.tid, self.pid, self.comm, self.cpu) = (None, None, None, None);
    }
}

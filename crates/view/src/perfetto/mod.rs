// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces for Perfetto: ui.perfetto.dev, and its `trace_processor` with SQL.
//!
//! ```text
//! source ─ bind: what does this class mean? ┬ sched, bundle: CPUs, thread states, who woke whom ┐
//!                                           ├ interrupts: IRQs, softirqs, timers, work, NMIs    │
//!                                           ├ threads: names and processes                      ├─ packets ─ wire ─► file
//!                                           ├ syscalls, instants: slices and moments, counters  │
//!                                           └ late, losses: what is ours                        ┘
//! ```
//!
//! What Perfetto knows from its own kernel tracing is given to it in that form, so that all its tables and queries work;
//! the rest is tracks with events. Memory is bounded by threads, CPUs and event classes, not by the trace.

mod arguments;
mod bind;
mod bundle;
mod fields;
mod instants;
mod interrupts;
mod late;
mod losses;
mod packets;
mod sched;
mod syscalls;
mod threads;
mod traces;
mod wire;

pub use instants::CounterField;
pub use traces::{check_counters, convert_traces};

use crate::units::counted;
use bind::{Meaning, ThreadFields, WakingFields};
use bundle::Waking;
use instants::Tracks;
use interrupts::Nmis;
use late::LateResponses;
use losses::Losses;
use packets::{Packets, System};
use rtscope_event::{Domain, EventClass, EventRef, Item, LateResponse, Lost, Schema, TraceSource, Values};
use sched::Cpus;
use std::io::{self, Write};
use threads::Threads;

/// `FtraceEvent`.
mod ftrace {
    pub(super) const TASK_NEWTASK: u32 = 235;
    pub(super) const TASK_RENAME: u32 = 236;
    pub(super) const SCHED_PI_SETPRIO: u32 = 353;
}

/// What a source does not say.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The kernel's release, by which Perfetto decodes states of tasks.
    pub kernel_release: String,
    /// Only some events are selected: what is missing between them was not lost.
    pub is_selection: bool,
    /// Late responses with their steps, of a saved snapshot.
    pub late: Vec<LateResponse>,
    /// Fields that are to be drawn as counters.
    pub counters: Vec<CounterField>,
}

/// What was converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events of the source.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Late responses.
    pub late: u64,
    /// Intervals in which events were lost.
    pub losses: u64,
    /// Places where a CPU's switches do not follow each other, without a counted loss.
    pub gaps: u64,
    /// Events of programs whose thread the trace does not say.
    pub without_thread: u64,
    /// Events of kernels of other hosts, which are left out.
    pub other_hosts: u64,
}

/// Converts a whole source. `progress` gets the time of an event now and then, on the source's clock; false ends it early.
///
/// # Errors
/// When the output cannot be written.
pub fn convert(
    source: &mut dyn TraceSource,
    out: impl Write,
    settings: &Settings,
    progress: &mut dyn FnMut(i64) -> bool,
) -> io::Result<Summary> {
    const OFTEN: u64 = 1 << 14;
    let mut converter = Converter::new(out, settings);
    loop {
        match source.next() {
            Item::Event(event) => {
                converter.event(&event);
                if converter.summary.events % OFTEN == 0 {
                    converter.packets.failure()?;
                    if !progress(event.time_ns) {
                        break;
                    }
                }
            }
            Item::Lost(lost) => converter.lost(&lost),
            Item::NothingBefore(_) => {}
            Item::End => break,
        }
    }
    converter.finish()
}

/// The state of a conversion.
struct Converter<'s, W> {
    settings: &'s Settings,
    packets: Packets<W>,
    /// By class.
    meanings: Vec<Option<Meaning>>,
    /// What is subtracted from times; `None` before the first event.
    base: Option<i64>,
    /// The trace and host of the kernel's events.
    host: Option<String>,
    last: u64,
    cpus: Cpus,
    threads: Threads,
    nmis: Nmis,
    tracks: Tracks,
    late: LateResponses,
    losses: Losses,
    summary: Summary,
}

impl<'s, W: Write> Converter<'s, W> {
    fn new(out: W, settings: &'s Settings) -> Converter<'s, W> {
        Converter {
            settings,
            packets: Packets::new(out),
            meanings: Vec::new(),
            base: None,
            host: None,
            last: 0,
            cpus: Cpus::default(),
            threads: Threads::default(),
            nmis: Nmis::default(),
            tracks: Tracks::default(),
            late: LateResponses::new(&settings.late),
            losses: Losses::default(),
            summary: Summary::default(),
        }
    }

    /// The first event decides where times are counted from: the kernel's monotonic clock, so that times are those in
    /// the fields of events.
    fn begin(&mut self, event: &EventRef<'_>) -> i64 {
        let streams = &event.schema.streams;
        let offset = |stream: &rtscope_event::StreamInfo| stream.clock_offset_ns;
        let kernel = streams.iter().find(|stream| stream.domain == Domain::Kernel).map(offset);
        let smallest = streams.iter().map(offset).min().unwrap_or(0);
        // Nothing may be before the beginning of time, where clocks of several machines are read together.
        let base = smallest.min(event.time_ns);
        self.base = Some(base);
        self.late.shift = kernel.unwrap_or(base).saturating_sub(base);
        let system = System { release: self.settings.kernel_release.clone() };
        self.packets.begin(time_since(base, event.time_ns), base, &system);
        base
    }

    fn event(&mut self, event: &EventRef<'_>) {
        self.summary.events += 1;
        let base = self.base.unwrap_or_else(|| self.begin(event));
        let time = time_since(base, event.time_ns).max(self.last);
        self.last = time;
        let class = event.class();
        if class.domain == Domain::Kernel && !self.is_of_host(event) {
            self.summary.other_hosts += 1;
            return;
        }
        let place = event.class.0 as usize;
        if place >= self.meanings.len() {
            self.meanings.resize(event.schema.classes.len().max(place + 1), None);
        }
        let known = self.meanings.get_mut(place).and_then(Option::take);
        let mut meaning = known.unwrap_or_else(|| {
            let has_waking = has_waking(event.schema);
            Meaning::new(
                class,
                (&event.schema.classes, has_waking),
                &self.settings.counters,
                &mut self.packets,
            )
        });
        self.write(time, event, class, &mut meaning);
        if let Some(slot) = self.meanings.get_mut(place) {
            *slot = Some(meaning);
        }
    }

    /// CPUs and threads of one kernel only can be in a file.
    fn is_of_host(&mut self, event: &EventRef<'_>) -> bool {
        let host = &event.schema.stream(event.stream).host;
        self.host.get_or_insert_with(|| host.clone()) == host
    }

    fn write(&mut self, time: u64, event: &EventRef<'_>, class: &EventClass, meaning: &mut Meaning) {
        let values = &event.values;
        let cpu = event.cpu.map(|cpu| cpu.0);
        let at = (time, cpu.unwrap_or(0));
        match meaning {
            Meaning::Switch(fields) => {
                if let Some(switch) = fields.event(values) {
                    self.threads.sees(switch.prev);
                    self.threads.sees(switch.next);
                    self.cpus.switch(at, &switch, !self.settings.is_selection, &mut self.packets);
                }
            }
            Meaning::Waking(fields) => self.waking(at, fields, values),
            Meaning::WakingNew(fields) => {
                let is_fresh = fields.tid.u32(values).is_some_and(|tid| self.threads.is_fresh(tid));
                if !is_fresh {
                    self.waking(at, fields, values);
                }
            }
            Meaning::Interrupt(kind) => {
                interrupts::write(at, kind, values, (&mut self.cpus, &mut self.nmis), &mut self.packets);
            }
            Meaning::Call(call) => {
                let tid = call.tid.u32(values).or_else(|| self.cpus.running(at.1)).filter(|tid| *tid != 0);
                if let Some(tid) = tid {
                    call.write((time, tid), class, values, &mut self.threads, &mut self.packets);
                }
            }
            Meaning::Instant(instant) => {
                let place = (time, cpu, event.stream);
                let shown = (&mut self.threads, &mut self.tracks);
                instant.write(place, class, values, shown, &mut self.packets);
            }
            Meaning::Late(fields) => {
                self.late.event(at.1, fields, values, &mut self.threads, &mut self.packets);
            }
            Meaning::Nothing => {}
            about => self.about_thread(at, about, values),
        }
    }

    fn waking(&mut self, (time, cpu): (u64, u32), fields: &WakingFields, values: &Values<'_>) {
        let Some(tid) = fields.tid.u32(values) else { return };
        self.threads.sees(tid);
        let waking = Waking {
            time,
            tid,
            target_cpu: fields.target_cpu.u32(values).unwrap_or(0),
            prio: fields.prio.prio(values),
            comm: fields.comm.comm(values),
            flags: 0,
        };
        self.cpus.waking(cpu, waking, &mut self.packets);
    }

    /// Threads that begin, end, and get other names and priorities.
    fn about_thread(&mut self, at: (u64, u32), meaning: &Meaning, values: &Values<'_>) {
        let (time, _) = at;
        match meaning {
            Meaning::Dump(fields) => self.threads.dumped(time, fields, values, &mut self.packets),
            Meaning::Fork(fields) => {
                let new = self.threads.forked(time, fields, values, &mut self.packets);
                let Some(new) = new else { return self.cpus.happens(at) };
                const CLONE_THREAD: u64 = 0x1_0000;
                self.cpus.event_of(at, new.parent, ftrace::TASK_NEWTASK, &mut self.packets, |event| {
                    event.number(1, new.tid.into());
                    event.text(2, new.comm);
                    event.number(3, if new.is_process { 0 } else { CLONE_THREAD });
                });
            }
            Meaning::Rename(fields) => {
                self.named(at, fields, values);
            }
            Meaning::Exit(fields) => {
                if let Some(tid) = fields.tid.u32(values) {
                    self.threads.belongs(tid, fields.pid.u32(values));
                    syscalls::thread_ends(time, tid, &mut self.threads, &mut self.packets);
                }
            }
            Meaning::Priority(fields) => {
                let tid = fields.tid.u32(values).unwrap_or(0);
                self.cpus.event(at, ftrace::SCHED_PI_SETPRIO, &mut self.packets, |event| {
                    event.text(1, fields.comm.bytes(values));
                    event.signed(2, fields.new.prio(values));
                    event.signed(3, fields.old.prio(values));
                    event.number(4, tid.into());
                });
            }
            _ => {}
        }
    }

    fn named(&mut self, at: (u64, u32), fields: &ThreadFields, values: &Values<'_>) {
        let Some(tid) = fields.tid.u32(values) else { return };
        self.threads.belongs(tid, fields.pid.u32(values));
        self.cpus.event(at, ftrace::TASK_RENAME, &mut self.packets, |event| {
            event.number(1, tid.into());
            event.text(2, fields.old.bytes(values));
            event.text(3, fields.new.bytes(values));
        });
    }

    fn lost(&mut self, lost: &Lost) {
        let base = self.base.unwrap_or(0);
        let moment = |ns: Option<i64>| ns.map(|ns| time_since(base, ns));
        let since = moment(lost.since_ns);
        if let Some(cpu) = lost.cpu {
            self.cpus.lost(cpu.0, since);
        }
        let until = moment(lost.until_ns).unwrap_or(self.last);
        self.losses.write(lost, since.unwrap_or(until), until, &mut self.packets);
    }

    fn finish(mut self) -> io::Result<Summary> {
        self.threads.flush(self.last, &mut self.packets);
        if !self.settings.is_selection {
            self.late.finish(&mut self.threads, &mut self.packets);
        }
        self.cpus.finish(&mut self.packets);
        let Summary { events, other_hosts, .. } = self.summary;
        Ok(Summary {
            events,
            other_hosts,
            late: self.late.count,
            losses: self.losses.intervals,
            gaps: self.cpus.gaps,
            without_thread: self.tracks.without_thread,
            bytes: self.packets.finish()?,
        })
    }
}

fn time_since(base: i64, time: i64) -> u64 {
    u64::try_from(time.saturating_sub(base)).unwrap_or(0)
}

fn has_waking(schema: &Schema) -> bool {
    schema.classes.iter().any(|class| class.domain != Domain::Program && class.name == "sched_waking")
}

/// The kernel's release, as the traces have it.
#[must_use]
pub fn kernel_release(set: &rtscope_ctf::TraceSet) -> String {
    let release = set.traces.iter().find_map(|trace| trace.env().get("kernel_release"));
    release.map(ToString::to_string).unwrap_or_default()
}

/// What people should know of a conversion, a line each.
#[must_use]
pub fn notes(summary: &Summary) -> Vec<String> {
    let mut notes = Vec::new();
    if summary.losses > 0 {
        notes.push(format!(
            "events were lost in {} (track \"Lost events\")",
            counted(summary.losses, "interval", "intervals")
        ));
    }
    if summary.gaps > 0 {
        notes.push(format!(
            "{} a CPU's switches do not follow each other; what ran between is shown as <unknown>",
            counted(summary.gaps, "time", "times")
        ));
    }
    if summary.without_thread > 0 {
        notes.push(format!(
            "{} not say the thread (record them with --context tid,pid)",
            counted(summary.without_thread, "event of a program does", "events of programs do")
        ));
    }
    if summary.other_hosts > 0 {
        notes.push(format!(
            "{} left out: convert each host's trace by itself",
            counted(
                summary.other_hosts,
                "event of another host's kernel is",
                "events of other hosts' kernels are"
            )
        ));
    }
    notes
}

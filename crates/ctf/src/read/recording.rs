// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trace directory → recording: the events that rtscope analyses, from its own traces and from LTTng's kernel traces.

use super::class::{ClockClass, TraceClass};
use super::compile::picking_all;
use super::cursor::{Cursor, Damage, WINDOW};
use super::gather::RecordingBuilder;
use super::kernel::{Binding, EventContent};
use super::packet::TracePlans;
use super::plan::{Field, Plan, Scope};
use super::values::Filler;
use super::{files, set};
use crate::{Error, TraceInfo};
use rtscope_event::{
    CpuId, Domain, Event, EventClass, FieldClass, FoundNames, MonotonicNs, Recording, ValueBuffer,
};
use std::collections::BTreeMap;
use std::path::Path;

/// The content of a trace directory.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Events, names, losses, history.
    pub recording: Recording,
    /// Where and when it was made; empty or nil where the trace does not tell.
    pub info: TraceInfo,
    /// Number of events, by name, that rtscope does not use.
    pub skipped: BTreeMap<String, u64>,
    /// Defects of the trace, for people. Each loss of data is in the recording's losses, too.
    pub warnings: Vec<String>,
}

/// Reads the trace in `dir`, or in `dir/kernel`.
///
/// Damage is not an error: the readable part is returned, and the rest is in [`Trace::warnings`] and in the losses.
///
/// # Errors
/// When there is no trace, a file cannot be read, or the metadata cannot be understood.
pub fn read_trace(dir: &Path) -> Result<Trace, Error> {
    let dir = files::trace_dir(dir)?;
    let class = set::metadata(&dir)?;
    let reader = Reader::new(&class);
    let mut gathered = RecordingBuilder::default();
    let mut damaged = Vec::new();
    for path in files::stream_files(&dir)? {
        let cursor = Cursor::open(&reader.plans, &path, WINDOW, (0, u64::MAX));
        let cursor = cursor.map_err(Error::io("read", &path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !reader.file(cursor, &name, &mut gathered) {
            damaged.push(path);
        }
    }
    for missing in set::missing(&class, &[dir]) {
        if !damaged.contains(&missing.path) {
            gathered.damage(None, missing.to_string());
        }
    }
    Ok(gathered.finish(&class))
}

/// An event class whose events are part of the recording.
struct BoundClass {
    binding: Binding,
    plan: Plan,
}

struct Reader<'t> {
    class: &'t TraceClass,
    plans: TracePlans,
    /// By class of the trace.
    bound: Vec<Option<BoundClass>>,
}

impl<'t> Reader<'t> {
    fn new(class: &'t TraceClass) -> Reader<'t> {
        let bound = class.events.iter().map(|event| bind(class, event));
        Reader { class, plans: TracePlans::new(class), bound: bound.collect() }
    }

    /// Reads all packets of a file; false if it is damaged. `name` is for messages.
    fn file(&self, mut cursor: Cursor<'_>, name: &str, out: &mut RecordingBuilder) -> bool {
        let mut is_whole = true;
        let mut cpu = None;
        let mut discarded = 0;
        let mut values = ValueBuffer::default();
        loop {
            let begun = cursor.next_packet();
            if let Ok(true) = begun {
                let said = cursor.packet.cpu.and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId);
                cpu = said.or(cpu);
                discarded = discarded.max(cursor.packet.discarded.unwrap_or(0));
            }
            let read = match begun {
                Ok(false) => break,
                Ok(true) => self.packet(&mut cursor, cpu.unwrap_or_default(), &mut values, out),
                Err(damage) => Err(damage),
            };
            if let Err(Damage { packet_at, what, rest_of_file }) = read {
                let rest = if rest_of_file { "file" } else { "packet" };
                is_whole = false;
                out.damage(
                    cpu,
                    format!("{name}: packet at byte {packet_at}: {what}; the rest of the {rest} is left out"),
                );
                if rest_of_file {
                    break;
                }
            }
        }
        out.discarded(cpu, discarded);
        is_whole
    }

    fn packet(
        &self,
        cursor: &mut Cursor<'_>,
        cpu: CpuId,
        values: &mut ValueBuffer,
        out: &mut RecordingBuilder,
    ) -> Result<(), Damage> {
        let clock = self.class.streams.get(cursor.packet.stream).and_then(|stream| stream.clock);
        let clock = clock.and_then(|clock| self.class.clocks.get(clock));
        if let Some(begin) = cursor.packet.begin {
            out.begins(cpu, monotonic(clock, begin));
        }
        while let Some(head) = cursor.next_event()? {
            let stream = cursor.stream().and_then(|stream| stream.events.get(head.event as usize));
            let Some(class) = stream.map(|event| event.class) else { break };
            match self.bound.get(class).and_then(Option::as_ref) {
                Some(bound) => {
                    values.clear();
                    values.begin(bound.plan.fields.len());
                    cursor.show(&bound.plan, &mut Filler(values))?;
                    let mut names = FoundNames::default();
                    match bound.binding.take(&values.current(), &mut names) {
                        Some(said) => keep(monotonic(clock, head.clock), cpu, said, names, out),
                        None => out.malformed(class),
                    }
                }
                None => {
                    cursor.pass(head)?;
                    out.skipped(class);
                }
            }
        }
        Ok(())
    }
}

fn bind(trace: &TraceClass, event: &super::class::EventClass) -> Option<BoundClass> {
    let stream = trace.streams.iter().find(|stream| stream.id == event.stream_id)?;
    let plan = picking_all(&[
        (Scope::StreamContext, stream.event_context.as_ref()),
        (Scope::EventContext, event.context.as_ref()),
        (Scope::Fields, event.fields.as_ref()),
    ]);
    let field = |field: &Field| FieldClass {
        name: field.path.clone(),
        is_payload: field.scope == Scope::Fields,
        ..FieldClass::default()
    };
    let fields = plan.fields.iter().map(field).collect();
    let class = EventClass { name: event.name.clone(), domain: Domain::Kernel, fields };
    let binding = Binding::of(&class)?;
    Some(BoundClass { binding, plan })
}

/// The recording has the clock's own time, without its offset, which is never negative.
fn monotonic(clock: Option<&ClockClass>, cycles: u64) -> MonotonicNs {
    MonotonicNs(clock.map_or(cycles, |clock| u64::try_from(clock.cycles_ns(cycles)).unwrap_or(0)))
}

fn keep(time: MonotonicNs, cpu: CpuId, said: EventContent, names: FoundNames, out: &mut RecordingBuilder) {
    for (tid, comm) in names.tasks.into_iter().flatten() {
        out.name(time, tid, comm);
    }
    if let Some((irq, name)) = names.irq {
        out.irq(irq, name);
    }
    match said {
        EventContent::Event(kind) => out.event(Event { time, cpu, kind }),
        EventContent::Task(task) => out.task(task),
        EventContent::Nothing => {}
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values → what a recording is made of: kernel events, by their view (`rtscope_event::KernelView`), and the state dump, which is no
//! event.
//!
//! An event class of a trace is bound once; taking values then compares no names. A field that the trace lacks is `None`: a
//! missing required field makes the event *malformed*.

use crate::layout::{event_layouts, id};
use rtscope_event::{
    Comm, EventClass, EventKind, FoundNames, Irq, KernelView, Pid, Policy, Priority, TaskInfo, Tid, Values,
};

/// The content of an event.
#[derive(Debug)]
pub(crate) enum EventContent {
    Event(EventKind),
    /// From a state dump.
    Task(TaskInfo),
    Nothing,
}

/// How to take an event class of a trace.
#[derive(Debug)]
pub(crate) enum Binding {
    Event(KernelView),
    /// Of the state dump: its number, and the place of each field of the layout.
    Dump(u32, Vec<Option<usize>>),
}

impl Binding {
    /// `None` for an event that recordings do not have.
    pub(crate) fn of(class: &EventClass) -> Option<Binding> {
        if let Some(view) = KernelView::of(class) {
            return Some(Binding::Event(view));
        }
        let mut layouts = (0..).zip(event_layouts()).skip(id::DUMP_START as usize);
        let (number, layout) = layouts.find(|(_, layout)| layout.name == class.name)?;
        let place = |name: &str| class.fields.iter().position(|field| field.is_payload && field.name == name);
        Some(Binding::Dump(number, layout.fields.iter().map(|(name, _)| place(name)).collect()))
    }

    /// The content of an event; `None` when a required field is missing or invalid. The names that it tells are added to `names`.
    #[inline]
    pub(crate) fn take(&self, values: &Values<'_>, names: &mut FoundNames) -> Option<EventContent> {
        Some(match self {
            Binding::Event(view) => EventContent::Event(view.take(values, names)?),
            Binding::Dump(id::DUMP_PROCESS, places) => {
                EventContent::Task(dump_process(&DumpFields { places, values })?)
            }
            Binding::Dump(id::DUMP_INTERRUPT, places) => {
                names.irq = Some(dump_interrupt(&DumpFields { places, values })?);
                EventContent::Nothing
            }
            Binding::Dump(..) => EventContent::Nothing,
        })
    }
}

/// The fields of a layout of the state dump, by their place in it.
struct DumpFields<'v> {
    places: &'v [Option<usize>],
    values: &'v Values<'v>,
}

impl DumpFields<'_> {
    fn number(&self, field: usize) -> Option<i128> {
        self.values.integer((*self.places.get(field)?)?)
    }

    /// 32 bits, signed or unsigned in the trace.
    fn u32(&self, field: usize) -> Option<u32> {
        let bits = |number: i32| u32::from_ne_bytes(number.to_ne_bytes());
        let number = self.number(field)?;
        u32::try_from(number).or_else(|_| i32::try_from(number).map(bits)).ok()
    }

    fn bytes(&self, field: usize) -> Option<&[u8]> {
        self.values.bytes((*self.places.get(field)?)?)
    }

    fn text(&self, field: usize) -> Option<String> {
        let bytes = self.bytes(field)?.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

fn dump_process(fields: &DumpFields<'_>) -> Option<TaskInfo> {
    // LTTng counts priorities from the first that is not real-time.
    let prio = fields.number(12).and_then(|prio| i16::try_from(prio.checked_add(100)?).ok());
    Some(TaskInfo {
        tid: Tid(fields.u32(0)?),
        pid: Pid(fields.u32(2)?),
        ppid: Pid(fields.u32(4)?),
        comm: Comm::from_bytes(fields.bytes(6)?),
        // LTTng records neither; 120 and 0 are a task's defaults.
        prio: Priority(prio.unwrap_or(120)),
        policy: Policy(fields.u32(13).unwrap_or(0)),
        kthread: fields.number(7) == Some(1),
    })
}

fn dump_interrupt(fields: &DumpFields<'_>) -> Option<(Irq, String)> {
    let irq = Irq(fields.u32(0)?);
    let name = fields.text(2).filter(|name| !name.is_empty()).or_else(|| fields.text(1))?;
    Some((irq, name))
}

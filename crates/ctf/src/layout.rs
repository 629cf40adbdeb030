// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel layout: which event classes the writer has, by LTTng's names, and which fields they have.
//!
//! Those of events are from the table in `rtscope-event`; the state dump, which is no event, is here. The reader finds the
//! fields of *any* trace's event of that name by name. So rtscope's own traces and LTTng's go through the same code.
//!
//! The names are those of lttng-modules since 2.9, which Trace Compass picks by `env` (see `write::metadata`). Fields
//! that LTTng does not have are added at the end of an event: readers go by name and ignore extra fields.

use rtscope_event::{TraceField, TraceType, classes};

/// An event class of the layout. Its id is its place in [`event_layouts`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLayout {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [TraceField],
}

/// Ids after those of events, which are `EventKind::class`. Those below 31 fit the compact event header, so the frequent events have
/// them.
pub(crate) mod id {
    use rtscope_event::EventKind;

    pub(crate) const DUMP_START: u32 = EventKind::CLASSES;
    pub(crate) const DUMP_PROCESS: u32 = DUMP_START + 1;
    pub(crate) const DUMP_INTERRUPT: u32 = DUMP_START + 2;
    pub(crate) const DUMP_END: u32 = DUMP_START + 3;
}

/// The classes of the state dump, in the order of [`id`].
const DUMP: [(&str, &[TraceField]); 4] = [
    ("lttng_statedump_start", &[]),
    (
        "lttng_statedump_process_state",
        &[
            ("tid", TraceType::S32),
            ("vtid", TraceType::S32),
            ("pid", TraceType::S32),
            ("vpid", TraceType::S32),
            ("ppid", TraceType::S32),
            ("vppid", TraceType::S32),
            ("name", TraceType::Comm),
            // 1 for a kernel thread
            ("type", TraceType::S32),
            ("mode", TraceType::S32),
            ("submode", TraceType::S32),
            ("status", TraceType::S32),
            ("cpu", TraceType::U32),
            ("prio", TraceType::S32),
            ("policy", TraceType::U32),
        ],
    ),
    (
        "lttng_statedump_interrupt",
        &[("irq", TraceType::S32), ("name", TraceType::Text), ("action", TraceType::Text)],
    ),
    ("lttng_statedump_end", &[]),
];

/// All event classes; an event's id is its index.
pub(crate) fn event_layouts() -> Vec<EventLayout> {
    let events = classes().iter().map(|class| EventLayout { name: class.name, fields: class.fields });
    events.chain(DUMP.map(|(name, fields)| EventLayout { name, fields })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_places_in_the_table() {
        let layouts = event_layouts();
        let name = |id: u32| layouts[id as usize].name;
        assert_eq!(name(id::DUMP_START), "lttng_statedump_start");
        assert_eq!(name(id::DUMP_PROCESS), "lttng_statedump_process_state");
        assert_eq!(name(id::DUMP_INTERRUPT), "lttng_statedump_interrupt");
        assert_eq!(name(id::DUMP_END), "lttng_statedump_end");
        assert_eq!(layouts.len(), id::DUMP_END as usize + 1);
    }
}

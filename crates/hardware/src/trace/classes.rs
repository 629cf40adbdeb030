// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The classes of events, each once: names and fields, as a source has them and as a CTF trace declares them.

use rtscope_event::LossCause;
use std::sync::Arc;

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// A number, base 10.
    Number,
    /// An address, or bits.
    Hex,
    /// Text.
    Text,
}

/// A class of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventClassKind {
    /// A function begins. `inferred`: it was entered before the trace began, or in a gap.
    FunctionEntry,
    /// A function ends. `inferred`: nobody saw that it returned.
    FunctionExit,
    /// A branch was taken.
    Branch,
    /// A program wrote a value into the trace (PTWRITE, an ETE's instrumentation).
    Write,
    /// A message of an STM channel.
    Message,
    /// A message of an STM channel that is one of MIPI SyS-T.
    SysT,
    /// A stimulus of an ITM port.
    Stimulus,
    /// An exception or an interrupt.
    Exception,
    /// A place was executed that an address comparator is set to.
    Place,
    /// A sample of where the program is.
    Sample,
    /// Another thing that the unit says, by the name of its packet.
    Packet,
    /// Something is missing from here on.
    Lost,
}

/// An address that the stream does not tell: no instruction begins at the last byte of memory, and one may at 0.
pub const UNKNOWN_ADDRESS: u64 = u64::MAX;

/// Fields with their kinds, in the order of an event's numbers.
type Fields = &'static [(&'static str, FieldKind)];

use FieldKind::{Hex, Number, Text};

impl EventClassKind {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [EventClassKind; 12] = [
        EventClassKind::FunctionEntry,
        EventClassKind::FunctionExit,
        EventClassKind::Branch,
        EventClassKind::Write,
        EventClassKind::Message,
        EventClassKind::SysT,
        EventClassKind::Stimulus,
        EventClassKind::Exception,
        EventClassKind::Place,
        EventClassKind::Sample,
        EventClassKind::Packet,
        EventClassKind::Lost,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EventClassKind::FunctionEntry => "hardware:function_entry",
            EventClassKind::FunctionExit => "hardware:function_exit",
            EventClassKind::Branch => "hardware:branch",
            EventClassKind::Write => "hardware:write",
            EventClassKind::Message => "hardware:message",
            EventClassKind::SysT => "hardware:sys_t",
            EventClassKind::Stimulus => "hardware:stimulus",
            EventClassKind::Exception => "hardware:exception",
            EventClassKind::Place => "hardware:place",
            EventClassKind::Sample => "hardware:sample",
            EventClassKind::Packet => "hardware:packet",
            EventClassKind::Lost => "hardware:lost",
        }
    }

    pub(super) fn fields(self) -> Fields {
        match self {
            EventClassKind::FunctionEntry | EventClassKind::FunctionExit => {
                &[("address", Hex), ("inferred", Number), ("symbol", Text)]
            }
            EventClassKind::Branch => {
                &[("from", Hex), ("to", Hex), ("cycles", Number), ("mispredicted", Number), ("kind", Text)]
            }
            EventClassKind::Write => &[("value", Hex), ("address", Hex), ("symbol", Text)],
            EventClassKind::Message => {
                &[("master", Number), ("channel", Number), ("size", Number), ("text", Text)]
            }
            EventClassKind::SysT => &[
                ("master", Number),
                ("channel", Number),
                ("text", Text),
                ("severity", Text),
                ("kind", Text),
                ("origin", Text),
                ("unit", Text),
                ("location", Text),
                ("ticks", Text),
                ("fault", Text),
            ],
            EventClassKind::Stimulus => &[("port", Number), ("size", Number), ("value", Hex), ("text", Text)],
            EventClassKind::Exception => &[("number", Number), ("address", Hex), ("kind", Text)],
            EventClassKind::Place => &[("address", Hex), ("place", Text)],
            EventClassKind::Sample => &[("address", Hex), ("symbol", Text)],
            EventClassKind::Packet => &[("value", Hex), ("kind", Text)],
            EventClassKind::Lost => &[("bytes", Number), ("cause", Text)],
        }
    }
}

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossReason {
    /// The unit could not write as fast as there was something to say (OVF, Overflow).
    Overflow,
    /// The buffer in memory was full or was overwritten.
    Buffer,
    /// Bytes are no packets.
    Unreadable,
    /// The program's bytes are not known, or are not those that ran.
    Image,
    /// A message of an STM is not complete or too long, or too many were open at once.
    Message,
    /// A record of SPE has bytes that cannot be read, or has no end.
    Record,
}

impl LossReason {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LossReason::Overflow => "overflow of the unit",
            LossReason::Buffer => "buffer full",
            LossReason::Unreadable => "unreadable bytes",
            LossReason::Image => "no matching program image",
            LossReason::Message => "an incomplete message, one that is too long, or too many at once",
            LossReason::Record => "a record that is not complete",
        }
    }

    /// The same in the words of all traces.
    #[must_use]
    pub fn cause(self) -> LossCause {
        match self {
            LossReason::Overflow => LossCause::Overrun,
            LossReason::Buffer => LossCause::BufferFull,
            LossReason::Unreadable | LossReason::Image | LossReason::Message | LossReason::Record => {
                LossCause::Unreadable
            }
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareEvent {
    /// Nanoseconds of the recording's clock; `None`: the stream had not told a time yet.
    pub time_ns: Option<u64>,
    /// The CPU, where known.
    pub cpu: Option<u32>,
    /// Process and thread, where known.
    pub thread: Option<(u32, u32)>,
    /// Its class.
    pub class: EventClassKind,
    /// The class's numbers, in the order of its fields.
    pub numbers: [u64; 4],
    /// The class's first text.
    pub text: Arc<str>,
    /// Its other texts, in the order of its fields.
    pub more: Vec<String>,
    /// Of [`EventClassKind::Lost`]: why.
    pub lost: Option<LossReason>,
}

impl HardwareEvent {
    /// One without a place and a time.
    #[must_use]
    pub fn new(class: EventClassKind, numbers: &[u64], text: Arc<str>) -> HardwareEvent {
        let mut all = [0; 4];
        all.iter_mut().zip(numbers).for_each(|(place, number)| *place = *number);
        let (time_ns, cpu, thread, lost) = (None, None, None, None);
        HardwareEvent { time_ns, cpu, thread, class, numbers: all, text, more: Vec::new(), lost }
    }

    /// Its texts, in the order of its fields.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.text).chain(self.more.iter().map(String::as_str))
    }

    /// Something is missing; `bytes`: of the stream, 0 where none are.
    #[must_use]
    pub fn lost(reason: LossReason, bytes: u64) -> HardwareEvent {
        let text = Arc::from(reason.name());
        HardwareEvent { lost: Some(reason), ..HardwareEvent::new(EventClassKind::Lost, &[bytes], text) }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a writer of traces has to provide.

use crate::{Comm, Irq, MonotonicNs, Names, Tid};

/// Stands for an unknown name. Not an empty text: babeltrace2 2.0 shows an empty character array as the content that the
/// previous event had in its place, and would name the wrong task.
pub const UNKNOWN_COMM: &str = "<unknown>";

/// How a field is stored in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceType {
    /// 8 bits.
    U8,
    /// 32 bits.
    U32,
    /// 32 bits, signed.
    S32,
    /// 64 bits.
    U64,
    /// 64 bits, signed.
    S64,
    /// An address: 64 bits, shown in base 16.
    Address,
    /// A task's name: `char[16]`.
    Comm,
    /// NUL-terminated.
    Text,
    /// 8 bits; the first label is 1.
    Labels(&'static [&'static str]),
    /// Not stored: it is part of the name of the class.
    PartOfName,
}

/// Name and type of a field.
pub type TraceField = (&'static str, TraceType);

/// Takes the fields of an event, in the order of its class.
pub trait TraceSink {
    /// A number, by the low bits that the type has.
    fn number(&mut self, kind: TraceType, bits: u64);
    /// A task's name.
    fn comm(&mut self, comm: Comm);
    /// Text.
    fn text(&mut self, text: &str);
}

/// Names of tasks and interrupts; rtscope's records have numbers only.
pub trait NameLookup {
    /// The name of a task at a time, if known.
    fn comm(&self, tid: Tid, time: MonotonicNs) -> Option<Comm>;
    /// The name of an interrupt, if known.
    fn irq(&self, irq: Irq) -> Option<&str>;
}

impl NameLookup for Names {
    fn comm(&self, tid: Tid, time: MonotonicNs) -> Option<Comm> {
        Names::comm(self, tid, time)
    }

    fn irq(&self, irq: Irq) -> Option<&str> {
        Names::irq(self, irq)
    }
}

/// When an event happened, and where to look up names.
#[derive(Debug)]
pub(super) struct Moment<'n, N> {
    pub(super) time: MonotonicNs,
    pub(super) names: &'n N,
}

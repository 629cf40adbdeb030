// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a decoder of the flow finds, the same for all units.

use super::isa::{Instruction, Isa};

/// Instructions that were executed one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Address of the first one.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
    /// How many.
    pub instructions: u32,
    /// Of which set.
    pub isa: Isa,
    /// Whether the last one was executed; a branch: whether it was taken.
    pub taken: bool,
    /// The last one.
    pub last: Instruction,
    /// Cycles, where the unit counts them for each range (ETMv3, PTM).
    pub cycles: Option<u32>,
}

/// The state of the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Exception level, where the unit says it.
    pub level: Option<u8>,
    /// AArch64.
    pub is_64_bit: bool,
    /// Not secure.
    pub non_secure: bool,
    /// With [`Context::non_secure`] realm, else root.
    pub nse: bool,
    /// Context identifier, as the unit said it last.
    pub context_id: Option<u32>,
    /// Virtual machine identifier, as the unit said it last.
    pub vmid: Option<u32>,
    /// Instruction set.
    pub isa: Isa,
}

/// Why the flow is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// A packet that is none, or does not fit what was before.
    BadPacket,
    /// The unit discarded what was not committed.
    Discard,
    /// The unit lost trace.
    Overflow,
    /// The caller said that the stream does not go on.
    Discontinuity,
}

/// A transaction (FEAT_TME).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Tracing began within one.
    Within,
    /// It began.
    Start,
    /// It ended well.
    Commit,
    /// It failed.
    Fail,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// The flow is interrupted until the next synchronisation.
    Gap(Gap),
    /// Tracing begins or goes on.
    TraceOn {
        /// After the unit lost trace.
        after_overflow: bool,
    },
    /// Instructions.
    Range(Range),
    /// Instructions ran, of which only this is known: where they began, where it goes on, and how many.
    UnknownPath {
        /// Address of the first one; `None`: a branch went where nobody says.
        start: Option<u64>,
        /// Where execution goes on.
        end: u64,
        /// How many, if the unit said so.
        instructions: Option<u32>,
    },
    /// The image has nothing at the address; the flow goes on at the next address in the trace.
    NoMemory {
        /// The address.
        address: u64,
    },
    /// The state of the processor changed.
    Context(Context),
    /// An exception.
    Exception {
        /// Its number, as the unit has it.
        number: u16,
        /// Where it would return to.
        return_address: Option<u64>,
    },
    /// A return from an exception.
    ExceptionReturn,
    /// The time of what is before it.
    Timestamp {
        /// Ticks of the system counter.
        value: u64,
        /// Cycles since the last count.
        cycles: Option<u32>,
    },
    /// Cycles since the last count; `None` where the unit lost them.
    Cycles(Option<u32>),
    /// Events of the unit, by number.
    Event(u16),
    /// The trigger of the unit.
    Trigger,
    /// A value that the program wrote.
    Instrumentation {
        /// Exception level at which it ran.
        level: u8,
        /// The value.
        value: u64,
    },
    /// A transaction.
    Transaction(Transaction),
    /// The place that the next timestamp is of.
    TimestampMarker,
}

/// What is called with what a decoder of the flow finds.
pub trait ElementSink {
    /// An element; the offset is that of the packet that says so.
    fn element(&mut self, offset: u64, element: &Element);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instruction trace of Arm processors: ETMv4 and ETE ([`v4`]), PTM ([`ptm`]) and ETMv3 ([`v3`]).
//!
//! Each unit has a decoder of packets, which is given bytes with their offset and calls a [`Sink`] for each packet and each
//! loss, and a decoder of the flow, which is given packets and the program's image and calls back for each range of
//! instructions, exception, context and time. Each byte is in one packet or in one loss.
//!
//! After bytes that are not a packet the packets go on, since most errors are one unknown header; the flow stops until the next
//! synchronisation, as nobody knows what the bytes would have said.

use crate::{Lost, LostCause};

mod address32;
mod element;
mod image;
pub mod isa;
pub mod ptm;
mod returns;
mod stream;
pub mod v3;
pub mod v4;
mod walk;

pub use address32::Isa32;
pub use element::{Context, Element, ElementSink, Gap, Range, Transaction};
pub use image::{Image, Spaces};
pub use stream::Counts;

/// Bytes of a stream that are one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Of the first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
}

/// Why bytes were not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before the first synchronisation.
    NotSynchronised,
    /// A header that the specification does not have.
    Reserved,
    /// A header of something that this unit, or its configuration, does not trace.
    NotConfigured,
    /// A header that is known, and bytes after it that cannot be.
    Sequence,
    /// The stream ends or breaks off within a packet.
    Incomplete,
}

impl Fault {
    /// The same in the words of all decoders.
    #[must_use]
    pub fn cause(self) -> LostCause {
        match self {
            Fault::NotSynchronised => LostCause::NotSynchronised,
            Fault::Reserved | Fault::NotConfigured | Fault::Sequence => LostCause::Malformed,
            Fault::Incomplete => LostCause::Truncated,
        }
    }
}

/// What a decoder of packets finds.
pub trait Sink<P> {
    /// A packet.
    fn packet(&mut self, at: At, packet: &P);
    /// Bytes that are in no packet.
    fn lost(&mut self, lost: Lost, fault: Fault);
}

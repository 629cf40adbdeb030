// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arm's Statistical Profiling Extension: bytes of its buffer → packets → records.
//!
//! A record tells of one sampled operation: where it was, what it was, what happened to it, and how long that took. It ends
//! with a timestamp, or with an END packet (Arm Architecture Reference Manual, chapter D17, “The Statistical Profiling
//! Extension”). There is no synchronisation, so after a byte that begins no packet nothing is believed before the next end of a record.
//!
//! Not met so far: a buffer of a real processor. Packets that our [`Encoder`] writes read the same in perf 6.1.

mod decode;
mod encode;
mod packet;
mod record;

pub use decode::Decoder;
pub use encode::Encoder;
pub use packet::{AddressKind, CounterKind, Item, Operation, Packet, Payload, Sink};
pub use record::{Record, Records};

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of Arm's Instrumentation Trace Macrocell and Data Watchpoint and Trace unit (Cortex-M).
//!
//! Armv7-M Architecture Reference Manual, appendix D4 (“Debug ITM and DWT packet protocol”). Bytes of formatter frames or of a TPIU
//! are to be unpacked before. Synchronisation packets are optional and often absent, so packets are decoded from the first byte on;
//! those before a synchronisation, and from an error to the next one, are [not certain](Packet::certain): a stream that
//! begins within a packet reads as packets that were never sent.
//!
//! - [`Decoder`]: bytes in pieces of any size → [`Packet`]s.
//! - [`Clock`]: local and global timestamps → times of packets.
//! - [`Encoder`]: the reverse, for tests.
//!
//! ```
//! use rtscope_hardware::itm::{Decoder, Encoder, Item, Payload};
//!
//! let mut encoder = Encoder::new();
//! encoder.sync().stimulus(2, 4, 0x1234);
//! let mut values = Vec::new();
//! let mut decoder = Decoder::new();
//! let mut sink = |item: Item| {
//!     if let Item::Packet(packet) = item {
//!         if let Payload::Stimulus { port, value, .. } = packet.payload {
//!             values.push((port, value));
//!         }
//!     }
//! };
//! decoder.push(&encoder.finish(), &mut sink);
//! decoder.finish(&mut sink);
//! assert_eq!(values, [(2, 0x1234)]);
//! ```

mod clock;
mod decode;
mod encode;
mod packet;

pub use clock::{Clock, PacketTime};
pub use decode::Decoder;
pub use encode::Encoder;
pub use packet::{Action, Delay, Item, Packet, Payload, Sink};

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MIPI System Trace Protocol 2, as CoreSight STM and Intel Trace Hub write it: nibbles → packets → messages.
//!
//! The stream is one of nibbles, the low one of each byte first; a packet begins at any of them. Values have their most
//! significant nibble first. So positions and lengths here are [nibbles](Lost), and bytes only at the border.
//!
//! - [`Decoder`]: bytes in pieces of any size → [`Packet`]s with master, channel and time.
//! - [`Messages`]: data packets of each channel → messages ([`Framing`]).
//! - [`Encoder`]: the reverse of the first, for tests, and for whoever has no such hardware.
//!
//! Packets: MIPI STP 2.1, section 6 (“packet types”); checked against OpenCSD's decoder on captures of Arm's STM. USER and XSYNC
//! are known from descriptions only; TIME, whose length is not public, is refused ([`LostCause::Malformed`](crate::LostCause)). So are
//! versions other than 3 (natural binary times) and 4 (gray coded times).
//!
//! ```
//! use rtscope_hardware::stp::{Decoder, Encoder, Item, Width};
//!
//! let mut encoder = Encoder::new();
//! encoder.sync().master(3).channel(1).data(Width::D32, 7, Some(1000)).flag(None);
//! let mut data = Vec::new();
//! let mut decoder = Decoder::new();
//! let mut sink = |item: Item| {
//!     if let Item::Packet(packet) = item {
//!         data.push((packet.name(), packet.master, packet.channel, packet.timestamp.map(|time| time.ticks)));
//!     }
//! };
//! decoder.push(&encoder.finish(), &mut sink);
//! decoder.finish(&mut sink);
//! assert!(data.contains(&("D32TS", 3, 1, Some(1000))));
//! ```

mod decode;
mod encode;
mod message;
mod opcode;
mod packet;
pub mod v1;

pub use decode::Decoder;
pub use encode::Encoder;
pub use message::{Framing, Message, MessageLosses, Messages};
pub use packet::{Encoding, Item, Lost, Packet, Payload, Sink, Timestamp, Width};

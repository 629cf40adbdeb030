// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ETMv4 and ETE: [`Packets`] takes the stream apart, in the [`Config`] that the registers give.
//!
//! ```
//! use rtscope_hardware::Lost;
//! use rtscope_hardware::etm::{At, Fault, Sink, v4};
//!
//! struct Print;
//! impl Sink<v4::Packet> for Print {
//!     fn packet(&mut self, at: At, packet: &v4::Packet) {
//!         println!("{}: {packet}", at.offset);
//!     }
//!     fn lost(&mut self, lost: Lost, fault: Fault) {
//!         println!("{}: {} bytes lost: {fault:?}", lost.offset, lost.bytes);
//!     }
//! }
//! let mut packets = v4::Packets::new(&v4::Config::default());
//! packets.push(0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x00, 0x04, 0xF7], &mut Print);
//! packets.finish(&mut Print);
//! assert_eq!(packets.counts().packet_bytes, 16);
//! ```
//!
//! Reference: Arm Embedded Trace Macrocell Architecture Specification ETMv4.0 to ETMv4.6 (IHI 0064), chapter 6, and Arm Embedded
//! Trace Extension (in the Arm ARM, DDI 0487, part D6, with the same packets and a few more).

mod config;
mod encode;
mod flow;
mod packet;
mod packets;
mod parse;

pub use config::{Config, Profile};
pub use encode::Encoder;
pub use flow::Flow;
pub use packet::{Address, AddressForm, Atoms, Context, Packet, TraceInfo};
pub use packets::Packets;

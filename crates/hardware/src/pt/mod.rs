// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel Processor Trace.
//!
//! Layers, each usable alone:
//!
//! | module | from | to |
//! |---|---|---|
//! | [`decode`] | bytes, in pieces of any size | [`packet::Packet`]s with their places, and what was lost |
//! | [`time`] | packets | ticks of the TSC, with the error, and nanoseconds |
//! | [`flow`], with [`code`] | packets and the program | blocks of instructions, and events |
//! | [`encode`], [`tracer`] | packets; or what a program executed | bytes |
//!
//! ```
//! use rtscope_hardware::Lost;
//! use rtscope_hardware::pt::{Decoder, Packet, Place, Sink, encode};
//!
//! struct Print;
//! impl Sink for Print {
//!     fn packet(&mut self, place: Place, packet: Packet) {
//!         println!("{:16x}  {packet}", place.offset);
//!     }
//!     fn lost(&mut self, lost: Lost) {
//!         println!("{:16x}  {} bytes: {}", lost.offset, lost.bytes, lost.cause);
//!     }
//! }
//!
//! let mut stream = Vec::new();
//! for packet in [Packet::Psb, Packet::Cbr { ratio: 12 }, Packet::PsbEnd] {
//!     encode::packet(packet, &mut stream);
//! }
//! let mut decoder = Decoder::new();
//! for piece in stream.chunks(5) {
//!     decoder.push(piece, &mut Print);
//! }
//! decoder.finish(&mut Print);
//! ```
//!
//! The bytes of packets and those that are lost are all that were pushed, always.

pub mod code;
pub mod decode;
pub mod encode;
pub mod flow;
pub mod packet;
pub mod time;
pub mod tracer;

pub use code::{Block, BlockEnd, CodeError, Memory};
pub use decode::{Decoder, Place, Sink};
pub use flow::{Event, Flow, FlowDecoder, FlowError, FlowSink, SpaceId, Stamp};
pub use packet::{ExecMode, Ip, IpBytes, LastIp, Packet, Tnt};
pub use time::{Clock, ClockConfig, PerfClock, Time, TscRatio};
pub use tracer::{Tracer, TracerConfig};

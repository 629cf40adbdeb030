// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CoreSight: how the streams of several trace sources share one buffer or port, and how a capture is described.
//!
//! - [`Deformatter`] takes formatter frames apart: memory of an ETB, ETF or ETR, a TPIU's port with FSYNC and HSYNC, a
//!   DSTREAM file. [`align`] finds where frames begin in a stream without synchronisation, as on a microcontroller's SWO pin.
//! - [`Formatter`] makes frames, for tests and for whoever writes a trace.
//! - [`snapshot`] reads a snapshot directory in OpenCSD's form: the sources with their registers, and the memory of the traced
//!   program. This is the only part that needs `std`.
//!
//! ```
//! use rtscope_hardware::coresight::{Deformatter, FrameSink, Framing};
//! use rtscope_hardware::Lost;
//!
//! struct Print;
//! impl FrameSink for Print {
//!     fn data(&mut self, id: u8, offset: u64, bytes: &[u8]) {
//!         println!("{offset}: source {id:#x} {bytes:02x?}");
//!     }
//!     fn lost(&mut self, lost: Lost) {
//!         println!("{}: {} bytes {}", lost.offset, lost.bytes, lost.cause);
//!     }
//! }
//! let mut deformatter = Deformatter::new(Framing::Memory);
//! deformatter.push(&[0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0], &mut Print);
//! deformatter.finish(&mut Print);
//! assert_eq!(deformatter.counts().data_bytes(0x10), 14);
//! ```
//!
//! Reference: Arm CoreSight Architecture Specification v3.0 (IHI 0029), chapter D4, "Trace Formatter".

pub mod align;
mod encode;
mod frames;
pub mod snapshot;

pub use encode::Formatter;
pub use frames::{Counts, Deformatter, FrameSink, Framing};

/// The identifier of padding: a formatter has no data of any source (D4.2.3).
pub const ID_NULL: u8 = 0;
/// The identifier under which a formatter writes that a trigger came (D4.2.3).
pub const ID_TRIGGER: u8 = 0x7D;

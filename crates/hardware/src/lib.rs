// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces that trace units of processors make: Intel PT, ETM, STM, ITM and others. One module a unit.
//!
//! Each decoder is a machine that is given bytes, in pieces of any size, and calls back with what it recognised, so that a
//! stream may come from a file, a ring or a network. Layers are apart: frames → packets → flow of instructions (with the
//! program's image) → events with times. Decoders allocate in proportion to their own tables and the image, never to the
//! stream, and use `core` and `alloc` only.
//!
//! Bytes in are bytes in packets and bytes reported [lost](Lost): nothing is passed over in silence.

extern crate alloc;

pub mod capture;
pub mod coresight;
pub mod decode;
mod elf;
pub mod etm;
pub mod inventory;
pub mod itm;
mod lost;
pub mod perfdata;
pub mod place;
pub mod pmu;
pub mod program;
pub mod pt;
pub mod spe;
pub mod stp;
pub mod syst;
pub mod trace;

pub use lost::{Lost, LostCause};

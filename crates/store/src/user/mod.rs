// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording of instrumented programs: its spool, and the trace that is made of it.
//!
//! The same as for the kernel ([ADR 0005](../../../../docs/adr/0005-spool-first-convert-after.md)): while programs run their
//! records are written as they are, and decoded when the recording is over. All is in one file, in the order in which it
//! came, so a killed recorder leaves everything that it had taken.

mod convert;
mod spool;

pub use convert::{UserConverted, UserOptions, convert_user};
pub use spool::{UserEnd, UserSession, UserSpool, UserSpoolWriter};

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What could be recorded, for `rtscope list`: tracepoints with their fields, and programs with their events.

mod programs;
mod tracepoints;

pub use programs::{programs_json, programs_text};
pub use tracepoints::{described_text, names_text, tracepoints_json};

/// `rtscope list -k --json`.
pub const SCHEMA: &str = "rtscope.list/1";
/// `rtscope list --json`.
pub const PROGRAMS_SCHEMA: &str = "rtscope.list.programs/1";

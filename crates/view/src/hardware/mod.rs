// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this machine can trace in hardware, and what trace units recorded, as text and as JSON.

mod capture;
mod decode;
mod inventory;

pub use capture::{capture_json, capture_text};
pub use decode::{FindingsWriter, decode_json, decode_text};
pub use inventory::{inventory_json, inventory_lines, inventory_text};

/// `rtscope hardware --json`.
pub const SCHEMA: &str = "rtscope.hardware/1";
/// `rtscope hardware capture --json`, and `capture.json` in the directory of a capture.
pub const CAPTURE_SCHEMA: &str = rtscope_hardware::capture::SCHEMA;
/// `rtscope hardware decode --json`.
pub const DECODE_SCHEMA: &str = "rtscope.hardware.decode/1";

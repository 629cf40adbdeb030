// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this machine can trace in hardware, as text and as JSON.

mod inventory;

pub use inventory::{inventory_json, inventory_lines, inventory_text};

/// `rtscope hardware --json`.
pub const SCHEMA: &str = "rtscope.hardware/1";

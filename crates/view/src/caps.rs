// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel and our privileges have of what rtscope needs, for `rtscope caps`.

use crate::hardware::inventory_lines;
use rtscope_hardware::inventory::Inventory;
use rtscope_kernel::caps::Capability;

/// `rtscope caps --json`.
pub const CAPS_SCHEMA: &str = "rtscope.caps/1";

/// One object.
#[must_use]
pub fn caps_json(all: &[Capability], hardware: &Inventory) -> String {
    serde_json::json!({ "schema": CAPS_SCHEMA, "capabilities": all, "hardware": hardware }).to_string()
}

/// A line for each that is there, a paragraph for each that is not. `verbose`: also how it was found out.
#[must_use]
pub fn caps_text(all: &[Capability], hardware: &Inventory, verbose: bool) -> String {
    let mut text: String = all.iter().map(|capability| capability_text(capability, verbose)).collect();
    text.push_str(&format!(
        "\nTrace hardware (rtscope hardware says why, and what to do):\n{}",
        inventory_lines(hardware)
    ));
    text
}

fn capability_text(capability: &Capability, verbose: bool) -> String {
    let Capability { what, probed, .. } = capability;
    let state = match capability.found {
        Some(true) if verbose => return format!("found    {what}  ({probed})\n"),
        Some(true) => return format!("found    {what}\n"),
        Some(false) => "MISSING",
        None => "unknown",
    };
    let need = if capability.required { "needed" } else { "optional" };
    let (lost, remedy) = (&capability.lost, &capability.remedy);
    format!(
        "{state}  {what}  [{need}]\n           probed by:  {probed}\n           without it: {lost}\n           to get it:  {remedy}\n"
    )
}

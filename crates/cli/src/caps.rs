// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope caps`: what is needed, and whether it is there.

use crate::args::CapsOptions;
use crate::exit::Failure;
use crate::{output, schema};
use rtscope_hardware::inventory::{Inventory, Machine};
use rtscope_kernel::caps::{Capability, probe};
use rtscope_view::hardware::inventory_lines;

/// Prints the list; fails when something is missing without which nothing works.
pub fn run(options: &CapsOptions) -> Result<(), Failure> {
    let all = probe();
    let hardware = Inventory::of(&Machine::here());
    if options.json {
        let report = serde_json::json!({ "schema": schema::CAPS, "capabilities": all, "hardware": hardware });
        output::result(&report.to_string());
    } else {
        let hardware = inventory_lines(&hardware);
        let text = text(&all, options.verbose);
        output::result(&format!(
            "{text}\nTrace hardware (rtscope hardware says why, and what to do):\n{hardware}"
        ));
    }
    match all.iter().find(|capability| capability.required && capability.found != Some(true)) {
        None => Ok(()),
        Some(missing) => Err(Failure::Missing(missing.sentence())),
    }
}

fn text(all: &[Capability], verbose: bool) -> String {
    let mut text = String::new();
    for capability in all {
        let state = match capability.found {
            Some(true) => "found  ",
            Some(false) => "MISSING",
            None => "unknown",
        };
        let what = &capability.what;
        match capability.found {
            Some(true) if !verbose => text.push_str(&format!("{state}  {what}\n")),
            Some(true) => text.push_str(&format!("{state}  {what}  ({})\n", capability.probed)),
            _ => {
                let need = if capability.required { "needed" } else { "optional" };
                text.push_str(&format!("{state}  {what}  [{need}]\n"));
                text.push_str(&format!("           probed by:  {}\n", capability.probed));
                text.push_str(&format!("           without it: {}\n", capability.lost));
                text.push_str(&format!("           to get it:  {}\n", capability.remedy));
            }
        }
    }
    text
}

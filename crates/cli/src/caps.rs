// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope caps`: what is needed, and whether it is there.

use crate::args::CapsOptions;
use crate::exit::Failure;
use crate::output;
use rtscope_hardware::inventory::{Inventory, Machine};
use rtscope_kernel::caps::probe;
use rtscope_view::{caps_json, caps_text};

/// Prints the list; fails when something is missing without which nothing works.
pub fn run(options: &CapsOptions) -> Result<(), Failure> {
    let all = probe();
    let hardware = Inventory::of(&Machine::here());
    match options.json {
        true => output::result(&caps_json(&all, &hardware)),
        false => output::prose(&caps_text(&all, &hardware, options.verbose)),
    }
    match all.iter().find(|capability| capability.required && capability.found != Some(true)) {
        None => Ok(()),
        Some(missing) => Err(Failure::Missing(missing.sentence())),
    }
}

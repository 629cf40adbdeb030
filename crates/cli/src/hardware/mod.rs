// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware`: what this machine can trace in hardware, capturing that, and decoding what trace units
//! recorded.

mod capture;
mod decode;
pub mod options;

use crate::exit::Failure;
use crate::output;
use options::{HardwareCommand, HardwareOptions};
use rtscope_hardware::inventory::{Inventory, Machine};
use rtscope_view::hardware::{inventory_json, inventory_text};

/// The inventory, or a command.
pub fn run(options: &HardwareOptions) -> Result<(), Failure> {
    match &options.command {
        Some(HardwareCommand::Capture(options)) => return capture::run(options),
        Some(HardwareCommand::Decode(options)) => return decode::run(options),
        None => {}
    }
    let inventory = Inventory::of(&Machine::here());
    if options.json {
        output::result(&output::object(inventory_json(&inventory))?);
    } else {
        output::prose(&inventory_text(&inventory, options.verbose));
    }
    Ok(())
}

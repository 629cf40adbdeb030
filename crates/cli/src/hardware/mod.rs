// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware`: what this machine can trace in hardware, and decoding what trace units recorded.

mod decode;
pub mod options;

use crate::exit::Failure;
use crate::output;
use options::{HardwareCommand, HardwareOptions};
use rtscope_hardware::inventory::{Inventory, Machine};
use rtscope_view::hardware::{inventory_json, inventory_text};

/// The inventory, or a command.
pub fn run(options: &HardwareOptions) -> Result<(), Failure> {
    if let Some(HardwareCommand::Decode(options)) = &options.command {
        return decode::run(options);
    }
    let inventory = Inventory::of(&Machine::here());
    if options.json {
        output::result(&output::object(inventory_json(&inventory))?);
    } else {
        output::result(&inventory_text(&inventory, options.verbose));
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope hardware`.

use crate::exit::help;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope hardware
      Which trace units this machine has, why others are missing, and what to do.
  rtscope hardware --verbose
      The same with each property, its meaning and where it was read.

Guide: docs/hardware.md."
);

#[derive(Debug, clap::Args)]
pub struct HardwareOptions {
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Also show each property with its meaning and source, and what units that are absent would be good for
    #[arg(long, short)]
    pub verbose: bool,
}

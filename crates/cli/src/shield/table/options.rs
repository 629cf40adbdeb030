// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed after `rtscope shield table`.

use crate::exit::help;
use crate::units::{Count, DurationNs, IntervalNs};
use clap::{ValueEnum, ValueHint};
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope shield table
      Four rows, on the last CPU: without and with load, then with load in each kind of shield.
  rtscope shield table --rt 3 --samples 1M --rate 10000/s --svg table.svg
      Six minutes; percentiles up to 99.9999 %, and the distributions as a picture.
  rtscope shield table --rows stock,shield --json

User latency is the time from the programmed expiry of a timer until the thread that sleeps for it runs; kernel latency, until the
timer's interrupt is entered. The machine is busy for the time of the loaded rows, and shielded for the last ones. Nothing of it
stays, also after Ctrl-C or SIGKILL."
);

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowArg {
    /// No shield, no load
    Unloaded,
    /// No shield
    Stock,
    /// A shield
    Shield,
    /// A shield that lends its CPUs
    Artis,
}

#[derive(Debug, clap::Args)]
pub struct TableOptions {
    /// The CPUs for real-time work, of which the first is measured; without it: the last of the machine
    #[arg(long, value_name = "CPUS")]
    pub rt: Option<String>,
    /// Only these rows, in this order
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROW,…",
          default_values_t = [RowArg::Unloaded, RowArg::Stock, RowArg::Shield, RowArg::Artis])]
    pub rows: Vec<RowArg>,
    /// Wake-ups that are measured in each row (10000, 1M)
    #[arg(long, value_name = "N", default_value = "10000")]
    pub samples: Count,
    /// Wake-ups in a second
    #[arg(long, value_name = "N/s", default_value = "1000/s")]
    pub rate: IntervalNs,
    /// A row ends after this time, with fewer wake-ups; without it: after three times what they should take
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Priority of the thread that is measured (SCHED_FIFO)
    #[arg(long, value_name = "PRIORITY", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub prio: u8,
    /// Where the disk is read and written (32 MiB, in a file without a name)
    #[arg(long, value_name = "DIR", default_value = "/var/tmp", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The distributions of user latency as a picture
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

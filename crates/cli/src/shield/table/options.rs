// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope shield table`.

use crate::exit::help;
use clap::{ValueEnum, ValueHint};
use rtscope_measure::table::{RowKind, Settings};
use rtscope_session::fail_if::FailIf;
use rtscope_session::units::{Count, DurationNs, IntervalNs};
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope shield table
      Four rows, on the last CPU: without load, with load, then with load in each kind of shield.
  rtscope shield table --rt 3 --samples 1M --rate 10000/s --svg table.svg
      About six minutes; percentiles up to 99.9999 %, and the distributions as a picture.
  rtscope shield table --rows stock,shield --json

User latency is the time from the programmed expiry of a timer until the thread that waits for it
runs. Kernel latency is the time until the interrupt of the timer is entered. The machine is under
full load during the loaded rows, and shielded during the last ones. Loads and shield are removed
at the end, also after Ctrl-C or SIGKILL."
);

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowArg {
    /// No shield, no load
    Unloaded,
    /// No shield, with load
    Stock,
    /// A shield, with load
    Shield,
    /// A shield that lends its CPUs (mode artis), with load
    Artis,
}

#[derive(Debug, clap::Args)]
pub struct TableOptions {
    /// The CPUs for real-time work, of which the first is measured. Without it: the last CPU
    #[arg(long, value_name = "CPUS")]
    pub rt: Option<String>,
    /// Only these rows, in this order
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROW,…",
          default_values_t = [RowArg::Unloaded, RowArg::Stock, RowArg::Shield, RowArg::Artis])]
    pub rows: Vec<RowArg>,
    /// Wakeups to measure in each row (10000, 1M)
    #[arg(long, value_name = "N", default_value = "10000")]
    pub samples: Count,
    /// Wakeups per second
    #[arg(long, value_name = "N/s", default_value = "1000/s")]
    pub rate: IntervalNs,
    /// End a row after this time, even with fewer wakeups. Without it: after three times the expected time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Priority of the measured thread (SCHED_FIFO)
    #[arg(long, value_name = "PRIORITY", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub prio: u8,
    /// Where the disk load reads and writes (32 MiB, in a file without a name)
    #[arg(long, value_name = "DIR", default_value = "/var/tmp", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Draw the distributions of user latency into this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Exit with code 4 when this is true of user latencies: ROW.FIGURE>VALUE, for instance shield.max>100us or stock.mean>20us; may be
    /// repeated. And with 7 when it was not measured
    #[arg(long, value_name = "FIGURE>VALUE")]
    pub fail_if: Vec<FailIf>,
}

impl From<RowArg> for RowKind {
    fn from(row: RowArg) -> RowKind {
        match row {
            RowArg::Unloaded => RowKind::Unloaded,
            RowArg::Stock => RowKind::Stock,
            RowArg::Shield => RowKind::Shield,
            RowArg::Artis => RowKind::Artis,
        }
    }
}

impl TableOptions {
    /// What they ask for.
    pub fn settings(&self) -> Settings {
        Settings {
            rt: self.rt.clone(),
            rows: self.rows.iter().copied().map(RowKind::from).collect(),
            samples: self.samples.0,
            period_ns: self.rate.0,
            limit_ns: self.duration.map(|duration| duration.0),
            priority: self.prio,
            directory: self.dir.clone(),
        }
    }
}

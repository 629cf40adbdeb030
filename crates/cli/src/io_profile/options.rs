// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rtscope io-profile` takes.

use crate::exit::help;
use crate::hist::options::CountedOptions;
use clap::value_parser;
use rtscope_session::hist::{CELLS, HistKey};
use rtscope_session::units::DurationNs;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope io-profile --duration 10s
      How long reads, writes, syncs, opens and closes take, and requests to disks, in powers of two.
  rtscope io-profile --by device -- fio job.fio
      The same around a command, with a table for each device: system calls by where their files are.
  rtscope io-profile --detect --window 1s
      Say when a class has become slower or faster, and in which quantiles, until Ctrl-C.
  kill -USR1 $(pidof rtscope)
      Print now what came since the last table.

Calls are those with file descriptors: a read from a socket counts, recvmsg and io_uring do not; the
requests that io_uring makes of disks do. --detect compares each window with those before it, by a
chi-squared test that allows for bursts as far as the baseline has them: docs/how-to/io-profile.md."
);

#[derive(Debug, clap::Args)]
pub struct ProfileOptions {
    /// A table for each device, cgroup, task or process
    #[arg(long, value_name = "KEY")]
    pub by: Option<HistKey>,
    /// Print what came in each interval of this length, and everything at the end
    #[arg(long, value_name = "TIME")]
    pub interval: Option<DurationNs>,
    /// Say when a class has changed
    #[arg(long)]
    pub detect: bool,
    /// With --detect: how long a window is
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "detect")]
    pub window: DurationNs,
    /// With --detect: with how many windows before it a window is compared, at least 3
    #[arg(long, value_name = "N", default_value_t = 10, requires = "detect")]
    pub baseline: usize,
    /// With --detect: in which part of windows without a change there may be an alarm
    #[arg(long, value_name = "PART", default_value_t = 0.001, requires = "detect")]
    pub alarm: f64,
    /// Print at most this many tables; --json has all [default: 5]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Places for keys and their ranges, 32 bytes each, of each CPU: from 64 to 4194304, rounded up to a power of two. What
    /// finds none is counted under no key, and reported
    #[arg(long, value_name = "N", default_value_t = CELLS, value_parser = value_parser!(u32).range(64..=1 << 22))]
    pub cells: u32,
    #[command(flatten)]
    pub of: CountedOptions,
}

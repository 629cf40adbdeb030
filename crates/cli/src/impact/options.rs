// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed after `rtscope impact`.

use crate::exit::help;
use crate::units::{Bytes, Count, DurationNs, IntervalNs};
use clap::{ValueEnum, ValueHint};
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope impact
      What each tracer of this machine adds to a turn of the non-preempt test, and how many events it loses.
  rtscope impact --cpu 3 --fifo 80 --loops 100M --rounds 5 --plot impact.svg
      On an isolated CPU, as a real-time thread, with a picture of the histograms.
  rtscope impact --tracers rtscope,lttng,lttng-timer --rate 100000/s --json
      Three of them, at a pace that all can keep up with, for programs.
  rtscope impact --max-rate
      The highest rate of events that each records without a loss; and the same while all scheduler, interrupt and system-call
      events of the kernel are recorded, too.

Each round runs the loop of rtscope npt without an event, with one that nobody records, and under each tracer, in random order. The
tables have medians over the rounds; what a tracer adds is the median of the differences to the untraced run of the same round.
A cost with losses is too low: what is not recorded is not written either. --rate or a larger --buffer avoids them.

  untraced     the loop without an event
  disabled     with rtscope's event, which nobody records (it is perf's and bpftrace's, too); lttng-off: with LTTng's
  rtscope      rtscope record -u
  flight       rtscope record -u --flight-recorder, which overwrites and so loses nothing
  lttng        LTTng-UST as it is by default: the writer wakes the consumer, by a system call
  lttng-timer  LTTng-UST with --read-timer=200: the consumer looks by itself
  perf         the loop's USDT probe, by a uprobe and perf record
  bpftrace     the same probe, by bpftrace, which prints each event into a file

What is not installed is said, with the way to get it. perf and bpftrace take root. Files go to a folder below $TMPDIR (or
/tmp) that is removed at the end."
);

/// Who traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum TracerArg {
    /// rtscope record -u
    Rtscope,
    /// rtscope record -u --flight-recorder
    Flight,
    /// LTTng-UST, its defaults
    Lttng,
    /// LTTng-UST with --read-timer
    LttngTimer,
    /// perf record of the USDT probe
    Perf,
    /// bpftrace of the USDT probe
    Bpftrace,
}

#[derive(Debug, clap::Args)]
pub struct ImpactOptions {
    /// The CPU of the loop; without it: the last one that this process may use. Tracers run on the others
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Run the loop as a real-time thread of this priority (SCHED_FIFO)
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fifo: Option<u8>,
    /// Turns of each run (1000000, 10M, 1e8); 1M without --duration
    #[arg(long, value_name = "COUNT", conflicts_with = "duration")]
    pub loops: Option<Count>,
    /// Time of each run; with --max-rate: of each try (1s)
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// How often all is run
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// These tracers; several with commas. Without it: all that are there
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    pub tracers: Vec<TracerArg>,
    /// At most so many events (100000/s); without it one in each turn
    #[arg(long, value_name = "RATE", conflicts_with = "max_rate")]
    pub rate: Option<IntervalNs>,
    /// Each tracer's buffer, for a CPU or a thread; LTTng's has 32 sub-buffers. 32M, so that little is lost; with --max-rate 4M,
    /// so that a try fills it many times
    #[arg(long, value_name = "SIZE")]
    pub buffer: Option<Bytes>,
    /// Instead: the highest rate of events that each tracer records without a loss
    #[arg(long, conflicts_with_all = ["loops", "rounds", "plot"])]
    pub max_rate: bool,
    /// With --max-rate: the rate that was found has to pass for so long a time; else a lower one (as long as a try)
    #[arg(long, value_name = "TIME", requires = "max_rate")]
    pub hold: Option<DurationNs>,
    /// With --max-rate: events of the program alone, and not also with the kernel's
    #[arg(long, requires = "max_rate")]
    pub without_kernel: bool,
    /// Draw the histograms beside each other into this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

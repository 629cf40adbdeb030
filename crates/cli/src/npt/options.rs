// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed after `rtscope npt`.

use crate::exit::help;
use crate::units::{Bytes, Count, DurationNs, IntervalNs, WindowsNs};
use clap::ValueHint;
use std::ffi::OsString;
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope npt --cpu 1 --fifo 80 --loops 100M
      What keeps a real-time program on CPU 1 from running, in a hundred million turns.
  rtscope npt --cpu 1 --fifo 80 --duration 1min --json --plot npt.svg
      A minute, for programs, and a picture of the histogram.
  rtscope npt --cpu 1 --fifo 80 --duration 10s --blame --threshold 5us
      Who had the CPU in each gap of more than 5 us, and who took most in all.
  rtscope record -u 'npt:*' -o trace/ --user-buffer 64M -- rtscope npt --cpu 1 --windows 100ms
      What tracing costs: windows with an event in each turn and windows without, in turns, counted apart.
  rtscope npt --rate 100000/s --burst 10ms,90ms
      Events for 10 ms, at most 100000 a second; then calm for 90 ms.

The loop reads the CPU's time stamp counter and nothing else; the time between two readings is a turn's gap. Whatever is far above
the smallest gap is time in which something else had the CPU: interrupts, other threads, the kernel, a hypervisor, the firmware.
Before the loop there is an event npt:start, in each turn npt:loop, after it npt:stop; they cost nothing to speak of unless
somebody records them. Their ticks are the counter's; npt:start says how many there are in a second."
);

#[derive(Debug, clap::Args)]
pub struct NptOptions {
    /// The CPU to measure; without it: the last one that this process may use
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Measure as a real-time thread of this priority (SCHED_FIFO)
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fifo: Option<u8>,
    /// Turns to measure (1000000, 10M, 1e8); with --duration: whatever ends first
    #[arg(long, value_name = "COUNT")]
    pub loops: Option<Count>,
    /// Time to measure; 10s without --loops
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Turns at the begin that are not counted
    #[arg(long, value_name = "TURNS", default_value = "5")]
    pub warm_up: Count,
    /// Keep the CPU busy for so long before, twice: until its frequency settles, and while the counter's rate is measured
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    pub spin: DurationNs,
    /// At most so many events (100000/s); without it one in each turn
    #[arg(long, value_name = "RATE")]
    pub rate: Option<IntervalNs>,
    /// Events for a time, then none for a time, in turns; counted apart
    #[arg(long, value_name = "ON,OFF", conflicts_with = "windows")]
    pub burst: Option<WindowsNs>,
    /// The same with windows of one length
    #[arg(long, value_name = "TIME")]
    pub windows: Option<DurationNs>,
    /// Also list the longest of the gaps that are longer than this
    #[arg(long, value_name = "TIME", default_value = "10us")]
    pub threshold: DurationNs,
    /// Say of each of these gaps who took it: interrupts, softirqs, threads by name, or nothing that the kernel tells of. Needs what
    /// rtscope watch needs (rtscope caps); each interrupt and switch takes a little longer meanwhile
    #[arg(long)]
    pub blame: bool,
    /// With --blame: memory of each CPU for what ran, the newest
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "blame")]
    pub blame_buffer: Bytes,
    /// For rtscope impact: a library with the loop and another tracer's event, or "without" for none
    #[arg(long = "event-of", value_name = "WHICH", hide = true)]
    pub event: Option<OsString>,
    /// Draw the histogram into this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

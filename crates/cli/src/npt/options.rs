// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope npt`.

use crate::exit::help;
use clap::ValueHint;
use rtscope_measure::npt::{Event, Settings, WindowLengths};
use rtscope_session::fail_if::FailIf;
use rtscope_session::units::{Bytes, Count, DurationNs, IntervalNs, WindowsNs};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Time without --duration or --loops.
const DURATION_NS: u64 = 10_000_000_000;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope npt --cpu 1 --fifo 80 --loops 100M
      What keeps a real-time program on CPU 1 from running, in a hundred million iterations.
  rtscope npt --cpu 1 --fifo 80 --duration 1min --json --plot npt.svg
      A minute, as JSON, with a picture of the histogram.
  rtscope npt --cpu 1 --fifo 80 --duration 1min --fail-if 'max>50us'
      For scripts: exit code 4 if any gap was longer.
  rtscope npt --cpu 1 --fifo 80 --duration 10s --blame --threshold 5us
      What had the CPU in each gap of more than 5 us, and what took most in total.
  rtscope record -u 'npt:*' -o trace/ --user-buffer 64M -- rtscope npt --cpu 1 --windows 100ms
      What tracing costs: windows with an event in each iteration alternate with windows without;
      they are counted separately.
  rtscope npt --rate 100000/s --burst 10ms,90ms
      Events for 10 ms, at most 100000 a second, then none for 90 ms.

The loop reads the CPU's time stamp counter and does nothing else. The time between two readings is
the gap of an iteration. A gap far above the smallest one is time in which something else had the
CPU: interrupts, other threads, the kernel, a hypervisor or the firmware.

The program has the events npt:start (before the loop), npt:loop (in each iteration) and npt:stop
(after it). They cost next to nothing unless they are recorded. Their ticks are ticks of the
counter; npt:start has their frequency."
);

#[derive(Debug, clap::Args)]
pub struct NptOptions {
    /// The CPU to measure. Without it: the last one that this process may use
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Measure as a real-time thread of this priority (SCHED_FIFO)
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fifo: Option<u8>,
    /// Iterations to measure (1000000, 10M, 1e8); with --duration: whichever ends first
    #[arg(long, value_name = "COUNT")]
    pub loops: Option<Count>,
    /// Time to measure [default without --loops: 10s]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Iterations at the beginning that are not counted
    #[arg(long, value_name = "COUNT", default_value = "5")]
    pub warm_up: Count,
    /// Keep the CPU busy for this time before the loop, twice: until its frequency settles, and while the rate of the
    /// counter is measured
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    pub spin: DurationNs,
    /// At most this many events (100000/s). Without it: one in each iteration
    #[arg(long, value_name = "RATE")]
    pub rate: Option<IntervalNs>,
    /// Alternate between time with events and time without; both are counted separately
    #[arg(long, value_name = "ON,OFF", conflicts_with = "windows")]
    pub burst: Option<WindowsNs>,
    /// The same as --burst, with windows of equal length
    #[arg(long, value_name = "TIME")]
    pub windows: Option<DurationNs>,
    /// List the longest of the gaps that are longer than this
    #[arg(long, value_name = "TIME", default_value = "10us")]
    pub threshold: DurationNs,
    /// Show what took each of these gaps: interrupts, softirqs, threads by name, or nothing that the kernel reports. Needs
    /// what rtscope watch needs (rtscope caps), and makes each interrupt and switch a little longer
    #[arg(long)]
    pub blame: bool,
    /// With --blame: memory for the newest events of the measured CPU
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "blame")]
    pub blame_buffer: Bytes,
    /// For rtscope impact: a library with the loop and the event of another tracer, or "without" for none
    #[arg(long = "event-of", value_name = "WHICH", hide = true)]
    pub event: Option<OsString>,
    /// Draw the histogram into this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Exit with code 4 when this is true of the gaps: max>50us, p99.9>10us, gaps>0 (those over --threshold), lost>0 (events); may
    /// be repeated. And with 7 when it was not measured
    #[arg(long, value_name = "FIGURE>VALUE")]
    pub fail_if: Vec<FailIf>,
}

impl NptOptions {
    /// From checked options.
    pub fn settings(&self, event: Event, cpu: usize) -> Settings {
        let burst = self.burst.map(|burst| (burst.on, burst.off));
        let windows = self.windows.map(|window| (window.0, window.0));
        let unlimited = if self.loops.is_some() { 0 } else { DURATION_NS };
        Settings {
            event,
            cpu,
            fifo: self.fifo,
            iterations: self.loops.map_or(0, |loops| loops.0),
            duration_ns: self.duration.map_or(unlimited, |duration| duration.0),
            warm_up: self.warm_up.0,
            spin: Duration::from_nanos(self.spin.0),
            interval_ns: self.rate.map_or(0, |rate| rate.0),
            windows: burst
                .or(windows)
                .map(|(traced_ns, untraced_ns)| WindowLengths { traced_ns, untraced_ns }),
            threshold_ns: self.threshold.0,
            blame_bytes: self.blame.then_some(self.blame_buffer.0),
        }
    }
}

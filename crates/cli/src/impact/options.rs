// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope impact`.

use crate::exit::help;
use clap::{ValueEnum, ValueHint};
use rtscope_measure::impact::{RateSettings, RoundSettings, Settings, TracerKind};
use rtscope_session::fail_if::FailIf;
use rtscope_session::units::{Bytes, Count, DurationNs, IntervalNs};
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope impact
      What each installed tracer adds to an iteration of the non-preempt test, and how many events
      it loses.
  rtscope impact --cpu 3 --fifo 80 --loops 100M --rounds 5 --plot impact.svg
      On an isolated CPU, as a real-time thread, with a picture of the histograms.
  rtscope impact --tracers rtscope,lttng,lttng-timer --rate 100000/s --json
      Three of them, at a rate that none loses events at, as JSON.
  rtscope impact --max-rate
      The highest rate of events that each records without a loss; then the same while all
      scheduler, interrupt and system-call events of the kernel are recorded too.

Each round runs the loop of rtscope npt without an event, with an event that is not recorded, and
under each tracer, in random order. The tables show medians over the rounds. What a tracer adds is
the median of the differences to the untraced run of the same round. If events were lost, the cost
is too low, since a lost event is not written: use --rate or a larger --buffer.

  untraced     the loop without an event
  disabled     with the event of rtscope (also used by perf and bpftrace), not recorded
  lttng-off    with the event of LTTng, not recorded
  rtscope      rtscope record -u
  flight       rtscope record -u --flight-recorder, which overwrites, and so loses nothing
  lttng        LTTng-UST with its defaults: the writer wakes the consumer by a system call
  lttng-timer  LTTng-UST with --read-timer=200: the consumer polls
  perf         the USDT probe of the loop, by a uprobe and perf record
  bpftrace     the same probe, by bpftrace, which prints each event into a file

A tracer that is not installed is reported, with the way to get it. perf and bpftrace need root.
Files go to a temporary directory below $TMPDIR (or /tmp), which is removed at the end."
);

/// A tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// The CPU of the loop. Without it: the last one that this process may use. Tracers run on the others
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Run the loop as a real-time thread of this priority (SCHED_FIFO)
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fifo: Option<u8>,
    /// Iterations of each run (1000000, 10M, 1e8) [default without --duration: 1M]
    #[arg(long, value_name = "COUNT", conflicts_with = "duration")]
    pub loops: Option<Count>,
    /// Time of each run; with --max-rate: of each try [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Only these tracers, separated by commas. Without it: all that are installed
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    pub tracers: Vec<TracerArg>,
    /// At most this many events (100000/s). Without it: one in each iteration
    #[arg(long, value_name = "RATE", conflicts_with = "max_rate")]
    pub rate: Option<IntervalNs>,
    /// Buffer of each tracer, for a CPU or a thread (for LTTng: 32 sub-buffers in total). By default 32M, so that little is
    /// lost; with --max-rate 4M, so that a try fills it many times
    #[arg(long, value_name = "SIZE")]
    pub buffer: Option<Bytes>,
    /// Find the highest rate of events that each tracer records without a loss
    #[arg(long, conflicts_with_all = ["loops", "rounds", "plot"])]
    pub max_rate: bool,
    /// With --max-rate: how long the rate has to pass to be confirmed [default: the time of a try]
    #[arg(long, value_name = "TIME", requires = "max_rate")]
    pub hold: Option<DurationNs>,
    /// With --max-rate: skip the second search, with events of the kernel
    #[arg(long, requires = "max_rate")]
    pub without_kernel: bool,
    /// Draw the histograms into this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Exit with code 4 when this is true: TRACER.FIGURE>VALUE, for instance rtscope.mean>200ns, rtscope.p99>1us or rtscope.lost>0; may
    /// be repeated. And with 7 when it was not measured
    #[arg(long, value_name = "FIGURE>VALUE", conflicts_with = "max_rate")]
    pub fail_if: Vec<FailIf>,
}

impl From<TracerArg> for TracerKind {
    fn from(tracer: TracerArg) -> TracerKind {
        match tracer {
            TracerArg::Rtscope => TracerKind::Rtscope,
            TracerArg::Flight => TracerKind::Flight,
            TracerArg::Lttng => TracerKind::Lttng,
            TracerArg::LttngTimer => TracerKind::LttngTimer,
            TracerArg::Perf => TracerKind::Perf,
            TracerArg::Bpftrace => TracerKind::Bpftrace,
        }
    }
}

impl ImpactOptions {
    /// For both measurements; `rtscope`: this program.
    pub fn settings(&self, rtscope: PathBuf) -> Settings {
        Settings {
            rtscope,
            cpu: self.cpu,
            fifo: self.fifo,
            buffer_bytes: self.buffer.map(|buffer| buffer.0),
            tracers: self.tracers.iter().copied().map(TracerKind::from).collect(),
        }
    }

    /// Without --max-rate.
    pub fn round_settings(&self) -> RoundSettings {
        RoundSettings {
            rounds: self.rounds,
            loops: self.loops.map(|loops| loops.0),
            duration_ns: self.duration.map(|duration| duration.0),
            interval_ns: self.rate.map(|rate| rate.0),
        }
    }

    /// With --max-rate.
    pub fn rate_settings(&self) -> RateSettings {
        RateSettings {
            try_ns: self.duration.map(|duration| duration.0),
            hold_ns: self.hold.map(|hold| hold.0),
            with_kernel: !self.without_kernel,
        }
    }
}

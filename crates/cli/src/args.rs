// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed. Help, man pages and shell completions are made from these definitions.

use crate::exit::help;
use crate::impact::options::ImpactOptions;
use crate::list::options::ListOptions;
use crate::npt::options::NptOptions;
use crate::record::options::RecordOptions;
use crate::shield::options::ShieldOptions;
use crate::snapshot::SnapshotOptions;
use crate::trace_args::{PrintOptions, StatOptions};
use crate::units::{Bytes, DurationNs, IntervalNs};
use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use rtscope_event::End;
use std::ffi::OsString;
use std::path::PathBuf;

/// Catches late responses on the live kernel, explains them, keeps the evidence.
#[derive(Debug, Parser)]
#[command(name = "rtscope", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = help!(
    "Examples:
  rtscope watch response --task 'control*' --threshold 500us --snapshot-dir late/
      Report each response of these tasks that takes longer than 500 us, and save what happened around it.
  rtscope explain late/20261120T234107Z-1
      Explain a saved one again.
  rtscope stat late/20261120T234107Z-1
      What was recorded, and what is missing.
  rtscope print late/20261120T234107Z-1 --event 'sched_*' --task control
      The recorded events."
);

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the live kernel for what is late
    #[command(subcommand, after_help = WATCH_EXAMPLES)]
    Watch(WatchCommand),
    /// List what can be recorded: instrumented programs and their events; the kernel's tracepoints and system calls
    #[command(after_help = crate::list::options::EXAMPLES)]
    List(ListOptions),
    /// Record tracepoints of the running kernel, and events of instrumented programs, into CTF traces
    #[command(after_help = crate::record::options::EXAMPLES)]
    Record(Box<RecordOptions>),
    /// Save what a flight recorder of programs (record -u --flight-recorder) holds now
    #[command(after_help = crate::snapshot::EXAMPLES)]
    Snapshot(SnapshotOptions),
    /// Explain a saved late response again, from its files alone
    Explain(ExplainOptions),
    /// Print the events of CTF traces: rtscope's, LTTng's, perf's
    Print(Box<PrintOptions>),
    /// Count the events of CTF traces, and say what is missing from them
    Stat(Box<StatOptions>),
    /// Measure what interrupts a program on a CPU: the non-preempt test
    #[command(after_help = crate::npt::options::EXAMPLES)]
    Npt(Box<NptOptions>),
    /// Measure what tracing costs: the non-preempt test untraced, and under each tracer that is installed
    #[command(after_help = crate::impact::options::EXAMPLES)]
    Impact(Box<ImpactOptions>),
    /// Keep CPUs free for real-time work, and put everything back afterwards
    #[command(after_help = crate::shield::options::EXAMPLES)]
    Shield(Box<ShieldOptions>),
    /// List what rtscope needs of the kernel and of its privileges
    Caps(CapsOptions),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    #[command(hide = true, after_help = help!("Example:\n  rtscope man share/man/man1"))]
    Man {
        /// The folder
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum WatchCommand {
    /// Follow each response from its interrupt or timer to the target task, and report those that take too long
    #[command(after_help = RESPONSE_EXAMPLES)]
    Response(Box<ResponseOptions>),
}

const COMPLETIONS_EXAMPLES: &str = help!(
    "Example:
  rtscope completions bash > ~/.local/share/bash-completion/completions/rtscope"
);

const WATCH_EXAMPLES: &str = help!(
    "Example:
  rtscope watch response --task 'control*' --threshold 500us"
);

const RESPONSE_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch response --task 'control*' --threshold 500us
      Every response of tasks named control..., from its timer or interrupt until it waits again.
  rtscope watch response --task jackd --threshold 1ms --end running --snapshot-dir late/
      From the interrupt until jackd runs; what happened is saved for each late one.
  rtscope watch response --threshold 2ms --irq eth0 --duration 1min --json
      What a network card's interrupt wakes, for a minute, one JSON object a line.
  rtscope watch response --task jackd --threshold 1ms --snapshot-dir late/ -k 'block:*,syscalls'
      With block requests and system calls in the saved traces.
  rtscope watch response --threshold 300us -- ./control --period 1ms
      Start a program and watch its tasks until it ends.

A response begins at the time a timer was asked for, or at the first handler of a device interrupt, and ends when the
target runs (--end running) or waits again (--end blocked). The rules are in docs/response-chains.md."
);

/// When a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EndArg {
    /// When the target is switched in
    Running,
    /// When the target goes back to waiting
    Blocked,
}

impl From<EndArg> for End {
    fn from(end: EndArg) -> End {
        match end {
            EndArg::Running => End::Running,
            EndArg::Blocked => End::Blocked,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct ResponseOptions {
    /// Tasks with this name (* and ? stand for any characters); without --task, --pid or COMMAND: the first user-space
    /// task of each chain
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Tasks of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// A response that takes longer is late (500us, 2ms, 1s)
    #[arg(long, value_name = "TIME")]
    pub threshold: DurationNs,
    /// When a response ends
    #[arg(long, value_enum, default_value_t = EndArg::Blocked)]
    pub end: EndArg,
    /// Only responses to this device interrupt (number, or name as in /proc/interrupts); may be repeated
    #[arg(long, value_name = "N|NAME")]
    pub irq: Vec<String>,
    /// Only responses to timers (with --irq: to those too)
    #[arg(long)]
    pub timer: bool,
    /// Save what happened around a late response here: a CTF trace, trigger.json and explain.txt for each
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub snapshot_dir: Option<PathBuf>,
    /// Also these tracepoints in the snapshots (as for rtscope record; with --snapshot-dir)
    #[arg(
        short = 'k',
        long = "kernel",
        value_name = "PATTERNS",
        value_delimiter = ',',
        requires = "snapshot_dir"
    )]
    pub kernel: Vec<String>,
    /// Snapshots also have these events of instrumented programs (PROVIDER:EVENT with * and ?, PROVIDER, !PATTERN); several with
    /// commas
    #[arg(short = 'u', long = "user", value_name = "PATTERNS", value_delimiter = ',')]
    pub user: Vec<String>,
    /// Size of each bank of the flight recorder; a CPU has two
    #[arg(long, value_name = "SIZE", default_value = "8M")]
    pub buffer: Bytes,
    /// History wanted before a detection
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    pub pre: DurationNs,
    /// Recording goes on for so long after a detection
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    pub post: DurationNs,
    /// At most so many snapshots (1/s, 10/min); late responses are counted and reported all the same
    #[arg(long, value_name = "RATE", default_value = "1/s")]
    pub rate: IntervalNs,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// One versioned JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
    /// Exit with code 4 when there was a late response
    #[arg(long)]
    pub fail_if_late: bool,
    /// Start this program, watch its process (unless --task or --pid say otherwise), and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help!("Example:\n  rtscope explain late/20261120T234107Z-1"))]
pub struct ExplainOptions {
    /// The folder of a saved late response
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// One JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help!("Example:\n  rtscope caps --verbose"))]
pub struct CapsOptions {
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
    /// Also what was found
    #[arg(long, short)]
    pub verbose: bool,
}

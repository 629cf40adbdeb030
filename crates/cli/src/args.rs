// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed. Help, man pages and shell completions are made from these definitions.

use crate::convert::ConvertOptions;
use crate::exit::help;
use crate::impact::options::ImpactOptions;
use crate::list::options::ListOptions;
use crate::npt::options::NptOptions;
use crate::record::options::RecordOptions;
use crate::shield::options::ShieldOptions;
use crate::snapshot::SnapshotOptions;
use crate::trace_args::{PrintOptions, StatOptions};
use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use rtscope_event::End;
use rtscope_session::units::{Bytes, DurationNs, IntervalNs};
use std::ffi::OsString;
use std::path::PathBuf;

/// Catches late responses on a running kernel, explains them, and saves the evidence.
#[derive(Debug, Parser)]
#[command(name = "rtscope", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = help!(
    "Examples:
  rtscope watch response --task 'control*' --threshold 500us --snapshot-dir late/
      Report each response of these tasks that takes longer than 500 us, and save the events
      around it.
  rtscope explain late/20261120T234107Z-1
      Explain a saved late response again.
  rtscope stat late/20261120T234107Z-1
      Show what was recorded, and what is missing.
  rtscope print late/20261120T234107Z-1 --event 'sched_*' --task control
      Print the recorded events.

rtscope help COMMAND, or rtscope COMMAND --help, describes a command."
);

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the running kernel for late responses
    #[command(subcommand, after_help = WATCH_EXAMPLES)]
    Watch(WatchCommand),
    /// List instrumented programs, or the tracepoints of the kernel, with their fields
    #[command(after_help = crate::list::options::EXAMPLES)]
    List(ListOptions),
    /// Record tracepoints and events of instrumented programs into CTF traces
    #[command(after_help = crate::record::options::EXAMPLES)]
    Record(Box<RecordOptions>),
    /// Save the present content of a flight recorder of programs
    #[command(after_help = crate::snapshot::EXAMPLES)]
    Snapshot(SnapshotOptions),
    /// Explain a saved late response again, from its files alone
    Explain(ExplainOptions),
    /// Print the events of CTF traces (of rtscope, LTTng or perf)
    Print(Box<PrintOptions>),
    /// Count the events of CTF traces, and show what is missing
    Stat(Box<StatOptions>),
    /// Convert CTF traces (of rtscope or LTTng) for other tools
    Convert(Box<ConvertOptions>),
    /// Measure what interrupts a program on a CPU (non-preempt test)
    #[command(after_help = crate::npt::options::EXAMPLES)]
    Npt(Box<NptOptions>),
    /// Measure what each installed tracer costs
    #[command(after_help = crate::impact::options::EXAMPLES)]
    Impact(Box<ImpactOptions>),
    /// Reserve CPUs for real-time work, and undo that completely
    #[command(after_help = crate::shield::options::EXAMPLES)]
    Shield(Box<ShieldOptions>),
    /// List the kernel features and privileges that rtscope needs
    Caps(CapsOptions),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory
    #[command(after_help = help!("Example:\n  rtscope man share/man/man1"))]
    Man {
        /// The directory; it is made if it does not exist
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum WatchCommand {
    /// Follow each response from its interrupt or timer to the target task, and report the late ones
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
      Every response of tasks named control..., from the timer or interrupt until the task waits
      again.
  rtscope watch response --task jackd --threshold 1ms --end running --snapshot-dir late/
      From the interrupt until jackd runs; a snapshot of the events is saved for each late one.
  rtscope watch response --threshold 2ms --irq eth0 --duration 1min --json
      Responses to a network card's interrupt, for a minute, one JSON object per line.
  rtscope watch response --task jackd --threshold 1ms --snapshot-dir late/ -k 'block:*,syscalls'
      Saved traces also contain block requests and system calls.
  rtscope watch response --threshold 300us -- ./control --period 1ms
      Start a program and watch its tasks until it ends.

A response begins at the time for which a timer was set, or at the first handler of a device
interrupt. It ends when the target runs (--end running) or waits again (--end blocked). The rules
are in docs/response-chains.md, the JSON objects in docs/json.md."
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
    /// Watch tasks with this name (with * and ?). Without --task, --pid and COMMAND: the first user-space task of each
    /// chain
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Watch the tasks of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// A response that takes longer than this is late (500us, 2ms, 1s)
    #[arg(long, value_name = "TIME")]
    pub threshold: DurationNs,
    /// When a response ends
    #[arg(long, value_enum, default_value_t = EndArg::Blocked)]
    pub end: EndArg,
    /// Watch only responses to this device interrupt (a number, or a name from /proc/interrupts); may be repeated
    #[arg(long, value_name = "N|NAME")]
    pub irq: Vec<String>,
    /// Watch only responses to timers (with --irq: also those)
    #[arg(long)]
    pub timer: bool,
    /// Save a snapshot for each late response in this directory: a CTF trace, trigger.json and explain.txt
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub snapshot_dir: Option<PathBuf>,
    /// With --snapshot-dir: snapshots also contain these tracepoints (as for rtscope record)
    #[arg(
        short = 'k',
        long = "kernel",
        value_name = "PATTERNS",
        value_delimiter = ',',
        requires = "snapshot_dir"
    )]
    pub kernel: Vec<String>,
    /// Snapshots also contain these events of instrumented programs (PROVIDER:EVENT with * and ?, PROVIDER, !PATTERN),
    /// separated by commas
    #[arg(short = 'u', long = "user", value_name = "PATTERNS", value_delimiter = ',')]
    pub user: Vec<String>,
    /// Size of a bank of the flight recorder; each CPU has two
    #[arg(long, value_name = "SIZE", default_value = "8M")]
    pub buffer: Bytes,
    /// How much history before a detection a snapshot should have
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    pub pre: DurationNs,
    /// How long recording goes on after a detection
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    pub post: DurationNs,
    /// At most this many snapshots (1/s, 10/min). Every late response is counted and reported regardless
    #[arg(long, value_name = "RATE", default_value = "1/s")]
    pub rate: IntervalNs,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Print one JSON object per line (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Exit with code 4 when there was a late response
    #[arg(long)]
    pub fail_if_late: bool,
    /// Start this program, watch its process (unless --task or --pid are given), and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help!("Examples:\n  rtscope explain late/20261120T234107Z-1\n  rtscope explain late/20261120T234107Z-1 --json"))]
pub struct ExplainOptions {
    /// The directory of a saved late response
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Print one JSON object per line (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help!("Example:\n  rtscope caps --verbose"))]
pub struct CapsOptions {
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Also show how each feature was probed
    #[arg(long, short)]
    pub verbose: bool,
}

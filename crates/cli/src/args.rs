// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed. Help, man pages and shell completions are made from these definitions.

use crate::convert::ConvertOptions;
use crate::exit::{Failure, help};
use crate::fds::options::FdsOptions;
use crate::hardware::options::HardwareOptions;
use crate::hist::options::HistOptions;
use crate::impact::options::ImpactOptions;
use crate::io_profile::options::ProfileOptions;
use crate::list::options::ListOptions;
use crate::npt::options::NptOptions;
use crate::record::options::RecordOptions;
use crate::shield::options::ShieldOptions;
use crate::snapshot::SnapshotOptions;
use crate::state::StateOptions;
use crate::top::options::TopOptions;
use crate::trace_args::{PrintOptions, StatOptions};
use crate::watch::options::{WATCH_EXAMPLES, WatchArgs};
use clap::{Parser, Subcommand, ValueHint};
use rtscope_session::command::CommandOutput;
use std::path::PathBuf;

/// Catches late responses on a running kernel, explains them, and saves the evidence.
#[derive(Debug, Parser)]
#[command(name = "rtscope", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    /// In JSON: integers beyond 2^53 as strings, for readers that take all numbers for doubles
    #[arg(long, global = true)]
    pub json_strings: bool,
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
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArgs),
    /// Count all that a tracker follows: histograms by task, device or call, and over time
    #[command(after_help = crate::hist::options::EXAMPLES)]
    Hist(Box<HistOptions>),
    /// Show on a whole screen what a tracker counts while it grows, and explain what is late
    #[command(after_help = crate::top::options::EXAMPLES)]
    Top(Box<TopOptions>),
    /// Count how long input and output take, by class, and say when that changes
    #[command(after_help = crate::io_profile::options::EXAMPLES)]
    IoProfile(Box<ProfileOptions>),
    /// Follow file descriptors: which are open, who opened them, when and how
    #[command(after_help = crate::fds::options::EXAMPLES)]
    Fds(Box<FdsOptions>),
    /// List instrumented programs, or the tracepoints of the kernel, with their fields
    #[command(after_help = crate::list::options::EXAMPLES)]
    List(ListOptions),
    /// Record tracepoints and events of instrumented programs into CTF traces
    #[command(after_help = crate::record::options::EXAMPLES)]
    Record(Box<RecordOptions>),
    /// Save the present content of a flight recorder of programs
    #[command(after_help = crate::snapshot::EXAMPLES)]
    Snapshot(SnapshotOptions),
    /// Show what is under way now in the watches that you run
    #[command(after_help = crate::state::EXAMPLES)]
    State(StateOptions),
    /// Explain a saved late response again, from its files alone
    Explain(ExplainOptions),
    /// Print the events of CTF traces (of rtscope, LTTng or perf)
    Print(Box<PrintOptions>),
    /// Count the events of CTF traces, and show what is missing
    Stat(Box<StatOptions>),
    /// Convert CTF traces (of rtscope or LTTng) for other tools
    Convert(Box<ConvertOptions>),
    /// Show which trace units this machine has, and decode what such units recorded
    #[command(after_help = crate::hardware::options::EXAMPLES)]
    Hardware(Box<HardwareOptions>),
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
    /// Remove what a process left in the kernel that was ended at once
    #[command(hide = true)]
    Sweep,
    /// Write the man pages into a directory
    #[command(after_help = help!("Example:\n  rtscope man share/man/man1"))]
    Man {
        /// The directory; it is made if it does not exist
        dir: PathBuf,
    },
}

const COMPLETIONS_EXAMPLES: &str = help!(
    "Example:
  rtscope completions bash > ~/.local/share/bash-completion/completions/rtscope"
);

/// Where JSON goes beside what COMMAND prints.
#[derive(Debug, Default, clap::Args)]
pub struct JsonOutput {
    /// Print one JSON object per line (docs/json.md), on standard output or into FILE. Without FILE the standard output of COMMAND
    /// goes to standard error
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl JsonOutput {
    /// Results go where they were asked for from now on. Whether they are JSON.
    pub fn begin(&self) -> Result<bool, Failure> {
        if let Some(file) = self.json.as_deref().filter(|file| file.as_os_str() != "-") {
            crate::output::to_file(file)?;
        }
        Ok(self.json.is_some())
    }

    /// Where that of COMMAND goes.
    pub fn of_command(&self) -> CommandOutput {
        match self.json.as_deref().is_some_and(|file| file.as_os_str() == "-") {
            true => CommandOutput::StandardError,
            false => CommandOutput::StandardOutput,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = help!("Examples:\n  rtscope explain late/20261120T234107Z-1\n  rtscope explain late/20261120T234107Z-1 --json\n  rtscope explain late/ --flame off-cpu.svg"))]
pub struct ExplainOptions {
    /// The directory of a saved late response
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Write a flame graph (SVG) instead: where late tasks were in their programs and in the kernel, by their time. DIR can also be a directory of saved late
    /// responses, or what watch --json=FILE has written
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub flame: Option<PathBuf>,
    /// Print one JSON object per line (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Also show steps that took no time, and every cause, wait and preemption instead of the longest
    #[arg(long, short)]
    pub verbose: bool,
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed after `rtscope shield`.

use crate::exit::help;
use crate::units::{Bytes, DurationNs};
use clap::{Subcommand, ValueEnum, ValueHint};
use rtscope_shield::knobs::Level;
use rtscope_shield::tasks::Thread;
use std::ffi::OsString;
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope shield plan --rt 2-3
      What would change to keep CPUs 2 and 3 free for real-time work, and what cannot be changed here.
  rtscope shield create --rt 2-3
      Do it. The old values are in /run/rtscope/shield.json before the first change.
  rtscope shield run --prio 80 --cpu 2 -- ./control
      A program on CPU 2, with SCHED_FIFO and priority 80.
  rtscope shield status
      Whether everything is as the shield wants it.
  rtscope shield verify --duration 1min
      What really ran on these CPUs.
  rtscope shield table
      What a shield is good for on this machine: latencies under load, without it and in it.
  rtscope shield undo
      Everything as it was, also after a crash, in any shell.

Nothing outlives a reboot. What only the kernel's command line can set is printed, never edited."
);

const PLAN_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield plan --rt 2-3
  rtscope shield plan --rt 2-3 --level full --json"
);
const CREATE_EXAMPLES: &str = help!("Example:\n  rtscope shield create --rt 2-3");
const STATUS_EXAMPLES: &str = help!("Example:\n  rtscope shield status --json");
const VERIFY_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield verify --duration 1min
      What ran on the shielded CPUs for a minute: tasks, interrupts, softirqs, kernel threads, ticks, and who sent interrupts there.
  rtscope shield verify --rt 1 --json
      The same of a CPU that nobody shields.

Each promise is PASS, FAIL, or UNKNOWN where nothing broke it but an event was lost. What no setting of this machine keeps away is
counted, and no promise."
);
const RUN_EXAMPLES: &str =
    help!("Example:\n  rtscope shield run --prio 80 --cpu 2 -- ./control --period 1ms");
const MOVE_EXAMPLES: &str = help!(
    "Example:
  rtscope shield move $(pidof jackd)

All threads of a process go where its group goes; their policies and priorities stay."
);
const UNDO_EXAMPLES: &str = help!(
    "Example:
  rtscope shield undo

A setting that somebody else has changed since is told, and left; after that --force writes the old value all the same."
);
const UNIT_EXAMPLES: &str = help!(
    "Example:
  rtscope shield unit --rt 2-3 > /etc/systemd/system/rtscope-shield.service
  systemctl enable --now rtscope-shield"
);

#[derive(Debug, clap::Args)]
pub struct ShieldOptions {
    /// The folder that holds proc, sys and run
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub root: PathBuf,
    #[command(subcommand)]
    pub command: ShieldCommand,
}

#[derive(Debug, Subcommand)]
pub enum ShieldCommand {
    /// Say what a shield would change on this machine, and what cannot be changed; changes nothing
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanOptions),
    /// Make a shield: keep everything away from some CPUs
    #[command(after_help = CREATE_EXAMPLES)]
    Create(PlanOptions),
    /// Say whether all settings still are as the shield wants them
    #[command(after_help = STATUS_EXAMPLES)]
    Status(OutputOptions),
    /// Watch what really runs on the shielded CPUs, whatever the settings say
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyOptions),
    /// Measure latency and throughput: without a shield, in it, with load and without
    #[command(after_help = crate::shield::table::options::EXAMPLES)]
    Table(crate::shield::table::options::TableOptions),
    /// Run a program on the shielded CPUs, with a real-time priority
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunOptions),
    /// Move running processes to the shielded CPUs
    #[command(name = "move", after_help = MOVE_EXAMPLES)]
    Move(MoveOptions),
    /// Put everything back as it was
    #[command(after_help = UNDO_EXAMPLES)]
    Undo(UndoOptions),
    /// Hold the scheduler of mode artis
    #[command(hide = true)]
    Keep(KeepOptions),
    /// Set the CPUs apart when the process that holds the scheduler ends
    #[command(hide = true)]
    Guard(GuardOptions),
    /// Print a systemd service that makes the shield when it starts and undoes it when it stops
    #[command(after_help = UNIT_EXAMPLES)]
    Unit(UnitOptions),
}

#[derive(Debug, clap::Args)]
pub struct VerifyOptions {
    /// The CPUs to watch; without it: those of the shield
    #[arg(long, value_name = "CPUS")]
    pub rt: Option<String>,
    /// For so long
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub duration: DurationNs,
    /// Memory of each CPU for what ran, the newest
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    pub buffer: Bytes,
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// How far a shield goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    /// What makes the shielded CPUs quiet
    Basic,
    /// Also what costs the rest of the machine memory or power: huge pages, merging of pages, compaction
    Full,
}

impl From<LevelArg> for Level {
    fn from(level: LevelArg) -> Level {
        match level {
            LevelArg::Basic => Level::Basic,
            LevelArg::Full => Level::Full,
        }
    }
}

/// What becomes of the CPUs' idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Nothing: the CPUs are set apart
    Shield,
    /// A scheduler lends them to tasks in user mode, and takes them back when these enter the kernel (sched_ext)
    Artis,
}

/// What a task in the shield is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClassArg {
    /// Hard real time: SCHED_FIFO, on one CPU
    Rt0,
}

#[derive(Debug, clap::Args)]
pub struct PlanOptions {
    /// The CPUs for real-time work (2-3, 1,5-7)
    #[arg(long, value_name = "CPUS")]
    pub rt: String,
    /// What becomes of their idle time
    #[arg(long, value_enum, default_value_t = ModeArg::Shield)]
    pub mode: ModeArg,
    /// How far to go
    #[arg(long, value_enum, default_value_t = LevelArg::Basic)]
    pub level: LevelArg,
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// How the process that holds the scheduler is started; nobody types this.
#[derive(Debug, clap::Args)]
pub struct KeepOptions {
    /// The real-time CPUs
    #[arg(long)]
    pub rt: String,
}

/// How the process that watches it is started; nobody types this.
#[derive(Debug, clap::Args)]
pub struct GuardOptions {
    /// The real-time CPUs
    #[arg(long)]
    pub rt: String,
    /// Whom it watches
    #[arg(long)]
    pub pid: i32,
    /// When that began
    #[arg(long)]
    pub start: u64,
}

impl GuardOptions {
    pub fn keeper(&self) -> Thread {
        Thread { tid: self.pid, start: self.start, name: String::new() }
    }
}

#[derive(Debug, clap::Args)]
pub struct OutputOptions {
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct RunOptions {
    /// What the program is
    #[arg(long, value_enum, default_value_t = ClassArg::Rt0)]
    pub class: ClassArg,
    /// Its priority
    #[arg(long, value_name = "PRIORITY", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub prio: u8,
    /// Its CPU; without it: the first of the shield
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct MoveOptions {
    /// Only this CPU; without it: all of the shield
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// The processes
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
}

#[derive(Debug, clap::Args)]
pub struct UndoOptions {
    /// Also what somebody else has changed since
    #[arg(long)]
    pub force: bool,
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct UnitOptions {
    /// The CPUs for real-time work (2-3, 1,5-7)
    #[arg(long, value_name = "CPUS")]
    pub rt: String,
    /// How far to go
    #[arg(long, value_enum, default_value_t = LevelArg::Basic)]
    pub level: LevelArg,
}

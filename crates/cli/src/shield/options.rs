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
      Do it. With --mode artis a scheduler lends the CPUs to other tasks while real-time work sleeps (sched_ext). The old values are in /run/rtscope/shield.json before the first change.
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
const CREATE_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield create --rt 2-3
  rtscope shield create --rt 2-3 --keep-irq can0@2 --keep-irq 36
      The interrupts of can0 come to CPU 2, interrupt 36 to CPUs 2-3; all others leave.

verify lists kept interrupts, and does not count them as broken promises; nor, where they came, the softirqs of devices.

--mode artis lends real-time CPUs to other tasks while these are in user mode. Who enters the kernel there is moved to another CPU.
With --mode artis all tasks without a real-time policy are scheduled by rtscope. Nice values hold; weights and limits of control
groups do not (cpu.weight, cpu.max), nor does the balancing between groups. A task with a real-time policy that may use several CPUs is
kept off the real-time ones. Who is bound to a real-time CPU stays there, and when real-time work leaves it no time for 30 seconds, the
kernel ends the scheduler. Whatever ends it: the CPUs are set apart then, as without --mode artis, and shield status says why.
Make it before real-time tasks run: loading the scheduler disturbs all CPUs for some milliseconds."
);
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
const RUN_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield run --prio 80 --cpu 2 -- ./control --period 1ms
  rtscope shield run --cpu 2 --policy deadline --runtime 2ms --deadline 10ms --period 10ms -- ./control
      SCHED_DEADLINE: the kernel gives it 2 ms in each 10 ms, and stops it there.

Several tasks may share a CPU. Before a task gets SCHED_DEADLINE it is worked out whether all deadlines on its CPU can be kept (earliest
deadline first: the sum of runtime/period, and the processor demand where a deadline is shorter than its period; the kernel's own servers
for ordinary tasks count). If not, it says why, with figures, and nothing starts; --force leaves it to the kernel. The kernel has the last
word; what it refuses is explained, with its figures. Only the first thread of the program is scheduled by deadlines: what it starts is
ordinary, since the kernel lets no such thread be copied. DEADLINE tasks come before all FIFO and RR tasks.
The program keeps its policy when the shield is undone."
);
const MOVE_EXAMPLES: &str = help!(
    "Example:
  rtscope shield move $(pidof jackd)

  rtscope shield move --cpu 2 --policy rr --prio 50 $(pidof sampler)

All threads of a process go where its group goes; their policies and priorities stay, but for --policy, which is for the first thread of
each process, is decided as for run, and is undone with the shield."
);
const UNDO_EXAMPLES: &str = help!(
    "Example:
  rtscope shield undo

A setting that somebody else has changed since is told, and left; after that --force writes the old value all the same."
);
const TOP_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield top
  rtscope shield top --once --json

Each CPU and class: how long it ran (on a real-time CPU: what was lent; rt0: how long real-time tasks had it), how often tasks were sent
there, and the evictions: all that were begun have moved the task, ended otherwise (it slept, ended or changed first), or are on
their way. Refused: the task may use no other CPU, or was in a section in which the kernel moves nobody."
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
    /// Show what the scheduler of mode artis lends, and how fast it takes that back
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopOptions),
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
    /// Hard real time: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE, on one CPU
    Rt0,
    /// Real time that may wait for Rt0: before all other tasks, on real-time CPUs while in user mode (--mode artis)
    Rt1,
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
    /// An interrupt that a real-time task works with (36, eth0, eth0-rx-*): it comes to the shielded CPUs, with @N to CPU N
    #[arg(long, value_name = "NAME|N[@CPU]")]
    pub keep_irq: Vec<String>,
    /// One versioned JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct TopOptions {
    /// All since the scheduler was loaded, and no more
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,
    /// Time between two tables
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: DurationNs,
    /// One versioned JSON object for each table, in a line
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

/// Who runs first among real-time tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// By priority; tasks of one priority run until they sleep
    Fifo,
    /// By priority; tasks of one priority take turns
    Rr,
    /// By deadline: so much time of the CPU in each period
    Deadline,
}

#[derive(Debug, clap::Args)]
pub struct PolicyOptions {
    /// How it is scheduled among real-time tasks [default for run: fifo]
    #[arg(long, value_enum)]
    pub policy: Option<PolicyArg>,
    /// Its priority for fifo and rr, 1 to 99 [default: 80]
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub prio: Option<u8>,
    /// With --policy deadline: time of the CPU that it needs in each period
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<DurationNs>,
    /// With --policy deadline: after the beginning of a period it has had its time by then [default: the period]
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<DurationNs>,
    /// With --policy deadline: once in so long [default: the deadline]
    #[arg(long, value_name = "TIME")]
    pub period: Option<DurationNs>,
    /// Also where deadlines would be missed: the kernel decides alone
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, clap::Args)]
pub struct RunOptions {
    /// What the program is
    #[arg(long, value_enum, default_value_t = ClassArg::Rt0)]
    pub class: ClassArg,
    #[command(flatten)]
    pub policy: PolicyOptions,
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
    #[command(flatten)]
    pub policy: PolicyOptions,
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
    /// What becomes of their idle time
    #[arg(long, value_enum, default_value_t = ModeArg::Shield)]
    pub mode: ModeArg,
    /// How far to go
    #[arg(long, value_enum, default_value_t = LevelArg::Basic)]
    pub level: LevelArg,
    /// An interrupt that comes to the shielded CPUs, as for create
    #[arg(long, value_name = "NAME|N[@CPU]")]
    pub keep_irq: Vec<String>,
}

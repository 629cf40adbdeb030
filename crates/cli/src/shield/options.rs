// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope shield`.

use crate::exit::help;
use clap::{Subcommand, ValueEnum, ValueHint};
use rtscope_session::shield::policy::{PolicyName, PolicyWords};
use rtscope_session::units::{Bytes, DurationNs};
use rtscope_shield::knobs::Level;
use rtscope_shield::tasks::Thread;
use std::ffi::OsString;
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope shield plan --rt 2-3
      What would change to reserve CPUs 2 and 3 for real-time work, and what cannot be changed here.
  rtscope shield create --rt 2-3
      Make the shield. The old values are in /run/rtscope/shield.json before the first change.
  rtscope shield run --prio 80 --cpu 2 -- ./control
      Run a program on CPU 2, with SCHED_FIFO and priority 80.
  rtscope shield status
      Whether all settings are still as the shield made them.
  rtscope shield verify --duration 1min
      What really ran on these CPUs for a minute.
  rtscope shield table
      Latencies under load on this machine, without a shield and with each kind of shield.
  rtscope shield undo
      Restore everything, also after a crash.

No setting survives a reboot. What only the kernel's command line can set is printed, never
edited. With --mode artis, a scheduler (sched_ext) lends the CPUs to other tasks while real-time
work sleeps."
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
      Route the interrupts of can0 to CPU 2 and interrupt 36 to CPUs 2-3; move all others away.
  rtscope shield create --rt 2-3 --mode artis
      Lend the CPUs to other tasks while real-time work sleeps (sched_ext).

shield verify lists the interrupts of --keep-irq, and does not count them as failed checks; nor the
softirqs of devices on a CPU that received such an interrupt.

--mode artis lends real-time CPUs to other tasks while those run in user mode. A task that enters
the kernel there is moved to another CPU. rtscope schedules all tasks without a real-time policy:
nice values still apply, but weights and limits of control groups (cpu.weight, cpu.max) and the
balancing between groups are ignored. A task with a real-time policy that may use several CPUs is
moved off the real-time CPUs. A task bound to a real-time CPU stays there; if real-time work leaves
it no time for 30 seconds, the kernel ends the scheduler. Whenever the scheduler ends, the CPUs are
isolated as without --mode artis, and shield status shows the reason. Create the shield before
real-time tasks run: loading the scheduler disturbs all CPUs for some milliseconds."
);
const STATUS_EXAMPLES: &str = help!("Examples:\n  rtscope shield status\n  rtscope shield status --json");
const VERIFY_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield verify --duration 1min
      What ran on the shielded CPUs for a minute: tasks, kernel threads, interrupts, softirqs and
      ticks, and the senders of interrupts from other CPUs.
  rtscope shield verify --rt 1 --json
      The same for a CPU that is not shielded.

Each check is reported as PASS or FAIL. If events were lost, a check that did not fail is reported
as UNKNOWN. What no setting of this machine can prevent is counted, but not checked."
);
const RUN_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield run --prio 80 --cpu 2 -- ./control --period 1ms
  rtscope shield run --cpu 2 --policy deadline --runtime 2ms --period 10ms -- ./control
      SCHED_DEADLINE: the kernel gives the program 2 ms in each 10 ms, and no more.

Several tasks may share a CPU. Before a task gets SCHED_DEADLINE, rtscope checks whether all
deadlines on its CPU can be met under earliest deadline first: the sum of runtime/period and, if a
deadline is shorter than its period, the processor demand. The kernel's servers for ordinary tasks
are included. If a deadline could be missed, the figures are shown and nothing starts; --force
leaves the decision to the kernel. If the kernel refuses, its figures are shown.

Only the first thread of the program is scheduled by deadlines: the kernel does not let such a
thread pass its policy on. DEADLINE tasks run before all FIFO and RR tasks. The program retains its
policy when the shield is undone."
);
const MOVE_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield move $(pidof jackd)
  rtscope shield move --cpu 2 --policy rr --prio 50 $(pidof sampler)

All threads of a process are moved. They retain their policies and priorities, except that --policy
sets the policy of the first thread of each process. It is checked as for shield run, and undone
with the shield."
);
const UNDO_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield undo
  rtscope shield undo --force
      Also restore settings that were changed by somebody else.

Settings changed by somebody else since the shield was made are reported and left alone, unless
--force is given."
);
const TOP_EXAMPLES: &str = help!(
    "Examples:
  rtscope shield top
  rtscope shield top --once --json

For each CPU and class: how long it ran (on a real-time CPU: the time lent; rt0: the time of
real-time tasks), how often tasks were sent there, and evictions. An eviction moved the task, ended
otherwise (the task slept, ended or changed first), or is under way. It is refused if the task may
use no other CPU, or is in a section in which the kernel does not move tasks."
);
const UNIT_EXAMPLES: &str = help!(
    "Example:
  rtscope shield unit --rt 2-3 > /etc/systemd/system/rtscope-shield.service
  systemctl enable --now rtscope-shield"
);

#[derive(Debug, clap::Args)]
pub struct ShieldOptions {
    /// The directory that holds proc, sys and run
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub root: PathBuf,
    #[command(subcommand)]
    pub command: ShieldCommand,
}

#[derive(Debug, Subcommand)]
pub enum ShieldCommand {
    /// Show what a shield would change, and what cannot be changed; changes nothing
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanOptions),
    /// Make a shield: move everything else off some CPUs
    #[command(after_help = CREATE_EXAMPLES)]
    Create(PlanOptions),
    /// Show whether all settings are still as the shield made them
    #[command(after_help = STATUS_EXAMPLES)]
    Status(OutputOptions),
    /// Check what really runs on the shielded CPUs, whatever the settings say
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyOptions),
    /// Measure latency and throughput with and without load, with and without a shield
    #[command(after_help = crate::shield::table::options::EXAMPLES)]
    Table(crate::shield::table::options::TableOptions),
    /// Run a program on the shielded CPUs, with a real-time priority
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunOptions),
    /// Move running processes to the shielded CPUs
    #[command(name = "move", after_help = MOVE_EXAMPLES)]
    Move(MoveOptions),
    /// Restore everything
    #[command(after_help = UNDO_EXAMPLES)]
    Undo(UndoOptions),
    /// Show what the scheduler of mode artis lends, and how fast it takes CPUs back
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopOptions),
    /// Hold the scheduler of mode artis (started by shield create)
    #[command(hide = true)]
    Keep(KeepOptions),
    /// Isolate the CPUs when the keeper ends (started by the keeper)
    #[command(hide = true)]
    Guard(GuardOptions),
    /// Print a systemd service that makes the shield at its start and undoes it at its stop
    #[command(after_help = UNIT_EXAMPLES)]
    Unit(UnitOptions),
}

#[derive(Debug, clap::Args)]
pub struct VerifyOptions {
    /// The CPUs to watch. Without it: those of the shield
    #[arg(long, value_name = "CPUS")]
    pub rt: Option<String>,
    /// How long to watch
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub duration: DurationNs,
    /// Memory for the newest events of each CPU
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    pub buffer: Bytes,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// How far a shield goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    /// Settings that make the shielded CPUs quiet
    Basic,
    /// Also settings that cost the rest of the machine memory or power: huge pages, page merging, compaction
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

/// How the idle time of the CPUs is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Not at all: the CPUs are isolated
    Shield,
    /// A scheduler (sched_ext) lends them to tasks in user mode, and takes them back when those enter the kernel
    Artis,
}

/// The class of a task in the shield.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClassArg {
    /// Hard real time: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE, on one CPU
    Rt0,
    /// Real time behind rt0 and before all other tasks, on real-time CPUs while in user mode (--mode artis)
    Rt1,
}

#[derive(Debug, clap::Args)]
pub struct PlanOptions {
    /// The CPUs for real-time work (2-3, 1,5-7)
    #[arg(long, value_name = "CPUS")]
    pub rt: String,
    /// How their idle time is used
    #[arg(long, value_enum, default_value_t = ModeArg::Shield)]
    pub mode: ModeArg,
    /// Which settings to change
    #[arg(long, value_enum, default_value_t = LevelArg::Basic)]
    pub level: LevelArg,
    /// An interrupt that a real-time task needs (36, eth0, eth0-rx-*): it is routed to the shielded CPUs, with @N to CPU N;
    /// may be repeated
    #[arg(long, value_name = "NAME|N[@CPU]")]
    pub keep_irq: Vec<String>,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct TopOptions {
    /// Print one table, of the time since the scheduler was loaded, and end
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,
    /// Time between two tables
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: DurationNs,
    /// Print one JSON object per line, for each table (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// The options of the keeper, which `shield create` starts.
#[derive(Debug, clap::Args)]
pub struct KeepOptions {
    /// The real-time CPUs
    #[arg(long)]
    pub rt: String,
}

/// The options of the guard, which the keeper starts.
#[derive(Debug, clap::Args)]
pub struct GuardOptions {
    /// The real-time CPUs
    #[arg(long)]
    pub rt: String,
    /// The keeper's process
    #[arg(long)]
    pub pid: i32,
    /// When that started, in ticks since boot
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
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// The order among real-time tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// By priority; a task runs until it sleeps (SCHED_FIFO)
    Fifo,
    /// By priority; tasks of equal priority alternate in time slices (SCHED_RR)
    Rr,
    /// By deadline, with a fixed CPU time in each period (SCHED_DEADLINE)
    Deadline,
}

#[derive(Debug, clap::Args)]
pub struct PolicyOptions {
    /// The scheduling policy [default for run: fifo]
    #[arg(long, value_enum)]
    pub policy: Option<PolicyArg>,
    /// The priority for fifo and rr, 1 to 99 [default: 80]
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub prio: Option<u8>,
    /// With --policy deadline: CPU time needed in each period
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<DurationNs>,
    /// With --policy deadline: time from the start of a period by which it must have had its CPU time [default: the period]
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<DurationNs>,
    /// With --policy deadline: the period [default: the deadline]
    #[arg(long, value_name = "TIME")]
    pub period: Option<DurationNs>,
    /// Skip the check whether all deadlines can be met; the kernel decides
    #[arg(long)]
    pub force: bool,
}

impl PolicyOptions {
    pub fn words(&self) -> PolicyWords {
        let policy = self.policy.map(|policy| match policy {
            PolicyArg::Fifo => PolicyName::Fifo,
            PolicyArg::Rr => PolicyName::Rr,
            PolicyArg::Deadline => PolicyName::Deadline,
        });
        let [runtime_ns, deadline_ns, period_ns] =
            [self.runtime, self.deadline, self.period].map(|time| time.map(|time| time.0));
        PolicyWords { policy, prio: self.prio, runtime_ns, deadline_ns, period_ns, force: self.force }
    }
}

#[derive(Debug, clap::Args)]
pub struct RunOptions {
    /// The class of the program
    #[arg(long, value_enum, default_value_t = ClassArg::Rt0)]
    pub class: ClassArg,
    #[command(flatten)]
    pub policy: PolicyOptions,
    /// The CPU. Without it: the first of the shield
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct MoveOptions {
    /// Only this CPU. Without it: all of the shield
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
    /// Also restore settings changed by somebody else since
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct UnitOptions {
    /// The CPUs for real-time work (2-3, 1,5-7)
    #[arg(long, value_name = "CPUS")]
    pub rt: String,
    /// How their idle time is used
    #[arg(long, value_enum, default_value_t = ModeArg::Shield)]
    pub mode: ModeArg,
    /// Which settings to change
    #[arg(long, value_enum, default_value_t = LevelArg::Basic)]
    pub level: LevelArg,
    /// An interrupt that is routed to the shielded CPUs, as for create; may be repeated
    #[arg(long, value_name = "NAME|N[@CPU]")]
    pub keep_irq: Vec<String>,
}

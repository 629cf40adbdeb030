// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rtscope record` can be told.

use crate::exit::{Failure, help};
use crate::units::{Bytes, DurationNs};
use clap::{ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// For the end of `rtscope record --help`.
pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope record -k 'sched:*,irq:*' --duration 10s -o trace/
      The scheduler and all interrupts, for ten seconds.
  rtscope record -k syscalls --only-command -o trace/ -- make -j4
      Every system call of make and its children, with the paths they were given.
  rtscope record -k 'block:*' --filter 'block:block_rq_issue: bytes > 65536' -o trace/
      Block requests; of the issued ones, only the large.
  rtscope record -k '*,!lock:*' --duration 1s -o trace/
      Everything that the kernel has, for a second.
  rtscope record -u 'motor:*' --context tid -o trace/ -- ./controller
      Events of instrumented programs; no privilege is needed for the own ones.
  rtscope record -k 'sched:*' -u '*' -o trace/ -- ./controller
      Both, on one clock: trace/kernel and trace/user.
  rtscope record -u '*' --flight-recorder --user-buffer 4M -o late/
      Keep the newest events of each thread in memory; rtscope snapshot saves them.
  rtscope record --recover trace/
      Finish the trace of a recording that was killed.

Read the trace with rtscope stat, rtscope print, babeltrace2 or Trace Compass. rtscope list -k lists the tracepoints.

Scheduler, interrupt and timer tracepoints that fire with interrupts off are recorded by eBPF, which costs least; and system
calls, where the kernel (up to Linux 6.18) lets none of its programs there be preempted. All others, and those with a
filter, by an ftrace instance of rtscope's own. Both are merged into one trace on one clock. Calls of 32-bit programs are
not recorded, by either. rtscope list -k tells which recorder takes which.
rtscope's own system calls and other activity are left out (--with-self keeps them); the switches to and from it stay, so that
the time of each CPU adds up."
);

/// Who may record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// eBPF where it loses nothing, ftrace for the rest
    Auto,
    /// ftrace alone
    Ftrace,
}

/// What an event of a program can say of who recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Context {
    /// The process, as it sees itself
    Pid,
    /// The thread, as it sees itself
    Tid,
    /// The thread's name
    Comm,
    /// The CPU on which it happened
    Cpu,
}

impl Context {
    /// As the spool calls it.
    pub fn name(self) -> &'static str {
        match self {
            Context::Pid => "pid",
            Context::Tid => "tid",
            Context::Comm => "comm",
            Context::Cpu => "cpu",
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct RecordOptions {
    /// Tracepoints: SYSTEM:EVENT with * and ?, a system, 'syscalls', or EVENT; !PATTERN leaves out; several with commas.
    /// Without it and without -u: those that are recorded by eBPF
    #[arg(short = 'k', long = "kernel", value_name = "PATTERNS", value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// Events of instrumented programs (include/rtscope): PROVIDER:EVENT with * and ?, or PROVIDER; !PATTERN leaves out; several
    /// with commas. Of all programs that run now or start later; for root, those of all users
    #[arg(short = 'u', long = "user", value_name = "PATTERNS", value_delimiter = ',')]
    pub user: Vec<String>,
    /// With -u: only events up to this level (0 emergency … 6 info, 7 debug)
    #[arg(long, value_name = "LEVEL", default_value_t = 7, requires = "user")]
    pub level: u32,
    /// With -u: what each event says of who recorded it; several with commas
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',', requires = "user")]
    pub context: Vec<Context>,
    /// With -u: size of each thread's buffer, where the program does not say; rounded up to a power of two
    #[arg(long, value_name = "SIZE", requires = "user")]
    pub user_buffer: Option<Bytes>,
    /// With -u: programs that allow it wait for room instead of losing events; never threads with a real-time policy
    #[arg(long, requires = "user")]
    pub blocking: bool,
    /// With -u: programs overwrite their buffers, nothing goes to the disk until rtscope snapshot asks for it, and at the end;
    /// DIR/1, DIR/2, ... are the traces
    #[arg(long, requires = "user", conflicts_with_all = ["kernel", "blocking", "fifo"])]
    pub flight_recorder: bool,
    /// Where the trace goes: a folder that does not exist yet
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "recover")]
    pub output: Option<PathBuf>,
    /// Of these tracepoints only events for which the expression holds, in the kernel ('sched:sched_switch: next_prio < 100');
    /// may be repeated
    #[arg(long, value_name = "EVENT: EXPR")]
    pub filter: Vec<String>,
    /// Only what happens in this thread; may be repeated
    #[arg(long, value_name = "TID")]
    pub pid: Vec<u32>,
    /// With --pid: also in the children that it makes from now on
    #[arg(long, requires = "pid")]
    pub follow: bool,
    /// Only what happens in COMMAND and its children
    #[arg(long, requires = "command", conflicts_with = "pid")]
    pub only_command: bool,
    /// Only what happens in tasks with this name (* and ? stand for any characters)
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only on these CPUs (0,2-3)
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<String>,
    /// Memory of each CPU's buffer, for each of the two recorders [default: 8M]
    #[arg(long, value_name = "SIZE")]
    pub buffer: Option<Bytes>,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Also what rtscope itself does
    #[arg(long)]
    pub with_self: bool,
    /// Which of the kernel's recorders may be used
    #[arg(long, value_enum, default_value_t = By::Auto)]
    pub by: By,
    /// Run the threads that empty the buffers with this real-time priority (SCHED_FIFO), where other real-time tasks would starve
    /// them
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fifo: Option<u8>,
    /// One versioned JSON object at the end, on standard output
    #[arg(long)]
    pub json: bool,
    /// Finish the trace DIR of a recording that was killed
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["kernel", "user", "output", "command"])]
    pub recover: Option<PathBuf>,
    /// Start this program, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// For tracepoints, where nothing else is asked for.
const BUFFER_BYTES: usize = 8 << 20;

impl RecordOptions {
    /// Bytes of each CPU's buffer for tracepoints.
    pub fn kernel_buffer(&self) -> usize {
        self.buffer.map_or(BUFFER_BYTES, |buffer| buffer.0)
    }

    /// What asks for something of tracepoints where none are recorded: it would be ignored, and a trace of everything would look like
    /// one of what was asked for.
    pub fn refuse_unused(&self) -> Result<(), Failure> {
        if self.user.is_empty() || !self.kernel.is_empty() {
            return Ok(());
        }
        let given = [
            ("--filter", !self.filter.is_empty()),
            ("--pid", !self.pid.is_empty()),
            ("--only-command", self.only_command),
            ("--comm", self.comm.is_some()),
            ("--cpu", self.cpu.is_some()),
            ("--buffer", self.buffer.is_some()),
            ("--with-self", self.with_self),
            ("--by", self.by != By::Auto),
        ];
        match given.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some(("--buffer", _)) => {
                Err(Failure::Usage("--buffer is for tracepoints (-k); -u has --user-buffer".to_string()))
            }
            Some((name, _)) => Err(Failure::Usage(format!(
                "{name} is for tracepoints (-k) and says nothing of events of programs (-u); leave it out or add -k"
            ))),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope record`.

use crate::exit::{Failure, help};
use clap::{ValueEnum, ValueHint};
use rtscope_session::record::{
    self, KERNEL_BUFFER_BYTES, KernelSettings, ProgramsSettings, RING_FILES, RecordSettings, RingSettings,
};
use rtscope_session::units::{Bytes, DurationNs};
use std::ffi::OsString;
use std::path::PathBuf;

/// For the end of `rtscope record --help`.
pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope record -k 'sched:*,irq:*' --duration 10s -o trace/
      The scheduler and all interrupts, for ten seconds.
  rtscope record -k syscalls --only-command -o trace/ -- make -j4
      Every system call of make and its children, with the paths in their arguments.
  rtscope record -k 'block:*' --filter 'block:block_rq_issue: bytes > 65536' -o trace/
      Block requests; of the issued ones, only large ones.
  rtscope record -k '*,!lock:*' --duration 1s -o trace/
      All tracepoints but those of locks, for a second.
  rtscope record -u 'motor:*' --context tid -o trace/ -- ./controller
      Events of instrumented programs; your own need no privilege.
  rtscope record -k 'sched:*' -u '*' -o trace/ -- ./controller
      Both, on one clock: trace/kernel and trace/ust.
  rtscope record -u '*' --flight-recorder --user-buffer 4M -o late/
      Retain the newest events of each thread in memory; rtscope snapshot saves them.
  rtscope record -k 'sched:*' -u '*' --max-size 2G -o trace/
      For days: the trace takes at most 2 GiB and has the newest events.
  rtscope record --recover trace/
      Finish the trace of a recording that was killed.

Read the trace with rtscope stat, rtscope print, babeltrace2 or Trace Compass. rtscope list -k lists
the tracepoints, and which recorder takes each.

eBPF records scheduler, interrupt and timer tracepoints that fire with interrupts disabled, which
costs least. It records system calls too, on kernels that run those eBPF programs with preemption
disabled (up to Linux 6.18). Everything else, and every tracepoint with a filter, goes through a
private ftrace instance. Both end up in one trace, on one clock. System calls of 32-bit programs
are not recorded.

What rtscope itself does is left out (--with-self records it). Switches to and from it are
recorded, so that the time of each CPU adds up."
);

/// The recorders of the kernel that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecorderArg {
    /// eBPF where it loses nothing, ftrace for the rest
    Auto,
    /// ftrace alone
    Ftrace,
}

/// Context that is recorded with each event of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Context {
    /// The process id, in its own PID namespace
    Pid,
    /// The thread id, in its own PID namespace
    Tid,
    /// The thread's name
    Comm,
    /// The CPU
    Cpu,
}

impl From<Context> for record::Context {
    fn from(context: Context) -> record::Context {
        match context {
            Context::Pid => record::Context::Pid,
            Context::Tid => record::Context::Tid,
            Context::Comm => record::Context::Comm,
            Context::Cpu => record::Context::Cpu,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct RecordOptions {
    /// Tracepoints: SYSTEM:EVENT with * and ?, a subsystem, 'syscalls', or EVENT; !PATTERN excludes; separated by commas.
    /// Without -k and -u: the built-in events, which eBPF records
    #[arg(short = 'k', long = "kernel", value_name = "PATTERNS", value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// Events of instrumented programs: PROVIDER:EVENT with * and ?, or PROVIDER; !PATTERN excludes; separated by commas.
    /// Covers all your programs that run now or start later; as root, programs of all users and in containers
    #[arg(short = 'u', long = "user", value_name = "PATTERNS", value_delimiter = ',')]
    pub user: Vec<String>,
    /// With -u: only events up to this level (0 emergency … 6 info, 7 debug)
    #[arg(long, value_name = "LEVEL", default_value_t = 7, requires = "user")]
    pub level: u32,
    /// With -u: context that is recorded with each event; separated by commas
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',', requires = "user")]
    pub context: Vec<Context>,
    /// With -u: size of each thread's buffer, unless the program sets it; rounded up to a power of two
    #[arg(long, value_name = "SIZE", requires = "user")]
    pub user_buffer: Option<Bytes>,
    /// With -u: programs that allow it wait when a buffer is full, instead of losing events. Threads with a real-time policy
    /// never wait
    #[arg(long, requires = "user")]
    pub blocking: bool,
    /// With -u: programs overwrite their oldest events. A trace (DIR/1, DIR/2, ...) is written when rtscope snapshot asks
    /// for it, and at the end
    #[arg(long, requires = "user", conflicts_with_all = ["kernel", "blocking", "fifo"])]
    pub flight_recorder: bool,
    /// Where the trace goes: a directory that does not exist yet
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "recover")]
    pub output: Option<PathBuf>,
    /// Record events of these tracepoints only if the expression is true, tested in the kernel ('sched:sched_switch:
    /// next_prio < 100'); may be repeated
    #[arg(long, value_name = "EVENT: EXPR")]
    pub filter: Vec<String>,
    /// Only events of this thread; may be repeated
    #[arg(long, value_name = "TID")]
    pub pid: Vec<u32>,
    /// With --pid: also events of children created from now on
    #[arg(long, requires = "pid")]
    pub follow: bool,
    /// Only events of COMMAND and its children
    #[arg(long, requires = "command", conflicts_with = "pid")]
    pub only_command: bool,
    /// Only events of tasks with this name (with * and ?)
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only events of these CPUs (0,2-3)
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<String>,
    /// Size of each CPU's buffer, for each of the two recorders [default: 8M]
    #[arg(long, value_name = "SIZE")]
    pub buffer: Option<Bytes>,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Keep only the newest events: traces, metadata and what is not in a trace yet take at most this size on disk; the
    /// oldest time is removed from all streams. What was removed is counted as overwritten
    #[arg(long, value_name = "SIZE", value_parser = disk_size, conflicts_with_all = ["convert_after", "flight_recorder", "recover"])]
    pub max_size: Option<u64>,
    /// With --max-size: files of each stream, at most; of as many parts one is removed at a time [default: 16]
    #[arg(long, value_name = "N", requires = "max_size", value_parser = clap::value_parser!(u64).range(4..=1000))]
    pub max_files: Option<u64>,
    /// Also record what rtscope itself does
    #[arg(long)]
    pub with_self: bool,
    /// With -k: make the trace when the recording is over. Otherwise it is made while the recording goes on, in time that no task
    /// needs, and can be followed (rtscope print --follow)
    #[arg(long)]
    pub convert_after: bool,
    /// Which recorders of the kernel may be used
    #[arg(long, value_enum, default_value_t = RecorderArg::Auto)]
    pub by: RecorderArg,
    /// Run the threads that empty the buffers with this real-time priority (SCHED_FIFO), so that other real-time tasks do
    /// not starve them
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fifo: Option<u8>,
    /// Print one JSON object per trace at the end (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Finish the trace DIR of a recording that was killed
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["kernel", "user", "output", "command"])]
    pub recover: Option<PathBuf>,
    /// Start this program, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// A size on disk: `500M`, `2G`, `1.5T`.
fn disk_size(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| format!("'{text}' does not begin with a number"))?;
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("'{text}' is not a size; write 500M or 2G")),
    };
    Ok((number * (1_u64 << shift) as f64) as u64)
}

impl RecordOptions {
    /// What they ask for.
    pub fn settings(&self) -> Result<RecordSettings, Failure> {
        let Some(target) = &self.output else {
            return Err(Failure::Usage("-o DIR is missing: the directory of the trace".to_string()));
        };
        self.refuse_unused()?;
        let programs = (!self.user.is_empty()).then(|| self.programs());
        let kernel = (!self.kernel.is_empty() || programs.is_none()).then(|| self.tracepoints());
        Ok(RecordSettings {
            kernel,
            programs,
            command: self.command.clone(),
            duration_ns: self.duration.map(|duration| duration.0),
            fifo: self.fifo,
            ring: self.max_size.map(|max_size| RingSettings {
                max_bytes: max_size,
                max_files: self.max_files.unwrap_or(RING_FILES),
            }),
            ..RecordSettings::of(target)
        })
    }

    fn tracepoints(&self) -> KernelSettings {
        KernelSettings {
            patterns: self.kernel.clone(),
            filters: self.filter.clone(),
            tids: self.pid.clone(),
            follow: self.follow,
            only_command: self.only_command,
            comm: self.comm.clone(),
            cpus: self.cpu.clone(),
            buffer_bytes: self.buffer.map_or(KERNEL_BUFFER_BYTES, |buffer| buffer.0),
            with_self: self.with_self,
            by_ftrace: self.by == RecorderArg::Ftrace,
            convert_after: self.convert_after,
        }
    }

    fn programs(&self) -> ProgramsSettings {
        ProgramsSettings {
            patterns: self.user.clone(),
            level: self.level,
            context: self.context.iter().map(|context| (*context).into()).collect(),
            buffer_bytes: self.user_buffer.map(|buffer| buffer.0),
            blocking: self.blocking,
        }
    }

    /// What asks for something of tracepoints where none are recorded: it would be ignored, and a trace of everything would look like
    /// one of what was asked for.
    fn refuse_unused(&self) -> Result<(), Failure> {
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
            ("--convert-after", self.convert_after),
            ("--by", self.by != RecorderArg::Auto),
        ];
        match given.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some(("--buffer", _)) => {
                Err(Failure::Usage("--buffer is for tracepoints (-k); -u has --user-buffer".to_string()))
            }
            Some((name, _)) => Err(Failure::Usage(format!(
                "{name} is for tracepoints (-k) and does not apply to events of programs (-u); leave it out or add -k"
            ))),
        }
    }
}

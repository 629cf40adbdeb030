// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope record`.

use crate::args::JsonOutput;
use crate::exit::{Failure, help};
use clap::{ValueEnum, ValueHint};
use rtscope_session::record::{
    self, Backend, Conversion, KERNEL_BUFFER_BYTES, KernelSettings, LevelRange, OnlyWhile, PlaceWords,
    ProcessChoice, ProgramsSettings, RING_FILES, RecordSettings, RingSettings, SNAPSHOTS, SnapshotCause,
    patterns_of,
};
use rtscope_session::units::{Bytes, DiskBytes, DurationNs, Share};
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
  rtscope record -u 'oms:order_* if price > 100' --comm 'matcher*' --level err..info -o trace/
      Orders above 100 of some threads. What is left out is counted; programs cost what they cost
      without it.
  rtscope record -u 'motor:*' --backend stm:user --backend 'motor:slow*=software' -o trace/
      Events into channels of a system trace module (STM), but for some of them. rtscope hardware
      decode --programs trace/ reads what comes out of the module.
  rtscope record -u 'motor:*' --backend ptwrite,or-software -o trace/ -- ./controller
      Events into the stream of Intel PT, which is captured meanwhile; on processors without PTWRITE
      into buffers.
  rtscope record -k 'sched:*' -u '*' -o trace/ -- ./controller
      Both, on one clock: trace/kernel and trace/ust.
  rtscope record -u '*' --flight-recorder --user-buffer 4M -o late/
      Retain the newest events of each thread in memory; rtscope snapshot saves them.
  rtscope record -k 'sched:*,irq:*' -u '*' --flight-recorder -o late/ -- cyclictest -m -p 80 -b 200
      The same of the kernel, too, on one clock: late/1 has what was before cyclictest stopped.
  rtscope record -k 'sched:*' -u '*' --max-size 2G -o trace/
      For days: the trace takes at most 2 GiB and has the newest events.
  rtscope record --at 'on_tick' --at 'on_tick+0x2c' -k sched -o trace/ -- ./controller
      Each time that a thread comes to these places, beside the scheduler: probe:on_tick and
      probe:on_tick+0x2c.
  rtscope record --at on_tick --hardware pt -k sched -o trace/ -- ./controller
      The same place, found by Intel PT: hardware:place, without an interrupt (trace/places).
  rtscope record --at /lib/x86_64-linux-gnu/libc.so.6:malloc --duration 1s -o trace/
      Each call of malloc, of all programs.
  rtscope record --while 'offcpu>50ms' --duration 10min -o trace/
      Of each task only what it does after more than 50 ms off a CPU: how it comes to go on.
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
    /// The user whose program it is: what the kernel says, and not the program
    Uid,
    /// Nothing: an event takes 13 to 28 bytes less
    None,
}

impl Context {
    fn wanted(self) -> Option<record::Context> {
        match self {
            Context::Pid => Some(record::Context::Pid),
            Context::Tid => Some(record::Context::Tid),
            Context::Comm => Some(record::Context::Comm),
            Context::Cpu => Some(record::Context::Cpu),
            Context::Uid => Some(record::Context::Uid),
            Context::None => None,
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
    /// Covers all your programs that run now or start later; as root, programs of all users and in containers.
    /// 'PATTERN if CONDITION' takes those events of which it holds ('oms:order_* if price > 100')
    #[arg(short = 'u', long = "user", value_name = "PATTERNS")]
    pub user: Vec<String>,
    /// An event each time that a thread executes this place in a program or library (default: COMMAND's program): a function's
    /// symbol and bytes from its begin, or an address as objdump shows it; may be repeated. A uprobe: it costs the thread
    /// microseconds, in all processes that run the file, and the event is probe:FUNCTION+OFFSET. With --hardware a trace unit
    /// finds it, if it can. Without -k, no tracepoints
    #[arg(long, value_name = "[FILE:]FUNCTION[+OFFSET]", conflicts_with_all = ["flight_recorder", "only_while", "recover"])]
    pub at: Vec<PlaceWords>,
    /// With --at: places are found by address comparators of this trace unit (pt), in COMMAND and what it starts, or in --pid; the event is
    /// hardware:place, in DIR/places. Where the unit cannot do that, they are uprobes, and why is said
    #[arg(long, value_name = "UNIT", requires = "at")]
    pub hardware: Option<String>,
    /// With -u: only events up to this level (0 to 7, or emerg, alert, crit, err, warning, notice, info, debug), or in a
    /// range: err..warning
    #[arg(long, value_name = "LEVEL", default_value = "debug", requires = "user")]
    pub level: LevelRange,
    /// With -u: what is recorded of its thread with each event; separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "pid,tid,comm,cpu",
        requires = "user"
    )]
    pub context: Vec<Context>,
    /// With -u: size of each thread's buffer, unless the program sets it; rounded up to a power of two
    #[arg(long, value_name = "SIZE", requires = "user")]
    pub user_buffer: Option<Bytes>,
    /// With -u: programs that allow it wait when a buffer is full, instead of losing events. Threads with a real-time policy
    /// never wait
    #[arg(long, requires = "user")]
    pub blocking: bool,
    /// With -u: where events go: software (the buffers of their threads), stm[:POLICY], channels of a system trace module, or
    /// ptwrite, the stream of Intel PT. PATTERN=BACKEND is for some events; the last that matches decides. docs/programs.md has more
    #[arg(long, value_name = "[PATTERN=]BACKEND", requires = "user")]
    pub backend: Vec<Backend>,
    /// Record into memory, in which the newest events overwrite the oldest. A trace (DIR/1, DIR/2, ...) is written when rtscope
    /// snapshot asks for it, when this process gets SIGUSR1, and at the end
    #[arg(long, conflicts_with_all = ["blocking", "fifo"])]
    pub flight_recorder: bool,
    /// With --flight-recorder: also write a trace when a program records this event (PROVIDER:EVENT, which needs no system call there),
    /// when the kernel's tracing is switched off (tracing-off, as cyclictest -b --tracemark does), or on SIGUSR1 (signal);
    /// may be repeated
    #[arg(long, value_name = "WHAT", requires = "flight_recorder")]
    pub snapshot_on: Vec<String>,
    /// Save at most this many traces because of --snapshot-on; 0: any number. Programs of another user than your own get at
    /// most half of those that others leave, so that nobody uses up all. Whoever asks gets his nevertheless
    #[arg(long, value_name = "N", requires = "snapshot_on", default_value_t = SNAPSHOTS)]
    pub snapshots: u32,
    /// The same for what they take on the disk (10G) [default: half of what the disk has left at the start]
    #[arg(long, value_name = "SIZE", requires = "snapshot_on")]
    pub snapshots_size: Option<DiskBytes>,
    /// Where the trace goes: a directory that does not exist yet
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "recover")]
    pub output: Option<PathBuf>,
    /// Record events of these tracepoints only if the expression is true, tested in the kernel ('sched:sched_switch:
    /// next_prio < 100'); may be repeated
    #[arg(long, value_name = "EVENT: EXPR")]
    pub filter: Vec<String>,
    /// Only events of this thread, with -u also of this process; may be repeated
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
    /// With -u: only events of processes in this cgroup and those below it (/system.slice/oms.service); may be repeated
    #[arg(long, value_name = "CGROUP", requires = "user")]
    pub cgroup: Vec<String>,
    /// With -u: only events of this user's processes (a number); may be repeated
    #[arg(long, value_name = "UID", requires = "user")]
    pub uid: Vec<u32>,
    /// Only events of these CPUs (0,2-3)
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<String>,
    /// Only events of tasks in which something of this tracker has been under way for longer than this time: a system call
    /// (syscall>10ms; not those that wait on purpose), time off the CPU (offcpu>50ms), a wait for a lock (lock>1ms), or
    /// from a wakeup until a CPU is there (wakeup>1ms). Tested in the kernel at each event; only events that eBPF records
    #[arg(long = "while", value_name = "TRACKER>TIME", conflicts_with_all = ["user", "flight_recorder", "recover"])]
    pub only_while: Option<OnlyWhile>,
    /// Size of each CPU's buffer, for each of the two recorders [default: 8M]
    #[arg(long, value_name = "SIZE")]
    pub buffer: Option<Bytes>,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Keep only the newest events: traces, metadata and what is not in a trace yet take at most this size on disk; the
    /// oldest time is removed from all streams. What was removed is counted as overwritten
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["convert_after", "flight_recorder", "recover"])]
    pub max_size: Option<DiskBytes>,
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
    /// With -k: make the trace as fast as events come, also in time that tasks want: for whoever follows a recording of a machine
    /// on which no CPU is idle
    #[arg(long, conflicts_with_all = ["convert_after", "flight_recorder", "recover"])]
    pub convert_now: bool,
    /// Which recorders of the kernel may be used
    #[arg(long, value_enum, default_value_t = RecorderArg::Auto)]
    pub by: RecorderArg,
    /// Run the threads that empty the buffers with this real-time priority (SCHED_FIFO), so that other real-time tasks do
    /// not starve them
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fifo: Option<u8>,
    #[command(flatten)]
    pub json: JsonOutput,
    /// Exit with code 6 when more than this part of the events was lost [with no SHARE: any; without this option: 50%]. Losses of
    /// programs are named by user; with --uid only those of these users count
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub fail_if_lost: Option<Share>,
    /// Finish the trace DIR of a recording that was killed
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["kernel", "user", "output", "command"])]
    pub recover: Option<PathBuf>,
    /// Start this program, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

impl RecordOptions {
    /// What they ask for.
    pub fn settings(&self) -> Result<RecordSettings, Failure> {
        let Some(target) = &self.output else {
            return Err(Failure::Usage("-o DIR is missing: the directory of the trace".to_string()));
        };
        self.refuse_unused()?;
        let snapshot_on =
            self.snapshot_on.iter().map(|cause| SnapshotCause::parse(cause, !self.user.is_empty()));
        let programs = (!self.user.is_empty()).then(|| self.programs());
        let kernel = (self.has_tracepoints() || programs.is_none()).then(|| self.tracepoints());
        Ok(RecordSettings {
            kernel,
            programs,
            command: self.command.clone(),
            command_output: self.json.of_command(),
            duration_ns: self.duration.map(|duration| duration.0),
            fifo: self.fifo,
            snapshot_on: snapshot_on.collect::<Result<_, Failure>>()?,
            snapshots: self.snapshots,
            snapshots_bytes: self.snapshots_size.map(|size| size.0),
            ring: self.max_size.map(|max_size| RingSettings {
                max_bytes: max_size.0,
                max_files: self.max_files.unwrap_or(RING_FILES),
            }),
            ..RecordSettings::of(target)
        })
    }

    fn has_tracepoints(&self) -> bool {
        !(self.kernel.is_empty() && self.at.is_empty())
    }

    fn tracepoints(&self) -> KernelSettings {
        KernelSettings {
            patterns: self.kernel.clone(),
            filters: self.filter.clone(),
            places: self.at.clone(),
            comparators: self.hardware.clone(),
            tids: self.pid.clone(),
            follow: self.follow,
            only_command: self.only_command,
            comm: self.comm.clone(),
            cpus: self.cpu.clone(),
            buffer_bytes: self.buffer.map_or(KERNEL_BUFFER_BYTES, |buffer| buffer.0),
            with_self: self.with_self,
            by_ftrace: self.by == RecorderArg::Ftrace,
            only_while: self.only_while,
            conversion: match (self.convert_now, self.convert_after) {
                (true, _) => Conversion::Now,
                (_, true) => Conversion::After,
                _ => Conversion::WhenIdle,
            },
        }
    }

    fn programs(&self) -> ProgramsSettings {
        ProgramsSettings {
            patterns: self.user.iter().flat_map(|list| patterns_of(list)).collect(),
            levels: self.level,
            processes: ProcessChoice {
                pids: self.pid.clone(),
                comm: self.comm.clone(),
                uids: self.uid.clone(),
                cgroups: self.cgroup.clone(),
                only_command: self.only_command,
            },
            context: self.context.iter().filter_map(|context| context.wanted()).collect(),
            buffer_bytes: self.user_buffer.map(|buffer| buffer.0),
            blocking: self.blocking,
            backends: self.backend.clone(),
        }
    }

    /// What asks for something of tracepoints where none are recorded: it would be ignored, and a trace of everything would look like
    /// one of what was asked for.
    fn refuse_unused(&self) -> Result<(), Failure> {
        if self.user.is_empty() || self.has_tracepoints() {
            return Ok(());
        }
        let given = [
            ("--filter", !self.filter.is_empty()),
            ("--follow", self.follow),
            ("--cpu", self.cpu.is_some()),
            ("--buffer", self.buffer.is_some()),
            ("--with-self", self.with_self),
            ("--convert-after", self.convert_after),
            ("--convert-now", self.convert_now),
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed after `rtscope watch`: one tracker, or a file. Also read from the file (`config`).

use crate::args::JsonOutput;
use crate::exit::help;
use clap::{Subcommand, ValueEnum, ValueHint};
use rtscope_event::{End, OriginKind, WaitKind};
use rtscope_session::fail_if::FailIf;
use rtscope_session::hardware::capture::EventSpec;
use rtscope_session::metrics::MetricsAddress;
use rtscope_session::units::{Bytes, DiskBytes, DurationNs, IntervalNs};
use rtscope_session::watch::TrackerLimit;
use rtscope_session::watch::actions::CommandWords;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct WatchArgs {
    #[command(subcommand)]
    pub tracker: Option<WatchCommand>,
    /// Watch as this file says (docs/watch-config.md), instead of options
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// With --config: say what is wrong with the file, and watch nothing
    #[arg(long, requires = "config")]
    pub check: bool,
}

#[derive(Debug, Subcommand)]
pub enum WatchCommand {
    /// Follow each response from its interrupt or timer to the target task, and report the late ones
    #[command(after_help = RESPONSE_EXAMPLES)]
    Response(Box<ResponseOptions>),
    /// Follow each wakeup of the target until it is on a CPU, and report the late ones
    #[command(after_help = WAKEUP_EXAMPLES)]
    Wakeup(Box<WatchOptions>),
    /// Follow each time that the target is off its CPU, say why and who ended it, and report the long ones
    #[command(after_help = OFFCPU_EXAMPLES)]
    Offcpu(Box<WatchOptions>),
    /// Follow each system call of the target from its entry to its return, say what it waited for, and report the long ones
    #[command(after_help = SYSCALL_EXAMPLES)]
    Syscall(Box<SyscallOptions>),
    /// Follow each time that the target waits for a lock of the kernel, say who wanted it and who released it, and report the long ones
    #[command(after_help = LOCK_EXAMPLES)]
    Lock(Box<WatchOptions>),
    /// Follow each handler of an interrupt from its entry to its exit, and report the long ones, with what they delayed
    #[command(after_help = IRQ_EXAMPLES)]
    Irq(Box<WatchOptions>),
    /// Follow each softirq from where it is raised to the exit of its handler, and report the long ones, with what they delayed
    #[command(after_help = SOFTIRQ_EXAMPLES)]
    Softirq(Box<WatchOptions>),
    /// Follow each request to a block device until it is completed, in its queue and in the device, and report the long ones
    #[command(after_help = BLOCK_EXAMPLES)]
    Block(Box<WatchOptions>),
    /// Follow each CPU that is asked to take another task until it does, and report what kept it: sections with preemption off
    #[command(after_help = PREEMPTOFF_EXAMPLES)]
    Preemptoff(Box<WatchOptions>),
    /// Sample each CPU, and report where interrupts were off for longer, by how late a sample comes
    #[command(after_help = IRQOFF_EXAMPLES)]
    Irqoff(Box<IrqoffOptions>),
    /// Follow any two events that belong together by a key: tracepoints of the kernel, in the kernel, or events of programs
    #[command(after_help = PAIR_EXAMPLES)]
    Pair(Box<PairOptions>),
    /// Follow each piece of work of instrumented programs from RTSCOPE_WORK_BEGIN to RTSCOPE_WORK_END, whichever threads have it
    #[command(after_help = WORK_EXAMPLES)]
    Work(Box<WatchOptions>),
}

pub const WATCH_EXAMPLES: &str = help!(
    "Example:
  rtscope watch response --task 'control*' --threshold 500us
  rtscope watch wakeup --task jackd --threshold 200us --and offcpu:5ms
  rtscope watch wakeup --task jackd --threshold 200us --print-config > jackd.toml
  rtscope watch --config jackd.toml
      The same from a file (docs/watch-config.md); with --check it is only read.

A tracker follows what happens to tasks while it happens, in the kernel; what takes longer than its
limit is reported, explained, and saved if asked for."
);

const WAKEUP_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch wakeup --task jackd --threshold 200us
      Each time that a thread of this name was woken and waited longer for a CPU: who had it instead.
  rtscope watch wakeup --threshold 5ms --snapshot-dir late/ --duration 1min
      Any task of user space, for a minute; a snapshot of the events is saved for each late wakeup.

A wakeup begins with sched_waking, by whatever woke the task, and ends when the task is on a CPU."
);

const OFFCPU_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch offcpu --task postgres --threshold 20ms
      Each time that a thread of this name was off its CPU for longer: for what it waited, who ended the
      wait, and how long it then waited for a CPU.
  rtscope watch offcpu --threshold 10ms --and wakeup:1ms -- ./server
      Start a program and watch its threads until it ends; of these times, also what was a wait for a CPU.

It begins with the switch that takes a task off its CPU, be it to wait or because others come first,
and ends when the task is on a CPU again."
);

const LOCK_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch lock --task postgres --threshold 1ms
      Each time that a thread of this name waited longer for a lock of the kernel: which kind, wanted by
      which functions in which system call, who released it, and how long it then waited for a CPU.
  rtscope watch lock --threshold 500us --and syscall:5ms -- ./server
      Start a program and watch its threads until it ends; beside it their long system calls.

It begins where the kernel says that a lock is waited for (contention_begin, Linux 5.19 and later) and
ends when the thread has it. A spin lock counts where its waiters form a queue; the kernel says nothing
of shorter waits, and nothing of locks of programs: those are waits in futex (rtscope watch offcpu)."
);

const IRQ_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch irq --threshold 100us
      Each handler of an interrupt, on any CPU, that took longer: of which device, and which threads it
      kept from running.
  rtscope watch irq --task control --threshold 20us --and softirq:50us --snapshot-dir late/
      Only handlers and softirqs that interrupted threads of this name, with a snapshot of the events.

Of devices, and of the system: the timer, calls from other CPUs. With --task, --pid, --tid or COMMAND
those that interrupted such a thread; without, all. How long an interrupt waited until its handler
began is not known here: the hardware says nothing of that."
);

const SOFTIRQ_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch softirq --threshold 1ms
      Each softirq that took longer from where it was raised until it was done, on any CPU: how long it
      waited, what ran instead, how long it ran, and which threads it kept from running.
  rtscope watch softirq --task jackd --threshold 100us --snapshot-dir late/
      Only softirqs at whose end a thread of this name was current: that is the one they interrupted.

Where softirqs run in threads (ksoftirqd, PREEMPT_RT) the thread that runs them is current."
);

const BLOCK_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch block --threshold 20ms
      Each request to a disk, by whomever, that took longer: which disk, what was asked for, how long it
      was queued, and how long the device took.
  rtscope watch block --task postgres --threshold 5ms --and offcpu:5ms --timeout 2s
      Requests that threads of this name made; beside them what these threads waited for. A request
      that a device does not answer is told while it hangs.

A request begins where it is made (block_io_start, since Linux 6.5; before that where it is queued) and
ends when all of it is done. Who made it is the task that was current then: what a file system writes
later, a thread of the kernel asks for. Not seen: the time under a limit of a cgroup, which passes before
(rtscope watch offcpu), and devices that have no requests of their own (zram, device-mapper, md)."
);

const PREEMPTOFF_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch preemptoff --threshold 200us
      Each time that a CPU was asked to take another task and went on with the old one for longer: which
      task, where in the kernel it ended, which task then had the CPU, and who else waited.
  rtscope watch preemptoff --task 'kworker*' --threshold 1ms --and irqoff:1ms --snapshot-dir late/
      Only where a thread of this name did not let go; beside it sections with interrupts off.

It begins where the kernel asks (sched_set_need_resched_tp, Linux 6.16). Before that, and where readers of
RCU can be preempted (most kernels of distributions: eBPF at that tracepoint may end them), it begins where
the waking of a real-time task asks; what the waking of others asks for is not seen then. Time that a
hypervisor takes is in it. What is long differs by kernel: one that is not preempted at all (preempt=none)
goes on to the end of a system call, or to the next place that asks. Requests that may wait for the next
tick (preempt=lazy) and CPUs that are idle are left out."
);

const WORK_EXAMPLES: &str = help!(
    "Example:
  rtscope watch work --threshold 5ms --and offcpu:2ms --snapshot-dir late/ -- ./server
      Requests that took longer than 5 ms from the thread that accepted them to the one that answered,
      with the threads in between that said RTSCOPE_WORK_STEP, and what kept them.

--task, --pid and --tid ask for the thread of the end."
);

const PAIR_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch pair --from sched:sched_process_fork --to sched:sched_process_exec \\
      --key child_pid=pid --threshold 5ms
      Each process that takes longer from its fork to its exec, with the fields of both events.
  rtscope watch pair --from irq:softirq_raise --to irq:softirq_entry --key cpu,vec --threshold 1ms
      Softirqs that wait, by CPU and vector.
  rtscope watch pair --from engine:order_in --to engine:order_out --key id --threshold 2ms
      Two events of instrumented programs (as watch response --from --to --by).

A key is of integers of 1 to 8 bytes, and of tid, pid (the process) and cpu, which every event has; a
field of such a name comes first. --task, --pid and --tid ask for the thread of the second event. Of
several beginnings with one key the last holds. At most 32768 wait at once.

Tracepoints are followed by eBPF programs of the classic kind, which can read any of them. An event
in an interrupt that comes while such a program runs on that CPU is skipped; Linux 6.7 and newer count
that, and it is reported as lost."
);

const IRQOFF_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch irqoff --threshold 200us
      Where interrupts were off for longer: which task was current, and where in the kernel they came on.
  rtscope watch irqoff --threshold 1ms --period 100us --snapshot-dir late/ -- ./server
      Only while threads of a program are current, to 100 us; with a snapshot of the events.

A timer of each CPU asks for an interrupt after each --period; one that comes late was kept out. So a
section is known to have been at least as long as is reported, and longer by less than the period; one
that is shorter than limit and period together can be missed. Each sample costs its CPU about a
microsecond, and an idle CPU is woken for it. In a virtual machine the hypervisor keeps interrupts out
as well: then no function of the kernel is named. While the idle task is current nothing is reported."
);

const SYSCALL_EXAMPLES: &str = help!(
    "Examples:
  rtscope watch syscall --task postgres --threshold 20ms
      Each system call of a thread of this name that took longer: which, with which arguments, what it
      returned, and how long it ran, waited, and waited for a CPU.
  rtscope watch syscall --threshold 10ms --calls 'f*sync,write*' --snapshot-dir late/ -- ./server
      Only these calls of a program, with a snapshot of the events.
  rtscope watch offcpu --task jackd --threshold 5ms --and syscall:5ms
      System calls beside all times off a CPU.

A call is reported when it returns, or when the watch ends; with --timeout also while it hangs. One that
a signal interrupts and the kernel begins again is two. Calls of 32-bit programs are not followed. From
Linux 7 on a call may be missed that begins or ends while another task's is being looked at; the
summary counts them."
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
  rtscope watch response --task driver --threshold 2667us --end cycle --snapshot-dir late/
      Cycles of an audio thread, from its timer until it waits for its timer again; locks that it
      waits for in between are steps.
  rtscope watch response --task postgres --threshold 20ms --begin any --end cycle --wait epoll
      Each request of a server, from whoever woke it out of epoll until it is back there.
  rtscope watch response --from audio:cycle_begin --to audio:cycle_end --threshold 3ms \\
          --snapshot-dir late/ -- ./engine
      The time between two events of a program, in each of its threads.
  rtscope watch response --from oms:order_in --to oms:order_out --by id --threshold 1ms
      The same between events with the same id, in whatever threads they are.
  rtscope watch response --threshold 300us -- ./control --period 1ms
      Start a program and watch its tasks until it ends.

A response begins at the time for which a timer was set, or at the first handler of a device
interrupt; with --begin task or any also when another task wakes the target. It ends when the
target runs (--end running), waits again (--end blocked), or waits again for what its cycle began
with (--end cycle). The rules are in docs/response-chains.md, the JSON objects in docs/json.md."
);

/// When a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EndArg {
    /// When the target is switched in
    Running,
    /// When the target goes back to waiting
    Blocked,
    /// When the target goes back to waiting for what its cycle began with (its timer, unless --begin or --irq say otherwise).
    /// Waits for anything else are steps of the cycle
    Cycle,
}

/// With what a response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BeginArg {
    /// With a device's or the system's interrupt
    Irq,
    /// With a timer
    Timer,
    /// With another task that wakes the target
    Task,
    /// With any of these
    Any,
}

impl BeginArg {
    /// The kinds of origins that it stands for.
    pub fn kinds(self) -> &'static [OriginKind] {
        match self {
            BeginArg::Irq => &[OriginKind::Irq, OriginKind::Vector],
            BeginArg::Timer => &[OriginKind::Timer],
            BeginArg::Task => &[OriginKind::Task],
            BeginArg::Any => &OriginKind::OF_RESPONSES,
        }
    }
}

impl From<EndArg> for End {
    fn from(end: EndArg) -> End {
        match end {
            EndArg::Running => End::Running,
            EndArg::Blocked => End::Blocked,
            EndArg::Cycle => End::Cycle,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct ResponseOptions {
    #[command(flatten)]
    pub watch: WatchOptions,
    /// Watch not responses, but the time from this event of instrumented programs (PROVIDER:EVENT, with * and ?) to that of --to, in
    /// the same thread. The programs do nothing for it that they would not do for rtscope record -u
    #[arg(
        long,
        value_name = "EVENT",
        requires = "to",
        conflicts_with_all = ["end", "begin", "wait", "irq", "timer", "and"]
    )]
    pub from: Option<String>,
    /// With --from: the event that ends the time
    #[arg(long, value_name = "EVENT", requires = "from")]
    pub to: Option<String>,
    /// With --from and --to: pair events with the same value of this field, in whatever threads they are; FIELD=FIELD where it has
    /// two names, several with commas between
    #[arg(long, value_name = "FIELD", requires = "from")]
    pub by: Option<String>,
    /// When a response ends
    #[arg(long, value_enum, default_value_t = EndArg::Blocked)]
    pub end: EndArg,
    /// With what a response begins, separated by commas [default: irq,timer; with --end cycle: timer]
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    pub begin: Vec<BeginArg>,
    /// With --end cycle: a cycle begins when one of these waits ends [default: sleep, poll, epoll, read, receive, accept, signal,
    /// io_uring]
    #[arg(long, value_name = "WAIT", value_delimiter = ',')]
    pub wait: Vec<WaitKind>,
    /// Watch only responses to this device interrupt (a number, or a name from /proc/interrupts); may be repeated
    #[arg(long, value_name = "N|NAME")]
    pub irq: Vec<String>,
    /// Watch only responses to timers (with --irq: also those)
    #[arg(long)]
    pub timer: bool,
}

#[derive(Debug, clap::Args)]
pub struct SyscallOptions {
    #[command(flatten)]
    pub watch: WatchOptions,
    /// Watch only these calls (fsync, 'open*', '!read'), separated by commas; with ! all others [default: all but those in which a
    /// thread waits for others or for time: futex, nanosleep, poll, select, epoll, recv, accept, wait, signals, io_uring and
    /// semaphores]
    #[arg(long, value_name = "CALLS", value_delimiter = ',')]
    pub calls: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct PairOptions {
    #[command(flatten)]
    pub watch: WatchOptions,
    /// The event with which the time begins: a tracepoint (SYSTEM:EVENT), or an event of instrumented programs (PROVIDER:EVENT, with *
    /// and ?)
    #[arg(long, value_name = "EVENT")]
    pub from: String,
    /// The event that ends it; both are tracepoints, or both are of programs
    #[arg(long, value_name = "EVENT")]
    pub to: String,
    /// The fields that have to be the same in both: FIELD, or FIELD=FIELD where it has two names, up to three with commas between
    /// [default: the thread]
    #[arg(long, value_name = "FIELD")]
    pub key: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct IrqoffOptions {
    #[command(flatten)]
    pub watch: WatchOptions,
    /// The time between two samples of a CPU, at least 20us: the resolution [default: half of the limit, from 50us to 1ms]
    #[arg(long, value_name = "TIME")]
    pub period: Option<DurationNs>,
}

/// What each tracker has.
#[derive(Debug, clap::Args)]
pub struct WatchOptions {
    /// Watch tasks with this name (with * and ?). Without --task, --pid, --tid and COMMAND: all of user space; of responses, the first
    /// such task of each chain; of what CPUs and block devices do, all of it
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Watch the tasks of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Watch this thread
    #[arg(long, value_name = "TID")]
    pub tid: Option<u32>,
    /// What takes longer than this is late (500us, 2ms, 1s)
    #[arg(long, value_name = "TIME")]
    pub threshold: DurationNs,
    /// Watch this of the same tasks at the same time, with a limit of its own (wakeup:500us, offcpu:20ms, syscall:10ms,
    /// lock:1ms, irq:100us, softirq:1ms, block:20ms, preemptoff:1ms, irqoff:1ms,
    /// response:2ms); of other tasks with their name behind it (offcpu:20ms@postgres). System calls are those that --calls has by
    /// default. May be repeated, up to seven times
    #[arg(long, value_name = "TRACKER:TIME")]
    pub and: Vec<TrackerLimit>,
    /// Tell what has not ended after this time while it is under way, with the place in the kernel where its thread is; when it ends it is
    /// reported like the rest. What began before the watch is not known. Not for responses, interrupts and softirqs, which are known when
    /// they have ended
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<DurationNs>,
    /// Take the stacks of what is late (of offcpu, syscall and lock: of the task, and of the one that woke it). SIZE: how much of a
    /// program's stack is copied to find its functions [default: 16K, at most 64K]. With offcpu each switch of the machine costs some
    /// nanoseconds more, and a copy some 30 us where it is made
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "16K")]
    pub stacks: Option<DiskBytes>,
    /// Save a snapshot for each late response in this directory: a CTF trace, trigger.json and explain.txt
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub snapshot_dir: Option<PathBuf>,
    /// With --snapshot-dir: what programs of other users than your own may take there, by what they recorded and by being late (10G). Each user
    /// has at most half of what others leave [default: half of what the disk has left at the start]
    #[arg(long, value_name = "SIZE", requires = "snapshot_dir")]
    pub snapshots_size: Option<DiskBytes>,
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
    /// With --snapshot-dir: snapshots also contain what this trace unit wrote before something was late, as rtscope hardware capture
    /// has it (intel_pt, intel_pt/cyc=1/u). It is on all the time, on all CPUs; the watch looks each 2 ms whether to stop it
    #[arg(long, value_name = "EVENT", requires = "snapshot_dir")]
    pub hardware: Option<EventSpec>,
    /// With --hardware: size of the unit's buffer of each CPU
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "hardware")]
    pub hardware_buffer: Bytes,
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
    /// Raise each limit to the worst that was seen, in the kernel: only what is worse than all before is late
    #[arg(long)]
    pub record_breakers: bool,
    /// Run this for each detection, with its record on standard input: the JSON object that --json prints. By /bin/sh -c, or a JSON array of
    /// words as it is (["logger", "-t", "late"]). At most four run at once, on rtscope's CPUs; their output goes to standard error. When
    /// the watch ends they have two seconds, and are killed
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub exec: Option<CommandWords>,
    /// Run it at most this often (10/s, 1/min); the rest is counted
    #[arg(long, value_name = "RATE", default_value = "1/s", requires = "exec")]
    pub exec_rate: IntervalNs,
    /// Print at most this many detections one by one (10/s); the rest is counted [default: all]
    #[arg(long, value_name = "RATE")]
    pub report_rate: Option<IntervalNs>,
    /// Answer GET /metrics there, as OpenMetrics: a port (of this machine only), or ADDRESS:PORT. Port 0: a free one
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<MetricsAddress>,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    #[command(flatten)]
    pub json: JsonOutput,
    /// Exit with code 4 when anything was late, and with 7 when the target never appeared
    #[arg(long)]
    pub fail_if_late: bool,
    /// Exit with code 4 when this is true of the summary: max>2ms, p99>500us, late>3; may be repeated. And with 7 when it was not
    /// measured
    #[arg(long, value_name = "FIGURE>VALUE")]
    pub fail_if: Vec<FailIf>,
    /// Exit with code 6 when events were lost
    #[arg(long)]
    pub fail_if_lost: bool,
    /// Also show every row of each list, steps that took no time, and by reason how often a response could not be followed
    #[arg(long, short)]
    pub verbose: bool,
    /// Print these options as a file for rtscope watch --config, and watch nothing
    #[arg(long)]
    pub print_config: bool,
    /// Start this program, watch its process (unless --task, --pid or --tid are given), and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

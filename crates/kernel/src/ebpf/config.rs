// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the eBPF programs are to do: what is recorded, what is followed and of whom, and what of it is counted.

use super::TracepointPair;
use rtscope_abi as abi;
use rtscope_event::{End, Glob, Irq, LateResponse, OriginKind, Pid, Tid, Tracker, WaitKind};

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct EbpfConfig {
    /// The flight recorder.
    pub recorder: Option<RecorderConfig>,
    /// What is followed, at most [`abi::RTS_INSTANCES`] at once.
    pub trackers: Vec<TrackerConfig>,
    /// What is late in trackers of which that is of use ([`Tracker::has_stacks`]) has its stacks.
    pub stacks: Option<StackConfig>,
    /// Load only these eBPF programs; empty: all that the recorder and the tracker need.
    pub only: Vec<&'static str>,
}

/// Copies of stacks of what is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackConfig {
    /// Bytes of a program's stack that are copied at most, up to [`StackConfig::MOST_BYTES`].
    pub bytes: u32,
}

impl StackConfig {
    /// What there is a place for.
    pub const MOST_BYTES: u32 = abi::RTS_STACK_BYTES;
}

/// The flight recorder's memory and its trigger.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Bytes of each bank: a power of two, at least 64 KiB. Each CPU has two; as a stream, one.
    pub bank_bytes: usize,
    /// Late responses pull the trigger.
    pub snapshot: Option<SnapshotConfig>,
    /// A reader empties the banks all the time; else they are written in a circle.
    pub stream: Option<StreamConfig>,
}

impl RecorderConfig {
    pub(super) fn banks_each(&self) -> usize {
        if self.stream.is_some() { 1 } else { abi::RTS_BANKS as usize }
    }
}

/// A stream's own settings.
#[derive(Clone, Debug, Default)]
pub struct StreamConfig {
    /// System calls whose paths are wanted: the number, and what `struct rts_config` has in `paths` for it.
    pub paths: Vec<(usize, u8)>,
    /// System calls that are recorded themselves: the number, and what `struct rts_config` has in `calls` for it. Only where
    /// [`crate::syscalls::are_not_preempted`].
    pub calls: Vec<(usize, u8)>,
    /// Our own process's calls are recorded, too.
    pub with_self: bool,
    /// Only what is of tasks in which something that a tracker follows has been under way for longer than this; 0: all.
    pub while_ns: u64,
}

/// When a late response becomes a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotConfig {
    /// How long recording goes on after a detection.
    pub post_ns: u64,
    /// Least time between two snapshots.
    pub interval_ns: u64,
}

/// A tracker with its limit and its targets: an instance.
#[derive(Clone, Debug)]
pub struct TrackerConfig {
    /// Which tasks.
    pub target: Target,
    /// What takes longer than this is late.
    pub threshold_ns: u64,
    /// What is late pulls the trigger of the flight recorder.
    pub snapshot: bool,
    /// What is late is the limit from then on.
    pub records: bool,
    /// What it follows.
    pub follows: Follows,
    /// By what its operations are counted apart; `None`: all together.
    pub counted_by: Option<CountedBy>,
}

impl TrackerConfig {
    /// Whether something that has begun and not ended is this instance's: what its tracker follows, of its targets. `is_kernels`: the tracker follows
    /// tasks, and this one is a kernel thread.
    #[must_use]
    pub fn means(&self, open: &LateResponse, is_kernels: bool) -> bool {
        let is_its_call = match &self.follows {
            Follows::Syscalls(numbers) => numbers.contains(&(open.chain.origin.id as usize)),
            _ => true,
        };
        self.follows.tracker() == open.tracker
            && is_its_call
            && self.target.is(open.pid, open.tid, open.comm.as_bytes(), is_kernels)
    }
}

/// By what the operations of a tracker are counted apart, each in a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedBy {
    /// By whom or what.
    pub id: CellId,
    /// And by kind: system calls and locks by the call's number, requests by what they ask for, all else by what it begins with.
    pub kind: bool,
    /// Cells of each CPU, which all such trackers share; the largest number counts. A power of two, 32 bytes each.
    pub cells: u32,
}

/// What the id in a key is, as `enum rts_cell_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellId {
    /// One for all: 0.
    All = abi::RTS_CELL_ALL as isize,
    /// Thread.
    Thread = abi::RTS_CELL_THREAD as isize,
    /// Process.
    Process = abi::RTS_CELL_PROCESS as isize,
    /// What it begins with: an interrupt, a softirq, a system call, a disk.
    Origin = abi::RTS_CELL_ORIGIN as isize,
    /// The CPU where it ended.
    Cpu = abi::RTS_CELL_CPU as isize,
    /// The cgroup of the task, in the default hierarchy.
    Cgroup = abi::RTS_CELL_CGROUP as isize,
    /// The device of a request, or of the file of a system call (`dev_t`).
    Device = abi::RTS_CELL_DEVICE as isize,
    /// The first part of a pair's key, its low 32 bits.
    Field = abi::RTS_CELL_FIELD as isize,
}

/// What a tracker follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Responses. All instances follow the same chains.
    Responses(ResponseConfig),
    /// From a wakeup until the task is on a CPU.
    Wakeups,
    /// From leaving a CPU until the task is on one again.
    OffCpu,
    /// System calls with these numbers, from entry to return.
    Syscalls(Vec<usize>),
    /// From where a task begins to wait for a lock of the kernel until it has it.
    Locks,
    /// Handlers of interrupts, from entry to exit.
    Irqs,
    /// Softirqs, from where they are raised to the exit of their handlers.
    Softirqs,
    /// Requests to block devices, from where they are made until they are completed.
    Blocks,
    /// From where a CPU is asked to take another task until it does.
    PreemptOff,
    /// From one tracepoint to another one. One instance at most.
    Pair(Box<TracepointPair>),
    /// How late samples come that are this many nanoseconds apart. All instances have the shortest time of them.
    IrqOff(u64),
}

impl Follows {
    /// The tracker.
    #[must_use]
    pub fn tracker(&self) -> Tracker {
        match self {
            Follows::Responses(_) => Tracker::Response,
            Follows::Wakeups => Tracker::Wakeup,
            Follows::OffCpu => Tracker::Offcpu,
            Follows::Syscalls(_) => Tracker::Syscall,
            Follows::Locks => Tracker::Lock,
            Follows::Irqs => Tracker::Irq,
            Follows::Softirqs => Tracker::Softirq,
            Follows::Blocks => Tracker::Block,
            Follows::PreemptOff => Tracker::Preemptoff,
            Follows::IrqOff(_) => Tracker::Irqoff,
            Follows::Pair(_) => Tracker::Pair,
        }
    }
}

/// Which responses the response tracker follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseConfig {
    /// When a response ends: [`End::Running`], [`End::Blocked`] or [`End::Cycle`].
    pub end: End,
    /// With which origins responses begin.
    pub origins: OriginFilter,
    /// With waits of which kinds a cycle may begin ([`End::Cycle`]).
    pub sources: Vec<WaitKind>,
}

/// Whose responses count.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Tasks with a name that matches. Neither name, process nor thread: all user-space tasks; of what CPUs and block
    /// devices do, all of it.
    pub name: Option<Glob>,
    /// Tasks of this process.
    pub pid: Option<Pid>,
    /// This thread.
    pub tid: Option<Tid>,
    /// It is a child of ours that has not begun to execute COMMAND: until then it does not count.
    pub is_command: bool,
}

impl Target {
    /// As the kernel judges it (`is_target()` in bpf/core/target.bpf.h).
    fn is(&self, pid: Pid, tid: Tid, comm: &[u8], is_kernels: bool) -> bool {
        let is_named = match &self.name {
            Some(name) => name.matches(comm),
            None => self.pid.is_some() || self.tid.is_some() || !is_kernels,
        };
        is_named && self.pid.is_none_or(|wanted| wanted == pid) && self.tid.is_none_or(|wanted| wanted == tid)
    }
}

/// Until they wait again; from outside the tasks.
impl Default for ResponseConfig {
    fn default() -> ResponseConfig {
        ResponseConfig { end: End::Blocked, origins: OriginFilter::default(), sources: Vec::new() }
    }
}

/// Origins that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginFilter {
    /// Their kinds.
    pub kinds: Vec<OriginKind>,
    /// Of device interrupts only these, at most 16; empty: any.
    pub irqs: Vec<Irq>,
}

/// Timers, interrupts and vectors: all that comes from outside the tasks.
impl Default for OriginFilter {
    fn default() -> OriginFilter {
        OriginFilter { kinds: vec![OriginKind::Timer, OriginKind::Irq, OriginKind::Vector], irqs: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged_as_in_the_kernel() {
        let of = |name: Option<&str>, pid: Option<u32>, tid: Option<u32>| Target {
            name: name.map(|name| Glob::new(name).expect("a pattern")),
            pid: pid.map(Pid),
            tid: tid.map(Tid),
            is_command: false,
        };
        let is = |target: Target, is_kernels| target.is(Pid(5), Tid(6), b"kworker/0", is_kernels);
        assert!(is(of(None, None, None), false), "a task of user space, or what a device does");
        assert!(!is(of(None, None, None), true));
        assert!(is(of(Some("kw*"), None, None), true) && is(of(None, Some(5), None), true));
        for other in [of(Some("x*"), None, None), of(None, Some(6), None), of(Some("kw*"), None, Some(5))] {
            assert!(!is(other, false));
        }
    }
}

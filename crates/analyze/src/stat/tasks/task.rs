// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One task: its state, and what has been added up so far.

use super::super::Intervals;
use super::super::calls::Calls;
use super::super::happening::CallId;
use rtscope_event::{Comm, CpuId, TaskState};

/// Why a task is not runnable, as its state says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sleep {
    /// The wait began before the recording.
    #[default]
    Unknown,
    /// `TASK_INTERRUPTIBLE`
    Interruptible,
    /// `TASK_UNINTERRUPTIBLE`
    Uninterruptible,
    /// `TASK_RTLOCK_WAIT`: a spinlock on PREEMPT_RT.
    Lock,
    /// Stopped or traced.
    Stopped,
    /// `TASK_PARKED`
    Parked,
    /// A kernel thread that has nothing to do (`TASK_IDLE`).
    Idle,
}

impl Sleep {
    /// By the kernel's `TASK_*` (include/linux/sched.h).
    fn of(state: TaskState) -> Sleep {
        const NOLOAD: u32 = 0x400;
        match state.0 {
            _ if state.waits_for_lock() => Sleep::Lock,
            bits if bits & 0x2 != 0 && bits & NOLOAD != 0 => Sleep::Idle,
            bits if bits & 0x2 != 0 => Sleep::Uninterruptible,
            bits if bits & 0x1 != 0 => Sleep::Interruptible,
            bits if bits & 0xc != 0 => Sleep::Stopped,
            bits if bits & 0x40 != 0 => Sleep::Parked,
            _ => Sleep::Unknown,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Sleep::Unknown => "unknown",
            Sleep::Interruptible => "interruptible",
            Sleep::Uninterruptible => "uninterruptible",
            Sleep::Lock => "spinlock",
            Sleep::Stopped => "stopped",
            Sleep::Parked => "parked",
            Sleep::Idle => "idle",
        }
    }
}

/// What a task waits in: its state, and the system call that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wait {
    pub(super) call: Option<CallId>,
    pub(super) sleep: Sleep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Unknown,
    /// It was there when the recording began; in which state, its first event tells.
    There {
        since_ns: i64,
    },
    Running {
        since_ns: i64,
        cpu: CpuId,
    },
    Runnable {
        since_ns: i64,
        /// It left its CPU without waiting for anything.
        preempted: bool,
    },
    Blocked {
        since_ns: i64,
        wait: Wait,
    },
}

/// When a system call that ends began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// That is not recorded.
    Unknown,
    /// Before what is counted.
    Earlier,
    /// Then.
    At(i64),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) tid: u32,
    pub(super) pid: Option<u32>,
    pub(super) comm: Comm,
    pub(super) kernel: bool,
    pub(super) ended: bool,
    pub(super) state: State,
    /// Somebody woke it while it ran.
    woken: bool,
    /// The system call that it is in, and since when.
    call: Option<(CallId, i64)>,
    /// That call began before what is counted.
    call_is_older: bool,
    pub(super) running: Intervals,
    /// Waits for a CPU after having been woken.
    pub(super) woken_wait: Intervals,
    /// Waits for a CPU after having been kept from going on.
    pub(super) preempted_wait: Intervals,
    pub(super) blocked: Vec<(Wait, Intervals)>,
    pub(super) wakeups: u64,
    pub(super) migrations: u64,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
    pub(super) calls: Vec<(CallId, Calls)>,
}

/// The entry of a key in a short list.
fn entry<K: Copy + PartialEq, V: Default>(list: &mut Vec<(K, V)>, key: K) -> &mut V {
    let place = list.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        list.push((key, V::default()));
        list.len() - 1
    });
    &mut list[place].1
}

impl Task {
    pub(super) fn new(tid: u32) -> Task {
        Task { tid, ..Task::default() }
    }

    /// It leaves its CPU, on which it has run since the beginning if that is given.
    pub(super) fn leave(
        &mut self,
        (since_beginning, now_ns): (Option<i64>, i64),
        cpu: CpuId,
        state: TaskState,
        preempt: bool,
    ) {
        if let State::Running { since_ns, cpu: known } = self.state {
            if known == cpu {
                self.running.add(since_ns, now_ns);
            }
        }
        if let (State::There { .. } | State::Unknown, Some(since_ns)) = (self.state, since_beginning) {
            self.running.add(since_ns, now_ns);
        }
        // As the kernel counts nivcsw: who stays runnable did not wait for anything.
        self.state = if preempt || state == TaskState::RUNNABLE {
            self.involuntary += 1;
            State::Runnable { since_ns: now_ns, preempted: true }
        } else {
            self.voluntary += 1;
            let call = self.call.map(|(call, _)| call);
            State::Blocked { since_ns: now_ns, wait: Wait { call, sleep: Sleep::of(state) } }
        };
    }

    /// Somebody wakes it; `new`: for the first time.
    pub(super) fn woken(&mut self, now_ns: i64, new: bool) {
        match self.state {
            State::Running { .. } => self.woken = true,
            // Somebody was faster.
            State::Runnable { .. } => {}
            State::Blocked { since_ns, wait } => {
                entry(&mut self.blocked, wait).add(since_ns, now_ns);
                self.wakeups += 1;
                self.runnable(now_ns);
            }
            State::There { since_ns } => {
                entry(&mut self.blocked, Wait::default()).add(since_ns, now_ns);
                self.wakeups += 1;
                self.runnable(now_ns);
            }
            State::Unknown => {
                self.wakeups += u64::from(!new);
                self.runnable(now_ns);
            }
        }
    }

    fn runnable(&mut self, since_ns: i64) {
        self.woken = false;
        self.state = State::Runnable { since_ns, preempted: false };
    }

    /// It gets a CPU.
    pub(super) fn come(&mut self, now_ns: i64, cpu: CpuId) {
        match self.state {
            // Nobody woke it since the beginning: it was runnable.
            State::Runnable { since_ns, preempted: true } | State::There { since_ns } => {
                self.preempted_wait.add(since_ns, now_ns);
            }
            State::Runnable { since_ns, preempted: false } => {
                self.woken_wait.add(since_ns, now_ns);
            }
            // Its waking had an earlier time than its leaving: see the module.
            State::Blocked { since_ns, .. } if self.woken => {
                self.wakeups += 1;
                self.woken_wait.add(since_ns, now_ns);
            }
            // Its waking was lost.
            State::Blocked { since_ns, wait } => {
                entry(&mut self.blocked, wait).add(since_ns, now_ns);
            }
            State::Running { .. } | State::Unknown => {}
        }
        self.woken = false;
        self.state = State::Running { since_ns: now_ns, cpu };
    }

    /// It was not seen to leave this CPU.
    pub(super) fn forget_running(&mut self, on: CpuId) {
        if matches!(self.state, State::Running { cpu, .. } if cpu == on) {
            self.state = State::Unknown;
        }
    }

    /// From this moment on nobody saw what it did.
    pub(super) fn lose(&mut self, at_ns: i64, on: CpuId) {
        if let State::Running { since_ns, cpu } = self.state {
            if cpu == on {
                if at_ns > since_ns {
                    self.running.add(since_ns, at_ns);
                }
                self.state = State::Unknown;
            }
        }
    }

    /// The recording is over.
    pub(super) fn settle(&mut self, end_ns: i64) {
        match self.state {
            State::Running { since_ns, .. } => {
                self.running.add(since_ns, end_ns);
            }
            State::Runnable { since_ns, preempted: true } => {
                self.preempted_wait.add(since_ns, end_ns);
            }
            State::Runnable { since_ns, preempted: false } => {
                self.woken_wait.add(since_ns, end_ns);
            }
            State::Blocked { since_ns, wait } => {
                entry(&mut self.blocked, wait).add(since_ns, end_ns);
            }
            State::There { .. } | State::Unknown => {}
        }
        self.state = State::Unknown;
    }

    /// Events are missing: it may have been woken, have run and waited again, have left its system call. On a CPU whose events are all
    /// there it still runs.
    pub(super) fn doubt(&mut self) {
        if !matches!(self.state, State::Running { .. }) {
            self.state = State::Unknown;
        }
        self.call = None;
        self.woken = false;
    }

    /// What it did until now does not count; the state that it is in does, from now on.
    pub(super) fn count_since(&mut self, now_ns: i64) {
        if let State::There { since_ns }
        | State::Running { since_ns, .. }
        | State::Runnable { since_ns, .. }
        | State::Blocked { since_ns, .. } = &mut self.state
        {
            *since_ns = now_ns.max(*since_ns);
        }
        *self = Task {
            tid: self.tid,
            pid: self.pid,
            comm: self.comm,
            kernel: self.kernel,
            ended: self.ended,
            state: self.state,
            woken: self.woken,
            call: self.call,
            call_is_older: self.call.is_some(),
            ..Task::default()
        };
    }

    pub(super) fn enter_call(&mut self, call: CallId, now_ns: i64, returns: bool) {
        entry(&mut self.calls, call).begin();
        self.call = returns.then_some((call, now_ns));
        self.call_is_older = false;
    }

    pub(super) fn exit_call(&mut self, call: CallId, now_ns: i64, ret: Option<i64>) -> Begun {
        let Some((_, since_ns)) = self.call.take().filter(|(begun, _)| *begun == call) else {
            return Begun::Unknown;
        };
        if self.call_is_older {
            return Begun::Earlier;
        }
        entry(&mut self.calls, call).end(since_ns, now_ns, ret);
        Begun::At(since_ns)
    }

    /// Adds the figures of another.
    pub(super) fn merge(&mut self, other: &Task) {
        self.running.merge(&other.running);
        self.woken_wait.merge(&other.woken_wait);
        self.preempted_wait.merge(&other.preempted_wait);
        for (wait, blocked) in &other.blocked {
            entry(&mut self.blocked, *wait).merge(blocked);
        }
        self.wakeups += other.wakeups;
        self.migrations += other.migrations;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
        for (call, calls) in &other.calls {
            entry(&mut self.calls, *call).merge(calls);
        }
    }
}

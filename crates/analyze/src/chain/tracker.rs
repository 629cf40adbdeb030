// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state machine. Read it beside `docs/response-chains.md`: the order of the functions is the order of the page.
//! What chain a context has is in `context`.

use super::config::{Config, EndCondition, Target};
use super::growing::GrowingChain;
use super::state::{
    Cpu, HrtimerSlot, IrqSlot, Link, Raise, SOFTIRQ_SLOTS, Sched, SoftirqSlot, Task, VectorSlot, Wait,
};
use rtscope_event::{
    Chain, Comm, CpuId, End, Event, EventKind, Glob, MonotonicNs, Origin, OriginKind, Pid, StepKind,
    TaskState, Tid, VectorKind,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// A response that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The thread that responded.
    pub tid: Tid,
    /// How it ended.
    pub end: End,
    /// When it ended.
    pub end_ns: MonotonicNs,
    /// The CPU on which it ended.
    pub cpu: CpuId,
    /// It took longer than the threshold.
    pub late: bool,
    /// From where to where, step by step.
    pub chain: Chain,
}

impl fmt::Display for Response {
    /// One line, as the test vectors have it: `tid=7 end=blocked at=900/1 origin=irq:36@100/0 handler:36=20/0 ...`;
    /// a time or duration is followed by its CPU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Response { tid, end, end_ns, cpu, chain, .. } = self;
        let Origin { time_ns, id, cpu: origin_cpu, .. } = chain.origin;
        write!(f, "tid={tid} end={} at={}/{cpu} ", end.name(), end_ns.0)?;
        write!(f, "origin={}:{id}@{}/{origin_cpu}", chain.origin.kind.name(), time_ns.0)?;
        for step in &chain.steps {
            write!(
                f,
                " {}:{}={}/{}",
                step.kind.name().replace(' ', "-"),
                step.id,
                step.duration_ns,
                step.cpu
            )?;
        }
        if chain.merged > 0 {
            write!(f, " merged={}", chain.merged)?;
        }
        for other in &chain.others {
            write!(f, " other={}:{}@{}", other.kind.name(), other.id, other.time_ns.0)?;
        }
        if chain.busy {
            f.write_str(" busy")?;
        }
        if self.late { f.write_str(" late") } else { Ok(()) }
    }
}

/// What the tracker counted, in the words of `struct rts_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Responses that ended.
    pub seen: u64,
    /// Of them, how many were late.
    pub late: u64,
    /// Responses that the origin filter left out.
    pub filtered: u64,
    /// Origins that were merged into the chains of these responses.
    pub merged: u64,
    /// Switch-ins of a target whose wakeup no interrupt or timer could be linked to.
    pub unlinked: u64,
    /// Wakeups that met a task which had not left its CPU.
    pub busy: u64,
    /// Interrupt states found open where they cannot be.
    pub healed: u64,
    /// Chains that had too many steps.
    pub folded: u64,
    /// Branches not followed because their chain was full.
    #[serde(default)]
    pub too_long: u64,
    /// Switch-ins of a target that the kernel did not report. Where the wakeup was not reported either, there is no response.
    #[serde(default)]
    pub hidden: u64,
    /// Cycles that were given up, since the wait that they began with did not come back.
    #[serde(default)]
    pub abandoned: u64,
}

/// A chain that has waited longer came with an IPI that was never delivered; what arrives now is another one.
const IPI_FLIGHT_MAX_NS: u64 = 10_000_000;

/// The replayable twin of the tracker in the kernel.
#[derive(Clone, Debug)]
pub struct Tracker {
    pub(super) config: Config,
    pub(super) cpus: BTreeMap<CpuId, Cpu>,
    pub(super) tasks: HashMap<Tid, Task>,
    /// Chains of work items that were queued and have not begun, by address.
    pub(super) works: HashMap<u64, GrowingChain>,
    pub(super) counters: Counters,
}

impl Tracker {
    /// A tracker that knows nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Tracker {
        Tracker {
            config,
            cpus: BTreeMap::new(),
            tasks: HashMap::new(),
            works: HashMap::new(),
            counters: Counters::default(),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Says what is known of a task from elsewhere (a state dump).
    pub fn prime_task(&mut self, tid: Tid, comm: Option<Comm>, pid: Option<Pid>, kthread: Option<bool>) {
        let task = self.tasks.entry(tid).or_default();
        task.pid = pid.or(task.pid);
        task.comm = comm.or(task.comm);
        task.kthread = kthread.or(task.kthread);
    }

    /// Notes that `tid` runs on `cpu` now, unless an event has already shown which task runs there.
    pub fn prime_running(&mut self, cpu: CpuId, tid: Tid) {
        let slots = self.cpus.entry(cpu).or_default();
        if slots.current.is_some() {
            return;
        }
        slots.current = Some(tid);
        if tid == Tid(0) {
            return;
        }
        let task = self.tasks.entry(tid).or_default();
        if task.sched == Sched::Unknown {
            task.sched = Sched::Running;
        }
    }

    /// Takes in one event; `out` gets the responses that it ends. Events must come in time order.
    pub fn feed(&mut self, event: &Event, out: &mut dyn FnMut(Response)) {
        let (cpu, t) = (event.cpu, event.time);
        match &event.kind {
            EventKind::SchedSwitch { .. } => self.sched_switch(event, out),
            EventKind::SchedWaking { tid, kthread, wait, .. }
            | EventKind::SchedWakeupNew { tid, kthread, wait, .. } => {
                self.sched_waking((cpu, t), *tid, *kthread, *wait, out);
            }
            EventKind::ProcessFork { child_tid, child_pid, child_comm, .. } => {
                let (comm, pid) = (Some(*child_comm), Some(*child_pid));
                self.tasks.insert(*child_tid, Task { comm, pid, ..Task::default() });
            }
            EventKind::ProcessExec { tid, old_tid, .. } if tid != old_tid => self.exec(cpu, *tid, *old_tid),
            EventKind::TaskRename { tid, pid, new_comm, .. } => self.task_rename(*tid, *pid, *new_comm),
            EventKind::SoftirqRaise { vec } => self.softirq_raise(cpu, t, *vec),
            EventKind::IpiSend { target_cpu, call, .. } => self.ipi_send(cpu, t, *target_cpu, *call),
            EventKind::IpiSendMask { targets, call, .. } => {
                targets.cpus().for_each(|target| self.ipi_send(cpu, t, target, *call));
            }
            EventKind::WorkQueue { work, .. } => self.work_queue(cpu, t, *work),
            EventKind::WorkStart { work, .. } => self.work_start(cpu, t, *work),
            EventKind::WorkEnd { .. } => self.work_end(cpu),
            EventKind::VectorEntry { kind, .. } => self.vector_entry(cpu, t, *kind),
            EventKind::SoftirqEntry { vec } => self.softirq_entry(cpu, t, *vec),
            kind => self.cpus.entry(cpu).or_default().slot_event(t, kind),
        }
    }

    /// A thread that is not the leader called exec: it goes on under the leader's tid.
    fn exec(&mut self, cpu: CpuId, tid: Tid, old_tid: Tid) {
        self.tasks.remove(&old_tid);
        let task = self.tasks.entry(tid).or_default();
        task.sched = Sched::Running;
        task.link = Link::None;
        self.cpus.entry(cpu).or_default().current = Some(tid);
    }

    pub(super) fn is_target(&self, tid: Tid) -> bool {
        let task = self.tasks.get(&tid);
        let named =
            |glob: &Glob| task.and_then(|task| task.comm).is_some_and(|comm| glob.matches(comm.as_bytes()));
        match &self.config.target {
            Target::AnyUser => task.is_some_and(|task| task.kthread == Some(false)),
            Target::Comm(glob) => named(glob),
            Target::Process { pid, comm } => {
                task.is_some_and(|task| task.pid == Some(*pid)) && comm.as_ref().is_none_or(named)
            }
            Target::Tids(tids) => tids.contains(&tid),
        }
    }

    pub(super) fn push(
        &mut self,
        chain: &mut GrowingChain,
        kind: StepKind,
        id: u32,
        cpu: CpuId,
        t: MonotonicNs,
    ) {
        self.counters.folded += u64::from(chain.push(kind, id, cpu, t));
    }

    fn vector_entry(&mut self, cpu: CpuId, t: MonotonicNs, kind: VectorKind) {
        let slots = self.cpus.entry(cpu).or_default();
        slots.end_linger();
        slots.hrtimer = None;
        let mut chain = slots.ipi_of(kind).filter(|chain| t <= chain.last().plus(IPI_FLIGHT_MAX_NS));
        if let Some(chain) = &mut chain {
            self.push(chain, StepKind::Ipi, kind.number(), cpu, t);
        }
        self.cpus.entry(cpu).or_default().vector = Some(VectorSlot { kind, entry: t, chain });
    }

    fn softirq_raise(&mut self, cpu: CpuId, t: MonotonicNs, vec: u32) {
        let context = self.context(cpu, t);
        let raises = &mut self.cpus.entry(cpu).or_default().raises;
        match (raises.get_mut(&vec), context) {
            (Some(Raise { chain: Some(waiting) }), Some(chain)) => {
                waiting.merge(chain);
            }
            (Some(Raise { chain: Some(_) }), None) => {}
            (_, chain) => {
                raises.insert(vec, Raise { chain });
            }
        }
    }

    fn softirq_entry(&mut self, cpu: CpuId, t: MonotonicNs, vec: u32) {
        let slots = self.cpus.entry(cpu).or_default();
        slots.end_linger();
        let tid = slots.current;
        let mut chain = slots.raises.remove(&vec).and_then(|raise| raise.chain);
        if let Some(chain) = &mut chain {
            self.push(chain, StepKind::SoftirqWait, vec, cpu, t);
        }
        let slots = self.cpus.entry(cpu).or_default();
        slots.softirqs.retain(|slot| slot.tid != tid);
        if slots.softirqs.len() < SOFTIRQ_SLOTS {
            slots.softirqs.push(SoftirqSlot { vec, tid, chain, hrtimer: None });
        }
    }

    fn ipi_send(&mut self, cpu: CpuId, t: MonotonicNs, target: CpuId, call: bool) {
        if target == cpu {
            return;
        }
        let chain = self.context(cpu, t).filter(|chain| chain.origin().kind != OriginKind::Task);
        let Some(chain) = chain else { return };
        let slots = self.cpus.entry(target).or_default();
        let pending = if call { &mut slots.ipi_call } else { &mut slots.ipi_reschedule };
        pending.get_or_insert(chain);
    }

    fn sched_switch(&mut self, event: &Event, out: &mut dyn FnMut(Response)) {
        let EventKind::SchedSwitch {
            prev_tid,
            prev_state,
            preempt,
            prev_kthread,
            next_tid,
            next_kthread,
            prev_wait,
            prev_wait_on,
            ..
        } = event.kind
        else {
            return;
        };
        let (cpu, t) = (event.cpu, event.time);
        let slots = self.cpus.entry(cpu).or_default();
        self.counters.healed += u64::from(slots.heal());
        let locked = !preempt && prev_state.waits_for_lock();
        let blocked = !preempt && prev_state != TaskState::RUNNABLE && !locked;
        slots.prev_leaves(prev_tid, blocked);
        slots.current = Some(next_tid);
        if prev_tid != Tid(0) {
            let task = self.tasks.entry(prev_tid).or_default();
            task.kthread = Some(prev_kthread);
            if blocked {
                task.wait = Wait::of(prev_wait, prev_state, prev_wait_on);
            }
            if blocked && prev_state.is_dead() {
                self.tasks.remove(&prev_tid);
            } else {
                let sched = if locked {
                    Sched::Locked
                } else if blocked {
                    Sched::Blocked
                } else {
                    Sched::Runnable
                };
                self.switch_out(cpu, t, prev_tid, sched, out);
            }
        }
        if next_tid != Tid(0) {
            self.tasks.entry(next_tid).or_default().kthread = Some(next_kthread);
            self.switch_in(cpu, t, next_tid, out);
        }
    }

    fn switch_out(
        &mut self,
        cpu: CpuId,
        t: MonotonicNs,
        tid: Tid,
        sched: Sched,
        out: &mut dyn FnMut(Response),
    ) {
        let target = self.is_target(tid);
        let task = self.tasks.entry(tid).or_default();
        let was = std::mem::replace(&mut task.sched, sched);
        let link = std::mem::take(&mut task.link);
        self.counters.hidden += u64::from(target && !matches!(was, Sched::Running | Sched::Unknown));
        let mut link = self.arrived_unseen(cpu, t, tid, link);
        // Woken while it ran, and it was not about to leave.
        if sched != Sched::Blocked {
            link = self.ran_already(tid, cpu, link, out);
        }
        let link = match (link, sched == Sched::Blocked) {
            (Link::Running(mut chain), false) => {
                self.push(&mut chain, StepKind::Run, tid.0, cpu, t);
                Link::Preempted(chain)
            }
            (Link::Running(chain), true) if chain.is_busy() => Link::Ended { chain, at: t, cpu },
            (Link::Running(chain), true) => self.end_blocked(tid, chain, t, cpu, out),
            (_, true) => Link::None,
            (other, false) => other,
        };
        self.tasks.entry(tid).or_default().link = link;
    }

    /// A task that leaves has been running. Was it never seen to come, the kernel hid that switch.
    fn arrived_unseen(&mut self, cpu: CpuId, t: MonotonicNs, tid: Tid, link: Link) -> Link {
        let (Link::Waking(mut chain) | Link::Preempted(mut chain) | Link::Waiting(mut chain)) = link else {
            return link;
        };
        if self.config.end == EndCondition::Running && self.is_target(tid) {
            return Link::None;
        }
        self.push(&mut chain, StepKind::HiddenSwitch, tid.0, cpu, t);
        Link::Running(chain)
    }

    fn switch_in(&mut self, cpu: CpuId, t: MonotonicNs, tid: Tid, out: &mut dyn FnMut(Response)) {
        let target = self.is_target(tid);
        let task = self.tasks.entry(tid).or_default();
        let locked = std::mem::replace(&mut task.sched, Sched::Running) == Sched::Locked;
        let unlinked = std::mem::take(&mut task.unlinked);
        let link = match std::mem::take(&mut task.link) {
            // Its waking was not seen, or raced with its leaving.
            Link::Waiting(chain) => self.end_wait(tid, chain, cpu, t, false),
            other => other,
        };
        let task = self.tasks.entry(tid).or_default();
        let (mut chain, step, ends) = match link {
            Link::None => {
                self.counters.unlinked += u64::from(target && unlinked);
                return;
            }
            Link::Waking(chain) => (chain, StepKind::Wakeup, true),
            Link::Preempted(chain) => {
                let busy = chain.is_busy();
                (chain, if locked { StepKind::LockWait } else { StepKind::Preempted }, busy)
            }
            Link::Ended { mut chain, .. } => {
                chain.not_busy();
                (chain, StepKind::Wakeup, true)
            }
            // A switch-out was missed: the next run step covers the time since.
            running @ Link::Running(_) => {
                task.link = running;
                return;
            }
            Link::Waiting(_) => return,
        };
        self.push(&mut chain, step, tid.0, cpu, t);
        if ends && target && self.config.end == EndCondition::Running {
            self.complete(tid, End::Running, cpu, chain, out);
        } else {
            self.tasks.entry(tid).or_default().link = Link::Running(chain);
        }
    }

    fn task_rename(&mut self, tid: Tid, pid: Pid, comm: Comm) {
        let was = self.is_target(tid);
        let task = self.tasks.entry(tid).or_default();
        (task.comm, task.pid) = (Some(comm), Some(pid));
        // What one that becomes a target has is no cycle: it has no source.
        let is = self.is_target(tid);
        if was && !is || !was && is && self.config.end == EndCondition::Cycle {
            self.tasks.entry(tid).or_default().link = Link::None;
        }
    }

    /// `tid` blocked at `at` with a chain: a response if it is a target and that is the end asked for.
    pub(super) fn end_blocked(
        &mut self,
        tid: Tid,
        mut chain: GrowingChain,
        at: MonotonicNs,
        cpu: CpuId,
        out: &mut dyn FnMut(Response),
    ) -> Link {
        if self.is_cyclic(tid) {
            return self.block_in_cycle(tid, chain, at, cpu, out);
        }
        if self.config.end == EndCondition::Blocked && self.is_target(tid) {
            self.push(&mut chain, StepKind::Run, tid.0, cpu, at);
            self.complete(tid, End::Blocked, cpu, chain, out);
            return Link::None;
        }
        // Until it runs, it was over at once: it ran when it was woken.
        self.ran_already(tid, cpu, Link::Running(chain), out);
        Link::None
    }

    pub(super) fn complete(
        &mut self,
        tid: Tid,
        end: End,
        cpu: CpuId,
        chain: GrowingChain,
        out: &mut dyn FnMut(Response),
    ) {
        let end_ns = chain.last();
        let chain = chain.finish();
        if !self.config.origins.accepts(&chain.origin) {
            self.counters.filtered += 1;
            return;
        }
        let late = chain.duration_ns() > self.config.threshold_ns;
        self.counters.seen += 1;
        self.counters.merged += u64::from(chain.merged);
        self.counters.late += u64::from(late);
        out(Response { tid, end, end_ns, cpu, late, chain });
    }
}

impl Cpu {
    /// The events that only set or clear a slot.
    fn slot_event(&mut self, t: MonotonicNs, kind: &EventKind) {
        match kind {
            EventKind::IrqHandlerEntry { irq } => {
                self.irq = Some(IrqSlot { irq: *irq, entry: t, linger: false });
                self.hrtimer = None;
            }
            EventKind::IrqHandlerExit { ret, .. } => {
                const IRQ_WAKE_THREAD: i32 = 2;
                match &mut self.irq {
                    Some(slot) if ret & IRQ_WAKE_THREAD != 0 => slot.linger = true,
                    slot => *slot = None,
                }
            }
            EventKind::VectorExit { .. } => {
                self.vector = None;
                self.hrtimer = None;
            }
            EventKind::HrtimerExpireEntry { softexpires_ns, expires_ns, .. } => {
                *self.hrtimer_slot() =
                    Some(HrtimerSlot { softexpires: *softexpires_ns, expires: *expires_ns, entry: t });
            }
            EventKind::HrtimerExpireExit { .. } => *self.hrtimer_slot() = None,
            EventKind::SoftirqExit { .. } => {
                let current = self.current;
                self.softirqs.retain(|slot| slot.tid != current);
            }
            EventKind::CpuIdle { .. } => self.end_linger(),
            _ => {}
        }
    }

    /// Whose timer one is that is handled now: the softirq's when there is one and no interrupt, else the interrupt's.
    fn hrtimer_slot(&mut self) -> &mut Option<HrtimerSlot> {
        let current = self.current;
        let served = self.softirqs.iter().position(|slot| slot.tid == current);
        match served.filter(|_| !self.in_interrupt()) {
            Some(index) => &mut self.softirqs[index].hrtimer,
            None => &mut self.hrtimer,
        }
    }

    /// A switch cannot happen inside a hard interrupt. True when the state said otherwise.
    fn heal(&mut self) -> bool {
        let open =
            self.irq.is_some_and(|slot| !slot.linger) || self.vector.is_some() || self.hrtimer.is_some();
        (self.irq, self.vector, self.hrtimer) = (None, None, None);
        open
    }

    /// No task waits inside a softirq (but for a spinlock, on PREEMPT_RT), and the idle task does not leave one.
    fn prev_leaves(&mut self, prev: Tid, blocked: bool) {
        if self.current.is_none() {
            self.softirqs.iter_mut().filter(|slot| slot.tid.is_none()).for_each(|slot| slot.tid = Some(prev));
        }
        if blocked || prev == Tid(0) {
            self.softirqs.retain(|slot| slot.tid != Some(prev));
        }
    }
}

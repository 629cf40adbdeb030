// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakeups: a chain goes from who wakes to who is woken (`waking.bpf.h` in the eBPF).

use super::config::EndCondition;
use super::growing::GrowingChain;
use super::state::{Link, Sched};
use super::tracker::{Response, Tracker};
use rtscope_event::{CpuId, End, MonotonicNs, OriginKind, StepKind, Tid, WaitKind};

impl Tracker {
    /// Woken, or new.
    pub(super) fn sched_waking(
        &mut self,
        (cpu, t): (CpuId, MonotonicNs),
        tid: Tid,
        kthread: bool,
        wait: WaitKind,
        out: &mut dyn FnMut(Response),
    ) {
        if tid == Tid(0) || self.wake_in_cycle(cpu, t, tid, wait, out) {
            return;
        }
        let slots = self.cpus.entry(cpu).or_default();
        let is_self = slots.current == Some(tid);
        if is_self && !slots.is_in_interrupt() {
            return; // A task that wakes itself does not wait. One that an interrupt wakes had declared a wait, which is over.
        }
        if self.tasks.get(&tid).is_some_and(|task| task.sched == Sched::Locked) {
            return; // A spinlock is handed over: no event of its own.
        }
        let context = self.context(cpu, t);
        // The one thread that was left to be woken after irq_handler_exit is this one.
        self.cpus.entry(cpu).or_default().end_linger();
        let task = self.tasks.entry(tid).or_default();
        task.kthread = Some(kthread);
        if is_self {
            task.sched = Sched::Running;
        }
        task.unlinked = task.sched.waits() && context.is_none();
        if !task.sched.waits() {
            let link = std::mem::take(&mut task.link);
            self.tasks.entry(tid).or_default().link = self.ran_already(tid, cpu, link, out);
            let context = context.filter(|chain| !self.is_cyclic(tid) && self.goes_on(tid, chain));
            if let Some(chain) = context {
                self.busy_waking(cpu, t, tid, chain, out);
            }
            if is_self {
                self.settle_self(cpu, tid, out);
            }
            return;
        }
        let blocked = task.sched == Sched::Blocked;
        let link = match std::mem::take(&mut task.link) {
            Link::Ended { chain, at, cpu } => self.end_blocked(tid, chain, at, cpu, out),
            other => other,
        };
        let link = match link {
            Link::Waiting(chain) if !self.gives_up_cycle(tid, context.as_ref()) => {
                self.end_wait(tid, chain, cpu, t, true)
            }
            link => {
                // Woken already, it has run and blocked again, and the kernel reported neither.
                let unseen = matches!(link, Link::Waking(_)) && blocked && self.is_target(tid);
                self.counters.hidden += u64::from(unseen);
                context.filter(|chain| self.goes_on(tid, chain)).map_or(Link::None, Link::Waking)
            }
        };
        self.tasks.entry(tid).or_default().link = link;
    }

    /// Whether a waking's chain goes on in this task. One that began with a task goes on in targets only: there is no end of them.
    fn goes_on(&mut self, tid: Tid, chain: &GrowingChain) -> bool {
        if !self.is_target(tid) {
            return chain.origin().kind != OriginKind::Task;
        }
        if !self.is_cyclic(tid) {
            return true;
        }
        let wait = self.tasks.entry(tid).or_default().wait;
        let begins = self.begins_cycle(chain, wait);
        if begins {
            let task = self.tasks.entry(tid).or_default();
            (task.source, task.inner) = (wait, 0);
        } else {
            self.counters.filtered += 1;
        }
        begins
    }

    /// A target that was woken while it ran, and has not left by itself since: that response was over when it was woken.
    pub(super) fn ran_already(
        &mut self,
        tid: Tid,
        cpu: CpuId,
        link: Link,
        out: &mut dyn FnMut(Response),
    ) -> Link {
        match link {
            Link::Running(chain) if chain.is_busy() && self.ends_running(tid) => {
                self.complete(tid, End::Running, cpu, chain, out);
                Link::None
            }
            other => other,
        }
    }

    /// Whether this task's responses last until it runs.
    fn ends_running(&self, tid: Tid) -> bool {
        self.config.end == EndCondition::Running && self.is_target(tid)
    }

    /// After a waking by an interrupt of the CPU on which the task runs: it cannot be leaving, and it runs already.
    fn settle_self(&mut self, cpu: CpuId, tid: Tid, out: &mut dyn FnMut(Response)) {
        match std::mem::take(&mut self.tasks.entry(tid).or_default().link) {
            Link::Running(mut chain) if chain.is_busy() => {
                chain.set_busy(false);
                if self.ends_running(tid) {
                    self.complete(tid, End::Running, cpu, chain, out);
                } else {
                    self.tasks.entry(tid).or_default().link = Link::Running(chain);
                }
            }
            other => self.tasks.entry(tid).or_default().link = other,
        }
    }

    /// The task had declared that it waits, but has not left its CPU.
    fn busy_waking(
        &mut self,
        cpu: CpuId,
        t: MonotonicNs,
        tid: Tid,
        mut chain: GrowingChain,
        out: &mut dyn FnMut(Response),
    ) {
        self.counters.busy += 1;
        let responds = self.config.end == EndCondition::Blocked && self.is_target(tid);
        let task = self.tasks.entry(tid).or_default();
        let running = task.sched == Sched::Running;
        let before = match std::mem::take(&mut task.link) {
            Link::Running(chain) => Some((chain, StepKind::Run)),
            Link::Preempted(chain) => Some((chain, StepKind::Preempted)),
            _ => None,
        };
        if let Some((mut ended, step)) = before.filter(|_| responds) {
            self.push(&mut ended, step, tid.0, cpu, t);
            self.complete(tid, End::Rewoken, cpu, ended, out);
        }
        self.push(&mut chain, StepKind::Busy, tid.0, cpu, t);
        chain.set_busy(true);
        let link = if running { Link::Running(chain) } else { Link::Preempted(chain) };
        self.tasks.entry(tid).or_default().link = link;
    }
}

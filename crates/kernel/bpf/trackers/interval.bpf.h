/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Intervals: what happens to a task between two events of its own, in steps: it waits for something, for a CPU, runs, is preempted.
 *
 * What begins and what ends an interval is the tracker's (wakeup.bpf.h, offcpu.bpf.h, syscall.bpf.h, lock.bpf.h); how it goes on from switch to
 * switch is here, once.
 * For a target of such a tracker a switch costs one look-up and a step; for all other tasks one comparison.
 */
#ifndef RTSCOPE_TRACKERS_INTERVAL_BPF_H
#define RTSCOPE_TRACKERS_INTERVAL_BPF_H

#include "core/detection.bpf.h"
#include "core/stacks.bpf.h"
#include "trackers/response/context.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rts_interval);
	__uint(max_entries, 1); /* ways of tasks * config.interval_kinds */
} intervals SEC(".maps");

static __always_inline struct rts_interval *interval_of(const struct slot *slot, __u32 tracker)
{
	__u32 index = slot->index * config.interval_kinds + config.interval_kind[tracker];

	return bpf_map_lookup_elem(&intervals, &index);
}

/* Whether a task is a target of this tracker. */
static __always_inline bool has(const struct task_way *way, __u32 tracker)
{
	return way->targets & config.of_tracker[tracker];
}

static __always_inline bool is_in_interrupt(struct cpu_state *state)
{
	return state->in & ~IN_SOFTIRQS || (state->in && current_softirq(state));
}

/* Who wakes, here and now: a tid, 0 for an interrupt. Asked of the kernel: where a host hides switches, the state has an earlier task. */
static __always_inline __u32 waker_of(struct cpu_state *state)
{
	return is_in_interrupt(state) ? 0 : bpf_get_current_task_btf()->pid;
}

/* Begins a chain with the one who wakes. */
static __always_inline void begin_with_waker(struct here *here, struct cpu_state *state, struct rts_chain *chain)
{
	struct softirq_slot *softirq = state->in & IN_SOFTIRQS ? current_softirq(state) : NULL;

	if (state->in & IN_HRTIMER || (softirq && softirq->in_hrtimer))
		begin(chain, RTS_ORIGIN_TIMER, 0, here->cpu, now(here));
	else if (state->in & (IN_IRQ | IN_IRQ_LINGER))
		begin(chain, RTS_ORIGIN_IRQ, state->irq, here->cpu, now(here));
	else if (state->in & IN_VECTOR)
		begin(chain, RTS_ORIGIN_VECTOR, state->vector_kind, here->cpu, now(here));
	else if (softirq)
		begin(chain, RTS_ORIGIN_SOFTIRQ, softirq->vec, here->cpu, now(here));
	else
		begin(chain, RTS_ORIGIN_TASK, waker_of(state), here->cpu, now(here));
}

/* Whether what has taken until now is to have stacks: it is beyond the limit. */
static __always_inline bool has_stacks(struct here *here, const struct rts_interval *interval, __u32 tracker)
{
	__u64 limit_ns = config.stacks_ns[tracker & (RTS_TRACKERS_MAX - 1)];

	return limit_ns && now(here) - interval->chain.origin_ns > limit_ns;
}

/* What ends here has its task's stack and that of its last waker, if it is late; the hook has the first one filled. */
static __always_inline void claim_stacks(struct here *here, const struct rts_interval *interval, __u32 tracker)
{
	if (!has_stacks(here, interval, tracker))
		return;
	here->waker_stack = interval->waker_stack;
	here->stack = claim_stack();
}

/* Its waker runs here: the hook has its stack filled. That of an interrupt is not the waker's. */
static __always_inline void claim_waker_stack(struct here *here, struct cpu_state *state, struct rts_interval *interval,
					      __u32 tracker)
{
	interval->waker_stack = 0;
	if (!has_stacks(here, interval, tracker) || !waker_of(state))
		return;
	/* Several trackers follow the same task. */
	if (!here->stack)
		here->stack = claim_stack();
	interval->waker_stack = here->stack;
}

/* The wait is over: of this kind, ended by this task (0: an interrupt, or not seen). */
static __always_inline void push_wait(struct here *here, struct rts_interval *interval, __u32 waker, __u64 until_ns)
{
	__u32 length = interval->chain.steps_len;

	push(here, &interval->chain, RTS_STEP_WAIT, waker, until_ns);
	if (length < RTS_CHAIN_STEPS)
		interval->chain.steps[length].detail = interval->wait;
}

/* The task leaves its CPU: for what, and whether it has been woken already. Under the way's lock. */
static __always_inline void interval_leaves(struct rts_interval *interval, bool blocked, __u32 wait)
{
	interval->wait = wait;
	interval->link = !blocked	 ? RTS_INTERVAL_PREEMPTED :
			 interval->woken ? RTS_INTERVAL_EARLY :
					   RTS_INTERVAL_WAITING;
	interval->woken = 0;
}

/* The task is woken. Under the way's lock. */
static __noinline int interval_woken(struct here *here, struct cpu_state *state, struct slot *slot, __u32 tracker)
{
	struct rts_interval *interval = interval_of(slot, tracker & (RTS_TRACKERS_MAX - 1));
	__u8 sched = slot->way->sched;

	if (!interval)
		return 0;
	if (sched == SCHED_RUNNING || sched == SCHED_RUNNABLE) {
		interval->woken = 1;
		interval->waker = waker_of(state);
	} else if (interval->link == RTS_INTERVAL_WAITING || interval->link == RTS_INTERVAL_EARLY) {
		push_wait(here, interval, waker_of(state), now(here));
		interval->link = RTS_INTERVAL_WAKING;
		claim_waker_stack(here, state, interval, tracker);
	}
	return 0;
}

/* The task comes to a CPU: the steps since it left are complete. */
static __always_inline void interval_comes(struct here *here, struct rts_interval *interval, __u32 tid, bool locked)
{
	__u32 step = RTS_STEP_WAKEUP;

	/* It had been woken when it left; or its waking was not seen. */
	if (interval->link == RTS_INTERVAL_EARLY)
		push_wait(here, interval, interval->waker, interval->chain.last_ns);
	if (interval->link == RTS_INTERVAL_WAITING)
		push_wait(here, interval, 0, now(here));
	if (interval->link == RTS_INTERVAL_PREEMPTED)
		step = locked ? RTS_STEP_LOCK_WAIT : RTS_STEP_PREEMPTED;
	push(here, &interval->chain, step, tid, now(here));
}

/*
 * What begins and ends while its task runs, and may leave its CPU in between: the steps of that. Begin and end come with interrupts on, and
 * without the way's lock: while its task runs, others write `woken` and `waker` of an interval only, which is for when it leaves. An interrupt
 * that wakes this task cannot wait for a lock that is held below it.
 */

/* Its task leaves its CPU. Under the way's lock. */
static __noinline int interval_on_leave(struct here *here, struct slot *slot, __u32 tracker, bool blocked, __u32 wait)
{
	struct rts_interval *interval = interval_of(slot, tracker & (RTS_TRACKERS_MAX - 1));

	if (!interval)
		return 0;
	if (interval->link == RTS_INTERVAL_NONE) {
		interval->woken = 0;
		return 0;
	}
	push(here, &interval->chain, interval->link == RTS_INTERVAL_RUNNING ? RTS_STEP_RUN : RTS_STEP_HIDDEN_SWITCH,
	     slot->way->tid, now(here));
	interval_leaves(interval, blocked, wait);
	return 0;
}

static __noinline int interval_on_arrive(struct here *here, struct slot *slot, __u32 tracker, bool locked)
{
	struct rts_interval *interval = interval_of(slot, tracker & (RTS_TRACKERS_MAX - 1));

	if (!interval || interval->link == RTS_INTERVAL_NONE || interval->link == RTS_INTERVAL_RUNNING)
		return 0;
	interval_comes(here, interval, slot->way->tid, locked);
	interval->link = RTS_INTERVAL_RUNNING;
	return 0;
}

/* Its last step: where it was not seen to come back to a CPU, all since then. */
static __always_inline void interval_ends(struct here *here, struct slot *slot, struct rts_interval *interval)
{
	__u8 link = interval->link;

	interval->link = RTS_INTERVAL_NONE;
	push(here, &interval->chain, link == RTS_INTERVAL_RUNNING ? RTS_STEP_RUN : RTS_STEP_HIDDEN_SWITCH,
	     slot->way->tid, now(here));
}

#endif

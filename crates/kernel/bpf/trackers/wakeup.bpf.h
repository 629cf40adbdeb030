/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `wakeup`: from sched_waking until the task is on a CPU.
 */
#ifndef RTSCOPE_TRACKERS_WAKEUP_BPF_H
#define RTSCOPE_TRACKERS_WAKEUP_BPF_H

#include "trackers/interval.bpf.h"

/* Under the way's lock. */
static __noinline int wakeup_on_waking(struct here *here, struct cpu_state *state, struct slot *slot)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_WAKEUP);
	__u8 sched = slot->way->sched;

	if (!interval)
		return 0;
	begin_with_waker(here, state, &interval->chain);
	interval->tid = slot->way->tid;
	/* Before it has left its CPU: perhaps its wait is called off, perhaps it is just leaving. */
	interval->woken = sched == SCHED_RUNNING || sched == SCHED_RUNNABLE;
	interval->link = interval->woken ? RTS_INTERVAL_NONE : RTS_INTERVAL_WAKING;
	return 0;
}

/*
 * Under the way's lock. One that was woken early waits for a CPU from now on, unless another waking follows: then that one was
 * for something else.
 */
static __always_inline void wakeup_on_leave(struct here *here, struct slot *slot, bool blocked)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_WAKEUP);

	if (!interval)
		return;
	interval->link = RTS_INTERVAL_NONE;
	if (blocked && interval->woken) {
		interval->chain.origin_ns = interval->chain.last_ns = now(here);
		interval->link = RTS_INTERVAL_EARLY;
	}
	interval->woken = 0;
}

static __always_inline int wakeup_on_arrive(struct here *here, struct slot *slot, struct task_struct *next)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_WAKEUP);

	if (!interval || interval->link == RTS_INTERVAL_NONE)
		return 0;
	interval->link = RTS_INTERVAL_NONE;
	push(here, &interval->chain, RTS_STEP_WAKEUP, slot->way->tid, now(here));
	detect(here, &interval->chain, next, RTS_TRACKER_WAKEUP, slot->way->targets, RTS_END_RUNNING, here->cpu);
	return 0;
}

#endif

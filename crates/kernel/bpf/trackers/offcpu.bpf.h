/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `offcpu`: from the switch that takes a task off its CPU until it is on one again: why, who ended it, and how long it then
 * waited for a CPU.
 */
#ifndef RTSCOPE_TRACKERS_OFFCPU_BPF_H
#define RTSCOPE_TRACKERS_OFFCPU_BPF_H

#include "trackers/interval.bpf.h"

/* Under the way's lock. */
static __noinline int offcpu_on_leave(struct here *here, struct slot *slot, bool blocked, __u32 wait)
{
	struct interval *interval = interval_of(slot, RTS_TRACKER_OFFCPU);

	if (!interval)
		return 0;
	begin(&interval->chain, RTS_ORIGIN_OFF_CPU, slot->way->tid, here->cpu, now(here));
	interval->wait = wait;
	interval->link = !blocked ? INTERVAL_PREEMPTED : interval->woken ? INTERVAL_EARLY : INTERVAL_WAITING;
	interval->woken = 0;
	return 0;
}

/* Under the way's lock. */
static __noinline int offcpu_on_waking(struct here *here, struct cpu_state *state, struct slot *slot)
{
	struct interval *interval = interval_of(slot, RTS_TRACKER_OFFCPU);
	__u8 sched = slot->way->sched;

	if (!interval)
		return 0;
	if (sched == SCHED_RUNNING || sched == SCHED_RUNNABLE) {
		interval->woken = 1;
		interval->waker = waker_of(state);
	} else if (interval->link == INTERVAL_WAITING || interval->link == INTERVAL_EARLY) {
		push_wait(here, interval, waker_of(state), now(here));
		interval->link = INTERVAL_WAKING;
	}
	return 0;
}

static __noinline int offcpu_on_arrive(struct here *here, struct slot *slot, struct task_struct *next, bool locked)
{
	struct interval *interval = interval_of(slot, RTS_TRACKER_OFFCPU);
	__u32 step = RTS_STEP_WAKEUP;

	if (!interval || interval->link == INTERVAL_NONE)
		return 0;
	/* It had been woken when it left; or its waking was not seen. */
	if (interval->link == INTERVAL_EARLY)
		push_wait(here, interval, interval->waker, interval->chain.origin_ns);
	if (interval->link == INTERVAL_WAITING)
		push_wait(here, interval, 0, now(here));
	if (interval->link == INTERVAL_PREEMPTED)
		step = locked ? RTS_STEP_LOCK_WAIT : RTS_STEP_PREEMPTED;
	interval->link = INTERVAL_NONE;
	push(here, &interval->chain, step, slot->way->tid, now(here));
	detect(here, &interval->chain, next, RTS_TRACKER_OFFCPU, slot->way->targets, RTS_END_RUNNING, here->cpu);
	return 0;
}

#endif

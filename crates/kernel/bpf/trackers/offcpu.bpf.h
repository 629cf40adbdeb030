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
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_OFFCPU);

	if (!interval)
		return 0;
	begin(&interval->chain, RTS_ORIGIN_OFF_CPU, slot->way->tid, here->cpu, now(here));
	interval->tid = slot->way->tid;
	interval->waker_stack = 0;
	interval_leaves(interval, blocked, wait);
	return 0;
}

static __noinline int offcpu_on_arrive(struct here *here, struct slot *slot, struct task_struct *next, bool locked)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_OFFCPU);

	if (!interval || interval->link == RTS_INTERVAL_NONE)
		return 0;
	interval_comes(here, interval, slot->way->tid, locked);
	interval->link = RTS_INTERVAL_NONE;
	claim_stacks(here, interval, RTS_TRACKER_OFFCPU);
	detect(here, &interval->chain, next, RTS_TRACKER_OFFCPU, slot->way->targets, RTS_END_RUNNING, here->cpu);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the switches and wakings of a target mean to the trackers of intervals: a line a tracker.
 */
#ifndef RTSCOPE_TRACKERS_INTERVALS_BPF_H
#define RTSCOPE_TRACKERS_INTERVALS_BPF_H

#include "trackers/lock.bpf.h"
#include "trackers/offcpu.bpf.h"
#include "trackers/syscall.bpf.h"
#include "trackers/wakeup.bpf.h"

static __always_inline bool has_intervals(const struct task_way *way)
{
	return way->targets & config.intervals;
}

/* Under the way's lock. */
static __always_inline void intervals_on_waking(struct here *here, struct cpu_state *state, struct slot *slot)
{
	if (has(slot->way, RTS_TRACKER_WAKEUP))
		wakeup_on_waking(here, state, slot);
	if (has(slot->way, RTS_TRACKER_OFFCPU))
		interval_woken(here, state, slot, RTS_TRACKER_OFFCPU);
	if (has(slot->way, RTS_TRACKER_SYSCALL))
		interval_woken(here, state, slot, RTS_TRACKER_SYSCALL);
	if (has(slot->way, RTS_TRACKER_LOCK))
		interval_woken(here, state, slot, RTS_TRACKER_LOCK);
}

/* Under the way's lock. */
static __always_inline void intervals_on_leave(struct here *here, struct slot *slot, bool blocked, __u32 wait)
{
	if (has(slot->way, RTS_TRACKER_WAKEUP))
		wakeup_on_leave(here, slot, blocked);
	if (has(slot->way, RTS_TRACKER_OFFCPU))
		offcpu_on_leave(here, slot, blocked, wait);
	if (has(slot->way, RTS_TRACKER_SYSCALL))
		interval_on_leave(here, slot, RTS_TRACKER_SYSCALL, blocked, wait);
	if (has(slot->way, RTS_TRACKER_LOCK))
		interval_on_leave(here, slot, RTS_TRACKER_LOCK, blocked, wait);
}

static __always_inline void intervals_on_arrive(struct here *here, struct slot *slot, struct task_struct *next,
						bool locked)
{
	if (has(slot->way, RTS_TRACKER_WAKEUP))
		wakeup_on_arrive(here, slot, next);
	if (has(slot->way, RTS_TRACKER_OFFCPU))
		offcpu_on_arrive(here, slot, next, locked);
	if (has(slot->way, RTS_TRACKER_SYSCALL))
		interval_on_arrive(here, slot, RTS_TRACKER_SYSCALL, locked);
	if (has(slot->way, RTS_TRACKER_LOCK))
		interval_on_arrive(here, slot, RTS_TRACKER_LOCK, locked);
}

static __always_inline void forget_interval(struct slot *slot, __u32 tracker)
{
	struct rts_interval *interval = config.of_tracker[tracker] ? interval_of(slot, tracker) : NULL;

	if (!interval)
		return;
	interval->link = RTS_INTERVAL_NONE;
	interval->woken = 0;
}

/* A task comes or has left for the last time: who gets its way finds nothing begun. */
static __noinline int forget_intervals(__u32 tid)
{
	struct slot slot;

	if (!find_task(tid, &slot))
		return 0;
	forget_interval(&slot, RTS_TRACKER_WAKEUP);
	forget_interval(&slot, RTS_TRACKER_OFFCPU);
	forget_interval(&slot, RTS_TRACKER_SYSCALL);
	forget_interval(&slot, RTS_TRACKER_LOCK);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `lock`: from where a task begins to wait for a lock of the kernel (contention_begin) until it has it, or gives up
 * (contention_end).
 *
 * A mutex begins twice, first spinning, then to sleep: that is one wait. While a task sleeps for a lock it may spin for others, those that
 * guard the first one's queue, and an interrupt may spin in its name: these are parts of it. A spin lock that an interrupt waits for, where
 * there is nothing else, counts for the task that it interrupts: that is who is delayed.
 */
#ifndef RTSCOPE_TRACKERS_LOCK_BPF_H
#define RTSCOPE_TRACKERS_LOCK_BPF_H

#include "trackers/interval.bpf.h"

static __always_inline bool is_spun_for(__u32 flags)
{
	return flags & RTS_LOCK_SPINS && !(flags & RTS_LOCK_MUTEX);
}

/* A wait begins; where it is a new one, who wants the lock is still to be noted. */
static __always_inline struct rts_interval *lock_on_begin(struct here *here, struct slot *slot, __u64 lock, __u32 flags,
							  __u32 call)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_LOCK);

	if (!interval)
		return NULL;
	if (interval->link != RTS_INTERVAL_NONE) {
		if (interval->values[0] == lock) {
			interval->values[1] = flags;
			return NULL;
		}
		/* Of two locks that are slept for, the end of the first was not seen. */
		if (is_spun_for(flags) && !is_spun_for(interval->values[1]))
			return NULL;
	}
	begin(&interval->chain, RTS_ORIGIN_LOCK, call, here->cpu, now(here));
	interval->tid = slot->way->tid;
	interval->waker_stack = 0;
	interval->values[0] = lock;
	interval->values[1] = flags;
	interval->link = RTS_INTERVAL_RUNNING;
	return interval;
}

static __always_inline void lock_on_end(struct here *here, struct slot *slot, struct task_struct *task, __u64 lock,
					__s64 result)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_LOCK);
	struct ended ended = { .tracker = RTS_TRACKER_LOCK, .end = RTS_END_ACQUIRED, .result = result };

	if (!interval || interval->link == RTS_INTERVAL_NONE || interval->values[0] != lock)
		return;
	interval_ends(here, slot, interval);
	claim_stacks(here, interval, RTS_TRACKER_LOCK);
	ended.values = interval->values;
	ended.targets = slot->way->targets;
	ended.cpu = here->cpu;
	detect_ended(here, &interval->chain, task, RTS_TRACKER_LOCK, &ended);
}

#endif

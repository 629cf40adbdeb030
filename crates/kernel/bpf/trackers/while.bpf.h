/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a task is recorded where only those are of which something has been under way for long (is_left_out() in core/recorder.bpf.h).
 *
 * Cost, where it is asked for: for each event a look-up of the current task, and one in the tracker's table where that follows it.
 */
#ifndef RTSCOPE_TRACKERS_WHILE_BPF_H
#define RTSCOPE_TRACKERS_WHILE_BPF_H

#include "trackers/intervals.bpf.h"

static __always_inline bool is_under_way(const struct slot *slot, __u32 tracker, __u64 time_ns)
{
	const struct rts_interval *interval;

	if (!config.of_tracker[tracker] || !has(slot->way, tracker))
		return false;
	interval = interval_of(slot, tracker);
	if (!interval || interval->link == RTS_INTERVAL_NONE)
		return false;
	/* Begun after this event, on another CPU: not for long. ORDER: none; one word, and the task's own events are in order. */
	return (__s64)(time_ns - *(volatile const __u64 *)&interval->chain.origin_ns) > (__s64)config.while_ns;
}

/* A function of its own, so that its variables are not on the stack of programs from which trackers go deeper. */
static __noinline bool is_recorded_while(__u32 about, __u64 time_ns)
{
	const struct task_struct *current = bpf_get_current_task_btf();
	struct slot slot;

	/* The idle task has no way: tid 0 is that of a free one. */
	for (int which = 0; which < 2; which++) {
		__u32 tid = which == 0 ? about : (__u32)current->tgid == config.own_pid ? 0 : (__u32)current->pid;

		if (tid && find_task(tid, &slot) &&
		    (is_under_way(&slot, RTS_TRACKER_SYSCALL, time_ns) ||
		     is_under_way(&slot, RTS_TRACKER_OFFCPU, time_ns) ||
		     is_under_way(&slot, RTS_TRACKER_LOCK, time_ns) ||
		     is_under_way(&slot, RTS_TRACKER_WAKEUP, time_ns)))
			return true;
	}
	return false;
}

#endif

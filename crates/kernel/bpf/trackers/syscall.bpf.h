/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `syscall`: from the entry of a system call to its exit, with all that the task did in it: running, waiting, for a CPU.
 */
#ifndef RTSCOPE_TRACKERS_SYSCALL_BPF_H
#define RTSCOPE_TRACKERS_SYSCALL_BPF_H

#include "trackers/interval.bpf.h"

/* A call begins; where it goes on being followed, its arguments are still to be noted: its registers can be others at its end. */
static __always_inline struct rts_interval *syscall_on_enter(struct here *here, struct slot *slot, __u32 number)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);

	if (!interval)
		return NULL;
	/* Whatever was under way has ended unseen: calls that do not return, or whose exit the kernel skipped. */
	interval->link = RTS_INTERVAL_NONE;
	if (number >= RTS_SYSCALLS || !(config.call_instances[number] & slot->way->targets))
		return NULL;
	begin(&interval->chain, RTS_ORIGIN_SYSCALL, number, here->cpu, now(here));
	interval->tid = slot->way->tid;
	interval->waker_stack = 0;
	interval->link = RTS_INTERVAL_RUNNING;
	return interval;
}

static __always_inline void syscall_on_exit(struct here *here, struct slot *slot, struct task_struct *task,
					    __u32 number, __s64 result)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);
	struct ended ended = { .tracker = RTS_TRACKER_SYSCALL, .end = RTS_END_RETURNED, .result = result };

	if (!interval || interval->link == RTS_INTERVAL_NONE)
		return;
	/* Of another call: its entry was not seen. */
	if (interval->chain.origin_id != number) {
		interval->link = RTS_INTERVAL_NONE;
		return;
	}
	interval_ends(here, slot, interval);
	claim_stacks(here, interval, RTS_TRACKER_SYSCALL);
	ended.values = interval->values;
	ended.targets = slot->way->targets & config.call_instances[number & (RTS_SYSCALLS - 1)];
	ended.cpu = here->cpu;
	detect_ended(here, &interval->chain, task, RTS_TRACKER_SYSCALL, &ended);
}

#endif

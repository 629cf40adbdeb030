/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `syscall`: from the entry of a system call to its exit, with all that the task did in it: running, waiting, for a CPU.
 *
 * Entry and exit come with interrupts on, and without the way's lock: while its task runs, others write `woken` and `waker` of an interval
 * only, which is for when it leaves. An interrupt that wakes this task cannot wait for a lock that is held below it.
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
	interval->link = RTS_INTERVAL_RUNNING;
	return interval;
}

static __always_inline void syscall_on_exit(struct here *here, struct slot *slot, struct task_struct *task,
					    __u32 number, __s64 result)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);
	struct ended ended = { .tracker = RTS_TRACKER_SYSCALL, .end = RTS_END_RETURNED, .result = result };
	__u8 link;

	if (!interval || interval->link == RTS_INTERVAL_NONE)
		return;
	link = interval->link;
	interval->link = RTS_INTERVAL_NONE;
	/* Of another call: its entry was not seen. */
	if (interval->chain.origin_id != number)
		return;
	/* It was not seen to come back. */
	push(here, &interval->chain, link == RTS_INTERVAL_RUNNING ? RTS_STEP_RUN : RTS_STEP_HIDDEN_SWITCH,
	     slot->way->tid, now(here));
	ended.args = interval->args;
	ended.targets = slot->way->targets & config.call_instances[number & (RTS_SYSCALLS - 1)];
	ended.cpu = here->cpu;
	detect_ended(here, &interval->chain, task, RTS_TRACKER_SYSCALL, &ended);
}

/* Under the way's lock. */
static __noinline int syscall_on_leave(struct here *here, struct slot *slot, bool blocked, __u32 wait)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);

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

static __noinline int syscall_on_arrive(struct here *here, struct slot *slot, bool locked)
{
	struct rts_interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);

	if (!interval || interval->link == RTS_INTERVAL_NONE || interval->link == RTS_INTERVAL_RUNNING)
		return 0;
	interval_comes(here, interval, slot->way->tid, locked);
	interval->link = RTS_INTERVAL_RUNNING;
	return 0;
}

#endif

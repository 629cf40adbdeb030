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

/* What the call is given, interval->args has already. */
static __noinline int syscall_on_enter(struct here *here, struct slot *slot, __u32 number)
{
	struct interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);

	if (!interval)
		return 0;
	/* Whatever was under way has ended unseen: calls that do not return, or whose exit the kernel skipped. */
	interval->link = INTERVAL_NONE;
	if (number >= RTS_SYSCALLS || !(config.call_instances[number] & slot->way->targets))
		return 0;
	begin(&interval->chain, RTS_ORIGIN_SYSCALL, number, here->cpu, now(here));
	interval->link = INTERVAL_RUNNING;
	return 0;
}

/* `ended` has what the call returned. */
static __noinline int syscall_on_exit(struct here *here, struct slot *slot, struct task_struct *task, __u32 number,
				      struct ended *ended)
{
	struct interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);
	int done = 0;
	__u8 link;

	if (!interval || interval->link == INTERVAL_NONE)
		return 0;
	link = interval->link;
	interval->link = INTERVAL_NONE;
	/* Of another call: its entry was not seen. */
	if (interval->chain.origin_id != number)
		return 0;
	/* It was not seen to come back. */
	push(here, &interval->chain, link == INTERVAL_RUNNING ? RTS_STEP_RUN : RTS_STEP_HIDDEN_SWITCH, slot->way->tid,
	     now(here));
	ended->args = interval->args;
	ended->tracker = RTS_TRACKER_SYSCALL;
	ended->targets = slot->way->targets & config.call_instances[number & (RTS_SYSCALLS - 1)];
	ended->end = RTS_END_RETURNED;
	ended->cpu = here->cpu;
	detect_ended(here, &interval->chain, task, RTS_TRACKER_SYSCALL, ended);
	/* A result that the compiler knows it leaves out, and then a pointer may be in its register, which the verifier refuses. */
	barrier_var(done);
	return done;
}

/* Under the way's lock. */
static __noinline int syscall_on_leave(struct here *here, struct slot *slot, bool blocked, __u32 wait)
{
	struct interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);

	if (!interval)
		return 0;
	if (interval->link == INTERVAL_NONE) {
		interval->woken = 0;
		return 0;
	}
	push(here, &interval->chain, interval->link == INTERVAL_RUNNING ? RTS_STEP_RUN : RTS_STEP_HIDDEN_SWITCH,
	     slot->way->tid, now(here));
	interval_leaves(interval, blocked, wait);
	return 0;
}

static __noinline int syscall_on_arrive(struct here *here, struct slot *slot, bool locked)
{
	struct interval *interval = interval_of(slot, RTS_TRACKER_SYSCALL);

	if (!interval || interval->link == INTERVAL_NONE || interval->link == INTERVAL_RUNNING)
		return 0;
	interval_comes(here, interval, slot->way->tid, locked);
	interval->link = INTERVAL_RUNNING;
	return 0;
}

#endif

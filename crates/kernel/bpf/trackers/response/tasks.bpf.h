/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tasks come and change their names.
 */
#ifndef RTSCOPE_RESPONSE_TASKS_BPF_H
#define RTSCOPE_RESPONSE_TASKS_BPF_H

#include "core/target.bpf.h"
#include "trackers/intervals.bpf.h"
#include "trackers/response/state.bpf.h"

/* Whether a task is about to leave its CPU for the last time, or has. */
static __always_inline bool is_gone(const struct task_struct *task)
{
	return task->exit_state || task->__state & TASK_STATE_DEAD;
}

static __always_inline void track_task(struct task_struct *task, const char *comm, bool is_new)
{
	__u32 index = 0;
	bool made = false, locked, responds;
	__u8 targets = targets_of(task, comm);
	struct task_way *way = task->pid ? claim_task(task->pid, &index, &made) : NULL;

	if (!way)
		return; /* counted when it is met on a CPU */
	/*
	 * Its last switch may have passed: nobody would free the way. A zombie can be met by the iterator, and other threads can give it a
	 * name. ORDER: the claim is a full barrier; pairs with those of the kernel's scheduler between exit_state and the last switch,
	 * which frees the way unless it was claimed later, and then exit_state is seen here.
	 */
	if (made && is_gone(task)) {
		free_task(task->pid);
		return;
	}
	/* What was under way in one that was no target for a while is not known. */
	if (config.intervals && (is_new || way->targets != targets))
		forget_intervals(task->pid);
	/* Where another CPU stands still with the lock, it is done without. */
	locked = lock_way(way);
	/* It may have died, and its way may be another task's. */
	if (way->tid == (__u32)task->pid) {
		if (is_new) {
			way->sched = SCHED_UNKNOWN;
			way->link = LINK_NONE;
			way->unlinked = 0;
		}
		/*
		 * The response of one that is a target no more does not count any more; what one that becomes a target has is no
		 * cycle.
		 */
		responds = targets & config.of_tracker[RTS_TRACKER_RESPONSE];
		if (is_followed(way) && !responds)
			way->link = LINK_NONE;
		if (!is_followed(way) && responds && config.end == RTS_END_CYCLE)
			way->link = LINK_NONE;
		way->targets = targets;
	}
	if (locked)
		unlock_way(way);
}

/*
 * A task that is not known yet (the iterator need not see all, and one can be met before its fork is): taken in when it is
 * first met, with its name as it is then. Once a task, not once an event.
 */
static __noinline bool adopt(struct here *here, struct task_struct *task, struct slot *slot)
{
	char comm[RTS_COMM_LEN] __attribute__((aligned(8)));

	copy_comm(comm, task);
	track_task(task, comm, false);
	if (find_task(task->pid, slot))
		return true;
	if (!is_gone(task))
		COUNT(here, untracked);
	return false;
}

/* A thread that is not the leader called exec: it goes on under the leader's tid, and its own is free. */
static __always_inline void track_exec(struct here *here, struct task_struct *task, __u32 old_tid)
{
	struct cpu_state *state = state_of(here->cpu);
	struct slot slot;

	if (!state || old_tid == (__u32)task->pid)
		return;
	if (config.intervals)
		forget_intervals(old_tid);
	free_task(old_tid);
	if (!find_task(task->pid, &slot) && !adopt(here, task, &slot))
		return;
	slot.way->sched = SCHED_RUNNING;
	slot.way->link = LINK_NONE;
	state->current_tid = task->pid;
	state->current_slot = slot.index + 1;
}

#endif

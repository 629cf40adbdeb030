/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which tasks are targets: asked at fork, exec, rename and when a task is first met.
 */
#ifndef RTSCOPE_CORE_TARGET_BPF_H
#define RTSCOPE_CORE_TARGET_BPF_H

#include "core/program.bpf.h"

/* Runs an instance's name pattern over a comm: at most 16 iterations of a table look-up and three operations. */
static __noinline bool comm_matches(const char *comm, __u32 instance)
{
	const volatile struct rts_instance *of = &config.instances[instance & (RTS_INSTANCES - 1)];
	__u32 state = 1;

	for (int i = 0; i < RTS_COMM_LEN; i++) {
		__u8 character = comm[i];

		if (!character)
			break;
		state = (state & of->glob_any) | (state & of->glob[character]) << 1;
	}
	return state & of->glob_accept;
}

static __always_inline bool is_target(struct task_struct *task, const char *comm, __u32 instance)
{
	const volatile struct rts_instance *of = &config.instances[instance];

	if (of->target_pid && (__u32)task->tgid != of->target_pid)
		return false;
	if (of->target_tid && (__u32)task->pid != of->target_tid)
		return false;
	/* Its exec gives it another name, and then it is asked again. */
	if (of->command && task->pid == task->tgid && task->flags & PF_FORKNOEXEC)
		return false;
	if (of->match_comm)
		return comm_matches(comm, instance);
	return of->target_pid || of->target_tid || !is_kthread(task);
}

/* What ask_one() has of targets_of(). */
struct targets {
	struct task_struct *task;
	const char *comm;
	__u8 found;
};

static int ask_one(__u32 instance, struct targets *targets)
{
	instance &= RTS_INSTANCES - 1;
	if (instance < config.instances_len && is_target(targets->task, targets->comm, instance))
		targets->found |= 1 << instance;
	return 0;
}

/* Of which instances a task is a target: bit 1 << index. */
static __always_inline __u8 targets_of(struct task_struct *task, const char *comm)
{
	struct targets targets = { .task = task, .comm = comm };

	if (config.instances_len > 2) {
		bpf_loop(RTS_INSTANCES, ask_one, &targets, 0);
	} else {
		ask_one(0, &targets);
		ask_one(1, &targets);
	}
	return targets.found;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where tasks wait for locks of the kernel (Linux 5.19 and later); loaded only for the tracker `lock`. The kernel reports what waits in a queue: not a
 * spin lock that is free before a queue forms, and none where a hypervisor's own spin locks are used.
 *
 * Cost: nothing while nobody waits. A wait of any task pays for entering the program, a look-up and a comparison; one of a target for a step and
 * for the walk up its stack, about a microsecond, while it would wait anyway.
 */
#ifndef RTSCOPE_HOOKS_CONTENTION_BPF_H
#define RTSCOPE_HOOKS_CONTENTION_BPF_H

#include "hooks/sched.bpf.h"

/* The functions of the tracepoint itself, of which nobody wants to hear. */
#define FRAMES_SKIPPED 2

static __always_inline bool enter_contention(struct task_struct *task, struct slot *slot, struct here *here)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	return trigger.enabled && state && find_current(state, task->pid, slot) && has(slot->way, RTS_TRACKER_LOCK) &&
	       enter(here);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(lock_wait_begins, void *lock, unsigned int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rts_interval *interval;
	struct here here;
	struct slot slot;
	long bytes;

	if (!enter_contention(task, &slot, &here))
		return 0;
	interval = lock_on_begin(&here, &slot, (__u64)lock, flags,
				 is_kthread(task) ? -1 : (__u32)syscall_of(task, registers_of(task)));
	if (!interval)
		return 0;
	bytes = bpf_get_stack(ctx, &interval->values[2], sizeof(interval->values) - 16, FRAMES_SKIPPED);
	/* The rest is the last one's. */
	if (bytes < 8)
		interval->values[2] = 0;
	else if (bytes < (long)sizeof(interval->values) - 16)
		interval->values[2 + (bytes / 8 & 7)] = 0;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(lock_wait_ends, void *lock, int result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct here here;
	struct slot slot;

	if (!enter_contention(task, &slot, &here))
		return 0;
	lock_on_end(&here, &slot, task, (__u64)lock, result);
	if (config.stack_bytes && here.stack)
		fill_stack(ctx, here.stack);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a task that was switched to is current, so that its stack can be read; loaded only for the tracker `offcpu` with stacks. sched_switch itself comes
 * before that: the memory that is loaded there is the other task's.
 *
 * Cost: each switch of any task pays for entering the program and a look-up.
 */
#ifndef RTSCOPE_HOOKS_STACKS_BPF_H
#define RTSCOPE_HOOKS_STACKS_BPF_H

#include "core/stacks.bpf.h"

/* Since Linux 6.16, with interrupts on and preemption off. */
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(task_came, bool is_switch)
{
	if (is_switch)
		take_due_stack(ctx);
	return 0;
}

/* Before that: a function of the scheduler, which a compiler gives other names, too. With interrupts off. */
SEC("kprobe/finish_task_switch")
int task_came_probed(void *ctx)
{
	take_due_stack(ctx);
	return 0;
}

#endif

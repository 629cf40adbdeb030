/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls of targets, for the trackers; loaded only for those that want them.
 *
 * Cost: each system call of any task pays for entering the program, two look-ups and a comparison; one of a target for a step as well. A second
 * program on sys_enter (a recording of system calls at the same time) makes the kernel's direct call a loop of indirect ones.
 *
 * From Linux 7 these programs can be preempted, and then the calls of whoever comes are skipped: they are counted, and where the kernel can
 * be asked not to, this does not happen but for the first instructions.
 */
#ifndef RTSCOPE_HOOKS_CALLS_BPF_H
#define RTSCOPE_HOOKS_CALLS_BPF_H

#include "hooks/syscall.bpf.h"
#include "trackers/registry.bpf.h"

/* The prologue of both: false unless the task that runs here is a target of a tracker of system calls. The cheap questions come first. */
static __always_inline bool enter_call(struct task_struct *task, struct slot *slot, struct here *here)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	return trigger.enabled && state && find_current(state, task->pid, slot) &&
	       has(slot->way, RTS_TRACKER_SYSCALL) && !is_compat(task) && enter(here);
}

static __always_inline void on_call(struct pt_regs *regs, long number)
{
	struct rts_interval *interval;
	struct here here;
	struct slot slot;

	if (!enter_call(bpf_get_current_task_btf(), &slot, &here))
		return;
	interval = syscall_on_enter(&here, &slot, number);
	if (!interval)
		return;
	interval->values[0] = syscall_argument(regs, 0);
	interval->values[1] = syscall_argument(regs, 1);
	interval->values[2] = syscall_argument(regs, 2);
	interval->values[3] = syscall_argument(regs, 3);
	interval->values[4] = syscall_argument(regs, 4);
	interval->values[5] = syscall_argument(regs, 5);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(call_begins, struct pt_regs *regs, long number)
{
	stay_here();
	on_call(regs, number);
	may_go();
	return 0;
}

static __always_inline void on_return(struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct here here;
	struct slot slot;

	if (enter_call(task, &slot, &here))
		syscall_on_exit(&here, &slot, task, syscall_number(regs), result);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call_returns, struct pt_regs *regs, long result)
{
	stay_here();
	on_return(regs, result);
	may_go();
	return 0;
}

#endif

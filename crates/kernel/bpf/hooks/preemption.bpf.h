/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where CPUs are asked to take another task; loaded only for the tracker `preemptoff`. Its end is in the program of sched_switch.
 *
 * Cost: a look-up and a few stores for each request, or a look-up, two readings and those stores for each waking. Where the kernel says requests (Linux
 * 6.16) and that is safe, all of them are seen. Elsewhere only those are seen that the waking of a real-time task makes: whether the scheduler will
 * take it is certain. Where the kernel says that a run of the scheduler is over, each enters a program that does nothing unless the current task goes on.
 *
 * Safe: a program here is a reader of RCU. Where readers can be preempted, the end of one may ask for another task, which comes here again before the
 * flag is set, until the kernel's stack is full (rcu_read_unlock_special() in kernel/rcu/tree_plugin.h). So it is not loaded there: src/caps.rs.
 */
#ifndef RTSCOPE_HOOKS_PREEMPTION_BPF_H
#define RTSCOPE_HOOKS_PREEMPTION_BPF_H

#include "hooks/sched.bpf.h"

SEC("tp_btf/sched_set_need_resched_tp")
int BPF_PROG(resched_asked, struct task_struct *task, int cpu, int flag)
{
	if (trigger.enabled && is_urgent(task->pid, flag))
		preemptoff_on_request(cpu, task->pid, 0, 0);
	return 0;
}

SEC("tp_btf/sched_exit_tp")
int BPF_PROG(resched_over, bool is_switch)
{
	if (!is_switch)
		preemptoff_on_nothing(bpf_get_smp_processor_id());
	return 0;
}

/* Real-time and deadline tasks are below: MAX_RT_PRIO of include/linux/sched/prio.h. */
#define FAIR_PRIO 100

/* Under the lock of the run queue that the task has come to; whoever runs there has been asked by now. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(resched_woken, struct task_struct *task)
{
	__u32 cpu = task_cpu(task);
	struct resched *asked = bpf_map_lookup_elem(&reschedules, &cpu);
	const struct task_struct *running;
	unsigned long flags;
	bool is_certain;
	__s32 prio;

	if (!trigger.enabled || !asked || !asked->running || asked->running == task)
		return 0;
	running = asked->running;
	/* A host that hides switches of its own may have another task there. */
	if (!BPF_CORE_READ(running, on_cpu))
		return 0;
	flags = BPF_CORE_READ(running, thread_info.flags);
	prio = BPF_CORE_READ(running, prio);
	is_certain = task->prio < FAIR_PRIO && task->prio < prio;
	if (!is_asked(flags, is_certain))
		preemptoff_on_nothing(cpu);
	else if (is_certain)
		preemptoff_on_request(cpu, BPF_CORE_READ(running, pid), task->pid, task->prio);
	return 0;
}

#endif

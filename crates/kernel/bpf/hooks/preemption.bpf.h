/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where CPUs are asked to take another task; loaded only for the tracker `preemptoff`. Its end is in the program of sched_switch.
 *
 * Cost: a look-up and a few stores for each request. Where the kernel says them (Linux 6.16), all requests are seen, and in addition each run of the
 * scheduler enters a program that does nothing unless the current task goes on. Elsewhere only those are seen that the waking of a real-time task
 * makes: whether the scheduler will take it is certain.
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

/* Of the kernels that do not say it by themselves: include/asm/thread_info.h of each architecture. */
#if defined(__TARGET_ARCH_x86)
#define NEED_RESCHED (1UL << 3)
#else
#define NEED_RESCHED (1UL << 1)
#endif

extern const struct rq runqueues __ksym __weak;

/* Real-time and deadline tasks are below: MAX_RT_PRIO of include/linux/sched/prio.h. */
#define FAIR_PRIO 100

/* Under the lock of the run queue that the task has come to; whoever runs there has been asked by now. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(resched_woken, struct task_struct *task)
{
	__u32 cpu = task_cpu(task);
	const struct task_struct *running;
	const struct rq *rq;

	if (!trigger.enabled || !bpf_ksym_exists(&runqueues))
		return 0;
	rq = bpf_per_cpu_ptr(&runqueues, cpu);
	if (!rq)
		return 0;
	running = BPF_CORE_READ(rq, curr);
	if (!running || running == task)
		return 0;
	if (!(BPF_CORE_READ(running, thread_info.flags) & NEED_RESCHED))
		preemptoff_on_nothing(cpu);
	else if (task->prio < FAIR_PRIO && task->prio < BPF_CORE_READ(running, prio))
		preemptoff_on_request(cpu, BPF_CORE_READ(running, pid), task->pid, task->prio);
	return 0;
}

#endif

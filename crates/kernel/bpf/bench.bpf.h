/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Empty programs: what the benchmarks subtract from both sides. Loaded only by them. */

SEC("tp_btf/sched_switch")
int BPF_PROG(empty_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(empty_sched_waking, struct task_struct *p)
{
	return 0;
}

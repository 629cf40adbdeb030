/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs for benchmarks only; nothing else loads them, and their maps are not made otherwise.
 *
 * Empty ones, which are subtracted from both sides. And the smallest possible wakeup-latency tracker three times, with its
 * state in the tracker's own table, in task storage and in a preallocated hash: why the tracker has a table (docs/adr/0002).
 */
#ifndef RTSCOPE_TOOLS_BENCH_BPF_H
#define RTSCOPE_TOOLS_BENCH_BPF_H

#include "trackers/response/state.bpf.h"

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

SEC("tp_btf/sys_enter")
int BPF_PROG(empty_sys_enter, struct pt_regs *regs, long number)
{
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(empty_sys_exit, struct pt_regs *regs, long result)
{
	return 0;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(empty_softirq_raise, unsigned int vec)
{
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(empty_softirq_entry, unsigned int vec)
{
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(empty_softirq_exit, unsigned int vec)
{
	return 0;
}

struct bench_state {
	__u64 waking_ns, latency_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct bench_state);
} bench_storage SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct bench_state);
} bench_hash SEC(".maps");

static __always_inline int bench_waking(struct bench_state *state)
{
	if (state)
		state->waking_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int bench_arrived(struct bench_state *state)
{
	if (state && state->waking_ns) {
		state->latency_ns = bpf_ktime_get_ns() - state->waking_ns;
		state->waking_ns = 0;
	}
	return 0;
}

/* The table's search as the tracker does it; the way itself serves as the state. */
static __always_inline struct bench_state *bench_slot(struct task_struct *task)
{
	struct slot slot;
	struct task_chain *holder;
	bool made;

	if (!find_task(task->pid, &slot) && !claim_task(task->pid, &slot.index, &made))
		return NULL;
	holder = bpf_map_lookup_elem(&task_chains, &slot.index);
	return holder ? (struct bench_state *)&holder->chain : NULL;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(bench_table_waking, struct task_struct *p)
{
	return bench_waking(bench_slot(p));
}

SEC("tp_btf/sched_switch")
int BPF_PROG(bench_table_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return bench_arrived(bench_slot(next));
}

SEC("tp_btf/sched_waking")
int BPF_PROG(bench_storage_waking, struct task_struct *p)
{
	return bench_waking(bpf_task_storage_get(&bench_storage, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE));
}

SEC("tp_btf/sched_switch")
int BPF_PROG(bench_storage_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return bench_arrived(bpf_task_storage_get(&bench_storage, next, NULL, 0));
}

SEC("tp_btf/sched_waking")
int BPF_PROG(bench_hash_waking, struct task_struct *p)
{
	struct bench_state fresh = { .waking_ns = bpf_ktime_get_ns() };
	__u32 tid = p->pid;

	bpf_map_update_elem(&bench_hash, &tid, &fresh, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(bench_hash_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 tid = next->pid;

	return bench_arrived(bpf_map_lookup_elem(&bench_hash, &tid));
}

#endif

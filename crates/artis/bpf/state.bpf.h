/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the scheduler remembers: of each task, of each CPU, and the rings through which real-time CPUs hand tasks over.
 */
#ifndef RTSCOPE_ARTIS_STATE_H
#define RTSCOPE_ARTIS_STATE_H

#include "artis_abi.h"
#include "kfuncs.bpf.h"
#include "bpf_order.h"

/* Alone in its section, so that user space knows where it is. */
const volatile struct rts_artis_config config SEC(".rodata.config") = {};

/* Tasks that wait for a CPU: RT1 by their nice value, Linux by the time they had, weighed. */
enum { QUEUE_RT1 = 1, QUEUE_LINUX };
/* The rank of what runs on a CPU: RT1 have 0 to 39, by their nice value. */
enum { RANK_LINUX = 40, RANK_NONE = 41 };

struct task_state {
	__u64 vtime; /* time that it had, weighed by its nice value */
	__u64 ran_since;
	__u64 entered_ns; /* when the hook saw it enter the kernel, while it is being evicted */
	__u64 lent_since; /* when it last came to user mode, or to a real-time CPU; RT1: to any CPU, where that is not known */
	__u64 burst_ns;	  /* average time from there to the next entry */
	__u32 evicting;	  /* the real-time CPU that it has to leave, plus one */
	__u32 evicted_as; /* its class when that began */
	__u32 in_kernel;  /* within a fault or a signal, or woken there: the registers do not tell */
	__u32 leaving;	  /* at the end of a system call */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tasks SEC(".maps");

/*
 * Tasks that may be RT1: given by root (`rtscope shield run --class rt1`, crates/artis/src/grants.rs), inherited by fork, and kept over
 * exec. Anybody may have the policy SCHED_EXT; without a grant it means nothing. They end with this scheduler.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} grants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct rts_artis_cpu);
	__uint(max_entries, 1); /* CPUs */
} counts SEC(".maps");

/* Only its CPU writes head and pids; tail belongs to the CPU that has set `reader`, and that is never a real-time CPU. */
struct ring {
	__u64 head;
	__u64 pad[7];
	__u64 tail;
	__u32 reader;
	__u32 pad2[13];
	__u32 pids[RTS_ARTIS_RING];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct ring);
	__uint(max_entries, 1); /* CPUs */
} rings SEC(".maps");

struct cpu_state {
	__u64 asked; /* when it last asked for work */
	__u32 offline;
	__u32 idle;
	__u32 rank;
	__u32 dispatches;
};
static struct cpu_state cpus[RTS_ARTIS_CPUS];
static __u64 vtime_now;
static __u64 offline_others;

struct rts_artis_exit ended SEC(".data.ended") = {};
/* A section of its own: it is read once. */
struct rts_artis_dump dump SEC(".data.dump") = {};

/* The index stays below the bound for the verifier, whatever the compiler knows. */
static __always_inline __u32 index(__s32 cpu)
{
	__u32 at = cpu;

	barrier_var(at);
	return at & (RTS_ARTIS_CPUS - 1);
}

static __always_inline bool is_rt(__s32 cpu)
{
	return config.is_rt[index(cpu)];
}

static __always_inline struct task_state *state_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

static __always_inline struct rts_artis_cpu *counts_of(__s32 cpu)
{
	__u32 key = cpu;

	return bpf_map_lookup_elem(&counts, &key);
}

/* Only tasks that have the policy pay for the question. */
static __always_inline bool is_rt1(const struct task_struct *p)
{
	return p->policy == SCHED_EXT && bpf_task_storage_get(&grants, (void *)p, 0, 0);
}

static __always_inline __u32 class_of(const struct task_struct *p)
{
	return is_rt1(p) ? RTS_ARTIS_RT1 : RTS_ARTIS_LINUX;
}

static __always_inline void count(__u64 *counter)
{
	/* ORDER: none; a number that stands for itself. Pairs with the read of the map in crates/artis/src/counts.rs. */
	__sync_fetch_and_add(counter, 1);
}

static __always_inline __u32 bucket(__u64 ns)
{
	__u32 log = 0, at;
	__u64 rest = ns;

	if (ns < 4)
		return ns;
#pragma unroll
	for (__u32 step = 32; step; step >>= 1)
		if (rest >> step) {
			rest >>= step;
			log += step;
		}
	at = log * 4 - 4 + ((ns >> (log - 2)) & 3);
	return at < RTS_ARTIS_BUCKETS ? at : RTS_ARTIS_BUCKETS - 1;
}

/* Called by the real-time CPU itself, with interrupts off. */
static __always_inline bool hand_over(__s32 cpu, __u32 pid)
{
	__u32 key = cpu;
	struct ring *ring = bpf_map_lookup_elem(&rings, &key);

	/* ORDER: control dependency: no store goes ahead of the branch. Pairs with the release in take_over(): the entry has been read. */
	if (!ring || ring->head - *(volatile __u64 *)&ring->tail >= RTS_ARTIS_RING)
		return false;
	ring->pids[ring->head & (RTS_ARTIS_RING - 1)] = pid;
	/*
	 * ORDER: full; a CPU that sees the new head sees the entry, and it is seen before whoever this CPU then calls for looks. Pairs with
	 * the load in take_over(). An exchange, which always fetches: an addition whose result nobody uses orders nothing on arm64.
	 */
	__sync_lock_test_and_set(&ring->head, ring->head + 1);
	return true;
}

/* Called by the CPU that has set `reader`. */
static __always_inline __u32 take_over(struct ring *ring)
{
	__u64 tail = ring->tail;
	__u32 pid;

	/* ORDER: acquire; the head before the entry. Pairs with the release in hand_over(). */
	if (tail == LOAD_ACQUIRE(&ring->head))
		return 0;
	pid = *(volatile __u32 *)&ring->pids[tail & (RTS_ARTIS_RING - 1)];
	/* ORDER: release; the entry before the tail. Pairs with the load of the tail in hand_over(). */
	STORE_RELEASE(&ring->tail, tail + 1);
	return pid;
}

#endif

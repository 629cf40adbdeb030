/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of tasks, which all trackers share: one slot a task.
 *
 * Tasks are found by tid in a set-associative table (4 ways of 16 bytes): one cache line and no helper call for a look-up,
 * nothing to allocate, nothing that a kernel can refuse (task storage cannot be created in scheduler context on PREEMPT_RT,
 * and a hash costs more: docs/adr/0002). A way belongs to a task from its fork, or from the start of the trackers, until its
 * last switch. When all ways of a set are taken the task is untracked, and counted.
 *
 * Writers of a task's slot: the CPU that wakes it (holding its pi_lock) and the CPU that switches it in or out (holding
 * the run queue's lock). The scheduler orders a wakeup and the switch in that follows it, but not a wakeup and the switch
 * out of the same task, which run at the same time on two CPUs: these two take the way's lock. Nobody holds it with
 * interrupts on for long, and nobody waits for it for ever (lock_way).
 */
#ifndef RTSCOPE_CORE_TASKS_BPF_H
#define RTSCOPE_CORE_TASKS_BPF_H

#include "core/recorder.bpf.h"

#define TASK_WAYS 4

/* SCHED_LOCKED: switched out for a spinlock, which sleeps on PREEMPT_RT; it has not gone to wait for anything else. */
enum task_sched { SCHED_UNKNOWN, SCHED_RUNNING, SCHED_RUNNABLE, SCHED_BLOCKED, SCHED_LOCKED };

/* LINK_WAITING: blocked in the middle of its cycle. */
enum task_link { LINK_NONE, LINK_WAKING, LINK_RUNNING, LINK_PREEMPTED, LINK_ENDED, LINK_WAITING };

/* 16 bytes: four of them are a cache line. Each field has one writer, or is written under the lock. */
struct task_way {
	__u32 tid;  /* 0: free. A way is claimed by compare-and-swap */
	__u8 sched; /* enum task_sched: of the last switch; written by the switching CPU */
	__u8 link;  /* enum task_link: under the lock, but for the switch in */
	__u8 targets; /* of which instances it is a target: bit 1 << index; written at fork, exec and rename, under the lock */
	__u8 unlinked; /* its last wakeup had no chain */
	__u32 lock;
	__u8 wait;   /* for what it blocked: enum rts_wait_kind, and WAIT_INTERRUPTIBLE; written by the switching CPU */
	__u8 source; /* the wait that its cycle began with; under the lock */
	__u16 turn;  /* trigger.turn of its last snapshot; 0: none */
};

#define WAIT_INTERRUPTIBLE 0x80 /* a wait that signals end: for input or time. Those for a disk are not. */
#define TASK_STATE_INTERRUPTIBLE 0x01

struct task_set {
	struct task_way ways[TASK_WAYS];
};

/* Mappable, here and below, only so that rtscope can free it itself (crates/kernel/src/ebpf/leaving.rs). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct task_set);
	__uint(max_entries, 1); /* sets; set before loading */
} tasks SEC(".maps");

/* A task's slot: where its state and its chain are. */
struct slot {
	struct task_way *way;
	__u32 index; /* into task_chains */
};

#define TASK_STATE_STOPPED (0x4 | 0x8)	     /* __TASK_STOPPED, __TASK_TRACED */
#define TASK_STATE_RTLOCK_WAIT 0x1000	     /* since Linux 5.15; only PREEMPT_RT has it */
#define TASK_STATE_DEAD (0x10 | 0x20 | 0x80) /* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */

/* Finds a task. One look-up in an array, four comparisons. Of the four ways the verifier sees one: each would multiply with all that follows. */
static __always_inline bool find_task(__u32 tid, struct slot *slot)
{
	__u32 set_index = tid & config.set_mask;
	struct task_set *set = bpf_map_lookup_elem(&tasks, &set_index);

	if (!set)
		return false;
#pragma unroll
	for (int i = 0; i < TASK_WAYS; i++) {
		if (set->ways[i].tid == tid) {
			__u32 way = (i ^ unknown_0()) & (TASK_WAYS - 1);

			slot->way = &set->ways[way];
			slot->index = set_index * TASK_WAYS + way;
			return true;
		}
	}
	return false;
}

/*
 * Finds or makes a task's slot; says whether it was made. ORDER: the claim is a compare-and-swap because several CPUs may fill a
 * set at once; a free way's other fields are zero (free_way), so nothing needs to be published with it. Two CPUs that claim for the
 * same task at once agree on the lower way, unless that becomes free between the two claims: then the task has two ways, of which
 * the lower is found from then on, and free_task() frees both.
 */
static __noinline struct task_way *claim_task(__u32 tid, __u32 *index, bool *made)
{
	__u32 set_index = tid & config.set_mask;
	struct task_set *set = bpf_map_lookup_elem(&tasks, &set_index);
	struct slot slot;

	*made = false;
	if (!set)
		return NULL;
	if (find_task(tid, &slot)) {
		*index = slot.index;
		return slot.way;
	}
#pragma unroll
	for (int i = 0; i < TASK_WAYS; i++) {
		/* ORDER: full; pairs with the release of `tid` in free_way(): the other fields are zero. */
		__u32 before = __sync_val_compare_and_swap(&set->ways[i].tid, 0, tid);

		if (before == 0 || before == tid) {
			__u32 way = (i ^ unknown_0()) & (TASK_WAYS - 1);

			*made = before == 0;
			*index = set_index * TASK_WAYS + way;
			return &set->ways[way];
		}
	}
	return NULL;
}

/* A wakeup or a switch out never waits longer than this for the other; a hypervisor may have taken the other's CPU. */
#define LOCK_TRIES 200

struct lock_attempt {
	struct task_way *way;
	bool is_locked;
};

static int try_to_lock(__u32 i, struct lock_attempt *attempt)
{
	(void)i;
	/* ORDER: full; pairs with the release in unlock_way(). */
	attempt->is_locked = __sync_val_compare_and_swap(&attempt->way->lock, 0, 1) == 0;
	return attempt->is_locked;
}

/*
 * With bpf_loop(), so that the verifier looks at one try: in a plain loop each try multiplies with all that follows. Not a global function:
 * Linux 6.12 has none where preemption is off.
 */
static __noinline bool lock_way_slowly(struct task_way *way)
{
	struct lock_attempt attempt = { way, false };

	bpf_loop(LOCK_TRIES, try_to_lock, &attempt, 0);
	return attempt.is_locked;
}

/* ORDER: acquire by compare-and-swap; pairs with the release in unlock_way(). */
static __always_inline bool lock_way(struct task_way *way)
{
	return __sync_val_compare_and_swap(&way->lock, 0, 1) == 0 || lock_way_slowly(way);
}

static __always_inline void unlock_way(struct task_way *way)
{
	/* ORDER: release; pairs with the compare-and-swap in lock_way(). */
	STORE_RELEASE(&way->lock, 0);
}

/* Under the way's lock, so that nobody writes to it who found it before it was freed. */
static __always_inline void free_way(struct task_way *way, __u32 tid)
{
	bool locked = lock_way(way);

	if (way->tid == tid) {
		way->sched = SCHED_UNKNOWN;
		way->link = LINK_NONE;
		way->targets = 0;
		way->unlinked = 0;
		way->wait = 0;
		way->source = 0;
		way->turn = 0;
		/* ORDER: release; pairs with the compare-and-swap in claim_task(). */
		STORE_RELEASE(&way->tid, 0);
	}
	if (locked)
		unlock_way(way);
}

/* A task has left for the last time: all its ways (see claim_task) are free. */
static __noinline int free_task(__u32 tid)
{
	__u32 set_index = tid & config.set_mask;
	struct task_set *set = bpf_map_lookup_elem(&tasks, &set_index);

	if (!set)
		return 0;
#pragma unroll
	for (int i = 0; i < TASK_WAYS; i++) {
		if (set->ways[i].tid == tid)
			free_way(&set->ways[i], tid);
	}
	return 0;
}

#endif

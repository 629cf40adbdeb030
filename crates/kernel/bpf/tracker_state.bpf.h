/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The response tracker's state: one slot a task, one set of contexts a CPU.
 *
 * Tasks are found by tid in a set-associative table (4 ways of 8 bytes): one cache line and no helper call for a look-up,
 * nothing to allocate, nothing that a kernel can refuse (task storage cannot be created in scheduler context on PREEMPT_RT,
 * and a hash costs more: docs/adr/0002). A way belongs to a task from its fork, or from the start of the tracker, until its
 * last switch. When all ways of a set are taken the task is untracked, and counted.
 *
 * Writers of a task's slot: the CPU that wakes it (holding its pi_lock) and the CPU that switches it in or out (holding
 * the run queue's lock). The scheduler orders a wakeup and the switch in that follows it, but not a wakeup and the switch
 * out of the same task, which run at the same time on two CPUs: these two take the way's lock. Nobody holds it with
 * interrupts on for long, and nobody waits for it for ever (lock_way).
 */
#ifndef RTSCOPE_TRACKER_STATE_BPF_H
#define RTSCOPE_TRACKER_STATE_BPF_H

#include "recorder.bpf.h"

#define TASK_WAYS 4

/* SCHED_LOCKED: switched out for a spinlock, which sleeps on PREEMPT_RT; it has not gone to wait for anything else. */
enum task_sched { SCHED_UNKNOWN, SCHED_RUNNING, SCHED_RUNNABLE, SCHED_BLOCKED, SCHED_LOCKED };

enum task_link { LINK_NONE, LINK_WAKING, LINK_RUNNING, LINK_PREEMPTED, LINK_ENDED };

/* 16 bytes: four of them are a cache line. Each field has one writer, or is written under the lock. */
struct task_way {
	__u32 tid;     /* 0: free. A way is claimed by compare-and-swap */
	__u8 sched;    /* enum task_sched: of the last switch; written by the switching CPU */
	__u8 link;     /* enum task_link: under the lock, but for the switch in */
	__u8 target;   /* its responses are measured; written at fork, exec and rename, under the lock */
	__u8 unlinked; /* its last wakeup had no chain */
	__u32 lock, pad;
};

struct task_set {
	struct task_way ways[TASK_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct task_set);
	__uint(max_entries, 1); /* sets; set before loading */
} tasks SEC(".maps");

/* The chain of a task whose link is not none. */
struct task_chain {
	struct rts_chain chain;
	__u64 ended_ns; /* LINK_ENDED: when and where it was switched out */
	__u32 ended_cpu, pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct task_chain);
	__uint(max_entries, TASK_WAYS); /* sets * TASK_WAYS */
} task_chains SEC(".maps");

/* A chain on its way to another CPU. state: 0 empty, 1 being written, 2 full; taken and filled by compare-and-swap. */
struct ipi_chain {
	__u32 state, pad;
	struct rts_chain chain;
};

#define IN_IRQ 0x01
#define IN_IRQ_LINGER 0x02 /* after an exit that returned IRQ_WAKE_THREAD: the thread is woken next */
#define IN_VECTOR 0x04
#define IN_HRTIMER 0x08
#define IN_SOFTIRQ 0x10 /* << number of a softirq slot */

/*
 * Softirqs that can be open on a CPU at once. It is one where softirqs do not preempt each other; on PREEMPT_RT each belongs to
 * the thread that runs it, which can be preempted by another one with another softirq.
 */
#define SOFTIRQ_SLOTS 4
#define IN_SOFTIRQS (IN_SOFTIRQ * ((1 << SOFTIRQ_SLOTS) - 1))

#define SOFTIRQS 16 /* 10 today; a power of two lets the verifier of Linux 6.1 follow an index */

/* A softirq that is being served, and the timer of it that is. Written with interrupts on, by the thread that serves it. */
struct softirq_slot {
	__u32 tid; /* valid while its IN_SOFTIRQ bit is set; 0: the idle task */
	__u32 vec;
	__u8 has_chain, in_hrtimer;
	__u8 pad[6];
	__u64 hrtimer_ns;
	__s64 softexpires_ns, expires_ns;
	struct rts_chain chain;
};

struct cpu_state {
	__u32 in;	    /* which contexts are open: IN_... */
	__u32 current_tid;  /* 0: idle or not known yet */
	__u32 current_slot; /* index into task_chains + 1, 0: idle or untracked */
	__u32 irq;
	__u64 irq_ns;
	__u64 vector_ns;
	__u64 hrtimer_ns;
	__s64 softexpires_ns, expires_ns;
	__u32 vector_kind;
	__u32 raised;	    /* softirq vectors raised and not yet entered: changed atomically where interrupts are on */
	__u32 raised_chain; /* of these, those with a chain */
	__u8 vector_has_chain;
	__u8 pad[3];
	struct rts_chain vector_chain;
	struct softirq_slot softirqs[SOFTIRQ_SLOTS];
	struct rts_chain raise_chain[SOFTIRQS];
	struct rts_chain scratch; /* for a merge; used with interrupts off */
	struct ipi_chain ipi[2];  /* reschedule, function call */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct cpu_state);
	__uint(max_entries, 1); /* CPUs */
} cpu_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rts_stats);
	__uint(max_entries, 1); /* CPUs */
} stats SEC(".maps");

struct late_ring {
	struct rts_late slots[RTS_LATE_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct late_ring);
	__uint(max_entries, 1); /* CPUs */
} late_rings SEC(".maps");

/* Counters of this CPU. They are written by this CPU only, so a plain increment does; a nested one may be lost by one. */
#define COUNT(here, counter)                                                      \
	do {                                                                      \
		struct rts_stats *s_ = bpf_map_lookup_elem(&stats, &(here)->cpu); \
		if (s_)                                                           \
			s_->counter++;                                            \
	} while (0)

/* A task's slot: where its state and its chain are. */
struct slot {
	struct task_way *way;
	__u32 index; /* into task_chains */
};

#define TASK_STATE_RTLOCK_WAIT 0x1000	     /* since Linux 5.15; only PREEMPT_RT has it */
#define TASK_STATE_DEAD (0x10 | 0x20 | 0x80) /* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */

/* Finds a task. One look-up in an array, four comparisons. */
static __always_inline bool find_task(__u32 tid, struct slot *slot)
{
	__u32 set_index = tid & config.set_mask;
	struct task_set *set = bpf_map_lookup_elem(&tasks, &set_index);

	if (!set)
		return false;
#pragma unroll
	for (int i = 0; i < TASK_WAYS; i++) {
		if (set->ways[i].tid == tid) {
			slot->way = &set->ways[i];
			slot->index = set_index * TASK_WAYS + i;
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
			*made = before == 0;
			*index = set_index * TASK_WAYS + i;
			return &set->ways[i];
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
		way->target = 0;
		way->unlinked = 0;
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

/* ---- chains ---- */

/* Appends a step that ended then and there; a chain that is full is folded (see docs/response-chains.md). */
static __always_inline void push_at(struct here *here, struct rts_chain *chain, __u32 kind, __u32 id, __u64 until_ns,
				    __u32 cpu)
{
	__u64 duration = until_ns > chain->last_ns ? until_ns - chain->last_ns : 0;
	__u32 length = chain->steps_len;
	struct rts_step *step;

	if (length < RTS_CHAIN_STEPS) {
		step = &chain->steps[length];
		step->duration_ns = duration;
		step->id = id;
		step->kind = kind;
		chain->steps_len = length + 1;
	} else {
		step = &chain->steps[RTS_CHAIN_STEPS - 1];
		if (step->kind != RTS_STEP_MORE) {
			step->kind = RTS_STEP_MORE;
			step->id = 1;
			COUNT(here, folded);
		}
		step->id++;
		step->duration_ns += duration;
	}
	step->cpu = cpu;
	chain->last_ns += duration;
}

static __always_inline void push(struct here *here, struct rts_chain *chain, __u32 kind, __u32 id, __u64 until_ns)
{
	push_at(here, chain, kind, id, until_ns, here->cpu);
}

static __always_inline void begin(struct rts_chain *chain, __u32 kind, __u32 id, __u32 cpu, __u64 origin_ns)
{
	__builtin_memset(chain, 0, 64); /* all but the steps, which steps_len bounds */
	chain->origin_ns = origin_ns;
	chain->last_ns = origin_ns;
	chain->origin_id = id;
	chain->origin_cpu = cpu;
	chain->origin_kind = kind;
}

/*
 * Merges two chains that now share one future: the older origin wins, the other is listed with it. Two branches of one
 * origin are not a merge.
 */
static __noinline int merge(struct rts_chain *into, struct rts_chain *other)
{
	__u64 origin_ns = other->origin_ns;
	__u32 id = other->origin_id;
	__u8 kind = other->origin_kind;
	__u32 length;

	if (origin_ns == into->origin_ns && id == into->origin_id && kind == into->origin_kind)
		return 0;
	if (origin_ns < into->origin_ns) {
		origin_ns = into->origin_ns;
		id = into->origin_id;
		kind = into->origin_kind;
		*into = *other;
	}
	into->merged++;
	length = into->others_len;
	if (length < RTS_CHAIN_OTHERS) {
		into->others[length].origin_ns = origin_ns;
		into->others[length].id = id;
		into->others[length].kind = kind;
		into->others_len = length + 1;
	}
	return 0;
}

#endif

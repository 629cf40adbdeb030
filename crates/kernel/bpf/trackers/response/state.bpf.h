/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The response tracker's state: the chain of each task, the contexts of each CPU; and how chains grow.
 */
#ifndef RTSCOPE_RESPONSE_STATE_BPF_H
#define RTSCOPE_RESPONSE_STATE_BPF_H

#include "core/stats.bpf.h"
#include "core/tasks.bpf.h"

/* The chain of a task whose link is not none. */
struct task_chain {
	struct rts_chain chain;
	__u64 ended_ns; /* LINK_ENDED: when and where it was switched out */
	__u32 ended_cpu;
	__u32 wait_on, source_on; /* cycles: on what it waits, and on what it waited when its cycle began */
	__u32 inner;		  /* waits in its cycle that would each have begun one */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
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
	__u64 raised_ns, entry_ns; /* of the tracker `softirq`; raised_ns is 0 where the raise was not seen */
	struct rts_chain chain;
};

/* Of the tracker `irqoff`, see there. */
struct sample_clock {
	__u64 due_ns; /* when the next sample is; 0: none has come yet */
	__u64 least_ns;
	/* When an interrupt was last let through, and the one before; or the CPU left the idle task. */
	__u64 through_ns, before_ns;
	/* The first one since the sample was due, and the last one before that; 0: none was. */
	__u64 first_ns, first_before_ns;
	__u32 first_tid; /* who was current then */
	__u32 samples;
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
	/* Of the tracker `softirq`, see there: raised and not yet entered; of these, those of the batch that runs; and raised again meanwhile. */
	__u32 softirqs_raised, softirqs_batch, softirqs_again;
	__u32 pad2;
	__u64 raised_ns[SOFTIRQS], again_ns[SOFTIRQS];
	struct sample_clock samples;
	struct rts_chain scratch; /* for a merge, and where a handler ends; used with interrupts off */
	/*
	 * The same of wakings. A softirq that wakes the task below it does so with interrupts on, and what comes then may raise one or queue
	 * work, in the other one.
	 */
	struct rts_chain waking;
	struct ipi_chain ipi[2]; /* reschedule, function call */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct cpu_state);
	__uint(max_entries, 1); /* CPUs */
} cpu_states SEC(".maps");

/* A task whose responses are measured. */
static __always_inline bool is_followed(const struct task_way *way)
{
	return way->targets & config.of_tracker[RTS_TRACKER_RESPONSE];
}

static __always_inline struct cpu_state *state_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_states, &cpu);
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
		step->detail = 0;
		chain->steps_len = length + 1;
	} else {
		step = &chain->steps[RTS_CHAIN_STEPS - 1];
		if (step->kind != RTS_STEP_MORE) {
			step->kind = RTS_STEP_MORE;
			step->detail = 0;
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

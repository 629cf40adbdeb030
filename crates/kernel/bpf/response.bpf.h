/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The end of a response: statistics, the report of a late one, and the trigger of the flight recorder.
 *
 * Runs once a response, not once an event; a late one costs about a microsecond.
 */
#ifndef RTSCOPE_RESPONSE_BPF_H
#define RTSCOPE_RESPONSE_BPF_H

#include "tracker_context.bpf.h"

static __always_inline bool origin_matches(const struct rts_chain *chain)
{
	if (!config.origin_filter)
		return true;
	if (chain->origin_kind == RTS_ORIGIN_TIMER)
		return config.origin_timer;
	if (chain->origin_kind != RTS_ORIGIN_IRQ)
		return false;
	for (__u32 i = 0; i < 16; i++) {
		if (i >= config.origin_irqs)
			break;
		if (config.irqs[i] == chain->origin_id)
			return true;
	}
	return false;
}

/* Position of the highest bit set, 0 for 0 and 1. */
static __always_inline __u32 log2_floor(__u64 value)
{
	__u32 bit = 0;

#pragma unroll
	for (int shift = 32; shift > 0; shift >>= 1) {
		if (value >> shift) {
			value >>= shift;
			bit += shift;
		}
	}
	return bit;
}

static __always_inline __u32 histogram_bucket(__u64 value)
{
	__u32 power, bucket;

	if (value < RTS_HIST_SUB)
		return value;
	power = log2_floor(value);
	bucket = (power - RTS_HIST_SUB_BITS + 1) * RTS_HIST_SUB +
		 ((value >> (power - RTS_HIST_SUB_BITS)) & (RTS_HIST_SUB - 1));
	return bucket < RTS_HIST_BUCKETS ? bucket : RTS_HIST_BUCKETS - 1;
}

/*
 * Claims the trigger, unless it is too soon or a snapshot is still being taken. Returns the generation, 0 if not.
 *
 * ORDER: state is claimed by compare-and-swap (several CPUs may be late at once). Nothing happens before stop_at_ns is
 * published, by pull_trigger(), after the report and the event of the detection.
 */
static __always_inline __u64 claim_trigger(struct here *here, struct rts_stats *s)
{
	__u64 generation;

	if (!config.snapshot)
		return 0;
	if (now(here) < trigger.next_allowed_ns) {
		s->suppressed_rate++;
		return 0;
	}
	/* ORDER: full; pairs with Trigger::re_arm() in crates/ring/src/control.rs, which stores the state last, with release. */
	if (__sync_val_compare_and_swap(&trigger.state, RTS_TRIGGER_IDLE, RTS_TRIGGER_ARMED) != RTS_TRIGGER_IDLE) {
		s->suppressed_busy++;
		return 0;
	}
	generation = trigger.generation + 1;
	trigger.generation = generation;
	trigger.detected_ns = now(here);
	trigger.next_allowed_ns = now(here) + config.rate_ns;
	return generation;
}

/*
 * ORDER: last of all, because flip() acts on stop_at_ns and then reads generation, and the listener on both. Pairs with
 * re_arm() in crates/ring/src/control.rs, which takes stop_at_ns back before it frees state.
 */
static __always_inline void pull_trigger(struct here *here)
{
	STORE_RELEASE(&trigger.stop_at_ns, now(here) + config.post_ns);
}

/* The full report of a late response, for user space, which polls late_head. */
static __always_inline __u64 report(struct here *here, struct rts_chain *chain, struct task_struct *task, __u32 end,
				    __u32 end_cpu, __u64 generation)
{
	struct rts_cpu_control *control = here->control;
	__u64 position = control->late_head;
	struct late_ring *ring = bpf_map_lookup_elem(&late_rings, &here->cpu);
	struct rts_late *late;

	if (!ring)
		return 0;
	/* ORDER: control dependency; pairs with set_late_tail() in crates/ring/src/control.rs: the slot has been read. */
	if (position - *(volatile __u64 *)&control->late_tail >= RTS_LATE_SLOTS) {
		control->late_lost++;
		return 0;
	}
	late = &ring->slots[position & (RTS_LATE_SLOTS - 1)];
	late->end_ns = chain->last_ns;
	late->threshold_ns = config.threshold_ns;
	late->trigger_generation = generation;
	late->tid = task->pid;
	late->pid = task->tgid;
	late->prio = task->prio;
	late->cpu = end_cpu;
	late->end = end;
	copy_comm(late->comm, task);
	late->chain = *chain;
	late->sequence = position + 1;
	/* ORDER: the slot before the head. Pairs with the acquire load of late_head in crates/ring/src/late.rs. */
	STORE_RELEASE(&control->late_head, position + 1);
	return position + 1;
}

/* A target's response has ended: chain->last_ns is its end. Five arguments are what a BPF function can have. */
static __noinline int complete(struct here *here, struct rts_chain *chain, struct task_struct *task, __u32 end,
			       __u32 end_cpu)
{
	struct rts_stats *s = bpf_map_lookup_elem(&stats, &here->cpu);
	__u64 response_ns = chain->last_ns - chain->origin_ns;
	__u32 bucket = histogram_bucket(response_ns);
	__u64 sequence, generation;

	if (!s)
		return 0;
	if (!origin_matches(chain)) {
		s->filtered++;
		return 0;
	}
	s->seen++;
	s->merged += chain->merged;
	s->sum_ns += response_ns;
	if (response_ns < s->min_ns || s->seen == 1)
		s->min_ns = response_ns;
	if (response_ns > s->max_ns)
		s->max_ns = response_ns;
	if (bucket < RTS_HIST_BUCKETS)
		s->histogram[bucket]++;
	if (response_ns <= config.threshold_ns)
		return 0;
	s->late++;
	generation = claim_trigger(here, s);
	sequence = report(here, chain, task, end, end_cpu, generation);
	RECORD(here, RTS_LATE_RESPONSE, rts_late_response, 0, {
		r->origin_ns = chain->origin_ns;
		r->response_ns = response_ns;
		r->threshold_ns = config.threshold_ns;
		r->sequence = sequence;
		r->tid = task->pid;
		r->pid = task->tgid;
		r->origin_id = chain->origin_id;
		r->origin_kind = chain->origin_kind;
		r->end = end;
		r->pad = 0;
	});
	if (generation)
		pull_trigger(here);
	return 0;
}

/* ---- which tasks are targets ---- */

/* Runs the name pattern over a comm: at most 16 iterations of a table look-up and three operations. */
static __noinline bool comm_matches(const char *comm)
{
	__u32 state = 1;

	for (int i = 0; i < RTS_COMM_LEN; i++) {
		__u8 character = comm[i];

		if (!character)
			break;
		state = (state & config.glob_any) | (state & config.glob[character]) << 1;
	}
	return state & config.glob_accept;
}

static __always_inline bool is_target(struct task_struct *task, const char *comm)
{
	if (config.target_pid && (__u32)task->tgid != config.target_pid)
		return false;
	if (config.match_comm)
		return comm_matches(comm);
	return config.target_pid || !is_kthread(task);
}

#endif

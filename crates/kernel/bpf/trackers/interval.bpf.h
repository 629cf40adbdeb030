/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Intervals: what happens to a task between two events of its own, in steps: it waits for something, for a CPU, runs, is preempted.
 *
 * What begins and what ends an interval is the tracker's (wakeup.bpf.h, offcpu.bpf.h); how it goes on from switch to switch is here, once.
 * For a target of such a tracker a switch costs one look-up and a step; for all other tasks one comparison.
 */
#ifndef RTSCOPE_TRACKERS_INTERVAL_BPF_H
#define RTSCOPE_TRACKERS_INTERVAL_BPF_H

#include "core/detection.bpf.h"
#include "trackers/response/context.bpf.h"

/* INTERVAL_EARLY: woken before it left its CPU, it seems. */
enum interval_link { INTERVAL_NONE, INTERVAL_WAITING, INTERVAL_WAKING, INTERVAL_PREEMPTED, INTERVAL_EARLY };

struct interval {
	struct rts_chain chain;
	__u32 waker; /* of a waking before it left its CPU: a tid, 0: an interrupt */
	__u8 link;   /* enum interval_link */
	__u8 wait;   /* enum rts_wait_kind: for what it waits */
	__u8 woken;  /* there was one since it came; it is told when the task has left, or come back */
	__u8 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct interval);
	__uint(max_entries, 1); /* ways of tasks * config.interval_kinds */
} intervals SEC(".maps");

static __always_inline struct interval *interval_of(const struct slot *slot, __u32 tracker)
{
	__u32 index = slot->index * config.interval_kinds + config.interval_kind[tracker];

	return bpf_map_lookup_elem(&intervals, &index);
}

static __always_inline bool is_in_interrupt(struct cpu_state *state)
{
	return state->in & ~IN_SOFTIRQS || (state->in && current_softirq(state));
}

/* Who wakes, here and now: a tid, 0 for an interrupt. */
static __always_inline __u32 waker_of(struct cpu_state *state)
{
	return is_in_interrupt(state) ? 0 : state->current_tid;
}

/* Begins a chain with the one who wakes. */
static __always_inline void begin_with_waker(struct here *here, struct cpu_state *state, struct rts_chain *chain)
{
	struct softirq_slot *softirq = state->in & IN_SOFTIRQS ? current_softirq(state) : NULL;

	if (state->in & IN_HRTIMER || (softirq && softirq->in_hrtimer))
		begin(chain, RTS_ORIGIN_TIMER, 0, here->cpu, now(here));
	else if (state->in & (IN_IRQ | IN_IRQ_LINGER))
		begin(chain, RTS_ORIGIN_IRQ, state->irq, here->cpu, now(here));
	else if (state->in & IN_VECTOR)
		begin(chain, RTS_ORIGIN_VECTOR, state->vector_kind, here->cpu, now(here));
	else if (softirq)
		begin(chain, RTS_ORIGIN_SOFTIRQ, softirq->vec, here->cpu, now(here));
	else
		begin(chain, RTS_ORIGIN_TASK, state->current_tid, here->cpu, now(here));
}

/* The wait is over: of this kind, ended by this task (0: an interrupt, or not seen). */
static __always_inline void push_wait(struct here *here, struct interval *interval, __u32 waker, __u64 until_ns)
{
	__u32 length = interval->chain.steps_len;

	push(here, &interval->chain, RTS_STEP_WAIT, waker, until_ns);
	if (length < RTS_CHAIN_STEPS)
		interval->chain.steps[length].detail = interval->wait;
}

#endif

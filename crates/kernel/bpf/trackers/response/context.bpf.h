/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which chain does the code that runs here and now belong to? Asked by every raise, IPI, wakeup and queueing of work.
 */
#ifndef RTSCOPE_RESPONSE_CONTEXT_BPF_H
#define RTSCOPE_RESPONSE_CONTEXT_BPF_H

#include "trackers/response/state.bpf.h"

/* The beginning of a timer's chain: what the program asked for, and the slack that the kernel added. Returns when it expired. */
static __always_inline __u64 begin_timer(struct here *here, struct rts_chain *to, __s64 softexpires_ns, __s64 expires,
					 __u64 handler_ns)
{
	__u64 origin_ns =
		softexpires_ns > 0 && (__u64)softexpires_ns <= handler_ns ? (__u64)softexpires_ns : handler_ns;
	__u64 expires_ns = expires > (__s64)origin_ns ? (__u64)expires : origin_ns;

	begin(to, RTS_ORIGIN_TIMER, 0, here->cpu, origin_ns);
	if (expires_ns > handler_ns)
		expires_ns = handler_ns;
	if (expires_ns > origin_ns)
		push(here, to, RTS_STEP_TIMER_SLACK, 0, expires_ns);
	return expires_ns;
}

/* The chain of a handler that runs in the timer's interrupt. */
static __always_inline void hrtimer_chain(struct here *here, struct cpu_state *state, struct rts_chain *to)
{
	__u64 handler_ns = state->hrtimer_ns;
	__u64 interrupt_ns = state->in & IN_VECTOR ? state->vector_ns : state->in & IN_IRQ ? state->irq_ns : handler_ns;
	__u64 expires_ns = begin_timer(here, to, state->softexpires_ns, state->expires_ns, handler_ns);

	if (interrupt_ns > expires_ns) {
		push(here, to, RTS_STEP_TIMER_LATENESS, 0, interrupt_ns);
		push(here, to, RTS_STEP_TIMER_INTERRUPT, 0, handler_ns);
	} else {
		push(here, to, RTS_STEP_TIMER_LATENESS, 0, handler_ns);
	}
	push(here, to, RTS_STEP_HANDLER, 0, now(here));
}

/* Steps that a timer takes over from the softirq that serves it: from the interrupt to the entry of the softirq. */
#define DELIVERY_STEPS 4

/*
 * The chain of a timer whose handler runs in a softirq: most timers of ordinary tasks on PREEMPT_RT. When an interrupt that
 * came after the timer had expired raised the softirq, the way from that interrupt to the softirq is the timer's too.
 */
static __noinline int soft_hrtimer_chain(struct here *here, struct softirq_slot *slot, struct rts_chain *to)
{
	const struct rts_chain *by = &slot->chain;
	__u64 expires_ns = begin_timer(here, to, slot->softexpires_ns, slot->expires_ns, slot->hrtimer_ns);
	__u32 length = by->steps_len;

	if (slot->has_chain && by->origin_kind != RTS_ORIGIN_TIMER && by->origin_ns >= expires_ns &&
	    length <= DELIVERY_STEPS) {
		push(here, to, RTS_STEP_TIMER_LATENESS, 0, by->origin_ns);
		for (__u32 i = 0; i < DELIVERY_STEPS; i++) {
			if (i >= length)
				break;
			push_at(here, to, by->steps[i].kind, by->steps[i].id, to->last_ns + by->steps[i].duration_ns,
				by->steps[i].cpu);
		}
		push(here, to, RTS_STEP_SOFTIRQ, slot->vec, slot->hrtimer_ns);
	} else {
		push(here, to, RTS_STEP_TIMER_LATENESS, 0, slot->hrtimer_ns);
	}
	push(here, to, RTS_STEP_HANDLER, 0, now(here));
	return 0;
}

/* The softirq that the current task is in; NULL when it is in none. The verifier sees one of them, as in find_task(). */
static __always_inline struct softirq_slot *current_softirq(struct cpu_state *state)
{
#pragma unroll
	for (int i = 0; i < SOFTIRQ_SLOTS; i++) {
		if (state->in & (IN_SOFTIRQ << i) && state->softirqs[i].tid == state->current_tid)
			return &state->softirqs[(i ^ unknown_0()) & (SOFTIRQ_SLOTS - 1)];
	}
	return NULL;
}

/*
 * Copies a chain to a new branch, with the step it is in. One that is full goes no further: two tasks that wake each other
 * for ever would carry it about for ever.
 */
static __noinline bool pass_on(struct here *here, const struct rts_chain *from, struct rts_chain *to, __u32 kind,
			       __u32 id)
{
	if (from->steps_len >= RTS_CHAIN_STEPS) {
		COUNT(here, too_long);
		return false;
	}
	*to = *from;
	to->flags &= ~RTS_CHAIN_BUSY;
	push(here, to, kind, id, now(here));
	return true;
}

static __always_inline bool hard_interrupt_chain(struct here *here, struct cpu_state *state, struct rts_chain *to)
{
	__u64 irq_ns = state->in & (IN_IRQ | IN_IRQ_LINGER) ? state->irq_ns : 0;
	__u64 vector_ns = state->in & IN_VECTOR ? state->vector_ns : 0;

	if (state->in & IN_HRTIMER && state->hrtimer_ns >= irq_ns && state->hrtimer_ns >= vector_ns) {
		hrtimer_chain(here, state, to);
	} else if (state->in & (IN_IRQ | IN_IRQ_LINGER) && irq_ns >= vector_ns) {
		begin(to, RTS_ORIGIN_IRQ, state->irq, here->cpu, irq_ns);
		push(here, to, RTS_STEP_HANDLER, state->irq, now(here));
	} else if (state->vector_has_chain) {
		return pass_on(here, &state->vector_chain, to, RTS_STEP_HANDLER, state->vector_kind);
	} else {
		begin(to, RTS_ORIGIN_VECTOR, state->vector_kind, here->cpu, vector_ns);
		push(here, to, RTS_STEP_HANDLER, state->vector_kind, now(here));
	}
	return true;
}

/* The way of a slot index that was valid when it was stored: a task's way does not move while the task lives. */
static __always_inline struct task_way *way_at(__u32 index)
{
	__u32 set_index = index / TASK_WAYS;
	struct task_set *set = bpf_map_lookup_elem(&tasks, &set_index);

	if (!set)
		return NULL;
	barrier_var(set); /* or clang adds to the pointer before it has been checked, which the verifier refuses */
	return &set->ways[index % TASK_WAYS];
}

/* The way of the task that runs here; it is asked, not cached, because a busy wakeup elsewhere may give it a chain. */
static __always_inline struct task_way *current_way(struct cpu_state *state)
{
	return state->current_slot ? way_at(state->current_slot - 1) : NULL;
}

/* Whether a response may begin with an origin of this kind. */
static __always_inline bool begins_with(__u32 origin_kind)
{
	return config.begin >> origin_kind & 1;
}

/* True when the code that runs here and now may belong to a chain, or begin one: the cheap question, asked at every wakeup. */
static __always_inline bool has_context(struct cpu_state *state)
{
	struct task_way *way;

	if (state->in || (begins_with(RTS_ORIGIN_TASK) && state->current_tid))
		return true;
	way = current_way(state);
	return way && way->link == LINK_RUNNING && !is_followed(way);
}

/* The same, while responses are followed. */
static __always_inline bool follows(struct cpu_state *state)
{
	return config.of_tracker[RTS_TRACKER_RESPONSE] && has_context(state);
}

/*
 * The chain of the code that runs here and now, copied to `to` with the step it is in; false when there is none. The
 * innermost context wins. Costs a copy of 256 bytes, and only on a branch that has a chain.
 */
static __noinline bool context_chain(struct here *here, struct cpu_state *state, struct rts_chain *to)
{
	if (state->in & (IN_HRTIMER | IN_IRQ | IN_IRQ_LINGER | IN_VECTOR))
		return hard_interrupt_chain(here, state, to);
	if (state->in & IN_SOFTIRQS) {
		struct softirq_slot *softirq = current_softirq(state);

		if (softirq && softirq->in_hrtimer)
			return soft_hrtimer_chain(here, softirq, to) == 0;
		if (softirq)
			return softirq->has_chain && pass_on(here, &softirq->chain, to, RTS_STEP_SOFTIRQ, softirq->vec);
	}
	if (state->current_slot) {
		__u32 index = state->current_slot - 1;
		struct task_way *way = way_at(index);
		struct task_chain *from = bpf_map_lookup_elem(&task_chains, &index);

		/* A target passes nothing on: what it wakes are responses to it, not to the interrupt. */
		if (way && way->link == LINK_RUNNING && !is_followed(way) && from)
			return pass_on(here, &from->chain, to, RTS_STEP_RUN, state->current_tid);
	}
	if (!begins_with(RTS_ORIGIN_TASK) || !state->current_tid)
		return false;
	begin(to, RTS_ORIGIN_TASK, state->current_tid, here->cpu, now(here));
	return true;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `softirq`: from where a softirq is raised to the exit of its handler, in two steps: it waits, it runs.
 *
 * As with interrupts, a detection names the current task: the one that it interrupted, or the thread that runs softirqs.
 */
#ifndef RTSCOPE_TRACKERS_SOFTIRQ_BPF_H
#define RTSCOPE_TRACKERS_SOFTIRQ_BPF_H

#include "trackers/irq.bpf.h"

/*
 * The kernel takes all that is raised as a batch, and serves it in the order of its numbers. A softirq that is raised again before its turn in
 * the batch comes twice: its first entry answers the first raise. One that is raised more often before that is answered once.
 *
 * Raises come with interrupts off, also in an interrupt that comes while an entry is looked at: the masks that both change are changed atomically.
 */
static __always_inline void softirq_on_raise(struct here *here, struct cpu_state *state, __u32 vec)
{
	__u32 bit = 1U << (vec & (SOFTIRQS - 1));

	vec &= SOFTIRQS - 1;
	if (!config.of_tracker[RTS_TRACKER_SOFTIRQ])
		return;
	if (state->softirqs_batch & bit) {
		if (state->softirqs_again & bit)
			return;
		state->again_ns[vec] = now(here);
		/* ORDER: none; on this CPU only. Pairs with softirq_on_entry(). */
		__sync_fetch_and_or(&state->softirqs_again, bit);
	} else if (!(state->softirqs_raised & bit)) {
		state->raised_ns[vec] = now(here);
		/* ORDER: none; on this CPU only. Pairs with softirq_on_entry(). */
		__sync_fetch_and_or(&state->softirqs_raised, bit);
	}
}

static __always_inline void softirq_on_entry(struct here *here, struct cpu_state *state, struct softirq_slot *softirq)
{
	__u32 vec = softirq->vec & (SOFTIRQS - 1);
	__u32 bit = 1U << vec;

	if (!config.of_tracker[RTS_TRACKER_SOFTIRQ])
		return;
	/* Each comes once in a batch: this is the first one of the next. */
	if (!(state->softirqs_batch & bit))
		state->softirqs_batch = state->softirqs_raised | bit;
	softirq->raised_ns = state->softirqs_raised & bit ? state->raised_ns[vec] : 0;
	softirq->entry_ns = now(here);
	/* ORDER: none; on this CPU only. Pairs with softirq_on_raise() in an interrupt, which goes by the batch until that is changed. */
	__sync_fetch_and_and(&state->softirqs_raised, ~bit);
	state->softirqs_batch &= ~bit;
	if (!(state->softirqs_again & bit))
		return;
	state->raised_ns[vec] = state->again_ns[vec];
	/* ORDER: none; on this CPU only. */
	__sync_fetch_and_or(&state->softirqs_raised, bit);
	__sync_fetch_and_and(&state->softirqs_again, ~bit);
}

/* The slot's chain has been passed on to whatever this softirq has raised and woken: its place is free. */
static __noinline int softirq_handled(struct here *here, struct softirq_slot *softirq)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 instances = instances_here(RTS_TRACKER_SOFTIRQ, task->pid);
	__u32 vec = softirq->vec;

	if (!instances)
		return 0;
	softirq->has_chain = false;
	begin(&softirq->chain, RTS_ORIGIN_SOFTIRQ, vec, here->cpu, softirq->raised_ns ?: softirq->entry_ns);
	if (softirq->raised_ns)
		push(here, &softirq->chain, RTS_STEP_SOFTIRQ_WAIT, vec, softirq->entry_ns);
	push(here, &softirq->chain, RTS_STEP_SOFTIRQ, vec, now(here));
	detect(here, &softirq->chain, task, RTS_TRACKER_SOFTIRQ, instances, RTS_END_HANDLED, here->cpu);
	return 0;
}

static __always_inline void softirq_on_exit(struct here *here, struct cpu_state *state, __u32 vec)
{
	struct softirq_slot *softirq;

	if (!config.of_tracker[RTS_TRACKER_SOFTIRQ])
		return;
	softirq = current_softirq(state);
	if (softirq && softirq->vec == vec)
		softirq_handled(here, softirq);
}

#endif

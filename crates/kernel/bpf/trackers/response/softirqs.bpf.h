/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Softirqs and IPIs: a chain goes from the raise to the softirq, and from the sender to the other CPU.
 */
#ifndef RTSCOPE_RESPONSE_SOFTIRQS_BPF_H
#define RTSCOPE_RESPONSE_SOFTIRQS_BPF_H

#include "trackers/response/context.bpf.h"
#include "trackers/softirq.bpf.h"

static __noinline int raise_with_chain(struct here *here, struct cpu_state *state, __u32 vec)
{
	__u32 bit = 1U << (vec & (SOFTIRQS - 1));
	struct rts_chain *pending;

	vec &= SOFTIRQS - 1;
	pending = &state->raise_chain[vec];
	if (state->raised_chain & bit) {
		if (context_chain(here, state, &state->scratch))
			merge(pending, &state->scratch);
	} else if (context_chain(here, state, pending)) {
		state->raised_chain |= bit;
	}
	return 0;
}

static __always_inline void track_softirq_raise(struct here *here, __u32 vec)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state || vec >= SOFTIRQS)
		return;
	if (!(state->raised & (1 << vec))) {
		state->raised |= 1 << vec;
		state->raised_chain &= ~(1 << vec);
	}
	softirq_on_raise(here, state, vec);
	if (follows(state))
		raise_with_chain(here, state, vec);
}

/* The slot of the current task's softirq: its own, when an exit was missed, or a free one; NULL when there is none. */
static __always_inline struct softirq_slot *claim_softirq(struct cpu_state *state)
{
	struct softirq_slot *softirq = current_softirq(state);

	if (softirq)
		return softirq;
#pragma unroll
	for (int i = 0; i < SOFTIRQ_SLOTS; i++) {
		__u32 bit = IN_SOFTIRQ << i;

		/* ORDER: full; on this CPU only. Pairs with the same claim by a task that preempts this one, and end_softirq(). */
		if (!(state->in & bit) && !(__sync_fetch_and_or(&state->in, bit) & bit)) {
			state->softirqs[i].tid = state->current_tid;
			return &state->softirqs[i];
		}
	}
	return NULL;
}

/* The softirq takes over the chain of its raise. */
static __noinline int softirq_begins(struct here *here, struct cpu_state *state, struct softirq_slot *softirq,
				     __u32 vec)
{
	softirq->vec = vec;
	softirq->in_hrtimer = false;
	softirq_on_entry(here, state, softirq);
	softirq->has_chain = state->raised_chain >> (vec & (SOFTIRQS - 1)) & 1;
	if (!softirq->has_chain)
		return 0;
	softirq->chain = state->raise_chain[vec & (SOFTIRQS - 1)];
	push(here, &softirq->chain, RTS_STEP_SOFTIRQ_WAIT, vec, now(here));
	return 0;
}

/* A task's softirq is over. */
static __always_inline void end_softirq(struct cpu_state *state, __u32 tid)
{
#pragma unroll
	for (int i = 0; i < SOFTIRQ_SLOTS; i++) {
		/* ORDER: none; on this CPU only. Atomic for a task that preempts between load and store. Pairs with claim_softirq(). */
		if (state->in & (IN_SOFTIRQ << i) && state->softirqs[i].tid == tid)
			__sync_fetch_and_and(&state->in, ~(IN_SOFTIRQ << i));
	}
}

static __always_inline void track_softirq_entry(struct here *here, __u32 vec)
{
	struct cpu_state *state = state_of(here->cpu);
	struct softirq_slot *softirq;

	if (!state || vec >= SOFTIRQS)
		return;
	/*
	 * Interrupts are on here, and from Linux 7 preemption too: so the bits are changed atomically. ORDER: none; on this CPU
	 * only. Pairs with track_irq_exit().
	 */
	if (state->in & IN_IRQ_LINGER)
		__sync_fetch_and_and(&state->in, ~IN_IRQ_LINGER);
	softirq = claim_softirq(state);
	if (!softirq)
		COUNT(here, untracked);
	else
		softirq_begins(here, state, softirq, vec);
	/* ORDER: none; on this CPU only. Pairs with raise_with_chain() in an interrupt. */
	__sync_fetch_and_and(&state->raised, ~(1U << vec));
	__sync_fetch_and_and(&state->raised_chain, ~(1U << vec));
}

static __always_inline void track_softirq_exit(struct here *here, __u32 vec)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state || !(state->in & IN_SOFTIRQS))
		return;
	softirq_on_exit(here, state, vec);
	end_softirq(state, state->current_tid);
}

static __noinline int send_chain(struct here *here, struct cpu_state *state, __u32 target_cpu, __u32 call)
{
	struct cpu_state *target = state_of(target_cpu);
	struct ipi_chain *ipi;
	bool full;

	if (!target)
		return 0;
	ipi = &target->ipi[call & 1];
	/* ORDER: empty -> being written -> full; pairs with take_ipi() on the target's CPU. */
	if (__sync_val_compare_and_swap(&ipi->state, 0, 1) != 0)
		return 0;
	full = context_chain(here, state, &ipi->chain) && ipi->chain.origin_kind != RTS_ORIGIN_TASK;
	__sync_lock_test_and_set(&ipi->state, full ? 2 : 0);
	return 0;
}

static __always_inline void track_ipi_send(struct here *here, __u32 target_cpu, __u32 call)
{
	struct cpu_state *state = state_of(here->cpu);

	if (state && target_cpu != here->cpu && follows(state))
		send_chain(here, state, target_cpu, call);
}

/* The same for each CPU of a mask. */
static __noinline int send_chains(struct here *here, struct cpu_state *state, const __u64 *mask, __u32 call)
{
	for (__u32 cpu = 0; cpu < RTS_MASK_CPUS; cpu++) {
		if (cpu >= config.cpus)
			break;
		if (cpu != here->cpu && mask[cpu / 64] >> (cpu % 64) & 1)
			send_chain(here, state, cpu, call);
	}
	return 0;
}

static __always_inline void track_ipi_send_mask(struct here *here, const __u64 *mask, __u32 call)
{
	struct cpu_state *state = state_of(here->cpu);

	if (state && follows(state))
		send_chains(here, state, mask, call);
}

#endif

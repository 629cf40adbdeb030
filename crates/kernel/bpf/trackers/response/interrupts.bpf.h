/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which interrupt, vector and timer a CPU is in, and that it went idle. Nearly all of it costs one look-up and a few stores.
 */
#ifndef RTSCOPE_RESPONSE_INTERRUPTS_BPF_H
#define RTSCOPE_RESPONSE_INTERRUPTS_BPF_H

#include "trackers/irq.bpf.h"
#include "trackers/irqoff.bpf.h"
#include "trackers/response/context.bpf.h"

static __always_inline void track_irq_entry(struct here *here, __u32 irq)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state)
		return;
	state->in = (state->in & ~(IN_IRQ_LINGER | IN_HRTIMER)) | IN_IRQ;
	state->irq = irq;
	state->irq_ns = now(here);
	irqoff_on_through(here, state);
}

static __always_inline void track_irq_exit(struct here *here, __u32 irq, __s32 ret)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state)
		return;
	if (state->in & IN_IRQ && state->irq == irq)
		irq_on_exit(here, state, RTS_ORIGIN_IRQ, irq, state->irq_ns);
	state->in &= ~IN_IRQ_LINGER;
	if (state->in & IN_IRQ && ret & 2 /* IRQ_WAKE_THREAD */)
		state->in |= IN_IRQ_LINGER;
	state->in &= ~IN_IRQ;
}

/* A chain that has waited longer came with an IPI that was never delivered; what arrives now is another one. */
#define IPI_FLIGHT_MAX_NS 10000000

/* Takes the chain that an IPI brought. Rare: only when the sender had one. */
static __noinline int take_ipi(struct here *here, struct cpu_state *state, __u32 call)
{
	struct ipi_chain *ipi = &state->ipi[call & 1];

	/* ORDER: full -> being read -> empty, each by an atomic; pairs with track_ipi_send() on the sender's CPU. */
	if (__sync_val_compare_and_swap(&ipi->state, 2, 1) != 2)
		return 0;
	state->vector_chain = ipi->chain;
	__sync_lock_test_and_set(&ipi->state, 0);
	if (now(here) > state->vector_chain.last_ns + IPI_FLIGHT_MAX_NS)
		return 0;
	push(here, &state->vector_chain, RTS_STEP_IPI, state->vector_kind, now(here));
	state->vector_has_chain = true;
	return 0;
}

static __always_inline void track_vector_entry(struct here *here, __u32 kind)
{
	struct cpu_state *state = state_of(here->cpu);
	__u32 call = kind == RTS_VECTOR_CALL_FUNCTION || kind == RTS_VECTOR_CALL_FUNCTION_SINGLE;

	if (!state)
		return;
	state->in = (state->in & ~(IN_IRQ_LINGER | IN_HRTIMER)) | IN_VECTOR;
	state->vector_kind = kind;
	state->vector_ns = now(here);
	state->vector_has_chain = false;
	irqoff_on_through(here, state);
	if ((call || kind == RTS_VECTOR_RESCHEDULE) && state->ipi[call].state == 2)
		take_ipi(here, state, call);
}

static __always_inline void track_vector_exit(struct here *here, __u32 kind)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state)
		return;
	if (state->in & IN_VECTOR && state->vector_kind == kind)
		irq_on_exit(here, state, RTS_ORIGIN_VECTOR, kind, state->vector_ns);
	state->in &= ~(IN_VECTOR | IN_HRTIMER);
}

static __always_inline void track_hrtimer_entry(struct here *here, __s64 softexpires_ns, __s64 expires_ns)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state)
		return;
	/* Not in an interrupt, but in a softirq: this timer is that softirq's. */
	if (!(state->in & (IN_IRQ | IN_VECTOR)) && state->in & IN_SOFTIRQS) {
		struct softirq_slot *softirq = current_softirq(state);

		if (softirq) {
			softirq->hrtimer_ns = now(here);
			softirq->softexpires_ns = softexpires_ns;
			softirq->expires_ns = expires_ns;
			softirq->in_hrtimer = true;
			return;
		}
	}
	state->in |= IN_HRTIMER;
	state->hrtimer_ns = now(here);
	state->softexpires_ns = softexpires_ns;
	state->expires_ns = expires_ns;
}

static __always_inline void track_hrtimer_exit(struct here *here)
{
	struct cpu_state *state = state_of(here->cpu);
	struct softirq_slot *softirq;

	if (!state)
		return;
	if (!(state->in & (IN_IRQ | IN_VECTOR)) && state->in & IN_SOFTIRQS && (softirq = current_softirq(state)))
		softirq->in_hrtimer = false;
	else
		state->in &= ~IN_HRTIMER;
}

static __always_inline void track_idle(struct here *here)
{
	struct cpu_state *state = state_of(here->cpu);

	if (state)
		state->in &= ~IN_IRQ_LINGER;
}

#endif

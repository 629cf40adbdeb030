/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `softirq`: from where a softirq is raised to the exit of its handler, in two steps: it waits, it runs.
 *
 * As with interrupts, a detection names the current task: the one that it interrupted, or the thread that runs softirqs.
 */
#ifndef RTSCOPE_TRACKERS_SOFTIRQ_BPF_H
#define RTSCOPE_TRACKERS_SOFTIRQ_BPF_H

#include "trackers/irq.bpf.h"

/* The first raise since the last entry: further ones are answered with it. */
static __always_inline void softirq_on_raise(struct here *here, struct cpu_state *state, __u32 vec)
{
	if (config.of_tracker[RTS_TRACKER_SOFTIRQ])
		state->raised_ns[vec & (SOFTIRQS - 1)] = now(here);
}

static __always_inline void softirq_on_entry(struct here *here, struct cpu_state *state, struct softirq_slot *softirq)
{
	__u32 vec = softirq->vec & (SOFTIRQS - 1);

	if (!config.of_tracker[RTS_TRACKER_SOFTIRQ])
		return;
	softirq->raised_ns = state->raised >> vec & 1 ? state->raised_ns[vec] : 0;
	softirq->entry_ns = now(here);
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

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `irqoff`: a timer of each CPU asks for an interrupt after each sample_ns; one that comes late was kept out for at least that long.
 *
 * Interrupts were off for longer than is reported, by less than sample_ns: the section began before the sample was due. Not before another
 * interrupt came through: where a hypervisor is late with one, others show that nobody kept it out. The idle task is left out for that reason,
 * and what was due while it was current: to wake a CPU takes its time, and some hosts leave samples out then.
 */
#ifndef RTSCOPE_TRACKERS_IRQOFF_BPF_H
#define RTSCOPE_TRACKERS_IRQOFF_BPF_H

#include "trackers/irq.bpf.h"

/* From the reading of the clock here until the kernel sets its timer again; more than a detection takes. */
#define SETTING_NS 10000
/* After so many samples, the least late of them shows when they are due. */
#define SAMPLES 256

/*
 * When this sample was due, and when the next one is. The timer's times lie on a grid, all sample_ns apart, of which nobody says where it begins: the earliest samples
 * show it. Should the kernel have begun anew, later, the earliest of SAMPLES show that as well.
 */
static __always_inline __u64 sample_due(struct sample_clock *clock, __u64 now_ns)
{
	__u64 period_ns = config.sample_ns;
	__u64 due_ns = clock->due_ns;
	__u64 late_ns;

	/* It was set before the point that was taken for passed. */
	if (now_ns + period_ns / 2 < due_ns)
		due_ns -= period_ns;
	if (now_ns < due_ns)
		due_ns = now_ns;
	late_ns = now_ns - due_ns;
	if (late_ns < clock->least_ns)
		clock->least_ns = late_ns;
	if (++clock->samples >= SAMPLES) {
		due_ns += clock->least_ns;
		clock->least_ns = ~0ULL;
		clock->samples = 0;
	}
	clock->due_ns = due_ns + ((now_ns + SETTING_NS - due_ns) / period_ns + 1) * period_ns;
	return now_ns - late_ns;
}

/*
 * An interrupt comes, or the idle task goes: interrupts were on until here. Where several have waited, the sample's need not be the first that comes.
 */
static __always_inline void irqoff_on_through(struct here *here, struct cpu_state *state)
{
	struct sample_clock *clock = &state->samples;

	if (!config.of_tracker[RTS_TRACKER_IRQOFF])
		return;
	if (!state->current_tid) {
		clock->first_ns = 0;
	} else if (!clock->first_ns && now(here) > clock->due_ns) {
		clock->first_ns = now(here);
		clock->first_before_ns = clock->through_ns;
	}
	clock->before_ns = clock->through_ns;
	clock->through_ns = now(here);
}

/* Since when interrupts were off, and until when, as far as this sample tells. */
static __always_inline __u64 off_since(struct here *here, struct cpu_state *state, __u64 *until_ns)
{
	struct sample_clock *clock = &state->samples;
	__u64 due_ns = sample_due(clock, now(here));
	__u64 before_ns = clock->first_before_ns;

	*until_ns = clock->first_ns;
	if (!clock->first_ns) {
		/* The last one is the interrupt that brings this sample, where the kernel tells of its entry. */
		before_ns = state->in & (IN_IRQ | IN_VECTOR) ? clock->before_ns : clock->through_ns;
		*until_ns = now(here);
	}
	clock->first_ns = 0;
	if (before_ns > due_ns)
		due_ns = before_ns;
	if (due_ns > *until_ns)
		*until_ns = due_ns;
	return due_ns;
}

/* In the timer's interrupt: so the CPU's scratch is free. */
static __always_inline void irqoff_on_sample(void *ctx, struct here *here)
{
	struct ended ended = { .tracker = RTS_TRACKER_IRQOFF,
			       .end = RTS_END_IRQS_ON,
			       .cpu = here->cpu,
			       .stack_of = ctx,
			       .result = config.sample_ns };
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu_state *state = state_of(here->cpu);
	__u64 since_ns, until_ns;

	if (!state || !config.sample_ns)
		return;
	if (!state->samples.due_ns) {
		state->samples.due_ns = now(here) + config.sample_ns;
		state->samples.least_ns = ~0ULL;
		return;
	}
	since_ns = off_since(here, state, &until_ns);
	if (!task->pid)
		return;
	ended.targets = instances_here(RTS_TRACKER_IRQOFF, task->pid);
	if (!ended.targets)
		return;
	begin(&state->scratch, RTS_ORIGIN_IRQS_OFF, 0, here->cpu, since_ns);
	push(here, &state->scratch, RTS_STEP_IRQS_OFF, task->pid, until_ns);
	detect_ended(here, &state->scratch, task, RTS_TRACKER_IRQOFF, &ended);
}

#endif

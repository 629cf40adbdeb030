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
		clock->first_tid = state->current_tid;
	}
	clock->before_ns = clock->through_ns;
	clock->through_ns = now(here);
}

struct section {
	__u64 since_ns, until_ns;
	bool is_known;
};

static __always_inline struct section section_of(__u64 due_ns, __u64 before_ns, __u64 until_ns)
{
	struct section section = { .since_ns = due_ns > before_ns ? due_ns : before_ns,
				   .until_ns = until_ns,
				   .is_known = true };

	if (section.until_ns < section.since_ns)
		section.until_ns = section.since_ns;
	return section;
}

/*
 * From when to when interrupts were off, as far as this sample tells: up to the first interrupt since it was due; or, where that was none of several
 * that had waited, from the last one before its own. When the sample comes alone, long after the first, and was not kept out since: then the kernel had
 * stopped the event, as it does where samples come too fast for its ticks (an idle CPU has none), and began anew.
 */
static __always_inline struct section section_before(struct here *here, struct cpu_state *state)
{
	struct sample_clock *clock = &state->samples;
	__u64 due_ns = sample_due(clock, now(here)), first_ns = clock->first_ns;
	/* The last one is the interrupt that brings this sample, where the kernel tells of its entry. */
	__u64 before_ns = state->in & (IN_IRQ | IN_VECTOR) ? clock->before_ns : clock->through_ns;
	/* A sample that was kept out comes with the first interrupt or soon after it; that of an event that began anew, a period later. */
	__u64 together_ns = config.sample_ns - config.sample_ns / 4;
	struct section last = section_of(due_ns, before_ns, now(here));
	struct section first = section_of(due_ns, clock->first_before_ns, first_ns);
	struct section unknown = { .is_known = false };

	clock->first_ns = 0;
	if (!first_ns)
		return last;
	if (now(here) - first_ns > together_ns) {
		if (last.until_ns - last.since_ns > config.sample_ns + together_ns)
			return last;
		clock->due_ns = 0;
		return unknown;
	}
	/* Another task came in between: who was current then is not here any more. */
	first.is_known = clock->first_tid == state->current_tid;
	return first;
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
	struct section section;

	if (!state || !config.sample_ns)
		return;
	if (!state->samples.due_ns) {
		state->samples.due_ns = now(here) + config.sample_ns;
		state->samples.least_ns = ~0ULL;
		state->samples.samples = 0;
		return;
	}
	section = section_before(here, state);
	if (!task->pid || !section.is_known)
		return;
	ended.targets = instances_here(RTS_TRACKER_IRQOFF, task->pid);
	if (!ended.targets)
		return;
	begin(&state->scratch, RTS_ORIGIN_IRQS_OFF, 0, here->cpu, section.since_ns);
	push(here, &state->scratch, RTS_STEP_IRQS_OFF, task->pid, section.until_ns);
	detect_ended(here, &state->scratch, task, RTS_TRACKER_IRQOFF, &ended);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `irq`: from the entry of an interrupt's handler to its exit, of devices and of the system (timer, function calls).
 *
 * A handler is nobody's: a detection names the task that it interrupted, and an instance with a target counts only those that interrupted it.
 * When the handler began is known anyway; at its exit it costs a chain of one step, and the counting.
 */
#ifndef RTSCOPE_TRACKERS_IRQ_BPF_H
#define RTSCOPE_TRACKERS_IRQ_BPF_H

#include "core/detection.bpf.h"
#include "trackers/response/context.bpf.h"

/* The instances for which it counts what happens now, whatever is the current task. */
static __always_inline __u8 instances_here(__u32 tracker, __u32 tid)
{
	__u8 of = config.of_tracker[tracker & (RTS_TRACKERS_MAX - 1)];
	__u8 found = of & config.untargeted;
	struct slot slot;

	if (of & ~config.untargeted && tid && find_task(tid, &slot))
		found |= of & slot.way->targets;
	return found;
}

/* With interrupts off: so the CPU's scratch is free. */
static __noinline int irq_handled(struct here *here, struct cpu_state *state, __u32 kind, __u32 id, __u64 entry_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 instances = instances_here(RTS_TRACKER_IRQ, task->pid);

	if (!instances)
		return 0;
	begin(&state->scratch, kind, id, here->cpu, entry_ns);
	push(here, &state->scratch, RTS_STEP_HANDLER, id, now(here));
	detect(here, &state->scratch, task, RTS_TRACKER_IRQ, instances, RTS_END_HANDLED, here->cpu);
	return 0;
}

static __always_inline void irq_on_exit(struct here *here, struct cpu_state *state, __u32 kind, __u32 id,
					__u64 entry_ns)
{
	if (config.of_tracker[RTS_TRACKER_IRQ])
		irq_handled(here, state, kind, id, entry_ns);
}

#endif

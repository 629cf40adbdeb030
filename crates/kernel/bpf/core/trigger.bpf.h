/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The trigger of the flight recorder: a detection claims it, reports, and pulls it.
 *
 * Runs once a detection, not once an event.
 */
#ifndef RTSCOPE_CORE_TRIGGER_BPF_H
#define RTSCOPE_CORE_TRIGGER_BPF_H

#include "core/stats.bpf.h"
#include "core/tasks.bpf.h"

/*
 * Claims the trigger, unless it is too soon or a snapshot is still being taken. Returns the generation, 0 if not.
 *
 * ORDER: state is claimed by compare-and-swap (several CPUs may be late at once). Nothing happens before stop_at_ns is
 * published, by pull_trigger(), after the report and the event of the detection.
 */
static __always_inline __u64 claim_trigger(struct here *here, struct rts_stats *s, __u32 tid)
{
	__u64 generation;
	struct slot slot;
	__u16 turn = trigger.turn;
	bool served;

	if (!config.snapshot)
		return 0;
	/* Of the idle task, which has no way, nothing is known: tid 0 is that of a free one. */
	served = tid && find_task(tid, &slot) && slot.way->turn == turn;
	if (now(here) < trigger.next_allowed_ns) {
		s->suppressed_rate++;
		if (!served)
			trigger.waiting = 1;
		return 0;
	}
	/* It had its snapshot in this turn, and others wait for theirs: for as long again, they come first. */
	if (served && trigger.waiting && now(here) < trigger.next_allowed_ns + config.rate_ns) {
		s->suppressed_rate++;
		return 0;
	}
	/* ORDER: full; pairs with Trigger::re_arm() in crates/ring/src/control.rs, which stores the state last, with release. */
	if (__sync_val_compare_and_swap(&trigger.state, RTS_TRIGGER_IDLE, RTS_TRIGGER_ARMED) != RTS_TRIGGER_IDLE) {
		s->suppressed_busy++;
		return 0;
	}
	if (served) {
		turn++;
		trigger.turn = turn;
		trigger.waiting = 0;
	}
	if (tid && find_task(tid, &slot))
		slot.way->turn = turn;
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

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Cycles (RTS_END_CYCLE): from a source's waking until the task waits for that source again.
 */
#ifndef RTSCOPE_RESPONSE_CYCLE_BPF_H
#define RTSCOPE_RESPONSE_CYCLE_BPF_H

#include "trackers/interval.bpf.h"
#include "trackers/response/complete.bpf.h"

static __always_inline bool ends_here(struct task_way *way, __u32 end)
{
	return config.end == end && is_followed(way);
}

/* A wait of the kind that the cycle in progress began with. */
static __always_inline bool is_source(const struct task_way *way, __u32 wait)
{
	return wait & WAIT_INTERRUPTIBLE && (wait & ~WAIT_INTERRUPTIBLE) == way->source;
}

/* Whether a chain came by way of another task. Twelve comparisons, for a target's wakings by timers. */
static __noinline bool came_by_a_task(const struct rts_chain *chain)
{
	for (__u32 i = 0; i < RTS_CHAIN_STEPS; i++) {
		if (i >= chain->steps_len)
			break;
		if (chain->steps[i].kind == RTS_STEP_RUN)
			return true;
	}
	return false;
}

/*
 * Whether a waking with this chain begins a cycle of a task that had waited so: by an origin that counts, and by its own timer, unless
 * other tasks count as well.
 */
static __always_inline bool begins_cycle(const struct rts_chain *chain, __u32 wait)
{
	if (!(wait & WAIT_INTERRUPTIBLE) || !(config.sources >> (wait & 31) & 1) || !origin_matches(chain))
		return false;
	return chain->origin_kind != RTS_ORIGIN_TIMER || begins_with(RTS_ORIGIN_TASK) || !came_by_a_task(chain);
}

/* Whether a waking's chain goes on in this task. One that began with a task goes on in targets only: there is no end of them. */
static __always_inline bool goes_on(struct here *here, struct task_way *way, struct task_chain *holder,
				    const struct rts_chain *chain)
{
	if (!is_followed(way))
		return chain->origin_kind != RTS_ORIGIN_TASK;
	if (config.end != RTS_END_CYCLE)
		return true;
	if (!begins_cycle(chain, way->wait)) {
		COUNT(here, filtered);
		return false;
	}
	way->source = way->wait & ~WAIT_INTERRUPTIBLE;
	holder->source_on = holder->wait_on;
	holder->inner = 0;
	return true;
}

/* Woken, or seen to run, in the middle of its cycle. `waker` 0: by an interrupt, or not seen. */
static __noinline int end_wait(struct here *here, struct slot *slot, __u32 waker)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	__u32 length;

	if (!holder)
		return 0;
	length = holder->chain.steps_len;
	push(here, &holder->chain, RTS_STEP_WAIT, waker, now(here));
	if (length < RTS_CHAIN_STEPS)
		holder->chain.steps[length].detail = slot->way->wait & ~WAIT_INTERRUPTIBLE;
	slot->way->link = LINK_WAKING;
	return 0;
}

/* A target blocks in its cycle. The step until then has been pushed. */
static __always_inline void block_in_cycle(struct here *here, struct slot *slot, struct task_chain *holder,
					   struct task_struct *task, __u32 cpu)
{
	if (is_source(slot->way, slot->way->wait) && holder->wait_on == holder->source_on) {
		slot->way->link = LINK_NONE;
		complete(here, slot->way, &holder->chain, task, RTS_END_CYCLE, cpu);
	} else {
		slot->way->link = LINK_WAITING;
	}
}

/*
 * A wakeup meets a target in the middle of its cycle that has declared a wait, but has not left its CPU. For its source: one cycle
 * is over and perhaps the next begins. For anything else: nothing happens, as it has not waited. `is_self`: it runs here, so it
 * cannot be leaving. Under the way's lock.
 */
static __noinline int busy_in_cycle(struct here *here, struct cpu_state *state, struct slot *slot,
				    struct task_struct *task, bool is_self)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;
	bool running = way->link == LINK_RUNNING;
	bool begins = context_chain(here, state, &state->waking);

	if (!holder)
		return 0;
	if (!is_self)
		COUNT(here, busy);
	push(here, &holder->chain, running ? RTS_STEP_RUN : RTS_STEP_PREEMPTED, way->tid, now(here));
	complete(here, way, &holder->chain, task, RTS_END_REWOKEN, here->cpu);
	way->link = LINK_NONE;
	if (!begins || !begins_cycle(&state->waking, way->source | WAIT_INTERRUPTIBLE))
		return 0;
	holder->chain = state->waking;
	holder->inner = 0;
	push(here, &holder->chain, RTS_STEP_BUSY, way->tid, now(here));
	if (!is_self)
		holder->chain.flags |= RTS_CHAIN_BUSY;
	way->link = way->sched == SCHED_RUNNING ? LINK_RUNNING : LINK_PREEMPTED;
	return 0;
}

/* Whether a target is in the middle of a cycle and not waiting. */
static __always_inline bool is_in_cycle(const struct task_way *way)
{
	return ends_here((struct task_way *)way, RTS_END_CYCLE) &&
	       (way->link == LINK_RUNNING || way->link == LINK_PREEMPTED);
}

#endif

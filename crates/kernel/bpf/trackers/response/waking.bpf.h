/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Wakeups: a chain goes from who wakes to who is woken.
 */
#ifndef RTSCOPE_RESPONSE_WAKING_BPF_H
#define RTSCOPE_RESPONSE_WAKING_BPF_H

#include "trackers/intervals.bpf.h"
#include "trackers/response/cycle.bpf.h"
#include "trackers/response/tasks.bpf.h"

/* The task that was thought to have ended its response did: this wakeup confirms it. */
static __always_inline void confirm_end(struct here *here, struct slot *slot, struct task_struct *task)
{
	struct task_chain *ended = bpf_map_lookup_elem(&task_chains, &slot->index);

	if (ended && ends_here(slot->way, RTS_END_CYCLE)) {
		push_at(here, &ended->chain, RTS_STEP_RUN, slot->way->tid, ended->ended_ns, ended->ended_cpu);
		ended->chain.flags &= ~RTS_CHAIN_BUSY;
		block_in_cycle(here, slot, ended, task, ended->ended_cpu);
		return;
	}
	slot->way->link = LINK_NONE;
	if (!ended || !is_followed(slot->way))
		return;
	/* Until it runs, it was over at once: it ran when it was woken. */
	if (config.end == RTS_END_BLOCKED)
		push_at(here, &ended->chain, RTS_STEP_RUN, slot->way->tid, ended->ended_ns, ended->ended_cpu);
	complete(here, slot->way, &ended->chain, task, config.end, ended->ended_cpu);
}

/* A target that was woken while it ran, and has not left by itself since: that response was over when it was woken. Under the way's lock. */
static __noinline int ran_already(struct here *here, struct slot *slot, struct task_struct *task)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);

	if (!holder || !(holder->chain.flags & RTS_CHAIN_BUSY))
		return 0;
	slot->way->link = LINK_NONE;
	complete(here, slot->way, &holder->chain, task, RTS_END_RUNNING, here->cpu);
	return 0;
}

/* A wakeup meets a task that has declared its wait but has not left its CPU. Under the way's lock. */
static __noinline int busy_waking(struct here *here, struct cpu_state *state, struct slot *slot,
				  struct task_struct *task)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;
	struct rts_chain *chain;
	__u32 tid = way->tid;

	/* Outside a cycle: none begins, since the wait that it has declared is not over. */
	if (!holder || ends_here(way, RTS_END_CYCLE))
		return 0;
	/* Not into its chain at once: without a chain this wakeup changes nothing. */
	if (!context_chain(here, state, &state->waking) || !goes_on(here, way, holder, &state->waking))
		return 0;
	chain = &holder->chain;
	COUNT(here, busy);
	if (ends_here(way, RTS_END_BLOCKED) && (way->link == LINK_RUNNING || way->link == LINK_PREEMPTED)) {
		push(here, chain, way->link == LINK_RUNNING ? RTS_STEP_RUN : RTS_STEP_PREEMPTED, tid, now(here));
		complete(here, way, chain, task, RTS_END_REWOKEN, here->cpu);
	}
	*chain = state->waking;
	push(here, chain, RTS_STEP_BUSY, tid, now(here));
	chain->flags |= RTS_CHAIN_BUSY;
	way->link = way->sched == SCHED_RUNNING ? LINK_RUNNING : LINK_PREEMPTED;
	return 0;
}

/*
 * Whether a wait in the middle of a cycle ends that cycle unmeasured. A program sleeps once before it begins to work, and that sleep does
 * not come back: all that it waits for then would be steps. So of waits that could have begun a cycle themselves no more than this are in one.
 */
#define CYCLE_INNER_MAX 64

static __noinline bool give_up_cycle(struct here *here, struct cpu_state *state, struct slot *slot)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	__u32 wait = slot->way->wait;

	if (!holder || !(wait & WAIT_INTERRUPTIBLE) || !(config.sources >> (wait & 31) & 1))
		return false;
	if (!context_chain(here, state, &state->waking) || !begins_cycle(&state->waking, wait))
		return false;
	if (++holder->inner < CYCLE_INNER_MAX)
		return false;
	COUNT(here, abandoned);
	return true;
}

/* Under the way's lock. */
static __noinline int locked_waking(struct here *here, struct cpu_state *state, struct slot *slot,
				    struct task_struct *task)
{
	struct task_way *way = slot->way;
	struct task_chain *holder;

	if (way->sched == SCHED_RUNNING || way->sched == SCHED_RUNNABLE) {
		if (way->link == LINK_RUNNING && ends_here(way, RTS_END_RUNNING))
			ran_already(here, slot, task);
		return busy_waking(here, state, slot, task);
	}
	if (way->link == LINK_ENDED)
		confirm_end(here, slot, task);
	if (way->link == LINK_WAITING && !give_up_cycle(here, state, slot))
		return end_wait(here, slot, is_in_interrupt(state) ? 0 : state->current_tid);
	/* Woken already, it has run and blocked again, and the kernel reported neither. */
	if (way->link == LINK_WAKING && is_followed(way) && way->sched == SCHED_BLOCKED)
		COUNT(here, hidden);
	way->link = LINK_NONE;
	holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	way->unlinked = !holder || !context_chain(here, state, &holder->chain);
	if (holder && !way->unlinked && goes_on(here, way, holder, &holder->chain))
		way->link = LINK_WAKING;
	return 0;
}

/* After a waking by an interrupt of the CPU on which the task runs: it cannot be leaving, and it runs already. Under the way's lock. */
static __noinline int settle_self(struct here *here, struct slot *slot, struct task_struct *task)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;

	if (!holder || way->link != LINK_RUNNING || !(holder->chain.flags & RTS_CHAIN_BUSY))
		return 0;
	holder->chain.flags &= ~RTS_CHAIN_BUSY;
	if (!ends_here(way, RTS_END_RUNNING))
		return 0;
	way->link = LINK_NONE;
	/* Some hosts hide switches: then it has left, and when it runs again is not known. */
	if (task == bpf_get_current_task_btf())
		complete(here, way, &holder->chain, task, RTS_END_RUNNING, here->cpu);
	else
		COUNT(here, hidden);
	return 0;
}

/* Under the way's lock, where a cycle is asked for, too: its switch out may have ended it while this CPU waited. */
static __always_inline void response_on_waking(struct here *here, struct cpu_state *state, struct slot *slot,
					       struct task_struct *task, __u32 wait, bool is_self)
{
	if (is_in_cycle(slot->way)) {
		if (wait && is_source(slot->way, wait | WAIT_INTERRUPTIBLE))
			busy_in_cycle(here, state, slot, task, is_self);
	} else if (!is_self) {
		locked_waking(here, state, slot, task);
	} else if (is_in_interrupt(state)) {
		/* Perhaps it has run since before the tracker began. */
		slot->way->sched = SCHED_RUNNING;
		locked_waking(here, state, slot, task);
		settle_self(here, slot, task);
	}
}

/* `wait`: the kind of wait, one that signals end, that a task has declared which has not left its run queue; else RTS_WAIT_NONE. */
static __always_inline void track_waking(struct here *here, struct task_struct *task, __u32 wait)
{
	struct cpu_state *state = state_of(here->cpu);
	__u32 tid = task->pid;
	bool is_self, responds, has_interval;
	struct slot slot;

	if (!state || !tid)
		return;
	is_self = tid == state->current_tid;
	/* A task that wakes itself does not wait. One that an interrupt wakes had declared a wait, which is over. */
	if (is_self && config.end != RTS_END_CYCLE && !is_in_interrupt(state))
		return;
	if (!find_task(tid, &slot) && !adopt(here, task, &slot))
		return;
	/* A spinlock is handed over: that is no event, and the one that the task waits for may come yet. */
	if (slot.way->sched == SCHED_LOCKED)
		return;
	/* Most wakeups: nobody's chain goes on, and the task has none. */
	responds = config.of_tracker[RTS_TRACKER_RESPONSE] &&
		   (has_context(state) || is_followed(slot.way) || slot.way->link == LINK_ENDED);
	has_interval = !is_self && has_intervals(slot.way);
	if (!responds && !has_interval) {
		if (state->in & IN_IRQ_LINGER)
			state->in &= ~IN_IRQ_LINGER;
		return;
	}
	if (lock_way(slot.way)) {
		if (has_interval)
			intervals_on_waking(here, state, &slot);
		if (responds)
			response_on_waking(here, state, &slot, task, wait, is_self);
		unlock_way(slot.way);
	} else {
		COUNT(here, raced);
	}
	/* The one thread that was left to be woken after irq_handler_exit is this one. */
	state->in &= ~IN_IRQ_LINGER;
}

#endif

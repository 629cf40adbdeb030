/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Switches: a task leaves its CPU, and another comes.
 */
#ifndef RTSCOPE_RESPONSE_SWITCH_BPF_H
#define RTSCOPE_RESPONSE_SWITCH_BPF_H

#include "trackers/intervals.bpf.h"
#include "trackers/irqoff.bpf.h"
#include "trackers/response/cycle.bpf.h"
#include "trackers/response/softirqs.bpf.h"
#include "trackers/response/tasks.bpf.h"

/* Under the way's lock. */
static __noinline int leave_with_chain(struct here *here, struct slot *slot, struct task_struct *prev, bool blocked)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;
	bool ended;

	if (!holder)
		return 0;
	if (blocked && holder->chain.flags & RTS_CHAIN_BUSY) {
		/* Wait for what comes next: a wakeup confirms this end, a switch in refutes it. */
		holder->ended_ns = now(here);
		holder->ended_cpu = here->cpu;
		way->link = LINK_ENDED;
		return 0;
	}
	/* Woken while it ran, and it was not about to leave: until it ran, that was over at once. */
	ended = holder->chain.flags & RTS_CHAIN_BUSY && ends_here(way, RTS_END_RUNNING);
	if (!ended) {
		push(here, &holder->chain, RTS_STEP_RUN, way->tid, now(here));
		if (blocked && ends_here(way, RTS_END_CYCLE)) {
			block_in_cycle(here, slot, holder, prev, here->cpu);
			return 0;
		}
		ended = blocked && ends_here(way, RTS_END_BLOCKED);
	}
	way->link = blocked || ended ? LINK_NONE : LINK_PREEMPTED;
	if (ended)
		complete(here, way, &holder->chain, prev, config.end, here->cpu);
	return 0;
}

/* The wakeup that seemed to meet a busy task was an ordinary one: the step that said so goes. */
static __always_inline void not_busy(struct rts_chain *chain)
{
	__u32 last = chain->steps_len - 1;

	chain->flags &= ~RTS_CHAIN_BUSY;
	if (last < RTS_CHAIN_STEPS && chain->steps[last].kind == RTS_STEP_BUSY)
		chain->steps_len = last;
}

static __noinline int arrive_with_chain(struct here *here, struct slot *slot, struct task_struct *next, bool locked)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;
	__u32 step = way->link == LINK_PREEMPTED ? RTS_STEP_PREEMPTED : RTS_STEP_WAKEUP;
	bool answer;

	if (!holder || way->link == LINK_RUNNING)
		return 0;
	/* Its waking was not seen, or raced with its leaving. */
	if (way->link == LINK_WAITING)
		end_wait(here, slot, 0);
	if (step == RTS_STEP_PREEMPTED && locked)
		step = RTS_STEP_LOCK_WAIT;
	answer = way->link != LINK_PREEMPTED || holder->chain.flags & RTS_CHAIN_BUSY;
	if (way->link == LINK_ENDED)
		not_busy(&holder->chain);
	push(here, &holder->chain, step, way->tid, now(here));
	way->link = LINK_RUNNING;
	if (answer && ends_here(way, RTS_END_RUNNING)) {
		way->link = LINK_NONE;
		complete(here, way, &holder->chain, next, RTS_END_RUNNING, here->cpu);
	}
	return 0;
}

/*
 * A switch cannot happen inside an interrupt, and nobody waits inside a softirq, nor does the idle task leave one: what is still
 * open lost its exit event. (On PREEMPT_RT a softirq can be preempted, and can wait for a spinlock.)
 */
static __always_inline void heal(struct here *here, struct cpu_state *state, __u32 prev_tid, bool blocked)
{
	if (state->in & (IN_IRQ | IN_VECTOR | IN_HRTIMER))
		COUNT(here, healed);
	state->in &= IN_SOFTIRQS;
	if (state->in && (blocked || !prev_tid))
		end_softirq(state, prev_tid);
}

/* The task that leaves is the one that came: its slot is known, without a search. */
static __always_inline bool find_current(struct cpu_state *state, __u32 tid, struct slot *slot)
{
	if (state->current_tid != tid || !state->current_slot)
		return find_task(tid, slot);
	slot->index = state->current_slot - 1;
	slot->way = way_at(slot->index);
	return slot->way && slot->way->tid == tid;
}

/*
 * A task leaves that was never seen to come: the kernel did not report that switch (some hosts hide those from threads of
 * their own). It ran, so its chain goes on; when it began to run is not known. Under the way's lock.
 */
static __noinline int arrived_unseen(struct here *here, struct slot *slot)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;

	if (!holder)
		return 0;
	if (ends_here(way, RTS_END_RUNNING)) {
		way->link = LINK_NONE;
		return 0;
	}
	push(here, &holder->chain, RTS_STEP_HIDDEN_SWITCH, way->tid, now(here));
	way->link = LINK_RUNNING;
	return 0;
}

/* For what a task blocks. On what is of use for cycles only. */
static __always_inline void note_wait(struct slot *slot, __u64 waits)
{
	struct task_chain *holder;

	slot->way->wait = waits;
	if (!ends_here(slot->way, RTS_END_CYCLE))
		return;
	holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	if (holder)
		holder->wait_on = waits >> 32;
}

static __always_inline void track_leave(struct here *here, struct cpu_state *state, struct task_struct *prev,
					__u32 sched, bool dead, __u64 waits)
{
	__u32 tid = prev->pid;
	bool blocked = sched == SCHED_BLOCKED;
	struct slot slot;

	if (!tid)
		return;
	/* A task that leaves for the last time needs no slot any more. */
	if (dead) {
		if (config.intervals)
			forget_intervals(tid);
		free_task(tid);
		return;
	}
	if (!find_current(state, tid, &slot) && !adopt(here, prev, &slot))
		return;
	if (!lock_way(slot.way)) {
		/* The waker's CPU stands still: what the tracker knew of this task is lost, and counted. */
		COUNT(here, raced);
		slot.way->sched = sched;
		return;
	}
	if (is_followed(slot.way) && slot.way->sched != SCHED_RUNNING && slot.way->sched != SCHED_UNKNOWN)
		COUNT(here, hidden);
	slot.way->sched = sched;
	if (has_intervals(slot.way))
		intervals_on_leave(here, &slot, blocked, (__u8)waits & ~WAIT_INTERRUPTIBLE);
	if (blocked)
		note_wait(&slot, waits);
	if (slot.way->link == LINK_WAKING || slot.way->link == LINK_PREEMPTED || slot.way->link == LINK_WAITING)
		arrived_unseen(here, &slot);
	if (slot.way->link == LINK_RUNNING)
		leave_with_chain(here, &slot, prev, blocked);
	else if (blocked)
		slot.way->link = LINK_NONE;
	unlock_way(slot.way);
}

static __always_inline void track_arrive(struct here *here, struct cpu_state *state, struct task_struct *next)
{
	__u32 tid = next->pid;
	struct slot slot;
	bool locked;

	state->current_tid = tid;
	state->current_slot = 0;
	if (!tid)
		return;
	if (!find_task(tid, &slot) && !adopt(here, next, &slot))
		return;
	state->current_slot = slot.index + 1;
	locked = slot.way->sched == SCHED_LOCKED;
	slot.way->sched = SCHED_RUNNING;
	if (has_intervals(slot.way))
		intervals_on_arrive(here, &slot, next, locked);
	if (slot.way->link != LINK_NONE)
		arrive_with_chain(here, &slot, next, locked);
	else if (slot.way->unlinked && is_followed(slot.way))
		COUNT(here, unlinked);
	slot.way->unlinked = 0;
}

static __always_inline void track_switch(struct here *here, bool preempt, struct task_struct *prev,
					 struct task_struct *next, __u32 prev_state, __u64 waits)
{
	struct cpu_state *state = state_of(here->cpu);
	bool locked = !preempt && prev_state & TASK_STATE_RTLOCK_WAIT;
	bool blocked = !preempt && prev_state && !locked;
	__u32 sched = blocked ? SCHED_BLOCKED : locked ? SCHED_LOCKED : SCHED_RUNNABLE;

	if (!state)
		return;
	heal(here, state, prev->pid, blocked);
	if (!prev->pid)
		irqoff_on_through(here, state);
	if (prev_state & TASK_STATE_INTERRUPTIBLE)
		waits |= WAIT_INTERRUPTIBLE;
	track_leave(here, state, prev, sched, blocked && prev_state & TASK_STATE_DEAD, waits);
	track_arrive(here, state, next);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work items: a chain waits with the item until a worker begins with it, because the worker need not have been woken for it.
 *
 * Items are found by address in a set-associative table, as tasks are by tid. Queueing is rare compared with switches (kilohertz), and
 * without a chain it costs one look-up.
 */
#ifndef RTSCOPE_RESPONSE_WORK_BPF_H
#define RTSCOPE_RESPONSE_WORK_BPF_H

#include "trackers/response/context.bpf.h"

#define WORK_SET_BITS 8
#define WORK_WAYS 4
/* An item that has waited for longer may have been cancelled, which nothing tells: its place can be had. */
#define WORK_STALE_NS 1000000000

enum work_state { WORK_FREE, WORK_HELD, WORK_FULL };

/* The chain is written and read by the CPU that has made `state` WORK_HELD, by compare-and-swap. */
struct work_way {
	__u64 work; /* 0: free. Claimed by compare-and-swap */
	__u32 state, pad;
};

struct work_set {
	struct work_way ways[WORK_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct work_set);
	__uint(max_entries, 1 << WORK_SET_BITS);
} works SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct rts_chain);
	__uint(max_entries, WORK_WAYS << WORK_SET_BITS);
} work_chains SEC(".maps");

struct work_slot {
	struct work_way *way;
	struct rts_chain *chain;
};

static __always_inline __u32 work_set_index(__u64 work)
{
	return work * 0x9e3779b97f4a7c15ULL >> (64 - WORK_SET_BITS);
}

/* The chain that belongs to a way; the slot is of no use when there is none. */
static __always_inline bool work_slot_at(struct work_set *set, __u32 set_index, __u32 way, struct work_slot *slot)
{
	__u32 index = set_index * WORK_WAYS + way;

	slot->way = &set->ways[way];
	slot->chain = bpf_map_lookup_elem(&work_chains, &index);
	return slot->chain != NULL;
}

/* Takes an item's chain out of the table, to be read and then given back by free_work(). ORDER: pairs with keep_work(). */
static __noinline bool take_work(__u64 work, struct work_slot *slot)
{
	__u32 set_index = work_set_index(work);
	struct work_set *set = bpf_map_lookup_elem(&works, &set_index);

	if (!set)
		return false;
#pragma unroll
	for (int i = 0; i < WORK_WAYS; i++) {
		/* ORDER: full; pairs with keep_work(): the chain is there. */
		if (set->ways[i].work == work)
			return work_slot_at(set, set_index, i, slot) &&
			       __sync_val_compare_and_swap(&slot->way->state, WORK_FULL, WORK_HELD) == WORK_FULL;
	}
	return false;
}

static __always_inline void free_work(struct work_way *way)
{
	/* ORDER: release, both; pairs with the compare-and-swaps in claim_work(): the chain has been read. */
	STORE_RELEASE(&way->state, WORK_FREE);
	STORE_RELEASE(&way->work, 0);
}

/* A place for an item's chain: free, or of an item that was probably cancelled. */
static __noinline bool claim_work(struct here *here, __u64 work, struct work_slot *slot)
{
	__u32 set_index = work_set_index(work);
	struct work_set *set = bpf_map_lookup_elem(&works, &set_index);

	if (!set)
		return false;
	for (int i = 0; i < WORK_WAYS; i++) {
		/* ORDER: full, both; pairs with free_work(). */
		if (__sync_val_compare_and_swap(&set->ways[i].work, 0, work) == 0)
			return work_slot_at(set, set_index, i, slot) &&
			       __sync_val_compare_and_swap(&slot->way->state, WORK_FREE, WORK_HELD) == WORK_FREE;
	}
	for (int i = 0; i < WORK_WAYS; i++) {
		if (!work_slot_at(set, set_index, i, slot) || slot->chain->last_ns + WORK_STALE_NS > now(here))
			continue;
		/* ORDER: full; pairs with keep_work() and with the same claim in take_work(): one of them has it. */
		if (__sync_val_compare_and_swap(&slot->way->state, WORK_FULL, WORK_HELD) == WORK_FULL) {
			slot->way->work = work;
			return true;
		}
	}
	COUNT(here, untracked);
	return false;
}

/* ORDER: the chain before the state that says that it is there; pairs with the compare-and-swap in take_work(). */
static __always_inline void keep_work(struct work_way *way)
{
	__sync_lock_test_and_set(&way->state, WORK_FULL);
}

static __noinline int queue_with_chain(struct here *here, struct cpu_state *state, __u64 work)
{
	struct work_slot slot = {};

	/* Into scratch first (interrupts are off): mostly there is no chain in the end. */
	if (!context_chain(here, state, &state->scratch) || !claim_work(here, work, &slot))
		return 0;
	*slot.chain = state->scratch;
	keep_work(slot.way);
	return 0;
}

/* What an earlier queueing left is that item's no more: it was cancelled, or it has begun and not said so yet. */
static __always_inline void track_work_queue(struct here *here, __u64 work)
{
	struct cpu_state *state = state_of(here->cpu);
	struct work_slot slot = {};

	if (!state)
		return;
	if (take_work(work, &slot))
		free_work(slot.way);
	if (follows(state))
		queue_with_chain(here, state, work);
}

static __always_inline bool same_origin(const struct rts_chain *one, const struct rts_chain *two)
{
	return one->origin_ns == two->origin_ns && one->origin_id == two->origin_id &&
	       one->origin_kind == two->origin_kind;
}

/* The worker's slot, when work begins or ends in a thread that passes chains on; not in a softirq, which can run work too. */
static __always_inline struct task_way *worker_way(struct cpu_state *state)
{
	struct task_way *way;

	if (state->in & (IN_IRQ | IN_VECTOR) || (state->in & IN_SOFTIRQS && current_softirq(state)))
		return NULL;
	way = current_way(state);
	return way && !is_followed(way) ? way : NULL;
}

/* Gives the worker the chain of what it begins, which may be none. Under the way's lock. */
static __noinline int begin_work(struct here *here, struct cpu_state *state, struct task_way *way,
				 struct rts_chain *chain)
{
	__u32 index = state->current_slot - 1;
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &index);

	if (!holder)
		return 0;
	if (!chain) {
		if (way->link == LINK_RUNNING)
			way->link = LINK_NONE;
		return 0;
	}
	/* It was woken for this item: its own chain has come the same way, and knows the wakeup. */
	if (way->link == LINK_RUNNING && same_origin(&holder->chain, chain))
		return 0;
	holder->chain = *chain;
	push(here, &holder->chain, RTS_STEP_WORK_WAIT, way->tid, now(here));
	way->link = LINK_RUNNING;
	return 0;
}

static __always_inline void track_work_start(struct here *here, __u64 work)
{
	struct cpu_state *state = state_of(here->cpu);
	struct work_slot slot = {};
	struct task_way *way;
	bool taken;

	if (!state)
		return;
	taken = take_work(work, &slot);
	way = worker_way(state);
	if (way && (taken || way->link == LINK_RUNNING)) {
		if (lock_way(way)) {
			begin_work(here, state, way, taken ? slot.chain : NULL);
			unlock_way(way);
		} else {
			COUNT(here, raced);
		}
	}
	if (taken)
		free_work(slot.way);
}

/* The chain was the item's, not the worker's. */
static __always_inline void track_work_end(struct here *here)
{
	struct cpu_state *state = state_of(here->cpu);
	struct task_way *way = state ? worker_way(state) : NULL;

	if (!way || way->link != LINK_RUNNING)
		return;
	if (lock_way(way)) {
		if (way->link == LINK_RUNNING)
			way->link = LINK_NONE;
		unlock_way(way);
	} else {
		COUNT(here, raced);
	}
}

#endif

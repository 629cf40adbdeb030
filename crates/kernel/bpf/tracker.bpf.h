/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The response tracker: the rules of docs/response-chains.md, one function an event, in the order of that page.
 *
 * Nearly all events change nothing ("no transition"): they cost one or two array look-ups. A branch that has a chain copies
 * it, 256 bytes.
 */
#ifndef RTSCOPE_TRACKER_BPF_H
#define RTSCOPE_TRACKER_BPF_H

#include "response.bpf.h"

static __always_inline struct cpu_state *state_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_states, &cpu);
}

/* ---- interrupts ---- */

static __always_inline void track_irq_entry(struct here *here, __u32 irq)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state)
		return;
	state->in = (state->in & ~(IN_IRQ_LINGER | IN_HRTIMER)) | IN_IRQ;
	state->irq = irq;
	state->irq_ns = now(here);
}

static __always_inline void track_irq_exit(struct here *here, __s32 ret)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state)
		return;
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
	if ((call || kind == RTS_VECTOR_RESCHEDULE) && state->ipi[call].state == 2)
		take_ipi(here, state, call);
}

static __always_inline void track_vector_exit(struct here *here)
{
	struct cpu_state *state = state_of(here->cpu);

	if (state)
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

/* ---- softirqs and IPIs ---- */

static __noinline int raise_with_chain(struct here *here, struct cpu_state *state, __u32 vec)
{
	__u32 bit = 1U << (vec & (SOFTIRQS - 1));
	struct rts_chain *pending;

	vec &= SOFTIRQS - 1;
	pending = &state->raise_chain[vec];
	if (state->raised_chain & bit) {
		if (context_chain(here, state, &state->scratch))
			merge(pending, &state->scratch);
	} else if (context_chain(here, state, pending)) {
		state->raised_chain |= bit;
	}
	return 0;
}

static __always_inline void track_softirq_raise(struct here *here, __u32 vec)
{
	struct cpu_state *state = state_of(here->cpu);

	if (!state || vec >= SOFTIRQS)
		return;
	if (!(state->raised & (1 << vec))) {
		state->raised |= 1 << vec;
		state->raised_chain &= ~(1 << vec);
	}
	if (has_context(state))
		raise_with_chain(here, state, vec);
}

/* The slot of the current task's softirq: its own, when an exit was missed, or a free one; NULL when there is none. */
static __always_inline struct softirq_slot *claim_softirq(struct cpu_state *state)
{
	struct softirq_slot *softirq = current_softirq(state);

	if (softirq)
		return softirq;
#pragma unroll
	for (int i = 0; i < SOFTIRQ_SLOTS; i++) {
		__u32 bit = IN_SOFTIRQ << i;

		/* ORDER: full; on this CPU only. Pairs with the same claim by a task that preempts this one, and end_softirq(). */
		if (!(state->in & bit) && !(__sync_fetch_and_or(&state->in, bit) & bit)) {
			state->softirqs[i].tid = state->current_tid;
			return &state->softirqs[i];
		}
	}
	return NULL;
}

/* The softirq takes over the chain of its raise. */
static __noinline int softirq_begins(struct here *here, struct cpu_state *state, struct softirq_slot *softirq,
				     __u32 vec)
{
	softirq->vec = vec;
	softirq->in_hrtimer = false;
	softirq->has_chain = state->raised_chain >> (vec & (SOFTIRQS - 1)) & 1;
	if (!softirq->has_chain)
		return 0;
	softirq->chain = state->raise_chain[vec & (SOFTIRQS - 1)];
	push(here, &softirq->chain, RTS_STEP_SOFTIRQ_WAIT, vec, now(here));
	return 0;
}

/* A task's softirq is over. */
static __always_inline void end_softirq(struct cpu_state *state, __u32 tid)
{
#pragma unroll
	for (int i = 0; i < SOFTIRQ_SLOTS; i++) {
		/* ORDER: none; on this CPU only. Atomic for a task that preempts between load and store. Pairs with claim_softirq(). */
		if (state->in & (IN_SOFTIRQ << i) && state->softirqs[i].tid == tid)
			__sync_fetch_and_and(&state->in, ~(IN_SOFTIRQ << i));
	}
}

static __always_inline void track_softirq_entry(struct here *here, __u32 vec)
{
	struct cpu_state *state = state_of(here->cpu);
	struct softirq_slot *softirq;

	if (!state || vec >= SOFTIRQS)
		return;
	/*
	 * Interrupts are on here, and from Linux 7 preemption too: so the bits are changed atomically. ORDER: none; on this CPU
	 * only. Pairs with track_irq_exit().
	 */
	if (state->in & IN_IRQ_LINGER)
		__sync_fetch_and_and(&state->in, ~IN_IRQ_LINGER);
	softirq = claim_softirq(state);
	if (!softirq)
		COUNT(here, untracked);
	else
		softirq_begins(here, state, softirq, vec);
	/* ORDER: none; on this CPU only. Pairs with raise_with_chain() in an interrupt. */
	__sync_fetch_and_and(&state->raised, ~(1U << vec));
	__sync_fetch_and_and(&state->raised_chain, ~(1U << vec));
}

static __always_inline void track_softirq_exit(struct here *here)
{
	struct cpu_state *state = state_of(here->cpu);

	if (state && state->in & IN_SOFTIRQS)
		end_softirq(state, state->current_tid);
}

static __noinline int send_chain(struct here *here, struct cpu_state *state, __u32 target_cpu, __u32 call)
{
	struct cpu_state *target = state_of(target_cpu);
	struct ipi_chain *ipi;

	if (!target)
		return 0;
	ipi = &target->ipi[call & 1];
	/* ORDER: empty -> being written -> full; pairs with take_ipi() on the target's CPU. */
	if (__sync_val_compare_and_swap(&ipi->state, 0, 1) != 0)
		return 0;
	__sync_lock_test_and_set(&ipi->state, context_chain(here, state, &ipi->chain) ? 2 : 0);
	return 0;
}

static __always_inline void track_ipi_send(struct here *here, __u32 target_cpu, __u32 call)
{
	struct cpu_state *state = state_of(here->cpu);

	if (state && target_cpu != here->cpu && has_context(state))
		send_chain(here, state, target_cpu, call);
}

/* The same for each CPU of a mask. */
static __noinline int send_chains(struct here *here, struct cpu_state *state, const __u64 *mask, __u32 call)
{
	for (__u32 cpu = 0; cpu < RTS_MASK_CPUS; cpu++) {
		if (cpu >= config.cpus)
			break;
		if (cpu != here->cpu && mask[cpu / 64] >> (cpu % 64) & 1)
			send_chain(here, state, cpu, call);
	}
	return 0;
}

static __always_inline void track_ipi_send_mask(struct here *here, const __u64 *mask, __u32 call)
{
	struct cpu_state *state = state_of(here->cpu);

	if (state && has_context(state))
		send_chains(here, state, mask, call);
}

/* ---- tasks come and change their names ---- */

/* Whether a task is about to leave its CPU for the last time, or has. */
static __always_inline bool is_gone(const struct task_struct *task)
{
	return task->exit_state || task->__state & TASK_STATE_DEAD;
}

static __always_inline void track_task(struct task_struct *task, const char *comm, bool is_new)
{
	__u32 index = 0;
	bool made = false, target = is_target(task, comm), locked;
	struct task_way *way = task->pid ? claim_task(task->pid, &index, &made) : NULL;

	if (!way)
		return; /* counted when it is met on a CPU */
	/*
	 * Its last switch may have passed: nobody would free the way. A zombie can be met by the iterator, and other threads can give it a
	 * name. ORDER: the claim is a full barrier; pairs with those of the kernel's scheduler between exit_state and the last switch,
	 * which frees the way unless it was claimed later, and then exit_state is seen here.
	 */
	if (made && is_gone(task)) {
		free_task(task->pid);
		return;
	}
	/* Where another CPU stands still with the lock, it is done without. */
	locked = lock_way(way);
	/* It may have died, and its way may be another task's. */
	if (way->tid == (__u32)task->pid) {
		if (is_new) {
			way->sched = SCHED_UNKNOWN;
			way->link = LINK_NONE;
			way->unlinked = 0;
		}
		/* The response of one that is a target no more does not count any more. */
		if (way->target && !target)
			way->link = LINK_NONE;
		way->target = target;
	}
	if (locked)
		unlock_way(way);
}

/*
 * A task that is not known yet (the iterator need not see all, and one can be met before its fork is): taken in when it is
 * first met, with its name as it is then. Once a task, not once an event.
 */
static __noinline bool adopt(struct here *here, struct task_struct *task, struct slot *slot)
{
	char comm[RTS_COMM_LEN] __attribute__((aligned(8)));

	copy_comm(comm, task);
	track_task(task, comm, false);
	if (find_task(task->pid, slot))
		return true;
	if (!is_gone(task))
		COUNT(here, untracked);
	return false;
}

/* A thread that is not the leader called exec: it goes on under the leader's tid, and its own is free. */
static __always_inline void track_exec(struct here *here, struct task_struct *task, __u32 old_tid)
{
	struct cpu_state *state = state_of(here->cpu);
	struct slot slot;

	if (!state || old_tid == (__u32)task->pid)
		return;
	free_task(old_tid);
	if (!find_task(task->pid, &slot) && !adopt(here, task, &slot))
		return;
	slot.way->sched = SCHED_RUNNING;
	slot.way->link = LINK_NONE;
	state->current_tid = task->pid;
	state->current_slot = slot.index + 1;
}

/* ---- wakeups ---- */

static __always_inline bool ends_here(struct task_way *way, __u32 end)
{
	return config.end == end && way->target;
}

/* The task that was thought to have ended its response did: this wakeup confirms it. */
static __always_inline void confirm_end(struct here *here, struct slot *slot, struct task_struct *task)
{
	struct task_chain *ended = bpf_map_lookup_elem(&task_chains, &slot->index);

	if (ended && ends_here(slot->way, RTS_END_BLOCKED)) {
		push_at(here, &ended->chain, RTS_STEP_RUN, slot->way->tid, ended->ended_ns, ended->ended_cpu);
		complete(here, &ended->chain, task, RTS_END_BLOCKED, ended->ended_cpu);
	}
	slot->way->link = LINK_NONE;
}

/* A wakeup meets a task that has declared its wait but has not left its CPU. Under the way's lock. */
static __noinline int busy_waking(struct here *here, struct cpu_state *state, struct slot *slot,
				  struct task_struct *task)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;
	struct rts_chain *chain;
	__u32 tid = way->tid;

	/* Into scratch first (interrupts are off): without a chain this wakeup changes nothing. */
	if (!holder || !context_chain(here, state, &state->scratch))
		return 0;
	chain = &holder->chain;
	COUNT(here, busy);
	if (ends_here(way, RTS_END_BLOCKED) && (way->link == LINK_RUNNING || way->link == LINK_PREEMPTED)) {
		push(here, chain, way->link == LINK_RUNNING ? RTS_STEP_RUN : RTS_STEP_PREEMPTED, tid, now(here));
		complete(here, chain, task, RTS_END_REWOKEN, here->cpu);
	}
	*chain = state->scratch;
	push(here, chain, RTS_STEP_BUSY, tid, now(here));
	chain->flags |= RTS_CHAIN_BUSY;
	way->link = way->sched == SCHED_RUNNING ? LINK_RUNNING : LINK_PREEMPTED;
	return 0;
}

/* Under the way's lock. */
static __noinline int locked_waking(struct here *here, struct cpu_state *state, struct slot *slot,
				    struct task_struct *task)
{
	struct task_way *way = slot->way;
	struct task_chain *holder;

	if (way->sched == SCHED_RUNNING || way->sched == SCHED_RUNNABLE)
		return busy_waking(here, state, slot, task);
	if (way->link == LINK_ENDED)
		confirm_end(here, slot, task);
	holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	if (holder && context_chain(here, state, &holder->chain)) {
		way->unlinked = 0;
		way->link = LINK_WAKING;
	} else {
		way->unlinked = 1;
		way->link = LINK_NONE;
	}
	return 0;
}

static __always_inline void track_waking(struct here *here, struct task_struct *task)
{
	struct cpu_state *state = state_of(here->cpu);
	__u32 tid = task->pid;
	struct slot slot;

	if (!state || !tid || tid == state->current_tid)
		return;
	if (!find_task(tid, &slot) && !adopt(here, task, &slot))
		return;
	/* A spinlock is handed over: that is no event, and the one that the task waits for may come yet. */
	if (slot.way->sched == SCHED_LOCKED)
		return;
	/* Most wakeups: nobody's chain goes on, and the task has none. */
	if (!has_context(state) && !slot.way->target && slot.way->link != LINK_ENDED)
		return;
	if (lock_way(slot.way)) {
		locked_waking(here, state, &slot, task);
		unlock_way(slot.way);
	} else {
		COUNT(here, raced);
	}
	/* The one thread that was left to be woken after irq_handler_exit is this one. */
	state->in &= ~IN_IRQ_LINGER;
}

/* ---- switches ---- */

/* Under the way's lock. */
static __noinline int leave_with_chain(struct here *here, struct slot *slot, struct task_struct *prev, bool blocked)
{
	struct task_chain *holder = bpf_map_lookup_elem(&task_chains, &slot->index);
	struct task_way *way = slot->way;

	if (!holder)
		return 0;
	if (blocked && holder->chain.flags & RTS_CHAIN_BUSY) {
		/* Wait for what comes next: a wakeup confirms this end, a switch in refutes it. */
		holder->ended_ns = now(here);
		holder->ended_cpu = here->cpu;
		way->link = LINK_ENDED;
		return 0;
	}
	push(here, &holder->chain, RTS_STEP_RUN, way->tid, now(here));
	way->link = blocked ? LINK_NONE : LINK_PREEMPTED;
	if (blocked && ends_here(way, RTS_END_BLOCKED))
		complete(here, &holder->chain, prev, RTS_END_BLOCKED, here->cpu);
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
	if (step == RTS_STEP_PREEMPTED && locked)
		step = RTS_STEP_LOCK_WAIT;
	answer = way->link != LINK_PREEMPTED || holder->chain.flags & RTS_CHAIN_BUSY;
	if (way->link == LINK_ENDED)
		not_busy(&holder->chain);
	push(here, &holder->chain, step, way->tid, now(here));
	way->link = LINK_RUNNING;
	if (answer && ends_here(way, RTS_END_RUNNING)) {
		way->link = LINK_NONE;
		complete(here, &holder->chain, next, RTS_END_RUNNING, here->cpu);
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

static __always_inline void track_leave(struct here *here, struct cpu_state *state, struct task_struct *prev,
					__u32 sched, bool dead)
{
	__u32 tid = prev->pid;
	bool blocked = sched == SCHED_BLOCKED;
	struct slot slot;

	if (!tid)
		return;
	/* A task that leaves for the last time needs no slot any more. */
	if (dead) {
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
	if (slot.way->target && slot.way->sched != SCHED_RUNNING && slot.way->sched != SCHED_UNKNOWN)
		COUNT(here, hidden);
	slot.way->sched = sched;
	if (slot.way->link == LINK_WAKING || slot.way->link == LINK_PREEMPTED)
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
	if (slot.way->link != LINK_NONE)
		arrive_with_chain(here, &slot, next, locked);
	else if (slot.way->unlinked && slot.way->target)
		COUNT(here, unlinked);
	slot.way->unlinked = 0;
}

static __always_inline void track_switch(struct here *here, bool preempt, struct task_struct *prev,
					 struct task_struct *next, __u32 prev_state)
{
	struct cpu_state *state = state_of(here->cpu);
	bool locked = !preempt && prev_state & TASK_STATE_RTLOCK_WAIT;
	bool blocked = !preempt && prev_state && !locked;
	__u32 sched = blocked ? SCHED_BLOCKED : locked ? SCHED_LOCKED : SCHED_RUNNABLE;

	if (!state)
		return;
	heal(here, state, prev->pid, blocked);
	track_leave(here, state, prev, sched, blocked && prev_state & TASK_STATE_DEAD);
	track_arrive(here, state, next);
}

#endif

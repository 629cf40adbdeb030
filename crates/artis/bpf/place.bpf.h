/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which task may use which CPU: the rules, without anything that changes.
 */
#ifndef RTSCOPE_ARTIS_PLACE_H
#define RTSCOPE_ARTIS_PLACE_H

#include "state.bpf.h"

/* A tick or less: ticks are when it is looked at. */
#define PREEMPT_AFTER_NS 1000000

/* No task of ours: the kernel's, or one with a real-time priority, be it inherited. */
static __always_inline bool is_foreign(const struct task_struct *p)
{
	return p->prio < MAX_RT_PRIO || (p->flags & PF_KTHREAD);
}

static __always_inline bool may_use(const struct task_struct *p, __s32 cpu)
{
	return !cpus[index(cpu)].offline && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* The first other CPU that a task may use, or -1: it is bound to real-time CPUs. */
static __always_inline __s32 first_other(const struct task_struct *p)
{
	__u32 at;

	bpf_for(at, 0, config.nr_others)
	{
		__s32 cpu = config.others[index(at)];

		if (may_use(p, cpu))
			return cpu;
	}
	return -1;
}

/* Running it, this program itself has switched migration off; that is 1, and only for the current task. */
static __always_inline bool is_pinned(const struct task_struct *p)
{
	__u32 depth = p->migration_disabled;

	return depth > 1 || (depth == 1 && bpf_get_current_task_btf() != p);
}

/*
 * Whether a task that does not run came from user mode and goes back there: its last entry was an interrupt's, which leaves no
 * number of a system call in its registers. A fault's neither, so that is remembered.
 */
static __always_inline bool is_at_user_mode(struct task_struct *p, const struct task_state *state)
{
	struct pt_regs *regs;

	if (state->leaving)
		return true;
	if (state->in_kernel)
		return false;
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
#if defined(__TARGET_ARCH_x86)
	return (long)regs->orig_ax == -1;
#else
	return regs->syscallno == -1;
#endif
}

/* A task that came back from real-time CPUs at once, again and again, has to wait longer for the next time. */
static __always_inline bool is_lendable(struct task_struct *p, struct task_state *state)
{
	if (!state || state->evicting || is_foreign(p) || p->task_works || is_pinned(p))
		return false;
	if (!is_at_user_mode(p, state))
		return false;
	if (state->burst_ns >= config.min_burst_ns)
		return true;
	state->burst_ns += config.min_burst_ns / 8 + 1;
	return false;
}

static __always_inline bool has_idle_rt()
{
	__u32 at;

	bpf_for(at, 0, config.nr_rt) if (cpus[index(config.rt[index(at)])].idle) return true;
	return false;
}

/* Takes an idle real-time CPU, or an idle other one, out of the idle ones; -1: there is none for this task. */
static __always_inline __s32 claim_idle_rt(const struct task_struct *p)
{
	__u32 at;

	bpf_for(at, 0, config.nr_rt)
	{
		__s32 cpu = config.rt[index(at)];

		if (cpus[index(cpu)].idle && may_use(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return -1;
}

static __always_inline __s32 claim_idle_other(const struct task_struct *p, __s32 before)
{
	__u32 at;

	if (!is_rt(before) && may_use(p, before) && scx_bpf_test_and_clear_cpu_idle(before))
		return before;
	bpf_for(at, 0, config.nr_others)
	{
		__s32 cpu = config.others[index(at)];

		if (may_use(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return -1;
}

static __always_inline __u32 rank_of(const struct task_struct *p)
{
	return is_rt1(p) ? (__u32)(p->static_prio - MAX_RT_PRIO) : RANK_LINUX;
}

/* Of these CPUs the one that has the least important task of ours, if that is less important than this one; or -1. */
static __always_inline __s32 less_important(const struct task_struct *p, const volatile __u16 *among, __u32 number)
{
	__u32 at, worst = rank_of(p);
	__s32 found = -1;

	if (worst >= RANK_LINUX)
		return -1;
	bpf_for(at, 0, number)
	{
		__s32 cpu = among[index(at)];
		__u32 rank = cpus[index(cpu)].rank;

		if (rank > worst && rank < RANK_NONE && may_use(p, cpu)) {
			worst = rank;
			found = cpu;
		}
	}
	return found;
}

/*
 * Whether RT1 may have a CPU that was lent to somebody else: that costs two tasks a move, so only a task that has been in user mode
 * for a while, running or waiting, and not one that is about to make the next of many system calls.
 */
static __always_inline bool may_preempt(const struct task_struct *p, const struct task_state *state)
{
	return is_rt1(p) && state && state->lent_since && bpf_ktime_get_ns() - state->lent_since >= PREEMPT_AFTER_NS;
}

/* Takes a real-time CPU from a less important task that was lent it, for RT1; -1: there is none. */
static __always_inline __s32 claim_lent_rt(const struct task_struct *p, const struct task_state *state)
{
	__u32 rank = rank_of(p), seen;
	__s32 cpu;

	if (!may_preempt(p, state))
		return -1;
	cpu = less_important(p, config.rt, config.nr_rt);
	if (cpu < 0)
		return -1;
	/*
	 * By one at a time, and not when RT0 has come since. ORDER: the load orders nothing, the compare-and-swap is full; pairs with
	 * itself on other CPUs, and with the stores of `rank` where a task gets a CPU (artis.bpf.c, hooks.bpf.h).
	 */
	seen = *(volatile __u32 *)&cpus[index(cpu)].rank;
	if (seen <= rank || seen >= RANK_NONE ||
	    __sync_val_compare_and_swap(&cpus[index(cpu)].rank, seen, rank) != seen)
		return -1;
	return cpu;
}

/* Whether a real-time CPU may be had: an idle one, or one that a less important task was lent. */
static __always_inline bool is_rt_to_be_had(const struct task_struct *p, const struct task_state *state)
{
	return has_idle_rt() || (may_preempt(p, state) && less_important(p, config.rt, config.nr_rt) >= 0);
}

/*
 * What a task that gets a CPU counts there. On a real-time CPU no task takes the place of one that cannot go elsewhere: the kernel's threads of
 * this CPU, tasks that are bound to it, or are within a section in which the kernel moves nobody.
 */
static __always_inline __u32 rank_on(const struct task_struct *p, __s32 cpu)
{
	if (is_rt(cpu) && (is_foreign(p) || first_other(p) < 0 || is_pinned(p)))
		return RANK_NONE;
	return rank_of(p);
}

#endif

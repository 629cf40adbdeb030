/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ways into the kernel: a task that comes here on a real-time CPU has to leave it.
 *
 * They are classic tracepoint programs, which cost more than typed ones, since those run with migration off from Linux 7 on: the
 * kick's interrupt comes within the program, and the kernel keeps the task where it is. These run with preemption off, so that
 * the task is moved right after the program.
 *
 * On the other CPUs a system call costs the entering of the program and nothing more: whether a task was in user mode is read
 * from its registers when it stops (place.bpf.h). Only RT1, which come back to real-time CPUs at the end of a system call, need
 * the exit; its program is attached while there are such tasks.
 */
#ifndef RTSCOPE_ARTIS_HOOKS_H
#define RTSCOPE_ARTIS_HOOKS_H

#include "place.bpf.h"

static __always_inline void kick(__s32 cpu, __u64 how)
{
	/*
	 * A CPU that goes offline wakes the one that waits for that, with interrupts off for good: its kick would wait for ever, and so
	 * would all that come after it when the CPU is back.
	 */
	if (cpus[index(bpf_get_smp_processor_id())].offline)
		return;
	/* Without a scheduler, in the benchmark of what the hooks cost. */
	if (bpf_ksym_exists(scx_bpf_kick_cpu))
		scx_bpf_kick_cpu(cpu, how);
}

/* It is counted where it began, wherever and as whatever the task is by now. */
static __always_inline void end_eviction(struct task_state *state, enum rts_artis_end how)
{
	struct rts_artis_cpu *there = counts_of((__s32)state->evicting - 1);
	__u32 class = state->evicted_as;

	state->evicting = 0;
	state->entered_ns = 0;
	if (there && class < RTS_ARTIS_CLASSES)
		count(&there->classes[class].ended[how]);
}

static __always_inline void learn_burst(struct task_state *state, __u64 now)
{
	if (!state->lent_since)
		return;
	state->burst_ns = (state->burst_ns * 7 + (now - state->lent_since)) / 8;
	state->lent_since = 0;
}

static __always_inline void evict(struct task_struct *p, __s32 cpu, enum rts_artis_cause cause)
{
	struct rts_artis_cpu *here = counts_of(cpu);
	struct task_state *state = state_of(p);
	struct rts_artis_counts *class;
	__u64 now;

	if (!here || !state)
		return;
	class = &here->classes[class_of(p)];
	if (cause != RTS_ARTIS_SYSCALL)
		state->in_kernel = 1;
	if (first_other(p) < 0) {
		count(&class->refused[RTS_ARTIS_BOUND]);
		return;
	}
	if (state->evicting && cause != RTS_ARTIS_SYSCALL) {
		/* Within the call that began it. */
		kick(cpu, KICK_PREEMPT);
		return;
	}
	if (state->evicting)
		end_eviction(state, RTS_ARTIS_RETURNED);
	now = bpf_ktime_get_ns();
	learn_burst(state, now);
	state->evicting = cpu + 1;
	state->evicted_as = class_of(p);
	state->entered_ns = now;
	count(&class->evictions[cause]);
	kick(cpu, KICK_PREEMPT);
}

static __always_inline void enter(enum rts_artis_cause cause)
{
	__s32 cpu = bpf_get_smp_processor_id();
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *state;

	if (is_rt(cpu)) {
		if (!is_foreign(p))
			evict(p, cpu, cause);
		return;
	}
	if (cause == RTS_ARTIS_SYSCALL && !is_rt1(p))
		return;
	state = state_of(p);
	if (!state)
		return;
	if (cause != RTS_ARTIS_SYSCALL) {
		state->in_kernel = 1;
		return;
	}
	state->leaving = 0;
	learn_burst(state, bpf_ktime_get_ns());
}

SEC("?tp/raw_syscalls/sys_enter")
int enter_syscall(void *ctx)
{
	enter(RTS_ARTIS_SYSCALL);
	return 0;
}

SEC("?tp/exceptions/page_fault_user")
int enter_fault(void *ctx)
{
	enter(RTS_ARTIS_FAULT);
	return 0;
}

SEC("?tp/signal/signal_deliver")
int enter_signal(void *ctx)
{
	enter(RTS_ARTIS_SIGNAL);
	return 0;
}

/*
 * RT1 come back to an idle real-time CPU at once: the kick makes the scheduler look for one. Where others were lent all of them, it is the
 * next tick that does so.
 */
SEC("?tp/raw_syscalls/sys_exit")
int leave_syscall(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	__s32 cpu = bpf_get_smp_processor_id();
	struct task_state *state;

	if (!is_rt1(p) || is_rt(cpu) || is_foreign(p) || p->task_works)
		return 0;
	state = state_of(p);
	if (!state)
		return 0;
	state->in_kernel = 0;
	state->leaving = 1;
	state->lent_since = bpf_ktime_get_ns();
	if (has_idle_rt() && is_lendable(p, state))
		kick(cpu, KICK_PREEMPT);
	return 0;
}

/* What the kernel itself takes for a program, for the benchmark. */
SEC("?tp/raw_syscalls/sys_enter")
int empty_enter(void *ctx)
{
	return 0;
}

SEC("?tp/raw_syscalls/sys_exit")
int empty_leave(void *ctx)
{
	return 0;
}

/* What sched_ext does not tell: that a real-time task took a CPU, and that a fault is over. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(watch_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	__s32 cpu = bpf_get_smp_processor_id();
	struct rts_artis_cpu *here;
	struct task_state *state;
	__u64 since;

	/* It gave way without being preempted and could go on: so does a task that is about to return to user mode. */
	if (!preempt && !prev_state && prev->pid && !is_foreign(prev)) {
		state = state_of(prev);
		if (state && state->in_kernel) {
			state->in_kernel = 0;
			state->in_kernel = !is_at_user_mode(prev, state);
		}
	}
	here = is_rt(cpu) ? counts_of(cpu) : NULL;
	if (!here)
		return 0;
	since = here->rt0_since_ns;
	if (next->prio < MAX_RT_PRIO) {
		if (!since)
			here->rt0_since_ns = bpf_ktime_get_ns();
	} else if (since) {
		/*
		 * ORDER: release; pairs with empty_held() in artis.bpf.c and crates/artis/src/counts.rs. In this order: a reader between the
		 * two finds the time missing, not twice.
		 */
		here->rt0_since_ns = 0;
		STORE_RELEASE(&here->classes[RTS_ARTIS_RT0].ran_ns,
			      here->classes[RTS_ARTIS_RT0].ran_ns + bpf_ktime_get_ns() - since);
	}
	return 0;
}

#endif

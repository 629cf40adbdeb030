/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler's tracepoints. They fire with interrupts off, so these programs never nest but for NMIs; except the wakeup
 * of the current task itself, which needs preemption off only, and which the tracker ignores.
 */
#ifndef RTSCOPE_HOOKS_SCHED_BPF_H
#define RTSCOPE_HOOKS_SCHED_BPF_H

#include "trackers/registry.bpf.h"

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __weak __ksym;

/* How far above its stack's lowest address a task's registers are; 0: not known yet. The same for all tasks of a kernel. */
__u32 regs_offset = 0;
/* A stack is smaller. The verifier wants to know how far an address is moved. */
#define STACK_MASK 0xfffff

/*
 * The registers with which the current task came into the kernel. A call of the helper takes 9 to 14 ns (AMD, mitigations on), so where the
 * kernel lets programs read memory by its type (since Linux 6.2; it costs no call) the helper is asked once, where they are.
 */
static __always_inline const struct pt_regs *registers_of(struct task_struct *current)
{
	__u64 above, stack;

	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return (struct pt_regs *)bpf_task_pt_regs(current);
	/*
	 * Two CPUs may both ask: they store the same. The verifier subtracts a pointer from a pointer only, and a number from a number: `current`,
	 * which this takes away and adds, is both, and the compiler must not see it. The stack's address is a number when it is copied; read as a
	 * field it is one before Linux 7, and a pointer since.
	 */
	if (!regs_offset) {
		if (bpf_core_read(&stack, sizeof(stack), &current->stack))
			return (struct pt_regs *)bpf_task_pt_regs(current);
		above = bpf_task_pt_regs(current) - (__u64)current;
		barrier_var(above);
		regs_offset = above + bpf_get_current_task() - stack;
	}
	return bpf_rdonly_cast(current->stack + (regs_offset & STACK_MASK), bpf_core_type_id_kernel(struct pt_regs));
}

/* Which system call a thread is in; -1 for none, and 32-bit ones are beyond all numbers. */
static __always_inline __s64 syscall_of(struct task_struct *task, const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	if (task->thread_info.status & TS_COMPAT)
		return RTS_SYSCALLS;
	return (__s64)regs->orig_ax;
#else
	return regs->syscallno;
#endif
}

/*
 * For what kind of thing a task waits, or is about to, whose registers these are, and in the upper half on what. Some reads and one
 * look-up; only of user-space tasks that block.
 */
static __always_inline __u64 wait_with(struct task_struct *task, const struct pt_regs *regs)
{
	__s64 number;
	__u64 kind, on;

	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return RTS_WAIT_NONE;
	number = syscall_of(task, regs);
	if (number < 0)
		return RTS_WAIT_PAGE_FAULT;
	if (number >= RTS_SYSCALLS)
		return RTS_WAIT_OTHER;
	kind = config.waits[number & (RTS_SYSCALLS - 1)];
	if (!(RTS_WAITS_ON >> (kind & 31) & 1))
		return kind;
#if defined(__TARGET_ARCH_x86)
	on = regs->di;
#else
	on = regs->user_regs.regs[0];
#endif
	return kind | on << 32;
}

/* The same of a task that may run elsewhere. */
static __noinline __u64 declared_wait_of(struct task_struct *task)
{
	return task ? wait_with(task, (struct pt_regs *)bpf_task_pt_regs(task)) : RTS_WAIT_NONE;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	/* Before the clock is read: what lies between the time of an event and the tracker is where two CPUs can overtake each other. */
	__u64 waits = preempt || !prev_state	      ? RTS_WAIT_NONE :
		      prev_state & TASK_STATE_STOPPED ? RTS_WAIT_STOP :
							wait_with(prev, registers_of(prev));
	__u32 wait = (__u32)waits;
	struct here here;

	if (!enter(&here))
		return 0;
	here.alone = true;
	about(&here, next);
	RECORD(&here, RTS_SCHED_SWITCH, rts_sched_switch,
	       (preempt ? RTS_SWITCH_PREEMPT : 0) | (is_kthread(prev) ? RTS_SWITCH_PREV_KTHREAD : 0) |
		       (is_kthread(next) ? RTS_SWITCH_NEXT_KTHREAD : 0) | wait << RTS_WAIT_SHIFT,
	       {
		       r->prev_tid = prev->pid;
		       r->next_tid = next->pid;
		       r->prev_prio = prev->prio;
		       r->next_prio = next->prio;
		       r->prev_state = prev_state;
		       r->prev_wait_on = waits >> 32;
		       r->pad = 0;
	       });
	if (config.track)
		track_switch(&here, preempt, prev, next, prev_state, waits);
	if (config.stack_bytes && here.stack)
		stack_is_due(here.cpu, here.stack);
	preemptoff_on_switch(ctx, &here, prev, next);
	return 0;
}

#define RECORD_WAKING(here, type, p, cpu, wait)                                                                   \
	RECORD(here, type, rts_sched_waking, (is_kthread(p) ? RTS_WAKING_KTHREAD : 0) | wait << RTS_WAIT_SHIFT, { \
		r->tid = (p)->pid;                                                                                \
		r->prio = (p)->prio;                                                                              \
		r->target_cpu = cpu;                                                                              \
	})

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	__u32 wait = RTS_WAIT_NONE;
	struct here here;

	/*
	 * Perhaps it has only declared a wait, one that signals end, and has not left: of use for cycles. Where it has left, its switch
	 * out has said the same.
	 */
	if (config.track && config.end == RTS_END_CYCLE && p->__state & TASK_STATE_INTERRUPTIBLE)
		wait = (__u32)declared_wait_of(p);
	if (!enter(&here))
		return 0;
	/* Another task is woken under its pi_lock, taken with interrupts off; the current one is not. */
	here.alone = p != bpf_get_current_task_btf();
	about(&here, p);
	RECORD_WAKING(&here, RTS_SCHED_WAKING, p, task_cpu(p), wait);
	if (config.track)
		track_waking(&here, p, wait);
	if (config.stack_bytes && here.stack)
		fill_stack(ctx, here.stack);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct here here;

	if (!enter(&here))
		return 0;
	about(&here, p);
	RECORD_WAKING(&here, RTS_SCHED_WAKEUP_NEW, p, task_cpu(p), RTS_WAIT_NONE);
	if (config.track)
		track_waking(&here, p, RTS_WAIT_NONE);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int dest_cpu)
{
	struct here here;

	if (!enter(&here))
		return 0;
	about(&here, p);
	RECORD(&here, RTS_SCHED_MIGRATE_TASK, rts_sched_migrate_task, 0, {
		r->tid = p->pid;
		r->prio = p->prio;
		r->pad = 0;
		r->orig_cpu = task_cpu(p);
		r->dest_cpu = dest_cpu;
	});
	return 0;
}

SEC("tp_btf/sched_pi_setprio")
int BPF_PROG(sched_pi_setprio, struct task_struct *task, struct task_struct *pi_task)
{
	struct here here;

	if (!enter(&here))
		return 0;
	about(&here, task);
	RECORD(&here, RTS_SCHED_PI_SETPRIO, rts_sched_pi_setprio, 0, {
		int prio = task->normal_prio;

		/* As the tracepoint's own text does: the boosted priority, or the normal one when nobody boosts. */
		if (pi_task && pi_task->prio < prio)
			prio = pi_task->prio;
		r->tid = task->pid;
		r->old_prio = task->prio;
		r->new_prio = prio;
	});
	return 0;
}

#endif

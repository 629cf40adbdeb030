/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of stacks: where a task is, in the kernel and in its program, for what was late.
 *
 * A program's stack can be read only while its task is current and its memory loaded, and few programs of a distribution have frame pointers: so
 * its registers and the newest part of its stack are copied, and user space unwinds that. What is claimed here is filled by the hook that has the task's
 * context (docs/adr/0030). Nothing is copied of what is not late. A copy takes tens of microseconds (docs/measurements/stacks.md).
 */
#ifndef RTSCOPE_CORE_STACKS_BPF_H
#define RTSCOPE_CORE_STACKS_BPF_H

#include "core/program.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rts_stack);
	__uint(max_entries, 1); /* RTS_STACKS where they are wanted */
} stacks SEC(".maps");

/* Copies that were begun: the number of the newest; and those for which there was no place. */
struct {
	__u64 claimed, lost;
} stack_counts SEC(".data.stacks");

/* The number of a copy that is to be made for the task that comes to this CPU; 0: none is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1); /* CPUs */
} stacks_due SEC(".maps");

static __always_inline struct rts_stack *stack_of(__u32 id)
{
	__u32 index = (id - 1) & (RTS_STACKS - 1);

	return bpf_map_lookup_elem(&stacks, &index);
}

/* A place for a copy, in turn; 0 where user space has not read what was there. A function: its callers are deep, and the stack is small. */
static __noinline __u32 claim_stack(void)
{
	struct rts_stack *stack;
	__u32 id;

	/* ORDER: none; a number that is given away once. */
	id = (__u32)__sync_fetch_and_add(&stack_counts.claimed, 1) + 1;
	stack = stack_of(id);
	/* ORDER: full; pairs with the release store of RTS_STACK_FREE in crates/ring/src/stacks.rs: it has been read. */
	if (!id || !stack ||
	    __sync_val_compare_and_swap(&stack->state, RTS_STACK_FREE, RTS_STACK_CLAIMED) != RTS_STACK_FREE) {
		/* ORDER: none; a counter that stands for itself. */
		__sync_fetch_and_add(&stack_counts.lost, 1);
		return 0;
	}
	stack->id = id;
	return id;
}

struct copying {
	struct rts_stack *stack;
	__u64 from;
	__u32 bytes;
};

/* Page by page: what is not in memory ends it, and costs nothing of what was before. */
static int copy_page(__u32 i, struct copying *copying)
{
	__u64 from = copying->from + copying->bytes;
	__u32 at = copying->bytes, room = RTS_STACK_PAGE - (from & (RTS_STACK_PAGE - 1));

	(void)i;
	if (at >= config.stack_bytes || at > RTS_STACK_BYTES - RTS_STACK_PAGE) {
		copying->stack->end = RTS_STACK_LIMIT;
		return 1;
	}
	if (room > RTS_STACK_PAGE || bpf_probe_read_user(&copying->stack->memory[at], room, (void *)from)) {
		copying->stack->end = RTS_STACK_ABSENT;
		return 1;
	}
	copying->bytes = at + room;
	return 0;
}

/* The registers as DWARF numbers them. Where its stack pointer points; 0: a 32-bit program. */
static __always_inline __u64 copy_registers(struct rts_stack *stack, const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	stack->regs[0] = regs->ax;
	stack->regs[1] = regs->dx;
	stack->regs[2] = regs->cx;
	stack->regs[3] = regs->bx;
	stack->regs[4] = regs->si;
	stack->regs[5] = regs->di;
	stack->regs[6] = regs->bp;
	stack->regs[7] = regs->sp;
	stack->regs[8] = regs->r8;
	stack->regs[9] = regs->r9;
	stack->regs[10] = regs->r10;
	stack->regs[11] = regs->r11;
	stack->regs[12] = regs->r12;
	stack->regs[13] = regs->r13;
	stack->regs[14] = regs->r14;
	stack->regs[15] = regs->r15;
	stack->regs[16] = regs->ip;
	return (__u16)regs->cs == USER_CS ? regs->sp : 0;
#else
#pragma unroll
	for (int i = 0; i < 31; i++)
		stack->regs[i] = regs->user_regs.regs[i];
	stack->regs[31] = regs->user_regs.sp;
	stack->regs[32] = regs->user_regs.pc;
	return regs->user_regs.pstate & PSR_MODE32_BIT ? 0 : regs->user_regs.sp;
#endif
}

static __always_inline void copy_user_stack(struct rts_stack *stack, struct task_struct *task)
{
	struct copying copying = { .stack = stack };

	stack->bytes = 0;
	stack->end = RTS_STACK_NOT_TAKEN;
	if (is_kthread(task) || task->flags & (PF_IO_WORKER | PF_USER_WORKER | PF_EXITING))
		return;
	copying.from = copy_registers(stack, (const struct pt_regs *)bpf_task_pt_regs(task));
	if (!copying.from) {
		stack->end = RTS_STACK_COMPAT;
		return;
	}
	stack->end = RTS_STACK_LIMIT;
	bpf_loop(RTS_STACK_BYTES / RTS_STACK_PAGE + 1, copy_page, &copying, 0);
	stack->bytes = copying.bytes;
}

/* Fills what was claimed with the stacks of the current task. */
static __noinline int fill_stack(void *ctx, __u32 id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rts_stack *stack = stack_of(id);
	long bytes;

	if (!stack || stack->id != id)
		return 0;
	stack->time_ns = bpf_ktime_get_ns();
	stack->tid = task->pid;
	stack->pid = task->tgid;
	bpf_get_current_comm(stack->comm, sizeof(stack->comm));
	bytes = bpf_get_stack(ctx, stack->kernel, sizeof(stack->kernel), 0);
	stack->frames = bytes > 0 ? bytes / sizeof(stack->kernel[0]) : 0;
	copy_user_stack(stack, task);
	/* ORDER: release; all of the above. Pairs with the acquire load of the state in crates/ring/src/stacks.rs. */
	STORE_RELEASE(&stack->state, RTS_STACK_FULL);
	return 0;
}

/* Its task comes to this CPU, and its stack can be read as soon as it is current: an earlier one that has not been made is given up. */
static __always_inline void stack_is_due(__u32 cpu, __u32 id)
{
	__u32 *due = bpf_map_lookup_elem(&stacks_due, &cpu);
	struct rts_stack *stack;

	if (!due)
		return;
	if (*due) {
		stack = stack_of(*due);
		if (stack && stack->id == *due)
			/* ORDER: release; nobody reads what was begun. Pairs with the compare-and-swap in claim_stack(). */
			STORE_RELEASE(&stack->state, RTS_STACK_FREE);
	}
	*due = id;
}

/* The task that was switched to is current. */
static __always_inline void take_due_stack(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id(), id;
	__u32 *due = bpf_map_lookup_elem(&stacks_due, &cpu);

	if (!due || !*due)
		return;
	id = *due;
	*due = 0;
	fill_stack(ctx, id);
}

#endif

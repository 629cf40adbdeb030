/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What all eBPF programs share: the configuration, the maps, and the prologue of each.
 *
 * All memory is made before the first program is attached; nothing is allocated afterwards. Maps are sized by user space
 * (crates/kernel/src/ebpf.rs) from the number of CPUs and the buffer size asked for.
 */
#ifndef RTSCOPE_CORE_PROGRAM_BPF_H
#define RTSCOPE_CORE_PROGRAM_BPF_H

#include "core/kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel_abi.h"

/* Constant while loaded: the verifier removes what a configuration does not use. */
const volatile struct rts_config config = {};

/* The flight recorder's trigger, in a separate map so that user space can map just this. */
struct rts_trigger trigger SEC(".data.trigger") = { .stop_at_ns = RTS_NEVER, .turn = 1 };

struct bank {
	__u64 first[RTS_SUB_BUFFERS];
	__u8 data[];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct bank) + (1 << 16) + RTS_BANK_SLACK); /* set before loading */
	__uint(max_entries, RTS_BANKS);					      /* CPUs * banks_each() */
} banks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rts_cpu_control);
	__uint(max_entries, 1); /* CPUs */
} controls SEC(".maps");

/* What a program knows of the moment it runs in. */
struct here {
	__u32 cpu;
	__u32 stack;  /* a copy that was claimed for what happens here; 0: none */
	__u64 now_ns; /* 0: not read yet; see now() */
	bool alone;   /* interrupts are off for sure: see advance() */
	/* 32 bytes in all: with more, the functions of a program are deeper together than Linux 6.1 allows. */
	union {
		__u32 about; /* config.while_ns: the tid of the task that it is about, beside the current one; 0: none */
		__u32 waker_stack; /* else, of what ends here: rts_interval.waker_stack */
	};
	struct rts_cpu_control *control;
};

_Static_assert(sizeof(struct here) == 32, "Linux 6.1 refuses programs whose functions are this deep");

/*
 * The time of this event. The clock costs 10 to 25 ns, as much as all the rest of an event that changes nothing, so it is read
 * when it is needed: at once by the recorder, and by the tracker only where a chain is concerned.
 */
static __always_inline __u64 now(struct here *here)
{
	if (!here->now_ns)
		here->now_ns = bpf_ktime_get_ns();
	return here->now_ns;
}

extern void bpf_preempt_disable(void) __weak __ksym;
extern void bpf_preempt_enable(void) __weak __ksym;

/*
 * From Linux 7 eBPF programs can be preempted where their tracepoint can. The event of one that is preempted between its time
 * stamp and the tracker is tracked behind others that came later. Where the kernel can be asked not to (since 6.10), it is; programs
 * that fire with interrupts off do without. It keeps the order; it does not keep an event from being skipped.
 */
static __always_inline void stay_here(void)
{
	if (bpf_ksym_exists(bpf_preempt_disable))
		bpf_preempt_disable();
}

static __always_inline void may_go(void)
{
	if (bpf_ksym_exists(bpf_preempt_enable))
		bpf_preempt_enable();
}

/*
 * 0, of which the verifier does not know that it is. It looks at all that follows once for each value that something may have there, and a value that is a sum with
 * this is one for it. One load from a line that enter() has read. ORDER: none; nobody writes it.
 */
static __always_inline __u32 unknown_0(void)
{
	return *(volatile __u32 *)&trigger.pad;
}

/* The prologue: false when the recorder is off or this CPU has no memory. */
static __always_inline bool enter(struct here *here)
{
	if (!trigger.enabled)
		return false;
	here->cpu = bpf_get_smp_processor_id();
	here->control = bpf_map_lookup_elem(&controls, &here->cpu);
	here->now_ns = config.record ? bpf_ktime_get_ns() : 0;
	here->alone = false;
	/* Nothing: else the verifier looks at all that follows once with a copy and once without. */
	here->stack = config.stack_bytes ? unknown_0() : 0;
	here->waker_stack = here->stack;
	if (config.while_ns)
		here->about = 0;
	return here->control != NULL;
}

/* Where a task is queued or last ran: in thread_info since Linux 5.16 on x86 (bcf9033e5449), before on arm64. */
static __always_inline __u32 task_cpu(const struct task_struct *task)
{
	return task->thread_info.cpu;
}

static __always_inline bool is_kthread(const struct task_struct *task)
{
	return task->flags & PF_KTHREAD;
}

#endif

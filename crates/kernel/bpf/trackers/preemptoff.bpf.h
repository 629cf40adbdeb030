/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `preemptoff`: from where a CPU is asked to take another task (need_resched) until it does. In between, the task that is current goes
 * on: with preemption off, or, where the kernel is built that way, because the kernel is not preempted at all.
 *
 * A detection names the task that went on, and begins with the one that then got the CPU. The idle task is not followed: leaving a deep sleep
 * is not a section that somebody wrote. Nor are requests that may wait for the next tick (PREEMPT_LAZY).
 */
#ifndef RTSCOPE_TRACKERS_PREEMPTOFF_BPF_H
#define RTSCOPE_TRACKERS_PREEMPTOFF_BPF_H

#include "trackers/irq.bpf.h"

/*
 * What a CPU is asked for. Requests and switches come under the lock of its run queue, or on it. That nothing is asked for any more is noted after that
 * lock: a request just then is served at once, and not followed. Other CPUs write it, so it has a cache line of its own.
 */
struct resched {
	__u64 asked_ns; /* 0: for nothing */
	__u32 tid;	/* the task that was current */
	__u32 woken;	/* for whom; 0: that is not known */
	__s32 prio;	/* of that one */
	__u32 pad;
	/* Since the last switch that was seen; 0: there was none yet. Only read as memory of the kernel that may be anything. */
	const struct task_struct *running;
	__u64 pad2[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct resched);
	__uint(max_entries, 1); /* CPUs */
} reschedules SEC(".maps");

/*
 * The number of the flag for an urgent request (TIF_NEED_RESCHED) + 1, once it is known; before that, one that was seen. It is another one in
 * each kernel and not in its type information. The idle task is never asked lazily; and of two numbers, the lower one is the urgent.
 */
struct {
	__u32 urgent, seen;
} resched_flag SEC(".data.resched");

static __always_inline bool is_urgent(__u32 tid, __u32 flag)
{
	__u32 number = flag + 1;

	if (resched_flag.urgent)
		return resched_flag.urgent == number;
	if (!tid || number < resched_flag.seen)
		resched_flag.urgent = number;
	else if (resched_flag.seen && number > resched_flag.seen)
		resched_flag.urgent = resched_flag.seen;
	else
		resched_flag.seen = number;
	return resched_flag.urgent == number;
}

/*
 * Of a kernel that does not say its requests, the flags that may be the urgent one: TIF_NEED_RESCHED of the architecture's asm/thread_info.h, and of
 * asm-generic/thread_info_tif.h (Linux 6.18). Each request that is certain to have been made leaves those that it set.
 */
#if defined(__TARGET_ARCH_x86)
unsigned long urgent_flags SEC(".data.urgent") = 1UL << 3 | 1UL << 4;
#else
unsigned long urgent_flags SEC(".data.urgent") = 1UL << 1 | 1UL << 4;
#endif

static __always_inline bool is_asked(unsigned long flags, bool is_certain)
{
	flags &= urgent_flags;
	if (is_certain && flags && flags != urgent_flags)
		urgent_flags = flags;
	return flags;
}

/* The first request counts: those that follow it ask for the same, unless for somebody more urgent, or for one that has been elsewhere since. */
static __always_inline void preemptoff_on_request(__u32 cpu, __u32 tid, __u32 woken, __s32 prio)
{
	struct resched *asked = bpf_map_lookup_elem(&reschedules, &cpu);

	if (!asked || !tid)
		return;
	if (asked->asked_ns && asked->tid == tid && prio >= asked->prio && (!woken || asked->woken != woken))
		return;
	asked->tid = tid;
	asked->woken = woken;
	asked->prio = prio;
	asked->asked_ns = bpf_ktime_get_ns();
}

/* Nothing is asked for, or no longer: the scheduler has let the current task go on. */
static __always_inline void preemptoff_on_nothing(__u32 cpu)
{
	struct resched *asked = bpf_map_lookup_elem(&reschedules, &cpu);

	if (asked)
		asked->asked_ns = 0;
}

/* The functions of ours that are on the stack at least: judge(), preemptoff_ends() and the program. */
#define OWN_FRAMES 3

/* With interrupts off: so the CPU's scratch is free. */
static __noinline int preemptoff_ends(void *ctx, struct here *here, struct resched *asked, struct task_struct *prev,
				      struct task_struct *next)
{
	struct ended ended = {
		.tracker = RTS_TRACKER_PREEMPTOFF,
		.end = RTS_END_SWITCHED,
		.cpu = here->cpu,
		.stack_of = ctx,
		.stack_skip = OWN_FRAMES,
	};
	struct cpu_state *state = state_of(here->cpu);
	__u64 asked_ns = asked->asked_ns;

	asked->asked_ns = 0;
	/* Where the idle task comes, nobody has waited. */
	if (!state || !next->pid || asked->tid != (__u32)prev->pid ||
	    (asked->woken && asked->woken != (__u32)next->pid))
		return 0;
	ended.targets = instances_here(RTS_TRACKER_PREEMPTOFF, prev->pid);
	if (!ended.targets)
		return 0;
	begin(&state->scratch, RTS_ORIGIN_RESCHED, next->pid, here->cpu, asked_ns);
	push(here, &state->scratch, RTS_STEP_NOT_PREEMPTED, prev->pid, now(here));
	detect_ended(here, &state->scratch, prev, RTS_TRACKER_PREEMPTOFF, &ended);
	return 0;
}

static __always_inline void preemptoff_on_switch(void *ctx, struct here *here, struct task_struct *prev,
						 struct task_struct *next)
{
	struct resched *asked;

	if (!config.of_tracker[RTS_TRACKER_PREEMPTOFF])
		return;
	asked = bpf_map_lookup_elem(&reschedules, &here->cpu);
	if (!asked)
		return;
	asked->running = next;
	if (asked->asked_ns)
		preemptoff_ends(ctx, here, asked, prev, next);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs for tests only: one that the kernel has to skip, and two that keep a CPU to themselves.
 *
 * Real skips need an interrupt or a task that comes at the wrong moment. `test_miss` brings its own: it hangs on the
 * kernel's page faults and causes one, which would run it again while it runs. The kernel counts that as a recursion miss
 * and goes on. Debug builds load it when they are asked to (crates/kernel/src/ebpf.rs).
 *
 * The others are faults to be found: one thread (`spin.tid`) spins in the kernel, once, with preemption or with interrupts off.
 */
#ifndef RTSCOPE_TOOLS_TEST_BPF_H
#define RTSCOPE_TOOLS_TEST_BPF_H

#include "core/program.bpf.h"

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(test_miss, unsigned long address, struct pt_regs *regs, unsigned long error_code)
{
	char byte;

	/* Nobody may map the first page (vm.mmap_min_addr), so there is nothing to read, and the helper says so. */
	bpf_probe_read_user(&byte, sizeof(byte), (void *)8);
	return 0;
}

/* Who spins, and for how long; and when it last did. User space writes the first two, and reads the others (crates/kernel/src/spin.rs). */
struct {
	__u64 tid, for_ns;
	__u64 from_ns, to_ns;
} spin SEC(".data.spin");

/* At 20 ns and more each, 160 ms at most. */
#define SPINS (1 << 23)

static int spin_on(__u32 turn, const __u64 *until_ns)
{
	return bpf_ktime_get_ns() >= *until_ns;
}

/* Not the idle task, whose number is that of nobody. */
static __always_inline bool is_to_spin(const struct task_struct *task)
{
	return task->pid && (__u64)task->pid == spin.tid;
}

static __always_inline void spin_here(void)
{
	__u64 from_ns = bpf_ktime_get_ns();
	__u64 until_ns = from_ns + spin.for_ns;

	spin.tid = 0;
	bpf_loop(SPINS, spin_on, &until_ns, 0);
	spin.from_ns = from_ns;
	spin.to_ns = bpf_ktime_get_ns();
}

/* It gives itself a name: with preemption off, and interrupts on. */
SEC("tp_btf/task_rename")
int BPF_PROG(test_spin_unpreempted, struct task_struct *task, const char *comm)
{
	if (!is_to_spin(bpf_get_current_task_btf()))
		return 0;
	stay_here();
	spin_here();
	may_go();
	return 0;
}

/* Priorities from here on are not real-time (MAX_RT_PRIO). */
#define FIRST_USUAL_PRIO 100

/*
 * It wakes a usual thread of its process: with interrupts off. Not so an interrupt that comes before that: it wakes kernel threads, and the
 * real-time thread that wants the CPU, and would be what keeps interrupts out.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(test_spin_uninterrupted, struct task_struct *task)
{
	struct task_struct *current = bpf_get_current_task_btf();

	if (is_to_spin(current) && task != current && task->tgid == current->tgid && task->prio >= FIRST_USUAL_PRIO)
		spin_here();
	return 0;
}

#endif

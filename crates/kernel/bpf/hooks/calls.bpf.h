/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls of targets, for the trackers; loaded only for those that want them.
 *
 * Cost: each system call of any task pays for entering the program, two look-ups and a comparison; one of a target for a step as well. A second
 * program on sys_enter (a recording of system calls at the same time) makes the kernel's direct call a loop of indirect ones.
 *
 * From Linux 7 these programs can be preempted, and then the calls of whoever comes are skipped: they are counted, and where the kernel can
 * be asked not to, this does not happen but for the first instructions.
 */
#ifndef RTSCOPE_HOOKS_CALLS_BPF_H
#define RTSCOPE_HOOKS_CALLS_BPF_H

#include "hooks/syscall.bpf.h"
#include "trackers/registry.bpf.h"

/* The prologue of both: false unless the task that runs here is a target of a tracker of system calls. The cheap questions come first. */
static __always_inline bool enter_call(struct task_struct *task, struct slot *slot, struct here *here)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	return trigger.enabled && state && find_current(state, task->pid, slot) &&
	       has(slot->way, RTS_TRACKER_SYSCALL) && !is_compat(task) && enter(here);
}

/* S_IFMT and S_IFBLK of include/uapi/linux/stat.h. */
#define MODE_TYPE 0xf000
#define MODE_BLOCK_DEVICE 0x6000

/* The device that a file of the current task is on, or that it is; 0: there is no such file. */
static __noinline __u32 device_of(__u64 descriptor)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file **files, *file = NULL;
	struct super_block *above = NULL;
	struct inode *inode = NULL;
	unsigned short mode = 0;
	__u32 device = 0;

	if (!task->files || descriptor >= task->files->fdt->max_fds)
		return 0;
	files = task->files->fdt->fd;
	if (bpf_probe_read_kernel(&file, sizeof(file), &files[(__u32)descriptor]) || !file)
		return 0;
	if (bpf_core_read(&inode, sizeof(inode), &file->f_inode) || !inode)
		return 0;
	bpf_core_read(&mode, sizeof(mode), &inode->i_mode);
	if ((mode & MODE_TYPE) == MODE_BLOCK_DEVICE) {
		bpf_core_read(&device, sizeof(device), &inode->i_rdev);
		return device;
	}
	if (!bpf_core_read(&above, sizeof(above), &inode->i_sb) && above)
		bpf_core_read(&device, sizeof(device), &above->s_dev);
	return device;
}

/* The last value of a call: its file's device, as the kernel numbers it (20 bits for the minor). Before a close, after an open. */
static __always_inline void note_device(struct rts_interval *interval, __u64 number, __u8 where, __u64 descriptor)
{
	if (!config.keyed || config.call_files[number & (RTS_SYSCALLS - 1)] != where)
		return;
	interval->values[RTS_LATE_VALUES - 1] = device_of(descriptor);
}

static __always_inline void on_call(struct pt_regs *regs, long number)
{
	struct rts_interval *interval;
	struct here here;
	struct slot slot;

	if (!enter_call(bpf_get_current_task_btf(), &slot, &here))
		return;
	interval = syscall_on_enter(&here, &slot, number);
	if (!interval)
		return;
	interval->values[0] = syscall_argument(regs, 0);
	interval->values[1] = syscall_argument(regs, 1);
	interval->values[2] = syscall_argument(regs, 2);
	interval->values[3] = syscall_argument(regs, 3);
	interval->values[4] = syscall_argument(regs, 4);
	interval->values[5] = syscall_argument(regs, 5);
	interval->values[RTS_LATE_VALUES - 1] = 0;
	note_device(interval, number, RTS_CALL_FILE_GIVEN, interval->values[0]);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(call_begins, struct pt_regs *regs, long number)
{
	stay_here();
	on_call(regs, number);
	may_go();
	return 0;
}

static __always_inline void on_return(void *ctx, struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rts_interval *interval;
	struct here here;
	struct slot slot;

	if (!enter_call(task, &slot, &here))
		return;
	interval = interval_of(&slot, RTS_TRACKER_SYSCALL);
	if (interval && result >= 0)
		note_device(interval, syscall_number(regs), RTS_CALL_FILE_RETURNED, result);
	syscall_on_exit(&here, &slot, task, syscall_number(regs), result);
	if (config.stack_bytes && here.stack)
		fill_stack(ctx, here.stack);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call_returns, struct pt_regs *regs, long result)
{
	stay_here();
	on_return(ctx, regs, result);
	may_go();
	return 0;
}

#endif

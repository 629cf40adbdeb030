/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * File descriptors, followed as the kernel changes a table of them (`rtscope fds`).
 *
 * System calls alone do not tell what a table has: descriptors come in messages, from ioctl, from io_uring; and between two threads the
 * order of calls is not that of their effects. So behind each call that changes a slot, the program *looks at the slot*, once its record has
 * a place in the ring. Whoever changed a slot last looks behind that change, and whoever has a later record has looked later still: the
 * last record about a slot says what it has, whatever the order of all others.
 *
 *   slots    behind calls that return or take a number (RTS_FDS_WAY_*), and behind requests of io_uring
 *   numbers  behind calls that may give some in another way: those that the kernel has given are compared with those that were told
 *   tables   behind fork, exec, unshare and close_range: all slots, as these copy and close many. A table ends with its last task
 *
 * Where the kernel skips a program, that is counted (recursion_misses), as is a record that finds the ring full; user space has all tables
 * told again then (the iterators at the end).
 *
 * Cost: a system call that is not concerned pays for the tracepoint and one look at a table of bytes.
 */
#include "fds/calls.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- io_uring --------------------------------------------------------------------------------------------------- */

enum {
	IORING_OP_RECVMSG = 10,
	IORING_OP_ACCEPT = 13,
	IORING_OP_OPENAT = 18,
	IORING_OP_CLOSE = 19,
	IORING_OP_OPENAT2 = 28,
	IORING_OP_URING_CMD = 46,
	IORING_OP_SOCKET = 45,
	IORING_OP_FIXED_FD_INSTALL = 54,
};

/* A request is done. It runs in the task that asked for it, or in a thread of io_uring that has the same table. */
SEC("?tp_btf/io_uring_complete")
int BPF_PROG(io_uring_done, void *context, struct io_kiocb *request)
{
	struct task_struct *task = bpf_get_current_task_btf();
	enum act act = ACT_NONE;
	__u32 fd = 0;
	int result;

	if (!is_followed(task))
		return 0;
	/* One of several results of a request. */
	if (!request)
		return tell(task, ACT_COMPARE, 0, 0, SCRATCH_URING);
	result = BPF_CORE_READ(request, cqe.res);
	switch (BPF_CORE_READ(request, opcode)) {
	case IORING_OP_ACCEPT:
	case IORING_OP_OPENAT:
	case IORING_OP_OPENAT2:
	case IORING_OP_SOCKET:
	case IORING_OP_FIXED_FD_INSTALL:
		fd = result;
		act = result >= 0 ? ACT_GIVEN : ACT_NONE;
		break;
	case IORING_OP_CLOSE:
		fd = BPF_CORE_READ((struct io_close *)&request->cmd, fd);
		act = result != -EBADF ? ACT_FREED : ACT_NONE;
		break;
	case IORING_OP_RECVMSG:
	case IORING_OP_URING_CMD:
		act = ACT_COMPARE;
		break;
	default:
		/* What is newer than this program. */
		act = BPF_CORE_READ(request, opcode) > IORING_OP_FIXED_FD_INSTALL ? ACT_COMPARE : ACT_NONE;
	}
	return act == ACT_NONE ? 0 : tell(task, act, fd, 0, SCRATCH_URING);
}

/* ---- tasks ---------------------------------------------------------------------------------------------------- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	struct files_struct *files = child->files;
	__u32 pid = child->tgid;
	__u8 yes = 1;

	if (!is_followed(parent))
		return 0;
	if (config.selective && child->pid == child->tgid && bpf_map_update_elem(&followed, &pid, &yes, BPF_ANY))
		COUNT(unfollowed);
	tell_task(child, files, RTS_FDS_TASK_FORK, parent->pid, 0);
	/* The child has not run yet, so nobody changes a table that it has alone. */
	if (files && files != parent->files)
		tell_chunks(child, files, 0, ~0U, RTS_FDS_FIRST);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct files_struct *files = task->files;

	if (!is_followed(task) || !files)
		return 0;
	tell_task(task, files, RTS_FDS_TASK_EXEC, old_pid, 0);
	tell_chunks(task, files, 0, ~0U, RTS_FDS_FIRST);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exited, struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (!is_followed(task))
		return 0;
	tell_task(task, task->files, RTS_FDS_TASK_EXIT, 0, 0);
	if (config.selective && BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&followed, &pid);
	return 0;
}

/* ---- everything that there is: before the first change, and after a loss --------------------------------------- */

/* One byte for each, so that the reader of the iterator says how fast it goes. */
static __always_inline void count_out(struct seq_file *seq)
{
	__u8 one = 1;

	bpf_seq_write(seq, &one, sizeof(one));
}

SEC("iter/task")
int scan_tasks(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct files_struct *files;

	if (!task || task->flags & PF_KTHREAD || task->exit_state || !is_followed(task))
		return 0;
	files = task->files;
	if (!files)
		return 0;
	count_out(context->meta->seq);
	tell_task(task, files, RTS_FDS_TASK_SEEN, 0, RTS_FDS_SCANNED);
	if (task->pid == task->tgid || files != BPF_CORE_READ(task, group_leader, files))
		tell_chunks(task, files, 0, ~0U, RTS_FDS_SCANNED);
	return 0;
}

SEC("iter/task_file")
int scan_files(struct bpf_iter__task_file *context)
{
	struct task_struct *task = context->task;
	__u32 fd = context->fd;

	if (!task || !context->file || !is_followed(task))
		return 0;
	count_out(context->meta->seq);
	settle(task, fd, true, SCRATCH_SCAN, RTS_FDS_SCANNED);
	return 0;
}

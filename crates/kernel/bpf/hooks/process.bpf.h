/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tasks come, go and change their names: rare, and the reason why a scheduler record needs no names. And the iterator over
 * all tasks, which tells the names of those that were there before, and makes their slots in the tracker.
 */
#ifndef RTSCOPE_HOOKS_PROCESS_BPF_H
#define RTSCOPE_HOOKS_PROCESS_BPF_H

#include "trackers/registry.bpf.h"

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_PROCESS_FORK, rts_process_fork, 0, {
		r->parent_tid = parent->pid;
		r->parent_pid = parent->tgid;
		r->child_tid = child->pid;
		r->child_pid = child->tgid;
		copy_comm(r->child_comm, child);
	});
	if (config.track) {
		char comm[RTS_COMM_LEN] __attribute__((aligned(8)));

		copy_comm(comm, child);
		track_task(child, comm, true);
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_PROCESS_EXEC, rts_process_exec, 0, {
		r->tid = task->pid;
		r->old_tid = old_pid;
		/* The helper does not clear what is behind the NUL, so old bytes would leak into the trace. */
		__builtin_memset(r->filename, 0, sizeof(r->filename));
		bpf_probe_read_kernel_str(r->filename, sizeof(r->filename), bprm->filename);
	});
	if (config.track)
		track_exec(&here, task, old_pid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_PROCESS_EXIT, rts_process_exit, 0, {
		r->tid = task->pid;
		r->pid = task->tgid;
		r->prio = task->prio;
		r->pad0 = 0;
		r->pad1 = 0;
		copy_comm(r->comm, task);
	});
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *comm)
{
	struct here here;
	char name[RTS_COMM_LEN] __attribute__((aligned(8))) = {};

	if (!enter(&here))
		return 0;
	bpf_probe_read_kernel_str(name, sizeof(name), comm);
	RECORD(&here, RTS_TASK_RENAME, rts_task_rename, 0, {
		r->tid = task->pid;
		r->pid = task->tgid;
		copy_comm(r->old_comm, task);
		__builtin_memcpy(r->new_comm, name, sizeof(name));
	});
	if (config.track)
		track_task(task, name, false);
	return 0;
}

/* The signal's information is not read: it may be a number in the place of a pointer. */
SEC("tp_btf/signal_generate")
int BPF_PROG(signal_generate, int signal, void *info, struct task_struct *task, int group, int result)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_SIGNAL_GENERATE, rts_signal_generate, 0, {
		r->tid = task->pid;
		r->signal = signal;
		r->group = group != 0;
		r->result = result;
		r->pad = 0;
	});
	return 0;
}

SEC("iter/task")
int dump_tasks(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct rts_task_dump dump __attribute__((aligned(8))) = {}; /* for copy_comm() */

	if (!task)
		return 0;
	dump.tid = task->pid;
	dump.pid = task->tgid;
	dump.ppid = task->real_parent->tgid;
	dump.state = task->__state;
	dump.policy = task->policy;
	dump.prio = task->prio;
	dump.cpu = task_cpu(task);
	dump.kthread = is_kthread(task);
	copy_comm(dump.comm, task);
	/* Only while the eBPF programs are switched on: later, tasks are taken in at fork or when they are met. */
	if (config.track && trigger.adopt && !is_gone(task))
		track_task(task, dump.comm, false);
	bpf_seq_write(context->meta->seq, &dump, sizeof(dump));
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Behind each system call that changes a table: what is looked at, by its number, its arguments and its result.
 */
#ifndef RTSCOPE_FDS_CALLS_BPF_H
#define RTSCOPE_FDS_CALLS_BPF_H

#include "fds/tables.bpf.h"

#define EBADF 9
#define F_DUPFD 0
#define F_SETFD 2
#define F_DUPFD_CLOEXEC 1030
#define FIONCLEX 0x5450
#define FIOCLEX 0x5451
#define SECCOMP_IOCTL_NOTIF_ADDFD 0x40182103
#define CLOSE_RANGE_UNSHARE 2
#define CLONE_FILES 0x00000400

/* An argument at the return, where the registers of the program are still those of its call, but for the one with the result. */
static __always_inline __u64 argument(const struct pt_regs *regs, __u32 which, bool is_compat)
{
#if defined(__TARGET_ARCH_x86)
	if (is_compat)
		return (__u32)(which == 0 ? regs->bx : which == 1 ? regs->cx : regs->dx);
	return which == 0 ? regs->di : which == 1 ? regs->si : regs->dx;
#else
	return which == 0 ? regs->orig_x0 : which == 1 ? regs->user_regs.regs[1] : regs->user_regs.regs[2];
#endif
}

/* What is to be told behind a call. */
enum act { ACT_NONE, ACT_GIVEN, ACT_FREED, ACT_CHANGED, ACT_COMPARE, ACT_RANGE, ACT_UNSHARED };

/* Tells it: of this number, or of all. */
static __always_inline int tell(struct task_struct *task, enum act act, __u32 fd, __u32 last, __u32 which)
{
	struct files_struct *files = task->files;

	if (!files)
		return 0;
	/* Somebody else may have been given the number since it was freed: then what it is. */
	if (act == ACT_GIVEN || act == ACT_FREED) {
		settle(task, fd, act == ACT_GIVEN, which, act == ACT_GIVEN ? RTS_FDS_RESULT : 0);
		return 0;
	}
	if (act == ACT_CHANGED) {
		tell_slot(task, fd);
		return 0;
	}
	if (act == ACT_COMPARE)
		return compare(task, files, which);
	/* The task has a table of its own now, with copies. */
	if (act == ACT_UNSHARED)
		tell_task(task, files, RTS_FDS_TASK_UNSHARE, 0, 0);
	tell_chunks(task, files, fd, last, act == ACT_UNSHARED ? RTS_FDS_FIRST : 0);
	return act == ACT_RANGE ? compare(task, files, which) : 0;
}

static __always_inline enum act act_of_fcntl(__u64 command, long result)
{
	if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
		return ACT_GIVEN;
	return !result && command == F_SETFD ? ACT_CHANGED : ACT_NONE;
}

static __always_inline enum act act_of_ioctl(__u32 command, long result)
{
	if (command == FIOCLEX || command == FIONCLEX)
		return result ? ACT_NONE : ACT_CHANGED;
	/* Puts it into another process, also in the place of another one. */
	if (command == SECCOMP_IOCTL_NOTIF_ADDFD && result >= 0)
		COUNT(remote);
	return ACT_COMPARE;
}

static __always_inline int after_call(const struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	enum act act = ACT_NONE;
	bool is_compat = false;
	__u32 fd, last = ~0U;
	long number;
	__u8 way;

#if defined(__TARGET_ARCH_x86)
	number = regs->orig_ax;
	is_compat = task->thread_info.status & TS_COMPAT;
#else
	number = regs->syscallno;
#endif
	if (number < 0)
		return 0;
	if (number >= RTS_FDS_CALLS)
		way = RTS_FDS_WAY_COMPARE;
	else
		way = is_compat ? config.compat_calls[number & (RTS_FDS_CALLS - 1)] :
				  config.calls[number & (RTS_FDS_CALLS - 1)];
	/* ORDER: none; set once, when the first such descriptor is there. */
	if (way == RTS_FDS_WAY_READ)
		way = *(volatile __u64 *)&losses.reads_give ? RTS_FDS_WAY_COMPARE : RTS_FDS_WAY_NONE;
	if (way == RTS_FDS_WAY_NONE || !is_followed(task))
		return 0;
	fd = argument(regs, 0, is_compat);
	switch (way) {
	case RTS_FDS_WAY_FANOTIFY:
		/* ORDER: none; read() is looked behind from now on: by then somebody may only just read the first one. */
		if (result >= 0)
			losses.reads_give = 1;
		/* Its result is a descriptor, too. */
	case RTS_FDS_WAY_RESULT:
		fd = result;
		act = result >= 0 ? ACT_GIVEN : ACT_NONE;
		break;
	case RTS_FDS_WAY_CLOSE:
		act = result != -EBADF ? ACT_FREED : ACT_NONE;
		break;
	case RTS_FDS_WAY_FCNTL:
		act = act_of_fcntl(argument(regs, 1, is_compat), result);
		fd = act == ACT_GIVEN ? result : fd;
		break;
	case RTS_FDS_WAY_IOCTL:
		act = act_of_ioctl(argument(regs, 1, is_compat), result);
		break;
	case RTS_FDS_WAY_RANGE:
		if (result)
			break;
		act = argument(regs, 2, is_compat) & CLOSE_RANGE_UNSHARE ? ACT_UNSHARED : ACT_RANGE;
		last = act == ACT_RANGE ? (__u32)argument(regs, 1, is_compat) / RTS_FDS_CHUNK : last;
		fd = act == ACT_RANGE ? fd / RTS_FDS_CHUNK : 0;
		break;
	case RTS_FDS_WAY_UNSHARE:
		act = !result && fd & CLONE_FILES ? ACT_UNSHARED : ACT_NONE;
		fd = 0;
		break;
	default:
		act = ACT_COMPARE;
	}
	return act == ACT_NONE ? 0 : tell(task, act, fd, last, SCRATCH_CALL);
}

/* Where the kernel runs it with preemption off (crates/kernel/src/syscalls.rs, are_not_preempted()): it is never skipped. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(call_done, struct pt_regs *regs, long result)
{
	return after_call(regs, result);
}

struct sys_exit_args {
	__u64 common;
	long number;
	long result;
};

/* Elsewhere: programs of this kind still run with preemption off there. */
SEC("?tp/raw_syscalls/sys_exit")
int call_done_classic(struct sys_exit_args *args)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return after_call((const void *)bpf_task_pt_regs(task), args->result);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls of a stream, and the paths and sockets' addresses that they are given.
 *
 * Where the kernel runs these programs with preemption off, they record the calls themselves, and are then the only ones on
 * sys_enter and sys_exit: a second handler there turns the kernel's direct call into a loop of indirect ones, and ftrace's own
 * costs twice as much. No other call can come in between on their CPU, so the kernel has no reason to skip
 * them. Elsewhere (Linux 7) it has, so there ftrace records the calls and these programs only read the paths. Which it is says
 * config.calls; probe_preemption below finds out.
 *
 * The text of a path (and the address of a socket, for which the same holds) is read at the call's entry, before another thread can change it. Where its memory is not there (a page
 * that was never touched: a string constant at its first use), the call itself will bring it in, so it is read at the
 * exit. Where that fails too, nothing is written and the reader of the trace sees "?".
 *
 * Cost: each system call pays for entering the program and one look at a table; those that are wanted, for a record. The exit
 * looks at a counter too, and for a path that waits only while that is not 0.
 */
#ifndef RTSCOPE_HOOKS_SYSCALL_BPF_H
#define RTSCOPE_HOOKS_SYSCALL_BPF_H

#include "core/recorder.bpf.h"

struct path_scratch {
	char path[RTS_PATH_MAX];
};

/* One per CPU and program: a program does not nest with itself, whatever preempts it (its guard; skips are counted). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct path_scratch);
	__uint(max_entries, 2);
} path_scratch SEC(".maps");

#define PATH_ARGS 5 /* arguments that can be paths: 0 to 4 */

/* A call, and those of its paths that could not be read yet. */
struct path_wait {
	__u64 entry_ns;
	__u64 pointers[PATH_ARGS];
	__u16 syscall;
	__u16 args;  /* bit i: argument i is still to be read */
	__u32 bytes; /* of a socket's address; 0: its arguments are texts */
};

/*
 * Calls whose paths could not be read yet, by tid. A hash is fine here: it is only touched after a fault. Not one that drops its
 * oldest entries: what goes without being counted would keep path_counters.waiting up for good.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct path_wait);
	__uint(max_entries, 4096);
} path_waits SEC(".maps");

/*
 * Entries of path_waits: counted before one is made and after one is removed, so never less than there are, and 0 spares the exits
 * a look at the hash. An entry is removed at the call's exit; where the kernel skipped that program, at the thread's next call with
 * paths.
 */
struct {
	__u64 waiting;
} path_counters SEC(".data.paths");

/* SYSCALL_* numbers of arguments: 0 to 5. */
static __always_inline __u64 syscall_argument(const struct pt_regs *regs, __u32 arg)
{
#if defined(__TARGET_ARCH_x86)
	switch (arg) {
	case 0:
		return regs->di;
	case 1:
		return regs->si;
	case 2:
		return regs->dx;
	case 3:
		return regs->r10;
	case 4:
		return regs->r8;
	default:
		return regs->r9;
	}
#else
	/* Unchanged at the entry; the first one is the result at the exit, where this is not asked. */
	switch (arg) {
	case 0:
		return regs->user_regs.regs[0];
	case 1:
		return regs->user_regs.regs[1];
	case 2:
		return regs->user_regs.regs[2];
	case 3:
		return regs->user_regs.regs[3];
	case 4:
		return regs->user_regs.regs[4];
	default:
		return regs->user_regs.regs[5];
	}
#endif
}

/* The number of the call that returns; -1 for none, as after rt_sigreturn. */
static __always_inline long syscall_number(const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->orig_ax;
#else
	return regs->syscallno;
#endif
}

/* Calls of 32-bit programs have numbers of their own. ftrace has no events for them, so neither have we. */
static __always_inline bool is_compat(const struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task->thread_info.status & TS_COMPAT;
#else
	return false;
#endif
}

/* Returns the length, with the NUL of a text; negative when the memory is not there. */
static __always_inline long read_path(char *to, __u64 pointer, __u32 bytes)
{
	if (!bytes)
		return bpf_probe_read_user_str(to, RTS_PATH_MAX, (const void *)pointer);
	if (bytes > RTS_ADDRESS_MAX)
		bytes = RTS_ADDRESS_MAX;
	barrier_var(bytes); /* or clang reads it again, which the verifier does not know to be as small */
	return bpf_probe_read_user(to, bytes & (2 * RTS_ADDRESS_MAX - 1), (const void *)pointer) ? -1 : (long)bytes;
}

/* Reads and records one path or address; false when its memory is not there. */
static __always_inline bool record_path(struct here *here, const struct path_wait *call, __u32 arg, __u32 which,
					__u32 flags)
{
	struct path_scratch *scratch = bpf_map_lookup_elem(&path_scratch, &which);
	__u64 pointer = call->pointers[arg];
	struct rts_syscall_path *r;
	char *path;
	__u32 size;
	long length;

	if (!scratch)
		return true;
	length = read_path(scratch->path, pointer, call->bytes);
	if (length < 0)
		return false;
	/* Whole words, with zeros behind the NUL: old bytes must not leak into the trace. */
	size = ((__u32)length + 7) & ~7U;
	if (size == 0 || size > RTS_PATH_MAX)
		return true;
	r = reserve(here, sizeof(*r) + size, RTS_SYSCALL_PATH, 0);
	if (!r)
		return true;
	r->pointer = pointer;
	r->entry_ns = call->entry_ns;
	r->tid = bpf_get_current_task_btf()->pid;
	r->syscall = call->syscall;
	r->arg = arg;
	r->flags = flags | (length == RTS_PATH_MAX ? RTS_PATH_TRUNCATED : 0) | (call->bytes ? RTS_PATH_ADDRESS : 0);
	path = (char *)(r + 1);
	*(__u64 *)(void *)(path + ((size - 8) & (RTS_PATH_MAX - 8))) = 0;
	bpf_probe_read_kernel(path, (__u32)length & (2 * RTS_PATH_MAX - 1), scratch->path);
	commit(&r->record);
	return true;
}

/* Takes a call's entry out of the table. */
static __always_inline void forget_paths(__u32 tid)
{
	/* ORDER: none; pairs with the load in syscall_exit() of the same thread, which may have changed its CPU between: a switch orders. */
	if (!bpf_map_delete_elem(&path_waits, &tid))
		__sync_fetch_and_add(&path_counters.waiting, -1);
}

/* Has the paths that could not be read now read at the call's exit. */
static __noinline int keep_paths(struct here *here, const struct path_wait *call, __u32 tid)
{
	/* ORDER: none; as in forget_paths(). */
	__sync_fetch_and_add(&path_counters.waiting, 1);
	if (!bpf_map_update_elem(&path_waits, &tid, call, BPF_NOEXIST))
		return 0;
	/* The table is full. ORDER: none, both; the first as in forget_paths(), the second as in reserve_streamed(). */
	__sync_fetch_and_add(&path_counters.waiting, -1);
	__sync_fetch_and_add(&here->control->lost[RTS_SYSCALL_PATH & (RTS_LOST_TYPES - 1)], 1);
	return 0;
}

static __always_inline void record_paths(struct here *here, const struct pt_regs *regs, __u32 syscall, __u32 tid)
{
	struct path_wait call = { .syscall = syscall, .entry_ns = now(here) };
	__u32 args = config.paths[syscall & (RTS_SYSCALLS - 1)];

	/* Left by a call whose exit was not seen. ORDER: none; a hint, as in syscall_exit(). */
	if (*(volatile __u64 *)&path_counters.waiting)
		forget_paths(tid);
	for (__u32 arg = 0; arg < PATH_ARGS; arg++) {
		if (!(args & 1 << arg))
			continue;
		call.pointers[arg] = syscall_argument(regs, arg);
		if (args & RTS_PATH_SOCKET) {
			call.bytes = syscall_argument(regs, arg + 1);
			if (!call.bytes)
				continue;
		}
		if (call.pointers[arg] && !record_path(here, &call, arg, 0, 0))
			call.args |= 1 << arg;
	}
	if (call.args && !(args & RTS_PATH_ENTRY_ONLY))
		keep_paths(here, &call, tid);
}

static __always_inline void record_entry(struct here *here, const struct pt_regs *regs, __u32 syscall, __u32 tid,
					 __u32 count)
{
	struct rts_syscall_entry *r = reserve(here, sizeof(*r) + count * 8, RTS_SYSCALL_ENTRY, 0);
	__u64 *args;

	if (!r)
		return;
	r->number = syscall;
	r->tid = tid;
	args = (__u64 *)(r + 1);
	/* No loop, and not more than there is room for: an interrupt's record may stand right behind. */
	if (count > 0)
		args[0] = syscall_argument(regs, 0);
	if (count > 1)
		args[1] = syscall_argument(regs, 1);
	if (count > 2)
		args[2] = syscall_argument(regs, 2);
	if (count > 3)
		args[3] = syscall_argument(regs, 3);
	if (count > 4)
		args[4] = syscall_argument(regs, 4);
	if (count > 5)
		args[5] = syscall_argument(regs, 5);
	commit(&r->record);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(syscall_entry, struct pt_regs *regs, long number)
{
	__u32 syscall = (__u32)number & (RTS_SYSCALLS - 1);
	__u32 call = config.calls[syscall];
	struct task_struct *task;
	struct here here;
	__u32 tid;

	if (!(call & (RTS_CALL_ENTRY | RTS_CALL_PATHS)) || syscall != (__u64)number)
		return 0;
	task = bpf_get_current_task_btf();
	if ((__u32)task->tgid == config.own_pid || is_compat(task) || !enter(&here))
		return 0;
	tid = task->pid;
	if (call & RTS_CALL_ENTRY)
		record_entry(&here, regs, syscall, tid, call & RTS_CALL_ARGS);
	if (call & RTS_CALL_PATHS)
		record_paths(&here, regs, syscall, tid);
	return 0;
}

/* Paths that wait: their call has brought the memory in. Those of an earlier call, whose exit was not seen, are dropped. */
static __noinline int record_late_paths(struct here *here, __u32 syscall)
{
	__u32 tid = bpf_get_current_task_btf()->pid;
	struct path_wait *call = bpf_map_lookup_elem(&path_waits, &tid);

	if (!call)
		return 0;
	for (__u32 arg = 0; arg < PATH_ARGS; arg++) {
		if (call->syscall == syscall && call->args & 1 << arg)
			record_path(here, call, arg, 1, RTS_PATH_AT_EXIT);
	}
	forget_paths(tid);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(syscall_exit, struct pt_regs *regs, long result)
{
	/* ORDER: none; a hint. Pairs with keep_paths() by this thread; other threads' paths only make it look in vain. */
	bool waits = *(volatile __u64 *)&path_counters.waiting;
	long number = syscall_number(regs);
	__u32 syscall = (__u32)number & (RTS_SYSCALLS - 1);
	bool wanted = config.calls[syscall] & RTS_CALL_EXIT && syscall == (__u64)number;
	struct rts_syscall_exit *r;
	struct task_struct *task;
	struct here here;

	if (!wanted && !waits)
		return 0;
	task = bpf_get_current_task_btf();
	if ((__u32)task->tgid == config.own_pid || is_compat(task) || !enter(&here))
		return 0;
	if (wanted && (r = reserve(&here, sizeof(*r), RTS_SYSCALL_EXIT, 0))) {
		r->number = syscall;
		r->tid = task->pid;
		r->ret = result;
		commit(&r->record);
	}
	if (waits)
		record_late_paths(&here, syscall);
	return 0;
}

/* What probe_preemption has found: 0 before it ran, 1 where programs may be preempted, 2 where they are not. */
struct {
	__u64 preemption;
} probed SEC(".data.probe");

/*
 * Whether programs on sys_enter run with preemption off, asked from within one, for a system call that rtscope makes.
 *
 * No program may change its CPU while it runs. Up to Linux 6.18 the kernel sees to that by running it with preemption off;
 * since tracepoints let themselves be preempted, by forbidding the task to migrate. So a task that may migrate here
 * cannot be preempted. (The preemption count itself cannot be asked everywhere: on x86 it is a per-CPU variable, which
 * programs find only in kernels with CONFIG_KALLSYMS_ALL.)
 */
SEC("tp_btf/sys_enter")
int BPF_PROG(probe_preemption, struct pt_regs *regs, long number)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if ((__u32)task->tgid != config.own_pid)
		return 0;
	/* A kernel for one CPU has no such field. */
	if (!bpf_core_field_exists(task->migration_disabled))
		probed.preemption = 1;
	else
		probed.preemption = task->migration_disabled ? 1 : 2;
	return 0;
}

#endif

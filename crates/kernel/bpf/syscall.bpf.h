/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The paths that system calls are given. The calls themselves are recorded by ftrace, which loses none where these programs
 * can be preempted; ftrace knows the pointer but not the text behind it.
 *
 * The text is read at the call's entry, before another thread can change it. Where its memory is not there (a page
 * that was never touched: a string constant at its first use), the call itself will bring it in, so it is read at the
 * exit. Where that fails too, nothing is written and the reader of the trace sees "?".
 *
 * Cost: each system call pays for entering the program and one look at a table; those with a path, for reading it. The exit
 * pays for one look at a counter while no path waits.
 */

struct path_scratch {
	char path[RTS_PATH_MAX];
};

/* One per CPU and program: a program does not nest with itself, whoever preempts it (its guard; skips are counted). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct path_scratch);
	__uint(max_entries, 2);
} path_scratch SEC(".maps");

struct path_wait {
	__u64 pointer, entry_ns;
	__u16 syscall;
	__u16 arg;
	__u32 pad;
};

/* Calls whose path could not be read yet, by tid. A hash is fine here: it is only touched after a fault. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u32);
	__type(value, struct path_wait);
	__uint(max_entries, 4096);
} path_waits SEC(".maps");

/* How many of them there are or were; never less than there are, so that 0 spares the exits a look at the hash. */
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
	default:
		return regs->r8;
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
	default:
		return regs->user_regs.regs[4];
	}
#endif
}

/* Reads and records one path; false when its memory is not there. */
static __always_inline bool record_path(struct here *here, const struct path_wait *call, __u32 tid, __u32 which,
					__u32 flags)
{
	struct path_scratch *scratch = bpf_map_lookup_elem(&path_scratch, &which);
	struct rts_syscall_path *r;
	char *path;
	__u32 size;
	long length;

	if (!scratch)
		return true;
	length = bpf_probe_read_user_str(scratch->path, sizeof(scratch->path), (const void *)call->pointer);
	if (length < 0)
		return false;
	/* Whole words, with zeros behind the NUL: old bytes must not leak into the trace. */
	size = ((__u32)length + 7) & ~7U;
	if (size == 0 || size > RTS_PATH_MAX)
		return true;
	r = reserve(here, sizeof(*r) + size, RTS_SYSCALL_PATH, 0);
	if (!r)
		return true;
	r->pointer = call->pointer;
	r->entry_ns = call->entry_ns;
	r->tid = tid;
	r->syscall = call->syscall;
	r->arg = call->arg;
	r->flags = flags | (length == RTS_PATH_MAX ? RTS_PATH_TRUNCATED : 0);
	path = (char *)(r + 1);
	*(__u64 *)(void *)(path + ((size - 8) & (RTS_PATH_MAX - 8))) = 0;
	bpf_probe_read_kernel(path, (__u32)length & (2 * RTS_PATH_MAX - 1), scratch->path);
	commit(&r->record);
	return true;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(syscall_path_entry, struct pt_regs *regs, long number)
{
	__u32 syscall = (__u32)number & (RTS_SYSCALLS - 1);
	__u32 args = config.paths[syscall];
	struct task_struct *task;
	struct path_wait call = { .syscall = syscall };
	struct here here;
	__u32 tid;

	if (!args || syscall != (__u64)number || !enter(&here))
		return 0;
	task = bpf_get_current_task_btf();
	if ((__u32)task->tgid == config.own_pid)
		return 0;
#if defined(__TARGET_ARCH_x86)
	if (task->thread_info.status & TS_COMPAT)
		return 0;
#endif
	tid = task->pid;
	call.entry_ns = now(&here);
	for (__u32 arg = 0; arg < 5; arg++) {
		if (!(args & 1 << arg))
			continue;
		call.arg = arg;
		call.pointer = syscall_argument(regs, arg);
		if (!call.pointer || record_path(&here, &call, tid, 0, 0) || args & RTS_PATH_ENTRY_ONLY)
			continue;
		__sync_fetch_and_add(&path_counters.waiting, 1);
		bpf_map_update_elem(&path_waits, &tid, &call, BPF_ANY);
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(syscall_path_exit, struct pt_regs *regs, long result)
{
	struct path_wait *call;
	struct here here;
	__u32 tid;

	if (!*(volatile __u64 *)&path_counters.waiting || !enter(&here))
		return 0;
	tid = bpf_get_current_task_btf()->pid;
	call = bpf_map_lookup_elem(&path_waits, &tid);
	if (!call)
		return 0;
	record_path(&here, call, tid, 1, RTS_PATH_AT_EXIT);
	bpf_map_delete_elem(&path_waits, &tid);
	__sync_fetch_and_add(&path_counters.waiting, -1);
	return 0;
}

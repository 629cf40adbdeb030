/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs share: the ring and what is missing from it, who is followed; and a slot of a table, looked at and told.
 */
#ifndef RTSCOPE_FDS_SLOTS_BPF_H
#define RTSCOPE_FDS_SLOTS_BPF_H

#include "core/kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "kernel_fds.h"

/* More than 0 chunks: else the verifier removes what is called for each. */
const volatile struct rts_fds_config config SEC(".rodata.config") = { .most_chunks = 1024 };

struct rts_fds_losses losses SEC(".data.losses") = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22); /* set before loading */
} records SEC(".maps");

/* Processes, where only some are followed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u8);
	__uint(max_entries, 1 << 15);
} followed SEC(".maps");

struct path_scratch {
	char bytes[2 * RTS_FDS_PATH];
};

/* One per CPU and program: a program does not nest with itself, whatever preempts it (its guard; skips are counted). */
enum { SCRATCH_CALL, SCRATCH_URING, SCRATCH_SCAN, SCRATCHES };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct path_scratch);
	__uint(max_entries, SCRATCHES);
} path_scratch SEC(".maps");

/* Which numbers of a table were told as given. What is dropped here is told again. */
#define TOLD_WORDS 64
struct told {
	__u64 open[TOLD_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u64);
	__type(value, struct told);
	__uint(max_entries, 1 << 13);
} told_numbers SEC(".maps");

#define PATH_DEPTH 40
#define SETTLE 8
#define RB_NO_WAKEUP 1 /* nobody is woken: the reader looks */

/* ORDER: none; counters that stand for themselves. Pair with the loads in crates/kernel/src/descriptors/mod.rs. */
#define COUNT(counter) __sync_fetch_and_add(&losses.counter, 1)

/* A record of this type with its head filled, or NULL, counted. */
#define RESERVE(type, record_kind)                                               \
	({                                                                       \
		type *reserved = bpf_ringbuf_reserve(&records, sizeof(type), 0); \
		if (!reserved)                                                   \
			COUNT(lost[record_kind]);                                \
		reserved;                                                        \
	})

/* Counted before the reader can have it. */
#define SUBMIT(record)                                    \
	do {                                              \
		COUNT(records);                           \
		bpf_ringbuf_submit(record, RB_NO_WAKEUP); \
	} while (0)

static __always_inline bool is_followed(const struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (pid == config.own_pid)
		return false;
	return !config.selective || bpf_map_lookup_elem(&followed, &pid);
}

static __always_inline void fill(struct rts_fds_head *head, const struct task_struct *task,
				 const struct files_struct *files, __u32 kind, __u32 flags)
{
	head->time_ns = bpf_ktime_get_ns();
	head->table = (__u64)files;
	head->tid = task->pid;
	head->pid = task->tgid;
	head->kind = kind;
	head->call = RTS_FDS_NONE;
	head->flags = flags;
}

/* The system call that the current task is in. */
static __always_inline void say_call(struct rts_fds_head *head, const struct task_struct *task)
{
	const struct pt_regs *regs;
	long number;

	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)) {
		head->flags |= RTS_FDS_IO_WORKER;
		return;
	}
	regs = (const void *)bpf_task_pt_regs((struct task_struct *)task);
#if defined(__TARGET_ARCH_x86)
	number = regs->orig_ax;
	if (task->thread_info.status & TS_COMPAT)
		head->flags |= RTS_FDS_COMPAT;
#else
	number = regs->syscallno;
#endif
	if (number >= 0 && number < RTS_FDS_NONE)
		head->call = number;
}

/*
 * The number of an open file. The kernel gives the place of a closed file to the next one at once, and a table may be told as long as nobody has
 * told that: so what the file is, is part of its number.
 */
static __always_inline __u64 id_of(struct file *file)
{
	__u64 number, parts;

	if (!file)
		return 0;
	number = BPF_CORE_READ(file, f_inode, i_ino) ^ (__u64)BPF_CORE_READ(file, f_inode, i_generation) << 32;
	/* Which name of it, and which kind of anonymous file. */
	parts = (__u64)BPF_CORE_READ(file, f_path.dentry) ^ (__u64)BPF_CORE_READ(file, f_op) << 20;
	return ((__u64)file ^ number * 0x9e3779b97f4a7c15ULL ^ parts * 0xc2b2ae3d27d4eb4fULL) | 1;
}

/* What a slot has now. */
static __always_inline struct file *look(struct files_struct *files, __u32 fd, __u32 *flags)
{
	struct fdtable *fdt = BPF_CORE_READ(files, fdt);
	struct file *file = NULL;
	unsigned long bits = 0;

	if (fd >= BPF_CORE_READ(fdt, max_fds))
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(fdt, fd) + fd);
	bpf_probe_read_kernel(&bits, sizeof(bits), BPF_CORE_READ(fdt, close_on_exec) + fd / 64);
	if (file && bits >> (fd & 63) & 1)
		*flags |= RTS_FDS_CLOEXEC;
	return file;
}

static __always_inline void tell_slot(struct task_struct *task, __u32 fd)
{
	struct files_struct *files = task->files;
	struct rts_fds_slot *slot = RESERVE(struct rts_fds_slot, RTS_FDS_SLOT);
	__u32 flags = 0;

	if (!slot)
		return;
	fill(&slot->head, task, files, RTS_FDS_SLOT, 0);
	say_call(&slot->head, task);
	slot->fd = fd;
	slot->pad = 0;
	slot->file = id_of(look(files, fd, &flags));
	slot->head.flags |= flags;
	SUBMIT(slot);
}

static __always_inline void describe(struct rts_fds_file *record, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct super_block *fs = BPF_CORE_READ(inode, i_sb);
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);

	record->inode = BPF_CORE_READ(inode, i_ino);
	record->mode = BPF_CORE_READ(inode, i_mode);
	record->rdev = BPF_CORE_READ(inode, i_rdev);
	record->device = BPF_CORE_READ(fs, s_dev);
	record->magic = BPF_CORE_READ(fs, s_magic);
	record->open_flags = BPF_CORE_READ(file, f_flags);
	record->path_length = 0;
	__builtin_memset(record->name, 0, sizeof(record->name));
	bpf_probe_read_kernel_str(record->name, sizeof(record->name), BPF_CORE_READ(dentry, d_name.name));
	if (dentry == BPF_CORE_READ(dentry, d_parent))
		record->slot.head.flags |= RTS_FDS_PSEUDO;
	else if (!BPF_CORE_READ(dentry, d_hash.pprev))
		record->slot.head.flags |= RTS_FDS_DELETED;
}

struct walk {
	struct path_scratch *scratch;
	struct dentry *dentry;
	struct dentry *top; /* of the mount */
	struct mount *mount;
	__u32 used;
	bool is_whole;
};

static long walk_up(__u64 index, struct walk *walk)
{
	struct dentry *dentry = walk->dentry, *parent = BPF_CORE_READ(dentry, d_parent);
	struct mount *mount = walk->mount, *outer;
	__u32 used = walk->used;
	long length;

	if (dentry == walk->top || dentry == parent) {
		outer = BPF_CORE_READ(mount, mnt_parent);
		if (outer == mount || dentry != walk->top) {
			walk->is_whole = true;
			return 1;
		}
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		walk->mount = outer;
		walk->top = BPF_CORE_READ(outer, mnt.mnt_root);
		return 0;
	}
	if (used >= RTS_FDS_PATH)
		return 1;
	length = bpf_probe_read_kernel_str(walk->scratch->bytes + (used & (RTS_FDS_PATH - 1)), RTS_FDS_PATH,
					   BPF_CORE_READ(dentry, d_name.name));
	if (length <= 0)
		return 1;
	walk->used = used + ((__u32)length & (2 * RTS_FDS_PATH - 1));
	walk->dentry = parent;
	return 0;
}

/* Writes the parts of a path, the last one first, and their length; flags says whether it is whole. */
static __always_inline __u32 write_path(struct file *file, struct path_scratch *scratch, __u32 *flags)
{
	struct vfsmount *inner = BPF_CORE_READ(file, f_path.mnt);
	struct walk walk = {
		.scratch = scratch,
		.dentry = BPF_CORE_READ(file, f_path.dentry),
		.mount = (void *)inner - bpf_core_field_offset(struct mount, mnt),
		.top = BPF_CORE_READ(inner, mnt_root),
	};

	bpf_loop(PATH_DEPTH, walk_up, &walk, 0);
	if (!walk.is_whole || walk.used > RTS_FDS_PATH)
		*flags |= RTS_FDS_CUT;
	return walk.used;
}

/* Whether a file has a place in a directory. */
static __always_inline bool has_path(struct file *file)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);

	return file && dentry != BPF_CORE_READ(dentry, d_parent);
}

static __always_inline void fill_slot(struct rts_fds_slot *slot, struct task_struct *task, __u32 fd, struct file *file,
				      __u32 kind, __u32 flags)
{
	fill(&slot->head, task, task->files, kind, flags);
	if (!(flags & RTS_FDS_SCANNED))
		say_call(&slot->head, task);
	slot->file = id_of(file);
	slot->fd = fd;
	slot->pad = 0;
}

/* What a slot has, and what that is. Whether it has any. */
static __noinline int tell_file(struct task_struct *task, __u32 fd, __u32 which, __u32 said)
{
	struct path_scratch *scratch = bpf_map_lookup_elem(&path_scratch, &which);
	struct files_struct *files = task->files;
	struct rts_fds_file_path *whole;
	struct rts_fds_file *record;
	struct rts_fds_slot *slot;
	__u32 flags = said;
	struct file *file;

	if (!files || !scratch)
		return 0;
	file = look(files, fd, &flags);
	if (!file) {
		slot = RESERVE(struct rts_fds_slot, RTS_FDS_SLOT);
		if (!slot)
			return 0;
		flags = said;
		file = look(files, fd, &flags);
		if (!file) {
			fill_slot(slot, task, fd, NULL, RTS_FDS_SLOT, flags);
			SUBMIT(slot);
			return 0;
		}
		/* What stands there has changed since, and needs more room. */
		bpf_ringbuf_discard(slot, RB_NO_WAKEUP);
	}
	if (!has_path(file)) {
		record = RESERVE(struct rts_fds_file, RTS_FDS_FILE);
		if (!record)
			return 0;
		flags = said;
		file = look(files, fd, &flags);
		if (!has_path(file)) {
			fill_slot(&record->slot, task, fd, file, RTS_FDS_FILE, flags);
			describe(record, file);
			SUBMIT(record);
			return file != NULL;
		}
		bpf_ringbuf_discard(record, RB_NO_WAKEUP);
	}
	whole = RESERVE(struct rts_fds_file_path, RTS_FDS_FILE_PATH);
	if (!whole)
		return 0;
	flags = said;
	file = look(files, fd, &flags);
	fill_slot(&whole->file.slot, task, fd, file, RTS_FDS_FILE_PATH, flags);
	describe(&whole->file, file);
	__builtin_memset(scratch, 0, sizeof(*scratch));
	flags = 0;
	whole->file.path_length = write_path(file, scratch, &flags);
	whole->file.slot.head.flags |= flags;
	bpf_probe_read_kernel(whole->path, sizeof(whole->path), scratch->bytes);
	SUBMIT(whole);
	return file != NULL;
}

#endif

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
#include "core/kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel_fds.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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

/* ORDER: none; counters that stand for themselves. Pair with the loads in crates/kernel/src/fds.rs. */
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

/* A word, or NULL. The compiler is kept from taking away the mask, which Linux 6.1's verifier needs behind the comparison. */
static __always_inline __u64 *told_word(struct told *told, __u32 number)
{
	if (number >= TOLD_WORDS)
		return NULL;
	barrier_var(number);
	return &told->open[number & (TOLD_WORDS - 1)];
}

/*
 * Counts a number as told: given or free; before the slot is looked at. Whoever changes the slot after that look counts it anew, and for whoever
 * compared before it that look tells.
 */
static __always_inline void note_told(struct files_struct *files, __u32 fd, bool given)
{
	__u64 table = (__u64)files;
	struct told *told = bpf_map_lookup_elem(&told_numbers, &table);
	__u64 *word = told ? told_word(told, fd / 64) : NULL;

	if (!word)
		return;
	/* ORDER: full, both: before the look that follows. Pairs with the same, and with the comparison, of other threads. */
	if (given)
		__sync_fetch_and_or(word, 1ULL << (fd & 63));
	else
		__sync_fetch_and_and(word, ~(1ULL << (fd & 63)));
}

struct settling {
	struct task_struct *task;
	struct files_struct *files;
	__u32 fd;
	__u32 which;
	__u32 flags;
	__u32 given; /* how it was counted */
};

static long settle_once(__u64 index, struct settling *settling)
{
	__u32 given;

	note_told(settling->files, settling->fd, settling->given);
	given = tell_file(settling->task, settling->fd, settling->which, settling->flags);
	if (given == settling->given)
		return 1;
	settling->given = given;
	/* It is not what the call did, but somebody else. */
	settling->flags &= RTS_FDS_SCANNED;
	if (index + 1 >= SETTLE)
		COUNT(unsettled);
	return 0;
}

/* Tells a slot, and whether its number was counted as given or free, until both agree: others may change it all the time. */
static __always_inline void settle(struct task_struct *task, __u32 fd, bool given, __u32 which, __u32 flags)
{
	struct settling settling = {
		.task = task, .files = task->files, .fd = fd, .which = which, .flags = flags, .given = given
	};

	if (settling.files)
		bpf_loop(SETTLE, settle_once, &settling, 0);
}

/* The numbers of a chunk that are taken; those that have no file yet, too. */
static __always_inline unsigned long open_of(struct files_struct *files, __u32 number)
{
	struct fdtable *fdt = BPF_CORE_READ(files, fdt);
	unsigned long open = 0;

	bpf_probe_read_kernel(&open, sizeof(open), BPF_CORE_READ(fdt, open_fds) + number);
	return open;
}

/* What was told of a table; makes an entry where there is none. */
static __always_inline struct told *told_of(struct files_struct *files)
{
	static const struct told nothing;
	__u64 table = (__u64)files;
	struct told *told = bpf_map_lookup_elem(&told_numbers, &table);

	if (told)
		return told;
	bpf_map_update_elem(&told_numbers, &table, &nothing, BPF_NOEXIST);
	return bpf_map_lookup_elem(&told_numbers, &table);
}

struct chunks {
	struct task_struct *task;
	struct files_struct *files;
	struct told *told;
	__u32 from;
	__u32 to;
	__u32 end; /* behind the last one that the table has */
	__u32 flags;
};

static long identify(__u64 index, struct rts_fds_chunk **chunk)
{
	if (index >= RTS_FDS_CHUNK)
		return 1;
	(*chunk)->files[index] = id_of((struct file *)(*chunk)->files[index]);
	return 0;
}

static long tell_chunk(__u64 index, struct chunks *chunks)
{
	struct files_struct *files = chunks->files;
	/* Not a number that is counted up: the verifier would follow each. */
	__u32 number = chunks->from + (__u32)index, flags = chunks->flags;
	struct rts_fds_chunk_none *none;
	struct rts_fds_chunk *chunk;
	struct fdtable *fdt;
	__u64 open, *word;

	if (number > chunks->to || number >= chunks->end)
		return 1;
	if (index)
		flags &= ~RTS_FDS_FIRST;
	if (number + 1 == chunks->end)
		flags |= RTS_FDS_LAST;
	open = open_of(files, number);
	/*
	 * Of a new table all are copies, whose files are known. Where a range was closed, what is open now is new, and is told by a comparison.
	 * ORDER: full, before the look; as in note_told().
	 */
	word = told_word(chunks->told, number);
	if (word && chunks->flags & RTS_FDS_FIRST)
		*word = open;
	else if (word)
		__sync_fetch_and_and(word, chunks->flags & RTS_FDS_SCANNED ? open : 0);
	if (!open) {
		none = RESERVE(struct rts_fds_chunk_none, RTS_FDS_CHUNK_NONE);
		if (!none)
			return 0;
		fill(&none->head, chunks->task, files, RTS_FDS_CHUNK_NONE, flags);
		if (!(flags & RTS_FDS_SCANNED))
			say_call(&none->head, chunks->task);
		none->first = number * RTS_FDS_CHUNK;
		none->pad = 0;
		none->open = open_of(files, number);
		SUBMIT(none);
		return 0;
	}
	chunk = RESERVE(struct rts_fds_chunk, RTS_FDS_CHUNK_FILES);
	if (!chunk)
		return 0;
	fdt = BPF_CORE_READ(files, fdt);
	fill(&chunk->head, chunks->task, files, RTS_FDS_CHUNK_FILES, flags);
	if (!(flags & RTS_FDS_SCANNED))
		say_call(&chunk->head, chunks->task);
	chunk->first = number * RTS_FDS_CHUNK;
	chunk->pad = 0;
	chunk->cloexec = 0;
	bpf_probe_read_kernel(&chunk->cloexec, sizeof(chunk->cloexec), BPF_CORE_READ(fdt, close_on_exec) + number);
	bpf_probe_read_kernel(chunk->files, sizeof(chunk->files), BPF_CORE_READ(fdt, fd) + chunk->first);
	bpf_loop(RTS_FDS_CHUNK, identify, &chunk, 0);
	SUBMIT(chunk);
	return 0;
}

/* Slots from chunk `from` to chunk `to`, as far as the table goes. */
static __noinline int tell_chunks(struct task_struct *task, struct files_struct *files, __u32 from, __u32 to,
				  __u32 flags)
{
	struct chunks chunks = {
		.task = task, .files = files, .told = told_of(files), .from = from, .to = to, .flags = flags
	};
	__u32 slots = BPF_CORE_READ(files, fdt, max_fds);

	if (!chunks.told) {
		COUNT(lost[RTS_FDS_CHUNK_FILES]);
		return 0;
	}
	chunks.end = (slots + RTS_FDS_CHUNK - 1) / RTS_FDS_CHUNK;
	if (to >= from && chunks.end > from && chunks.end - from > config.most_chunks)
		COUNT(beyond);
	bpf_loop(config.most_chunks, tell_chunk, &chunks, 0);
	return 0;
}

static __always_inline void tell_task(struct task_struct *task, struct files_struct *files, __u32 what, __u32 other_tid,
				      __u32 flags)
{
	struct rts_fds_task *record = RESERVE(struct rts_fds_task, RTS_FDS_TASK);

	if (!record)
		return;
	fill(&record->head, task, files, RTS_FDS_TASK, flags);
	record->what = what;
	record->other_tid = other_tid;
	record->parent_pid = BPF_CORE_READ(task, real_parent, tgid);
	record->pad = 0;
	record->start_ns = task->start_time;
	__builtin_memset(record->comm, 0, sizeof(record->comm));
	bpf_probe_read_kernel_str(record->comm, sizeof(record->comm), task->comm);
	SUBMIT(record);
}

/* ---- what a table has, compared with what was told of it -------------------------------------------------------- */

/* The number of a single bit, by the upper 6 bits of its product with a sequence of de Bruijn. No branches: the verifier would follow each. */
#define DE_BRUIJN 0x03f79d71b4cb0a89ULL
static const __u8 bit_numbers[64] = { 0,  1,  48, 2,  57, 49, 28, 3,  61, 58, 50, 42, 38, 29, 17, 4,
				      62, 55, 59, 36, 53, 51, 43, 22, 45, 39, 33, 30, 24, 18, 12, 5,
				      63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21, 44, 32, 23, 11,
				      46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,  13, 8,  7,  6 };

struct comparison {
	struct files_struct *files;
	struct told *told;
	__u64 open;
	__u64 left;
	__u32 words;
	__u32 word;
	__u32 which;
	__u32 pad;
};

static long tell_difference(__u64 index, struct comparison *comparison)
{
	__u64 bit = comparison->left & -comparison->left;
	__u32 fd;

	if (!bit)
		return 1;
	comparison->left ^= bit;
	fd = comparison->word * 64 + bit_numbers[(bit * DE_BRUIJN) >> 58 & 63];
	/* Taken, but without a file yet, is free: whoever gives it compares, too. */
	settle(bpf_get_current_task_btf(), fd, comparison->open & bit, comparison->which, 0);
	return 0;
}

static long compare_word(__u64 index, struct comparison *comparison)
{
	__u32 word = (__u32)index & (TOLD_WORDS - 1);

	if (index >= comparison->words)
		return 1;
	comparison->open = open_of(comparison->files, word);
	comparison->left = comparison->open ^ comparison->told->open[word];
	if (!comparison->left)
		return 0;
	comparison->word = word;
	bpf_loop(64, tell_difference, comparison, 0);
	return 0;
}

/*
 * Tells all numbers that were given or freed without being told: by messages, ioctl, io_uring, pipe, and what else there will be. A
 * number that was freed and given again in between is told by the one who freed it (ACT_FREED).
 */
static __noinline int compare(struct task_struct *task, struct files_struct *files, __u32 which)
{
	__u64 table = (__u64)files;
	struct comparison comparison = {
		.files = files,
		.told = bpf_map_lookup_elem(&told_numbers, &table),
		.words = BPF_CORE_READ(files, fdt, max_fds) / 64,
		.which = which,
	};

	if (!comparison.told) {
		tell_chunks(task, files, 0, ~0U, RTS_FDS_FIRST);
		return 0;
	}
	if (comparison.words > TOLD_WORDS)
		COUNT(large);
	bpf_loop(TOLD_WORDS, compare_word, &comparison, 0);
	return 0;
}

/* ---- system calls ---------------------------------------------------------------------------------------------- */

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

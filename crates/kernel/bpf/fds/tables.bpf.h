/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whole tables: which numbers were told, what a table has compared with that, and all slots of it in chunks.
 */
#ifndef RTSCOPE_FDS_TABLES_BPF_H
#define RTSCOPE_FDS_TABLES_BPF_H

#include "fds/slots.bpf.h"

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

#endif

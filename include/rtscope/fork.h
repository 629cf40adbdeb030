/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a fork must not come into: a fork's child would have a copy of what another thread has open at that moment, or of a file that it has mapped
 * and noted nowhere, with its lock, for the child's life.
 *
 * So a thread that forks waits until such work is done, and what begins waits for the fork. Each of them only for a moment: no lock, since a
 * thread may be kept from its CPU for long (a debugger, a host that has the CPU for itself), and then it goes on all the same. The child
 * sees by numbers that this may have happened, looks for what it should not have, and closes it.
 *
 * Nothing here allocates from the heap, calls the C library, prints or touches errno.
 */
#ifndef RTSCOPE_FORK_H
#define RTSCOPE_FORK_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "files.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What getdents64(2) gives (linux/dirent.h). */
struct rtscope__name {
	uint64_t number;
	int64_t offset;
	uint16_t bytes;
	unsigned char type;
	char name[1];
};

/* How many works were waited for in vain by the last fork: of threads that have jumped out of them, say. The next one does not wait for as many. */
RTSCOPE__HIDDEN uint32_t rtscope__stale_works = 0;

/* ---- work --------------------------------------------------------------------------------------------------------------- */

/* Signals are blocked until its end: a handler that forks would wait for itself. */
static inline uint64_t rtscope__begin_work(struct rtscope__shared *shared)
{
	uint64_t signals = rtscope__block_signals();

	for (int tries = 0;; tries++) {
		/* ORDER: seq_cst; pairs with that of `forks` in rtscope__before_fork(): one of them sees the other. */
		__atomic_fetch_add(&shared->workers, 1, __ATOMIC_SEQ_CST);
		/* ORDER: as above. */
		if (!__atomic_load_n(&shared->forks, __ATOMIC_SEQ_CST) || tries == 20 ||
		    RTSCOPE__LOAD(shared->forker) == rtscope__thread_pointer())
			break;
		/* ORDER: relaxed; nothing was done. */
		__atomic_fetch_sub(&shared->workers, 1, __ATOMIC_RELAXED);
		rtscope__rest();
	}
	/* ORDER: seq_cst; after `workers`, which rtscope__before_fork() reads after this. */
	__atomic_fetch_add(&rtscope__forking.works, 1, __ATOMIC_SEQ_CST);
	return signals;
}

static inline void rtscope__end_work(struct rtscope__shared *shared, uint64_t signals)
{
	/* ORDER: release; pairs with the acquire in rtscope__before_fork(): what was open is closed, what was made is noted. */
	__atomic_fetch_sub(&shared->workers, 1, __ATOMIC_RELEASE);
	rtscope__let_signals(signals);
}

/* Where the mapping of a ring is noted until its thread has it. NULL: too many are being made. */
static inline struct rtscope__remains *rtscope__begin_mapping(void)
{
	for (int i = 0; i < RTSCOPE__MAPPINGS; i++) {
		struct rtscope__remains *made = &rtscope__forking.mappings[i];
		uint64_t free = 0;

		/* ORDER: relaxed; only a free place is claimed. What is in it is for this thread, and for a fork's child, which has no other. */
		if (__atomic_compare_exchange_n(&made->bytes, &free, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return made;
	}
	return NULL;
}

static inline void rtscope__end_mapping(struct rtscope__remains *made)
{
	if (!made)
		return;
	RTSCOPE__STORE(made->memory, (void *)NULL);
	/* ORDER: release; who claims it next writes after this. */
	__atomic_store_n(&made->bytes, 0, __ATOMIC_RELEASE);
}

/* How many forks began so far. */
static inline uint32_t rtscope__forks_begun(void)
{
	/* ORDER: seq_cst; before what must not come into a fork. */
	return __atomic_load_n(&rtscope__forking.begun, __ATOMIC_SEQ_CST);
}

/* Whether a fork goes on, or there was one since `begun` was read: its child may have a copy of what was opened since, and know nothing of it. */
static inline int rtscope__is_forked_since(const struct rtscope__shared *shared, uint32_t begun)
{
	/* ORDER: seq_cst; pairs with rtscope__before_fork(): a fork that is not seen here sees all that was noted before. */
	return __atomic_load_n(&shared->forks, __ATOMIC_SEQ_CST) || rtscope__forks_begun() != begun;
}

/* ---- forks -------------------------------------------------------------------------------------------------------------- */

/* Before a fork(). No system call where no other thread makes any, as for the others here. */
RTSCOPE__SELDOM void rtscope__before_fork(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	uint64_t works;
	uint32_t forks;

	if (!shared->alive || !*shared->alive)
		return;
	/* ORDER: seq_cst; pairs with rtscope__begin_work(). */
	forks = __atomic_fetch_add(&shared->forks, 1, __ATOMIC_SEQ_CST);
	RTSCOPE__STORE(shared->forker, rtscope__thread_pointer());
	/* ORDER: seq_cst; after `forks`: pairs with rtscope__is_forked_since(). */
	__atomic_fetch_add(&rtscope__forking.begun, 1, __ATOMIC_SEQ_CST);
	/* ORDER: seq_cst; as above: read before `workers`, which is counted before it. So what begins later has another number. */
	works = __atomic_load_n(&rtscope__forking.works, __ATOMIC_SEQ_CST);
	/* ORDER: seq_cst; as above, and acquire: pairs with the release in rtscope__end_work(). */
	for (int tries = 0;
	     __atomic_load_n(&shared->workers, __ATOMIC_SEQ_CST) > RTSCOPE__LOAD(rtscope__stale_works) && tries < 200;
	     tries++) {
		rtscope__rest();
		/* ORDER: as above. */
		works = __atomic_load_n(&rtscope__forking.works, __ATOMIC_SEQ_CST);
	}
	RTSCOPE__STORE(rtscope__stale_works, RTSCOPE__LOAD(shared->workers));
	/*
	 * Of several at once, the first one's: the others look in vain sometimes. Work that was not waited for may be over before the
	 * child's memory is copied, and its descriptors were copied before: the child is to look all the same.
	 */
	if (!forks)
		RTSCOPE__STORE(rtscope__forking.works_before, works - (RTSCOPE__LOAD(shared->workers) != 0));
}

/* Frees what was noted of descriptors that were closed before this many forks had begun: all of these are over. */
static inline void rtscope__forget_opened(const struct rtscope__shared *shared, uint32_t begun)
{
	/* ORDER: acquire; before `workers`: what is not counted in it yet is in work. */
	uint32_t unnoted = __atomic_load_n(&rtscope__forking.unnoted, __ATOMIC_ACQUIRE);

	for (int i = 0; i < RTSCOPE__OPENED; i++) {
		struct rtscope__opened *opened = &rtscope__forking.opened[i];
		uint32_t closed = RTSCOPE__LOAD(opened->closed);

		/*
		 * ORDER: acquire; pairs with the release in rtscope__end_opening(). One of several threads that are here; who takes the
		 * place after that counts anew.
		 */
		if (closed && (int32_t)(begun + 1 - closed) >= 0 &&
		    __atomic_compare_exchange_n(&opened->closed, &closed, 0, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			/* ORDER: release; as in rtscope__end_opening(). */
			__atomic_store_n(&opened->file, 0, __ATOMIC_RELEASE);
	}
	/* ORDER: acquire; pairs with the release in rtscope__end_work(). Relaxed: another one may have come meanwhile, then it stays. */
	if (unnoted && !__atomic_load_n(&shared->workers, __ATOMIC_ACQUIRE))
		__atomic_compare_exchange_n(&rtscope__forking.unnoted, &unnoted, 0, 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
}

/* After a fork(), in the process that has forked, and also if it failed. */
RTSCOPE__SELDOM void rtscope__after_fork(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	uint32_t begun = rtscope__forks_begun(), forks = RTSCOPE__LOAD(shared->forks);

	/* ORDER: release; the fork was before. Not below 0: a fork in a handler that came into a fork has made it 0 in its child. */
	while (forks &&
	       !__atomic_compare_exchange_n(&shared->forks, &forks, forks - 1, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	if (forks > 1)
		return;
	RTSCOPE__STORE(shared->forker, (uintptr_t)0);
	rtscope__forget_opened(shared, begun);
}

/* In the child: whether work went on during the fork. */
static inline int rtscope__was_overtaken(const struct rtscope__shared *shared)
{
	return shared->workers || rtscope__forking.works != rtscope__forking.works_before;
}

/* Whether a path is one of the files that this process has made: of any kind. `own`: that of one. */
static inline int rtscope__is_own_path(const char *path, const char *own, size_t kind)
{
	size_t end = rtscope__length(own, RTSCOPE__PATH_BYTES);

	/* Its last number is its own. */
	while (end && own[end - 1] != '-')
		end--;
	for (size_t at = 0; at < end; at++) {
		if (path[at] != own[at] && at != kind)
			return 0;
	}
	return 1;
}

/* Unmaps rings that a thread of the parent was making. Needs `busy`. */
static inline void rtscope__unmap_half_made(void)
{
	for (int i = 0; i < RTSCOPE__MAPPINGS; i++) {
		struct rtscope__remains *noted = &rtscope__forking.mappings[i];

		if (noted->memory)
			rtscope__unmap(noted->memory, noted->bytes);
		if (noted->bytes) {
			noted->memory = NULL;
			noted->bytes = 0;
		}
	}
}

/* Whether what was looked at last is the device that was looked at when it was to be opened. */
static inline int rtscope__is_device(const struct rtscope__room *room)
{
	return (room->status.stx_mode & 0170000) == 0020000 && room->status.stx_rdev_major == room->device.major &&
	       room->status.stx_rdev_minor == room->device.minor;
}

/* Whether a name in a directory of descriptors (/proc/self/fd) is that of a file that this process has made. `own`: the path of one. */
static inline int rtscope__is_half_made(struct rtscope__shared *shared, int directory, const char *name,
					const char *own)
{
	char *path = shared->room->path;
	long bytes = rtscope__call(__NR_readlinkat, directory, (long)name, (long)path, RTSCOPE__PATH_BYTES, 0, 0);

	return bytes >= (long)rtscope__length(own, RTSCOPE__PATH_BYTES) &&
	       rtscope__is_own_path(path, own, rtscope__length(shared->directory, sizeof(shared->directory)) + 1);
}

/*
 * Closes the descriptors that threads of the parent have noted: of files that were being made, and of a device, whose channels would be the child's,
 * too, for its life. What has the same number since it was closed, or of a handler that has come before in the child, is nothing of
 * that. Gives whether there may be others: one was being opened, or there were too many. Needs `busy`, and the parent's `pid` still.
 */
static RTSCOPE__NOT_INLINE int rtscope__close_opened(struct rtscope__shared *shared, int is_overtaken)
{
	struct rtscope__room *room = shared->room;
	char *own = room->session;
	int others = rtscope__forking.unnoted != 0;

	rtscope__path(shared, own, 'p', 0, 0, 0);
	for (int i = 0; i < RTSCOPE__OPENED; i++) {
		struct rtscope__opened *opened = &rtscope__forking.opened[i];
		int file = (int)(opened->file - RTSCOPE__OPENING - 1);

		if (!opened->file)
			continue;
		others |= opened->file == RTSCOPE__OPENING;
		opened->file = opened->closed = 0;
		if (file < 0 || !is_overtaken || rtscope__status(file, "", &room->status))
			continue;
		rtscope__put_number(rtscope__put(room->names, "/proc/self/fd/"), (uint64_t)file, 10);
		if (rtscope__is_device(room) || rtscope__is_half_made(shared, RTSCOPE__AT_FDCWD, room->names, own))
			rtscope__close_number(file);
	}
	rtscope__forking.unnoted = 0;
	return is_overtaken && others;
}

/*
 * Closes files that a thread of the parent was making while this process was forked, and that are not noted. All descriptors are looked at: of 15 000 it
 * takes a millisecond or two. Its files only: a descriptor of a session is for reading,
 * and holds nothing. Needs `busy`, and the parent's `pid` still.
 */
static RTSCOPE__NOT_INLINE void rtscope__close_half_made(struct rtscope__shared *shared)
{
	struct rtscope__room *room = shared->room;
	char *own = room->session;
	long bytes;
	struct rtscope__file directory = rtscope__open("/proc/self/fd", RTSCOPE__O_RDONLY | RTSCOPE__O_DIRECTORY, 0);

	if (directory.number < 0)
		return;
	rtscope__path(shared, own, 'p', 0, 0, 0);
	while ((bytes = rtscope__call_again(__NR_getdents64, directory.number, (long)room->names, sizeof(room->names),
					    0, 0, 0)) > 0) {
		for (long at = 0; at < bytes;) {
			const struct rtscope__name *entry =
				(const struct rtscope__name *)(const void *)(room->names + at);
			int file = 0;

			at += entry->bytes;
			for (const char *digit = entry->name; *digit >= '0' && *digit <= '9'; digit++)
				file = file * 10 + (*digit - '0');
			if (entry->name[0] >= '0' && entry->name[0] <= '9' &&
			    rtscope__is_half_made(shared, directory.number, entry->name, own))
				rtscope__close_number(file);
		}
	}
	rtscope__close(directory);
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How a process makes a file of its own: locked for as long as it is mapped, with memory behind every byte, whatever the program does with the descriptor
 * meanwhile, and whatever its user puts in the place of his directory.
 *
 * As in files.h: nothing here allocates from the heap, calls the C library, prints or touches errno.
 */
#ifndef RTSCOPE_NEW_FILE_H
#define RTSCOPE_NEW_FILE_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "files.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Memory of nobody behind a ring. Its positions are in memory that any program of this user can write: whatever they say, a record begins in
 * the ring, and it has at most RTU_RECORD_BYTES_MAX bytes.
 */
#define RTSCOPE__BEHIND 8192

/*
 * Locks a new file, and gives it its size with memory behind every byte. 0, or an error, a small negative number. A ring leaves others a quarter, and what
 * describes events, without which nothing could be said of what is lost, an eighth.
 */
static RTSCOPE__NOT_INLINE long rtscope__furnish(struct rtscope__file file, struct rtscope__file directory,
						 const char *name, uint64_t bytes, int is_ring)
{
	struct rtscope__owner owner = { 0600, 0 };
	uint64_t parts = is_ring ? 4 : 8;
	long error = -RTSCOPE__EAGAIN;

	/*
	 * The program's mask may have left its user nothing. Not by its name, in whose place its user may put a link: the program may have the right to change
	 * files of others (CAP_FOWNER).
	 */
	if (rtscope__identity_of(file.number, "", &owner) == file.identity && (owner.mode & 0600) != 0600)
		rtscope__call_again(__NR_fchmod, file.number, 0600, 0, 0, 0, 0);
	/* Somebody who looks for remains may have it for a moment, and leaves it, since it is new (abi.h). */
	for (int tries = 0; tries < 100 && error == -RTSCOPE__EAGAIN; tries++) {
		error = rtscope__is_ours(file) ? rtscope__lock_file(file.number) : -RTSCOPE__EBADF;
		if (error == -RTSCOPE__EAGAIN)
			rtscope__call(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	if (!error && !rtscope__leaves_room(file.number, bytes, parts))
		error = -RTSCOPE__ENOSPC;
	if (!error)
		error = rtscope__allocate(file, bytes);
	if (!error)
		error = rtscope__set_size(file, directory, name, bytes);
	/* Others may have taken what was left meanwhile, for the same reason. */
	if (!error && !rtscope__leaves_room(file.number, 0, parts))
		error = -RTSCOPE__ENOSPC;
	return error;
}

/*
 * Of a page of a file that is mapped at `page` the whole file at `around`, where there is memory of nobody, as well as at `page` afterwards. Neither is locked:
 * the kernel makes of a mapping that is not a larger one that is not (mremap(2), an old size of 0; Valgrind does not). 3: MREMAP_MAYMOVE | MREMAP_FIXED
 */
static RTSCOPE__NOT_INLINE long rtscope__spread(void *page, void *around, uint64_t bytes)
{
	long memory;

	rtscope__unlock(page, 4096);
	memory = rtscope__call_again(__NR_mremap, (long)page, 0, (long)bytes, 3, (long)around, 0);
	rtscope__map_over(page, 4096);
	rtscope__unlock(page, 4096);
	return memory;
}

/* Maps a file at `around`, as rtscope__ask_locked() has found out. `page`: behind it. */
static inline long rtscope__map_in(struct rtscope__file file, void *around, uint64_t bytes, void *page)
{
	long memory = -RTSCOPE__EINVAL;

	if (!RTSCOPE__LOAD(rtscope__unlocks))
		return rtscope__map_file(file, around, bytes);
	if (!rtscope__is_error(rtscope__map_file(file, page, 4096)))
		memory = rtscope__spread(page, around, bytes);
	if (rtscope__is_error(memory))
		memory = rtscope__map_file(file, around, bytes);
	rtscope__unlock(around, bytes);
	return memory;
}

/* Maps a new file at `place`, or, as a ring, anywhere. An error is a small negative number. */
static RTSCOPE__NOT_INLINE long rtscope__map_new(struct rtscope__file file, uint64_t bytes, void *place,
						 struct rtscope__remains *made)
{
	const uint64_t with_behind = (place ? rtscope__whole_pages(bytes) : bytes) + RTSCOPE__BEHIND;
	long memory = rtscope__map_nothing(with_behind);
	unsigned char *around = (unsigned char *)memory, *behind = around + with_behind - RTSCOPE__BEHIND;

	if (rtscope__is_error(memory))
		return memory;
	rtscope__note_mapping(made, around, with_behind);
	memory = rtscope__map_in(file, around, bytes, behind);
	if (!rtscope__is_error(memory))
		rtscope__populate(around, bytes);
	if (place || rtscope__is_error(memory))
		rtscope__note_mapping(made, NULL, 1);
	/* What is in its place may be in use: it is exchanged at once. 3: MREMAP_MAYMOVE | MREMAP_FIXED */
	if (!rtscope__is_error(memory) && place) {
		memory = rtscope__call_again(__NR_mremap, (long)around, (long)bytes, (long)bytes, 3, (long)place, 0);
		if (!rtscope__is_error(memory))
			rtscope__unmap(behind, RTSCOPE__BEHIND);
	}
	if (rtscope__is_error(memory))
		rtscope__unmap(around, with_behind);
	return memory;
}

/* The same as rtscope__new_file(), or -EBADF: the program has closed the descriptor meanwhile. */
static RTSCOPE__NOT_INLINE long rtscope__try_new_file(const struct rtscope__shared *shared,
						      struct rtscope__file directory, const char *name, uint64_t bytes,
						      void *place, struct rtscope__remains *made)
{
	struct rtscope__file file = rtscope__open_noted(shared, directory.number, name,
							RTSCOPE__O_RDWR | RTSCOPE__O_CREAT | RTSCOPE__O_EXCL);
	long memory = file.number;

	/* A directory of the program's may have had the number. */
	if (file.number >= 0)
		memory = directory.number < 0 || rtscope__is_ours(directory) ?
				 rtscope__furnish(file, directory, name, bytes, !place) :
				 -RTSCOPE__EBADF;
	if (!memory)
		memory = rtscope__map_new(file, bytes, place, made);
	if (rtscope__is_error(memory) && (file.number >= 0 || file.number == -RTSCOPE__EBADF)) {
		rtscope__unlink_in(directory.number, name);
		memory = file.number < 0 || rtscope__is_ours(file) ? memory : -RTSCOPE__EBADF;
	}
	if (file.number >= 0)
		rtscope__close_noted(shared, file);
	return memory;
}

/*
 * A new file in the directory that was entered, or an error in its place: locked for as long as it is mapped, with memory behind every
 * byte, so that a write into it can never fail; mapped at `place`, or, as a ring, anywhere: that is noted in `made` before, if it is not NULL.
 * An error is a small negative number. Always inlined: its frame would come on top of its caller's, in the deepest of all that is called.
 */
static inline __attribute__((always_inline)) long rtscope__new_file(const struct rtscope__shared *shared,
								    struct rtscope__file directory, const char *name,
								    uint64_t bytes, void *place,
								    struct rtscope__remains *made)
{
	long memory = -RTSCOPE__EBADF;

	if (!rtscope__fits_limit(bytes))
		return -RTSCOPE__EFBIG;
	if (!rtscope__has_entered(directory))
		return directory.number;
	rtscope__ask_locked();
	/* The program has closed what it does not know, which it does not do all the time. */
	for (int tries = 0; tries < 8 && memory == -RTSCOPE__EBADF; tries++)
		memory = rtscope__try_new_file(shared, directory, name, bytes, place, made);
	return memory;
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The files of a process: names, locks, and what others have left (abi.h says who may remove what).
 *
 * Nothing here allocates from the heap, calls the C library, prints or touches errno. All of it may run in a fork's child or in a
 * signal handler.
 */
#ifndef RTSCOPE_FILES_H
#define RTSCOPE_FILES_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "clock.h"
#include "home.h"
#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the place of a directory that is not to be used: nothing can be in it. */
#define RTSCOPE__NOWHERE "/dev/null/nothing"

/* ---- text ---------------------------------------------------------------------------------------------------------- */

static inline char *rtscope__put(char *at, const char *text)
{
	while (*text)
		*at++ = *text++;
	*at = 0;
	return at;
}

static inline char *rtscope__put_number(char *at, uint64_t value, unsigned int base)
{
	char digits[24];
	int count = 0;

	do {
		digits[count++] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	while (count)
		*at++ = digits[--count];
	*at = 0;
	return at;
}

/* Bytes before the NUL, at most `max`. */
static inline size_t rtscope__length(const char *text, size_t max)
{
	size_t length = 0;

	/* GCC warns of an array shorter than `max`, although nothing is read behind its NUL: it must not know which array it is. */
	__asm__("" : "+r"(text));
	while (length < max && text[length])
		length++;
	return length;
}

/* DIRECTORY/KIND PID-BIRTH-A[-B]; returns where the numbers end. */
static inline void rtscope__path(const struct rtscope__shared *shared, char *path, char kind, uint64_t a, int has_b,
				 uint64_t b)
{
	char name[3] = { '/', kind, 0 };
	char *at = rtscope__put(rtscope__put(path, shared->directory), name);

	at = rtscope__put(rtscope__put_number(at, shared->pid, 10), "-");
	at = rtscope__put(rtscope__put_number(at, shared->birth_ns, 16), "-");
	at = rtscope__put_number(at, a, 10);
	if (has_b)
		rtscope__put_number(rtscope__put(at, "-"), b, 10);
}

/* The files of this user. Returns where the name ends. */
static inline char *rtscope__put_name(const struct rtscope__shared *shared, char *path, const char *name)
{
	return rtscope__put(rtscope__put(rtscope__put(path, shared->directory), "/"), name);
}

/* ---- waiting for others -------------------------------------------------------------------------------------------------- */

/* This process has a timer slack that makes short sleeps long ones. */
RTSCOPE__HIDDEN uint32_t rtscope__sleeps_long = 0;

/* By the kernel itself: not by what the program may have lost the right to read meanwhile (PR_SET_TSC). 0: it does not tell. */
static inline uint64_t rtscope__asked_time(void)
{
	struct timespec now = { 0, 0 };

	rtscope__call_clock(RTSCOPE__CLOCK_MONOTONIC, &now);
	RTSCOPE__FRESH(&now, sizeof(now));
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Whether the thread has a real-time policy, or a scheduler of its own. */
static inline int rtscope__is_realtime(void)
{
	/* 0x40000000: SCHED_RESET_ON_FORK */
	long policy = rtscope__call(__NR_sched_getscheduler, 0, 0, 0, 0, 0, 0) & ~0x40000000L;

	/* SCHED_OTHER, SCHED_BATCH, SCHED_IDLE */
	return policy != 0 && policy != 3 && policy != 5;
}

/*
 * Lets others run for 100 us, or longer where there are many. It sleeps, so that one of a lower priority runs as well. But the kernel adds the thread's timer
 * slack to a sleep, which may be any time (PR_SET_TIMERSLACK, systemd's TimerSlackNSec=): after a long sleep because of that the process yields instead. Not a
 * real-time thread, whose sleeps have no slack, and for which a yield lets only its like run.
 */
static RTSCOPE__NOT_INLINE void rtscope__rest(void)
{
	struct timespec pause = { 0, 100000 };
	uint64_t begun = rtscope__asked_time();

	if (RTSCOPE__LOAD(rtscope__sleeps_long) && !rtscope__is_realtime()) {
		do {
			rtscope__call(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
		} while (begun && rtscope__asked_time() - begun < 100000);
		return;
	}
	rtscope__call(__NR_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
	/* The usual slack is 50 us, and who waits at most 200 times is to wait for 40 ms at most. */
	if (rtscope__asked_time() - begun > 200000 &&
	    rtscope__call(__NR_prctl, RTSCOPE__PR_GET_TIMERSLACK, 0, 0, 0, 0, 0) > 100000)
		RTSCOPE__STORE(rtscope__sleeps_long, 1);
}

/* ---- who changes what all threads share ------------------------------------------------------------------------------- */

/* Who was waited for in vain, and since when. */
struct rtscope__slow_one {
	uint32_t owner;
	uint64_t since_ns;
};
RTSCOPE__HIDDEN struct rtscope__slow_one rtscope__slow = { 0, 0 };
#define RTSCOPE__SLOW_NS 200000000

static inline uint32_t rtscope__tid(void)
{
	return (uint32_t)rtscope__call(__NR_gettid, 0, 0, 0, 0, 0, 0);
}

/* Whether this process has no such thread. */
static inline int rtscope__is_not_here(uint32_t tid)
{
	return rtscope__call(__NR_tgkill, rtscope__call(__NR_getpid, 0, 0, 0, 0, 0, 0), tid, 0, 0, 0, 0) ==
	       -RTSCOPE__ESRCH;
}

static inline int rtscope__is_gone(const struct rtscope__shared *shared, uint32_t tid)
{
	return rtscope__call(__NR_tgkill, shared->pid, tid, 0, 0, 0, 0) == -RTSCOPE__ESRCH;
}

/* From a thread that has ended: its work is over, too. 1: one of which nothing is known, such as one with an earlier version of this. */
static inline int rtscope__take_over_from(struct rtscope__shared *shared, uint32_t owner)
{
	if (owner <= 1 || !rtscope__is_gone(shared, owner))
		return 0;
	/* ORDER: acquire; of several that see it one has it, and what was changed by whoever had it before. */
	if (!__atomic_compare_exchange_n(&shared->busy, &owner, rtscope__tid(), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return 0;
	/* ORDER: relaxed; a count, which a fork waits for at most for a while. */
	__atomic_fetch_sub(&shared->workers, 1, __ATOMIC_RELAXED);
	return 1;
}

/*
 * Only for a moment, and with the signals of this thread blocked: so neither a handler nor a fork in it comes in between, and whoever
 * waits does not wait for itself. An event waits at most `tries` times 100 us (rtscope__rest); a constructor has no other way. A thread that has ended
 * with it (by a filter of system calls) is no reason to wait.
 */
static inline int rtscope__take(struct rtscope__shared *shared, int tries)
{
	/* A program that has said that it gives up system calls makes none here. */
	uint32_t tid = RTSCOPE__LOAD(shared->confined) ? 1 : rtscope__tid();
	int is_event = tries <= 20;

	for (;;) {
		uint32_t owner = 0;

		/* ORDER: acquire; pairs with the release in rtscope__give(): what the last one has changed is seen. */
		if (__atomic_compare_exchange_n(&shared->busy, &owner, tid, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 1;
		/* For whoever has had it for so long each event would wait in vain. */
		if (!tries-- || (is_event && owner == RTSCOPE__LOAD(rtscope__slow.owner) &&
				 rtscope__asked_time() - RTSCOPE__LOAD(rtscope__slow.since_ns) > RTSCOPE__SLOW_NS)) {
			if (owner != RTSCOPE__LOAD(rtscope__slow.owner)) {
				RTSCOPE__STORE(rtscope__slow.since_ns, rtscope__asked_time());
				RTSCOPE__STORE(rtscope__slow.owner, owner);
			}
			return rtscope__take_over_from(shared, owner);
		}
		rtscope__rest();
	}
}

static inline void rtscope__give(struct rtscope__shared *shared)
{
	RTSCOPE__STORE(rtscope__slow.owner, 0u);
	/* ORDER: release; as in rtscope__take(). */
	__atomic_store_n(&shared->busy, 0, __ATOMIC_RELEASE);
}

/* ---- the directory --------------------------------------------------------------------------------------------------- */

/* Whether this process has one of these capabilities (linux/capability.h), or it cannot be told. */
static inline int rtscope__may(uint32_t capabilities)
{
	/* _LINUX_CAPABILITY_VERSION_3; effective, permitted, inheritable, twice. */
	uint32_t header[2] = { 0x20080522, 0 }, sets[6] = { 0, 0, 0, 0, 0, 0 };

	return rtscope__call(__NR_capget, (long)header, (long)sets, 0, 0, 0, 0) || sets[0] & capabilities;
}

/*
 * Whether this process may do in others' directories what its user may not: by CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
 * or CAP_FOWNER (linux/capability.h: 0 to 3), or by a group that it was given (set-group-ID). Nobody can exchange root's directory.
 */
static inline int rtscope__overrides(void)
{
	return rtscope__user() && (rtscope__auxiliary(RTSCOPE__AT_SECURE) || rtscope__may(15));
}

/*
 * Whether others of this user may lack a group that this process has: it has more than its first one, by the user's own groups, by sg(1), or by a
 * service's SupplementaryGroups=. Nobody knows who else has which.
 */
static inline int rtscope__has_groups(void)
{
	uint32_t group = 0;
	long groups = rtscope__call(__NR_getgroups, 1, (long)&group, 0, 0, 0, 0);

	RTSCOPE__FRESH(&group, sizeof(group));
	return groups && (groups < 0 || group != (uint32_t)rtscope__call(__NR_getegid, 0, 0, 0, 0, 0, 0));
}

/* Opens the directory of this user, if it is that. Its user may have put another in its place, or a link. */
static RTSCOPE__NOT_INLINE struct rtscope__file rtscope__open_directory(const struct rtscope__shared *shared, int flags)
{
	struct rtscope__owner owner = { 077, 0 };
	struct rtscope__file directory = rtscope__open(shared->directory, flags | RTSCOPE__O_DIRECTORY, 0);

	if (directory.number < 0 || (rtscope__identity_of(directory.number, "", &owner) == directory.identity &&
				     owner.user == rtscope__user() && !(owner.mode & 077)))
		return directory;
	rtscope__close(directory);
	directory.number = -RTSCOPE__EACCES;
	return directory;
}

/* Whether the kernel finds the directory of this user by its path without a link. -EISDIR: it does. No descriptor is made: nobody writes a directory. */
static RTSCOPE__NOT_INLINE int rtscope__ask_straight(const struct rtscope__shared *shared)
{
	/* A filter of system calls may end the process for this one. */
	if (rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0))
		return -RTSCOPE__ENOSYS;
	return rtscope__open_from(RTSCOPE__STRAIGHT, shared->directory,
				  RTSCOPE__O_WRONLY | RTSCOPE__O_DIRECTORY | RTSCOPE__O_CLOEXEC, 0);
}

/*
 * From where a file of this user's directory is made or removed, by the name that rtscope__name_in() gives. The path is used, which takes no descriptor: a program may
 * close what it does not know, and a directory of its own would have the number. But the user may have exchanged his directory for a link, and a program that may do more
 * than he could be led to where he cannot go himself: no link is followed then (in /dev/shm, which is sticky, he can put no directory but his own in the place of
 * his). Only where the kernel cannot be asked for that, the directory is opened. For rtscope__leave_directory(); an error is none that rtscope__has_entered().
 */
static RTSCOPE__NOT_INLINE struct rtscope__file rtscope__enter_directory(const struct rtscope__shared *shared)
{
	struct rtscope__owner owner = { 077, 0 };
	struct rtscope__file here = { RTSCOPE__AT_FDCWD, 0 };
	int error;

	if (!rtscope__is_at_home()) {
		here.number = -RTSCOPE__ENOENT;
		return here;
	}
	if (!rtscope__user() || !(rtscope__overrides() || rtscope__has_groups()))
		return here;
	error = rtscope__ask_straight(shared);
	/* ELOOP: /dev/shm itself is a link, of root's. */
	if (error == -RTSCOPE__ENOSYS || error == -RTSCOPE__EPERM || error == -RTSCOPE__EINVAL ||
	    error == -RTSCOPE__ELOOP)
		return rtscope__open_directory(shared, RTSCOPE__O_PATH);
	here.number = RTSCOPE__STRAIGHT;
	if (error != -RTSCOPE__EISDIR)
		here.number = error < 0 ? error : -RTSCOPE__EACCES;
	else if (rtscope__identity_of(RTSCOPE__AT_FDCWD, shared->directory, &owner) == RTSCOPE__NO_FILE ||
		 owner.user != rtscope__user() || owner.mode & 077)
		here.number = -RTSCOPE__EACCES;
	return here;
}

static inline const char *rtscope__name_in(const struct rtscope__shared *shared, struct rtscope__file directory,
					   const char *path)
{
	return directory.number < 0 ? path : path + rtscope__length(shared->directory, sizeof(shared->directory)) + 1;
}

static inline int rtscope__has_entered(struct rtscope__file directory)
{
	return directory.number >= 0 || directory.number == RTSCOPE__AT_FDCWD || directory.number == RTSCOPE__STRAIGHT;
}

static inline void rtscope__leave_directory(struct rtscope__file directory)
{
	if (directory.number >= 0)
		rtscope__close(directory);
}

/* Removes a file of this user's directory. */
static RTSCOPE__NOT_INLINE void rtscope__remove_file(const struct rtscope__shared *shared, const char *path)
{
	struct rtscope__file directory = rtscope__enter_directory(shared);

	if (rtscope__has_entered(directory))
		rtscope__unlink_in(directory.number, rtscope__name_in(shared, directory, path));
	rtscope__leave_directory(directory);
}

/* ---- files ----------------------------------------------------------------------------------------------------------- */

/*
 * Memory behind every byte. It is reserved, which leaves another file's size and content. In pieces, so that a signal that comes all the time cannot keep a
 * large one from ever ending.
 */
static RTSCOPE__NOT_INLINE long rtscope__allocate(struct rtscope__file file, uint64_t bytes)
{
	const uint64_t piece = 256 * 1024;
	long error = 0;

	for (uint64_t at = 0; at < bytes && !error; at += piece)
		/* 1: FALLOC_FL_KEEP_SIZE */
		error = !rtscope__is_ours(file) ?
				-RTSCOPE__EBADF :
				rtscope__call_again(__NR_fallocate, file.number, 1, (long)at,
						    (long)(bytes - at < piece ? bytes - at : piece), 0, 0);
	if (error == -RTSCOPE__EFBIG)
		rtscope__take_size_signal();
	return error;
}

/*
 * Gives a file its size. After its memory: a collector looks at no file before it has a size, and then there are no holes. By its path, but where a program may do more
 * than its user, who could lead it to where he cannot go himself.
 */
static RTSCOPE__NOT_INLINE long rtscope__set_size(struct rtscope__file file, struct rtscope__file directory,
						  const char *name, uint64_t bytes)
{
	long error = -RTSCOPE__EBADF;

	if (directory.number == RTSCOPE__AT_FDCWD)
		error = rtscope__call_again(__NR_truncate, (long)name, (long)bytes, 0, 0, 0, 0);
	else if (rtscope__is_ours(file))
		/* 0: with its size. Whatever has the number meanwhile, since the program closes what it does not know, gets no smaller. */
		error = rtscope__call_again(__NR_fallocate, file.number, 0, (long)bytes - 1, 1, 0, 0);
	if (error == -RTSCOPE__EFBIG)
		rtscope__take_size_signal();
	return error;
}

/* The pages of a mapping are there: no event waits for one. */
static RTSCOPE__NOT_INLINE void rtscope__populate(void *memory, uint64_t bytes)
{
	/* 23: MADV_POPULATE_WRITE, since Linux 5.14. Before it each page comes when it is touched. */
	if (!rtscope__call_again(__NR_madvise, (long)memory, (long)bytes, 23, 0, 0, 0))
		return;
	for (uint64_t at = 0; at < bytes; at += 4096)
		/* ORDER: relaxed; it changes nothing. */
		__atomic_fetch_or((unsigned char *)memory + at, 0, __ATOMIC_RELAXED);
}

/* Maps a file, at `place` if that is not NULL. -EBADF: another file has its number. */
static RTSCOPE__NOT_INLINE long rtscope__map_file(struct rtscope__file file, void *place, uint64_t bytes)
{
	long memory = rtscope__call_again(__NR_mmap, (long)place, (long)bytes, RTSCOPE__PROT_RW,
					  RTSCOPE__MAP_SHARED | (place ? RTSCOPE__MAP_FIXED : 0), file.number, 0);

	if (rtscope__is_ours(file))
		return memory;
	if (place && !rtscope__is_error(memory))
		rtscope__map_over(place, bytes);
	else if (!rtscope__is_error(memory))
		rtscope__unmap((void *)memory, bytes);
	return -RTSCOPE__EBADF;
}

static RTSCOPE__NOT_INLINE int rtscope__fits_limit(uint64_t bytes)
{
	uint64_t limit[2];

	/* A file beyond this limit would be a signal. */
	return rtscope__call(__NR_prlimit64, 0, RTSCOPE__RLIMIT_FSIZE, 0, (long)limit, 0, 0) || limit[0] >= bytes;
}

/*
 * Whether a file of so many bytes leaves others one part of `parts` of the file system: a program that fills /dev/shm to its last page ends others,
 * by SIGBUS, which never heard of rtscope (Docker's default is 64 MiB). The layout is that of struct statfs of 64-bit Linux; one without
 * a size has no blocks.
 */
static RTSCOPE__NOT_INLINE int rtscope__leaves_room(int file, uint64_t bytes, uint64_t parts)
{
	uint64_t status[15];

	if (rtscope__call_again(__NR_fstatfs, file, (long)status, 0, 0, 0, 0) || !status[2])
		return 1;
	/* f_bsize, f_blocks, f_bfree */
	return status[3] * status[1] >= bytes && status[3] * status[1] - bytes >= status[2] * status[1] / parts;
}

/* ---- what a fork's child is not to have (fork.h) ---------------------------------------------------------------------------- */

/*
 * What was noted is not needed any more. The kernel copies the descriptors of a process before its memory, which takes it milliseconds where that is
 * large: so a fork that goes on may have a copy of a descriptor that is closed, and a copy of this memory as it is some time later.
 */
static inline void rtscope__end_opening(const struct rtscope__shared *shared, struct rtscope__opened *opened)
{
	/* ORDER: seq_cst; after it was closed, and before `forks` is read: those that begin later have no copy. */
	uint32_t begun = __atomic_load_n(&rtscope__forking.begun, __ATOMIC_SEQ_CST);

	if (!opened)
		return;
	/* ORDER: seq_cst; pairs with rtscope__before_fork(), which counts it before `begun`: 0 tells that all forks that had begun are over. */
	if (__atomic_load_n(&shared->forks, __ATOMIC_SEQ_CST))
		/* ORDER: release; pairs with rtscope__forget_opened(), which frees it. */
		__atomic_store_n(&opened->closed, begun + 1, __ATOMIC_RELEASE);
	else
		/* ORDER: release; who takes it next writes after this. */
		__atomic_store_n(&opened->file, 0, __ATOMIC_RELEASE);
}

/* Opens what a fork's child is not to have, behind the standard streams. For rtscope__close_noted(). */
static RTSCOPE__NOT_INLINE struct rtscope__file rtscope__open_noted(const struct rtscope__shared *shared, int directory,
								    const char *path, int flags)
{
	struct rtscope__opened *opened = NULL;
	struct rtscope__file file;

	for (int i = 0; i < RTSCOPE__OPENED && !opened; i++) {
		uint32_t free = 0;

		/* ORDER: seq_cst; before the descriptor is there: pairs with rtscope__close_opened(), in a child that has a copy of it. */
		if (__atomic_compare_exchange_n(&rtscope__forking.opened[i].file, &free, RTSCOPE__OPENING, 0,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			opened = &rtscope__forking.opened[i];
	}
	if (!opened)
		/* ORDER: seq_cst; as above. */
		__atomic_fetch_add(&rtscope__forking.unnoted, 1, __ATOMIC_SEQ_CST);
	file = rtscope__open_behind_streams(directory, path, flags, 0600);
	if (file.number < 0)
		rtscope__end_opening(shared, opened);
	else if (opened)
		/* ORDER: seq_cst; before it is used, and before forks are asked for. */
		__atomic_store_n(&opened->file, (uint32_t)file.number + RTSCOPE__OPENING + 1, __ATOMIC_SEQ_CST);
	return file;
}

static RTSCOPE__NOT_INLINE void rtscope__close_noted(const struct rtscope__shared *shared, struct rtscope__file file)
{
	struct rtscope__opened *opened = NULL;

	/* While it is open no other has its number. Two have it where the program has closed one: then either place may be freed, as both are at the end. */
	for (int i = 0; i < RTSCOPE__OPENED && !opened; i++) {
		if (RTSCOPE__LOAD(rtscope__forking.opened[i].file) == (uint32_t)file.number + RTSCOPE__OPENING + 1 &&
		    !RTSCOPE__LOAD(rtscope__forking.opened[i].closed))
			opened = &rtscope__forking.opened[i];
	}
	rtscope__close(file);
	rtscope__end_opening(shared, opened);
}

/* Notes a mapping for a fork's child (fork.h); NULL: it is none any more. It is noted before it is a file's, and no longer than it is there. */
static inline void rtscope__note_mapping(struct rtscope__remains *noted, void *memory, uint64_t bytes)
{
	if (!noted)
		return;
	if (!memory)
		RTSCOPE__STORE(noted->memory, memory);
	RTSCOPE__STORE(noted->bytes, bytes);
	if (memory)
		RTSCOPE__STORE(noted->memory, memory);
}

#ifdef __cplusplus
}
#endif

#endif

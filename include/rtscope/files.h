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

/* ---- who changes what all threads share ------------------------------------------------------------------------------- */

/*
 * Only for a moment, and with the signals of this thread blocked: so neither a handler nor a fork in it comes in between, and whoever
 * waits does not wait for itself. An event waits at most `tries` times 100 us; a constructor has no other way.
 */
static inline int rtscope__take(struct rtscope__shared *shared, int tries)
{
	struct timespec pause = { 0, 100000 };

	for (;;) {
		uint32_t free = 0;

		/* ORDER: acquire; pairs with the release in rtscope__give(): what the last one has changed is seen. */
		if (__atomic_compare_exchange_n(&shared->busy, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 1;
		if (!tries--)
			return 0;
		rtscope__call(__NR_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
	}
}

static inline void rtscope__give(struct rtscope__shared *shared)
{
	/* ORDER: release; as in rtscope__take(). */
	__atomic_store_n(&shared->busy, 0, __ATOMIC_RELEASE);
}

/* ---- the directory --------------------------------------------------------------------------------------------------- */

/*
 * Whether this process may do in others' directories what its user may not: by CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
 * or CAP_FOWNER (linux/capability.h: 0 to 3). Nobody can exchange root's directory.
 */
static inline int rtscope__overrides(void)
{
	/* _LINUX_CAPABILITY_VERSION_3; effective, permitted, inheritable, twice. */
	uint32_t header[2] = { 0x20080522, 0 }, sets[6] = { 0, 0, 0, 0, 0, 0 };

	return rtscope__user() && (rtscope__call(__NR_capget, (long)header, (long)sets, 0, 0, 0, 0) || sets[0] & 15);
}

/* Opens the directory of this user, if it is that. Its user may have put another in its place, or a link. */
static RTSCOPE__NOT_INLINE int rtscope__open_directory(const struct rtscope__shared *shared, int flags)
{
	struct statx status;
	int directory = rtscope__open(shared->directory, flags | RTSCOPE__O_DIRECTORY, 0);

	if (directory < 0 ||
	    (!rtscope__status(directory, "", &status) && status.stx_uid == rtscope__user() && !(status.stx_mode & 077)))
		return directory;
	rtscope__close(directory);
	return -RTSCOPE__EACCES;
}

/*
 * From where a file of this user's directory is made or removed, by the name that rtscope__name_in() gives. A path leads into whatever directory
 * the user has exchanged it for meanwhile: a program that may do more than he could be led to where he cannot go himself, so it opens
 * the directory. Others use the path, which takes no descriptor. For rtscope__leave_directory(); an error is none that
 * rtscope__has_entered().
 */
static inline int rtscope__enter_directory(const struct rtscope__shared *shared)
{
	return rtscope__overrides() ? rtscope__open_directory(shared, RTSCOPE__O_PATH) : RTSCOPE__AT_FDCWD;
}

static inline const char *rtscope__name_in(const struct rtscope__shared *shared, int directory, const char *path)
{
	return directory < 0 ? path : path + rtscope__length(shared->directory, sizeof(shared->directory)) + 1;
}

static inline int rtscope__has_entered(int directory)
{
	return directory >= 0 || directory == RTSCOPE__AT_FDCWD;
}

static inline void rtscope__leave_directory(int directory)
{
	if (directory >= 0)
		rtscope__close(directory);
}

/* Removes a file of this user's directory. */
static inline void rtscope__remove_file(const struct rtscope__shared *shared, const char *path)
{
	int directory = rtscope__enter_directory(shared);

	if (rtscope__has_entered(directory))
		rtscope__unlink_in(directory, rtscope__name_in(shared, directory, path));
	rtscope__leave_directory(directory);
}

/* ---- files ----------------------------------------------------------------------------------------------------------- */

/* Memory behind every byte. In pieces, so that a signal that comes all the time cannot keep a large one from ever ending. */
static inline long rtscope__allocate(int file, uint64_t bytes)
{
	const uint64_t piece = 256 * 1024;
	long error = 0;

	for (uint64_t at = 0; at < bytes && !error; at += piece)
		error = rtscope__call_again(__NR_fallocate, file, 0, (long)at,
					    (long)(bytes - at < piece ? bytes - at : piece), 0, 0);
	return error;
}

static inline int rtscope__fits_limit(uint64_t bytes)
{
	uint64_t limit[2];

	/* A file beyond this limit would be a signal. */
	return rtscope__call(__NR_prlimit64, 0, RTSCOPE__RLIMIT_FSIZE, 0, (long)limit, 0, 0) || limit[0] >= bytes;
}

/*
 * Whether a file of so many bytes leaves others a quarter of the file system: a program that fills /dev/shm to its last page ends others,
 * by SIGBUS, which never heard of rtscope (Docker's default is 64 MiB). The layout is that of struct statfs of 64-bit Linux; one without
 * a size has no blocks.
 */
static RTSCOPE__NOT_INLINE int rtscope__leaves_room(int file, uint64_t bytes)
{
	uint64_t status[15];

	if (rtscope__call_again(__NR_fstatfs, file, (long)status, 0, 0, 0, 0) || !status[2])
		return 1;
	/* f_bsize, f_blocks, f_bfree */
	return status[3] * status[1] >= bytes && status[3] * status[1] - bytes >= status[2] * status[1] / 4;
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
static RTSCOPE__NOT_INLINE int rtscope__open_noted(const struct rtscope__shared *shared, int directory,
						   const char *path, int flags)
{
	struct rtscope__opened *opened = NULL;
	int file;

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
	if (file < 0)
		rtscope__end_opening(shared, opened);
	else if (opened)
		/* ORDER: seq_cst; before it is used, and before forks are asked for. */
		__atomic_store_n(&opened->file, (uint32_t)file + RTSCOPE__OPENING + 1, __ATOMIC_SEQ_CST);
	return file;
}

static RTSCOPE__NOT_INLINE void rtscope__close_noted(const struct rtscope__shared *shared, int file)
{
	struct rtscope__opened *opened = NULL;

	/* While it is open no other has its number. */
	for (int i = 0; i < RTSCOPE__OPENED && !opened; i++) {
		if (RTSCOPE__LOAD(rtscope__forking.opened[i].file) == (uint32_t)file + RTSCOPE__OPENING + 1 &&
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

/* ---- new files --------------------------------------------------------------------------------------------------------- */

/*
 * Memory of nobody behind a ring. Its positions are in memory that any program of this user can write: whatever they say, a record begins in
 * the ring, and it has at most RTU_RECORD_BYTES_MAX bytes.
 */
#define RTSCOPE__BEHIND 8192

/*
 * A new file in the directory that was entered, or an error in its place: locked for as long as it is mapped, with memory behind every
 * byte, so that a write into it can never fail; mapped at `place`, or, as a ring, anywhere: that is noted in `made` before, if it is not NULL.
 * An error is a small negative number.
 */
static inline long rtscope__new_file(const struct rtscope__shared *shared, int directory, const char *name,
				     uint64_t bytes, void *place, struct rtscope__remains *made)
{
	long memory = -RTSCOPE__EAGAIN;
	void *around = NULL;
	int file;

	if (!rtscope__fits_limit(bytes))
		return -RTSCOPE__EFBIG;
	if (!rtscope__has_entered(directory))
		return directory;
	file = rtscope__open_noted(shared, directory, name, RTSCOPE__O_RDWR | RTSCOPE__O_CREAT | RTSCOPE__O_EXCL);
	if (file < 0)
		return file;
	/* Somebody who looks for remains may have it for a moment, and leaves it, since it is new (abi.h). */
	for (int tries = 0; tries < 100 && memory == -RTSCOPE__EAGAIN; tries++) {
		memory = rtscope__lock_file(file);
		if (memory == -RTSCOPE__EAGAIN)
			rtscope__call(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	if (!memory && !place && !rtscope__leaves_room(file, bytes))
		memory = -RTSCOPE__ENOSPC;
	if (!memory)
		memory = rtscope__allocate(file, bytes);
	/* Others may have taken what was left meanwhile, for the same reason. */
	if (!memory && !place && !rtscope__leaves_room(file, 0))
		memory = -RTSCOPE__ENOSPC;
	if (!memory && !place) {
		memory = rtscope__map(bytes + RTSCOPE__BEHIND,
				      RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS | RTSCOPE__MAP_NORESERVE, -1);
		place = rtscope__is_error(memory) ? NULL : (void *)memory;
		around = place;
		rtscope__note_mapping(made, around, bytes + RTSCOPE__BEHIND);
	}
	if (!rtscope__is_error(memory))
		memory = rtscope__call_again(__NR_mmap, (long)place, (long)bytes, RTSCOPE__PROT_RW,
					     RTSCOPE__MAP_SHARED | RTSCOPE__MAP_POPULATE | RTSCOPE__MAP_FIXED, file, 0);
	if (rtscope__is_error(memory) && around) {
		rtscope__note_mapping(made, NULL, 1);
		rtscope__unmap(around, bytes + RTSCOPE__BEHIND);
	}
	if (rtscope__is_error(memory))
		rtscope__unlink_in(directory, name);
	rtscope__close_noted(shared, file);
	return memory;
}

/*
 * Whether who started this program is not to see what it does, and has its files all the same: a program that was given a group or
 * capabilities, or was another user's and has changed to this one. One that runs as another user leaves its files with that one.
 * RTSCOPE_ALLOW_PRIVILEGED, in all sources of the program: the user may.
 */
static inline int rtscope__is_privileged(void)
{
#if defined(RTSCOPE_ALLOW_PRIVILEGED)
	return 0;
#endif
	return rtscope__auxiliary(RTSCOPE__AT_SECURE) &&
	       rtscope__user() == (uint32_t)rtscope__call(__NR_getuid, 0, 0, 0, 0, 0, 0);
}

/*
 * Whether this process can be another user again, with that one's rights: it runs as one who could change its files' names under it, and
 * would make its files where that one wants them.
 */
static inline int rtscope__can_change_back(void)
{
	uint32_t real = 0, effective = 0, saved = 0;

	rtscope__call(__NR_getresuid, (long)&real, (long)&effective, (long)&saved, 0, 0, 0);
	return saved != effective || (effective && !real);
}

/* A user that has no number in this user namespace. */
#define RTSCOPE__NOBODY 65534u

/*
 * The number of this user where /dev/shm belongs: another one in a user namespace (unshare -U, a browser's sandbox) that has got its
 * /dev/shm from outside, which is seen by root's having no number here. RTSCOPE__NOBODY: it cannot be told.
 */
static inline uint32_t rtscope__user_outside(struct rtscope__room *room)
{
	uint32_t user = rtscope__user();
	uint64_t numbers[3] = { 0, 0, 0 };
	long bytes = 0;
	int file, field = 0, in_number = 0;

	if (rtscope__status(RTSCOPE__AT_FDCWD, "/dev/shm", &room->status) || room->status.stx_uid != RTSCOPE__NOBODY)
		return user;
	file = rtscope__open("/proc/self/uid_map", RTSCOPE__O_RDONLY, 0);
	if (file >= 0) {
		bytes = rtscope__call_again(__NR_read, file, (long)room->session, 4096, 0, 0, 0);
		rtscope__close(file);
	}
	/* Lines of the first number here, the first outside, and how many (user_namespaces(7)). */
	for (long at = 0; at < bytes; at++) {
		char digit = (char)room->session[at];

		if (digit >= '0' && digit <= '9') {
			numbers[field] = numbers[field] * 10 + (uint64_t)(digit - '0');
			in_number = 1;
		} else if (in_number) {
			in_number = 0;
			field++;
		}
		if (field < 3)
			continue;
		if (user >= numbers[0] && user - numbers[0] < numbers[2])
			return (uint32_t)(numbers[1] + (user - numbers[0]));
		numbers[0] = numbers[1] = numbers[2] = 0;
		field = 0;
	}
	return RTSCOPE__NOBODY;
}

/*
 * The directory of this user, which nobody else may write into. 0, or an errno: then there is none, and what somebody else may have put
 * in its place is not used, such as a link to another directory. Needs `busy`.
 */
static inline int rtscope__make_directory(struct rtscope__shared *shared)
{
	struct statx *status = &shared->room->status;
	uint32_t user = rtscope__user_outside(shared->room);
	char *end = shared->directory + rtscope__length(shared->directory, sizeof(shared->directory));
	int error = 0;

	/* One that has no number yet is the child of one that had: its directory is still that. */
	if (user != RTSCOPE__NOBODY || end == shared->directory || rtscope__user() != RTSCOPE__NOBODY)
		end = rtscope__put_number(rtscope__put(shared->directory, "/dev/shm/rtscope-"), user, 10);
	error = (int)-rtscope__call_again(__NR_mkdirat, RTSCOPE__AT_FDCWD, (long)shared->directory, 0700, 0, 0, 0);
	if (!error || error == RTSCOPE__EEXIST)
		error = -rtscope__status(RTSCOPE__AT_FDCWD, shared->directory, status);
	/* Made with a mask of the program's that leaves its user nothing. (It may have been exchanged for a link since.) */
	if (!error && !rtscope__overrides() && (status->stx_mode & 0170700) < 0040700 &&
	    (status->stx_mode & 0170000) == 0040000 && status->stx_uid == rtscope__user())
		rtscope__call_again(__NR_fchmodat, RTSCOPE__AT_FDCWD, (long)shared->directory, 0700, 0, 0, 0);
	/* A directory, this user's, and nobody else may look into it. */
	if (!error && ((status->stx_mode & 0170000) != 0040000 || status->stx_uid != rtscope__user() ||
		       status->stx_mode & 077 || rtscope__is_privileged() || rtscope__can_change_back()))
		error = RTSCOPE__EPERM;
	rtscope__put(error ? shared->directory : end, error ? RTSCOPE__NOWHERE : "");
	return error;
}

/* What tells a file from others, also of other file systems: the numbers of two can be the same. */
static inline uint64_t rtscope__identity(const struct statx *status)
{
	return status->stx_ino ^ (uint64_t)status->stx_dev_minor << 40 ^ (uint64_t)status->stx_dev_major << 60;
}

/*
 * Another user has made this one's directory. Only root's recorder takes such a place back, and it has no way to tell this process: so a page of its own
 * is in the place of the look page, and says for ever that somebody may record. Events then try again now and then, as where no file can be made.
 * Needs `busy`.
 */
static inline void rtscope__wait_for_place(struct rtscope__shared *shared)
{
	long memory = -RTSCOPE__EINVAL;

	if (!rtscope__user() && !rtscope__user_outside(shared->room) && !rtscope__is_privileged() && shared->lazy &&
	    shared->look == &rtscope__off)
		memory = rtscope__map(RTU_LOOK_BYTES, RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS, -1);
	if (rtscope__is_error(memory))
		return;
	((struct rtu_look *)memory)->look = 1;
	shared->look = &((struct rtu_look *)memory)->look;
}

static inline int rtscope__waits_for_place(const struct rtscope__shared *shared)
{
	return shared->look != &rtscope__off && !shared->look_file;
}

/* Whether another user has root's place still. One system call, since it is asked again and again. */
static RTSCOPE__NOT_INLINE int rtscope__is_place_taken(void)
{
	struct statx status;

	return !rtscope__status(RTSCOPE__AT_FDCWD, "/dev/shm/rtscope-0", &status) && status.stx_uid;
}

/*
 * Maps the look page of this user. Without one, forks' children make files at once. A page that was there in its place stays: events may be
 * reading it. Needs `busy`.
 */
static inline void rtscope__map_look(struct rtscope__shared *shared)
{
	struct statx *status = &shared->room->status;
	struct rtu_look *look;
	long memory = -RTSCOPE__EINVAL;
	int file, directory;

	if ((shared->look != &rtscope__off && !rtscope__waits_for_place(shared)) ||
	    !rtscope__fits_limit(RTU_LOOK_BYTES))
		return;
	rtscope__put_name(shared, shared->room->path, "look");
	file = directory = rtscope__enter_directory(shared);
	if (rtscope__has_entered(directory))
		file = rtscope__open_behind_streams(directory, rtscope__name_in(shared, directory, shared->room->path),
						    RTSCOPE__O_RDWR | RTSCOPE__O_CREAT | RTSCOPE__O_NONBLOCK, 0600);
	rtscope__leave_directory(directory);
	if (file < 0)
		return;
	if (!rtscope__status(file, "", status) && (status->stx_mode & 0170000) == 0100000 &&
	    status->stx_uid == rtscope__user() && !rtscope__allocate(file, RTU_LOOK_BYTES))
		memory = rtscope__call_again(__NR_mmap, 0, RTU_LOOK_BYTES, RTSCOPE__PROT_RW,
					     RTSCOPE__MAP_SHARED | RTSCOPE__MAP_POPULATE, file, 0);
	rtscope__close(file);
	if (rtscope__is_error(memory))
		return;
	look = (struct rtu_look *)memory;
	look->magic = RTU_LOOK_MAGIC;
	look->abi_version = RTU_ABI_VERSION;
	shared->look_file = rtscope__identity(status);
	RTSCOPE__STORE(shared->look, &look->look);
}

/* The look page, if there is one. */
static inline struct rtu_look *rtscope__look_page(const struct rtscope__shared *shared)
{
	return (struct rtu_look *)((uintptr_t)shared->look - offsetof(struct rtu_look, look));
}

/*
 * Whether this process still sees the look page that it has mapped: not in another root or mount namespace, where there may well be
 * another directory of the same name. What it had would be lost there. One without a look page is believed.
 */
static RTSCOPE__NOT_INLINE int rtscope__sees_look(const struct rtscope__shared *shared)
{
	char path[RTSCOPE__OWN_PATH_BYTES];
	struct statx status;

	if (shared->look == &rtscope__off)
		return 1;
	rtscope__put_name(shared, path, "look");
	return !rtscope__status(RTSCOPE__AT_FDCWD, path, &status) && rtscope__identity(&status) == shared->look_file;
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The place of this user in /dev/shm: a directory, in which only he can make files, and the look page in it. The page is mapped by all of his programs that
 * nobody records, and tells them that a recorder has come.
 */
#ifndef RTSCOPE_PLACE_H
#define RTSCOPE_PLACE_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "files.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* It is that of no user. */
#define RTSCOPE__UNTOLD ~0u

/*
 * The number of this user where /dev/shm belongs: another one in a user namespace (unshare -U, a browser's sandbox) that has got its
 * /dev/shm from outside, which is seen by root's having no number here. RTSCOPE__UNTOLD: it cannot be told.
 */
static inline uint32_t rtscope__user_outside(struct rtscope__room *room)
{
	uint32_t user = rtscope__user();
	uint64_t numbers[3] = { 0, 0, 0 };
	long bytes = 0;
	int field = 0, in_number = 0;
	struct rtscope__file file;

	if (rtscope__status(RTSCOPE__AT_FDCWD, "/dev/shm", &room->status) || room->status.stx_uid != RTSCOPE__NOBODY)
		return user;
	file = rtscope__open("/proc/self/uid_map", RTSCOPE__O_RDONLY, 0);
	if (file.number >= 0) {
		bytes = rtscope__read(file, room->session, 4096);
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
	return RTSCOPE__UNTOLD;
}

/* Whose directory this process has had last; ~0: nobody's. */
RTSCOPE__HIDDEN uint32_t rtscope__last_user = ~0u;

/*
 * The directory of this user, which nobody else may write into. 0, or an errno: then there is none, and what somebody else may have put
 * in its place is not used, such as a link to another directory. Needs `busy`.
 */
static inline int rtscope__make_directory(struct rtscope__shared *shared)
{
	struct statx *status = &shared->room->status;
	char *end = shared->directory + rtscope__length(shared->directory, sizeof(shared->directory));
	uint32_t user;
	int error = 0;

	/* It keeps the one that it has where it comes from. */
	if (!rtscope__is_at_home())
		return RTSCOPE__ENOENT;
	user = rtscope__user_outside(shared->room);
	/*
	 * One that has no number yet, and is the child of one that had, keeps its directory. One that begins so has none: all who have no number look alike
	 * to it, and it would make, and leave, the place of the user nobody.
	 */
	if (user != RTSCOPE__UNTOLD)
		end = rtscope__put_number(rtscope__put(shared->directory, "/dev/shm/rtscope-"), user, 10);
	else if (end == shared->directory)
		end = rtscope__put(shared->directory, RTSCOPE__NOWHERE);
	/*
	 * Made only where it is not there: for that the kernel waits until nobody reads or changes /dev/shm, and any user can take as long as he likes
	 * to read it (into a page that a FUSE server of his gives).
	 */
	error = -rtscope__status(RTSCOPE__AT_FDCWD, shared->directory, status);
	if (error == RTSCOPE__ENOENT) {
		error = (int)-rtscope__call_again(__NR_mkdirat, RTSCOPE__AT_FDCWD, (long)shared->directory, 0700, 0, 0,
						  0);
		if (!error || error == RTSCOPE__EEXIST)
			error = -rtscope__status(RTSCOPE__AT_FDCWD, shared->directory, status);
	}
	/* Made with a mask of the program's that leaves its user nothing. (It may have been exchanged for a link since.) */
	if (!error && !rtscope__overrides() && (status->stx_mode & 0170700) < 0040700 &&
	    (status->stx_mode & 0170000) == 0040000 && status->stx_uid == rtscope__user())
		rtscope__call_again(__NR_fchmodat, RTSCOPE__AT_FDCWD, (long)shared->directory, 0700, 0, 0, 0);
	/* A directory, this user's, and nobody else may look into it. */
	if (!error && ((status->stx_mode & 0170000) != 0040000 || status->stx_uid != rtscope__user() ||
		       status->stx_mode & 077 || rtscope__is_privileged() || rtscope__can_change_back()))
		error = RTSCOPE__EPERM;
	rtscope__put(error ? shared->directory : end, error ? RTSCOPE__NOWHERE : "");
	RTSCOPE__STORE(rtscope__last_user, rtscope__user());
	return error;
}

/* What /proc/self/status says of the process behind `label`: the number in this column; ~0: it cannot be told. Needs `busy`. */
static RTSCOPE__NOT_INLINE uint32_t rtscope__told_number(struct rtscope__shared *shared, const char *label, int column)
{
	char *text = shared->room->names;
	uint32_t number = 0;
	struct rtscope__file file = rtscope__open("/proc/self/status", RTSCOPE__O_RDONLY, 0);
	long bytes;

	if (file.number < 0)
		return ~0u;
	bytes = rtscope__read(file, text, sizeof(shared->room->names) - 1);
	rtscope__close(file);
	text[bytes > 0 ? bytes : 0] = 0;
	while (*text && strncmp(text, label, strlen(label)) != 0)
		text++;
	if (!*text)
		return ~0u;
	for (text += strlen(label); column >= 0; column--) {
		while (*text == ' ' || *text == '\t')
			text++;
		for (number = 0; *text >= '0' && *text <= '9'; text++)
			number = number * 10 + (uint32_t)(*text - '0');
	}
	return number;
}

/*
 * Whether the calling thread has the user of its process, and is not another one by itself, as a file server's threads are their clients (setresuid(2) without the C library): it
 * would give the files of the whole process to that one. By the process's first thread. What cannot be told is so. Needs `busy`.
 */
static inline int rtscope__acts_for_process(struct rtscope__shared *shared)
{
	uint32_t user = rtscope__user(), of_process;

	if (RTSCOPE__LOAD(rtscope__last_user) == user)
		return 1;
	of_process = rtscope__told_number(shared, "\nUid:", 1);
	return of_process == ~0u || of_process == user;
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

/*
 * Whether root has his place again. Only what the kernel has at hand is asked for, as of root's session (sessions.h): where nobody has the place, an event is
 * neither to wait until the kernel knows that, nor to make it. Root's recorder does. Few system calls, since it is asked again and again.
 */
static RTSCOPE__NOT_INLINE int rtscope__has_place_again(void)
{
	const int flags = RTSCOPE__O_RDONLY | RTSCOPE__O_DIRECTORY | RTSCOPE__O_NONBLOCK | RTSCOPE__O_NOFOLLOW;
	struct rtscope__owner owner = { 0, ~0u };
	struct rtscope__file file = { -RTSCOPE__EINVAL, 0 };

	if (!rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0))
		file.number = rtscope__try_at_hand("/dev/shm/rtscope-0", flags | RTSCOPE__MARK);
	/* A filter of system calls, or a kernel before 5.12: it may wait. */
	if (rtscope__cannot_ask(file.number))
		return rtscope__identity_of(RTSCOPE__AT_FDCWD, "/dev/shm/rtscope-0", &owner) && !owner.user;
	if (file.number < 0)
		return 0;
	file.identity = rtscope__identity_of(file.number, "", &owner);
	/* Or another one of the program's has the number meanwhile. */
	if (!rtscope__is_marked(file.number))
		return 0;
	rtscope__close(file);
	return !owner.user;
}

/*
 * Maps the look page of this user. Without one, forks' children make files at once. A page that was there in its place stays: events may be
 * reading it. Needs `busy`.
 */
static inline void rtscope__map_look(struct rtscope__shared *shared)
{
	struct statx *status = &shared->room->status;
	struct rtscope__file directory, file;
	struct rtu_look *look;
	long memory = -RTSCOPE__EINVAL;

	if ((shared->look != &rtscope__off && !rtscope__waits_for_place(shared)) ||
	    !rtscope__fits_limit(RTU_LOOK_BYTES))
		return;
	rtscope__put_name(shared, shared->room->path, "look");
	file = directory = rtscope__enter_directory(shared);
	if (rtscope__has_entered(directory)) {
		const char *name = rtscope__name_in(shared, directory, shared->room->path);

		file = rtscope__open_behind_streams(directory.number, name,
						    RTSCOPE__O_RDWR | RTSCOPE__O_CREAT | RTSCOPE__O_NONBLOCK, 0600);
		if (file.number >= 0 && (directory.number < 0 || rtscope__is_ours(directory)) &&
		    !rtscope__status(directory.number, name, status) && (status->stx_mode & 0170000) == 0100000 &&
		    status->stx_uid == rtscope__user() && rtscope__identity(status) == file.identity &&
		    !rtscope__allocate(file, RTU_LOOK_BYTES) &&
		    /* One of another version of this header may be larger, and is in use. */
		    (status->stx_size >= RTU_LOOK_BYTES || !rtscope__set_size(file, directory, name, RTU_LOOK_BYTES)))
			memory = rtscope__map_file(file, NULL, RTU_LOOK_BYTES);
	}
	rtscope__leave_directory(directory);
	if (file.number < 0)
		return;
	rtscope__close(file);
	if (rtscope__is_error(memory))
		return;
	rtscope__populate((void *)memory, RTU_LOOK_BYTES);
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
 * another directory of the same name. What it had would be lost there. One without a look page is believed. Asked where rtscope__is_at_home() was.
 */
static RTSCOPE__NOT_INLINE int rtscope__sees_look(const struct rtscope__shared *shared)
{
	char path[RTSCOPE__OWN_PATH_BYTES];

	if (shared->look == &rtscope__off)
		return 1;
	rtscope__put_name(shared, path, "look");
	return rtscope__identity_of(RTSCOPE__AT_FDCWD, path, NULL) == shared->look_file;
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What can be asked for without waiting for anybody: a look-up of a name waits for whoever reads or changes its directory, and /dev/shm is everybody's. And whether it is
 * still the /dev/shm that the program began with.
 */
#ifndef RTSCOPE_HOME_H
#define RTSCOPE_HOME_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is at hand -------------------------------------------------------------------------------------------------- */

/* What the kernel finds without waiting for anybody (openat2(2), since Linux 5.12); else -EAGAIN. */
static inline int rtscope__try_at_hand(const char *path, int flags)
{
	/* struct open_how; 0x20: RESOLVE_CACHED */
	const uint64_t how[3] = { (uint64_t)(flags | RTSCOPE__O_CLOEXEC), 0, 0x20 };

	return (int)rtscope__call_again(__NR_openat2, RTSCOPE__AT_FDCWD, (long)path, (long)how, sizeof(how), 0, 0);
}

/*
 * The same, whoever is busy: nothing is at hand while anybody anywhere renames something or changes mounts, which one user can do without end, and for as long as the
 * one who does it has no CPU. So only those tries count after which `longer`, a way that takes longer, was at hand, and he is not followed in step.
 */
static RTSCOPE__NOT_INLINE int rtscope__open_at_hand(const char *path, int flags, const char *longer)
{
	int number = -RTSCOPE__EAGAIN;

	for (int tries = 0, counted = 0; tries < 200 && counted < 8 && number == -RTSCOPE__EAGAIN; tries++) {
		if (tries % 4 == 3)
			rtscope__call(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
		number = rtscope__try_at_hand(path, flags);
		/* For writing: that is refused to everybody once it is found, and no descriptor is made. */
		if (number == -RTSCOPE__EAGAIN)
			counted += rtscope__try_at_hand(longer, RTSCOPE__O_WRONLY) != -RTSCOPE__EAGAIN;
	}
	return number;
}

/* There is no such call, or a filter refuses it: what is at hand is not known then, and asking for it in another way may wait. */
static inline int rtscope__cannot_ask(int error)
{
	return error == -RTSCOPE__ENOSYS || error == -RTSCOPE__EINVAL || error == -RTSCOPE__EPERM;
}

/* ---- the /dev/shm that the program began with ---------------------------------------------------------------------------- */

/* What it was (rtscope__identity_of); 0: not known. */
RTSCOPE__HIDDEN uint64_t rtscope__home = 0;

/* Opens it, in a way that the kernel tells of again. -EBADF: another file of the program's, which may close what it does not know, has the number meanwhile. */
static RTSCOPE__NOT_INLINE struct rtscope__file rtscope__open_home(void)
{
	const int how = RTSCOPE__O_PATH | RTSCOPE__O_DIRECTORY;
	struct rtscope__file file = { 0, 0 };
	long flags;

	file.number = rtscope__open_at_hand("/dev/shm", how,
					    "/../../../../../../../../../../../../../../../../../../../../..");
	if (file.number < 0)
		return file;
	/* 3: F_GETFL */
	flags = rtscope__call(__NR_fcntl, file.number, 3, 0, 0, 0, 0);
	file.identity = rtscope__identity_of(file.number, "", NULL);
	if (rtscope__is_error(flags) || (flags & how) != how)
		file.number = -RTSCOPE__EBADF;
	return file;
}

/* What an error of that says: RTSCOPE__NO_FILE: it is not at hand, so it is another; 0: that cannot be told. */
static inline uint64_t rtscope__home_of_error(int error)
{
	return rtscope__cannot_ask(error) || error == -RTSCOPE__EMFILE || error == -RTSCOPE__ENFILE ||
			       error == -RTSCOPE__EBADF ?
		       0 :
		       RTSCOPE__NO_FILE;
}

/* Of another one than in the beginning: what it is, opened once more. The first may be the program's, and is only closed if both are the same. */
static RTSCOPE__NOT_INLINE uint64_t rtscope__home_again(struct rtscope__file first)
{
	struct rtscope__file again = rtscope__open_home();

	if (again.number < 0)
		return rtscope__home_of_error(again.number);
	if (again.identity == first.identity || again.identity == RTSCOPE__LOAD(rtscope__home))
		rtscope__close(again);
	if (again.identity != first.identity)
		return again.identity == RTSCOPE__LOAD(rtscope__home) ? again.identity : 0;
	rtscope__close(first);
	return first.identity;
}

/* What it is now; or as above. */
static RTSCOPE__NOT_INLINE uint64_t rtscope__home_now(void)
{
	struct rtscope__file file = rtscope__open_home();

	if (file.number < 0)
		return rtscope__home_of_error(file.number);
	if (RTSCOPE__LOAD(rtscope__home) && file.identity != RTSCOPE__LOAD(rtscope__home))
		return rtscope__home_again(file);
	rtscope__close_number(file.number);
	return file.identity;
}

/*
 * Whether /dev/shm is still that. In another root or mount namespace (setns(2), chroot(2)) nobody would find what is made there; and where that is another user's, in
 * whose container root runs a program, he can keep whoever asks for a name there waiting until he dies. So this comes before any other look-up, and does not wait. It is
 * asked by programs that root has started: others do not get there against their user's will. What cannot be told is as it was.
 */
static RTSCOPE__NOT_INLINE int rtscope__is_at_home(void)
{
	uint64_t now;

	if (!RTSCOPE__LOAD(rtscope__home) || rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0))
		return 1;
	now = rtscope__home_now();
	return !now || now == RTSCOPE__LOAD(rtscope__home);
}

/* Notes where it is, when the process begins. */
static inline void rtscope__note_home(void)
{
	uint64_t now = 0;

	if (!RTSCOPE__LOAD(rtscope__home) && !rtscope__user() &&
	    !rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0))
		now = rtscope__home_now();
	if (now && now != RTSCOPE__NO_FILE)
		RTSCOPE__STORE(rtscope__home, now);
}

#ifdef __cplusplus
}
#endif

#endif

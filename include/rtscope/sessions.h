/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The session of a collector, as a process finds it: what it wants, and whether the collector lives.
 *
 * Nothing here allocates from the heap, calls the C library, prints or touches errno. All of it may run in a fork's child or in a
 * signal handler.
 */
#ifndef RTSCOPE_SESSIONS_H
#define RTSCOPE_SESSIONS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "place.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- patterns -------------------------------------------------------------------------------------------------------- */

/* A glob with * and ?. */
static inline int rtscope__matches(const char *pattern, const char *text, const char *text_end)
{
	const char *star = NULL, *star_text = NULL;

	while (text < text_end) {
		if (*pattern == '*') {
			star = pattern++;
			star_text = text;
		} else if (*pattern && (*pattern == '?' || *pattern == *text)) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++star_text;
		} else {
			return 0;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

/* Whether a session wants the event that `text` describes. Later patterns do not undo an exclusion. */
static inline int rtscope__wanted(const struct rtu_session *session, const char *text)
{
	const char *patterns = (const char *)(session + 1), *end = patterns + session->bytes;
	const char *name_end = strchr(text, ' ');
	uint32_t level = 0;
	int wanted = 0;

	if (!name_end)
		return 0;
	for (const char *digit = name_end + 1; *digit >= '0' && *digit <= '9'; digit++)
		level = level * 10 + (uint32_t)(*digit - '0');
	if (level > session->level)
		return 0;
	while (patterns < end) {
		/* An empty one, which no collector writes, would be read with what follows. Others than these are about channels. */
		if ((*patterns == '+' || *patterns == '-') && rtscope__matches(patterns + 1, text, name_end)) {
			if (*patterns == '-')
				return 0;
			wanted = 1;
		}
		patterns += strlen(patterns) + 1;
	}
	return wanted;
}

/*
 * What stands in the word of an event that the session wants: the last pattern about channels that it matches decides. Those begin with > or <
 * and /, which no name has, so programs that know no channels match nothing with them.
 */
static inline uint32_t rtscope__word_of(const struct rtu_session *session, const char *text)
{
	const char *patterns = (const char *)(session + 1), *end = patterns + session->bytes;
	const char *name_end = strchr(text, ' ');
	uint32_t to_channel = 0;

	while (session->flags & RTU_CHANNELS && name_end && patterns < end) {
		if ((patterns[0] == '>' || patterns[0] == '<') && patterns[1] == '/' &&
		    rtscope__matches(patterns + 2, text, name_end))
			to_channel = patterns[0] == '>' ? RTU_TO_CHANNEL : 0;
		patterns += strlen(patterns) + 1;
	}
	return RTU_ENABLED(session->session) | to_channel;
}

/* ---- the collector --------------------------------------------------------------------------------------------------- */

/* Whether somebody else holds a lock on a file: then the collector that left it lives, whatever its number is. */
static inline int rtscope__is_locked(int file)
{
	/*
	 * struct flock of 64-bit Linux (asm-generic/fcntl.h); F_RDLCK, SEEK_SET, all of the file. What would keep a reader out: only who may
	 * write the file has such a lock. Anybody may lock root's session for reading.
	 */
	struct {
		int16_t type, whence;
		int32_t zero;
		int64_t start, length;
		int32_t pid, zero2;
	} lock = { 0, 0, 0, 0, 0, 0, 0 };

	/* 5: F_GETLK, 2: F_UNLCK */
	return !rtscope__call_again(__NR_fcntl, file, 5, (long)&lock, 0, 0, 0) && lock.type != 2;
}

#define RTSCOPE__ROOTS_SESSION "/dev/shm/rtscope-session"

/* The file there that was root's when it was last read (rtscope__identity_of); 0: none was. */
RTSCOPE__HIDDEN uint64_t rtscope__roots_file = 0;

/* Whether at this path there is something of somebody's who has no number here, which nobody else can change. */
static inline int rtscope__is_outsiders(const char *path)
{
	struct rtscope__owner owner = { 022, 0 };
	uint64_t identity = rtscope__identity_of(RTSCOPE__AT_FDCWD, path, &owner);

	return identity && identity != RTSCOPE__NO_FILE && owner.user == RTSCOPE__NOBODY && !(owner.mode & 022);
}

/*
 * Whether root vouches for this file as his session where he has no number. Nobody else makes files in /run. Who is to see another /run there has mounted that
 * himself, or has it from a container's root: then all of it has an owner with a number, or is that root's.
 */
static RTSCOPE__NOT_INLINE int rtscope__is_vouched_for(struct rtscope__file file)
{
	char path[64];

	rtscope__put_number(rtscope__put(path, "/run/rtscope/session-"), file.identity, 16);
	return rtscope__is_outsiders("/run") && rtscope__is_outsiders("/run/rtscope") && rtscope__is_outsiders(path);
}

/*
 * Whether a file there is root's. In a user namespace where root has no number (unshare(2), clone(2)) it looks like anybody's: there it is the file that was
 * root's before, which nobody else can put another one in the place of, or that root vouches for. Where neither can be told, the user's own session counts.
 */
static inline int rtscope__is_roots(struct rtscope__file file, uint32_t user)
{
	if (user) {
		if (!file.identity || file.identity == RTSCOPE__NO_FILE)
			return 0;
		if (file.identity == RTSCOPE__LOAD(rtscope__roots_file))
			return 1;
		if (user != RTSCOPE__NOBODY || !rtscope__is_vouched_for(file))
			return 0;
	}
	RTSCOPE__STORE(rtscope__roots_file, file.identity);
	return 1;
}

/*
 * Whether a file that could not be opened is no session: it is not there; or, in the place of root's, where anybody may put something, another user
 * has: a file for himself, a link, a socket, one under a lease. (A session is a regular file that everybody may read.)
 */
static inline int rtscope__is_no_session(int error, int is_roots)
{
	return error == -RTSCOPE__ENOENT || (is_roots && (error == -RTSCOPE__EACCES || error == -RTSCOPE__ELOOP ||
							  error == -RTSCOPE__ENXIO || error == -RTSCOPE__EAGAIN));
}

/*
 * Opens root's session. Where root does not record it is not there, and to find that out the kernel waits until nobody reads or changes /dev/shm, which any user
 * can do for as long as he likes. So only what the kernel has at hand is asked for (openat2(2), since Linux 5.12), and a tmpfs has at hand all that there is.
 * A filter of system calls may end the process for that call: where there is one, or the call is not there, the kernel may wait.
 */
static RTSCOPE__NOT_INLINE struct rtscope__file rtscope__open_roots_session(void)
{
	const int flags = RTSCOPE__O_RDONLY | RTSCOPE__O_NONBLOCK;
	struct rtscope__file file = { -RTSCOPE__EAGAIN, RTSCOPE__NO_FILE };
	uint64_t status[15] = { 0 };

	if (rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0))
		return rtscope__open(RTSCOPE__ROOTS_SESSION, flags, 0);
	file.number = rtscope__open_at_hand(RTSCOPE__ROOTS_SESSION, flags | RTSCOPE__O_NOFOLLOW | RTSCOPE__MARK,
					    "/dev/shm/../shm/../shm/../shm");
	if (file.number >= 0) {
		file.identity = rtscope__identity_of(file.number, "", NULL);
		/* Another one of the program's has the number meanwhile. */
		if (!rtscope__is_marked(file.number))
			file.number = -RTSCOPE__EBADF;
	} else if (file.number == -RTSCOPE__EAGAIN) {
		rtscope__call_again(__NR_statfs, (long)"/dev/shm", (long)status, 0, 0, 0, 0);
		/* TMPFS_MAGIC */
		if (status[0] != 0x01021994)
			return rtscope__open(RTSCOPE__ROOTS_SESSION, flags, 0);
		file.number = -RTSCOPE__ENOENT;
	} else if (rtscope__cannot_ask(file.number)) {
		return rtscope__open(RTSCOPE__ROOTS_SESSION, flags, 0);
	}
	return file;
}

/* Whether there is one. Without a descriptor left that cannot be told without waiting, as said above: then there may be. */
static RTSCOPE__NOT_INLINE int rtscope__has_roots_session(void)
{
	struct rtscope__file file = rtscope__open_roots_session();

	if (file.number >= 0)
		rtscope__close(file);
	return file.number >= 0 || !rtscope__is_no_session(file.number, 1);
}

/* The same as rtscope__read_session(), or -1: the program has closed the descriptor meanwhile. */
static inline int rtscope__try_session(struct rtscope__room *room, const char *path, uint32_t owner, int is_roots)
{
	struct rtu_session *session = (struct rtu_session *)(void *)room->session;
	long bytes = -1;
	struct rtscope__file file = is_roots ? rtscope__open_roots_session() :
					       rtscope__open(path, RTSCOPE__O_RDONLY | RTSCOPE__O_NONBLOCK, 0);

	if (file.number < 0 && !rtscope__is_no_session(file.number, is_roots))
		room->session_errno = -file.number;
	if (file.number < 0)
		return 0;
	/* A regular file, which only its owner may write. */
	if (!rtscope__status(file.number, "", &room->status) && (room->status.stx_mode & 0170000) == 0100000 &&
	    !(room->status.stx_mode & 022) &&
	    (is_roots ? rtscope__is_roots(file, room->status.stx_uid) : room->status.stx_uid == owner) &&
	    rtscope__is_locked(file.number))
		bytes = rtscope__read(file, room->session, RTU_SESSION_BYTES_MAX);
	if (!rtscope__is_ours(file))
		return -1;
	rtscope__close_number(file.number);
	return bytes > (long)sizeof(*session) && session->magic == RTU_SESSION_MAGIC &&
	       session->abi_version == RTU_SESSION_VERSION && session->bytes == (uint64_t)bytes - sizeof(*session) &&
	       !room->session[bytes - 1];
}

/* The session of one directory, if its collector lives. Needs `busy`. */
static inline int rtscope__read_session(struct rtscope__room *room, const char *path, uint32_t owner, int is_roots)
{
	int result = -1;

	for (int tries = 0; tries < 8 && result < 0; tries++)
		result = rtscope__try_session(room, path, owner, is_roots);
	return result > 0;
}

/* The session of this user, else that of root; NULL: there is none. Needs `busy`. */
static inline const struct rtu_session *rtscope__find_session(struct rtscope__shared *shared)
{
	struct rtscope__room *room = shared->room;

	/* In another root or mount namespace: it does not know, and must not answer for others. */
	room->session_errno = rtscope__is_at_home() ? 0 : RTSCOPE__ENOENT;
	if (room->session_errno)
		return NULL;
	rtscope__put_name(shared, room->path, "session");
	if (rtscope__read_session(room, room->path, rtscope__user(), 0) ||
	    rtscope__read_session(room, RTSCOPE__ROOTS_SESSION, 0, 1))
		return (const struct rtu_session *)(const void *)room->session;
	return NULL;
}

/* Opens a file of this user's directory, for reading. Its path is not to be on the stack of whoever looks into it. */
static RTSCOPE__NOT_INLINE struct rtscope__file rtscope__open_own(const struct rtscope__shared *shared,
								  const char *name)
{
	char path[RTSCOPE__OWN_PATH_BYTES];

	rtscope__put_name(shared, path, name);
	return rtscope__open(path, RTSCOPE__O_RDONLY | RTSCOPE__O_NONBLOCK, 0);
}

/*
 * Whether this file is the session `id`, and its collector lives: 1; 0: not; -1: it cannot be told, as there is no such file. Closes it. An
 * error in the place of a file is that of opening it.
 */
static RTSCOPE__NOT_INLINE int rtscope__is_session(struct rtscope__file file, uint64_t id, int is_roots)
{
	struct rtscope__owner owner = { 0, ~0u };
	struct rtu_session seen;
	int is = 0;

	if (file.number < 0)
		return rtscope__is_no_session(file.number, is_roots) ? -1 : 1;
	/* The directory of the other one is its user's. */
	if ((!is_roots ||
	     (rtscope__identity_of(file.number, "", &owner) == file.identity && rtscope__is_roots(file, owner.user))) &&
	    rtscope__read(file, &seen, sizeof(seen)) == (long)sizeof(seen))
		is = seen.session == id && rtscope__is_locked(file.number);
	/* Another file of the program's had the number meanwhile: it cannot be told. */
	if (!is && !rtscope__is_ours(file))
		return 1;
	rtscope__close(file);
	return is;
}

/* Whether the collector of the session `id` lives. When that cannot be told (no descriptors, another root), it does. Asked where rtscope__is_at_home() was. */
static RTSCOPE__NOT_INLINE int rtscope__session_lives(const struct rtscope__shared *shared, uint64_t id)
{
	int own = rtscope__is_session(rtscope__open_own(shared, "session"), id, 0);

	if (own > 0 || rtscope__is_session(rtscope__open_roots_session(), id, 1) > 0)
		return 1;
	/* In another root or mount namespace there is no such directory, or another one. */
	return own < 0 && (rtscope__call(__NR_faccessat, RTSCOPE__AT_FDCWD, (long)shared->directory, 0, 0, 0, 0) ||
			   !rtscope__sees_look(shared));
}

#ifdef __cplusplus
}
#endif

#endif

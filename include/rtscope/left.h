/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where libraries are loaded and unloaded: what all threads share is waited for until there is nobody any more who could give it.
 *
 * An event that waits in vain is lost, and counted. A constructor has no other way: the loader would wait for ever, with its lock. A thread can leave with it all the same: by a
 * jump out of a handler of SIGSEGV at the end of its stack, or with the end of a thread group's first thread. Of one that has ended the kernel
 * knows (rtscope__take); of the others it shows what they are at.
 */
#ifndef RTSCOPE_LEFT_H
#define RTSCOPE_LEFT_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "pages.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is known of the thread that is waited for. */
struct rtscope__watched {
	uint32_t tid;
	/* How often in a row it has slept. */
	uint32_t sleeps;
	/* How long it had run at first; 0: not known. */
	uint64_t ran_ns;
};

/* How long a thread of this process has run. */
static inline uint64_t rtscope__ran_ns(uint32_t tid)
{
	char text[64];
	uint64_t ns = 0;
	struct rtscope__file file;
	long bytes;

	rtscope__put(rtscope__put_number(rtscope__put(text, "/proc/self/task/"), tid, 10), "/schedstat");
	file = rtscope__open(text, RTSCOPE__O_RDONLY, 0);
	if (file.number < 0)
		return 0;
	bytes = rtscope__read(file, text, sizeof(text));
	rtscope__close(file);
	for (long i = 0; i < bytes && text[i] >= '0' && text[i] <= '9'; i++)
		ns = ns * 10 + (uint64_t)(text[i] - '0');
	return ns;
}

/*
 * Whether a thread that has what all share has left without giving it: it has jumped out of a handler of what it did itself (of SIGSEGV at the end of its stack), or waits
 * for the end of its process. In there its signals are blocked, it runs for less than a millisecond, and the kernel makes it sleep only where it cannot be
 * interrupted. What cannot be seen is not so; nor of a thread that is stopped, or gets no processor.
 */
static RTSCOPE__NOT_INLINE int rtscope__has_left(struct rtscope__watched *watched)
{
	char text[64], state = 0;
	uint64_t last = 0, blocked = 0;
	struct rtscope__file file;
	int digits = 0;
	long bytes, at = 0;

	rtscope__put(rtscope__put_number(rtscope__put(text, "/proc/self/task/"), watched->tid, 10), "/status");
	file = rtscope__open(text, RTSCOPE__O_RDONLY, 0);
	if (file.number < 0)
		return 0;
	while (digits < 16 &&
	       (bytes = rtscope__call_again(__NR_pread64, file.number, (long)text, sizeof(text), at, 0, 0)) > 0) {
		RTSCOPE__FRESH(text, sizeof(text));
		for (long i = 0; i < bytes && digits < 16; i++) {
			/* "\nState:\t": the letter after it; "SigBlk:\t": 16 hexadecimal digits. */
			if (last == 0x0a53746174653a09)
				state = text[i];
			if (last == 0x536967426c6b3a09 || digits) {
				blocked =
					blocked << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
				digits++;
			}
			last = last << 8 | (unsigned char)text[i];
		}
		at += bytes;
	}
	rtscope__close(file);
	watched->sleeps = state == 'S' ? watched->sleeps + 1 : 0;
	if (digits < 16 || state == 'T' || state == 't')
		return 0;
	return state == 'Z' || (blocked & RTSCOPE__SIGNALS) != RTSCOPE__SIGNALS || watched->sleeps > 10 ||
	       (state == 'R' && watched->ran_ns && rtscope__ran_ns(watched->tid) - watched->ran_ns > 200000000);
}

/* In a constructor or destructor: waits for whoever has it. That may be nobody, in the child of a raw clone; or somebody who never gives it. */
static inline void rtscope__take_surely(struct rtscope__shared *shared)
{
	struct rtscope__watched watched = { 0, 0, 0 };

	while (!rtscope__take(shared, 1000)) {
		uint32_t owner = RTSCOPE__LOAD(shared->busy), had = owner, mine = rtscope__tid();

		if (!RTSCOPE__LOAD(*shared->alive)) {
			RTSCOPE__STORE(shared->busy, 1);
			return;
		}
		/* No handler that has come in between loads libraries: it has jumped. */
		if (owner == mine)
			return;
		if (owner <= 1 || rtscope__confined(shared))
			continue;
		if (owner != watched.tid) {
			watched.tid = owner;
			watched.sleeps = 0;
			watched.ran_ns = rtscope__ran_ns(owner);
		}
		/*
		 * The other one is asked after when it cannot take it again. If it has given it meanwhile, that was before its signals were let
		 * through, and nobody has it now, or somebody else.
		 */
		/* ORDER: acquire; as in rtscope__take(). */
		if (!__atomic_compare_exchange_n(&shared->busy, &had, mine, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		/* ORDER: acquire; pairs with the release in rtscope__give(). */
		if (rtscope__has_left(&watched) && __atomic_load_n(&shared->busy, __ATOMIC_ACQUIRE) == mine)
			return;
		had = mine;
		/* ORDER: release; nothing was changed. */
		__atomic_compare_exchange_n(&shared->busy, &had, owner, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
}

/* The same without a system call: whoever has it does not keep it for long. */
static inline void rtscope__take_without_calls(struct rtscope__shared *shared)
{
	for (int tries = 0; tries < 100000000; tries++) {
		uint32_t owner = 0;

		/* ORDER: acquire; as in rtscope__take(). */
		if (__atomic_compare_exchange_n(&shared->busy, &owner, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
	}
}

#ifdef __cplusplus
}
#endif

#endif

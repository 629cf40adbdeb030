/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which page a thread has, and what a thread may do now. All of it may run in a signal handler, as threads.h says.
 */
#ifndef RTSCOPE_PAGES_H
#define RTSCOPE_PAGES_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "process.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Counts an event of this process that no ring could take. Several threads may. As long as there is no file, which may be for ever (in
 * another root, under Landlock or seccomp), only the look page is seen by a collector.
 */
RTSCOPE__HIDDEN_FUNCTION void rtscope__lost(uint32_t cause)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtu_provider *provider = shared->provider;

	if (!provider)
		return;
	/* ORDER: relaxed; pairs with UserDirectory::lost_without_file (crates/programs/src/directory.rs): a number that only grows. */
	if (RTSCOPE__LOAD(shared->state) == RTSCOPE__HIDDEN_NOW && shared->look != &rtscope__off)
		__atomic_fetch_add(&rtscope__look_page(shared)->lost, 1, __ATOMIC_RELAXED);
	/* ORDER: relaxed; the same with Provider::counters (crates/programs/src/provider.rs). */
	else if (cause < RTU_LOST_CAUSES)
		__atomic_fetch_add(&provider->lost[cause], 1, __ATOMIC_RELAXED);
	else
		__atomic_fetch_add(&provider->more_lost[cause - RTU_LOST_CAUSES], 1, __ATOMIC_RELAXED);
}

/*
 * Whether the program has given up system calls since it started, so that one might end it. A filter that was there before, as
 * containers have one, lets pass what has passed already.
 */
static inline int rtscope__is_sandboxed(const struct rtscope__shared *shared)
{
	return (uint32_t)rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0) != shared->seccomp ||
	       /* Another filter does not change the mode, but whoever adds one gives up privileges first. */
	       (shared->seccomp && !shared->no_new_privs &&
		rtscope__call(__NR_prctl, RTSCOPE__PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) != 0);
}

/* The same, or it has said that it will (RTSCOPE_LAZY=0). */
static inline int rtscope__confined(struct rtscope__shared *shared)
{
	if (!RTSCOPE__LOAD(shared->confined) && rtscope__is_sandboxed(shared))
		RTSCOPE__STORE(shared->confined, 1);
	return RTSCOPE__LOAD(shared->confined) != 0;
}

/* ---- the end of a ring ----------------------------------------------------------------------------------------------- */

/* Whether a ring's file is left for a collector, when its thread or the process is over. */
static inline int rtscope__is_left(struct rtscope__shared *shared, const struct rtu_ring *ring)
{
	struct rtu_provider *provider = shared->provider;

	if (RTSCOPE__LOAD(provider->session) || rtscope__confined(shared))
		return 1;
	/* Its collector was killed; the next one takes what it has left. */
	return RTSCOPE__LOAD(shared->left_rings) && !(RTSCOPE__LOAD(provider->flags) & RTU_FLIGHT) &&
	       RTSCOPE__LOAD(ring->head) != RTSCOPE__LOAD(ring->tail);
}

/*
 * In the place of a ring that has been claimed. It is still there: a fork's child has to know of it for as long as its file is mapped, and the memory of a
 * process is copied before or after anything else here.
 */
#define RTSCOPE__CLAIMED ((uintptr_t)1)

static inline int rtscope__is_claimed(const struct rtu_ring *ring)
{
	return ((uintptr_t)ring & RTSCOPE__CLAIMED) != 0;
}

/* Who claims a ring has it: its thread at its end, one that has found the thread gone, or the end of the process, which unmaps nothing. */
static inline int rtscope__claim(struct rtscope__place *place, struct rtu_ring *ring)
{
	struct rtu_ring *claimed = (struct rtu_ring *)((uintptr_t)ring | RTSCOPE__CLAIMED);

	/* ORDER: acquire; pairs with itself: one of several. */
	return !rtscope__is_claimed(ring) &&
	       __atomic_compare_exchange_n(&place->ring, &ring, claimed, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/*
 * The last of a ring that was claimed: of the calling thread, or of one that is over. Its path is not to be on the stack of whoever makes a
 * ring. Memory of nobody comes in its place before that is free, so a fork's child has no file that it does not know of. A program that may have
 * given up system calls makes only the one that ends it.
 */
static RTSCOPE__NOT_INLINE void rtscope__leave(struct rtscope__shared *shared, struct rtscope__place *place,
					       struct rtu_ring *ring, uint64_t bytes)
{
	char path[RTSCOPE__OWN_PATH_BYTES];

	if (!rtscope__is_left(shared, ring)) {
		/* What the ring itself says, anybody of this user may have written: it fits, and names a file of his. */
		rtscope__path(shared, path, 'r', ring->tid, 1, (uint32_t)ring->number);
		rtscope__remove_file(shared, path);
	}
	/* ORDER: release; pairs with the acquire in Ring::has_ended (crates/programs/src/ring.rs): all records were written before. */
	__atomic_store_n(&ring->ended, 1, __ATOMIC_RELEASE);
	if (!rtscope__confined(shared))
		rtscope__map_over(ring, bytes);
	/* ORDER: release; pairs with rtscope__keep(): what is in the place was used before. */
	__atomic_store_n(&place->ring, (struct rtu_ring *)NULL, __ATOMIC_RELEASE);
	rtscope__unmap(ring, bytes);
}

/* ---- the end of a channel ------------------------------------------------------------------------------------------------ */

/*
 * A thread has no channel any more. The last of a mapping gives its channels back to the kernel: memory of nobody comes in its place before it
 * is in no list, so a fork's child has neither a mapping that it does not know, nor covers what is there next. A program that may have given up
 * system calls makes only the one that the end of a ring makes. Needs `busy`.
 */
static inline void rtscope__drop_channel(struct rtscope__shared *shared, struct rtscope__channel *channel)
{
	struct rtscope__room *room = shared->room;
	struct rtscope__port_page *page = &room->port_pages[channel->page];
	unsigned char *memory = page->memory;

	RTSCOPE__STORE(room->channels[channel->place], (struct rtscope__channel *)NULL);
	page->used &= ~((uint64_t)1 << channel->port_number);
	if (!page->used) {
		if (!rtscope__confined(shared))
			rtscope__map_over(memory, page->bytes);
		RTSCOPE__STORE(page->memory, (unsigned char *)NULL);
		rtscope__unmap(memory, page->bytes);
	}
	rtscope__unmap(channel, sizeof(*channel));
}

/* ---- which page a thread has --------------------------------------------------------------------------------------------- */

static inline int rtscope__is_page(const struct rtscope__thread *thread)
{
	return thread && thread != &rtscope__none && thread != &rtscope__in_setup && thread != &rtscope__ended &&
	       thread != &rtscope__pageless;
}

/*
 * Takes an entry whose thread is gone, with all that it had. Then it is the caller's, and says rtscope__in_setup. A thread that has a key
 * says so at its end; of others the kernel knows. `mine`: it has the caller's thread pointer, so its thread is gone, though the
 * kernel may not say so yet; or it was made by a bare clone(2), and then what it had stays.
 */
static inline int rtscope__take_over(struct rtscope__shared *shared, struct rtscope__entry *entry, int mine)
{
	/* ORDER: acquire; pairs with the release in rtscope__set(): tid and keyless are those of this page, or newer. */
	struct rtscope__thread *thread = __atomic_load_n(&entry->thread, __ATOMIC_ACQUIRE), *found = thread;
	uint32_t tid = RTSCOPE__LOAD(entry->tid);
	int is_gone;

	if (!thread || thread == &rtscope__in_setup ||
	    (!mine && rtscope__is_page(thread) && !RTSCOPE__LOAD(entry->keyless)))
		return 0;
	is_gone = rtscope__is_gone(shared, tid);
	if (!is_gone && !mine)
		return 0;
	/* ORDER: acquire; as above. One of several that see it has it from here on. */
	if (!__atomic_compare_exchange_n(&entry->thread, &found, &rtscope__in_setup, 0, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return 0;
	/* Another one had it in between. */
	if (RTSCOPE__LOAD(entry->tid) != tid) {
		RTSCOPE__STORE(entry->thread, thread);
		return 0;
	}
	if (rtscope__is_page(thread) && is_gone) {
		struct rtscope__place *place = &shared->room->places[thread->place];
		struct rtu_ring *ring = RTSCOPE__LOAD(place->ring);
		uint64_t bytes = place->bytes;

		/* Without a ring it is a page that a thread has kept; its place may be another's. */
		if (ring && place->thread == thread && rtscope__claim(place, ring))
			rtscope__leave(shared, place, ring, bytes);
		if (thread->channel && rtscope__take(shared, 20)) {
			rtscope__drop_channel(shared, thread->channel);
			rtscope__give(shared);
		}
		rtscope__unmap(thread, sizeof(*thread));
	}
	return 1;
}

/*
 * The entry of the calling thread in the table, where a library leads and there is no variable of the thread; NULL: it has none, or
 * there is no space. `make`: with this thread's number, in one that is free, or that of a thread that is gone. A handler of this thread
 * may look for it at any point, and finds the same one.
 */
static inline struct rtscope__entry *rtscope__entry_of(struct rtscope__shared *shared, uint32_t make)
{
	uintptr_t pointer = rtscope__thread_pointer();
	uint64_t at = pointer * 0x9e3779b97f4a7c15ULL >> 40;
	uint32_t tries, asked = 0;

	for (tries = 0; tries < RTSCOPE__PROBES; tries++) {
		struct rtscope__entry *entry = &shared->room->entries[(at + tries) % RTSCOPE__ENTRIES];
		uintptr_t found = RTSCOPE__LOAD(entry->pointer);

		if (found == pointer)
			return entry;
		if (!found)
			break;
	}
	/* There is none. Those that were never used are left for when there are no others, so that searches stay short. */
	for (uint32_t i = 0; make && i <= tries && i < RTSCOPE__PROBES; i++) {
		struct rtscope__entry *entry = &shared->room->entries[(at + i) % RTSCOPE__ENTRIES];
		uintptr_t found = RTSCOPE__LOAD(entry->pointer);

		/* ORDER: relaxed; a place is only claimed. What is in it is this thread's. */
		if (!found && __atomic_compare_exchange_n(&entry->pointer, &found, pointer, 0, __ATOMIC_RELAXED,
							  __ATOMIC_RELAXED)) {
			RTSCOPE__STORE(entry->tid, make);
			return entry;
		}
		/* Some of them: each is a system call. */
		if (asked < 16 && RTSCOPE__LOAD(entry->thread) && ++asked && rtscope__take_over(shared, entry, 0)) {
			RTSCOPE__STORE(entry->tid, make);
			RTSCOPE__STORE(entry->pointer, pointer);
			return entry;
		}
		/* Somebody else was faster. */
		tries += i == tries;
	}
	return NULL;
}

/* The calling thread's page; one without a ring when it has none. */
RTSCOPE__HIDDEN_FUNCTION struct rtscope__thread *rtscope__find(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread;
	struct rtscope__entry *entry;

	if (shared->offset)
		return rtscope__tls_word(shared->offset);
	if (!shared->room)
		return &rtscope__none;
	entry = rtscope__entry_of(shared, 0);
	if (!entry)
		return &rtscope__none;
	/* ORDER: acquire; pairs with the release in rtscope__set(): whose page this is, the entry's pointer says. */
	thread = __atomic_load_n(&entry->thread, __ATOMIC_ACQUIRE);
	if (!thread || RTSCOPE__LOAD(entry->pointer) != rtscope__thread_pointer())
		return &rtscope__none;
	/* Another thread had this thread pointer before, and did not tell that it ended, or has. */
	if ((!rtscope__is_page(thread) || RTSCOPE__LOAD(entry->keyless)) && RTSCOPE__LOAD(entry->tid) != rtscope__tid())
		return &rtscope__none;
	return thread;
}

/* False: it cannot be kept. */
static inline int rtscope__set(struct rtscope__shared *shared, struct rtscope__thread *thread)
{
	struct rtscope__entry *entry;
	uint32_t tid;

	if (shared->offset) {
		RTSCOPE__STORE(*(struct rtscope__thread **)(rtscope__thread_pointer() + (uintptr_t)shared->offset),
			       thread);
		return 1;
	}
	tid = rtscope__tid();
	for (int tries = 0; tries < 8; tries++) {
		entry = rtscope__entry_of(shared, tid);
		if (!entry)
			return 0;
		/* That of a thread which had this thread pointer before: others may be taking it at this moment. */
		if (RTSCOPE__LOAD(entry->tid) != tid && RTSCOPE__LOAD(entry->thread)) {
			if (!rtscope__take_over(shared, entry, 1))
				continue;
			RTSCOPE__STORE(entry->tid, tid);
			/* It may have been given to yet another thread pointer before it was taken. */
			RTSCOPE__STORE(entry->pointer, rtscope__thread_pointer());
		}
		RTSCOPE__STORE(entry->tid, tid);
		RTSCOPE__STORE(entry->keyless, !rtscope__is_page(thread) ? 0 :
					       !thread->ring && thread->channel ?
									   thread->channel->keyless :
									   shared->room->places[thread->place].keyless);
		/* ORDER: release; pairs with the acquire in rtscope__find(): pointer, tid and keyless are written. */
		__atomic_store_n(&entry->thread, thread, __ATOMIC_RELEASE);
		return 1;
	}
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif

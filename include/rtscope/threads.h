/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The leader's part for threads: a ring for each, what happens when they end, and the slow half of a reservation. All of it may run in
 * a signal handler: it takes no lock of others, allocates nothing from the heap, and needs at most 1 KiB of stack (-O2).
 */
#ifndef RTSCOPE_THREADS_H
#define RTSCOPE_THREADS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "process.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counts an event of this process that no ring could take. Several threads may. */
RTSCOPE__HIDDEN void rtscope__lost(uint32_t cause)
{
	struct rtu_provider *provider = rtscope__shared.provider;

	/* ORDER: relaxed; pairs with Provider::counters (crates/user/src/provider.rs): a number that only grows. */
	if (provider && cause < RTU_LOST_CAUSES)
		__atomic_fetch_add(&provider->lost[cause], 1, __ATOMIC_RELAXED);
	else if (provider)
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

/* ---- which page a thread has --------------------------------------------------------------------------------------------- */

/*
 * The place of the calling thread in the table, where a library leads and there is no variable of the thread; NULL: it has none, or
 * there is no space. A handler of this thread may do the same at any point, and finds or makes the same place.
 */
static inline struct rtscope__entry *rtscope__entry_of(struct rtscope__shared *shared, int make)
{
	uintptr_t pointer = rtscope__thread_pointer();
	uint64_t at = pointer * 0x9e3779b97f4a7c15ULL >> 40;

	for (uint32_t tries = 0; tries < 256; tries++) {
		struct rtscope__entry *entry = &shared->room->entries[(at + tries) % RTSCOPE__ENTRIES];
		uintptr_t found = RTSCOPE__LOAD(entry->pointer);

		if (found == pointer)
			return entry;
		/* ORDER: relaxed; a place is only claimed. What is in it is this thread's. */
		if (!found && make &&
		    __atomic_compare_exchange_n(&entry->pointer, &found, pointer, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return entry;
		if (found == pointer)
			return entry;
		if (!found && !make)
			return NULL;
	}
	return NULL;
}

/* The calling thread's page; one without a ring when it has none. */
RTSCOPE__HIDDEN struct rtscope__thread *rtscope__find(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread;
	struct rtscope__entry *entry;

	if (shared->offset)
		return rtscope__tls_word(shared->offset);
	if (!shared->room)
		return &rtscope__none;
	entry = rtscope__entry_of(shared, 0);
	thread = entry ? RTSCOPE__LOAD(entry->thread) : NULL;
	/* Another thread had this thread pointer before, and did not tell that it ended, or has. */
	if (thread && (thread == &rtscope__ended || shared->room->places[thread->place].keyless) &&
	    entry->tid != (uint32_t)rtscope__call(__NR_gettid, 0, 0, 0, 0, 0, 0))
		thread = NULL;
	return thread ? thread : &rtscope__none;
}

/* False: it cannot be kept. */
static inline int rtscope__set(struct rtscope__shared *shared, struct rtscope__thread *thread)
{
	struct rtscope__entry *entry;

	if (shared->offset) {
		RTSCOPE__STORE(*(struct rtscope__thread **)(rtscope__thread_pointer() + (uintptr_t)shared->offset),
			       thread);
		return 1;
	}
	entry = rtscope__entry_of(shared, 1);
	if (!entry)
		return 0;
	RTSCOPE__STORE(entry->tid, (uint32_t)rtscope__call(__NR_gettid, 0, 0, 0, 0, 0, 0));
	RTSCOPE__STORE(entry->thread, thread);
	return 1;
}

/* ---- rings --------------------------------------------------------------------------------------------------------- */

/* A power of two that a ring can have, from what was asked for. */
static inline uint64_t rtscope__ring_bytes(uint64_t asked)
{
	uint64_t bytes = RTU_RING_BYTES_MIN;

	while (bytes < asked && bytes < RTU_RING_BYTES_MAX)
		bytes *= 2;
	return bytes;
}

/* The page that the thread has for its life, or NULL. */
static inline struct rtscope__thread *rtscope__new_page(void)
{
	long page = rtscope__map(sizeof(struct rtscope__thread),
				 RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS | RTSCOPE__MAP_POPULATE, -1);

	if (rtscope__is_error(page))
		return NULL;
	/* Without it a child would write into its parent's ring. */
	if (rtscope__call(__NR_madvise, page, sizeof(struct rtscope__thread), RTSCOPE__MADV_WIPEONFORK, 0, 0, 0)) {
		rtscope__unmap((void *)page, sizeof(struct rtscope__thread));
		return NULL;
	}
	return (struct rtscope__thread *)page;
}

static inline void rtscope__fill_ring(struct rtscope__shared *shared, struct rtu_ring *ring, uint64_t bytes,
				      uint32_t tid, uint32_t number)
{
	uint32_t count = shared->sub_buffers;

	while (count > 2 && bytes / count < RTU_SUB_BYTES_MIN)
		count /= 2;
	ring->magic = RTU_RING_MAGIC;
	ring->abi_version = RTU_ABI_VERSION;
	ring->birth_ns = shared->birth_ns;
	ring->pid = shared->pid;
	ring->tid = tid;
	ring->number = number;
	ring->ring_bytes = (uint32_t)bytes;
	ring->sub_buffers = count;
	ring->clock = shared->clock;
	/* Any number will do: so that old bytes of a program that records its input are not taken for records. */
	ring->key = (uint32_t)(rtscope__now(shared->clock) >> 4) * 0x9e3779b1u >> 8;
	rtscope__thread_name(ring->comm);
	/* ORDER: release; pairs with the acquire in Ring::open (crates/user/src/ring.rs): what is above is there when this is. */
	__atomic_store_n(&ring->ready, 1, __ATOMIC_RELEASE);
}

/* Notes a new ring. False: there are too many. */
static inline int rtscope__keep(struct rtscope__shared *shared, struct rtscope__thread *thread, struct rtu_ring *ring,
				uint32_t tid)
{
	for (uint32_t i = 0; i < RTSCOPE__RINGS_MAX; i++) {
		struct rtscope__place *place = &shared->room->places[i];
		struct rtu_ring *none = NULL;
		uint32_t places = RTSCOPE__LOAD(shared->places);

		/* ORDER: relaxed; only a free place is claimed. What is in it is its thread's until that is gone. */
		if (RTSCOPE__LOAD(place->ring) ||
		    !__atomic_compare_exchange_n(&place->ring, &none, ring, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		place->thread = thread;
		place->bytes = thread->bytes;
		place->keyless = 0;
		RTSCOPE__STORE(place->tid, tid);
		thread->place = i;
		/* ORDER: relaxed; grows to at least this. */
		while (places <= i && !__atomic_compare_exchange_n(&shared->places, &places, i + 1, 0, __ATOMIC_RELAXED,
								   __ATOMIC_RELAXED))
			;
		return 1;
	}
	return 0;
}

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

/* The last of a ring: of the calling thread, or of one that is over. Its path is not to be on the stack of whoever makes a ring. */
static RTSCOPE__NOT_INLINE void rtscope__leave(struct rtscope__shared *shared, struct rtu_ring *ring, uint64_t bytes)
{
	char path[RTSCOPE__PATH_BYTES];

	if (!rtscope__is_left(shared, ring)) {
		rtscope__path(shared, path, 'r', ring->tid, 1, ring->number);
		rtscope__unlink(path);
	}
	/* ORDER: release; pairs with the acquire in Ring::has_ended (crates/user/src/ring.rs): all records were written before. */
	__atomic_store_n(&ring->ended, 1, __ATOMIC_RELEASE);
	rtscope__unmap(ring, bytes);
}

/*
 * A ring has no place any more: before it is unmapped, so that neither a fork's child nor the end of the process looks into what is there
 * then. False: the process ends, and has it now; nobody unmaps it.
 */
static inline int rtscope__free_place(struct rtscope__place *place, struct rtu_ring *ring)
{
	/* ORDER: release; pairs with the claim in rtscope__keep(): what is in the place was used before. */
	return __atomic_compare_exchange_n(&place->ring, &ring, (struct rtu_ring *)NULL, 0, __ATOMIC_RELEASE,
					   __ATOMIC_RELAXED);
}

/*
 * Threads without a key end without a word (threads that the program made by a system call do, too). When somebody needs a new ring, some
 * of them are looked for. Only where a thread's variable is gone with it, so that nobody can come back to its page.
 */
static inline void rtscope__reap(struct rtscope__shared *shared, uint32_t from)
{
	uint32_t places = RTSCOPE__LOAD(shared->places);

	for (uint32_t i = 0; i < places && i < 8 && shared->offset; i++) {
		struct rtscope__place *place = &shared->room->places[(from * 8 + i) % places];
		struct rtu_ring *ring = RTSCOPE__LOAD(place->ring);
		struct rtscope__thread *thread = place->thread;
		uint32_t tid = RTSCOPE__LOAD(place->tid), keyless = 1;
		uint64_t bytes;

		if (!ring || !tid || !RTSCOPE__LOAD(place->keyless) ||
		    rtscope__call(__NR_tgkill, shared->pid, tid, 0, 0, 0, 0) != -RTSCOPE__ESRCH)
			continue;
		/* ORDER: relaxed; one of several that see it takes it. */
		if (!__atomic_compare_exchange_n(&place->keyless, &keyless, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		bytes = place->bytes;
		if (!rtscope__free_place(place, ring))
			continue;
		rtscope__leave(shared, ring, bytes);
		rtscope__unmap(thread, sizeof(*thread));
	}
}

/* Whether another ring fits between two beats of the collector. One always does, also of the largest. */
static inline int rtscope__fits_beat(struct rtscope__shared *shared)
{
	/* ORDER: relaxed; a counter. */
	uint64_t count = __atomic_fetch_add(&shared->beat_rings, 1, __ATOMIC_RELAXED);
	uint64_t bytes =
		rtscope__ring_bytes(shared->provider->ring_bytes ? shared->provider->ring_bytes : shared->ring_bytes);

	return count < RTU_BEAT_RINGS && count * bytes < RTU_BEAT_BYTES;
}

/*
 * Whether rings can be made now. Not for a session that is over, which is taken back then; not many while the collector says nothing: it
 * may be stopped, and the rings of threads that end would pile up.
 */
static inline int rtscope__may_record(struct rtscope__shared *shared, int asked, struct rtscope__answer *answer)
{
	struct rtu_provider *provider = shared->provider;
	uint64_t session = RTSCOPE__LOAD(provider->session), beat = RTSCOPE__LOAD(provider->beat), now;

	if (!session || !rtscope__session_lives(shared, session)) {
		if (session && rtscope__take(shared, 20)) {
			uint64_t over = session;

			/* ORDER: relaxed; so that a new collector's stays. It writes its words after its session. */
			if (__atomic_compare_exchange_n(&provider->session, &over, 0, 0, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED)) {
				RTSCOPE__STORE(shared->left_rings, 1);
				rtscope__disable(shared, session);
			}
			rtscope__give(shared);
		}
		answer->error = RTSCOPE__UNWANTED;
		return asked;
	}
	now = rtscope__monotonic(RTSCOPE__CLOCK_MONOTONIC);
	if (RTSCOPE__LOAD(shared->beat) != beat || !RTSCOPE__LOAD(shared->beat_since_ns)) {
		RTSCOPE__STORE(shared->beat, beat);
		RTSCOPE__STORE(shared->beat_since_ns, now);
		RTSCOPE__STORE(shared->silent_rings, 0);
		RTSCOPE__STORE(shared->beat_rings, 0);
		RTSCOPE__STORE(shared->quiet_session, (uint64_t)0);
	}
	if (now - RTSCOPE__LOAD(shared->beat_since_ns) < RTU_QUIET_NS && rtscope__fits_beat(shared))
		return 1;
	/* ORDER: relaxed; a counter. */
	if (now - RTSCOPE__LOAD(shared->beat_since_ns) >= RTU_QUIET_NS &&
	    __atomic_fetch_add(&shared->silent_rings, 1, __ATOMIC_RELAXED) < RTU_SILENT_RINGS)
		return 1;
	RTSCOPE__STORE(shared->quiet_session, session);
	answer->cause = RTU_LOST_NOBODY;
	answer->error = RTSCOPE__EAGAIN;
	return 0;
}

/* Makes the calling thread's ring in `thread`. 0, or an errno. */
static inline int rtscope__make_ring(struct rtscope__shared *shared, struct rtscope__thread *thread)
{
	char path[RTSCOPE__PATH_BYTES];
	uint64_t bytes =
		rtscope__ring_bytes(shared->provider->ring_bytes ? shared->provider->ring_bytes : shared->ring_bytes);
	/* ORDER: relaxed; each thread only needs a number of its own. */
	uint32_t tid = (uint32_t)rtscope__call(__NR_gettid, 0, 0, 0, 0, 0, 0),
		 number = __atomic_fetch_add(&shared->next_ring, 1, __ATOMIC_RELAXED);
	struct rtu_ring *ring;
	long memory;

	rtscope__path(shared, path, 'r', tid, 1, number);
	rtscope__reap(shared, number);
	memory = rtscope__new_file(path, RTU_RING_OFFSET + bytes, NULL);
	if (rtscope__is_error(memory))
		return (int)-memory;
	ring = (struct rtu_ring *)memory;
	thread->bytes = RTU_RING_OFFSET + bytes;
	if (!rtscope__keep(shared, thread, ring, tid)) {
		rtscope__unlink(path);
		rtscope__unmap(ring, RTU_RING_OFFSET + bytes);
		return RTSCOPE__EMFILE;
	}
	if (shared->lock_memory) {
		rtscope__call(__NR_mlock, memory, (long)(RTU_RING_OFFSET + bytes), 0, 0, 0, 0);
		rtscope__call(__NR_mlock, (long)thread, sizeof(*thread), 0, 0, 0, 0);
	}
	rtscope__fill_ring(shared, ring, bytes, tid, number);
	thread->data = (unsigned char *)ring + RTU_RING_OFFSET;
	thread->mask = bytes - 1;
	thread->sub_mask = bytes / ring->sub_buffers - 1;
	thread->shift = (uint32_t)__builtin_ctzll(bytes);
	thread->key = ring->key;
	thread->clock = shared->clock;
	thread->cpu_place = &rtscope__no_cpu;
	thread->cpu = RTU_CPU_UNKNOWN;
	/* struct rseq: cpu_id_start, cpu_id (linux/rseq.h). 0 bytes: not registered. */
	if (&__rseq_offset && &__rseq_size && __rseq_size >= 8)
		thread->cpu_place =
			(const uint32_t *)(const void *)((char *)__builtin_thread_pointer() + __rseq_offset + 4);
	thread->may_block = shared->allows_blocking;
	/* A fork in the middle of an event may have left something. */
	RTSCOPE__STORE(thread->limit, 0);
	RTSCOPE__STORE(thread->sync, 0);
	/*
	 * limit, sync are 0: the first event writes a sync record. ORDER: release; pairs with the load of `ring` in
	 * rtscope__reserve() by a handler of this thread: it finds the fields above written.
	 */
	__atomic_store_n(&thread->ring, ring, __ATOMIC_RELEASE);
	/* ORDER: relaxed; a number that only grows, as in rtscope__lost(). */
	__atomic_fetch_add(&shared->provider->rings_made, 1, __ATOMIC_RELAXED);
	return 0;
}

/*
 * Where a library leads: the thread that had this thread pointer before ended without a word (it had no key). Its ring is over. Only of a
 * thread that is gone: one that was made by a bare clone(2) may share its thread pointer with another.
 */
static inline void rtscope__end_predecessor(struct rtscope__shared *shared)
{
	struct rtscope__entry *entry = shared->offset ? NULL : rtscope__entry_of(shared, 0);
	struct rtscope__thread *thread = entry ? RTSCOPE__LOAD(entry->thread) : NULL;
	struct rtscope__place *place;
	struct rtu_ring *ring;
	uint64_t bytes;

	if (!thread || entry->tid == (uint32_t)rtscope__call(__NR_gettid, 0, 0, 0, 0, 0, 0))
		return;
	place = &shared->room->places[thread->place];
	ring = RTSCOPE__LOAD(place->ring);
	bytes = place->bytes;
	if (!ring || place->thread != thread || !RTSCOPE__LOAD(place->keyless) ||
	    rtscope__call(__NR_tgkill, shared->pid, entry->tid, 0, 0, 0, 0) != -RTSCOPE__ESRCH ||
	    !rtscope__free_place(place, ring))
		return;
	RTSCOPE__STORE(entry->thread, (struct rtscope__thread *)NULL);
	rtscope__leave(shared, ring, bytes);
	rtscope__unmap(thread, sizeof(*thread));
}

/* Whether the event `id` is enabled. Needs `busy`. */
static inline int rtscope__is_enabled(const struct rtscope__shared *shared, uint32_t id)
{
	for (struct rtscope__object *object = shared->objects; object; object = object->next) {
		if (id - object->first_id < rtscope__events(object))
			return object->provider && RTSCOPE__LOAD(rtscope__words(object)[id - object->first_id]);
	}
	return 0;
}

/*
 * The look page says that there may be a session, or a thread asks for a ring: makes the files of a process that has none. False: nothing
 * can be recorded, or the event `id` is not wanted.
 */
static inline int rtscope__look(struct rtscope__shared *shared, int asked, uint32_t id, struct rtscope__answer *answer)
{
	uint32_t look = RTSCOPE__LOAD(*shared->look);
	const struct rtu_session *session;
	int is_enabled;

	answer->cause = RTU_LOST_IN_SETUP;
	if (!rtscope__take(shared, 20))
		return 0;
	if (shared->state == RTSCOPE__HIDDEN_NOW && (asked || shared->refused_look != look || !look)) {
		session = rtscope__find_session(shared);
		if (!session && !asked && (shared->room->session_errno || !rtscope__sees_look(shared))) {
			int why = shared->room->session_errno;

			/*
			 * No descriptor left, for example, or another root: it does not know, and must not answer for others. If there is
			 * somebody, let him know.
			 */
			rtscope__give_up(shared, why ? why : RTSCOPE__ENOENT);
			shared->refused_look = look;
			answer->cause = RTU_LOST_NO_FILE;
			rtscope__give(shared);
			return 0;
		}
		if (!session && !asked) {
			/* ORDER: relaxed; a collector that begins at this moment has written another number, and that stays. */
			if (look)
				__atomic_compare_exchange_n((uint32_t *)(uintptr_t)shared->look, &look, 0, 0,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
			answer->error = RTSCOPE__UNWANTED;
			rtscope__give(shared);
			return 0;
		}
		answer->error = (int)-rtscope__show(shared);
		if (answer->error <= 0)
			answer->error = RTSCOPE__EAGAIN;
		else
			shared->refused_look = look;
		/* What is lost from now on is what the session wants; what it does not want costs no more. */
		session = shared->state == RTSCOPE__HIDDEN_NOW ? rtscope__find_session(shared) : NULL;
		for (struct rtscope__object *object = shared->objects; object && session; object = object->next) {
			if (object->provider) {
				rtscope__enable(object, session);
				rtscope__point(object, rtscope__words(object), 0);
			}
		}
	}
	is_enabled = asked || rtscope__is_enabled(shared, id);
	answer->cause = RTU_LOST_NO_FILE;
	if (!is_enabled)
		answer->error = RTSCOPE__UNWANTED;
	is_enabled &= shared->state == RTSCOPE__SHOWN;
	rtscope__give(shared);
	return is_enabled;
}

/* Whether this thread is told when it ends: the C library must not allocate for that, as it does for later keys. */
static inline int rtscope__will_be_told(const struct rtscope__shared *shared, struct rtscope__thread *thread, int asked)
{
#if defined(__GLIBC__)
	/* PTHREAD_KEY_2NDLEVEL_SIZE */
	if (shared->key >= 32 && !asked)
		return 0;
#else
	(void)asked;
#endif
	return shared->has_key && !rtscope__key_set(shared->key, thread);
}

/* Makes a ring for a thread that has none, if there is to be one. `thread`: &rtscope__none, or a page. */
static inline struct rtscope__thread *rtscope__new_ring(struct rtscope__shared *shared, struct rtscope__thread *thread,
							int asked, struct rtscope__answer *answer)
{
	struct rtu_provider *provider = shared->provider;

	if (!rtscope__may_record(shared, asked, answer))
		return &rtscope__none;
	if (thread == &rtscope__none)
		thread = rtscope__new_page();
	answer->error = thread ? rtscope__make_ring(shared, thread) : RTSCOPE__ENOMEM;
	if (!thread)
		thread = &rtscope__none;
	if (!answer->error) {
		shared->room->places[thread->place].keyless = !rtscope__will_be_told(shared, thread, asked);
		return thread;
	}
	/* ORDER: relaxed; as in rtscope__lost(). */
	__atomic_fetch_add(&provider->rings_refused, 1, __ATOMIC_RELAXED);
	RTSCOPE__STORE(provider->refused_errno, (uint32_t)answer->error);
	if (thread != &rtscope__none) {
		/* Not 0, which a fork leaves. */
		thread->why = RTU_LOST_CAUSES;
		thread->session = RTSCOPE__LOAD(provider->session);
	}
	return thread;
}

/*
 * The calling thread's page, with a ring if there can be one. `asked`: by rtscope_thread_init(), so system calls are allowed.
 * `id`: the event that needs it. `answer`: why there is no ring.
 */
RTSCOPE__HIDDEN struct rtscope__thread *rtscope__thread_page(int asked, uint32_t id, struct rtscope__answer *answer)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = rtscope__find();
	struct rtu_provider *provider = shared->provider;
	uint64_t signals;

	answer->error = 0;
	if (thread->ring)
		return thread;
	answer->error = RTSCOPE__EAGAIN;
	answer->cause = thread == &rtscope__in_setup ? RTU_LOST_IN_SETUP : RTU_LOST_NO_RING;
	if (thread == &rtscope__in_setup || thread == &rtscope__ended || !provider || !shared->alive)
		return thread;
	if (!RTSCOPE__LOAD(*shared->alive)) {
		answer->cause = RTU_LOST_IN_CHILD;
		return &rtscope__none;
	}
	/* It could not make files for this look: tried again only when there is another, and that is seen now and then. */
	if (!asked && RTSCOPE__LOAD(shared->state) == RTSCOPE__HIDDEN_NOW && RTSCOPE__LOAD(shared->refused_look) &&
	    ++shared->quiet_events % 1024 != 0) {
		answer->cause = RTU_LOST_NO_FILE;
		return thread;
	}
	/* Nobody empties rings: looked at again only now and then. */
	if (!asked && RTSCOPE__LOAD(shared->quiet_session) &&
	    RTSCOPE__LOAD(shared->quiet_session) == RTSCOPE__LOAD(provider->session) &&
	    RTSCOPE__LOAD(shared->beat) == RTSCOPE__LOAD(provider->beat) && ++shared->quiet_events % 1024 != 0) {
		answer->cause = RTU_LOST_NOBODY;
		return thread;
	}
	/* It has failed before: not again for each event. */
	if (!asked && thread != &rtscope__none && thread->session == RTSCOPE__LOAD(provider->session) && thread->why)
		return thread;
	if (!asked && (!shared->lazy || RTSCOPE__LOAD(provider->flags) & RTU_NO_LAZY || rtscope__confined(shared)))
		return thread;
	signals = rtscope__block_signals();
	rtscope__end_predecessor(shared);
	if (!rtscope__set(shared, &rtscope__in_setup)) {
		answer->error = RTSCOPE__EMFILE;
		thread = &rtscope__none;
	} else {
		/* ORDER: acquire; pairs with the release in rtscope__show(). */
		if (__atomic_load_n(&shared->state, __ATOMIC_ACQUIRE) == RTSCOPE__SHOWN ||
		    rtscope__look(shared, asked, id, answer))
			thread = rtscope__new_ring(shared, thread, asked, answer);
		/* ORDER: signal fence; a handler that finds the page finds it filled. */
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		rtscope__set(shared, thread);
	}
	rtscope__let_signals(signals);
	return thread;
}

/* Whether a blocking collector may make this thread wait: never one with a real-time policy. */
static inline int rtscope__may_wait(void)
{
	/* 0x40000000: SCHED_RESET_ON_FORK */
	long policy = rtscope__call(__NR_sched_getscheduler, 0, 0, 0, 0, 0, 0) & ~0x40000000L;

	/* SCHED_OTHER, SCHED_BATCH, SCHED_IDLE */
	return policy == 0 || policy == 3 || policy == 5;
}

/*
 * Waits a little while the ring is full. False: this thread must not wait, or there is no collector any more to empty it. A
 * collector that ends takes the flag back; one that was killed cannot, so its silence tells. Its number would not: it may mean
 * another process here, in a container.
 */
RTSCOPE__HIDDEN int rtscope__wait(struct rtscope__thread *thread, struct rtscope__waiting *state)
{
	struct rtu_provider *provider = rtscope__shared.provider;
	struct timespec pause = { 0, 100000 };
	uint64_t beat, now;

	if (!thread->may_block || !provider)
		return 0;
	beat = RTSCOPE__LOAD(provider->beat);
	if (thread->was_silent && thread->silent_beat == beat)
		return 0;
	now = rtscope__monotonic(RTSCOPE__CLOCK_MONOTONIC);
	if (!state->since_ns && !rtscope__may_wait())
		return 0;
	if (!state->since_ns || state->beat != beat) {
		state->since_ns = now;
		state->beat = beat;
	}
	if (now - state->since_ns > RTU_SILENCE_NS) {
		thread->silent_beat = beat;
		thread->was_silent = 1;
		return 0;
	}
	rtscope__count(&thread->ring->waits);
	rtscope__call(__NR_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
	return 1;
}

/* Reserves a record when that takes more than a place. Also the first event of a thread. */
RTSCOPE__HIDDEN struct rtscope__record rtscope__reserve_slowly(uint32_t id, uint64_t bytes)
{
	const struct rtscope__record nothing = { NULL, 0 };
	struct rtscope__shared *leader = rtscope__leader;
	struct rtscope__thread *thread;
	struct rtscope__record record = { NULL, 0 };
	struct rtscope__waiting waiting = { 0, 0 };
	struct rtscope__answer answer;

	if (!leader)
		return nothing;
	/*
	 * ORDER: acquire; pairs with the release of `enabled` in Provider::enable (crates/user/src/provider.rs), of which RTSCOPE_EVENT
	 * (event.h) has seen the value: session, flags and ring_bytes are those of the collector that enabled the event. On x86 nothing.
	 */
	RTSCOPE__FENCE_ACQUIRE();
	if (bytes > RTU_RECORD_BYTES_MAX) {
		leader->lost(RTU_LOST_TOO_LARGE);
		return nothing;
	}
	thread = leader->find();
	if (!thread->ring) {
		thread = leader->thread(0, id, &answer);
		if (!thread->ring) {
			if (answer.error != RTSCOPE__UNWANTED)
				leader->lost(answer.cause);
			return nothing;
		}
	}
	for (;;) {
		uint32_t flags = RTSCOPE__LOAD(*leader->flags);
		struct rtu_ring *ring = RTSCOPE__LOAD(thread->ring);
		enum rtscope__step step;

		/* A handler has forked, and this is the child. */
		if (!ring) {
			leader->lost(RTU_LOST_IN_CHILD);
			return nothing;
		}
		step = rtscope__step(thread, ring, id, bytes, flags & RTU_FLIGHT, &record);
		if (step == RTSCOPE__DONE)
			break;
		if (step == RTSCOPE__AGAIN)
			continue;
		if (flags & RTU_BLOCKING && leader->wait(thread, &waiting))
			continue;
		rtscope__count(&ring->lost);
		break;
	}
	return record;
}

/* The calling thread writes no more. */
RTSCOPE__HIDDEN void rtscope__end_ring(struct rtscope__thread *thread)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtu_ring *ring = thread->ring;
	uint64_t signals;

	if (!ring)
		return;
	/* A fork in a handler would not know what is mapped. */
	signals = rtscope__block_signals();
	thread->why = RTU_LOST_CAUSES;
	thread->session = ~0ULL;
	RTSCOPE__STORE(thread->limit, 0);
	RTSCOPE__STORE(thread->ring, (struct rtu_ring *)NULL);
	if (rtscope__free_place(&shared->room->places[thread->place], ring))
		rtscope__leave(shared, ring, thread->bytes);
	rtscope__let_signals(signals);
}

/* The last of a thread, by its key's destructor. Other destructors may still record, so it is put off as long as possible. */
RTSCOPE__HIDDEN void rtscope__end_thread(void *page)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = (struct rtscope__thread *)page;

	/* A page from before a fork: something interrupted may still stand in it (life.h). */
	if (thread != rtscope__find())
		return;
	if (++thread->destructions < RTSCOPE__KEY_ROUNDS && !rtscope__key_set(shared->key, page))
		return;
	rtscope__end_ring(thread);
	rtscope__set(shared, &rtscope__ended);
	/* ORDER: signal fence; from here on a handler finds rtscope__ended, before the page is unmapped. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	rtscope__unmap(thread, sizeof(*thread));
}

#ifdef __cplusplus
}
#endif

#endif

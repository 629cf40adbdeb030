/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Rings: one for each thread that records. They are made, kept in a list, and given up. All of it may run in a signal handler, as
 * threads.h says.
 */
#ifndef RTSCOPE_RINGS_H
#define RTSCOPE_RINGS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "pages.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/*
 * Where the kernel writes on which CPU this thread runs: struct rseq, which the C library registers for threads that it makes, and nobody for
 * those of a raw clone(2). The kernel is asked: it refuses to unregister an area by a wrong signature only if it is this thread's.
 */
static inline const uint32_t *rtscope__find_cpu(void)
{
	char *area;

	/* 0 bytes: the C library registers none. */
	if (!&__rseq_offset || !&__rseq_size || __rseq_size < 8)
		return &rtscope__no_cpu;
	area = (char *)rtscope__thread_pointer() + __rseq_offset;
	/* As large as it was registered: the C library gives 32 bytes or more, in steps of 32. */
	for (long bytes = 32; bytes <= 256; bytes += 32) {
		/* RSEQ_FLAG_UNREGISTER, and nobody's signature. */
		if (rtscope__call(__NR_rseq, (long)area, bytes, 1, 0x72747363, 0, 0) == -RTSCOPE__EPERM)
			/* cpu_id_start, cpu_id (linux/rseq.h). */
			return (const uint32_t *)(const void *)(area + 4);
	}
	return &rtscope__no_cpu;
}

static RTSCOPE__NOT_INLINE void rtscope__fill_ring(struct rtscope__shared *shared, struct rtscope__thread *thread,
						   struct rtu_ring *ring, uint64_t bytes, uint32_t tid, uint32_t number)
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
	thread->sub_mask = bytes / count - 1;
	ring->clock = shared->clock;
	/* Any number will do: so that old bytes of a program that records its input are not taken for records. */
	ring->key = (uint32_t)(rtscope__now(shared->clock) >> 4) * 0x9e3779b1u >> 8;
	rtscope__thread_name(ring->comm);
	/* ORDER: release; pairs with the acquire in Ring::open (crates/programs/src/ring.rs): what is above is there when this is. */
	__atomic_store_n(&ring->ready, 1, __ATOMIC_RELEASE);
}

/* Notes a new ring. False: there are too many. */
static RTSCOPE__NOT_INLINE int rtscope__keep(struct rtscope__shared *shared, struct rtscope__thread *thread,
					     struct rtu_ring *ring, uint32_t tid)
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

/*
 * Threads without a key end without a word (threads that the program made by a system call do, too). When somebody needs a new ring, some
 * of them are looked for.
 */
static RTSCOPE__NOT_INLINE void rtscope__reap(struct rtscope__shared *shared, uint32_t from)
{
	uint32_t places = RTSCOPE__LOAD(shared->places);

	for (uint32_t i = 0; i < places && i < 8; i++) {
		struct rtscope__place *place = &shared->room->places[(from * 8 + i) % places];
		struct rtscope__entry *entry = &shared->room->entries[RTSCOPE__LOAD(place->entry)];
		struct rtu_ring *ring = RTSCOPE__LOAD(place->ring);
		struct rtscope__thread *thread = place->thread;
		uint32_t tid = RTSCOPE__LOAD(place->tid), keyless = 1;
		uint64_t bytes;

		if (!ring || rtscope__is_claimed(ring) || !tid || !RTSCOPE__LOAD(place->keyless) ||
		    !rtscope__is_gone(shared, tid))
			continue;
		/* Where a thread's variable is not gone with it, another thread may come back to its page. */
		if (!shared->offset && RTSCOPE__LOAD(entry->thread) == thread) {
			if (rtscope__take_over(shared, entry, 0))
				RTSCOPE__STORE(entry->thread, &rtscope__ended);
			continue;
		}
		/* ORDER: relaxed; one of several that see it takes it. */
		if (!__atomic_compare_exchange_n(&place->keyless, &keyless, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		bytes = place->bytes;
		if (!rtscope__claim(place, ring))
			continue;
		rtscope__leave(shared, place, ring, bytes);
		if (thread->channel)
			RTSCOPE__STORE(thread->channel->keyless, RTSCOPE__PAGELESS);
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

/*
 * This thread cannot have a page in this session, as far as is known. It is only said of this thread: others may have what it lacks. But where a library leads there is
 * no variable of the thread, and whose entry it is in the table would be asked of the kernel at each event.
 */
static inline struct rtscope__thread *rtscope__is_without(struct rtscope__shared *shared)
{
	RTSCOPE__STORE(shared->pageless, RTSCOPE__LOAD(shared->provider->session));
	return shared->offset ? &rtscope__pageless : &rtscope__none;
}

/* A ring for this thread could not be made, because of `error`. */
static inline void rtscope__count_refused(struct rtscope__shared *shared, struct rtscope__thread *thread, int error)
{
	struct rtu_provider *provider = shared->provider;

	/* ORDER: relaxed; as in rtscope__lost(). */
	__atomic_fetch_add(&provider->rings_refused, 1, __ATOMIC_RELAXED);
	RTSCOPE__STORE(provider->refused_errno, (uint32_t)error);
	if (!rtscope__is_page(thread))
		return;
	/* Not 0, which a fork leaves. */
	thread->why = RTU_LOST_CAUSES;
	thread->session = RTSCOPE__LOAD(provider->session);
}

/*
 * In another root or mount namespace nobody would find what this process makes, and another user may keep whoever asks for a name there waiting. Until it is back, or
 * somebody else records, it makes nothing, and asks for nothing.
 */
static RTSCOPE__NOT_INLINE struct rtscope__thread *
rtscope__stay_out(struct rtscope__shared *shared, struct rtscope__thread *thread, struct rtscope__answer *answer)
{
	answer->error = RTSCOPE__ENOENT;
	if (RTSCOPE__LOAD(shared->state) == RTSCOPE__SHOWN) {
		rtscope__count_refused(shared, thread, RTSCOPE__ENOENT);
		return rtscope__is_page(thread) ? thread : rtscope__is_without(shared);
	}
	RTSCOPE__STORE(shared->refused_look, RTSCOPE__LOAD(*shared->look));
	RTSCOPE__STORE(shared->is_refused, 1);
	answer->cause = RTU_LOST_NO_FILE;
	return thread;
}

/* Makes the calling thread's ring in `thread`. 0, or an errno. Its path is not to be on the stack of a child that makes its first files. */
static RTSCOPE__NOT_INLINE int rtscope__make_ring(struct rtscope__shared *shared, struct rtscope__thread *thread)
{
	char path[RTSCOPE__OWN_PATH_BYTES];
	uint64_t bytes =
		rtscope__ring_bytes(shared->provider->ring_bytes ? shared->provider->ring_bytes : shared->ring_bytes);
	/* ORDER: relaxed; each thread only needs a number of its own. */
	uint32_t tid = rtscope__tid(), number = __atomic_fetch_add(&shared->next_ring, 1, __ATOMIC_RELAXED);
	struct rtscope__remains *made = rtscope__begin_mapping();
	struct rtu_ring *ring;
	long memory;
	struct rtscope__file directory;
	int is_kept;

	rtscope__path(shared, path, 'r', tid, 1, number);
	rtscope__reap(shared, number);
	directory = rtscope__enter_directory(shared);
	memory = rtscope__new_file(shared, directory, rtscope__name_in(shared, directory, path),
				   RTU_RING_OFFSET + bytes, NULL, made);
	rtscope__leave_directory(directory);
	ring = (struct rtu_ring *)memory;
	thread->bytes = RTU_RING_OFFSET + bytes + RTSCOPE__BEHIND;
	is_kept = !rtscope__is_error(memory) && rtscope__keep(shared, thread, ring, tid);
	rtscope__end_mapping(made);
	if (!rtscope__is_error(memory) && !is_kept) {
		rtscope__remove_file(shared, path);
		rtscope__unmap(ring, thread->bytes);
	}
	if (!is_kept)
		return rtscope__is_error(memory) ? (int)-memory : RTSCOPE__EMFILE;
	if (shared->lock_memory) {
		rtscope__call(__NR_mlock, memory, (long)(RTU_RING_OFFSET + bytes), 0, 0, 0, 0);
		rtscope__call(__NR_mlock, (long)thread, sizeof(*thread), 0, 0, 0, 0);
	}
	rtscope__fill_ring(shared, thread, ring, bytes, tid, number);
	thread->data = (unsigned char *)ring + RTU_RING_OFFSET;
	thread->mask = bytes - 1;
	thread->shift = (uint32_t)__builtin_ctzll(bytes);
	thread->key = ring->key;
	thread->clock = shared->clock;
	thread->cpu_place = rtscope__find_cpu();
	thread->cpu = RTU_CPU_UNKNOWN;
	thread->may_block = shared->allows_blocking;
	/* A fork in the middle of an event may have left something. */
	RTSCOPE__STORE(thread->limit, 0);
	RTSCOPE__STORE(thread->sync, 0);
	/* Of another ring. */
	thread->open_at = thread->doubter_at = thread->inside_from = 0;
	for (int i = 0; i < RTSCOPE__STOOD_MAX; i++)
		RTSCOPE__STORE(thread->stood[i].stack, (uintptr_t)0);
	/*
	 * limit, sync are 0: the first event writes a sync record. ORDER: release; pairs with the load of `ring` in
	 * rtscope__reserve() by a handler of this thread: it finds the fields above written.
	 */
	__atomic_store_n(&thread->ring, ring, __ATOMIC_RELEASE);
	/* ORDER: relaxed; a number that only grows, as in rtscope__lost(). */
	__atomic_fetch_add(&shared->provider->rings_made, 1, __ATOMIC_RELAXED);
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The leader's part: the process's directory and files, a ring for each thread, what happens when threads end and processes
 * fork, and the slow half of a reservation.
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
	if (provider)
		__atomic_fetch_add(&provider->lost[cause], 1, __ATOMIC_RELAXED);
}

/*
 * Whether the program has given up system calls since it started, so that one might end it. A filter that was there before, as
 * containers have one, lets pass what has passed already.
 */
static inline int rtscope__confined(struct rtscope__shared *shared)
{
	if (!RTSCOPE__LOAD(shared->confined) &&
	    (uint32_t)rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0) != shared->seccomp)
		RTSCOPE__STORE(shared->confined, 1);
	return RTSCOPE__LOAD(shared->confined) != 0;
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

static inline int rtscope__keep(struct rtscope__shared *shared, struct rtu_ring *ring)
{
	for (int i = 0; i < RTSCOPE__RINGS_MAX; i++) {
		struct rtu_ring *none = NULL;

		/* ORDER: relaxed; only a free place is claimed. A fork's child reads them (rtscope__in_child()), alone. */
		if (!RTSCOPE__LOAD(shared->rings[i]) &&
		    __atomic_compare_exchange_n(&shared->rings[i], &none, ring, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return 1;
	}
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
	memory = rtscope__new_file(path, RTU_RING_OFFSET + bytes);
	if (rtscope__is_error(memory))
		return (int)-memory;
	ring = (struct rtu_ring *)memory;
	if (!rtscope__keep(shared, ring)) {
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
	thread->bytes = RTU_RING_OFFSET + bytes;
	thread->may_block = shared->allows_blocking;
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
 * The calling thread's page, with a ring if there can be one. `asked`: by rtscope_thread_init(), so system calls are allowed.
 * `error`: why there is no ring.
 */
RTSCOPE__HIDDEN struct rtscope__thread *rtscope__thread_page(int asked, int *error)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = rtscope__tls;
	struct rtu_provider *provider = shared->provider;

	*error = 0;
	if (thread->ring || thread == &rtscope__in_setup || thread == &rtscope__ended)
		return thread;
	*error = RTSCOPE__EAGAIN;
	if (!provider || !shared->alive || !*shared->alive) {
		rtscope__none.why = provider ? RTU_LOST_IN_CHILD : RTU_LOST_NO_RING;
		return &rtscope__none;
	}
	/* It has failed before: not again for each event. */
	if (!asked && thread != &rtscope__none && thread->session == RTSCOPE__LOAD(provider->session) && thread->why)
		return thread;
	if (!asked && (!shared->lazy || RTSCOPE__LOAD(provider->flags) & RTU_NO_LAZY || rtscope__confined(shared)))
		return thread;
	rtscope__tls = &rtscope__in_setup;
	/* ORDER: signal fence; pairs with the look at rtscope__tls by a handler of this thread in rtscope__reserve_slowly(). */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (thread == &rtscope__none)
		thread = rtscope__new_page();
	/* ENOMEM */
	*error = thread ? rtscope__make_ring(shared, thread) : 12;
	if (!thread)
		thread = &rtscope__none;
	if (*error) {
		/* ORDER: relaxed; as in rtscope__lost(). */
		__atomic_fetch_add(&provider->rings_refused, 1, __ATOMIC_RELAXED);
		RTSCOPE__STORE(provider->refused_errno, (uint32_t)*error);
		if (thread != &rtscope__none) {
			/* Not 0, which a fork leaves. */
			thread->why = RTU_LOST_CAUSES;
			thread->session = RTSCOPE__LOAD(provider->session);
		}
	} else {
		rtscope__key_set(shared->key, thread);
	}
	/* ORDER: signal fence; a handler that finds the page in rtscope__tls finds it filled. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	rtscope__tls = thread;
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
	struct rtscope__thread *thread = rtscope__tls;
	struct rtscope__record record = { NULL, 0 };
	struct rtscope__waiting waiting = { 0, 0 };
	int error;

	if (!leader)
		return nothing;
	if (bytes > RTU_RECORD_BYTES_MAX) {
		leader->lost(RTU_LOST_TOO_LARGE);
		return nothing;
	}
	if (!thread->ring) {
		thread = leader->thread(0, &error);
		if (!thread->ring) {
			uint32_t why = thread->why < RTU_LOST_CAUSES ? thread->why : (uint32_t)RTU_LOST_NO_RING;

			leader->lost(why);
			return nothing;
		}
		rtscope__tls = thread;
	}
	for (;;) {
		uint32_t flags = RTSCOPE__LOAD(*leader->flags);
		enum rtscope__step step = rtscope__step(thread, id, bytes, flags & RTU_FLIGHT, &record);

		if (step == RTSCOPE__DONE)
			break;
		if (step == RTSCOPE__AGAIN)
			continue;
		if (flags & RTU_BLOCKING && leader->wait(thread, &waiting))
			continue;
		rtscope__count(&thread->ring->lost);
		break;
	}
	return record;
}

/* The calling thread writes no more. */
RTSCOPE__HIDDEN void rtscope__end_ring(struct rtscope__thread *thread)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtu_ring *ring = thread->ring;
	char path[RTSCOPE__PATH_BYTES];
	int wanted;

	if (!ring)
		return;
	thread->why = RTU_LOST_CAUSES;
	thread->session = ~0ULL;
	RTSCOPE__STORE(thread->limit, 0);
	RTSCOPE__STORE(thread->ring, (struct rtu_ring *)NULL);
	/* ORDER: signal fence; from here on a handler in rtscope__reserve() finds no ring, before the ring is unmapped. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	for (int i = 0; i < RTSCOPE__RINGS_MAX; i++) {
		if (RTSCOPE__LOAD(shared->rings[i]) == ring)
			RTSCOPE__STORE(shared->rings[i], (struct rtu_ring *)NULL);
	}
	/* Without a collector nobody else removes it. */
	wanted = (shared->provider && RTSCOPE__LOAD(shared->provider->session)) || rtscope__confined(shared);
	if (!wanted) {
		rtscope__path(shared, path, 'r', ring->tid, 1, ring->number);
		rtscope__unlink(path);
	}
	/* ORDER: release; pairs with the acquire in Ring::has_ended (crates/user/src/ring.rs): all records were written before. */
	__atomic_store_n(&ring->ended, 1, __ATOMIC_RELEASE);
	rtscope__unmap(ring, thread->bytes);
}

/* The last of a thread, by its key's destructor. Other destructors may still record, so it is put off as long as possible. */
RTSCOPE__HIDDEN void rtscope__end_thread(void *page)
{
	struct rtscope__thread *thread = (struct rtscope__thread *)page;

	if (++thread->destructions < RTSCOPE__KEY_ROUNDS && !rtscope__key_set(rtscope__shared.key, page))
		return;
	rtscope__end_ring(thread);
	rtscope__tls = &rtscope__ended;
	/* ORDER: signal fence; from here on a handler finds rtscope__ended, before the page is unmapped. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	rtscope__unmap(thread, sizeof(*thread));
}

/* ---- the process --------------------------------------------------------------------------------------------------- */

/* Says by an empty file, which needs no space, that this process runs untraced. */
static inline void rtscope__give_up(struct rtscope__shared *shared, int why)
{
	char path[RTSCOPE__PATH_BYTES];

	rtscope__path(shared, path, 'x', (uint64_t)(unsigned int)why, 0, 0);
	/* 0100000: a regular file. Not open(): there may be no descriptor left, and that may be why. */
	rtscope__call(__NR_mknodat, RTSCOPE__AT_FDCWD, (long)path, 0100600, 0, 0, 0);
}

/* The directory of this user, which nobody else may write into. 0, or an errno. */
static inline int rtscope__make_directory(struct rtscope__shared *shared)
{
	struct statx status;
	char *end = rtscope__put_number(rtscope__put(shared->directory, "/dev/shm/rtscope-"), rtscope__user(), 10);
	int error = (int)-rtscope__call(__NR_mkdirat, RTSCOPE__AT_FDCWD, (long)shared->directory, 0700, 0, 0, 0);

	if (error && error != RTSCOPE__EEXIST)
		return error;
	error = -rtscope__status(RTSCOPE__AT_FDCWD, shared->directory, &status);
	if (error)
		return error;
	rtscope__put(end, "/");
	/* A directory, this user's, and nobody else may look into it. */
	if ((status.stx_mode & 0170000) != 0040000 || status.stx_uid != rtscope__user() || status.stx_mode & 077)
		return RTSCOPE__EPERM;
	return 0;
}

/* Everything of a process that is not there yet, or belongs to its parent. */
RTSCOPE__HIDDEN void rtscope__begin_process(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	uint32_t enabled = 0;
	int error;

	shared->pid = (uint32_t)rtscope__call(__NR_getpid, 0, 0, 0, 0, 0, 0);
	shared->birth_ns = rtscope__monotonic(RTSCOPE__CLOCK_BOOTTIME);
	/* ORDER: relaxed; before main(), or in a fork's child: there is one thread. */
	__atomic_store_n(&shared->next_ring, 0, __ATOMIC_RELAXED);
	error = rtscope__make_directory(shared);
	for (struct rtscope__object *object = shared->objects; object && !error; object = object->next) {
		long result = rtscope__announce(shared, object);

		if (result < 0)
			error = (int)-result;
		else
			enabled += (uint32_t)result;
	}
	if (error) {
		/* A child that cannot have its own must not go on with its parent's. */
		for (struct rtscope__object *object = shared->objects; object; object = object->next) {
			/* ORDER: relaxed; as in rtscope__describe(). */
			for (struct rtscope__event **event = object->events; event < object->events_end; event++)
				__atomic_store_n(&(*event)->enabled, &rtscope__off, __ATOMIC_RELAXED);
		}
		shared->provider = NULL;
		rtscope__give_up(shared, error);
		return;
	}
	*shared->alive = 1;
	if (enabled)
		rtscope__thread_page(1, &error);
}

/* In the child of a fork(): its parent's rings go, and it makes its own files. */
RTSCOPE__HIDDEN void rtscope__in_child(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	/* A vfork() does not come here. */
	if (!shared->provider)
		return;
	for (int i = 0; i < RTSCOPE__RINGS_MAX; i++) {
		struct rtu_ring *ring = shared->rings[i];

		shared->rings[i] = NULL;
		if (ring)
			rtscope__unmap(ring, RTU_RING_OFFSET + (uint64_t)ring->ring_bytes);
	}
	rtscope__begin_process();
}

static inline uint64_t rtscope__option(const char *name, uint64_t otherwise)
{
	const char *text = rtscope__getenv(name);
	char *end;
	uint64_t value;

	if (!text || !*text)
		return otherwise;
	value = strtoull(text, &end, 10);
	if (*end == 'k' || *end == 'K')
		value <<= 10;
	else if (*end == 'm' || *end == 'M')
		value <<= 20;
	else if (*end == 'g' || *end == 'G')
		value <<= 30;
	return value;
}

RTSCOPE__HIDDEN void rtscope__add(struct rtscope__object *object)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__object **last = &shared->objects;
	int error;

	object->number = shared->next_object++;
	while (*last)
		last = &(*last)->next;
	*last = object;
	if (object->number && shared->provider && *shared->alive && rtscope__announce(shared, object) > 0)
		rtscope__thread_page(1, &error);
}

RTSCOPE__HIDDEN void rtscope__remove(struct rtscope__object *object)
{
	struct rtscope__object **place = &rtscope__shared.objects;

	while (*place && *place != object)
		place = &(*place)->next;
	if (*place)
		*place = object->next;
	/* ORDER: relaxed; as in rtscope__describe(). A library is unloaded only when nothing runs in it. */
	for (struct rtscope__event **event = object->events; event < object->events_end; event++)
		__atomic_store_n(&(*event)->enabled, &rtscope__off, __ATOMIC_RELAXED);
	if (object->provider) {
		/* ORDER: release; pairs with the acquire in Provider::is_unloaded (crates/user/src/provider.rs): nothing of it is used after. */
		__atomic_store_n(&object->provider->ready, 2, __ATOMIC_RELEASE);
		rtscope__unmap(object->provider, object->bytes);
		object->provider = NULL;
	}
}

static inline void rtscope__become_leader(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	long alive = rtscope__map(4096, RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS, -1);
	const char *clock = rtscope__getenv("RTSCOPE_CLOCK");

	rtscope__in_setup.why = RTU_LOST_IN_SETUP;
	shared->leads = 1;
	shared->thread = rtscope__thread_page;
	shared->add = rtscope__add;
	shared->remove = rtscope__remove;
	shared->lost = rtscope__lost;
	shared->wait = rtscope__wait;
	shared->end = rtscope__end_ring;
	shared->clock = rtscope__clock_kind();
	if (clock && !strcmp(clock, "monotonic"))
		shared->clock = RTU_CLOCK_MONOTONIC;
	shared->ring_bytes = rtscope__ring_bytes(rtscope__option("RTSCOPE_BUFFER", RTU_RING_BYTES_DEFAULT));
	shared->sub_buffers = (uint32_t)rtscope__option("RTSCOPE_SUB_BUFFERS", RTU_SUB_BUFFERS_DEFAULT);
	/* A power of two from 2 to 256. */
	while (shared->sub_buffers & (shared->sub_buffers - 1))
		shared->sub_buffers &= shared->sub_buffers - 1;
	if (shared->sub_buffers < 2 || shared->sub_buffers > 256)
		shared->sub_buffers = RTU_SUB_BUFFERS_DEFAULT;
	shared->lazy = rtscope__option("RTSCOPE_LAZY", 1) != 0;
	shared->confined = !shared->lazy;
	shared->seccomp = (uint32_t)rtscope__call(__NR_prctl, RTSCOPE__PR_GET_SECCOMP, 0, 0, 0, 0, 0);
	shared->lock_memory = rtscope__option("RTSCOPE_LOCK", 0) != 0;
	shared->allows_blocking = rtscope__option("RTSCOPE_ALLOW_BLOCKING", 0) != 0;
	if (rtscope__is_error(alive) || rtscope__call(__NR_madvise, alive, 4096, RTSCOPE__MADV_WIPEONFORK, 0, 0, 0) ||
	    rtscope__key_create(&shared->key, rtscope__end_thread) || rtscope__at_fork(NULL, NULL, rtscope__in_child))
		return;
	shared->alive = (uint32_t *)alive;
}

/*
 * Runs before main() and when a library is loaded; once for each object, though each of its sources has it. With
 * RTSCOPE_START_BY_HAND only when rtscope_start() is called: for programs that seldom have anything to say.
 */
#if defined(RTSCOPE_START_BY_HAND)
static inline void rtscope__start(void)
#else
__attribute__((constructor)) static void rtscope__start(void)
#endif
{
	struct rtscope__object *object = &rtscope__object;
	struct rtscope__search search;

	if (rtscope__leader || &__start_rtscope_events[0] == &__stop_rtscope_events[0] ||
	    !rtscope__option("RTSCOPE", 1))
		return;
	object->events = __start_rtscope_events;
	object->events_end = __stop_rtscope_events;
	object->enumerations = __start_rtscope_enums;
	object->enumerations_end = __stop_rtscope_enums;
	memset(&search, 0, sizeof(search));
	search.address = (uintptr_t)object;
	rtscope__iterate_objects(rtscope__look_at_object, &search);
	if (search.leader) {
		rtscope__leader = search.leader;
		rtscope__leader->add(object);
	} else {
		rtscope__become_leader();
		rtscope__leader = &rtscope__shared;
		rtscope__add(object);
		if (rtscope__shared.alive)
			rtscope__begin_process();
	}
}

/* A library goes; or the program ends in order, and nobody records it: then its files go too. */
__attribute__((destructor)) static void rtscope__stop(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	char path[RTSCOPE__PATH_BYTES];

	if (!rtscope__leader || !rtscope__object.provider)
		return;
	if (rtscope__leader != shared) {
		rtscope__leader->remove(&rtscope__object);
		rtscope__leader = NULL;
		return;
	}
	if (!shared->provider || !*shared->alive || shared->provider->session || rtscope__confined(shared))
		return;
	for (int i = 0; i < RTSCOPE__RINGS_MAX; i++) {
		struct rtu_ring *ring = shared->rings[i];

		if (ring) {
			rtscope__path(shared, path, 'r', ring->tid, 1, ring->number);
			rtscope__unlink(path);
		}
	}
	for (uint32_t number = 0; number < shared->next_object; number++) {
		rtscope__path(shared, path, 'p', number, 0, 0);
		rtscope__unlink(path);
	}
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The life of a process: it begins, loads and unloads libraries, forks, and ends.
 *
 * A fork's child runs only what is here and in what it calls: no lock that a thread of its parent may have held, no allocation, at most
 * 1 KiB of stack (-O2). Nothing that the parent had mapped is unmapped under something that a handler has interrupted, which goes on
 * when the handler that forked returns.
 */
#ifndef RTSCOPE_LIFE_H
#define RTSCOPE_LIFE_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "left.h"
#include "threads.h"

#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- fork ------------------------------------------------------------------------------------------------------------ */

/* Keeps memory that something interrupted may stand in; what was kept the most forks ago is given back. Needs `busy`. */
static inline void rtscope__keep_remains(struct rtscope__shared *shared, void *memory, uint64_t bytes)
{
	struct rtscope__remains *remains = &shared->room->remains[shared->next_remains++ % RTSCOPE__REMAINS];

	if (remains->memory)
		rtscope__unmap(remains->memory, remains->bytes);
	remains->memory = memory;
	remains->bytes = bytes;
}

/*
 * The ring of the thread that has forked, in the child. If the fork was in a handler that had interrupted an event, the event goes on:
 * it finds the page as it was, but without a ring to begin in, and memory of nobody where it has begun. No position is 1, so it
 * reserves nothing there.
 */
static inline void rtscope__bury(struct rtscope__shared *shared, struct rtscope__thread *thread,
				 const struct rtscope__place *place)
{
	struct rtu_ring *ring = (struct rtu_ring *)((uintptr_t)place->ring & ~RTSCOPE__CLAIMED);
	/* What the ring itself says, anybody of this user may have written. */
	uint64_t bytes = place->bytes - RTU_RING_OFFSET - RTSCOPE__BEHIND;

	if (!rtscope__is_error(rtscope__map_over(ring, place->bytes)))
		RTSCOPE__STORE(ring->head, 1);
	thread->data = (unsigned char *)ring + RTU_RING_OFFSET;
	thread->mask = bytes - 1;
	thread->sub_mask = bytes - 1;
	thread->shift = (uint32_t)__builtin_ctzll(bytes);
	thread->clock = shared->clock;
	thread->cpu = RTU_CPU_UNKNOWN;
	RTSCOPE__STORE(thread->cpu_place, &rtscope__no_cpu);
	rtscope__keep_remains(shared, ring, place->bytes);
	rtscope__keep_remains(shared, thread, sizeof(*thread));
}

/*
 * In the child nobody has a channel. What the fork came into goes on, into memory of nobody. Before rings are forgotten, since a thread's
 * page is known by its ring, or else by its channel.
 */
static inline void rtscope__forget_channels(struct rtscope__shared *shared, struct rtscope__thread *mine)
{
	struct rtscope__room *room = shared->room;

	for (uint32_t i = 0; i < RTSCOPE__CHANNELS_MAX; i++) {
		struct rtscope__channel *channel = room->channels[i];
		struct rtscope__thread *thread = room->channel_threads[i];
		int has_place = channel && rtscope__has_place(shared, thread);

		if (channel && thread == mine) {
			rtscope__keep_remains(shared, channel, sizeof(*channel));
			if (!has_place)
				rtscope__keep_remains(shared, thread, sizeof(*thread));
		} else if (channel) {
			rtscope__unmap(channel, sizeof(*channel));
			if (!has_place)
				rtscope__unmap(thread, sizeof(*thread));
		}
		if (channel)
			room->channels[i] = NULL;
	}
	for (int i = 0; i < RTSCOPE__PORT_PAGES; i++) {
		struct rtscope__port_page *page = &room->port_pages[i];

		if (!page->memory)
			continue;
		rtscope__map_over(page->memory, page->bytes);
		rtscope__keep_remains(shared, page->memory, page->bytes);
		page->memory = NULL;
	}
}

/* Other threads are not in the child. */
static inline void rtscope__forget_rings(struct rtscope__shared *shared, struct rtscope__thread *mine)
{
	for (uint32_t i = 0; i < shared->places; i++) {
		struct rtscope__place *place = &shared->room->places[i];

		if (!place->ring)
			continue;
		if (place->thread == mine) {
			rtscope__bury(shared, mine, place);
		} else {
			rtscope__unmap((void *)((uintptr_t)place->ring & ~RTSCOPE__CLAIMED), place->bytes);
			rtscope__unmap(place->thread, sizeof(*place->thread));
		}
		place->ring = NULL;
		place->tid = 0;
	}
	shared->places = 0;
	for (uint32_t i = 0; i < RTSCOPE__ENTRIES && !shared->offset; i++) {
		if (shared->room->entries[i].pointer)
			memset(&shared->room->entries[i], 0, sizeof(struct rtscope__entry));
	}
}

/* In the child of a fork(). A vfork() does not come here. */
RTSCOPE__SELDOM void rtscope__in_child(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = rtscope__find();
	uint64_t signals;
	int shows, is_overtaken = rtscope__was_overtaken(shared);

	RTSCOPE__STORE(shared->forks, 0);
	RTSCOPE__STORE(shared->workers, 0);
	/*
	 * A program that may have given up system calls makes none here. The child is then like one of a raw clone: it has no rings, and
	 * what it emits is counted in its parent's file.
	 */
	if (!shared->alive || !shared->provider || rtscope__confined(shared))
		return;
	signals = rtscope__block_signals();
	/* Who had it, if anybody, is not in this process. */
	RTSCOPE__STORE(shared->busy, 1);
	/* Before its own thread's ring is buried, which may be one of them. */
	rtscope__unmap_half_made();
	if (rtscope__close_opened(shared, is_overtaken))
		rtscope__close_half_made(shared);
	/* Recorded at the fork, or not able to look later. */
	shows = shared->provider->session || *shared->look || shared->look == &rtscope__off;
	rtscope__forget_channels(shared, thread);
	rtscope__forget_rings(shared, thread);
	for (struct rtscope__object *object = shared->objects; object; object = object->next)
		rtscope__hide(shared, object);
	shared->pid = (uint32_t)rtscope__call(__NR_getpid, 0, 0, 0, 0, 0, 0);
	rtscope__own_space = rtscope__is_at_home() ? rtscope__pid_space() : 0;
	shared->state = RTSCOPE__HIDDEN_NOW;
	shared->life++;
	shared->next_ring = shared->left_rings = shared->refused_look = shared->is_refused = shared->told_errno = 0;
	shared->beat_since_ns = shared->quiet_session = shared->pageless = shared->was_silent = 0;
	/* What is called from here may have events itself: a program's own memcpy(3). Such a one would wait for this. */
	rtscope__set(shared, &rtscope__in_setup);
	*shared->alive = 1;
	shows = shows &&
		(shared->look == &rtscope__off || rtscope__find_session(shared) || shared->room->session_errno);
	if (shows && rtscope__show(shared) < 0)
		rtscope__refuse_process(shared);
	rtscope__set(shared, &rtscope__none);
	rtscope__give(shared);
	rtscope__let_signals(signals);
}

/* ---- libraries ------------------------------------------------------------------------------------------------------- */

/*
 * How many filters of seccomp the process has, if it began with some: who adds one to those of a container cannot be seen otherwise. Only
 * where libraries are loaded: the loader makes the same system calls then. Needs `busy`.
 */
static inline uint32_t rtscope__filters(struct rtscope__shared *shared)
{
	uint32_t count = shared->seccomp ? rtscope__told_number(shared, "\nSeccomp_filters:", 0) : 0;

	return count == ~0u ? 0 : count;
}

/* A new object, whose constructor runs. */
RTSCOPE__SELDOM void rtscope__add(struct rtscope__object *object)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__object **last = &shared->objects;
	uint32_t events = rtscope__events(object);
	uint64_t signals;
	int has_ids;
	long result = 0;

	/* A program that has given up system calls, and loads a library all the same. */
	if (shared->objects && (!RTSCOPE__LOAD(*shared->alive) || rtscope__is_sandboxed(shared))) {
		rtscope__point(object, &rtscope__off, 1);
		return;
	}
	signals = rtscope__begin_work(shared);
	/* Nobody has it for long; it is not this thread, whose signals are blocked then. */
	rtscope__take_surely(shared);
	object->text_bytes = rtscope__text_bytes(object, NULL);
	object->sign = rtscope__sign(object);
	object->bytes = sizeof(*object->provider) + events * 4 + object->text_bytes;
	object->number = shared->next_object++;
	has_ids = rtscope__number_events(shared, object);
	if (!has_ids)
		object->first_id = RTU_EVENTS_MAX;
	for (uint32_t i = 0; i < events; i++)
		object->events[i]->id = has_ids ? object->first_id + i : RTU_EVENTS_MAX;
	rtscope__stand_in(shared, object);
	if (object->number == 0) {
		shared->provider = object->provider;
		shared->flags = object->provider ? &object->provider->flags : &rtscope__off;
	}
	rtscope__point(object, shared->look, 1);
	while (*last)
		last = &(*last)->next;
	*last = object;
	if (shared->provider && shared->state == RTSCOPE__SHOWN && rtscope__filters(shared) != shared->filters) {
		rtscope__point(object, &rtscope__off, 1);
		/* ORDER: relaxed; as in rtscope__refuse_object(). */
		__atomic_fetch_add(&shared->provider->objects_refused, 1, __ATOMIC_RELAXED);
		RTSCOPE__STORE(shared->provider->object_errno, (uint32_t)RTSCOPE__EPERM);
	} else if (shared->provider && shared->state == RTSCOPE__SHOWN) {
		struct rtscope__file directory = rtscope__enter_directory(shared);

		result = has_ids ? rtscope__show_object(shared, object, directory) : -RTSCOPE__E2BIG;
		rtscope__leave_directory(directory);
		if (result < 0)
			rtscope__refuse_object(shared, object, (int)-result);
	} else if (shared->provider && shared->is_refused) {
		rtscope__refuse_process(shared);
	}
	rtscope__give(shared);
	rtscope__end_work(shared, signals);
	if (result > 0) {
		struct rtscope__answer answer;

		rtscope__thread_page(1, 0, &answer);
	}
}

/* An object that is unloaded: nothing runs in it any more. */
RTSCOPE__SELDOM void rtscope__remove(struct rtscope__object *object)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__object **place = &shared->objects;
	struct rtu_provider *memory;
	/* A program that has said that it gives up system calls may end by exit(3), which unloads: what is mapped stays then. */
	int may_call = !RTSCOPE__LOAD(shared->confined), is_covered;
	uint64_t signals = may_call ? rtscope__begin_work(shared) : 0;

	if (may_call)
		rtscope__take_surely(shared);
	else
		rtscope__take_without_calls(shared);
	memory = object->provider;
	rtscope__point(object, &rtscope__off, 1);
	if (memory && RTSCOPE__LOAD(*shared->alive)) {
		/* A collector may have found it, and removes it when it has taken what there is of it. */
		if (object->has_file && !RTSCOPE__LOAD(shared->provider->session) && !rtscope__confined(shared) &&
		    !(shared->seccomp && shared->no_new_privs)) {
			rtscope__path(shared, shared->room->path, 'p', object->number, 0, 0);
			rtscope__remove_file(shared, shared->room->path);
		}
		/* ORDER: release; pairs with the acquire in Provider::is_unloaded (crates/programs/src/provider.rs): nothing of it is used after. */
		__atomic_store_n(&memory->ready, 2, __ATOMIC_RELEASE);
	}
	/*
	 * Its file goes before it is off the list: a fork's child takes away what is in the list. The system call stands between both, as
	 * mappings do not change while a fork copies them.
	 */
	is_covered = memory && may_call && !rtscope__is_error(rtscope__map_over(memory, object->bytes));
	while (*place && *place != object)
		place = &(*place)->next;
	if (*place)
		RTSCOPE__STORE(*place, object->next);
	object->provider = NULL;
	if (is_covered)
		rtscope__retire(shared, memory, object->bytes);
	rtscope__give(shared);
	if (may_call)
		rtscope__end_work(shared, signals);
}

/* ---- the process ----------------------------------------------------------------------------------------------------- */

/* What is no number is somebody else's variable (RTSCOPE=/usr/bin/rtscope in a script), and asks for nothing. */
static inline uint64_t rtscope__option(const char *name, uint64_t otherwise)
{
	const char *text = rtscope__getenv(name);
	char *end;
	uint64_t value;

	if (!text || !*text)
		return otherwise;
	value = strtoull(text, &end, 10);
	if (end == text)
		return otherwise;
	if (*end == 'k' || *end == 'K')
		value <<= 10;
	else if (*end == 'm' || *end == 'M')
		value <<= 20;
	else if (*end == 'g' || *end == 'G')
		value <<= 30;
	return value;
}

/* The process is seen from here on: its directory, its look page, its files. */
static inline void rtscope__begin_process(struct rtscope__shared *shared)
{
	struct rtscope__answer answer;
	uint64_t signals = rtscope__begin_work(shared);
	long enabled;
	int error;

	rtscope__take_surely(shared);
	rtscope__note_home();
	error = rtscope__make_directory(shared);
	/* The page comes before the session is looked for: a collector that finds no page has written its session already. */
	if (!error)
		rtscope__map_look(shared);
	else if (error == RTSCOPE__EPERM && shared->room->status.stx_uid != rtscope__user())
		rtscope__wait_for_place(shared);
	shared->filters = rtscope__filters(shared);
	enabled = rtscope__show(shared);
	/* There is a directory for this user, and a look page in it: as a fork's child, it tries again when somebody records. */
	if (enabled < 0 && shared->look != &rtscope__off)
		rtscope__refuse_process(shared);
	if (shared->state == RTSCOPE__SHOWN && !rtscope__find_session(shared))
		rtscope__sweep(shared);
	rtscope__give(shared);
	rtscope__end_work(shared, signals);
	if (enabled > 0)
		rtscope__thread_page(1, 0, &answer);
}

static inline void rtscope__read_options(struct rtscope__shared *shared)
{
	const char *clock = rtscope__getenv("RTSCOPE_CLOCK");

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
	shared->no_new_privs = (uint32_t)rtscope__call(__NR_prctl, RTSCOPE__PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0);
	shared->lock_memory = rtscope__option("RTSCOPE_LOCK", 0) != 0;
	shared->allows_blocking = rtscope__option("RTSCOPE_ALLOW_BLOCKING", 0) != 0;
}

/*
 * Makes this copy the leader. `has_program`: this is the namespace of the program. In another one (dlmopen) there is another C library,
 * whose keys are at the same places of a thread as those of the first, so there is no key; nor does it hear of forks.
 */
static inline void rtscope__become_leader(int has_program)
{
	struct rtscope__shared *shared = &rtscope__shared;
	int flags = RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS | RTSCOPE__MAP_NORESERVE;
	long alive = rtscope__map(4096, RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS, -1);
	long room = rtscope__map(sizeof(struct rtscope__room), flags, -1);
	uint64_t signals;

	shared->find = rtscope__find;
	shared->thread = rtscope__thread_page;
	shared->add = rtscope__add;
	shared->remove = rtscope__remove;
	shared->lost = rtscope__lost;
	shared->wait = rtscope__wait;
	shared->end = rtscope__end_ring;
	shared->look = &rtscope__off;
	shared->flags = &rtscope__off;
	shared->pid = (uint32_t)rtscope__call(__NR_getpid, 0, 0, 0, 0, 0, 0);
	rtscope__own_space = rtscope__pid_space();
	if (rtscope__object.is_program)
		shared->offset = (char *)&rtscope__own - (char *)rtscope__thread_pointer();
	if (rtscope__is_error(alive) || rtscope__is_error(room) ||
	    rtscope__call(__NR_madvise, alive, 4096, RTSCOPE__MADV_WIPEONFORK, 0, 0, 0) ||
	    rtscope__at_fork(rtscope__before_fork, rtscope__after_fork, rtscope__in_child))
		return;
	/* Set once, so that it is bound (rtscope__bind). */
	shared->has_key = has_program && !rtscope__key_create(&shared->key, rtscope__end_thread) &&
			  !rtscope__key_set(shared->key, NULL);
	shared->room = (struct rtscope__room *)room;
	shared->room->stage = rtscope__stage;
	shared->room->send = rtscope__send;
	shared->alive = (uint32_t *)alive;
	*shared->alive = 1;
	/* It looks into files. */
	signals = rtscope__begin_work(shared);
	rtscope__read_options(shared);
	rtscope__end_work(shared, signals);
}

/*
 * Functions of the C library that a thread's first event and forks' children call: bound now, which takes locks and some stack, and not in a
 * handler. Later events call none.
 */
static inline void rtscope__bind(void)
{
	char text[2] = { 'x', 0 }, copy[2];
	volatile size_t length = 1;

	memcpy(copy, text, length);
	if (rtscope__length(copy, length) + strlen(text) == 0 || !strchr(text, *copy) ||
	    strncmp(text, copy, length) != 0)
		return;
	memset(copy, 0, length);
	rtscope__find_clock();
}

/* Whether reading the CPU's counter kills this program, as whoever replays it may have asked for. */
static inline int rtscope__has_no_counter(void)
{
	uint32_t mode = 0;

	/* Where the system knows nothing of that, the mode stays as it is. */
	rtscope__call(__NR_prctl, RTSCOPE__PR_GET_TSC, (long)&mode, 0, 0, 0, 0);
	return mode == RTSCOPE__PR_TSC_SIGSEGV;
}

/*
 * One thread makes this object known to the leader. Of others, and of handlers that interrupt it, none does; they wait until it has, but for
 * handlers of the same thread. 0: it was or is another one.
 */
static inline int rtscope__claim_start(uint32_t thread)
{
	for (int rests = 0; rests < 10000; rests++) {
		uint32_t starter = 0;

		/* ORDER: acquire; pairs with the release at the end of rtscope__lead(): what the starter has made is there. */
		if (__atomic_compare_exchange_n(&rtscope__started, &starter, thread, 0, __ATOMIC_ACQUIRE,
						__ATOMIC_ACQUIRE))
			return 1;
		/* In a fork's child, where it is not, nobody knows how far it has come. */
		if (starter == RTSCOPE__STARTED || starter == thread || rtscope__is_not_here(starter))
			return 0;
		rtscope__rest();
	}
	return 0;
}

/* Finds the leader, or becomes it. */
RTSCOPE__SELDOM void rtscope__lead(void)
{
	struct rtscope__object *object = &rtscope__object;
	struct rtscope__search search = {
		object, NULL, NULL, 0, object->path, rtscope__starter(), 0, 0, 0, NULL, NULL
	};
	struct rtscope__shared *shared = &rtscope__shared;

	if (&__start_rtscope_events[0] == &__stop_rtscope_events[0])
		return;
	/* Who returns from here can be recorded, whoever has started it. */
	if (RTSCOPE__LOAD(rtscope__started)) {
		rtscope__claim_start(search.thread);
		return;
	}
	/* Or a source of this object that has an earlier header of this version has started it. */
	if (rtscope__leader || !rtscope__option("RTSCOPE", 1) || rtscope__has_no_counter())
		return;
	object->events = __start_rtscope_events;
	object->events_end = __stop_rtscope_events;
	object->enumerations = __start_rtscope_enums;
	object->enumerations_end = __stop_rtscope_enums;
	rtscope__bind();
	rtscope__find_leader(&search);
	if (!search.leader && !search.is_announced)
		return;
	if (!rtscope__claim_start(search.thread)) {
		rtscope__take_back(&search);
		return;
	}
	/* That source has, meanwhile: an object that is in the list twice is a list without an end. */
	if (rtscope__leader) {
		rtscope__take_back(&search);
		search.leader = NULL;
	} else if (search.is_announced) {
		rtscope__become_leader((int)search.has_program);
		search.leader = shared;
	}
	if (search.leader && search.leader->room) {
		/* Before events are enabled: a function that is called from here may have some, and they are to be counted. */
		rtscope__leader = search.leader;
		search.leader->add(object);
		/* ORDER: relaxed; from here on events find the thread's page, which has no ring yet. */
		RTSCOPE__STORE(rtscope__offset, search.leader->offset);
	}
	if (search.is_announced && shared->room) {
		/* ORDER: release; pairs with the acquire in rtscope__find_leader(). */
		__atomic_fetch_or(&shared->leads, RTSCOPE__HAS_CHANNELS, __ATOMIC_RELEASE);
		rtscope__begin_process(shared);
	}
	/* Last, so that an object that joins has its events enabled when it has joined, if they are recorded. */
	/* ORDER: release; pairs with the loads in rtscope__look_at_note() and rtscope__await(). */
	if (search.is_announced)
		__atomic_store_n(&shared->leads, RTSCOPE__LEADS | RTSCOPE__HAS_CHANNELS, __ATOMIC_RELEASE);
	/* ORDER: release; pairs with the acquires in rtscope__claim_start() and above. */
	__atomic_store_n(&rtscope__started, RTSCOPE__STARTED, __ATOMIC_RELEASE);
}

/*
 * Runs before main() and when a library is loaded; once for each object, though each of its sources has it. Of the first priority that a
 * program may use, so constructors of static objects come after it. With RTSCOPE_START_BY_HAND only when rtscope_start() is
 * called: for programs that seldom have anything to say.
 */
#if defined(RTSCOPE_START_BY_HAND)
static inline void rtscope__start(void)
#else
__attribute__((constructor(101))) static RTSCOPE__BARE RTSCOPE__COLD void rtscope__start(void)
#endif
{
	rtscope__lead();
}

/*
 * A library goes; or the program ends in order, and nobody records it: then its files go too. Of the same priority, so it comes after the
 * destructors of static objects, which may have events.
 */
__attribute__((destructor(101))) static RTSCOPE__BARE RTSCOPE__COLD void rtscope__stop(void)
{
	struct rtscope__shared *shared = &rtscope__shared;
	char path[RTSCOPE__OWN_PATH_BYTES];
	int is_left = 0;

	if (!rtscope__leader)
		return;
	if (rtscope__leader != shared) {
		struct rtscope__shared *leader = rtscope__leader;

		rtscope__leader = NULL;
		RTSCOPE__STORE(rtscope__offset, 0);
		leader->remove(&rtscope__object);
		return;
	}
	if (!shared->alive || !*shared->alive || shared->state != RTSCOPE__SHOWN || rtscope__confined(shared))
		return;
	/* The child of a vfork(), which should have called _exit(): in its memory is what its parent goes on with. */
	if ((uint32_t)rtscope__call(__NR_getpid, 0, 0, 0, 0, 0, 0) != shared->pid)
		return;
	/* Sandboxed from the start, so another sandbox cannot be told from it: others sweep. */
	if ((shared->seccomp && shared->no_new_privs) || !rtscope__is_at_home())
		return;
	if (shared->provider->session) {
		if (rtscope__session_lives(shared, shared->provider->session))
			return;
		/* Its collector was killed: only what it has not taken is of use to the next one. */
		shared->provider->session = 0;
		shared->left_rings = 1;
	}
	for (uint32_t i = 0; i < shared->places; i++) {
		struct rtu_ring *ring = RTSCOPE__LOAD(shared->room->places[i].ring);

		/* Its thread may end at this moment: who claims the ring has it. */
		if (!ring || !rtscope__claim(&shared->room->places[i], ring))
			continue;
		if (rtscope__is_left(shared, ring)) {
			is_left = 1;
		} else {
			rtscope__path(shared, path, 'r', ring->tid, 1, (uint32_t)ring->number);
			rtscope__remove_file(shared, path);
		}
		/* It stays mapped, and its thread's page may not: a fork's child from now on is to look at neither. */
		RTSCOPE__STORE(shared->room->places[i].ring, (struct rtu_ring *)NULL);
	}
	for (uint32_t number = 0; number < shared->next_object && !is_left && !shared->left_rings; number++) {
		rtscope__path(shared, path, 'p', number, 0, 0);
		rtscope__remove_file(shared, path);
	}
}

#ifdef __cplusplus
}
#endif

#endif

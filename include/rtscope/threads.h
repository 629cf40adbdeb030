/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The leader's part for threads: the way to a page and a ring, the slow half of a reservation, and what happens when they end. All of it may run in
 * a signal handler: it takes no lock of others, allocates nothing from the heap, and needs at most 1 KiB of stack (-O2).
 */
#ifndef RTSCOPE_THREADS_H
#define RTSCOPE_THREADS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "channel.h"
#include "steps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The word that enables the event `id`. Needs `busy`. */
static inline uint32_t rtscope__enabled_word(const struct rtscope__shared *shared, uint32_t id)
{
	for (struct rtscope__object *object = shared->objects; object; object = object->next) {
		if (id - object->first_id < rtscope__events(object))
			return object->provider ? RTSCOPE__LOAD(rtscope__words(object)[id - object->first_id]) : 0;
	}
	return 0;
}

/* What a thread needs for its events. */
#define RTSCOPE__NEEDS_RING 1
#define RTSCOPE__NEEDS_CHANNEL 2

static inline int rtscope__need_of(const struct rtscope__shared *shared, uint32_t word)
{
	return word & RTU_TO_CHANNEL && RTSCOPE__LOAD(*shared->flags) & RTU_CHANNELS ? RTSCOPE__NEEDS_CHANNEL :
										       RTSCOPE__NEEDS_RING;
}

/* What a thread that asks before its events needs for all of them; a ring, if none is enabled. */
static inline int rtscope__needs_of_all(struct rtscope__shared *shared)
{
	int needs = 0;

	if (!rtscope__take(shared, 20))
		return RTSCOPE__NEEDS_RING;
	for (struct rtscope__object *object = shared->objects; object; object = object->next) {
		uint32_t events = rtscope__events(object);

		for (uint32_t i = 0; object->provider && i < events; i++) {
			uint32_t word = RTSCOPE__LOAD(rtscope__words(object)[i]);

			needs |= word ? rtscope__need_of(shared, word) : 0;
		}
	}
	rtscope__give(shared);
	return needs ? needs : RTSCOPE__NEEDS_RING;
}

/*
 * The look page says that there may be a session, or a thread asks for a ring: makes the files of a process that has none. False: nothing
 * can be recorded, or the event `id` is not wanted. `word`: what enables it then.
 */
static RTSCOPE__NOT_INLINE int rtscope__look(struct rtscope__shared *shared, int asked, uint32_t id, uint32_t *word,
					     struct rtscope__answer *answer)
{
	uint32_t look = RTSCOPE__LOAD(*shared->look);
	const struct rtu_session *session;
	int is_enabled;

	answer->cause = RTU_LOST_IN_SETUP;
	if (!rtscope__take(shared, 20))
		return 0;
	if (rtscope__waits_for_place(shared) && !rtscope__make_directory(shared)) {
		rtscope__map_look(shared);
		look = RTSCOPE__LOAD(*shared->look);
	}
	if (shared->state == RTSCOPE__HIDDEN_NOW) {
		session = rtscope__find_session(shared);
		if (!session && !asked &&
		    (shared->room->session_errno || shared->look == &rtscope__off || !rtscope__sees_look(shared))) {
			int why = shared->room->session_errno;

			/*
			 * No descriptor left, for example, or another root: it does not know, and must not answer for others. If there is
			 * somebody, let him know.
			 */
			rtscope__give_up(shared, why ? why : RTSCOPE__ENOENT);
			RTSCOPE__STORE(shared->refused_look, look);
			RTSCOPE__STORE(shared->is_refused, 1);
			answer->cause = RTU_LOST_NO_FILE;
			rtscope__give(shared);
			return 0;
		}
		if (!session && !asked) {
			/* ORDER: relaxed; a collector that begins at this moment has written another number, and that stays. */
			if (look)
				__atomic_compare_exchange_n((uint32_t *)(uintptr_t)shared->look, &look, 0, 0,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
			/* What an earlier session wanted is wanted no more. */
			for (struct rtscope__object *object = shared->objects; object; object = object->next)
				rtscope__point(object, shared->look, 1);
			RTSCOPE__STORE(shared->is_refused, 0);
			answer->error = RTSCOPE__UNWANTED;
			rtscope__give(shared);
			return 0;
		}
		if (!rtscope__acts_for_process(shared)) {
			answer->cause = RTU_LOST_NO_FILE;
			answer->error = RTSCOPE__EPERM;
			rtscope__give(shared);
			return 0;
		}
		answer->error = (int)-rtscope__show(shared);
		if (answer->error > 0)
			rtscope__refuse_process(shared);
		else
			answer->error = RTSCOPE__EAGAIN;
	}
	*word = rtscope__enabled_word(shared, id);
	is_enabled = asked || *word;
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

/*
 * Keeps a new page that has neither a ring nor a channel, and says why, if it goes with its thread: else each thread that ends would leave one.
 */
static inline struct rtscope__thread *rtscope__keep_page(struct rtscope__shared *shared, struct rtscope__thread *thread,
							 int asked)
{
	if (rtscope__will_be_told(shared, thread, asked))
		return thread;
	rtscope__unmap(thread, sizeof(*thread));
	return rtscope__is_without(shared);
}

/* Makes a ring for a thread that has none, if there is to be one. */
static inline struct rtscope__thread *rtscope__new_ring(struct rtscope__shared *shared, struct rtscope__thread *thread,
							int asked, struct rtscope__answer *answer)
{
	int is_new = !rtscope__is_page(thread);

	if (!rtscope__may_record(shared, asked, answer))
		return thread;
	if (is_new)
		thread = rtscope__new_page();
	if (!thread)
		answer->error = RTSCOPE__ENOMEM;
	/* In another root or mount namespace nobody would find it. */
	else if (!rtscope__sees_look(shared))
		answer->error = RTSCOPE__ENOENT;
	else
		answer->error = rtscope__make_ring(shared, thread);
	if (!thread)
		thread = rtscope__is_without(shared);
	if (!answer->error) {
		struct rtscope__place *place = &shared->room->places[thread->place];

		if (!shared->offset) {
			RTSCOPE__STORE(place->entry, (uint32_t)(rtscope__entry_of(shared, 0) - shared->room->entries));
			RTSCOPE__STORE(shared->pageless, (uint64_t)0);
		}
		RTSCOPE__STORE(place->keyless, (uint32_t)!rtscope__will_be_told(shared, thread, asked));
		return thread;
	}
	if (rtscope__is_page(thread) && is_new)
		thread = rtscope__keep_page(shared, thread, asked);
	rtscope__count_refused(shared, thread, answer->error);
	return thread;
}

/* Makes a channel for a thread that has none, if there is to be one. */
static RTSCOPE__NOT_INLINE struct rtscope__thread *rtscope__new_channel(struct rtscope__shared *shared,
									struct rtscope__thread *thread, int asked,
									struct rtscope__answer *answer)
{
	struct rtu_provider *provider = shared->provider;
	int is_new = !rtscope__is_page(thread);

	if (!rtscope__may_record(shared, 0, answer))
		return thread;
	answer->cause = RTU_LOST_NO_CHANNEL;
	answer->error = RTSCOPE__ENOMEM;
	if (is_new)
		thread = rtscope__new_page();
	if (!thread)
		return rtscope__is_without(shared);
	answer->error = RTSCOPE__EAGAIN;
	/* Of another session, and its device. Not under an event that this one has interrupted. */
	if (thread->channel && !RTSCOPE__LOAD(thread->channel->depth))
		rtscope__close_channel(shared, thread);
	/* Many threads may begin at the same time, and one of them maps the device. */
	if (!thread->channel && rtscope__take(shared, 1000)) {
		answer->error = rtscope__open_channel(shared, thread);
		rtscope__give(shared);
	}
	if (!answer->error) {
		thread->channel->keyless = !rtscope__will_be_told(shared, thread, asked);
		/* ORDER: relaxed; a number that only grows, as in rtscope__lost(). */
		__atomic_fetch_add(&provider->channels, 1, __ATOMIC_RELAXED);
		return thread;
	}
	RTSCOPE__STORE(provider->channel_errno, (uint16_t)answer->error);
	if (is_new)
		thread = rtscope__keep_page(shared, thread, asked);
	if (!rtscope__is_page(thread))
		return thread;
	/* An event that was jumped out of stays open, perhaps for ever. */
	if (answer->error != RTSCOPE__EAGAIN || (thread->channel && RTSCOPE__LOAD(thread->channel->depth)))
		thread->no_channel = RTSCOPE__LOAD(provider->session);
	return thread;
}

/* Whether a thread has a channel of the session that is now. */
static inline int rtscope__has_channel(const struct rtscope__shared *shared, const struct rtscope__thread *thread)
{
	return thread->channel && thread->channel->session == RTSCOPE__LOAD(shared->provider->session);
}

/* Makes what a thread needs. Of two things it is an error if one could not be made. */
static inline struct rtscope__thread *rtscope__new(struct rtscope__shared *shared, struct rtscope__thread *thread,
						   int needs, int asked, struct rtscope__answer *answer)
{
	answer->error = 0;
	if (needs & RTSCOPE__NEEDS_CHANNEL && !rtscope__has_channel(shared, thread)) {
		thread = rtscope__new_channel(shared, thread, asked, answer);
		if (answer->error > 0 && RTSCOPE__LOAD(shared->provider->flags) & RTU_OR_RING)
			needs |= RTSCOPE__NEEDS_RING;
	}
	if (needs & RTSCOPE__NEEDS_RING && !thread->ring) {
		struct rtscope__answer of_channel = *answer;

		thread = rtscope__new_ring(shared, thread, asked, answer);
		if (!answer->error && of_channel.error && asked)
			*answer = of_channel;
	}
	return thread;
}

/*
 * Whether what a thread needs is not to be made now, since that has failed before, or must make no system call: tried again now and then.
 * `asked`: then it is.
 */
static inline int rtscope__is_put_off(struct rtscope__shared *shared, const struct rtscope__thread *thread,
				      int to_channel, struct rtscope__answer *answer)
{
	struct rtu_provider *provider = shared->provider;
	uint64_t session = RTSCOPE__LOAD(provider->session);

	/* It could not make files for this look: tried again when there is another, too. */
	if (RTSCOPE__LOAD(shared->state) == RTSCOPE__HIDDEN_NOW && RTSCOPE__LOAD(shared->is_refused) &&
	    RTSCOPE__LOAD(shared->refused_look) == RTSCOPE__LOAD(*shared->look) && ++shared->quiet_events % 1024 != 0) {
		answer->cause = RTU_LOST_NO_FILE;
		/* Whether anybody wants it cannot be known. */
		if (rtscope__waits_for_place(shared))
			answer->error = RTSCOPE__UNWANTED;
		return 1;
	}
	/* Nobody empties rings. */
	if (RTSCOPE__LOAD(shared->quiet_session) && RTSCOPE__LOAD(shared->quiet_session) == session &&
	    RTSCOPE__LOAD(shared->beat) == RTSCOPE__LOAD(provider->beat) && ++shared->quiet_events % 1024 != 0) {
		answer->cause = RTU_LOST_NOBODY;
		return 1;
	}
	/* Not again for each event. */
	if (!to_channel && rtscope__is_page(thread) && thread->session == session && thread->why)
		return 1;
	/* Others may have given channels back since. */
	if (to_channel && thread->no_channel && thread->no_channel == session && ++shared->quiet_events % 1024 != 0)
		return 1;
	/* It could not even have a page; or, where a library leads, the thread that has tried last could not. */
	if ((thread == &rtscope__pageless || (!shared->offset && thread == &rtscope__none)) && session &&
	    RTSCOPE__LOAD(shared->pageless) == session && ++shared->quiet_events % 1024 != 0)
		return 1;
	return !shared->lazy || RTSCOPE__LOAD(provider->flags) & RTU_NO_LAZY || rtscope__confined(shared);
}

/*
 * This thread makes its page. If it has jumped out of that, as of an event, while it had what all threads share, that work is over, and it has no page. Another thread,
 * made by a bare clone(2), can have the same thread pointer.
 */
static RTSCOPE__NOT_INLINE struct rtscope__thread *rtscope__after_jump(struct rtscope__shared *shared)
{
	if (RTSCOPE__LOAD(shared->busy) != rtscope__tid() || rtscope__has_blocked_signals())
		return &rtscope__in_setup;
	/* ORDER: relaxed; a count, which a fork waits for at most for a while. */
	__atomic_fetch_sub(&shared->workers, 1, __ATOMIC_RELAXED);
	rtscope__set(shared, &rtscope__none);
	rtscope__give(shared);
	return &rtscope__none;
}

/*
 * The calling thread's page, with a ring if there can be one; `id` with RTSCOPE__TO_CHANNEL: with a channel. `asked`: by rtscope_thread_init(), so system calls are allowed.
 * `id`: the event that needs it. `answer`: why there is no ring.
 */
RTSCOPE__SELDOM struct rtscope__thread *rtscope__thread_page(int asked, uint32_t id, struct rtscope__answer *answer)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = rtscope__find();
	struct rtu_provider *provider = shared->provider;
	int to_channel = !asked && id & RTSCOPE__TO_CHANNEL;
	uint32_t word = to_channel ? RTU_TO_CHANNEL : 0;
	uint64_t signals;

	id &= ~RTSCOPE__TO_CHANNEL;
	answer->error = 0;
	if (!to_channel && thread->ring && !(asked && provider && RTSCOPE__LOAD(provider->flags) & RTU_CHANNELS))
		return thread;
	if (to_channel && provider && rtscope__has_channel(shared, thread))
		return thread;
	answer->error = RTSCOPE__EAGAIN;
	answer->cause = thread == &rtscope__in_setup ? RTU_LOST_IN_SETUP :
			to_channel		     ? RTU_LOST_NO_CHANNEL :
						       RTU_LOST_NO_RING;
	if (thread == &rtscope__in_setup && RTSCOPE__LOAD(shared->busy))
		thread = rtscope__after_jump(shared);
	if (thread == &rtscope__in_setup || thread == &rtscope__ended || !provider || !shared->alive)
		return thread;
	if (!RTSCOPE__LOAD(*shared->alive)) {
		answer->cause = RTU_LOST_IN_CHILD;
		return &rtscope__none;
	}
	if (!asked && rtscope__is_put_off(shared, thread, to_channel, answer))
		return thread;
	if (!asked && rtscope__waits_for_place(shared) && !rtscope__has_place_again()) {
		answer->error = RTSCOPE__UNWANTED;
		return thread;
	}
	/*
	 * The child of a vfork() has this memory, and may be killed at any moment: the parent would then have work that never ends, and what
	 * nobody gives back. Its events go into its thread's ring, if that is there. In a PID namespace of its own it may have its parent's number.
	 */
	if ((uint32_t)rtscope__call(__NR_getpid, 0, 0, 0, 0, 0, 0) != shared->pid) {
		answer->cause = RTU_LOST_IN_CHILD;
		return thread;
	}
	if (!rtscope__is_at_home()) {
		thread = rtscope__stay_out(shared, thread, answer);
		if (thread == &rtscope__pageless) {
			signals = rtscope__begin_work(shared);
			/* As below. */
			if (!rtscope__is_page(rtscope__find()))
				rtscope__set(shared, thread);
			rtscope__end_work(shared, signals);
		}
		return thread;
	}
	if (rtscope__pid_space() != rtscope__own_space) {
		answer->cause = RTU_LOST_IN_CHILD;
		return thread;
	}
	signals = rtscope__begin_work(shared);
	/* Until now a handler could come in between, and have made the thread's page, ring or channel. */
	thread = rtscope__find();
	if (!rtscope__set(shared, &rtscope__in_setup)) {
		answer->error = RTSCOPE__EMFILE;
		thread = &rtscope__none;
	} else {
		/* ORDER: acquire; pairs with the release in rtscope__show(). */
		if (__atomic_load_n(&shared->state, __ATOMIC_ACQUIRE) == RTSCOPE__SHOWN ||
		    rtscope__look(shared, asked, id, &word, answer))
			thread = rtscope__new(shared, thread,
					      asked ? rtscope__needs_of_all(shared) : rtscope__need_of(shared, word),
					      asked, answer);
		/* ORDER: signal fence; a handler that finds the page finds it filled. */
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		rtscope__set(shared, thread);
	}
	rtscope__end_work(shared, signals);
	return thread;
}

/*
 * Waits a little while the ring is full. False: this thread must not wait, or there is no collector any more to empty it. A
 * collector that ends takes the flag back; one that was killed cannot, so its silence tells. Its number would not: it may mean
 * another process here, in a container.
 */
RTSCOPE__SELDOM int rtscope__wait(struct rtscope__thread *thread, struct rtscope__waiting *state)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtu_provider *provider = shared->provider;
	struct timespec pause = { 0, 100000 };
	uint64_t beat, now;

	if (!thread->may_block || !provider)
		return 0;
	beat = RTSCOPE__LOAD(provider->beat);
	/* Another thread has waited for it long enough. */
	if (RTSCOPE__LOAD(shared->was_silent) && RTSCOPE__LOAD(shared->silent_beat) == beat)
		return 0;
	now = rtscope__monotonic(RTSCOPE__CLOCK_MONOTONIC);
	if (!state->since_ns && rtscope__is_realtime())
		return 0;
	if (!state->since_ns || state->beat != beat) {
		state->since_ns = now;
		state->beat = beat;
	}
	if (now - state->since_ns > RTU_SILENCE_NS) {
		RTSCOPE__STORE(shared->silent_beat, beat);
		RTSCOPE__STORE(shared->was_silent, 1);
		return 0;
	}
	rtscope__count(&thread->ring->waits);
	rtscope__call(__NR_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
	return 1;
}

/* The second half of the following, whose stack is not to be added to that of whoever makes a ring. */
static RTSCOPE__NOT_INLINE struct rtscope__reserved rtscope__reserve_in(struct rtscope__thread *thread, uint32_t id,
									uint64_t bytes, uintptr_t stack)
{
	struct rtscope__shared *leader = rtscope__leader;
	struct rtscope__record record;
	struct rtscope__reserved reserved;
	struct rtscope__waiting waiting;
	struct rtscope__noting event;
	int is_noted = 0;

	/* One by one: for initialisers of structures compilers call memset(), and this is on the way of events. */
	reserved.place = NULL;
	reserved.open = NULL;
	waiting.since_ns = waiting.beat = 0;
	event.open = NULL;
	event.standing = RTSCOPE__OUTSIDE;
	event.at = NULL;
	for (;;) {
		uint32_t flags = RTSCOPE__LOAD(*leader->flags);
		struct rtu_ring *ring = RTSCOPE__LOAD(thread->ring);
		enum rtscope__step step;

		/* A handler has forked, and this is the child. */
		if (!ring) {
			leader->lost(RTU_LOST_IN_CHILD);
			return reserved;
		}
		/* Not where an event is open: whether it was left is found out below, and the collector may stand at its record. */
		if (!is_noted && !(flags & (RTU_FLIGHT | RTU_BLOCKING)) && !RTSCOPE__LOAD(thread->open) &&
		    rtscope__is_full(thread, ring, bytes)) {
			rtscope__count(&ring->lost);
			return reserved;
		}
		if (!is_noted) {
			rtscope__note_event(thread, ring, stack, (int)(flags & RTU_FLIGHT), &event);
			is_noted = 1;
		}
		/* Again: a handler on a higher stack may have taken this one for left before it had a record. */
		if (event.standing == RTSCOPE__OUTSIDE)
			RTSCOPE__STORE(thread->open, stack);
		/* ORDER: signal fence; as in rtscope__reserve(). */
		RTSCOPE__WRITTEN_BEFORE();
		step = rtscope__step(thread, ring, id, bytes, flags & RTU_FLIGHT, event.at, &record);
		if (step == RTSCOPE__DONE)
			break;
		if (step == RTSCOPE__AGAIN)
			continue;
		if (flags & RTU_BLOCKING && !rtscope__stands_in_way(thread, ring, event.standing) &&
		    leader->wait(thread, &waiting)) {
			/* Meanwhile the collector may have passed what this one may be inside of. */
			is_noted = event.standing != RTSCOPE__IN_DOUBT;
			continue;
		}
		rtscope__count(&ring->lost);
		rtscope__unnote_event(&event);
		return reserved;
	}
	reserved.place = record.place;
	reserved.open = event.open;
	return reserved;
}

/* Reserves a record when that takes more than a place. Also the first event of a thread. `stack`: the event's stack pointer. */
RTSCOPE__HIDDEN_FUNCTION struct rtscope__reserved rtscope__reserve_slowly(uint32_t id, uint64_t bytes, uintptr_t stack)
{
	struct rtscope__shared *leader = rtscope__leader;
	struct rtscope__thread *thread;
	struct rtscope__reserved nothing;
	struct rtscope__answer answer;

	nothing.place = NULL;
	nothing.open = NULL;
	if (!leader)
		return nothing;
	/*
	 * ORDER: acquire; pairs with the release of `enabled` in Provider::enable (crates/programs/src/provider.rs), of which RTSCOPE_EVENT
	 * (event.h) has seen the value: session, flags and ring_bytes are those of the collector that enabled the event. On x86 nothing.
	 */
	RTSCOPE__FENCE_ACQUIRE();
	if (bytes > RTU_RECORD_BYTES_MAX) {
		leader->lost(RTU_LOST_TOO_LARGE);
		return nothing;
	}
	if (id & RTSCOPE__TO_CHANNEL) {
		id &= ~RTSCOPE__TO_CHANNEL;
		if (leader->leads & RTSCOPE__HAS_CHANNELS) {
			nothing.place = leader->room->stage(id, bytes, stack);
			if (nothing.place != RTSCOPE__RING_INSTEAD)
				return nothing;
			nothing.place = NULL;
		}
	}
	thread = leader->find();
	if (!thread->ring) {
		thread = leader->thread(0, id, &answer);
		/* The look has told that it goes to a channel. */
		if (!thread->ring && !answer.error && leader->leads & RTSCOPE__HAS_CHANNELS) {
			nothing.place = leader->room->stage(id, bytes, stack);
			return nothing;
		}
		if (!thread->ring) {
			if (answer.error != RTSCOPE__UNWANTED)
				leader->lost(answer.cause);
			return nothing;
		}
	}
	return rtscope__reserve_in(thread, id, bytes, stack);
}

/* An event that is not noted in its thread's page is complete: of a channel, or inside of another one. */
RTSCOPE__HIDDEN_FUNCTION void rtscope__commit_slowly(const unsigned char *payload)
{
	struct rtscope__shared *leader = rtscope__leader;

	if (leader && leader->leads & RTSCOPE__HAS_CHANNELS)
		leader->room->send(payload);
}

/* The calling thread writes no more. */
RTSCOPE__SELDOM void rtscope__end_ring(struct rtscope__thread *thread)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtu_ring *ring = thread->ring;
	uint64_t signals;

	if (!ring && !thread->channel)
		return;
	/* A fork in between would not know what is mapped. */
	signals = rtscope__begin_work(shared);
	rtscope__close_channel(shared, thread);
	if (!ring) {
		thread->no_channel = ~0ULL;
		rtscope__end_work(shared, signals);
		return;
	}
	thread->why = RTU_LOST_CAUSES;
	thread->session = ~0ULL;
	RTSCOPE__STORE(thread->limit, 0);
	RTSCOPE__STORE(thread->ring, (struct rtu_ring *)NULL);
	if (rtscope__claim(&shared->room->places[thread->place], ring))
		rtscope__leave(shared, &shared->room->places[thread->place], ring, thread->bytes);
	rtscope__end_work(shared, signals);
}

/* The last of a thread, by its key's destructor. Other destructors may still record, so it is put off as long as possible. */
RTSCOPE__SELDOM void rtscope__end_thread(void *page)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = (struct rtscope__thread *)page;
	uint64_t signals;

	/* A page from before a fork: something interrupted may still stand in it (life.h). */
	if (thread != rtscope__find())
		return;
	if (++thread->destructions < RTSCOPE__KEY_ROUNDS && !rtscope__key_set(shared->key, page))
		return;
	/* A handler in between would make a new ring in this page, which nobody gives back, and children of forks would unmap what is there later. */
	signals = rtscope__block_signals();
	rtscope__end_ring(thread);
	rtscope__set(shared, &rtscope__ended);
	/* From here on a handler finds rtscope__ended, before the page is unmapped. */
	rtscope__let_signals(signals);
	rtscope__unmap(thread, sizeof(*thread));
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The slow way to a record: an event that needs more than a place (ring.h) goes in steps, each of which leaves the ring whole for handlers that come in
 * between: it closes a sub-buffer, begins one or leaves one out, notes a loss or the time, and reserves.
 *
 * It comes here, too, when another event is open. Then it is in a handler that has interrupted that one, or its thread has jumped away from that one: where its
 * stack is tells (rtscope__standing). The sub-buffer in which a record is open is left out of the laps that follow, until it is complete, or its thread has certainly
 * jumped away from it (rtscope__is_spared).
 */
#ifndef RTSCOPE_STEPS_H
#define RTSCOPE_STEPS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "ring.h"

/* Whether an event is inside of another one that is open. */
enum rtscope__standing { RTSCOPE__OUTSIDE, RTSCOPE__INSIDE, RTSCOPE__IN_DOUBT };

static inline uint32_t rtscope__stood_count(const struct rtscope__thread *thread)
{
	uint64_t sub_bytes = RTSCOPE__LOAD(thread->sub_mask) + 1, all = RTSCOPE__LOAD(thread->mask) + 1;
	uint32_t count = 0;

	while (count < RTSCOPE__STOOD_MAX && (count + 3) * sub_bytes <= all)
		count++;
	return count;
}

/*
 * Notes an event at `noted`. If all places are taken, that of an event which stood deeper in the stack than `stack` is used, and was most likely
 * left: the oldest. NULL: there is none. Handlers do the same, and what they note of others stays: hence the swap.
 */
static inline struct rtscope__stood *rtscope__note_stood(struct rtscope__thread *thread, uintptr_t noted,
							 uintptr_t stack)
{
	uint32_t count = rtscope__stood_count(thread);

	for (;;) {
		struct rtscope__stood *place = NULL;
		uintptr_t there = 0;

		for (uint32_t i = 0; i < count; i++) {
			struct rtscope__stood *next = &thread->stood[i];
			uintptr_t other = RTSCOPE__LOAD(next->stack);

			if (!place ? !other || other < stack :
				     there && (!other || (other < stack && RTSCOPE__LOAD(next->position) <
										   RTSCOPE__LOAD(place->position)))) {
				place = next;
				there = other;
			}
		}
		if (!place || rtscope__swap((uint64_t *)(void *)&place->stack, there, noted))
			return place;
	}
}

/* An event with this stack pointer has begun: earlier ones with the same are complete, or were left. */
static inline void rtscope__forget(struct rtscope__thread *thread, uintptr_t stack)
{
	uint32_t count = rtscope__stood_count(thread);

	for (uint32_t i = 0; i < count; i++)
		if (RTSCOPE__LOAD(thread->stood[i].stack) == stack)
			RTSCOPE__STORE(thread->stood[i].stack, (uintptr_t)0);
}

/* An event may have been left: it is not the one at `open` or `doubter` any more, and its record's place stays as it is. */
static inline void rtscope__spare(struct rtscope__thread *thread, uintptr_t noted, uint64_t position, uintptr_t stack)
{
	struct rtscope__stood *place;

	rtscope__forget(thread, noted);
	place = rtscope__note_stood(thread, noted, stack);
	if (place)
		RTSCOPE__STORE(place->position, position);
}

/*
 * Another event is open: whether this one, whose stack pointer is `stack`, is inside of it, in a handler that has interrupted it. If not,
 * that one's thread has jumped away, and the collector is told that what is open up to here will never be finished.
 *
 * An event with the same stack pointer is in the same place of the same stack, so nothing stands there any more. A stack that is less deep
 * means a jump, too, unless this is a handler with another stack: then the collector is only told to have less patience. In doubt
 * this event is inside; until the collector is past the other one.
 */
static inline enum rtscope__standing rtscope__standing(struct rtscope__thread *thread, struct rtu_ring *ring,
						       uintptr_t stack, int flight)
{
	uintptr_t open = RTSCOPE__LOAD(thread->open), doubter;
	uint64_t head = RTSCOPE__LOAD(ring->head);

	rtscope__forget(thread, stack);
	if (!open)
		return RTSCOPE__OUTSIDE;
	doubter = RTSCOPE__LOAD(thread->doubter);
	/* A handler may have interrupted one that came in doubt, and have the stack pointer of the other, which was a handler's. */
	if (stack < open || stack < doubter)
		return RTSCOPE__INSIDE;
	if (stack == open) {
		/* ORDER: release; pairs with the acquire in Ring::take (crates/programs/src/ring.rs): the words of finished records are seen. */
		RTSCOPE__STORE_RELEASE(ring->settled, head);
	} else if (!flight && (thread->doubtful != open || RTSCOPE__LOAD(ring->tail) < thread->doubtful_head)) {
		if (thread->doubtful != open)
			thread->doubtful_head = head;
		thread->doubtful = open;
		/* ORDER: release; as above. */
		RTSCOPE__STORE_RELEASE(ring->doubtful, head);
		RTSCOPE__STORE(thread->doubter, stack);
		return RTSCOPE__IN_DOUBT;
	} else {
		rtscope__spare(thread, open, RTSCOPE__LOAD(thread->open_at), stack);
	}
	if (doubter && doubter != stack)
		rtscope__spare(thread, doubter, RTSCOPE__LOAD(thread->doubter_at), stack);
	/* The next one that is left may have the same stack pointer. */
	thread->doubtful = 0;
	RTSCOPE__STORE(thread->open, (uintptr_t)0);
	RTSCOPE__STORE(thread->doubter, (uintptr_t)0);
	return RTSCOPE__OUTSIDE;
}

/* An event that is about to be written, and where its stack pointer and its position are noted meanwhile; NULL: nowhere. */
struct rtscope__noting {
	enum rtscope__standing standing;
	uintptr_t *open;
	uint64_t *at;
};

/* Notes an event. It is noted again, if a handler has come before its record was reserved. */
static inline void rtscope__note_event(struct rtscope__thread *thread, struct rtu_ring *ring, uintptr_t stack,
				       int flight, struct rtscope__noting *event)
{
	struct rtscope__stood *place;

	event->standing = rtscope__standing(thread, ring, stack, flight);
	if (event->standing == RTSCOPE__OUTSIDE) {
		event->open = &thread->open;
		event->at = &thread->open_at;
		RTSCOPE__STORE(thread->inside_from, (uint64_t)0);
		return;
	}
	if (!RTSCOPE__LOAD(thread->inside_from)) {
		RTSCOPE__STORE(thread->inside_from, RTSCOPE__LOAD(ring->head));
		/* The next event that is outside of others comes here, and says that this one is complete. */
		RTSCOPE__STORE(thread->limit, 0);
	}
	if (event->standing == RTSCOPE__IN_DOUBT) {
		event->open = &thread->doubter;
		event->at = &thread->doubter_at;
	} else {
		place = rtscope__note_stood(thread, stack, 0);
		event->open = place ? &place->stack : NULL;
		event->at = place ? &place->position : NULL;
	}
}

/* An event that was noted is lost. */
static inline void rtscope__unnote_event(const struct rtscope__noting *event)
{
	if (event->open)
		RTSCOPE__STORE(*event->open, (uintptr_t)0);
}

/*
 * Whether a sub-buffer begins at a position in whose place a record of an earlier lap is open, which was given back, as all is before `tail`. `at`: of
 * the event that asks.
 */
static inline int rtscope__is_spared(const struct rtscope__thread *thread, uint64_t sub_mask, uint64_t position,
				     uint64_t tail, const uint64_t *at)
{
	uint64_t span = RTSCOPE__LOAD(thread->mask) & ~sub_mask;
	uint32_t count = rtscope__stood_count(thread);

	if (position & sub_mask)
		return 0;
/* One at the position itself is not reserved yet. */
#define RTSCOPE__IS_IN(noted) \
	(RTSCOPE__LOAD(noted) < position && RTSCOPE__LOAD(noted) < tail && !((RTSCOPE__LOAD(noted) ^ position) & span))
	if (at != &thread->open_at && RTSCOPE__LOAD(thread->open) && RTSCOPE__IS_IN(thread->open_at) &&
	    RTSCOPE__LOAD(thread->inside_from) <= tail)
		return 1;
	/* Of four sub-buffers one is left without it. */
	if (count == RTSCOPE__STOOD_MAX && at != &thread->doubter_at && RTSCOPE__LOAD(thread->doubter) &&
	    RTSCOPE__IS_IN(thread->doubter_at))
		return 1;
	for (uint32_t i = 0; i < count; i++)
		if (at != &thread->stood[i].position && RTSCOPE__LOAD(thread->stood[i].stack) &&
		    RTSCOPE__IS_IN(thread->stood[i].position))
			return 1;
#undef RTSCOPE__IS_IN
	return 0;
}

/* Writes a sync record: where and when this thread is, and what it lost. Nothing, if something else came first. */
static inline void rtscope__sync(struct rtscope__thread *thread, struct rtu_ring *ring, struct rtscope__where where,
				 uint64_t position, uint64_t now, uint32_t cpu)
{
	struct rtscope__record record = rtscope__prepare(where, position, RTU_ID_SYNC, sizeof(struct rtu_sync), now);
	uint64_t lost = RTSCOPE__LOAD(ring->lost);
	uint64_t rest[3];

	if (!rtscope__swap(&ring->head, position, position + sizeof(struct rtu_sync)))
		return;
	rtscope__begin(record);
	rest[0] = now;
	rest[1] = lost;
	rest[2] = cpu;
	RTSCOPE__COPY(record.place, rest, sizeof(rest));
	rtscope__publish(record);
	/*
	 * A handler that wrote a newer sync record after the swap is overwritten with these older values. Of the time and the
	 * losses that only makes the next sync record come early. Of the CPU, too, unless the thread has moved back since:
	 * then events until the next move are said to be on the CPU that the handler was on.
	 */
	RTSCOPE__STORE(thread->sync, now);
	RTSCOPE__STORE(thread->cpu, cpu);
	RTSCOPE__STORE(thread->lost_told, lost);
}

/*
 * Whether a ring has no room for a record and the sync record that a loss asks for; a quick look, which notes nothing and reads no time. What it does
 * not say rtscope__step() finds out. A program whose recorder was killed has this for each event.
 */
static inline int rtscope__is_full(const struct rtscope__thread *thread, const struct rtu_ring *ring, uint64_t bytes)
{
	uint64_t size = RTSCOPE__LOAD(thread->mask) + 1, told = RTSCOPE__LOAD(thread->lost_told), sync;

	/* ORDER: signal fence; as in rtscope__step(): in the child of a fork in a handler the second look finds no ring. */
	RTSCOPE__READ_BEFORE();
	if (RTSCOPE__LOAD(thread->ring) != ring)
		return 0;
	sync = RTSCOPE__LOAD(ring->lost) != told ? sizeof(struct rtu_sync) : 0;
	/* ORDER: relaxed; nothing is written on the strength of it. */
	return RTSCOPE__LOAD(ring->head) + bytes + sync > RTSCOPE__LOAD(ring->tail) + size;
}

enum rtscope__step { RTSCOPE__AGAIN, RTSCOPE__FULL, RTSCOPE__DONE };

/*
 * One step on the way to a reserved record: closes a sub-buffer, begins one or leaves one out, notes a loss, a CPU or the time, or reserves.
 * `ring` is the thread's; its memory stays, whatever a handler does. `flight`: the ring is overwritten, so it is never full. `at`: where
 * the event's position is noted, as in struct rtscope__noting. `record` is written when it is done, and not before.
 */
static inline enum rtscope__step rtscope__step(struct rtscope__thread *thread, struct rtu_ring *ring, uint32_t id,
					       uint64_t bytes, int flight, uint64_t *at, struct rtscope__record *record)
{
	const uint32_t *cpu_place = RTSCOPE__LOAD(thread->cpu_place);
	struct rtscope__where where = rtscope__read_where(thread);
	struct rtscope__record next;
	uint64_t sub_mask = RTSCOPE__LOAD(thread->sub_mask), position, now, sub_end, room_end, tail, need = bytes;
	uint32_t cpu;
	int sync;

	/* ORDER: signal fence; pairs with a fork in a handler of this thread: in its child the second look finds no ring. */
	RTSCOPE__READ_BEFORE();
	if (RTSCOPE__LOAD(thread->ring) != ring)
		return RTSCOPE__AGAIN;
	position = RTSCOPE__LOAD(ring->head);
	if (at) {
		RTSCOPE__STORE(*at, position);
		/* ORDER: signal fence; a handler that comes after the reservation finds the place noted. */
		RTSCOPE__WRITTEN_BEFORE();
		/* A handler in between has noted a later one. */
		if (RTSCOPE__LOAD(ring->head) != position)
			return RTSCOPE__AGAIN;
	}
	/*
	 * ORDER: stores; pairs with the fence in Ring::snapshot (crates/programs/src/ring.rs). Records in a sub-buffer are only written
	 * behind a step in it. So whoever sees a byte of them also sees that the head has come as far, and knows that the sub-buffer is
	 * being overwritten.
	 */
	RTSCOPE__FENCE_STORES();
	now = rtscope__now(RTSCOPE__LOAD(thread->clock));
	sub_end = (position & ~sub_mask) + sub_mask + 1;
	cpu = RTSCOPE__LOAD(*cpu_place);
	sync = !(position & sub_mask) || (now - RTSCOPE__LOAD(thread->sync)) >> RTU_TIME_BITS ||
	       cpu != RTSCOPE__LOAD(thread->cpu) || RTSCOPE__LOAD(ring->lost) != RTSCOPE__LOAD(thread->lost_told);

	/* ORDER: acquire; pairs with the release in Ring::give_back (crates/programs/src/ring.rs): it has done with what it gives back. */
	tail = flight ? position : RTSCOPE__LOAD_ACQUIRE(ring->tail);
	room_end = tail + where.mask + 1;
	if (sync)
		need += sizeof(struct rtu_sync);
	if (position + need > sub_end || rtscope__is_spared(thread, sub_mask, position, tail, at)) {
		if (sub_end > room_end)
			return RTSCOPE__FULL;
		next = rtscope__prepare(where, position, RTU_ID_PADDING, 8, now);
		if (rtscope__swap(&ring->head, position, sub_end)) {
			rtscope__begin(next);
			rtscope__publish(next);
		}
		return RTSCOPE__AGAIN;
	}
	if (position + need > room_end)
		return RTSCOPE__FULL;
	if (sync) {
		rtscope__sync(thread, ring, where, position, now, cpu);
		return RTSCOPE__AGAIN;
	}
	/* Inside of another event: its record is where the limit says, and the next event looks itself. */
	if (at == &thread->open_at)
		RTSCOPE__STORE(thread->limit, sub_end < room_end ? sub_end : room_end);
	/* In the child of a fork since the second look: there the limit has to be 0 for those whom this handler has interrupted. */
	if (RTSCOPE__LOAD(thread->ring) != ring) {
		RTSCOPE__STORE(thread->limit, 0);
		return RTSCOPE__AGAIN;
	}
	next = rtscope__prepare(where, position, id, bytes, now);
	if (!rtscope__swap(&ring->head, position, position + bytes))
		return RTSCOPE__AGAIN;
	rtscope__begin(next);
	*record = next;
	return RTSCOPE__DONE;
}

/*
 * Whether waiting for room is no use: the collector stands at a record that is not complete, and this event is inside of that one. When it has
 * given it up it goes on.
 */
static inline int rtscope__stands_in_way(const struct rtscope__thread *thread, const struct rtu_ring *ring,
					 enum rtscope__standing standing)
{
	struct rtscope__where where = rtscope__read_where(thread);
	uint64_t tail = RTSCOPE__LOAD(ring->tail), word;

	if (standing != RTSCOPE__INSIDE || !where.data)
		return 0;
	word = RTSCOPE__LOAD(*(uint64_t *)(void *)(where.data + (tail & where.mask)));
	return (word >> 16 & 0xff) != (((tail >> where.shift) + where.key) & 0x7f);
}

#endif

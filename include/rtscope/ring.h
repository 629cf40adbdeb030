/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The writer's side of a thread's ring. Only its thread writes, but a signal handler may interrupt it anywhere and write
 * too, so space is reserved with a compare-and-swap: not a locked one, since no other CPU takes part. The time is read before
 * it and again when it fails, so records are in order of time.
 *
 * Cost of an event: the clock, about twenty-five instructions, and one cache line of records now and then. The shared positions
 * are looked at once in a sub-buffer (the limit below), not once in an event. No function of the C library is called, since somebody else's
 * may stand in its place and have events itself.
 *
 * A handler may also jump away from the event that it has interrupted (siglongjmp, an exception): the record stays unfinished. So
 * each event notes where its thread's stack is, and the next one knows whether it is in a handler or behind a jump
 * (rtscope__standing).
 *
 * Or it comes back after as many events as the ring has room for, or after the collector has given the record up, and finishes it then.
 * So the sub-buffer in which a record is open is left out of the laps that follow, until it is complete, or its thread
 * has certainly jumped away from it (rtscope__is_spared).
 */
#ifndef RTSCOPE_RING_H
#define RTSCOPE_RING_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "abi.h"
#include "clock.h"
#include "names.h"

#include <stddef.h>
#include <stdint.h>

#define RTSCOPE__LIKELY(x) __builtin_expect(!!(x), 1)
#define RTSCOPE__UNLIKELY(x) __builtin_expect(!!(x), 0)
/*
 * What the writer does to memory that others see: handlers of its thread, a fork's child, and the collector. A model of this ring
 * (crates/programs/src/model) puts its own in their place, and the code below runs in it as it is.
 */
#if !defined(RTSCOPE_MODEL)
/*
 * Reads and writes that a signal handler, another process or the compiler must not tear apart. ORDER: relaxed, so they order
 * nothing: most are of this thread and its handlers only, or of numbers that stand for themselves. What needs more says so.
 */
#define RTSCOPE__LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define RTSCOPE__STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)
/* ORDER: acquire and release; who pairs with them is said where they are used. */
#define RTSCOPE__LOAD_ACQUIRE(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define RTSCOPE__STORE_RELEASE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
/* Bytes that the release of a record's word publishes. */
#define RTSCOPE__COPY(to, from, bytes) rtscope__copy(to, from, bytes)
/* ORDER: the compiler's only, for handlers of this thread: what stands before it is read before what stands after it. */
#define RTSCOPE__READ_BEFORE() __atomic_signal_fence(__ATOMIC_ACQUIRE)
/* ORDER: as above: what stands before it is written before what stands after it. */
#define RTSCOPE__WRITTEN_BEFORE() __atomic_signal_fence(__ATOMIC_RELEASE)
/*
 * ORDER: stores before it are seen before stores after it; pairs with the fence in Ring::snapshot (crates/programs/src/ring.rs). x86
 * does so without an instruction. Not the compiler's fence, which on arm64 also waits for loads and which TSan does not know.
 */
#if defined(__aarch64__)
#define RTSCOPE__FENCE_STORES() __asm__ __volatile__("dmb ishst" : : : "memory")
#else
#define RTSCOPE__FENCE_STORES() __asm__ __volatile__("" : : : "memory")
#endif
#endif
/*
 * Fences that TSan lets pass without a warning. ORDER: loads before the first come before everything behind it; everything before the
 * second comes before everything behind it. Who pairs with them is said where they are used.
 */
#if defined(__aarch64__)
#define RTSCOPE__FENCE_ACQUIRE() __asm__ __volatile__("dmb ishld" : : : "memory")
#define RTSCOPE__FENCE_ALL() __asm__ __volatile__("dmb ish" : : : "memory")
#else
/* ORDER: as above; x86 keeps loads in order, and only a load may pass a store. */
#define RTSCOPE__FENCE_ACQUIRE() __asm__ __volatile__("" : : : "memory")
#define RTSCOPE__FENCE_ALL() __asm__ __volatile__("mfence" : : : "memory")
#endif

/* A record of an event that is not the outermost one, or may have been left: the event's stack pointer, and a position in its sub-buffer. */
struct rtscope__stood {
	uintptr_t stack; /* 0: none. */
	uint64_t position;
};

/* How many of them are known; in rings of four sub-buffers half as many, of two none. With those at `open` and `doubter`, one sub-buffer is left. */
#define RTSCOPE__STOOD_MAX 4

/*
 * What a thread needs at hand. It lies in a page that a fork makes zero (MADV_WIPEONFORK): the child, however it was
 * made, finds no ring and cannot write into its parent's.
 */
struct rtscope__thread {
	struct rtu_ring *ring; /* NULL: none */
	unsigned char *data;
	uint64_t limit; /* up to here records need no further check: end of the sub-buffer, or of what is free */
	uint64_t sync;	/* time of the newest sync record */
	const uint32_t *cpu_place; /* where the kernel says on which CPU the thread is (rseq), or a constant */
	uint32_t cpu;		   /* as the newest sync record says */
	uint32_t clock;
	uint64_t mask;
	uint32_t shift; /* log2(ring_bytes) */
	uint32_t key;
	uint64_t lost_told; /* as the newest sync record says */
	uint64_t sub_mask;
	uint32_t why; /* without a ring: enum rtu_cause */
	uint32_t may_block;
	uint64_t session;     /* without a ring: the session for which none could be made */
	uint64_t bytes;	      /* of the mapping */
	uint64_t silent_beat; /* blocking mode: the beat after which nothing came any more */
	uint32_t destructions, was_silent;
	uint32_t place; /* of the leader's list */
	uint32_t zero;
	/* The stack pointer of the event that is being written, of the outermost if handlers write others; 0: none is. */
	uintptr_t open;
	/* An event that may have been left, and how far the ring was when that was first seen. */
	uintptr_t doubtful;
	uint64_t doubtful_head;
	/* The stack pointer of an event that is being written and found it open; 0: none is. */
	uintptr_t doubter;
	/* Of an STM (channel.h), and the session for which there was none. Only the leader looks at them. */
	struct rtscope__channel *channel;
	uint64_t no_channel;
	/*
	 * Positions in the sub-buffers of the events at `open` and at `doubter`. The first is noted with the limit: events that need only a
	 * place are in that sub-buffer.
	 */
	uint64_t open_at, doubter_at;
	/* How far the ring was when the event at `open` was first found open: its record ends there or before, or is not reserved yet. 0: it was not. */
	uint64_t inside_from;
	struct rtscope__stood stood[RTSCOPE__STOOD_MAX];
};

/* Beside an event's id: it goes to a channel. */
#define RTSCOPE__TO_CHANNEL 0x80000000U

/* Any bytes, wherever they are. */
typedef uint64_t __attribute__((may_alias, aligned(1))) rtscope__word;
typedef uint32_t __attribute__((may_alias, aligned(1))) rtscope__half;
/* As many as one instruction moves, and where the compiler may have them. */
#if defined(__x86_64__) && defined(__SSE2__)
typedef long long __attribute__((vector_size(16), may_alias, aligned(1))) rtscope__wide;
#define RTSCOPE__WIDE "+x"
#elif defined(__aarch64__) && defined(__ARM_NEON)
typedef long long __attribute__((vector_size(16), may_alias, aligned(1))) rtscope__wide;
#define RTSCOPE__WIDE "+w"
#else
typedef rtscope__word rtscope__wide;
#define RTSCOPE__WIDE "+r"
#endif
#define RTSCOPE__WIDE_BYTES sizeof(rtscope__wide)
typedef uint16_t __attribute__((may_alias, aligned(1))) rtscope__quarter;

/* What a copy in one piece is not worth. */
#define RTSCOPE__SHORT 256

/* Copies bytes. Not by memcpy(), as said above; nor may the compiler see that it is that, so each word passes an empty asm statement. */
static inline __attribute__((always_inline)) void rtscope__copy(void *into, const void *what, uint64_t bytes)
{
	unsigned char *to = (unsigned char *)into;
	const unsigned char *from = (const unsigned char *)what;

	if (__builtin_constant_p(bytes) && bytes == 8) {
		*(rtscope__word *)(void *)to = *(const rtscope__word *)(const void *)from;
		return;
	}
	if (__builtin_constant_p(bytes) && bytes == 4) {
		*(rtscope__half *)(void *)to = *(const rtscope__half *)(const void *)from;
		return;
	}
	/* GCC warns of what is not read from short arrays, if it knows how long they are. */
	__asm__("" : "+r"(from));
#if defined(__x86_64__)
	if (bytes >= RTSCOPE__SHORT) {
		__asm__ __volatile__("{rep movsb|rep movsb}" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
		return;
	}
#endif
	for (; bytes >= 4 * RTSCOPE__WIDE_BYTES; bytes -= 4 * RTSCOPE__WIDE_BYTES) {
		const rtscope__wide *words = (const rtscope__wide *)(const void *)from;
		rtscope__wide a = words[0], b = words[1], c = words[2], d = words[3];

		__asm__("" : RTSCOPE__WIDE(a), RTSCOPE__WIDE(b), RTSCOPE__WIDE(c), RTSCOPE__WIDE(d));
		((rtscope__wide *)(void *)to)[0] = a;
		((rtscope__wide *)(void *)to)[1] = b;
		((rtscope__wide *)(void *)to)[2] = c;
		((rtscope__wide *)(void *)to)[3] = d;
		to += 4 * RTSCOPE__WIDE_BYTES, from += 4 * RTSCOPE__WIDE_BYTES;
	}
	for (; bytes >= RTSCOPE__WIDE_BYTES; bytes -= RTSCOPE__WIDE_BYTES) {
		rtscope__wide word = *(const rtscope__wide *)(const void *)from;

		__asm__("" : RTSCOPE__WIDE(word));
		*(rtscope__wide *)(void *)to = word;
		to += RTSCOPE__WIDE_BYTES, from += RTSCOPE__WIDE_BYTES;
	}
	if (bytes & 8) {
		*(rtscope__word *)(void *)to = *(const rtscope__word *)(const void *)from;
		to += 8, from += 8;
	}
	if (bytes & 4) {
		*(rtscope__half *)(void *)to = *(const rtscope__half *)(const void *)from;
		to += 4, from += 4;
	}
	if (bytes & 2) {
		*(rtscope__quarter *)(void *)to = *(const rtscope__quarter *)(const void *)from;
		to += 2, from += 2;
	}
	if (bytes & 1)
		*to = *from;
}

#if !defined(RTSCOPE_MODEL)
/* The stack pointer. That of a handler is lower than that of what it has interrupted, unless the handler has a stack of its own. */
static inline __attribute__((always_inline)) uintptr_t rtscope__stack(void)
{
	uintptr_t pointer;

#if defined(__x86_64__)
	__asm__ __volatile__("{movq %%rsp, %0|mov %0, rsp}" : "=r"(pointer));
#else
	__asm__ __volatile__("mov %0, sp" : "=r"(pointer));
#endif
	return pointer;
}

/* *place += 1 that a signal handler of this thread cannot lose. */
static inline void rtscope__count(uint64_t *place)
{
#if defined(__x86_64__)
	/*
	 * A register tells the size in both of the assembler's languages. ORDER: none; one instruction, so that a handler comes before
	 * or after it. Pairs with Ring::lost() and waits() (crates/programs/src/ring.rs): a counter that stands for itself.
	 */
	__asm__ __volatile__("add{q %1, %0| %0, %1}" : "+m"(*place) : "r"((uint64_t)1) : "cc");
#else
	/* ORDER: relaxed; as above. A handler in between makes the processor's store fail, and it is done again. */
	__atomic_fetch_add(place, 1, __ATOMIC_RELAXED);
#endif
}

/*
 * Compare-and-swap against this thread's signal handlers only; other CPUs only read. ORDER: none but the compiler's on x86, where
 * stores become visible in order; relaxed on arm64. The collector reads the head (Ring::take, crates/programs/src/ring.rs) and then
 * believes only a word with this lap's tag, so it does no harm there when the head is seen before the word; and it looks at no word
 * beyond the head that it has seen. For flight recorders the fence in rtscope__step() keeps head and records in order.
 */
static inline __attribute__((always_inline)) int rtscope__swap(uint64_t *place, uint64_t old, uint64_t value)
{
#if defined(__x86_64__)
	unsigned char done;

	/* ORDER: as above; not locked. */
	__asm__ __volatile__("{cmpxchgq %3, %1|cmpxchg %1, %3}\n\tsete %0"
			     : "=q"(done), "+m"(*place), "+a"(old)
			     : "r"(value)
			     : "cc", "memory");
	return done;
#else
	/* ORDER: relaxed; as above. */
	return __atomic_compare_exchange_n(place, &old, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
}
#endif

/* A record that is being written. `place` is NULL when it did not fit: the loss is counted. */
struct rtscope__record {
	unsigned char *place; /* of the payload */
	uint64_t word;
	uintptr_t *open; /* what is set to 0 when it is complete; NULL: nothing */
};

/* The same as functions return it. The word is in the ring, with RTU_OPEN. */
struct rtscope__reserved {
	unsigned char *place;
	uintptr_t *open;
};

/* Where records go. Read before a record is reserved: a fork in a handler that comes after that makes the thread's page zero. */
struct rtscope__where {
	unsigned char *data;
	uint64_t mask;
	uint32_t shift, key;
};

static inline __attribute__((always_inline)) struct rtscope__where
rtscope__read_where(const struct rtscope__thread *thread)
{
	struct rtscope__where where;

	where.data = RTSCOPE__LOAD(thread->data);
	where.mask = RTSCOPE__LOAD(thread->mask);
	where.shift = RTSCOPE__LOAD(thread->shift);
	where.key = RTSCOPE__LOAD(thread->key);
	return where;
}

/* A record at a position that is not reserved yet. */
static inline __attribute__((always_inline)) struct rtscope__record
rtscope__prepare(struct rtscope__where where, uint64_t position, uint32_t id, uint64_t bytes, uint64_t now)
{
	uint64_t tag = ((position >> where.shift) + where.key) & 0x7f;
	struct rtscope__record record = { where.data + (position & where.mask) + 8,
					  id | tag << 16 | (bytes >> 3) << 24 | now << RTU_TIME_SHIFT, NULL };

	return record;
}

/*
 * Its space is reserved. Writes its word, so that a reader can step over it if this thread never comes back. ORDER: after the
 * reservation, by the asm's clobber; pairs with the load in Records::header (crates/programs/src/walk.rs), which believes no payload of it.
 */
static inline __attribute__((always_inline)) void rtscope__begin(struct rtscope__record record)
{
	RTSCOPE__STORE(*(uint64_t *)(void *)(record.place - 8), record.word | (uint64_t)RTU_OPEN << 16);
}

/*
 * The record is complete. ORDER: release; pairs with the acquire load of the word in Records::header
 * (crates/programs/src/walk.rs), which then sees the payload.
 */
static inline __attribute__((always_inline)) void rtscope__publish(struct rtscope__record record)
{
	RTSCOPE__STORE_RELEASE(*(uint64_t *)(void *)(record.place - 8), record.word);
}

#ifdef __cplusplus
extern "C" {
#endif
void rtscope__commit_slowly(const unsigned char *payload);
#ifdef __cplusplus
}
#endif

/* The event is complete. One that is not noted is one of a channel, which is sent now; or it was written inside of another one. */
static inline __attribute__((always_inline)) void rtscope__commit(struct rtscope__record record)
{
	rtscope__publish(record);
	/* ORDER: signal fence; pairs with a handler's look at `open` in rtscope__reserve(). */
	RTSCOPE__WRITTEN_BEFORE();
	if (RTSCOPE__LIKELY(record.open != NULL))
		RTSCOPE__STORE(*record.open, (uintptr_t)0);
	else
		rtscope__commit_slowly(record.place);
}

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

#ifdef __cplusplus
extern "C" {
#endif
struct rtscope__reserved rtscope__reserve_slowly(uint32_t id, uint64_t bytes, uintptr_t stack);
#ifdef __cplusplus
}
#endif

static inline __attribute__((always_inline)) struct rtscope__record
rtscope__reserved_slowly(uint32_t id, uint64_t bytes, uintptr_t stack)
{
	struct rtscope__reserved reserved = rtscope__reserve_slowly(id, bytes, stack);
	struct rtscope__record record = { reserved.place, 0, reserved.open };

	if (reserved.place)
		record.word = RTSCOPE__LOAD(*(uint64_t *)(void *)(reserved.place - 8)) & ~((uint64_t)RTU_OPEN << 16);
	return record;
}

/*
 * Whether a record of `bytes` needs more than a place: a sub-buffer's end or begin, a time or a CPU to be noted, or more space. The
 * limit is 0 in a fork's child: what was read before it was read before the fork.
 */
static inline __attribute__((always_inline)) int rtscope__needs_more(const struct rtscope__thread *thread,
								     uint64_t position, uint64_t bytes, uint64_t now)
{
	const uint32_t *cpu_place = RTSCOPE__LOAD(thread->cpu_place);

	/* ORDER: signal fence; pairs with a fork in a handler of this thread, as above. */
	RTSCOPE__READ_BEFORE();
	return position + bytes > RTSCOPE__LOAD(thread->limit) ||
	       (now - RTSCOPE__LOAD(thread->sync)) >> RTU_TIME_BITS ||
	       RTSCOPE__LOAD(*cpu_place) != RTSCOPE__LOAD(thread->cpu);
}

/* Reserves a record of `bytes` (with its word; a multiple of 8). */
static inline __attribute__((always_inline)) struct rtscope__record rtscope__reserve(struct rtscope__thread *thread,
										     uint32_t id, uint64_t bytes)
{
	uintptr_t stack = rtscope__stack();

	for (;;) {
		struct rtu_ring *ring = RTSCOPE__LOAD(thread->ring);
		struct rtscope__record record;
		uint64_t position, now;

		/* The length has 10 bits. Most events' is a constant, and this is not there. */
		if (RTSCOPE__UNLIKELY(!ring || bytes > RTU_RECORD_BYTES_MAX || RTSCOPE__LOAD(thread->open)))
			return rtscope__reserved_slowly(id, bytes, stack);
		position = RTSCOPE__LOAD(ring->head);
		now = rtscope__now(RTSCOPE__LOAD(thread->clock));
		record = rtscope__prepare(rtscope__read_where(thread), position, id, bytes, now);
		record.open = &thread->open;
		if (RTSCOPE__UNLIKELY(rtscope__needs_more(thread, position, bytes, now)))
			return rtscope__reserved_slowly(id, bytes, stack);
		RTSCOPE__STORE(thread->open, stack);
		/* ORDER: signal fence; a handler that comes after the reservation finds the event open. */
		RTSCOPE__WRITTEN_BEFORE();
		if (RTSCOPE__LIKELY(rtscope__swap(&ring->head, position, position + bytes))) {
			rtscope__begin(record);
			return record;
		}
		RTSCOPE__STORE(thread->open, (uintptr_t)0);
	}
}

/*
 * Whether the word that enables an event says that it goes to its thread's ring. An event that is recorded asks whether its word is 0 in any case;
 * RTU_TO_CHANNEL is the sign, so this is the same comparison, and channels cost events of rings nothing.
 */
static inline __attribute__((always_inline)) int rtscope__goes_to_ring(uint32_t word)
{
	return (int32_t)word > 0;
}

/*
 * The same for an event whose word, at `enabled`, is not that of a ring. It is read again, rather than kept in a register on the way of all
 * events: what has changed in between is as if the event had come a moment later, or earlier.
 */
static inline __attribute__((always_inline)) struct rtscope__record
rtscope__reserve_elsewhere(const uint32_t *enabled, uint32_t id, uint64_t bytes)
{
	struct rtscope__record nothing = { NULL, 0, NULL };

	return RTSCOPE__LOAD(*enabled) & RTU_TO_CHANNEL ?
		       rtscope__reserved_slowly(id | RTSCOPE__TO_CHANNEL, bytes, rtscope__stack()) :
		       nothing;
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

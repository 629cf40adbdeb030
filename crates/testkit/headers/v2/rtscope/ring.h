/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The writer's side of a thread's ring. Only its thread writes, but a signal handler may interrupt it anywhere and write
 * too, so space is reserved with a compare-and-swap: not a locked one, since no other CPU takes part. The time is read before
 * it and again when it fails, so records are in order of time.
 *
 * Cost of an event: the clock, about twenty instructions, and one cache line of records now and then. The shared positions
 * are looked at once in a sub-buffer (the limit below), not once in an event.
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
/* Once in each program or library, and seen there only: variables, and functions. */
#define RTSCOPE__HIDDEN __attribute__((weak, visibility("hidden")))
#define RTSCOPE__HIDDEN_FUNCTION RTSCOPE__HIDDEN RTSCOPE__BARE
/*
 * What the writer does to memory that others see: handlers of its thread, a fork's child, and the collector. A model of this ring
 * (crates/user/src/model) puts its own in their place, and the code below runs in it as it is.
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
#define RTSCOPE__COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
/* ORDER: the compiler's only, for handlers of this thread: what stands before it is read before what stands after it. */
#define RTSCOPE__READ_BEFORE() __atomic_signal_fence(__ATOMIC_ACQUIRE)
/*
 * ORDER: stores before it are seen before stores after it; pairs with the fence in Ring::snapshot (crates/user/src/ring.rs). x86
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
};

#if !defined(RTSCOPE_MODEL)
/* *place += 1 that a signal handler of this thread cannot lose. */
static inline void rtscope__count(uint64_t *place)
{
#if defined(__x86_64__)
	/*
	 * A register tells the size in both of the assembler's languages. ORDER: none; one instruction, so that a handler comes before
	 * or after it. Pairs with Ring::lost() and waits() (crates/user/src/ring.rs): a counter that stands for itself.
	 */
	__asm__ __volatile__("add{q %1, %0| %0, %1}" : "+m"(*place) : "r"((uint64_t)1) : "cc");
#else
	/* ORDER: relaxed; as above. A handler in between makes the processor's store fail, and it is done again. */
	__atomic_fetch_add(place, 1, __ATOMIC_RELAXED);
#endif
}

/*
 * Compare-and-swap against this thread's signal handlers only; other CPUs only read. ORDER: none but the compiler's on x86, where
 * stores become visible in order; relaxed on arm64. The collector reads the head (Ring::take, crates/user/src/ring.rs) and then
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
					  id | tag << 16 | (bytes >> 3) << 24 | now << RTU_TIME_SHIFT };

	return record;
}

/*
 * Its space is reserved. Writes its word, so that a reader can step over it if this thread never comes back. ORDER: after the
 * reservation, by the asm's clobber; pairs with the load in Records::header (crates/user/src/walk.rs), which believes no payload of it.
 */
static inline __attribute__((always_inline)) void rtscope__begin(struct rtscope__record record)
{
	RTSCOPE__STORE(*(uint64_t *)(void *)(record.place - 8), record.word | (uint64_t)RTU_OPEN << 16);
}

/*
 * The record is complete. ORDER: release; pairs with the acquire load of the word in Records::header
 * (crates/user/src/walk.rs), which then sees the payload.
 */
static inline __attribute__((always_inline)) void rtscope__commit(struct rtscope__record record)
{
	RTSCOPE__STORE_RELEASE(*(uint64_t *)(void *)(record.place - 8), record.word);
}

#ifdef __cplusplus
extern "C" {
#endif
struct rtscope__record rtscope__reserve_slowly(uint32_t id, uint64_t bytes);
#ifdef __cplusplus
}
#endif

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
	for (;;) {
		struct rtu_ring *ring = RTSCOPE__LOAD(thread->ring);
		struct rtscope__record record;
		uint64_t position, now;

		/* The length has 10 bits. Most events' is a constant, and this is not there. */
		if (RTSCOPE__UNLIKELY(!ring || bytes > RTU_RECORD_BYTES_MAX))
			return rtscope__reserve_slowly(id, bytes);
		position = RTSCOPE__LOAD(ring->head);
		now = rtscope__now(RTSCOPE__LOAD(thread->clock));
		record = rtscope__prepare(rtscope__read_where(thread), position, id, bytes, now);
		if (RTSCOPE__UNLIKELY(rtscope__needs_more(thread, position, bytes, now)))
			return rtscope__reserve_slowly(id, bytes);
		if (RTSCOPE__LIKELY(rtscope__swap(&ring->head, position, position + bytes))) {
			rtscope__begin(record);
			return record;
		}
	}
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
	rtscope__commit(record);
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
 * One step on the way to a reserved record: closes a sub-buffer, begins one, notes a loss, a CPU or the time, or reserves. `ring`
 * is the thread's; its memory stays, whatever a handler does. `flight`: the ring is overwritten, so it is never full. `record` is
 * written when it is done, and not before.
 */
static inline enum rtscope__step rtscope__step(struct rtscope__thread *thread, struct rtu_ring *ring, uint32_t id,
					       uint64_t bytes, int flight, struct rtscope__record *record)
{
	const uint32_t *cpu_place = RTSCOPE__LOAD(thread->cpu_place);
	struct rtscope__where where = rtscope__read_where(thread);
	struct rtscope__record next;
	uint64_t sub_mask = RTSCOPE__LOAD(thread->sub_mask), position, now, sub_end, room_end, need = bytes;
	uint32_t cpu;
	int sync;

	/* ORDER: signal fence; pairs with a fork in a handler of this thread: in its child the second look finds no ring. */
	RTSCOPE__READ_BEFORE();
	if (RTSCOPE__LOAD(thread->ring) != ring)
		return RTSCOPE__AGAIN;
	position = RTSCOPE__LOAD(ring->head);
	/*
	 * ORDER: stores; pairs with the fence in Ring::snapshot (crates/user/src/ring.rs). Records in a sub-buffer are only written
	 * behind a step in it. So whoever sees a byte of them also sees that the head has come as far, and knows that the sub-buffer is
	 * being overwritten.
	 */
	RTSCOPE__FENCE_STORES();
	now = rtscope__now(RTSCOPE__LOAD(thread->clock));
	sub_end = (position & ~sub_mask) + sub_mask + 1;
	cpu = RTSCOPE__LOAD(*cpu_place);
	sync = !(position & sub_mask) || (now - RTSCOPE__LOAD(thread->sync)) >> RTU_TIME_BITS ||
	       cpu != RTSCOPE__LOAD(thread->cpu) || RTSCOPE__LOAD(ring->lost) != RTSCOPE__LOAD(thread->lost_told);

	/* ORDER: acquire; pairs with the release in Ring::give_back (crates/user/src/ring.rs): it has done with what it gives back. */
	room_end = (flight ? position : RTSCOPE__LOAD_ACQUIRE(ring->tail)) + where.mask + 1;
	if (sync)
		need += sizeof(struct rtu_sync);
	if (position + need > sub_end) {
		if (sub_end > room_end)
			return RTSCOPE__FULL;
		next = rtscope__prepare(where, position, RTU_ID_PADDING, 8, now);
		if (rtscope__swap(&ring->head, position, sub_end)) {
			rtscope__begin(next);
			rtscope__commit(next);
		}
		return RTSCOPE__AGAIN;
	}
	if (position + need > room_end)
		return RTSCOPE__FULL;
	if (sync) {
		rtscope__sync(thread, ring, where, position, now, cpu);
		return RTSCOPE__AGAIN;
	}
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

#endif

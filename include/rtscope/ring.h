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
 * A handler may also jump away from the event that it has interrupted (siglongjmp, an exception): the record stays unfinished. Or it comes back after as many
 * events as the ring has room for, or after the collector has given the record up, and finishes it then. So each event notes where its thread's stack
 * is, and what follows looks at that on its slow way to a record (steps.h).
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
	uint64_t session; /* without a ring: the session for which none could be made */
	uint64_t bytes;	  /* of the mapping */
	uint64_t zero1;
	uint32_t destructions, zero2;
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

#endif

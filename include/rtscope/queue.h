/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A bounded queue in shared memory between one producer and one consumer: from real-time work to the rest of the system, or the
 * other way. The real-time side makes no system call, takes no lock and never waits: an element that finds the queue full is
 * counted, and the producer goes on. For C11 and C++17 with GCC or Clang; nothing to link. rtscope_queue(3); the Rust twin is
 * the crate rtscope-queue, which shares the memory's layout.
 *
 * Each side remembers what it last saw of the other and looks again only when that is not enough: in a steady flow the two touch
 * each other's cache lines once in many elements (Ridge, FastForward and Lamport's queue with cached indices). Positions only
 * grow; a place is the position modulo the capacity. What the other side writes is checked before it is believed.
 */
#ifndef RTSCOPE_QUEUE_H
#define RTSCOPE_QUEUE_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "system.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RTSCOPE_QUEUE_MAGIC 0x3145554551535452u /* "RTSQEUE1" */
#define RTSCOPE_QUEUE_VERSION 1u
/* Elements begin here; each has its size rounded up to 8. */
#define RTSCOPE_QUEUE_DATA 384u
#define RTSCOPE_QUEUE_CAPACITY_MAX (UINT64_C(1) << 32)
#define RTSCOPE_QUEUE_ELEMENT_MAX (1u << 30)
/* asm-generic/errno.h: it is not a queue, or of another version. */
#define RTSCOPE__EPROTO 71
/* linux/fcntl.h */
#define RTSCOPE_QUEUE__F_ADD_SEALS 1033
#define RTSCOPE_QUEUE__F_GET_SEALS 1034
#define RTSCOPE_QUEUE__SEAL_SHRINK 2
#define RTSCOPE_QUEUE__SEAL_GROW 4
#define RTSCOPE_QUEUE__SEAL_FUTURE_WRITE 16
/* A consumer that looked more often than that would not sleep. */
#define RTSCOPE_QUEUE__PERIOD_MIN_NS 1000

/*
 * What both sides share. Each writer has two cache lines to itself, because CPUs fetch lines in pairs.
 */
struct rtscope_queue_memory {
	uint64_t magic;
	uint32_t version;
	uint32_t element_bytes;
	uint64_t capacity; /* in elements; a power of two */
	uint64_t zero0[13];

	/* Written by the producer. */
	uint64_t tail;	     /* elements that were pushed */
	uint64_t lost;	     /* elements that found it full */
	uint64_t high_water; /* most elements at a time, from an eighth of the capacity on; 0: it was never so full */
	uint64_t zero1[13];

	/* Written by the consumer. */
	uint64_t head;	  /* elements that were popped */
	uint32_t waiting; /* 1: it sleeps, or is about to */
	uint32_t zero2;
	uint64_t zero3[14];
};

#ifdef __cplusplus
static_assert(sizeof(struct rtscope_queue_memory) == RTSCOPE_QUEUE_DATA, "layout of the queue");
#else
_Static_assert(sizeof(struct rtscope_queue_memory) == RTSCOPE_QUEUE_DATA, "layout of the queue");
#endif

enum rtscope_queue_side { RTSCOPE_QUEUE_PRODUCER, RTSCOPE_QUEUE_CONSUMER };

/* One side's handle. Belongs to one thread at a time. */
struct rtscope_queue {
	struct rtscope_queue_memory *memory;
	unsigned char *data;
	uint64_t mask;
	uint64_t stride;
	uint64_t own;	/* tail, or head */
	uint64_t other; /* as last seen */
	uint64_t high_water;
	uint64_t lost;
	uint64_t bytes; /* of a mapping of ours; 0: the memory is the caller's */
	uint32_t element_bytes;
	uint32_t broken; /* 1: the other side wrote what cannot be */
};

static inline uint64_t rtscope_queue__stride(uint32_t element_bytes)
{
	return ((uint64_t)element_bytes + 7) & ~UINT64_C(7);
}

/* Bytes of memory for this many elements; 0: such a queue is impossible. The capacity must be a power of two. */
static inline uint64_t rtscope_queue_bytes(uint64_t capacity, uint32_t element_bytes)
{
	if (!capacity || capacity & (capacity - 1) || capacity > RTSCOPE_QUEUE_CAPACITY_MAX || !element_bytes ||
	    element_bytes > RTSCOPE_QUEUE_ELEMENT_MAX)
		return 0;
	/* At most 2^62. */
	return RTSCOPE_QUEUE_DATA + capacity * rtscope_queue__stride(element_bytes);
}

/*
 * Makes an empty queue in memory, which must be aligned to 64 bytes. 0, or EINVAL: the numbers cannot be, or the memory is too
 * small. Once, before either side attaches.
 */
static inline int rtscope_queue_make(void *memory, uint64_t bytes, uint64_t capacity, uint32_t element_bytes)
{
	struct rtscope_queue_memory *queue = (struct rtscope_queue_memory *)memory;
	uint64_t need = rtscope_queue_bytes(capacity, element_bytes);

	if (!need || bytes < need || (uintptr_t)memory & 63)
		return RTSCOPE__EINVAL;
	memset(queue, 0, sizeof(*queue));
	queue->version = RTSCOPE_QUEUE_VERSION;
	queue->element_bytes = element_bytes;
	queue->capacity = capacity;
	/* ORDER: release; pairs with the acquire in rtscope_queue_attach(): a side that sees it sees the rest. */
	__atomic_store_n(&queue->magic, RTSCOPE_QUEUE_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

/*
 * Makes a handle for one side of a queue that is there. 0; EPROTO: it is not a queue, of another version, of elements of another size
 * (which is that of the caller's memory when they are copied), or what it says of itself cannot be. A side that attaches again goes
 * on where it was.
 */
static inline int rtscope_queue_attach(struct rtscope_queue *queue, void *memory, uint64_t bytes,
				       uint32_t element_bytes, enum rtscope_queue_side side)
{
	struct rtscope_queue_memory *shared = (struct rtscope_queue_memory *)memory;
	uint64_t capacity, tail, head, need;

	memset(queue, 0, sizeof(*queue));
	/* ORDER: acquire; pairs with the release in rtscope_queue_make() and in crates/queue/src/memory.rs. */
	if (bytes < sizeof(*shared) || (uintptr_t)memory & 63 ||
	    __atomic_load_n(&shared->magic, __ATOMIC_ACQUIRE) != RTSCOPE_QUEUE_MAGIC ||
	    shared->version != RTSCOPE_QUEUE_VERSION)
		return RTSCOPE__EPROTO;
	/* ORDER: relaxed; after the acquire of `magic`. Read once: the other side may change them at any time. */
	capacity = __atomic_load_n(&shared->capacity, __ATOMIC_RELAXED);
	if (__atomic_load_n(&shared->element_bytes, __ATOMIC_RELAXED) != element_bytes)
		return RTSCOPE__EPROTO;
	need = rtscope_queue_bytes(capacity, element_bytes);
	/* ORDER: acquire; pairs with the releases in publish() and give_back(): elements and places are as they were left. */
	tail = __atomic_load_n(&shared->tail, __ATOMIC_ACQUIRE);
	head = __atomic_load_n(&shared->head, __ATOMIC_ACQUIRE);
	if (!need || bytes < need || tail - head > capacity)
		return RTSCOPE__EPROTO;
	queue->memory = shared;
	queue->data = (unsigned char *)memory + RTSCOPE_QUEUE_DATA;
	queue->mask = capacity - 1;
	queue->stride = rtscope_queue__stride(element_bytes);
	queue->element_bytes = element_bytes;
	queue->own = side == RTSCOPE_QUEUE_PRODUCER ? tail : head;
	queue->other = side == RTSCOPE_QUEUE_PRODUCER ? head : tail;
	/* ORDER: relaxed; counters, which only the producer writes. */
	queue->lost = __atomic_load_n(&shared->lost, __ATOMIC_RELAXED);
	queue->high_water = __atomic_load_n(&shared->high_water, __ATOMIC_RELAXED);
	return 0;
}

/* The place of a position. */
static inline unsigned char *rtscope_queue__place(const struct rtscope_queue *queue, uint64_t position)
{
	return queue->data + (position & queue->mask) * queue->stride;
}

/* ---- the producer's side ------------------------------------------------------------------------------------------- */

/* The other side has written what cannot be: from now on it is full, or empty, and that is found out where it is slow anyway. */
static inline uint64_t rtscope_queue__break(struct rtscope_queue *queue, uint64_t other)
{
	queue->broken = 1;
	queue->other = other;
	return 0;
}

/* How many elements fit, up to `wanted`. */
static inline uint64_t rtscope_queue__room(struct rtscope_queue *queue, uint64_t wanted)
{
	const uint64_t capacity = queue->mask + 1;
	uint64_t room = capacity - (queue->own - queue->other);

	if (__builtin_expect(room < wanted, 0)) {
		/* ORDER: acquire; pairs with the release in give_back(): the consumer has done with the elements before it. */
		uint64_t head = __atomic_load_n(&queue->memory->head, __ATOMIC_ACQUIRE);

		if (queue->broken || queue->own - head > capacity)
			return rtscope_queue__break(queue, queue->own - capacity);
		queue->other = head;
		room = capacity - (queue->own - head);
	}
	return room < wanted ? room : wanted;
}

static inline void rtscope_queue__publish(struct rtscope_queue *queue, uint64_t count)
{
	queue->own += count;
	/* ORDER: release; pairs with the acquire in rtscope_queue__there(): the consumer sees the elements. */
	__atomic_store_n(&queue->memory->tail, queue->own, __ATOMIC_RELEASE);
	if (__builtin_expect(
		    queue->own - queue->other > queue->high_water && queue->own - queue->other > queue->mask >> 3, 0)) {
		/* It may be as full as that, or the consumer's head as last seen is old. ORDER: acquire; as in rtscope_queue__room(). */
		uint64_t head = __atomic_load_n(&queue->memory->head, __ATOMIC_ACQUIRE);

		if (queue->own - head > queue->mask + 1) {
			rtscope_queue__break(queue, queue->own - queue->mask - 1);
			return;
		}
		queue->other = head;
		if (queue->own - head > queue->high_water && queue->own - head > queue->mask >> 3) {
			queue->high_water = queue->own - head;
			/* ORDER: relaxed; pairs with rtscope_queue_high_water(): a number that stands for itself. */
			__atomic_store_n(&queue->memory->high_water, queue->high_water, __ATOMIC_RELAXED);
		}
	}
}

static inline void rtscope_queue__lost(struct rtscope_queue *queue)
{
	/* ORDER: relaxed; pairs with rtscope_queue_lost(): a number that stands for itself. */
	__atomic_store_n(&queue->memory->lost, ++queue->lost, __ATOMIC_RELAXED);
}

/* A place for the next element, to be filled and then committed; NULL: it is full (not counted). Aligned to 8 bytes. */
static inline void *rtscope_queue_reserve(struct rtscope_queue *queue)
{
	return rtscope_queue__room(queue, 1) ? rtscope_queue__place(queue, queue->own) : NULL;
}

/* Hands over the element that was reserved. */
static inline void rtscope_queue_commit(struct rtscope_queue *queue)
{
	rtscope_queue__publish(queue, 1);
}

/* Copies an element into the queue. 0: it is full, and the element is counted as lost. */
static inline int rtscope_queue_push(struct rtscope_queue *queue, const void *element)
{
	if (__builtin_expect(!rtscope_queue__room(queue, 1), 0)) {
		rtscope_queue__lost(queue);
		return 0;
	}
	memcpy(rtscope_queue__place(queue, queue->own), element, queue->element_bytes);
	rtscope_queue__publish(queue, 1);
	return 1;
}

/* Copies as many of `count` elements, which follow each other, as fit, and returns how many. The rest is not counted. */
static inline uint64_t rtscope_queue_push_some(struct rtscope_queue *queue, const void *elements, uint64_t count)
{
	const unsigned char *from = (const unsigned char *)elements;

	count = rtscope_queue__room(queue, count);
	for (uint64_t i = 0; i < count; i++)
		memcpy(rtscope_queue__place(queue, queue->own + i), from + i * queue->element_bytes,
		       queue->element_bytes);
	if (count)
		rtscope_queue__publish(queue, count);
	return count;
}

/*
 * Wakes a consumer that sleeps in rtscope_queue_wait() on this eventfd. For producers that are not real-time: it may make a
 * system call. Others leave it out; their consumers poll.
 */
static inline void rtscope_queue_wake(struct rtscope_queue *queue, int event)
{
	const uint64_t one = 1;

	/*
	 * ORDER: seq_cst fence; pairs with the one in rtscope_queue_wait(). Either this sees that the consumer waits, or the consumer
	 * sees what was pushed before.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* ORDER: relaxed; the fence before it is what orders it. */
	if (__atomic_load_n(&queue->memory->waiting, __ATOMIC_RELAXED)) {
		/* It is full when nobody has read it yet: then it wakes already. */
		rtscope__call(__NR_write, event, (long)&one, sizeof(one), 0, 0, 0);
	}
}

/* ---- the consumer's side ------------------------------------------------------------------------------------------- */

/* How many elements there are, up to `wanted`. */
static inline uint64_t rtscope_queue__there(struct rtscope_queue *queue, uint64_t wanted)
{
	uint64_t there = queue->other - queue->own;

	if (there < wanted) {
		/* ORDER: acquire; pairs with the release in rtscope_queue__publish(): the elements before it are there. */
		uint64_t tail = __atomic_load_n(&queue->memory->tail, __ATOMIC_ACQUIRE);

		if (queue->broken || tail - queue->own > queue->mask + 1)
			return rtscope_queue__break(queue, queue->own);
		queue->other = tail;
		there = tail - queue->own;
	}
	return there < wanted ? there : wanted;
}

static inline void rtscope_queue__give_back(struct rtscope_queue *queue, uint64_t count)
{
	queue->own += count;
	/* ORDER: release; pairs with the acquire in rtscope_queue__room(): their places can be written again. */
	__atomic_store_n(&queue->memory->head, queue->own, __ATOMIC_RELEASE);
}

/* The oldest element, where it lies; NULL: there is none. It stays until it is released. */
static inline const void *rtscope_queue_front(struct rtscope_queue *queue)
{
	return rtscope_queue__there(queue, 1) ? rtscope_queue__place(queue, queue->own) : NULL;
}

/* Gives back the place of the element that front() gave. */
static inline void rtscope_queue_release(struct rtscope_queue *queue)
{
	rtscope_queue__give_back(queue, 1);
}

/* Copies the oldest element out of the queue. 0: there is none. */
static inline int rtscope_queue_pop(struct rtscope_queue *queue, void *element)
{
	if (!rtscope_queue__there(queue, 1))
		return 0;
	memcpy(element, rtscope_queue__place(queue, queue->own), queue->element_bytes);
	rtscope_queue__give_back(queue, 1);
	return 1;
}

/* Copies up to `count` of the oldest elements, and says how many there were. */
static inline uint64_t rtscope_queue_pop_some(struct rtscope_queue *queue, void *elements, uint64_t count)
{
	unsigned char *to = (unsigned char *)elements;

	count = rtscope_queue__there(queue, count);
	for (uint64_t i = 0; i < count; i++)
		memcpy(to + i * queue->element_bytes, rtscope_queue__place(queue, queue->own + i),
		       queue->element_bytes);
	if (count)
		rtscope_queue__give_back(queue, count);
	return count;
}

static inline int64_t rtscope_queue__now(void)
{
	struct timespec now;

	rtscope__clock_gettime(RTSCOPE__CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* struct iovec, and RWF_NOWAIT: include/uapi/linux/uio.h and fs.h. */
struct rtscope_queue__vector {
	void *iov_base;
	size_t iov_len;
};
#define RTSCOPE_QUEUE__NOWAIT 8
/* How often a consumer that sleeps polls: a wakeup is lost when another process reads the eventfd first. */
#define RTSCOPE_QUEUE__LOOK_NS 100000000

/* Sleeps for this time, or until the descriptor can be read. 0: it cannot be waited for. */
static inline int rtscope_queue__sleep(int event, int64_t ns)
{
	/* struct pollfd; POLLIN is 1. */
	struct {
		int fd;
		short events, revents;
	} descriptor = { event, 1, 0 };
	struct rtscope_queue__vector into;
	struct timespec time;
	uint64_t count;
	long result;

	time.tv_sec = (time_t)(ns / 1000000000);
	time.tv_nsec = (long)(ns % 1000000000);
	if (rtscope__call(__NR_ppoll, (long)&descriptor, event >= 0, (long)&time, 0, 8, 0) <= 0)
		return 1;
	if (!(descriptor.revents & 1))
		return 0;
	/* What was written is taken, if it is still there: another process with the descriptor may have taken it since. -1: no position. */
	into.iov_base = &count;
	into.iov_len = sizeof(count);
	result = rtscope__call(__NR_preadv2, event, (long)&into, 1, -1, -1, RTSCOPE_QUEUE__NOWAIT);
	/* EAGAIN is 11. What can be read and then cannot (no eventfd, or a sandbox without this call) would be asked again at once. */
	return result > 0 || result == -11;
}

/*
 * Sleeps until there is an element, for at most `timeout_ns` (negative: for ever). For consumers that are not real-time. With an
 * eventfd that the producer wakes (it also polls ten times a second), or -1: then it polls every `period_ns`, a microsecond
 * at least; the same for a descriptor that cannot be read. 1: there is an element; 0: there is none.
 */
static inline int rtscope_queue_wait(struct rtscope_queue *queue, int event, int64_t timeout_ns, int64_t period_ns)
{
	const int64_t begin = rtscope_queue__now();
	const int64_t end = timeout_ns < 0 || timeout_ns > INT64_MAX - begin ? INT64_MAX : begin + timeout_ns;
	int there = 0;

	if (period_ns < RTSCOPE_QUEUE__PERIOD_MIN_NS)
		period_ns = RTSCOPE_QUEUE__PERIOD_MIN_NS;
	while (!(there = rtscope_queue__there(queue, 1) != 0) && !queue->broken) {
		int64_t left = end - rtscope_queue__now();

		if (left <= 0)
			break;
		if (event < 0) {
			rtscope_queue__sleep(-1, left < period_ns ? left : period_ns);
			continue;
		}
		/* ORDER: relaxed, then a seq_cst fence; pairs with the fence in rtscope_queue_wake(). */
		__atomic_store_n(&queue->memory->waiting, 1, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		/* Without the descriptor it polls, instead of asking in vain again and again. */
		if (left > RTSCOPE_QUEUE__LOOK_NS)
			left = RTSCOPE_QUEUE__LOOK_NS;
		if (!rtscope_queue__there(queue, 1) && !queue->broken && !rtscope_queue__sleep(event, left))
			event = -1;
		/* ORDER: relaxed; seen late by rtscope_queue_wake(), it costs a wake that nobody needed. */
		__atomic_store_n(&queue->memory->waiting, 0, __ATOMIC_RELAXED);
	}
	return there;
}

/* ---- either side --------------------------------------------------------------------------------------------------- */

/* Elements that found it full, and the most that were in it at a time (0: never above an eighth of the capacity). */
static inline uint64_t rtscope_queue_lost(const struct rtscope_queue *queue)
{
	/* ORDER: relaxed; pairs with rtscope_queue__lost(). */
	return __atomic_load_n(&queue->memory->lost, __ATOMIC_RELAXED);
}

static inline uint64_t rtscope_queue_high_water(const struct rtscope_queue *queue)
{
	/* ORDER: relaxed; pairs with the store in rtscope_queue__publish(). */
	return __atomic_load_n(&queue->memory->high_water, __ATOMIC_RELAXED);
}

/* Elements in it now. */
static inline uint64_t rtscope_queue_length(const struct rtscope_queue *queue)
{
	/* The head first: a tail that is read later is never behind it. ORDER: acquire; keeps the two in order. */
	uint64_t head = __atomic_load_n(&queue->memory->head, __ATOMIC_ACQUIRE);
	uint64_t length = __atomic_load_n(&queue->memory->tail, __ATOMIC_ACQUIRE) - head;

	return length > queue->mask + 1 ? queue->mask + 1 : length;
}

/*
 * Makes a queue in new memory, which can neither grow nor shrink, and maps it, touched. The descriptor, which the other
 * process gets by fork, over a socket or through /proc/PID/fd; or a negative errno. The caller closes it; the mapping stays.
 */
static inline int rtscope_queue_create(struct rtscope_queue *queue, uint64_t capacity, uint32_t element_bytes,
				       enum rtscope_queue_side side)
{
	const uint64_t bytes = rtscope_queue_bytes(capacity, element_bytes);
	long memory, fd, error;

	if (!bytes)
		return -RTSCOPE__EINVAL;
	/* linux/memfd.h: MFD_CLOEXEC | MFD_ALLOW_SEALING */
	fd = rtscope__call(__NR_memfd_create, (long)"rtscope-queue", 3, 0, 0, 0, 0);
	if (fd < 0)
		return (int)fd;
	error = rtscope__call(__NR_ftruncate, fd, (long)bytes, 0, 0, 0, 0);
	/* Memory that went away would be a SIGBUS. Without F_SEAL_SEAL: for rtscope_queue_seal(). */
	if (!error)
		error = rtscope__call(__NR_fcntl, fd, RTSCOPE_QUEUE__F_ADD_SEALS,
				      RTSCOPE_QUEUE__SEAL_SHRINK | RTSCOPE_QUEUE__SEAL_GROW, 0, 0, 0);
	memory = error ? error : rtscope__map(bytes, RTSCOPE__MAP_SHARED | RTSCOPE__MAP_POPULATE, (int)fd);
	if (rtscope__is_error(memory)) {
		rtscope__close_number((int)fd);
		return (int)memory;
	}
	rtscope_queue_make((void *)memory, bytes, capacity, element_bytes);
	rtscope_queue_attach(queue, (void *)memory, bytes, element_bytes, side);
	queue->bytes = bytes;
	return (int)fd;
}

/*
 * Whether a file keeps its size, and its memory can end nobody: not in huge pages, of which there may be no other one when its maker has
 * taken one away (SIGBUS).
 */
static inline int rtscope_queue__keeps_size(int fd)
{
	/* struct statfs of 64-bit Linux begins with the type; linux/magic.h: TMPFS_MAGIC. */
	uint64_t status[15];
	long seals = rtscope__call(__NR_fcntl, fd, RTSCOPE_QUEUE__F_GET_SEALS, 0, 0, 0, 0);

	return seals > 0 && seals & RTSCOPE_QUEUE__SEAL_SHRINK &&
	       !rtscope__call_again(__NR_fstatfs, fd, (long)status, 0, 0, 0, 0) && status[0] == 0x01021994;
}

/* Whether the memory of all these bytes is there. */
static inline int rtscope_queue__is_whole(int fd, uint64_t bytes)
{
	/* linux/fs.h: SEEK_HOLE. The end of the file counts as a hole, too. */
	long hole = rtscope__call(__NR_lseek, fd, 0, 4, 0, 0, 0);

	return hole >= 0 && (uint64_t)hole >= bytes;
}

/*
 * How much of a queue's file to map: what the header says that it needs, if the memory is really there. 0: it is not a queue, or its
 * maker wants this process to pay for memory that he has not used himself. Asked before anything is mapped.
 */
static inline uint64_t rtscope_queue__checked_bytes(int fd, uint32_t element_bytes)
{
	struct rtscope_queue_memory header;
	uint64_t need;

	if (!rtscope_queue__keeps_size(fd))
		return 0;
	if (rtscope__call(__NR_pread64, fd, (long)&header, sizeof(header), 0, 0, 0) != (long)sizeof(header) ||
	    header.magic != RTSCOPE_QUEUE_MAGIC || header.version != RTSCOPE_QUEUE_VERSION ||
	    header.element_bytes != element_bytes)
		return 0;
	need = rtscope_queue_bytes(header.capacity, element_bytes);
	return need && need <= INT64_MAX && rtscope_queue__is_whole(fd, need) ? need : 0;
}

/*
 * Closes a queue to others, when both sides have mapped it: nobody else can open it from then on, and nobody, also of the two, can take memory
 * out of it, for which the other one would pay when it touches it again. (A hole punched by fallocate(2): F_SEAL_FUTURE_WRITE forbids
 * it.) 0, also if the other side has done it; or an errno. EPERM: its maker does not let it be sealed, as those before this function did not;
 * EPROTO: memory has been taken out already.
 */
static inline int rtscope_queue__seal(int fd, uint64_t bytes)
{
	long seals = rtscope__call(__NR_fcntl, fd, RTSCOPE_QUEUE__F_GET_SEALS, 0, 0, 0, 0), error;

	if (seals < 0)
		return (int)-seals;
	if (!(seals & RTSCOPE_QUEUE__SEAL_FUTURE_WRITE)) {
		error = rtscope__call(__NR_fcntl, fd, RTSCOPE_QUEUE__F_ADD_SEALS, RTSCOPE_QUEUE__SEAL_FUTURE_WRITE, 0,
				      0, 0);
		if (error)
			return (int)-error;
	}
	return rtscope_queue__keeps_size(fd) && rtscope_queue__is_whole(fd, bytes) ? 0 : RTSCOPE__EPROTO;
}

static inline int rtscope_queue_seal(const struct rtscope_queue *queue, int fd)
{
	return queue->bytes ? rtscope_queue__seal(fd, queue->bytes) : RTSCOPE__EINVAL;
}

static inline int rtscope_queue__open(struct rtscope_queue *queue, int fd, uint32_t element_bytes,
				      enum rtscope_queue_side side, int seals)
{
	uint64_t bytes = rtscope_queue__checked_bytes(fd, element_bytes);
	long memory;
	int error;

	memset(queue, 0, sizeof(*queue));
	if (!bytes)
		return rtscope__call(__NR_lseek, fd, 0, 1, 0, 0, 0) == -9 ? 9 : RTSCOPE__EPROTO; /* EBADF */
	/* Nothing is touched, and paid for, before it is sealed. */
	memory = rtscope__map(bytes, RTSCOPE__MAP_SHARED | (seals ? 0 : RTSCOPE__MAP_POPULATE), fd);
	if (rtscope__is_error(memory))
		return (int)-memory;
	error = seals ? rtscope_queue__seal(fd, bytes) : 0;
	/* linux/mman.h: MADV_POPULATE_WRITE */
	if (seals && !error)
		error = (int)-rtscope__call_again(__NR_madvise, memory, (long)bytes, 23, 0, 0, 0);
	/* Once more, where its maker may have written since. */
	if (!error)
		error = rtscope_queue_attach(queue, (void *)memory, bytes, element_bytes, side);
	if (error)
		rtscope__unmap((void *)memory, bytes);
	else
		queue->bytes = bytes;
	return error;
}

/*
 * Maps a queue that somebody else has made with rtscope_queue_create(). 0, or an errno. EPROTO: it is none, its elements have another
 * size, its memory is not there, or it could shrink or is of huge pages, so that its maker could end this process with a SIGBUS. EPERM:
 * somebody has sealed it.
 *
 * For sides that trust each other: one that takes memory out later makes the other pay for it, up to the size of the queue.
 */
static inline int rtscope_queue_open(struct rtscope_queue *queue, int fd, uint32_t element_bytes,
				     enum rtscope_queue_side side)
{
	return rtscope_queue__open(queue, fd, element_bytes, side, 0);
}

/*
 * The same, of somebody who is not trusted: with rtscope_queue_seal(), before any of its memory is touched. Its errors are added. When the other
 * side has it already: nobody else can open it later, such as this process when it is started again.
 */
static inline int rtscope_queue_open_sealed(struct rtscope_queue *queue, int fd, uint32_t element_bytes,
					    enum rtscope_queue_side side)
{
	return rtscope_queue__open(queue, fd, element_bytes, side, 1);
}

/* Ends the use of a handle; unmaps what create() or open() mapped. What is in the queue stays for the other side. */
static inline void rtscope_queue_close(struct rtscope_queue *queue)
{
	if (queue->bytes)
		rtscope__unmap(queue->memory, queue->bytes);
	memset(queue, 0, sizeof(*queue));
}

#ifdef __cplusplus
}
#endif

#endif

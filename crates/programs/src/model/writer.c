/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The writer of the model: include/rtscope/ring.h and steps.h as they are shipped, whose accesses to memory become calls of the model (mod.rs).
 * Around it stand only the loop of rtscope__reserve_slowly() (threads.h) and an event.
 */
#define RTSCOPE_MODEL

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

enum order { RELAXED, ACQUIRE, RELEASE };

struct model {
	uint64_t (*load)(const void *place, uint32_t bytes, uint32_t order);
	void (*store)(void *place, uint32_t bytes, uint64_t value, uint32_t order);
	uint32_t (*swap)(void *place, uint64_t old, uint64_t value);
	void (*copy)(void *to, const void *from, uint64_t bytes);
	void (*count)(void *place);
	void (*fence)(void);
	uint64_t (*now)(void);
};

static struct model model;

/* ORDER: each is told to the model, which knows what pairs with it. */
#define RTSCOPE__LOAD(place) ((__typeof__(place))model.load(&(place), sizeof(place), RELAXED))
#define RTSCOPE__STORE(place, value) model.store(&(place), sizeof(place), (uint64_t)(value), RELAXED)
#define RTSCOPE__LOAD_ACQUIRE(place) ((__typeof__(place))model.load(&(place), sizeof(place), ACQUIRE))
#define RTSCOPE__STORE_RELEASE(place, value) model.store(&(place), sizeof(place), (uint64_t)(value), RELEASE)
#define RTSCOPE__COPY(to, from, bytes) model.copy(to, from, bytes)
/* ORDER: as above. */
#define RTSCOPE__READ_BEFORE() (void)0
#define RTSCOPE__WRITTEN_BEFORE() (void)0
#define RTSCOPE__FENCE_STORES() model.fence()

static inline void rtscope__count(uint64_t *place)
{
	model.count(place);
}

static inline int rtscope__swap(uint64_t *place, uint64_t old, uint64_t value)
{
	return (int)model.swap(place, old, value);
}

/* Of the event that begins. */
static uintptr_t stack_pointer;

static inline uintptr_t rtscope__stack(void)
{
	return stack_pointer;
}

static inline uint64_t rtscope__now(uint32_t kind)
{
	(void)kind;
	return model.now();
}

#include <rtscope/steps.h>

static struct rtscope__thread thread;
static uint32_t cpu;
static int flight;

/* Of an event inside of another one: there are no channels here. */
void rtscope__commit_slowly(const unsigned char *payload)
{
	(void)payload;
}

struct rtscope__reserved rtscope__reserve_slowly(uint32_t id, uint64_t bytes, uintptr_t stack)
{
	struct rtscope__reserved reserved = { NULL, NULL };
	struct rtscope__record record = { NULL, 0, NULL };
	struct rtscope__noting event;
	int is_noted = 0;

	for (;;) {
		struct rtu_ring *ring = RTSCOPE__LOAD(thread.ring);
		enum rtscope__step step;

		if (!ring)
			return reserved;
		if (!is_noted) {
			rtscope__note_event(&thread, ring, stack, flight, &event);
			is_noted = 1;
		}
		if (event.standing == RTSCOPE__OUTSIDE)
			RTSCOPE__STORE(thread.open, stack);
		step = rtscope__step(&thread, ring, id, bytes, flight, event.at, &record);
		if (step == RTSCOPE__DONE)
			break;
		if (step == RTSCOPE__FULL) {
			rtscope__count(&ring->lost);
			rtscope__unnote_event(&event);
			return reserved;
		}
	}
	reserved.place = record.place;
	reserved.open = event.open;
	return reserved;
}

/*
 * An event whose payload is this many words, each with the event's id and its place, with this stack pointer. 0: it was not
 * recorded.
 */
int model_emit(uint32_t id, uint32_t words, uint64_t stack)
{
	struct rtscope__record record;
	uint64_t payload[4];

	stack_pointer = stack;
	record = rtscope__reserve(&thread, id, 8 + 8 * words);
	if (!record.place)
		return 0;
	for (uint32_t i = 0; i < words; i++)
		payload[i] = (uint64_t)id << 8 | i;
	RTSCOPE__COPY(record.place, payload, 8 * words);
	rtscope__commit(record);
	return 1;
}

static jmp_buf outside;

/* The same, outside of all handlers. 2: one of them jumped away from it. */
int model_emit_outside(uint32_t id, uint32_t words, uint64_t stack)
{
	return _setjmp(outside) ? 2 : model_emit(id, words, stack);
}

/* A handler does not come back. What it leaves in the model has nothing to be cleaned up. */
void model_jump(void)
{
	_longjmp(outside, 1);
}

void model_begin(const struct model *with, void *ring, uint64_t ring_bytes, uint64_t sub_bytes, uint32_t key,
		 int overwrites)
{
	const struct rtscope__thread empty = { 0 };

	model = *with;
	flight = overwrites;
	cpu = 0;
	thread = empty;
	thread.ring = (struct rtu_ring *)ring;
	thread.data = (unsigned char *)ring + RTU_RING_OFFSET;
	thread.mask = ring_bytes - 1;
	thread.sub_mask = sub_bytes - 1;
	thread.shift = (uint32_t)__builtin_ctzll(ring_bytes);
	thread.key = key;
	thread.cpu_place = &cpu;
	thread.cpu = RTU_CPU_UNKNOWN;
}

/* The thread goes on on another CPU. */
void model_move(void)
{
	cpu ^= 1;
}

/* What a fork does to the thread's page in its child. */
void model_fork(void)
{
	__builtin_memset(&thread, 0, sizeof(thread));
}

static int is_in(uintptr_t place, uint64_t bytes, const void *begin, uint64_t size)
{
	return bytes <= size && place - (uintptr_t)begin <= size - bytes;
}

/* Whether these bytes are memory that the writer has, beside its ring. */
int model_has(uintptr_t place, uint64_t bytes)
{
	return is_in(place, bytes, &thread, sizeof(thread)) || is_in(place, bytes, &cpu, sizeof(cpu));
}

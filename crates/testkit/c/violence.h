/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the torture program (violence.c), the libraries that it loads (violence_library.c) and their judge
 * (crates/bench/src/violence) share: a file of counters, mapped by all processes of a round.
 *
 * A slot belongs to one place that emits: the work of a thread, or one of its signal handlers. It counts the events that were
 * begun and those that were finished, so the count of a killed thread is known to within one. An event is begun when its
 * arguments are evaluated, which happens only while somebody records: nothing counts while nobody does.
 *
 * Independent of rtscope: the counters are written before and after an event, never by it.
 */
#ifndef RTSCOPE_VIOLENCE_H
#define RTSCOPE_VIOLENCE_H

#include <rtscope/rtscope.h>

#include <stdint.h>
#include <time.h>

#define VIOLENCE_MAGIC 0x31434e454c4f4956ULL /* "VIOLENC1" */
#define VIOLENCE_SLOTS_AT 4096

struct violence_slot {
	uint64_t begun, finished;
	uint32_t pid, tid; /* as the kernel numbers them there */
	uint32_t kind;	   /* enum violence_kind */
	uint32_t zero;
	uint64_t reserved[4];
};

enum violence_kind {
	VIOLENCE_WORK,	/* a thread's work */
	VIOLENCE_OUTER, /* its handler of SIGUSR1 */
	VIOLENCE_INNER, /* its handler of SIGUSR2, which may interrupt that of SIGUSR1 */
};

/* What the processes of a round did, in all. The judge reads it at offset 0 of the file. */
struct violence_head {
	uint64_t magic;
	uint32_t slots_max; /* set by who made the file */
	uint32_t slots;	    /* how many were asked for */
	int64_t offset_ns; /* this round's first process: CLOCK_MONOTONIC there is ahead by this (time namespace); unused */
	uint32_t processes, threads, forks, vforks, clones, handler_forks, executions, loads, handled, killed, mute;
	uint32_t failures; /* children that ended in a way that nobody asked for */
	int32_t failed_status[16];
	int32_t failed_pid[16];
	uint32_t hung; /* children that did not end */
	int32_t hung_pid[16];
};

/* For a program whose clock is ahead (a time namespace). */
static inline uint64_t violence_now(int64_t offset_ns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)((int64_t)now.tv_sec * 1000000000 + now.tv_nsec - offset_ns);
}

/* The event with this number is begun. */
static inline uint64_t violence_begin(struct violence_slot *slot, uint64_t number)
{
	/* ORDER: relaxed; pairs with nothing: a counter of one thread, read when that is dead. */
	__atomic_store_n(&slot->begun, number + 1, __ATOMIC_RELAXED);
	return number;
}

/* What the judge expects in the field `check`. */
static inline uint32_t violence_check(uint64_t slot, uint64_t number)
{
	uint64_t mixed = (slot << 40 ^ number) * 0x9e3779b97f4a7c15ULL;

	return (uint32_t)(mixed >> 32);
}

/* And in the field `text`: one letter, 1 + `number` % 22 times. (babeltrace2 2.0.4 prints another text in place of an empty one.) */
static inline const char *violence_text(char *text, uint64_t slot, uint64_t number)
{
	unsigned int length = 1 + (unsigned int)(number % 22);

	for (unsigned int i = 0; i < length; i++)
		text[i] = (char)('a' + (slot + number) % 26);
	text[length] = 0;
	return text;
}

/* One event of a slot with this index. `event` is its name, so that the program and a library differ. */
#define VIOLENCE_EMIT(event, slots, index, offset_ns)                                                            \
	do {                                                                                                     \
		struct violence_slot *violence_slot = &(slots)[index];                                           \
		const uint64_t violence_number = violence_slot->begun;                                           \
		char violence_buffer[24];                                                                        \
                                                                                                                 \
		RTSCOPE_EVENT(violence, event, rtscope_u64(n, violence_begin(violence_slot, violence_number)),   \
			      rtscope_u32(slot, (index)), rtscope_u64(at, violence_now(offset_ns)),              \
			      rtscope_u32(check, violence_check((index), violence_number)),                      \
			      rtscope_strn(text, violence_text(violence_buffer, (index), violence_number), 23)); \
		/* ORDER: relaxed; as in violence_begin(). */                                                    \
		__atomic_store_n(&violence_slot->finished, violence_slot->begun, __ATOMIC_RELAXED);              \
	} while (0)

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The loop of the non-preempt test, for every tracer: the including file defines how the function is called
 * (NPT_LOOP), what NPT_EVENT(iteration, gap) is, and how NPT_NOW() reads the counter. It may be included again for another event.
 *
 * The loop reads the counter and nothing else of the outside. The time between two readings is an iteration's gap: what the loop
 * itself needs, and whatever kept the CPU from it. The gap that follows an event has the event in it. No system call, no
 * memory that was not touched before.
 */
#ifndef RTSCOPE_NPT_H
#define RTSCOPE_NPT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Gaps are counted by their length in ticks: each length up to 4095 separately, then 1024 steps for each doubling, so a
 * bucket is at most 0.1 % wide.
 */
#define NPT_EXACT 4096
#define NPT_STEPS_LOG2 10
#define NPT_BUCKETS (NPT_EXACT + (64 - 12) * (1 << NPT_STEPS_LOG2))
/* Long gaps that are kept with their times. */
#define NPT_LONG_MAX 4096

__extension__ typedef unsigned __int128 npt_wide;

/* What was measured in windows of one kind. Ticks. */
struct npt_windows {
	uint64_t count, min, max, sum;
	uint64_t squares[2]; /* sum of squares: low, high */
	uint64_t *buckets;   /* NPT_BUCKETS of them */
};

struct npt_gap {
	uint64_t end, ticks; /* counter at its end, length */
};

enum { NPT_UNTRACED, NPT_TRACED };

struct npt {
	/* What is wanted. 0: no limit. */
	uint64_t iterations, ticks;
	uint64_t warm_up;      /* iterations that are not counted */
	uint64_t window[2];    /* ticks of each kind of window, which alternate; 0 and 0: all is traced */
	uint64_t interval;     /* least ticks between events */
	uint64_t threshold;    /* a longer gap is kept */
	const _Bool *stop;     /* set by somebody else */
	uint64_t frequency;    /* of the counter, in Hz; for the events */
	struct npt_gap *longs; /* NPT_LONG_MAX of them */
	/* What was found. */
	struct npt_windows windows[2];
	uint64_t begin, end; /* counter */
	uint64_t events;     /* in the loop */
	uint64_t longs_count;
	/* rtscope's summary of them. */
	uint64_t lost;
	uint64_t recorded; /* 1: somebody recorded when the loop ended */
};

static inline size_t npt__bucket(uint64_t ticks)
{
	int log2;

	if (ticks < NPT_EXACT)
		return (size_t)ticks;
	log2 = 63 - __builtin_clzll(ticks);
	return NPT_EXACT + (size_t)(log2 - 12) * (1 << NPT_STEPS_LOG2) +
	       ((ticks >> (log2 - NPT_STEPS_LOG2)) & ((1 << NPT_STEPS_LOG2) - 1));
}

static inline void npt__count(struct npt_windows *windows, uint64_t ticks)
{
	const npt_wide squares = ((npt_wide)windows->squares[1] << 64 | windows->squares[0]) + (npt_wide)ticks * ticks;

	windows->count++;
	windows->sum += ticks;
	windows->squares[0] = (uint64_t)squares;
	windows->squares[1] = (uint64_t)(squares >> 64);
	if (ticks < windows->min)
		windows->min = ticks;
	if (ticks > windows->max)
		windows->max = ticks;
	windows->buckets[npt__bucket(ticks)]++;
}

/* So that the loop never meets a page for the first time. */
static inline void npt__touch(struct npt *npt)
{
	for (int kind = 0; kind < 2; kind++) {
		npt->windows[kind].min = UINT64_MAX;
		for (size_t i = 0; i < NPT_BUCKETS; i++)
			/* ORDER: none; volatile so that no store is left out. */
			*(volatile uint64_t *)&npt->windows[kind].buckets[i] = 0;
	}
	for (size_t i = 0; i < NPT_LONG_MAX; i++)
		/* ORDER: none; volatile so that no store is left out. */
		*(volatile uint64_t *)&npt->longs[i].ticks = 0;
}

#endif

static inline void NPT_LOOP(struct npt *npt)
{
	const uint64_t iterations = npt->iterations ? npt->iterations + npt->warm_up : UINT64_MAX;
	const int has_windows = npt->window[NPT_UNTRACED] && npt->window[NPT_TRACED];
	uint64_t now = NPT_NOW(), end = npt->ticks ? now + npt->ticks : UINT64_MAX, next = now;
	uint64_t change = has_windows ? now + npt->window[NPT_TRACED] : UINT64_MAX;
	int kind = NPT_TRACED;

	npt->begin = now;
	for (uint64_t iteration = 0; iteration < iterations; iteration++) {
		const uint64_t before = now, gap = (now = NPT_NOW()) - before;

		if (iteration >= npt->warm_up) {
			npt__count(&npt->windows[kind], gap);
			if (gap > npt->threshold) {
				if (npt->longs_count < NPT_LONG_MAX)
					npt->longs[npt->longs_count] = (struct npt_gap){ now, gap };
				npt->longs_count++;
			}
		}
		/* ORDER: relaxed; a flag that stands for itself. Pairs with the handler of Stop (crates/cli/src). */
		if (now >= end || __atomic_load_n(npt->stop, __ATOMIC_RELAXED))
			break;
		if (now >= change) {
			kind = !kind;
			change = now + npt->window[kind];
		}
		if (kind == NPT_TRACED && now >= next) {
			next += npt->interval;
			/* What could not be kept up with is not made up for. */
			if (next < now)
				next = now;
			npt->events++;
			NPT_EVENT(iteration, gap);
		}
	}
	npt->end = now;
}

#undef NPT_LOOP
#undef NPT_EVENT

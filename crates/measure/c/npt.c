/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * `rtscope npt`: the loop with rtscope's own events, linked into the program. Other commands of rtscope shall not look like
 * instrumented programs, so it starts by hand.
 */
#define RTSCOPE_START_BY_HAND
#include <rtscope/rtscope.h>

/* Set before the loop, never changed in it. */
static uint32_t npt_clock;

#define NPT_NOW() rtscope__now(npt_clock)
#define NPT_LOOP npt__loop
#define NPT_EVENT(iteration, gap) RTSCOPE_EVENT(npt, loop, rtscope_u64(turn, iteration), rtscope_u64(gap_ticks, gap))
#include "npt.h"

/* The same without an event: what a tracer's cost is measured against. */
#define NPT_LOOP npt__loop_without
#define NPT_EVENT(iteration, gap) (void)0
#include "npt.h"

_Static_assert(sizeof(struct npt) == 30 * 8, "as in src/npt/gap_loop.rs");

void rtscope_npt_touch(struct npt *npt);
void rtscope_npt_start(void);
void rtscope_npt_run(struct npt *npt);
void rtscope_npt_run_without(struct npt *npt);
uint32_t rtscope_npt_clock(void);
uint64_t rtscope_npt_core(uint64_t additions);

/* Which counter it reads: enum rtu_clock. */
uint32_t rtscope_npt_clock(void)
{
	return rtscope__clock_kind();
}

void rtscope_npt_touch(struct npt *npt)
{
	npt__touch(npt);
}

/*
 * Lets programs that record find this one. To be called by the thread that measures, before it becomes one of real time. An
 * errno of rtscope_thread_init() does no harm.
 */
void rtscope_npt_start(void)
{
	const struct rtscope_options options = { .lock = 1 };

	rtscope_start();
	(void)rtscope_init(&options);
	(void)rtscope_thread_init();
}

void rtscope_npt_run(struct npt *npt)
{
	const struct rtscope__shared *leader = rtscope__leader;
	const struct rtu_ring *ring;

	npt_clock = rtscope__clock_kind();
	RTSCOPE_EVENT(npt, start, rtscope_u64(turns, npt->iterations), rtscope_u64(ticks_per_second, npt->frequency));
	npt__loop(npt);
	RTSCOPE_EVENT(npt, stop, rtscope_u64(turns, npt->windows[0].count + npt->windows[1].count),
		      rtscope_u64(events, npt->events));
	ring = rtscope__tls->ring;
	npt->lost = ring ? RTSCOPE__LOAD(((struct rtu_ring *)(uintptr_t)ring)->lost) : 0;
	npt->recorded = leader && leader->provider && RTSCOPE__LOAD(leader->provider->session) != 0;
}

/* Has no event, so it generates none. */
void rtscope_npt_run_without(struct npt *npt)
{
	npt_clock = rtscope__clock_kind();
	npt__loop_without(npt);
	npt->events = 0;
}

/*
 * Ticks of this many additions, each of which needs the one before: a cycle each, so this is the clock of the core. Of two
 * registers, because processors join additions of constants.
 */
uint64_t rtscope_npt_core(uint64_t additions)
{
	const uint32_t clock = rtscope__clock_kind();
	const uint64_t before = rtscope__now(clock);
	uint64_t value = 0;

	for (uint64_t i = 0; i < additions; i += 8) {
#if defined(__x86_64__)
		__asm__ __volatile__(".rept 8\n\tadd %1, %0\n\t.endr" : "+r"(value) : "r"(i) : "cc");
#else
		__asm__ __volatile__(".rept 8\n\tadd %0, %0, %1\n\t.endr" : "+r"(value) : "r"(i));
#endif
	}
	return rtscope__now(clock) - before;
}

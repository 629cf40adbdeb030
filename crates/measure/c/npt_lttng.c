/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The loop of the non-preempt test with LTTng-UST's event in place of rtscope's: a library that `rtscope impact` compiles
 * where LTTng is installed, and that `rtscope npt` loads. All but the event is the same.
 */
#include <rtscope/clock.h>

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "npt_lttng.h"

/* Set before the loop, never changed in it. */
static uint32_t npt_clock;

#define NPT_NOW() rtscope__now(npt_clock)
#define NPT_LOOP npt__loop
#define NPT_EVENT(iteration, gap) lttng_ust_tracepoint(NPT_PROVIDER, loop, iteration, gap)
#include "npt.h"

/* As rtscope_npt_run(), but for npt:start, npt:stop and rtscope's summary. */
void rtscope_npt_run_library(struct npt *npt);

void rtscope_npt_run_library(struct npt *npt)
{
	npt_clock = rtscope__clock_kind();
	npt__loop(npt);
}

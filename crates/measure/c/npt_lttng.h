/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The event of the non-preempt test for LTTng-UST, as its manual has events written. NPT_PROVIDER is replaced before this is
 * compiled: LTTng's macros put the name into other names, so it cannot be a macro.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER NPT_PROVIDER

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./npt_lttng.h"

#if !defined(RTSCOPE_NPT_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define RTSCOPE_NPT_LTTNG_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(NPT_PROVIDER, loop, LTTNG_UST_TP_ARGS(uint64_t, iteration, uint64_t, gap),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, turn, iteration)
						       lttng_ust_field_integer(uint64_t, gap_ticks, gap)))

#endif

#include <lttng/tracepoint-event.h>

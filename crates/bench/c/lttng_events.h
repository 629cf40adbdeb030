/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The same events for LTTng-UST, as its manual has them written. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_events.h"

#if !defined(LTTNG_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_EVENTS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(bench, two, LTTNG_UST_TP_ARGS(uint64_t, x, uint64_t, y),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, a, x)
						       lttng_ust_field_integer(uint64_t, b, y)))
LTTNG_UST_TRACEPOINT_EVENT(bench, small, LTTNG_UST_TP_ARGS(unsigned char *, bytes),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_array(unsigned char, data, bytes, 3)))
LTTNG_UST_TRACEPOINT_EVENT(bench, large, LTTNG_UST_TP_ARGS(unsigned char *, bytes),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_array(unsigned char, data, bytes, 100)))

#endif

#include <lttng/tracepoint-event.h>

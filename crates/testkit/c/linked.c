/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A C library with events, linked into a Rust program that has events, too (src/bin/rtscope-emitter.rs). */
#include <rtscope/rtscope.h>

#include <stdint.h>

void rtscope_testkit_linked_c(uint64_t count);

/* Emits `count` events test:linked_c, numbered from 0. */
void rtscope_testkit_linked_c(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		RTSCOPE_EVENT(test, linked_c, rtscope_u64(n, i));
}

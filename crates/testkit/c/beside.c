/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A C library, linked into a Rust program that has events of its own (src/bin/rtscope-emitter.rs). */
#include <rtscope/rtscope.h>

#include <stdint.h>

void rtscope_testkit_beside(uint64_t count);

void rtscope_testkit_beside(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		RTSCOPE_EVENT(test, beside, rtscope_u64(n, i));
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An inline function with an event, for both parts of collide.c. */
#ifndef RTSCOPE_TEST_COLLIDE_H
#define RTSCOPE_TEST_COLLIDE_H

#include <rtscope/rtscope.h>

static inline void shared(uint32_t n)
{
	RTSCOPE_EVENT(test, shared, rtscope_u32(n, n), rtscope_str(who, "header"));
}

void first(uint32_t n);
void second(uint32_t n);

#if defined(__cplusplus)
template <typename T> struct box {
	T value;
	void say() const
	{
		RTSCOPE_EVENT(test, box, rtscope_u32(size, sizeof(T)), rtscope_u32(value, value));
	}
};
#endif

#endif

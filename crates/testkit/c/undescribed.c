/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events that no description can be made of, as honest programs have them, between others. Prints how many it emits of those that can
 * be recorded.
 */
#include <rtscope/rtscope.h>

#include <stdio.h>

RTSCOPE_ENUM(half_named, { 0, "" }, { 1, "busy" });
RTSCOPE_ENUM(nameless, { 0, "" });
RTSCOPE_ENUM(latin, { 0, "gr\xfc\xdf" });

int main(void)
{
	enum { LENGTH = 2 * 2 };
	static const uint32_t values[LENGTH] = { 1, 2, 3, 4 };

	for (uint32_t i = 0; i < 100; i++) {
		RTSCOPE_EVENT(test, before, rtscope_u32(n, i));
		RTSCOPE_EVENT(test, constant, rtscope_array_u32(values, values, LENGTH));
		RTSCOPE_EVENT(test, half_named, rtscope_enum(state, half_named, 0));
		RTSCOPE_EVENT(test, nameless, rtscope_enum(state, nameless, 0));
		RTSCOPE_EVENT(test, latin, rtscope_enum(state, latin, 0));
		RTSCOPE_EVENT(test, after, rtscope_u32(n, i));
	}
	printf("emitted 400\n");
	return 0;
}

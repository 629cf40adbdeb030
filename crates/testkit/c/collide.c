/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two sources in one, told apart by PART, whose events have the same names on the same lines, but other fields. Link-time
 * optimization puts both into one assembly. Also C++. Prints "emitted N".
 */
#include "collide.h"

#include <stdio.h>

#if PART == 1
#define SAY first
#define FIELDS rtscope_u32(narrow, n)
#else
#define SAY second
#define FIELDS rtscope_u64(wide, n + 1000), rtscope_str(text, "hello")
#endif

/* Has the name of a function of the other part, too. */
static void local(uint32_t n)
{
	RTSCOPE_EVENT(test, same, FIELDS);
}

void SAY(uint32_t n)
{
	local(n);
	RTSCOPE_EVENT(test, level, FIELDS, rtscope_u32(last, PART));
	shared(n + PART * 100);
#if defined(__cplusplus)
	box<uint16_t>{ static_cast<uint16_t>(n) }.say();
#endif
}

#if PART == 1
int main(void)
{
	unsigned int each = 3;

#if defined(__cplusplus)
	each = 4;
#endif
	for (uint32_t n = 0; n < 3; n++) {
		first(n);
		second(n);
	}
	printf("emitted %u\n", 3 * 2 * each);
	return 0;
}
#endif

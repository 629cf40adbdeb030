/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Says how many instructions, and conditional jumps among them, an event takes: the one that a recorder asks for, and one that nobody wants; and a span. */
#define _GNU_SOURCE
#include "steps.h"

#include <rtscope/rtscope.h>

#include <stdio.h>

static volatile uint64_t first = 1, second = 2;

static __attribute__((noinline)) void wanted(void)
{
	RTSCOPE_EVENT(test, wanted, rtscope_u64(first, first), rtscope_u64(second, second));
}

static __attribute__((noinline)) void unwanted(void)
{
	RTSCOPE_EVENT(other, unwanted, rtscope_u64(first, first), rtscope_u64(second, second));
}

static __attribute__((noinline)) void span(void)
{
	RTSCOPE_SPAN(test, span, rtscope_u64(first, first));
}

static __attribute__((noinline)) void nothing(void)
{
	__asm__ __volatile__("");
}

/* Now and then an event also notes where and when its thread is: the shortest way is nearly all events'. */
static void least_of(void (*code)(void), unsigned long *least, unsigned long *least_jumps)
{
	unsigned long all, jumps;

	*least = ~0UL;
	for (int i = 0; i < 20; i++) {
		steps_of(code, &all, &jumps);
		if (all < *least) {
			*least = all;
			*least_jumps = jumps;
		}
	}
}

int main(void)
{
	unsigned long all[4], jumps[4];

	for (int i = 0; i < 100; i++)
		wanted();
	steps_of(nothing, &all[0], &jumps[0]);
	least_of(unwanted, &all[1], &jumps[1]);
	least_of(wanted, &all[2], &jumps[2]);
	least_of(span, &all[3], &jumps[3]);
	printf("unwanted %lu %lu wanted %lu %lu span %lu %lu\n", all[1] - all[0], jumps[1] - jumps[0], all[2] - all[0],
	       jumps[2] - jumps[0], all[3] - all[0], jumps[3] - jumps[0]);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Says how many instructions, and conditional jumps among them, an event takes: the one that a recorder asks for, and one that nobody wants. */
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

static __attribute__((noinline)) void nothing(void)
{
	__asm__ __volatile__("");
}

int main(void)
{
	unsigned long all[3], jumps[3], least = ~0UL, least_jumps = 0;

	for (int i = 0; i < 100; i++)
		wanted();
	steps_of(nothing, &all[0], &jumps[0]);
	steps_of(unwanted, &all[1], &jumps[1]);
	/* Now and then an event also notes where and when its thread is: the shortest way is nearly all events'. */
	for (int i = 0; i < 20; i++) {
		steps_of(wanted, &all[2], &jumps[2]);
		if (all[2] < least) {
			least = all[2];
			least_jumps = jumps[2];
		}
	}
	printf("unwanted %lu %lu wanted %lu %lu\n", all[1] - all[0], jumps[1] - jumps[0], least - all[0],
	       least_jumps - jumps[0]);
	return 0;
}

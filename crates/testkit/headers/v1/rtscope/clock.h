/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The time stamp of an event: one unserialized counter read where the CPU's counter can be trusted, else CLOCK_MONOTONIC
 * through the vDSO. The collector converts counters to CLOCK_MONOTONIC; the program never has to know the rate.
 */
#ifndef RTSCOPE_CLOCK_H
#define RTSCOPE_CLOCK_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "abi.h"
#include "system.h"

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static inline uint64_t rtscope__monotonic(int clock)
{
	struct timespec now;

	rtscope__clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Which clock this CPU allows: its counter, if it runs at one rate in all states. */
static inline uint32_t rtscope__clock_kind(void)
{
#if defined(__x86_64__)
	unsigned int a, b, c, d;

	/* Invariant TSC: AMD64 APM 3, CPUID Fn8000_0007_EDX[8]; Intel SDM 3B, 18.17.1. */
	if (__get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8)
		return RTU_CLOCK_TSC;
	return RTU_CLOCK_MONOTONIC;
#elif defined(__aarch64__)
	return RTU_CLOCK_CNTVCT;
#else
	return RTU_CLOCK_MONOTONIC;
#endif
}

/* Now, in the units of `kind`. Not serialized: it may be off by the few ns that the CPU reorders. */
static inline __attribute__((always_inline)) uint64_t rtscope__now(uint32_t kind)
{
#if defined(__x86_64__)
	if (__builtin_expect(kind == RTU_CLOCK_TSC, 1))
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t counter;

	if (__builtin_expect(kind == RTU_CLOCK_CNTVCT, 1)) {
		__asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(counter));
		return counter;
	}
#endif
	(void)kind;
	return rtscope__monotonic(RTSCOPE__CLOCK_MONOTONIC);
}

#endif

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

static inline uint64_t rtscope__monotonic(int clock)
{
	struct timespec now;

	rtscope__clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
struct rtscope__cpu {
	uint32_t a, b, c, d;
};

/* Not by <cpuid.h>, whose functions are not as sanitize.h says. */
static inline struct rtscope__cpu rtscope__cpuid(uint32_t function)
{
	struct rtscope__cpu result;

	__asm__ __volatile__("cpuid"
			     : "=a"(result.a), "=b"(result.b), "=c"(result.c), "=d"(result.d)
			     : "a"(function), "c"(0));
	return result;
}

/* Reads the beginning of a file, which is a text of words; its length, 0 if it cannot be read. */
static inline long rtscope__read_words(const char *path, char *text, long bytes)
{
	int file = rtscope__open(path, RTSCOPE__O_RDONLY, 0);
	long length = file < 0 ? 0 : rtscope__call(__NR_read, file, (long)text, bytes, 0, 0, 0);

	if (file >= 0)
		rtscope__close(file);
	return length > 0 ? length : 0;
}

/* Whether one of the words in a text is this one. */
static inline int rtscope__has_word(const char *text, long length, const char *word)
{
	long same = 0;
	int begins = 1;

	for (long at = 0; at <= length; at++) {
		int ends = at == length || text[at] == ' ' || text[at] == '\n';

		if (ends && begins && !word[same])
			return 1;
		begins = ends || (begins && text[at] == word[same]);
		same = ends ? 0 : same + begins;
	}
	return 0;
}

/*
 * Whether the kernel distrusts the counter although the CPU says that it runs at one rate: it has measured otherwise, or was told so.
 * Then it uses a clock that is not made of the counter, or one that is (of a hypervisor), but offers the counter itself no more. The
 * same rule is in crates/user/src/clock_watch.rs. Where the kernel does not say, the CPU is believed.
 */
static inline int rtscope__counter_is_distrusted(void)
{
	char text[128];
	long length = rtscope__read_words("/sys/devices/system/clocksource/clocksource0/current_clocksource", text,
					  sizeof(text));

	if (!length || rtscope__has_word(text, length, "tsc"))
		return 0;
	if (!rtscope__has_word(text, length, "kvm-clock") && !rtscope__has_word(text, length, "xen") &&
	    !rtscope__has_word(text, length, "hyperv_clocksource_tsc_page"))
		return 1;
	length = rtscope__read_words("/sys/devices/system/clocksource/clocksource0/available_clocksource", text,
				     sizeof(text));
	return length && !rtscope__has_word(text, length, "tsc");
}
#endif

/* Which clock this machine allows: the CPU's counter, if it runs at one rate in all states, and the kernel thinks so, too. */
static inline uint32_t rtscope__clock_kind(void)
{
#if defined(__x86_64__)
	/* Invariant TSC: AMD64 APM 3, CPUID Fn8000_0007_EDX[8]; Intel SDM 3B, 18.17.1. EAX of Fn8000_0000: the last function. */
	if (rtscope__cpuid(0x80000000).a >= 0x80000007 && rtscope__cpuid(0x80000007).d & 1u << 8 &&
	    !rtscope__counter_is_distrusted())
		return RTU_CLOCK_TSC;
	return RTU_CLOCK_MONOTONIC;
#elif defined(__aarch64__)
	return RTU_CLOCK_CNTVCT;
#else
	return RTU_CLOCK_MONOTONIC;
#endif
}

/* Now, in the units of `kind`. Not serialized: it may be off by the few ns that the CPU reorders. */
#if !defined(RTSCOPE_MODEL) /* ring.h */
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

#endif

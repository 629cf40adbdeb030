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
#include "names.h"
#include "system.h"

#include <elf.h>
#include <stdint.h>
#include <time.h>

/*
 * What reads a clock: the C library's function until the program starts, and from then on the kernel's own (rtscope__find_clock). A library
 * may stand in the C library's place (LD_PRELOAD), and have events in its clock_gettime(): they would read the clock again, without end.
 */
RTSCOPE__HIDDEN int (*rtscope__clock_function)(int clock, struct timespec *time) = rtscope__clock_gettime;

/* 0: it was read. */
static inline RTSCOPE__ANY_CALL int rtscope__read_clock(int clock, struct timespec *time)
{
	int result = rtscope__clock_function(clock, time);

	RTSCOPE__FRESH(time, sizeof(*time));
	return result;
}

static inline uint64_t rtscope__monotonic(int clock)
{
	struct timespec now;

	rtscope__read_clock(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Where there is no vDSO: in emulators, and under valgrind. */
static inline int rtscope__call_clock(int clock, struct timespec *time)
{
	return (int)rtscope__call(__NR_clock_gettime, clock, (long)time, 0, 0, 0, 0);
}

static inline int rtscope__is_same(const char *one, const char *other)
{
	for (; *one && *one == *other; one++)
		other++;
	return *one == *other;
}

/* How many symbols a table has that is found by GNU's hash: behind the last one of the last chain. */
static inline uint32_t rtscope__count_symbols(const uint32_t *hash)
{
	uint32_t buckets = hash[0], first = hash[1], last = 0;
	const uint32_t *bucket = hash + 4 + hash[2] * 2, *chain = bucket + buckets;

	for (uint32_t i = 0; i < buckets; i++)
		last = bucket[i] > last ? bucket[i] : last;
	if (last < first)
		return first;
	while (!(chain[last - first] & 1))
		last++;
	return last + 1;
}

/* Where a function of the vDSO is, which the kernel maps into each process (vdso(7)); 0: nowhere. */
static inline uintptr_t rtscope__vdso_function(const char *name)
{
	const unsigned char *image = (const unsigned char *)rtscope__auxiliary(RTSCOPE__AT_SYSINFO_EHDR), *moved = NULL;
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)image;
	const Elf64_Phdr *part = image ? (const Elf64_Phdr *)(const void *)(image + head->e_phoff) : NULL;
	const Elf64_Dyn *dynamic = NULL;
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL;
	uint32_t count = 0;

	for (int i = 0; image && i < head->e_phnum; i++) {
		if (part[i].p_type == PT_LOAD && !moved)
			moved = image + part[i].p_offset - part[i].p_vaddr;
		else if (part[i].p_type == PT_DYNAMIC)
			dynamic = (const Elf64_Dyn *)(const void *)(image + part[i].p_offset);
	}
	for (; moved && dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		const unsigned char *at = moved + dynamic->d_un.d_ptr;

		if (dynamic->d_tag == DT_SYMTAB)
			symbols = (const Elf64_Sym *)(const void *)at;
		else if (dynamic->d_tag == DT_STRTAB)
			names = (const char *)at;
		else if (dynamic->d_tag == DT_HASH)
			count = ((const uint32_t *)(const void *)at)[1];
		else if (dynamic->d_tag == DT_GNU_HASH && !count)
			count = rtscope__count_symbols((const uint32_t *)(const void *)at);
	}
	for (uint32_t i = 0; symbols && names && i < count; i++) {
		if (symbols[i].st_shndx != SHN_UNDEF && rtscope__is_same(names + symbols[i].st_name, name))
			return (uintptr_t)(moved + symbols[i].st_value);
	}
	return 0;
}

/* Once, before events are recorded. */
static inline void rtscope__find_clock(void)
{
#if defined(__aarch64__)
	uintptr_t function = rtscope__vdso_function("__kernel_clock_gettime");
#else
	uintptr_t function = rtscope__vdso_function("__vdso_clock_gettime");
#endif

	/* ORDER: relaxed; a pointer that stands for itself: either function gives the same time. */
	if (!function)
		__atomic_store_n(&rtscope__clock_function, &rtscope__call_clock, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&rtscope__clock_function, (int (*)(int, struct timespec *))function, __ATOMIC_RELAXED);
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
	struct rtscope__file file = rtscope__open(path, RTSCOPE__O_RDONLY, 0);
	long length = file.number < 0 ? 0 : rtscope__read(file, text, (uint64_t)bytes);

	if (file.number >= 0)
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
 * same rule is in crates/programs/src/clock_watch.rs. Where the kernel does not say, the CPU is believed.
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

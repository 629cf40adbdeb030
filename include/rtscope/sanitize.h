/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Programs that are compiled with a sanitizer. The functions of these headers are not instrumented: they run where the sanitizer's
 * state of a thread is already gone (the end of a thread) or not usable (a fork's child), get results of system calls that no
 * interceptor has seen, and map memory where the sanitizer still has marks of what was there before.
 *
 * Nor are they when a program asks for a call in each function (-finstrument-functions, -pg, -fsanitize-coverage): with an event in
 * what is called, that event would call itself without end.
 */
#ifndef RTSCOPE_SANITIZE_H
#define RTSCOPE_SANITIZE_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RTSCOPE__TSAN 1
#define RTSCOPE__PLAIN disable_sanitizer_instrumentation
#elif __has_feature(memory_sanitizer)
#define RTSCOPE__MSAN 1
#define RTSCOPE__PLAIN no_sanitize("memory")
#elif __has_feature(address_sanitizer)
#define RTSCOPE__ASAN 1
#define RTSCOPE__PLAIN no_sanitize("address")
#endif
#elif defined(__SANITIZE_THREAD__)
#define RTSCOPE__TSAN 1
#define RTSCOPE__PLAIN no_sanitize_thread
#elif defined(__SANITIZE_ADDRESS__)
#define RTSCOPE__ASAN 1
#define RTSCOPE__PLAIN no_sanitize_address
#endif

/* No calls of functions of the program. Nor checks of what C allows, as of sums of unsigned numbers, by which some programs are told to end. */
#if defined(__clang__)
#define RTSCOPE__NO_CHECKS \
	no_sanitize("coverage", "unsigned-integer-overflow", "unsigned-shift-base", "implicit-conversion")
#elif __GNUC__ >= 12
#define RTSCOPE__NO_CHECKS no_sanitize_coverage
#else
#define RTSCOPE__NO_CHECKS unused
#endif

/* What each function of these headers is. Clang has a pragma for it (rtscope.h), where it takes one attribute at a time. */
#if defined(__clang__)
#define RTSCOPE__BARE __attribute__((no_instrument_function))
#elif defined(RTSCOPE__PLAIN)
#define RTSCOPE__BARE __attribute__((no_instrument_function, RTSCOPE__NO_CHECKS, RTSCOPE__PLAIN))
#else
#define RTSCOPE__BARE __attribute__((no_instrument_function, RTSCOPE__NO_CHECKS))
#endif
/* One that calls what no compiler has checked: the kernel's. */
#if defined(__clang__)
#define RTSCOPE__ANY_CALL __attribute__((no_sanitize("cfi", "kcfi", "function")))
#else
#define RTSCOPE__ANY_CALL
#endif
/*
 * For what runs seldom: small rather than fast. Each source with this header is compiled with all of it: a third of the code less, and a quarter of the time (GCC 12,
 * -O2).
 */
#define RTSCOPE__COLD __attribute__((cold))
/* One that is not inlined, since its stack would be added to that of others. */
#define RTSCOPE__NOT_INLINE RTSCOPE__BARE RTSCOPE__COLD __attribute__((noinline, unused))

/* Memory that a system call has made or written: forget what was noted of it. */
#if defined(RTSCOPE__ASAN)
#ifdef __cplusplus
extern "C"
#endif
	void
	__asan_unpoison_memory_region(void const volatile *memory, size_t bytes);
#define RTSCOPE__FRESH(memory, bytes) __asan_unpoison_memory_region((void *)(memory), (size_t)(bytes))
#elif defined(RTSCOPE__MSAN)
#ifdef __cplusplus
extern "C"
#endif
	void
	__msan_unpoison(const volatile void *memory, size_t bytes);
#define RTSCOPE__FRESH(memory, bytes) __msan_unpoison((void *)(memory), (size_t)(bytes))
#else
#define RTSCOPE__FRESH(memory, bytes) (void)0
#endif

#endif

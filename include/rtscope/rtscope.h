/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Tracing for real-time programs. Include this, write
 *
 *     RTSCOPE_EVENT(motor, setpoint, rtscope_u64(axis, a), rtscope_f64(target, t), rtscope_str(mode, m));
 *
 * and record with `rtscope record -u 'motor:*' -o DIR -- ./program`. C11 or C++17, GCC or Clang, x86-64 or arm64; nothing to
 * link. Compiled with -DRTSCOPE_DISABLE, or for another machine, all of it is nothing.
 *
 * An event that nobody records costs a load or two and a branch. One that is recorded costs little more than reading the clock:
 * no system call, no lock, no waiting. What does not fit is lost and counted.
 */
#ifndef RTSCOPE_H
#define RTSCOPE_H

#if defined(__GNUC__) && !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include <stdint.h>

/* Levels, as syslog has them; RTSCOPE_EVENT's is RTSCOPE_INFO. */
#define RTSCOPE_EMERG 0
#define RTSCOPE_ALERT 1
#define RTSCOPE_CRIT 2
#define RTSCOPE_ERR 3
#define RTSCOPE_WARNING 4
#define RTSCOPE_NOTICE 5
#define RTSCOPE_INFO 6
#define RTSCOPE_DEBUG 7

/* For rtscope_init(). Zero: as it is without. */
struct rtscope_options {
	uint64_t ring_bytes;  /* of each thread; rounded up to a power of two from 64 KiB to 1 GiB */
	uint32_t sub_buffers; /* into which a ring is divided: 2 to 256, a power of two */
	int lock;	      /* 1: lock rings in memory (mlock); they are always touched beforehand */
	int only_when_asked;  /* 1: a thread has a ring only after rtscope_thread_init() */
	int allow_blocking;   /* 1: `rtscope record --blocking` may make threads wait that have no real-time policy */
};

#if !defined(RTSCOPE_DISABLE) && defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

/* All functions of these headers are as sanitize.h says. What is not ours is included before. */
#include "sanitize.h"

#include <elf.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__clang__)
#pragma clang attribute push(RTSCOPE__BARE, apply_to = function)
#pragma clang attribute push(__attribute__((RTSCOPE__NO_CHECKS)), apply_to = function)
#if defined(RTSCOPE__PLAIN)
#pragma clang attribute push(__attribute__((RTSCOPE__PLAIN)), apply_to = function)
#endif
#else
#pragma push_macro("inline")
#undef inline
#define inline __inline__ RTSCOPE__BARE
#endif

#include "life.h"

#include "event.h"

/*
 * Sets what rings made from now on are like. 0, or an errno: EINVAL (a value out of range), ENOTSUP (this process cannot be
 * traced).
 */
static inline int rtscope_init(const struct rtscope_options *options)
{
	struct rtscope__shared *leader = rtscope__leader;
	uint32_t sub_buffers = options ? options->sub_buffers : 0;

	if (!options || options->ring_bytes > RTU_RING_BYTES_MAX || sub_buffers > 256 || sub_buffers == 1 ||
	    sub_buffers & (sub_buffers - 1))
		return RTSCOPE__EINVAL;
	if (!leader || !leader->provider)
		return RTSCOPE__ENOTSUP;
	if (options->ring_bytes)
		leader->ring_bytes = rtscope__ring_bytes(options->ring_bytes);
	if (sub_buffers)
		leader->sub_buffers = sub_buffers;
	leader->lock_memory |= options->lock != 0;
	if (options->only_when_asked)
		leader->lazy = 0;
	if (options->allow_blocking)
		leader->allows_blocking = leader->provider->allows_blocking = 1;
	return 0;
}

/*
 * Makes the calling thread's ring now, so that its first event costs what all others cost. 0, or an errno: ENOTSUP (this process
 * cannot be traced), ENOSPC (/dev/shm is full), EMFILE, ENOMEM, EACCES, ...: events of this thread are then lost, and counted.
 */
static inline int rtscope_thread_init(void)
{
	struct rtscope__shared *leader = rtscope__leader;
	struct rtscope__answer answer;

	if (!leader || !leader->provider)
		return RTSCOPE__ENOTSUP;
	leader->thread(1, 0, &answer);
	return answer.error;
}

#if defined(RTSCOPE_START_BY_HAND)
/*
 * From here on this program can be recorded. Once: later calls do nothing. Of several threads that call it at the same time one starts it, and the
 * others wait for that. Each of several objects of a process (a program, its libraries) calls its own.
 */
static inline void rtscope_start(void)
{
	rtscope__start();
}
#endif

/* Gives the calling thread's ring up, before the thread ends. Without it that happens when the thread ends. */
static inline void rtscope_thread_exit(void)
{
	if (rtscope__leader)
		rtscope__leader->end(rtscope__leader->find());
}

#if defined(__clang__)
#if defined(RTSCOPE__PLAIN)
#pragma clang attribute pop
#endif
#pragma clang attribute pop
#pragma clang attribute pop
#else
#pragma pop_macro("inline")
#endif

#else

#include "disabled.h"

static inline int rtscope_init(const struct rtscope_options *options)
{
	(void)options;
	return 0;
}

static inline int rtscope_thread_init(void)
{
	return 0;
}

static inline void rtscope_thread_exit(void)
{
}

#endif

/*
 * A piece of work that may pass from thread to thread, known by a number: `rtscope watch work` follows it from its begin to its end, and says which
 * threads had it. Numbers of work that is under way at the same time differ, in all programs that are watched: the address of
 * the work will do within one process. Whoever takes it over may say so (RTSCOPE_WORK_STEP). They are ordinary events: no system call.
 */
#define RTSCOPE_WORK_BEGIN(number) RTSCOPE_EVENT(work, begin, rtscope_x64(cookie, number))
#define RTSCOPE_WORK_STEP(number) RTSCOPE_EVENT(work, step, rtscope_x64(cookie, number))
#define RTSCOPE_WORK_END(number) RTSCOPE_EVENT(work, end, rtscope_x64(cookie, number))

#endif

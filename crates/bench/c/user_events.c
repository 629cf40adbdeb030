/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The program of `bench user-events`: short loops with an event in each iteration, right after the same loops without, so that
 * the difference is what the event adds. Compiled at run time, once for each tracer. Prints "NAME NS" for each pair of
 * loops, and "emitted N" at the end.
 *
 * Arguments: CPU ROUNDS ITERATIONS, or CPU RATE MILLISECONDS paced: this many events a second, and how much CPU time that took. Between the loops it sleeps, so that buffers of every tracer can be emptied: a cost with losses
 * is none.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#if defined(WITH_LTTNG)
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_events.h"
#define EVENT_TWO(a, b) lttng_ust_tracepoint(bench, two, a, b)
#define EVENT_3(data) lttng_ust_tracepoint(bench, small, data)
#define EVENT_100(data) lttng_ust_tracepoint(bench, large, data)
#else
#include <rtscope/rtscope.h>
#define EVENT_TWO(x, y) RTSCOPE_EVENT(bench, two, rtscope_u64(a, x), rtscope_u64(b, y))
#define EVENT_3(bytes) RTSCOPE_EVENT(bench, small, rtscope_array_u8(data, bytes, 3))
#define EVENT_100(bytes) RTSCOPE_EVENT(bench, large, rtscope_array_u8(data, bytes, 100))
#endif

static unsigned char data[100];
static volatile uint64_t sink;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t counter(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	uint64_t value;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(value));
	return value;
#endif
}

/* Some work that needs its own result: xorshift (Marsaglia, 2003), ten times. */
static inline uint64_t arithmetic(uint64_t x)
{
	for (int i = 0; i < 10; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

#define LOOP(name, work, what)                                         \
	static __attribute__((noinline)) uint64_t name(uint64_t turns) \
	{                                                              \
		uint64_t x = turns | 1;                                \
		const uint64_t begin = now_ns();                       \
		for (uint64_t i = 0; i < turns; i++) {                 \
			work;                                          \
			what;                                          \
			__asm__ __volatile__("" : "+r"(x) : "r"(i));   \
		}                                                      \
		sink = x;                                              \
		return now_ns() - begin;                               \
	}

#define NOTHING (void)0
LOOP(base, NOTHING, NOTHING)
LOOP(base_with_arithmetic, x = arithmetic(x), NOTHING)
LOOP(two, NOTHING, EVENT_TWO(i, x))
LOOP(two_with_arithmetic, x = arithmetic(x), EVENT_TWO(i, x))
LOOP(small, NOTHING, EVENT_3(data))
LOOP(large, NOTHING, EVENT_100(data))
LOOP(counter_alone, NOTHING, x ^= counter())

static void pause_ms(long ms)
{
	const struct timespec pause = { 0, ms * 1000000 };

	nanosleep(&pause, NULL);
}

static void compare(const char *name, uint64_t (*without)(uint64_t), uint64_t (*with)(uint64_t), uint64_t turns)
{
	/* The first loop finds the CPU as the sleep has left it. */
	without(turns);
	{
		const double before = (double)without(turns), cost = (double)with(turns),
			     after = (double)without(turns);

		printf("%s %.3f\n", name, (cost - (before + after) / 2) / (double)turns);
	}
	pause_ms(15);
}

/* An event whenever it is due; one that could not be kept up with is not made up for. Returns how many. */
static uint64_t paced(uint64_t rate, uint64_t ms)
{
	const double interval = 1e9 / (double)rate;
	const uint64_t begin = now_ns(), end = begin + ms * 1000000;
	double next = (double)begin;
	uint64_t emitted = 0;

	for (uint64_t now = begin; now < end; now = now_ns()) {
		if ((double)now < next)
			continue;
		next = next + interval < (double)now ? (double)now : next + interval;
		EVENT_TWO(emitted, now);
		emitted++;
	}
	return emitted;
}

static void print_cpu_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	printf("cpu_us %lld\n", (long long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
					usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
	const int cpu = argc > 1 ? atoi(argv[1]) : 0;
	const long rounds = argc > 2 ? atol(argv[2]) : 10;
	const uint64_t turns = argc > 3 ? strtoul(argv[3], NULL, 10) : 5000;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus)) {
		perror("sched_setaffinity");
		return 1;
	}
	if (argc > 4) {
		const uint64_t emitted = paced((uint64_t)rounds, turns);

		print_cpu_time();
		printf("emitted %lu\n", (unsigned long)emitted);
		return 0;
	}
	for (long round = 0; round < rounds; round++) {
		compare("two", base, two, turns);
		compare("two-arithmetic", base_with_arithmetic, two_with_arithmetic, turns);
		compare("small", base, small, turns);
		compare("large", base, large, turns);
		compare("counter", base, counter_alone, turns);
	}
	printf("emitted %lu\n", (unsigned long)(4 * turns) * (unsigned long)rounds);
	return 0;
}

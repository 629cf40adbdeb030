/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A thread that sleeps until set times, beside one of higher priority on the same CPU that keeps it from it now and then. It reads the
 * clock before and after each sleep, and prints that at the end: BEFORE DUE AFTER, in ns of CLOCK_MONOTONIC. A trackers' judge.
 *
 * delays CPU ROUNDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define ROUNDS_MAX 10000

static long long stamps[ROUNDS_MAX][3];
static volatile int done;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_until(long long ns)
{
	struct timespec until = { ns / 1000000000, ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void *disturb(void *unused)
{
	struct sched_param param = { .sched_priority = 60 };
	long long due = now_ns();

	prctl(PR_SET_NAME, "disturber");
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	while (!done) {
		long long until;

		due += 13000000;
		sleep_until(due);
		for (until = now_ns() + 3000000; now_ns() < until;)
			;
	}
	return unused;
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 100;
	unsigned seed = 7;
	pthread_t thread;
	cpu_set_t cpus;

	if (argc < 2 || rounds > ROUNDS_MAX)
		return 2;
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) || pthread_create(&thread, NULL, disturb, NULL))
		return 1;
	prctl(PR_SET_NAME, "sleeper");
	for (int round = 0; round < rounds; round++) {
		stamps[round][0] = now_ns();
		stamps[round][1] = stamps[round][0] + 500000 + rand_r(&seed) % 6000000;
		sleep_until(stamps[round][1]);
		stamps[round][2] = now_ns();
	}
	/* What it waits for from here on is no sleep of the sleeper. */
	prctl(PR_SET_NAME, "done");
	done = 1;
	pthread_join(thread, NULL);
	for (int round = 0; round < rounds; round++)
		printf("%lld %lld %lld\n", stamps[round][0], stamps[round][1], stamps[round][2]);
	return 0;
}

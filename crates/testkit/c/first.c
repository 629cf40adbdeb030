/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * first COUNT: threads, one after another, each of which gets a signal around its first event, whose handler has one as well. Prints "emitted N", and, when all have
 * ended, "mapped N": how many buffers this process still has.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_barrier_t turn;
static volatile int spins;
static long emitted;

static void handle(int signal)
{
	(void)signal;
	RTSCOPE_EVENT(test, handled, rtscope_s32(number, 1));
	__atomic_fetch_add(&emitted, 1, __ATOMIC_RELAXED);
}

static void *emits(void *unused)
{
	pthread_barrier_wait(&turn);
	for (volatile int i = 0; i < spins; i++)
		;
	RTSCOPE_EVENT(test, first, rtscope_s32(number, 1));
	__atomic_fetch_add(&emitted, 1, __ATOMIC_RELAXED);
	/* The signal has come, too, when it is told to end. */
	pthread_barrier_wait(&turn);
	return unused;
}

static int mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	while (maps && fgets(line, sizeof(line), maps)) {
		const char *directory = strstr(line, "/dev/shm/rtscope-");
		const char *name = directory ? strchr(directory + strlen("/dev/shm/"), '/') : NULL;

		count += name && name[1] == 'r';
	}
	if (maps)
		fclose(maps);
	return count;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0;
	struct sigaction action = { 0 };

	action.sa_handler = handle;
	sigaction(SIGUSR1, &action, NULL);
	pthread_barrier_init(&turn, NULL, 2);
	for (int i = 0; i < count; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, emits, NULL))
			return 2;
		spins = rand() % 600;
		pthread_barrier_wait(&turn);
		for (volatile int j = rand() % 3000; j; j--)
			;
		pthread_kill(thread, SIGUSR1);
		pthread_barrier_wait(&turn);
		pthread_join(thread, NULL);
	}
	printf("emitted %ld\nmapped %d\n", emitted, mapped());
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * ends SECONDS: threads that emit and end, without pause, while signals come whose handler emits as well: also at the very end of a thread. Then children of
 * forks look whether the program's own pages are still there. Prints "emitted N" and "died N", of 50.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGES 3000

static int is_over;
static long emitted;

static void handle(int signal)
{
	(void)signal;
	RTSCOPE_EVENT(test, handled, rtscope_s32(number, 1));
	__atomic_fetch_add(&emitted, 1, __ATOMIC_RELAXED);
}

static void *emits(void *unused)
{
	for (int i = 0; i < 3; i++)
		RTSCOPE_EVENT(test, here, rtscope_s32(number, i));
	__atomic_fetch_add(&emitted, 3, __ATOMIC_RELAXED);
	return unused;
}

static void *starts(void *unused)
{
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		pthread_t made;

		if (!pthread_create(&made, NULL, emits, NULL))
			pthread_join(made, NULL);
	}
	return unused;
}

static int is_whole(char *const *pages)
{
	int sum = 0;

	for (int i = 0; i < PAGES; i++)
		sum += pages[i][0];
	return sum == PAGES / 2;
}

int main(int argc, char **argv)
{
	static char *pages[PAGES];
	const struct timespec pause = { 0, 20000 };
	struct sigaction action = { 0 };
	pthread_t starters[2];
	sigset_t signals;
	int died = 0;
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);

	action.sa_handler = handle;
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&starters[i], NULL, starts, NULL))
			return 2;
	/* For the others. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	while (time(NULL) < end) {
		kill(getpid(), SIGUSR1);
		nanosleep(&pause, NULL);
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
	pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(starters[i], NULL);
	/* Where pages of threads have been; not one mapping. */
	for (int i = 0; i < PAGES; i++) {
		pages[i] = mmap(NULL, 4096, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				0);
		if (pages[i] == MAP_FAILED)
			return 2;
		if (i % 2)
			pages[i][0] = 1;
	}
	for (int i = 0; i < 50; i++) {
		int status = 0;
		pid_t child = fork();

		if (!child)
			_exit(!is_whole(pages));
		waitpid(child, &status, 0);
		died += status != 0;
	}
	printf("emitted %ld\ndied %d\n", emitted, died);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Three processes that wait for each other: "first" works for a while and writes a byte into a pipe, "second" reads that and writes one into another
 * pipe, "third" reads that and works for 2 ms. Nobody sleeps and nothing is an interrupt's: what "third" responds to is "second", and what came
 * before that is "first". Prints the number of each, in this order.
 *
 * relay ROUNDS
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void work(long long ns)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000000000LL + now.tv_nsec - begin.tv_nsec < ns);
}

/* A child that passes on what it reads, until its parent ends. */
static pid_t relay(const char *name, int from, int to, long long work_ns)
{
	char byte;
	pid_t child = fork();

	if (child != 0)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	while (read(from, &byte, 1) == 1) {
		work(work_ns);
		if (to >= 0 && write(to, &byte, 1) != 1)
			break;
	}
	_exit(1);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 20;
	int one[2], two[2];
	pid_t second, third;

	if (pipe(one) || pipe(two))
		return 2;
	third = relay("third", two[0], -1, 2000000);
	second = relay("second", one[0], two[1], 10000);
	if (second < 0 || third < 0)
		return 2;
	prctl(PR_SET_NAME, "first");
	printf("%d %d %d\n", getpid(), second, third);
	for (int round = 0; round < rounds; round++) {
		/* It leaves its CPU and comes back: who never does is in no recorded switch. */
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
		work(8000000);
		if (write(one[1], "x", 1) != 1)
			return 1;
	}
	/* The last response ends as well. */
	work(8000000);
	return 0;
}

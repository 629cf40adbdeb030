/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Work of one user, and a program of another one that does what it can to hide it:
 *
 *   users late COUNT    pieces of work 1 to COUNT, of 30 ms each, one after the other; then it prints "done"
 *   users hides COUNT   until its standard input ends: ends pieces of work 1 to COUNT all the time; begins some that never end; has a thread whose
 *                       events are overwritten before anybody has looked at them; and has late pieces of its own
 *   users fills COUNT   until its standard input ends: has late pieces, and buffers that are full of what came meanwhile
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN (1UL << 60)

static unsigned long count;

static void *ends(void *unused)
{
	(void)unused;
	for (;;) {
		for (unsigned long number = 1; number <= count; number++)
			RTSCOPE_WORK_END(number);
		usleep(1000);
	}
	return NULL;
}

static void *opens(void *unused)
{
	(void)unused;
	for (unsigned long number = 1;; number++) {
		RTSCOPE_WORK_BEGIN(2 * OWN + number);
		if (number % 500 == 0)
			usleep(1000);
	}
	return NULL;
}

static void *floods(void *unused)
{
	(void)unused;
	for (unsigned long number = 1;; number++) {
		RTSCOPE_WORK_BEGIN(3 * OWN);
		RTSCOPE_WORK_END(3 * OWN);
		if (number % 60000 == 0)
			usleep(5000);
	}
	return NULL;
}

static void *late(void *unused)
{
	(void)unused;
	for (;;) {
		RTSCOPE_WORK_BEGIN(4 * OWN);
		usleep(30000);
		RTSCOPE_WORK_END(4 * OWN);
	}
	return NULL;
}

static void *fills(void *unused)
{
	(void)unused;
	for (unsigned long number = 1;; number++) {
		RTSCOPE_WORK_STEP(5 * OWN + number);
		if (number % 2000 == 0)
			usleep(5000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	void *(*const hides[])(void *) = { ends, opens, floods, late, NULL };
	void *(*const full[])(void *) = { fills, late, NULL };
	void *(*const *all)(void *) = argc > 1 && strcmp(argv[1], "fills") == 0 ? full : hides;
	pthread_t thread;
	char byte;

	count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	if (argc > 1 && strcmp(argv[1], "late") == 0) {
		for (unsigned long number = 1; number <= count; number++) {
			RTSCOPE_WORK_BEGIN(number);
			usleep(30000);
			RTSCOPE_WORK_END(number);
		}
		puts("done");
		return 0;
	}
	for (; *all; all++) {
		if (pthread_create(&thread, NULL, *all, NULL) != 0)
			return 1;
	}
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}

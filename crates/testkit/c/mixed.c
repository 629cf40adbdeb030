/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program whose objects were compiled with headers of different versions:
 *
 *   mixed COUNT
 *
 * With -DFIRST and with -DSECOND this is another object, each with one function that emits. The program has all three emit in turn: two
 * threads at a time, interrupted by signals whose handler emits through each of them as well, and then a fork's child. Prints
 * "emitted N", "handled N" for the handlers that ran, and "early N" for those of them that interrupted a thread in its first events, where it
 * makes its rings, or at its end, where it gives them back: each version counts their events as lost there, and another one may record its own.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

void first_emit(unsigned long n);
void second_emit(unsigned long n);

#if defined(FIRST)

/* One event of the first object. */
void first_emit(unsigned long n)
{
	RTSCOPE_EVENT(test, first, rtscope_u64(n, n), rtscope_str(from, "the first"));
}

#elif defined(SECOND)

/* One event of the second object. */
void second_emit(unsigned long n)
{
	RTSCOPE_EVENT(test, second, rtscope_str(from, "the second"), rtscope_u64(n, n));
}

#else

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long count;
static unsigned long handled;
static unsigned long early;
/* Events of this thread, of all three objects. */
static __thread volatile unsigned long done;
/* This thread is about to end. */
static __thread volatile int ends;

/* One event of each object, in a signal's handler. */
static void handle(int signal)
{
	(void)signal;
	RTSCOPE_EVENT(test, handler, rtscope_u64(n, 0));
	first_emit(0);
	second_emit(0);
	__atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
	if (done < 3 || ends)
		__atomic_add_fetch(&early, 1, __ATOMIC_RELAXED);
}

/* `count` events of each object. The first one, which makes the thread's ring, is of the object with this number. */
static void *emit(void *begin)
{
	unsigned long turn = (unsigned long)(uintptr_t)begin;

	for (unsigned long i = 0; i < 3 * count; i++, turn++) {
		if (turn % 3 == 0)
			RTSCOPE_EVENT(test, program, rtscope_u64(n, i));
		else if (turn % 3 == 1)
			first_emit(i);
		else
			second_emit(i);
		done = done + 1;
	}
	return NULL;
}

/* A thread of its own. */
static void *emit_and_end(void *begin)
{
	emit(begin);
	ends = 1;
	return NULL;
}

int main(int argument_count, char **arguments)
{
	struct itimerval each = { { 0, 100 }, { 0, 100 } }, none = { { 0, 0 }, { 0, 0 } };
	struct sigaction action;
	pthread_t other;
	int status = 1;
	pid_t child;

	if (argument_count != 2)
		return 2;
	count = strtoul(arguments[1], NULL, 10);
	memset(&action, 0, sizeof(action));
	action.sa_handler = handle;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	if (pthread_create(&other, NULL, emit_and_end, (void *)1))
		return 3;
	emit(NULL);
	pthread_join(other, NULL);
	setitimer(ITIMER_REAL, &none, NULL);
	child = fork();
	if (child < 0)
		return 3;
	if (!child) {
		emit((void *)2);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		return 4;
	printf("handled %lu\n", handled);
	printf("early %lu\n", early);
	printf("emitted %lu\n", 9 * count + 3 * handled);
	return 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An instrumented program that is compiled with a sanitizer: threads that end, a handler, a fork, and a library that is loaded
 * (sanitized LIBRARY). Prints "emitted N".
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t handled;

/* Emits 100 events with text of the stack. */
static void *emit(void *nothing)
{
	for (uint32_t i = 0; i < 100; i++) {
		char text[20];

		snprintf(text, sizeof(text), "t%u", i);
		RTSCOPE_EVENT(test, count, rtscope_u32(n, i), rtscope_str(text, text));
	}
	return nothing;
}

static void handler(int signal)
{
	(void)signal;
	RTSCOPE_EVENT(test, handler, rtscope_u32(n, __atomic_load_n(&handled, __ATOMIC_RELAXED)));
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
	struct itimerval each = { { 0, 200 }, { 0, 200 } }, none = { { 0, 0 }, { 0, 0 } };
	struct sigaction action;
	pthread_t threads[4];
	unsigned long emitted = 0;
	int status = 0;
	pid_t child;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 4; i++) {
			if (pthread_create(&threads[i], NULL, emit, NULL))
				return 1;
		}
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		emitted += 400;
	}
	setitimer(ITIMER_REAL, &none, NULL);
	child = fork();
	if (child == 0) {
		emit(NULL);
		_exit(0);
	}
	waitpid(child, &status, 0);
	emitted += 100;
	if (argc > 1) {
		void *library = dlopen(argv[1], RTLD_NOW);
		void (*emit_there)(unsigned long) = NULL;

		if (!library)
			return 1;
		*(void **)&emit_there = dlsym(library, "library_emit");
		/* Two events each. */
		emit_there(50);
		dlclose(library);
		emit(NULL);
		emitted += 200;
	}
	printf("emitted %lu\n", emitted + __atomic_load_n(&handled, __ATOMIC_RELAXED));
	return status;
}

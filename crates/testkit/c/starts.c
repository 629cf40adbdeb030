/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects of one process that start rtscope at the same moment, each in a thread of its own, and emit 20 events each.
 * starts [self] [by-hand:LIBRARY] [by-loading:LIBRARY]...
 * A library is this source with -DLIBRARY, and one that starts by hand with -DRTSCOPE_START_BY_HAND, too. With -DIN_A_THREAD its constructor makes a thread that starts
 * and emits, while the program that it is linked to starts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <rtscope/rtscope.h>
#include <stdio.h>
#include <string.h>

#define THREADS_MAX 8

#if defined(LIBRARY)
#define STARTED library
void start_and_emit(void);
#else
#define STARTED program
static
#endif
void start_and_emit(void)
{
#if defined(RTSCOPE_START_BY_HAND) && !defined(RTSCOPE_DISABLE)
	rtscope_start();
#endif
	for (unsigned number = 0; number < 20; number++)
		RTSCOPE_EVENT(test, STARTED, rtscope_u32(n, number));
}

#if defined(IN_A_THREAD)
static pthread_t thread;

static void *in_a_thread(void *argument)
{
	start_and_emit();
	return argument;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_create(&thread, NULL, in_a_thread, NULL);
}

__attribute__((destructor)) static void end(void)
{
	pthread_join(thread, NULL);
}
#endif

#if !defined(LIBRARY)
static pthread_barrier_t at_once;

static void start_library(const char *path, int when_loaded)
{
	void *library = when_loaded ? NULL : dlopen(path, RTLD_NOW);
	void (*start)(void);

	pthread_barrier_wait(&at_once);
	if (when_loaded)
		library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return;
	}
	*(void **)&start = dlsym(library, "start_and_emit");
	start();
}

static void *start(void *argument)
{
	const char *what = argument;
	const char *library = strchr(what, ':');

	if (library) {
		start_library(library + 1, !strncmp(what, "by-loading", library - what));
	} else {
		pthread_barrier_wait(&at_once);
		start_and_emit();
	}
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS_MAX];

	if (count < 2 || count > THREADS_MAX || pthread_barrier_init(&at_once, NULL, count - 1))
		return 2;
	for (int number = 1; number < count; number++)
		if (pthread_create(&threads[number], NULL, start, arguments[number]))
			return 1;
	for (int number = 1; number < count; number++)
		pthread_join(threads[number], NULL);
	return 0;
}
#endif

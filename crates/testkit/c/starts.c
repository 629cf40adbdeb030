/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects of one process that start rtscope at the same moment, each in a thread of its own, and emit 20 events each.
 * starts [self] [by-hand:LIBRARY] [by-loading:LIBRARY] [again-from:LIBRARY]...
 * A library is this source with -DLIBRARY, and one that starts by hand with -DRTSCOPE_START_BY_HAND, too. With -DIN_A_THREAD its constructor makes a thread that starts
 * and emits, while the program that it is linked to starts. With -DCALLS_ANOTHER its constructor, which has the loader's lock, starts the one of `by-hand` and emits there:
 * that is again-from.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <rtscope/rtscope.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	/* Until the program starts the thread has come to another place each time. */
	usleep((useconds_t)getpid() % 16 * 20);
}

__attribute__((destructor)) static void end(void)
{
	pthread_join(thread, NULL);
}
#endif

#if defined(CALLS_ANOTHER)
extern void (*start_another)(void);
extern pthread_barrier_t at_once;

__attribute__((constructor)) static void begin(void)
{
	pthread_barrier_wait(&at_once);
	start_another();
}
#endif

#if !defined(LIBRARY)
struct task {
	const char *what;
	void (*start)(void); /* NULL: of a library that is not loaded yet */
};

/* Of a library that is started by hand. */
void (*start_another)(void);
pthread_barrier_t at_once;

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
	return library;
}

/* Before there are threads: dlopen(3) and dlsym(3) take the loader's lock, which a constructor has that waits for the others. */
static void prepare(struct task *task)
{
	const char *library = strchr(task->what, ':');

	if (!library) {
		task->start = start_and_emit;
	} else if (!strncmp(task->what, "by-hand", 7)) {
		*(void **)&task->start = dlsym(load(library + 1), "start_and_emit");
		start_another = task->start;
	}
}

static void *run(void *argument)
{
	struct task *task = argument;
	const char *library = strchr(task->what, ':');

	if (!strncmp(task->what, "again-from", 10)) {
		load(library + 1);
		return NULL;
	}
	pthread_barrier_wait(&at_once);
	if (!task->start)
		*(void **)&task->start = dlsym(load(library + 1), "start_and_emit");
	task->start();
	return NULL;
}

int main(int count, char **arguments)
{
	struct task tasks[THREADS_MAX] = { 0 };
	pthread_t threads[THREADS_MAX];

	if (count < 2 || count > THREADS_MAX || pthread_barrier_init(&at_once, NULL, count - 1))
		return 2;
	for (int number = 1; number < count; number++) {
		tasks[number].what = arguments[number];
		prepare(&tasks[number]);
	}
	for (int number = 1; number < count; number++)
		if (pthread_create(&threads[number], NULL, run, &tasks[number]))
			return 1;
	for (int number = 1; number < count; number++)
		pthread_join(threads[number], NULL);
	return 0;
}
#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An instrumented program for tests: emits events as its arguments ask, and prints how many.
 *
 *   emitter MODE COUNT [THREADS]
 *
 * Modes: count (each thread COUNT events), large (COUNT events, and as many that are larger than a record can be), signals
 * (a handler emits while COUNT events are), fork, vfork, clone (a child emits too),
 * exec (emits, then runs itself again), paced (an event each 10 us), strings, wait (prints "ready" and waits for a line first; with THREADS these emit),
 * turns (the same; then it says so again, waits for another line, and emits THREADS of another event),
 * forks (four threads emit while COUNT children are forked, each of which emits 100 events),
 * stamps (COUNT times: the time, a system call, the time, and an event with both times),
 * iterations (every 40 ms an iteration that computes for 200 us, with an event before and after it; until it is killed).
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Until it returns, nothing that follows is executed. */
static void await_reads(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

static unsigned long count;
static volatile sig_atomic_t handled;

/* Emits `count` events with this number. Returns NULL, for pthread_create(). */
static void *emit(void *number)
{
	for (unsigned long i = 0; i < count; i++)
		RTSCOPE_EVENT(test, count, rtscope_u64(n, i), rtscope_u64(thread, (uintptr_t)number));
	return NULL;
}

/* Emits an event inside whatever the signal interrupts. */
static void handler(int signal)
{
	(void)signal;
	RTSCOPE_EVENT(test, handler, rtscope_u32(n, handled));
	handled = handled + 1;
}

/* Emits events while a timer signals every 50 us. */
static void with_signals(void)
{
	struct itimerval each = { { 0, 50 }, { 0, 50 } }, none = { { 0, 0 }, { 0, 0 } };
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	emit(NULL);
	setitimer(ITIMER_REAL, &none, NULL);
}

/* Lets this many threads emit; returns how many could be started. */
static unsigned long in_threads(int threads)
{
	pthread_t *all = calloc((size_t)threads, sizeof(*all));
	unsigned long started = 0;

	for (int i = 0; i < threads; i++) {
		if (!pthread_create(&all[i], NULL, emit, (void *)(uintptr_t)(i + 1)))
			started++;
		else
			all[i] = 0;
	}
	for (int i = 0; i < threads; i++) {
		if (all[i])
			pthread_join(all[i], NULL);
	}
	free(all);
	return started;
}

static volatile int stopping;

/* Emits until told to stop; returns how many. */
static void *emit_on(void *number)
{
	struct timespec pause = { 0, 20000 };
	uintptr_t emitted = 0;

	while (!stopping) {
		RTSCOPE_EVENT(test, count, rtscope_u64(n, emitted), rtscope_u64(thread, (uintptr_t)number));
		emitted++;
		nanosleep(&pause, NULL);
	}
	return (void *)emitted;
}

/* Forks children while threads emit; returns how many events all of them emit. */
static unsigned long with_forks(void)
{
	pthread_t threads[4];
	unsigned long emitted = 0;

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, emit_on, (void *)(uintptr_t)(i + 1));
	for (unsigned long i = 0; i < count; i++) {
		pid_t child = fork();

		if (child == 0) {
			for (int n = 0; n < 100; n++)
				RTSCOPE_EVENT(test, child, rtscope_u64(n, n));
			_exit(0);
		}
		waitpid(child, NULL, 0);
		emitted += 100;
	}
	stopping = 1;
	for (int i = 0; i < 4; i++) {
		void *number;

		pthread_join(threads[i], &number);
		emitted += (uintptr_t)number;
	}
	return emitted;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "count";
	int threads = argc > 3 ? atoi(argv[3]) : 1;
	unsigned long emitted;
	int status = 0;

	count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
	emitted = count;
	if (!strcmp(mode, "wait")) {
		puts("ready");
		fflush(stdout);
		getchar();
		if (threads > 1)
			emitted = count * in_threads(threads);
		else
			emit(NULL);
	} else if (!strcmp(mode, "turns")) {
		puts("ready");
		fflush(stdout);
		getchar();
		emit(NULL);
		puts("ready");
		fflush(stdout);
		getchar();
		for (int i = 0; i < threads; i++)
			RTSCOPE_EVENT(test, last, rtscope_u64(n, (unsigned long)i));
		emitted += (unsigned long)threads;
	} else if (!strcmp(mode, "signals")) {
		with_signals();
		emitted += (unsigned long)handled;
	} else if (!strcmp(mode, "fork") || !strcmp(mode, "vfork") || !strcmp(mode, "clone")) {
		pid_t child;

		emit(NULL);
		if (!strcmp(mode, "fork"))
			child = fork();
		else if (!strcmp(mode, "vfork"))
			child = vfork();
		else
			child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
		if (child == 0) {
			emit((void *)1);
			_exit(0);
		}
		waitpid(child, &status, 0);
		emit(NULL);
		emitted = 3 * count;
	} else if (!strcmp(mode, "exec")) {
		emit(NULL);
		execl("/proc/self/exe", argv[0], "count", argv[2], (char *)NULL);
		return 1;
	} else if (!strcmp(mode, "large")) {
		char text[4001];

		memset(text, 'x', 4000);
		text[4000] = 0;
		for (unsigned long i = 0; i < count; i++) {
			RTSCOPE_EVENT(test, count, rtscope_u64(n, i), rtscope_u64(thread, 0));
			RTSCOPE_EVENT(test, large, rtscope_strn(a, text, 4000), rtscope_strn(b, text, 4000),
				      rtscope_strn(c, text, 4000));
		}
		emitted = 2 * count;
	} else if (!strcmp(mode, "paced")) {
		for (unsigned long i = 0; i < count; i++) {
			struct timespec pause = { 0, 10000 };

			RTSCOPE_EVENT(test, count, rtscope_u64(n, i), rtscope_u64(thread, 0));
			nanosleep(&pause, NULL);
		}
	} else if (!strcmp(mode, "forks")) {
		emitted = with_forks();
	} else if (!strcmp(mode, "stamps")) {
		for (unsigned long i = 0; i < count; i++) {
			struct timespec pause = { 0, 1000000 };
			uint64_t before = now_ns(), after;

			syscall(SYS_getppid);
			after = now_ns();
			/* The event reads its counter without a fence, which can be some ns before the clock was read. */
			await_reads();
			RTSCOPE_EVENT(test, stamp, rtscope_u64(before, before), rtscope_u64(after, after));
			nanosleep(&pause, NULL);
		}
	} else if (!strcmp(mode, "iterations")) {
		prctl(PR_SET_NAME, "e2e-iterations");
		for (unsigned long i = 0;; i++) {
			struct timespec pause = { 0, 40000000 }, start, now;

			nanosleep(&pause, NULL);
			RTSCOPE_EVENT(test, iteration_begin, rtscope_u64(n, i));
			clock_gettime(CLOCK_MONOTONIC, &start);
			do
				clock_gettime(CLOCK_MONOTONIC, &now);
			while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < 200000);
			RTSCOPE_EVENT(test, iteration_end, rtscope_u64(n, i));
		}
	} else if (!strcmp(mode, "strings")) {
		char text[400];

		for (unsigned long i = 0; i < count; i++) {
			size_t length = i % sizeof(text);

			memset(text, 'a' + (int)(i % 26), length);
			text[length < sizeof(text) ? length : sizeof(text) - 1] = 0;
			RTSCOPE_EVENT(test, text, rtscope_str(text, text),
				      rtscope_seq_u8(bytes, (const uint8_t *)text, length % 50));
		}
	} else if (threads > 1) {
		emitted = count * in_threads(threads);
	} else {
		emit(NULL);
	}
	printf("emitted %lu\n", emitted);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

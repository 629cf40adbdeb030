/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The C half of rtscope-channels: events that may go to channels of an STM. All fields follow from the thread's number and the event's, so two
 * runs are to have the same events.
 */
#define _GNU_SOURCE
#if defined(__x86_64__)
#include "steps.h"
#endif

#include <rtscope/rtscope.h>

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 64

static unsigned int threads, events;
static pthread_barrier_t barrier;
static volatile unsigned int inner;
static unsigned char *page;

int rtscope_channels(unsigned int thread_count, unsigned int event_count, const char *what);

static void pair(unsigned int thread, unsigned int i)
{
	char text[300];
	unsigned short numbers[3] = { (unsigned short)i, (unsigned short)thread, 7 };

	memset(text, 'a' + (int)(i % 26), sizeof(text));
	text[i * 37 % 260] = 0;
	RTSCOPE_EVENT(test, many, rtscope_u32(thread, thread), rtscope_u64(number, i), rtscope_f64(half, i * 0.5),
		      rtscope_str(text, text), rtscope_x16(mask, i % 2), rtscope_s8(low, -(int)(i % 100)),
		      rtscope_seq_u16(numbers, numbers, i % 4));
	RTSCOPE_EVENT_LEVEL(RTSCOPE_DEBUG, test, tick, rtscope_u32(thread, thread), rtscope_u32(number, i));
}

static void *work(void *argument)
{
	unsigned int thread = (unsigned int)(size_t)argument;

	for (unsigned int i = 0; i < events; i++)
		pair(thread, i);
	/* All of them are there at the same time. */
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void run(void)
{
	pthread_t all[THREADS];

	pthread_barrier_init(&barrier, NULL, threads);
	for (unsigned int i = 0; i < threads; i++)
		pthread_create(&all[i], NULL, work, (void *)(size_t)i);
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	pthread_barrier_destroy(&barrier);
}

/* A page that cannot be read yet is read: in the middle of an event that copies it. */
static void on_fault(int signal)
{
	(void)signal;
	RTSCOPE_EVENT(test, inner, rtscope_u32(number, inner));
	inner++;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void on_timer(int signal)
{
	(void)signal;
	RTSCOPE_EVENT(test, inner, rtscope_u32(number, inner), rtscope_str(text, "of a handler"));
	inner++;
}

static void faults(void)
{
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return;
	signal(SIGSEGV, on_fault);
	for (unsigned int i = 0; i < events; i++) {
		memset(page, (int)i, 4096);
		mprotect(page, 4096, PROT_NONE);
		RTSCOPE_EVENT(test, outer, rtscope_u32(number, i), rtscope_seq_u8(bytes, page, 9));
	}
}

static void timer(void)
{
	struct itimerval every = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = on_timer;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (unsigned int i = 0; i < events; i++)
		pair(0, i);
	setitimer(ITIMER_REAL, &never, NULL);
}

#if defined(__x86_64__)
static volatile uint64_t first = 1, second = 2;

static __attribute__((noinline)) void to_channel(void)
{
	RTSCOPE_EVENT(test, channel, rtscope_u64(first, first), rtscope_u64(second, second));
}

static __attribute__((noinline)) void to_ring(void)
{
	RTSCOPE_EVENT(other, ring, rtscope_u64(first, first), rtscope_u64(second, second));
}

static unsigned long least_steps(void (*code)(void))
{
	unsigned long least = ~0UL, all, jumps;

	for (int i = 0; i < 20; i++) {
		code();
		steps_of(code, &all, &jumps);
		least = all < least ? all : least;
	}
	return least;
}
#endif

int rtscope_channels(unsigned int thread_count, unsigned int event_count, const char *what)
{
	unsigned int lives = strcmp(what, "fork") == 0 ? 2 : 1;

	threads = thread_count < THREADS ? thread_count : THREADS;
	events = event_count;
	if (!strcmp(what, "faults")) {
		faults();
		printf("emitted %u\n", events + inner);
	} else if (!strcmp(what, "timer")) {
		timer();
		printf("emitted %u\n", events * 2 + inner);
#if defined(__x86_64__)
	} else if (!strcmp(what, "steps")) {
		printf("channel %lu ring %lu\n", least_steps(to_channel), least_steps(to_ring));
#endif
	} else {
		run();
		if (lives == 2 && fork() == 0) {
			run();
			_exit(0);
		}
		while (wait(NULL) > 0)
			;
		printf("emitted %u\n", threads * events * 2 * lives);
	}
	fflush(stdout);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An instrumented program whose events are interrupted in the middle: their last bytes are on a page that a handler makes readable.
 *
 *   interrupted STACK EVENTS MILLISECONDS ROUNDS [deeper]
 *
 * STACK: same, or own, which is higher than the thread's. The handler emits 20 events each millisecond for MILLISECONDS, and EVENTS then.
 * With `deeper`, the last of them is interrupted, too, and that handler emits EVENTS as well. Each test:part has its number three
 * times, in three ways. Before each test:whole there is a record of another length, so that later laps do not begin their records where
 * this one does. Prints "emitted N".
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define STACK_BYTES (1UL << 20)

static unsigned char *pages[2];
static unsigned long emitted, parts, events, milliseconds, rounds;
static int is_deeper;

static void part(void)
{
	parts++;
	emitted++;
	RTSCOPE_EVENT(test, part, rtscope_u64(n, parts), rtscope_u64(inverse, ~parts), rtscope_u64(triple, parts * 3));
}

static __attribute__((noinline)) void whole(unsigned long page)
{
	emitted++;
	mprotect(pages[page] + PAGE, PAGE, PROT_NONE);
	RTSCOPE_EVENT(test, whole, rtscope_bytes(data, pages[page] + PAGE - 512, 1024));
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void handle(int number, siginfo_t *info, void *context)
{
	unsigned char *place = (unsigned char *)info->si_addr;
	int inner = place >= pages[1] && place < pages[1] + 2 * PAGE;
	double end = seconds() + (double)milliseconds * 1e-3;

	(void)number, (void)context;
	if (!inner && (place < pages[0] || place >= pages[0] + 2 * PAGE))
		_exit(77);
	while (!inner && milliseconds && seconds() < end) {
		struct timespec pause = { 0, 1000000 };

		for (int i = 0; i < 20; i++)
			part();
		nanosleep(&pause, NULL);
	}
	for (unsigned long i = 0; i < events; i++)
		part();
	if (!inner && is_deeper)
		whole(1);
	mprotect(pages[inner] + PAGE, PAGE, PROT_READ | PROT_WRITE);
}

static void *body(void *own)
{
	struct sigaction action;
	stack_t stack;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = handle;
	action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	sigaction(SIGSEGV, &action, NULL);
	memset(&stack, 0, sizeof(stack));
	stack.ss_sp = own;
	stack.ss_size = STACK_BYTES;
	if (own && sigaltstack(&stack, NULL))
		exit(1);
	for (unsigned long round = 0; round < rounds; round++) {
		for (unsigned long i = 0; i < round * 7; i++)
			part();
		emitted++;
		RTSCOPE_EVENT(test, other, rtscope_u32(round, (uint32_t)round));
		whole(0);
		for (int i = 0; i < 20; i++)
			part();
		usleep(30000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned char *stacks;
	pthread_attr_t attributes;
	pthread_t thread;

	if (argc < 5)
		return 2;
	events = strtoul(argv[2], NULL, 10);
	milliseconds = strtoul(argv[3], NULL, 10);
	rounds = strtoul(argv[4], NULL, 10);
	is_deeper = argc > 5;
	for (int i = 0; i < 2; i++) {
		pages[i] = (unsigned char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
						 -1, 0);
		memset(pages[i], 0xee, 2 * PAGE);
	}
	stacks = (unsigned char *)mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				       0);
	if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, stacks, STACK_BYTES) ||
	    pthread_create(&thread, &attributes, body, strcmp(argv[1], "own") ? NULL : stacks + STACK_BYTES) ||
	    pthread_join(thread, NULL))
		return 1;
	printf("emitted %lu\n", emitted);
	return 0;
}

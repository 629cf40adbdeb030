/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An instrumented program that looks into its own buffer, as no program should:
 *
 *   inside MODE COUNT
 *
 * Modes: flood (COUNT times: the memory of an event's field faults, and in that handler three times as many events come as there is
 * space for; prints "emitted N"), spoiled (writes into its buffer's header what no collector would; it needs none), vforks (COUNT children
 * of vfork() are killed at their thread's first event; prints how many threads are making buffers for ever), spaces (COUNT children that share the memory, as those of
 * vfork() do, are the first of a PID namespace and emit their thread's first event; to be run as the first of one: prints how many had its number), counterless (starts itself again, where reading the CPU's counter kills).
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned long count;

/* Emits this many events. */
static void emit(unsigned long events)
{
	for (unsigned long i = 0; i < events; i++)
		RTSCOPE_EVENT(test, count, rtscope_u64(n, i), rtscope_u64(thread, 0));
}

static unsigned char *faulting;
static unsigned long flooded;

static void flood_handler(int signal)
{
	struct timespec pause = { 0, 200000 };

	(void)signal;
	/* 24 bytes each, and a buffer of 64 KiB. */
	for (unsigned long i = 0; i < 8192; i++) {
		RTSCOPE_EVENT(test, flood, rtscope_u64(n, flooded), rtscope_u64(inverse, ~flooded));
		flooded++;
		/* The collector takes some. */
		if (i % 64 == 0)
			nanosleep(&pause, NULL);
	}
	mprotect(faulting, 4096, PROT_READ);
}

static int with_floods(void)
{
	struct sigaction action;

	faulting = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(&action, 0, sizeof(action));
	action.sa_handler = flood_handler;
	sigaction(SIGSEGV, &action, NULL);
	rtscope_thread_init();
	for (unsigned long i = 0; i < count; i++) {
		const struct rtu_ring *ring = rtscope__leader->find()->ring;
		struct timespec pause = { 0, 1000000 };

		/* The collector has taken what was there. */
		for (int k = 0; k < 30000 && RTSCOPE__LOAD(ring->tail) != RTSCOPE__LOAD(ring->head); k++)
			nanosleep(&pause, NULL);
		emit(1);
		mprotect(faulting, 4096, PROT_NONE);
		RTSCOPE_EVENT(test, faults, rtscope_bytes(zeros, faulting, 500));
	}
	printf("emitted %lu\n", 2 * count + flooded);
	return 0;
}

/*
 * Any program of this user can write into the buffer's header. Whatever it is, nothing is written to where no buffer is. Prints how many
 * bytes behind it were not zero before, which somebody else has there.
 */
static int spoiled(void)
{
	char text[900];
	struct rtscope__thread *thread;
	struct rtu_ring *ring;
	uint32_t *words;
	unsigned long others = 0;
	unsigned char *end;

	if (rtscope_thread_init())
		return 1;
	thread = rtscope__leader->find();
	ring = thread->ring;
	end = thread->data + ring->ring_bytes;
	for (int i = 0; i < RTU_RECORD_BYTES_MAX; i++)
		others += end[i] != 0;
	/* As if a collector had enabled them. */
	words = (uint32_t *)(void *)((char *)rtscope__leader->provider + rtscope__leader->provider->enabled_offset);
	for (uint32_t i = 0; i < rtscope__leader->provider->events; i++)
		words[i] = 1;
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = 0;
	for (unsigned long i = 1; i <= count && !others; i++) {
		uint64_t values[] = { 8, i * 8, i * 8 + 1, ring->ring_bytes - i * 8, 0 - i * 8, ~i };

		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
			/* The limit is far away then. */
			ring->tail = 1ULL << 50;
			ring->head = 1ULL << 40;
			emit(1);
			ring->head = values[k];
			RTSCOPE_EVENT(test, text, rtscope_strn(text, text, 4000), rtscope_bytes(bytes, text, 800));
			ring->lost = ring->tail = values[k];
			emit(2);
		}
	}
	if (!others) {
		ring->ring_bytes = ring->sub_buffers = 0;
		if (!fork()) {
			emit(1);
			_exit(0);
		}
	}
	printf("others %lu\n", others);
	return 0;
}

static volatile pid_t victim;

static void *has_child(void *unused)
{
	int status;
	pid_t child = vfork();

	(void)unused;
	if (!child) {
		victim = getpid();
		emit(1);
		pause();
		_exit(0);
	}
	waitpid(child, &status, 0);
	return NULL;
}

static void *kills(void *after_ns)
{
	struct timespec pause = { 0, *(long *)after_ns };

	while (!victim)
		;
	nanosleep(&pause, NULL);
	kill(victim, SIGKILL);
	return NULL;
}

static int with_vforks(void)
{
	for (unsigned long i = 0; i < count; i++) {
		long after_ns = (long)(i % 100) * 1000;
		pthread_t parent, killer;

		victim = 0;
		pthread_create(&parent, NULL, has_child, NULL);
		pthread_create(&killer, NULL, kills, &after_ns);
		pthread_join(parent, NULL);
		pthread_join(killer, NULL);
	}
	emit(1);
	printf("at work %u\n", rtscope__leader->workers);
	return 0;
}

static volatile unsigned long alike;

static int in_space(void *number)
{
	alike += getpid() == *(pid_t *)number;
	emit(1);
	_exit(0);
}

static void *has_child_in_space(void *unused)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t own = getpid();
	int status, flags = CLONE_VM | CLONE_VFORK | CLONE_NEWPID | SIGCHLD;
	pid_t child = clone(in_space, stack + sizeof(stack), flags, &own);

	(void)unused;
	if (child > 0)
		waitpid(child, &status, 0);
	return NULL;
}

static int with_spaces(void)
{
	for (unsigned long i = 0; i < count; i++) {
		pthread_t parent;

		pthread_create(&parent, NULL, has_child_in_space, NULL);
		pthread_join(parent, NULL);
	}
	emit(1);
	printf("alike %lu\n", alike);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
	if (!strcmp(mode, "flood"))
		return with_floods();
	if (!strcmp(mode, "spoiled"))
		return spoiled();
	if (!strcmp(mode, "counterless")) {
		prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
		execl("/proc/self/exe", "inside", "alive", NULL);
	}
	if (!strcmp(mode, "alive")) {
		emit(1);
		/* No time is needed for that. */
		return write(1, "alive\n", 6) != 6;
	}
	if (!strcmp(mode, "vforks"))
		return with_vforks();
	if (!strcmp(mode, "spaces"))
		return with_spaces();
	return 2;
}

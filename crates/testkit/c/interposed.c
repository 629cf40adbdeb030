/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A library that stands in the C library's place (LD_PRELOAD) and has events in its functions; or, with -DPROGRAM, a program that calls them:
 *
 *   interposed COUNT
 *   interposed COUNT forks   COUNT children, each with an event; prints "waited N": how many of them slept again and again
 *
 * Each prints "emitted N" at its end: how many events were asked for, which is when their arguments are evaluated. The library's functions do
 * what they are for by loops that the compiler must not make calls of (-fno-builtin, -fno-tree-loop-distribute-patterns).
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t emitted;

#define EMIT(name)                                                                                             \
	RTSCOPE_EVENT(test, name, rtscope_u64(number, __atomic_add_fetch(&emitted, 1, __ATOMIC_RELAXED)),      \
		      rtscope_u8(small, 1), rtscope_str(text, "some text"), rtscope_seq_u8(bytes, numbers, 5), \
		      rtscope_array_u32(numbers, (const uint32_t *)numbers, 4))

static const uint8_t numbers[1024] __attribute__((aligned(8))) = { 1, 2, 3, 4, 5 };

#if defined(PROGRAM)
/* A child that waits for work of its own sleeps hundreds of times, and one that waits for another's a few times. */
static int fork_often(unsigned long count)
{
	unsigned long waited = 0;

	for (unsigned long i = 0; i < count; i++) {
		int status = 0;
		pid_t child = fork();

		if (!child) {
			struct rusage used;

			EMIT(program);
			getrusage(RUSAGE_SELF, &used);
			_exit(used.ru_nvcsw > 50);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			return 1;
		waited += status != 0;
	}
	printf("waited %lu\n", waited);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10;
	volatile size_t bytes = sizeof(numbers);
	static char copy[sizeof(numbers)];
	struct timespec now;

	if (argc > 2)
		return fork_often(count);
	for (unsigned long i = 0; i < count; i++) {
		EMIT(program);
		RTSCOPE_EVENT(test, large, rtscope_u64(number, __atomic_add_fetch(&emitted, 1, __ATOMIC_RELAXED)),
			      rtscope_seq_u8(bytes, numbers, bytes), rtscope_strn(text, (const char *)numbers, bytes));
		clock_gettime(CLOCK_MONOTONIC, &now);
		memcpy(copy, numbers, bytes);
		memset(copy, 'x', bytes - 1);
		if (strlen(copy) != bytes - 1 || !memchr(copy, 0, bytes))
			return 1;
	}
	printf("emitted %lu\n", (unsigned long)emitted);
	return 0;
}
#else
int clock_gettime(clockid_t clock, struct timespec *time)
{
	EMIT(clock);
	return (int)syscall(SYS_clock_gettime, clock, time);
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
	EMIT(copy);
	for (size_t i = 0; i < bytes; i++)
		((char *)to)[i] = ((const char *)from)[i];
	return to;
}

void *memset(void *to, int value, size_t bytes)
{
	EMIT(set);
	for (size_t i = 0; i < bytes; i++)
		((char *)to)[i] = (char)value;
	return to;
}

size_t strlen(const char *text)
{
	size_t length = 0;

	EMIT(length);
	while (text[length])
		length++;
	return length;
}

void *memchr(const void *memory, int value, size_t bytes)
{
	EMIT(find);
	for (size_t i = 0; i < bytes; i++) {
		if (((const unsigned char *)memory)[i] == (unsigned char)value)
			return (void *)((uintptr_t)memory + i);
	}
	return NULL;
}

__attribute__((destructor)) static void end(void)
{
	char text[64];
	int bytes = snprintf(text, sizeof(text), "emitted %lu\n", (unsigned long)emitted);

	if (write(1, text, (size_t)bytes) != bytes)
		_exit(1);
}
#endif

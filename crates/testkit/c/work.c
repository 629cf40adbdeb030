/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Work that passes through three threads, and what the program itself knows of it:
 *
 *   work COUNT
 *
 * One thread begins each piece, a second one takes it over, and a third one ends it. The second one sleeps for 8 ms over each tenth. Prints the three
 * threads ("threads FIRST SECOND THIRD"), and of each piece its number and four times, before and after its begin and its end.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096

struct queue {
	pthread_mutex_t mutex;
	pthread_cond_t filled;
	unsigned long in, out, numbers[MOST];
};

static struct queue first = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, { 0 } };
static struct queue second = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, { 0 } };
static unsigned long count;
static unsigned long long times[MOST][4];
static long tids[3];

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (unsigned long long)time.tv_sec * 1000000000ULL + (unsigned long long)time.tv_nsec;
}

static void put(struct queue *queue, unsigned long number)
{
	pthread_mutex_lock(&queue->mutex);
	queue->numbers[queue->in++] = number;
	pthread_cond_signal(&queue->filled);
	pthread_mutex_unlock(&queue->mutex);
}

static unsigned long get(struct queue *queue)
{
	unsigned long number;

	pthread_mutex_lock(&queue->mutex);
	while (queue->in == queue->out)
		pthread_cond_wait(&queue->filled, &queue->mutex);
	number = queue->numbers[queue->out++];
	pthread_mutex_unlock(&queue->mutex);
	return number;
}

static void *pass_on(void *nothing)
{
	const struct timespec nap = { 0, 8000000 };

	tids[1] = syscall(SYS_gettid);
	for (unsigned long i = 0; i < count; i++) {
		unsigned long number = get(&first);

		RTSCOPE_WORK_STEP(number);
		if (number % 10 == 9)
			nanosleep(&nap, NULL);
		put(&second, number);
	}
	return nothing;
}

static void *end(void *nothing)
{
	tids[2] = syscall(SYS_gettid);
	for (unsigned long i = 0; i < count; i++) {
		unsigned long number = get(&second);

		times[number][2] = now();
		RTSCOPE_WORK_END(number);
		times[number][3] = now();
	}
	return nothing;
}

int main(int argc, char **argv)
{
	const struct timespec pause = { 0, 10000000 };
	pthread_t threads[2];

	count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
	if (count > MOST || pthread_create(&threads[0], NULL, pass_on, NULL) ||
	    pthread_create(&threads[1], NULL, end, NULL))
		return 1;
	tids[0] = syscall(SYS_gettid);
	for (unsigned long number = 0; number < count; number++) {
		times[number][0] = now();
		RTSCOPE_WORK_BEGIN(number);
		times[number][1] = now();
		put(&first, number);
		nanosleep(&pause, NULL);
	}
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	printf("threads %ld %ld %ld\n", tids[0], tids[1], tids[2]);
	for (unsigned long number = 0; number < count; number++)
		printf("%lu %llu %llu %llu %llu\n", number, times[number][0], times[number][1], times[number][2],
		       times[number][3]);
	return 0;
}

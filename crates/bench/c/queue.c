/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For `queue`: 64-bit elements from one CPU to another through include/rtscope/queue.h. Arguments: CPU of the producer, CPU of the
 * consumer, elements, capacity. Prints nanoseconds an element.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <rtscope/queue.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static struct rtscope_queue producer, consumer;
static uint64_t count;
static int producer_cpu;

/* As crates/bench/src/queue.rs does. */
static inline void relax(void)
{
	for (int i = 0; i < 32; i++) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("isb");
#endif
	}
}

static void go_to(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		exit(3);
}

static void *produce(void *start)
{
	go_to(producer_cpu);
	/* ORDER: acquire; pairs with the release in main(). */
	while (!__atomic_load_n((int *)start, __ATOMIC_ACQUIRE))
		;
	for (uint64_t number = 0; number < count; number++) {
		uint64_t *place;

		while (!(place = (uint64_t *)rtscope_queue_reserve(&producer)))
			relax();
		*place = number;
		rtscope_queue_commit(&producer);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int start = 0, fd;
	pthread_t thread;
	int64_t begin;

	if (argc != 5)
		return 2;
	producer_cpu = atoi(argv[1]);
	count = strtoull(argv[3], NULL, 10);
	fd = rtscope_queue_create(&producer, strtoull(argv[4], NULL, 10), sizeof(uint64_t), RTSCOPE_QUEUE_PRODUCER);
	if (fd < 0 || rtscope_queue_open(&consumer, fd, sizeof(uint64_t), RTSCOPE_QUEUE_CONSUMER) ||
	    pthread_create(&thread, NULL, produce, &start))
		return 1;
	go_to(atoi(argv[2]));
	begin = rtscope_queue__now();
	/* ORDER: release; pairs with the acquire in produce(): `begin` was read before. */
	__atomic_store_n(&start, 1, __ATOMIC_RELEASE);
	for (uint64_t number = 0; number < count; number++) {
		const uint64_t *found;

		while (!(found = (const uint64_t *)rtscope_queue_front(&consumer)))
			relax();
		if (*found != number)
			return 4;
		rtscope_queue_release(&consumer);
	}
	printf("%.4f\n", (double)(rtscope_queue__now() - begin) / (double)count);
	return pthread_join(thread, NULL);
}

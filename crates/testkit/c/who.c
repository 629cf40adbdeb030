/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Two threads with names of their own, which move from CPU to CPU. Each event says what the kernel says of them. Prints "emitted N". */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static long count;

static void *emit(void *name)
{
	cpu_set_t allowed, one;

	pthread_setname_np(pthread_self(), name);
	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (long i = 0; i < count; i++) {
		for (int at = 0, cpu = (int)(i % CPU_SETSIZE); at < CPU_SETSIZE; at++, cpu = (cpu + 1) % CPU_SETSIZE) {
			if (!CPU_ISSET(cpu, &allowed))
				continue;
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			sched_setaffinity(0, sizeof(one), &one);
			break;
		}
		RTSCOPE_EVENT(test, who, rtscope_s32(pid, getpid()), rtscope_s64(tid, syscall(SYS_gettid)),
			      rtscope_str(name, name), rtscope_s32(on, sched_getcpu()));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	count = argc > 1 ? atol(argv[1]) : 0;
	pthread_create(&threads[0], NULL, emit, "left hand");
	pthread_create(&threads[1], NULL, emit, "right");
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	printf("emitted %ld\n", 2 * count);
	return 0;
}

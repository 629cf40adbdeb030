/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A thread that makes system calls which take a while, each for a reason that is known: it waits for another thread's byte, for one to make
 * room, for a lock on a file, or has the kernel work. It reads the clock before and after each, and prints at the end, in ns of
 * CLOCK_MONOTONIC: BEFORE AFTER CALL FIRST_ARGUMENT RESULT, and on the first line the number of the thread that others wait for. A
 * tracker's judge.
 *
 * calls CPU ROUNDS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 10000
#define RANDOM_BYTES (1 << 20)

enum kind { READ, WRITE, LOCK, RUN, FAIL, KINDS };

struct call {
	long long before, after;
	const char *name;
	long argument, result;
};

static struct call calls[ROUNDS_MAX];
static int data[2], locks[2], rounds;
static sem_t asked, ready;
static volatile int helper_tid, delay_us, wanted;
static char buffer[1 << 16], randoms[RANDOM_BYTES];

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Who lets the other go on, after a while. */
static void *help(void *unused)
{
	prctl(PR_SET_NAME, "helper");
	helper_tid = gettid();
	for (;;) {
		sem_wait(&asked);
		if (wanted == KINDS)
			return unused;
		if (wanted == LOCK)
			flock(locks[0], LOCK_EX);
		sem_post(&ready);
		usleep(delay_us);
		if (wanted == READ && write(data[1], "x", 1) != 1)
			exit(1);
		/* A writer goes on when a whole page is free. */
		if (wanted == WRITE && read(data[0], buffer, sizeof(buffer)) < 4096)
			exit(1);
		if (wanted == LOCK)
			flock(locks[0], LOCK_UN);
	}
}

static void ask(enum kind kind, int us)
{
	wanted = kind;
	delay_us = us;
	sem_post(&asked);
	if (kind != KINDS)
		sem_wait(&ready);
}

static void make(struct call *call, enum kind kind, int us)
{
	char byte;
	int size;

	switch (kind) {
	case READ:
		ask(kind, us);
		call->before = now_ns();
		call->result = read(data[0], &byte, 1);
		call->after = now_ns();
		call->name = "read";
		call->argument = data[0];
		break;
	case WRITE:
		/* Full, so that it has to wait. */
		size = fcntl(data[1], F_GETPIPE_SZ);
		for (int left = size; left > 0; left -= 4096) {
			if (write(data[1], buffer, 4096) != 4096)
				exit(1);
		}
		ask(kind, us);
		call->before = now_ns();
		call->result = write(data[1], buffer, 4096);
		call->after = now_ns();
		call->name = "write";
		call->argument = data[1];
		/* Empty again. */
		fcntl(data[0], F_SETFL, O_NONBLOCK);
		while (read(data[0], buffer, sizeof(buffer)) > 0)
			;
		fcntl(data[0], F_SETFL, 0);
		break;
	case LOCK:
		ask(kind, us);
		call->before = now_ns();
		call->result = flock(locks[1], LOCK_EX);
		call->after = now_ns();
		call->name = "flock";
		call->argument = locks[1];
		flock(locks[1], LOCK_UN);
		break;
	case RUN:
		call->before = now_ns();
		call->result = getrandom(randoms, sizeof(randoms), 0);
		call->after = now_ns();
		call->name = "getrandom";
		call->argument = (long)randoms;
		break;
	default:
		/* No call of its own is long: nothing is to be found. */
		call->before = now_ns();
		call->result = open("/nowhere/at all", O_RDONLY) < 0 ? -2 : 0;
		call->after = now_ns();
		call->name = "openat";
		call->argument = AT_FDCWD;
		break;
	}
}

int main(int argc, char **argv)
{
	char path[64];
	unsigned seed = 7;
	pthread_t thread;
	cpu_set_t cpus;

	if (argc < 3 || (rounds = atoi(argv[2])) > ROUNDS_MAX)
		return 2;
	/* A file in memory, opened twice: a lock is one of an open file. */
	locks[0] = memfd_create("calls", 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", locks[0]);
	locks[1] = open(path, O_RDWR);
	memset(randoms, 1, sizeof(randoms));
	if (locks[0] < 0 || locks[1] < 0 || pipe(data) || sem_init(&asked, 0, 0) || sem_init(&ready, 0, 0))
		return 1;
	if (pthread_create(&thread, NULL, help, NULL))
		return 1;
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return 1;
	prctl(PR_SET_NAME, "caller");
	/* Under another name for a while: this is two short calls, and not a long one. */
	prctl(PR_SET_NAME, "somebody else");
	usleep(20000);
	prctl(PR_SET_NAME, "caller");
	for (int round = 0; round < rounds; round++)
		make(&calls[round], round % KINDS, 500 + rand_r(&seed) % 4000);
	ask(KINDS, 0);
	pthread_join(thread, NULL);
	printf("%d\n", helper_tid);
	for (int round = 0; round < rounds; round++)
		printf("%lld %lld %s %ld %ld\n", calls[round].before, calls[round].after, calls[round].name,
		       calls[round].argument, calls[round].result);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A thread that waits for a lock of the kernel which another one holds for a time that this program chooses: the other writes into a pipe from a
 * page that is not there yet (userfaultfd), with the pipe's mutex held, until a third thread brings the page. It prints at the end, in ns
 * of CLOCK_MONOTONIC: BEFORE RELEASED AFTER, where RELEASED is when the page was brought, and on the first line the number of the
 * thread that held the lock. A tracker's judge.
 *
 * locks CPU ROUNDS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 10000
#define PAGE 4096

static struct {
	long long before, released, after;
} waits[ROUNDS_MAX];
static int faults, data[2], rounds;
static char *page;
static sem_t hold, held, done;
static volatile int holder_tid, delay_us;
static volatile long long released;
static char buffer[1 << 16];

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *hold_lock(void *unused)
{
	prctl(PR_SET_NAME, "holder");
	holder_tid = gettid();
	for (int round = 0; round < rounds; round++) {
		sem_wait(&hold);
		if (write(data[1], page, PAGE) != PAGE)
			exit(1);
		sem_post(&done);
	}
	return unused;
}

/* Brings the page, after a while. */
static void *bring_page(void *unused)
{
	static char content[PAGE];

	prctl(PR_SET_NAME, "pager");
	for (int round = 0; round < rounds; round++) {
		struct uffdio_copy copy = { .dst = (unsigned long)page, .src = (unsigned long)content, .len = PAGE };
		struct uffd_msg message;

		if (read(faults, &message, sizeof(message)) != sizeof(message))
			exit(1);
		sem_post(&held);
		usleep(delay_us);
		released = now_ns();
		if (ioctl(faults, UFFDIO_COPY, &copy))
			exit(1);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register all = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	pthread_t holder, pager;
	unsigned seed = 7;
	cpu_set_t cpus;

	if (argc < 3 || (rounds = atoi(argv[2])) > ROUNDS_MAX)
		return 2;
	faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (faults < 0)
		return 3;
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	all.range.start = (unsigned long)page;
	all.range.len = PAGE;
	if (page == MAP_FAILED || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &all))
		return 3;
	if (pipe(data) || sem_init(&hold, 0, 0) || sem_init(&held, 0, 0) || sem_init(&done, 0, 0))
		return 1;
	fcntl(data[0], F_SETFL, O_NONBLOCK);
	if (pthread_create(&holder, NULL, hold_lock, NULL) || pthread_create(&pager, NULL, bring_page, NULL))
		return 1;
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return 1;
	prctl(PR_SET_NAME, "waiter");
	for (int round = 0; round < rounds; round++) {
		delay_us = 500 + rand_r(&seed) % 4000;
		sem_post(&hold);
		/* The page is missing, so the lock is held. */
		sem_wait(&held);
		waits[round].before = now_ns();
		if (write(data[1], "x", 1) != 1)
			return 1;
		waits[round].after = now_ns();
		sem_wait(&done);
		waits[round].released = released;
		/* Missing again, and the pipe empty. */
		madvise(page, PAGE, MADV_DONTNEED);
		while (read(data[0], buffer, sizeof(buffer)) > 0)
			;
	}
	pthread_join(holder, NULL);
	pthread_join(pager, NULL);
	printf("%d\n", holder_tid);
	for (int round = 0; round < rounds; round++)
		printf("%lld %lld %lld\n", waits[round].before, waits[round].released, waits[round].after);
	return 0;
}

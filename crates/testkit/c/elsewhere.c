/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that is no more where, or who, it was when it began.
 *
 *   elsewhere ends PID     emits an event, goes into the mount namespace of PID, and ends
 *   elsewhere forks PID    the same, and a child there emits an event; prints "child N", 0 where that has ended by itself
 *   elsewhere serves PID   the same of a child that has become another user before, who has groups
 *   elsewhere thread PID   a thread goes there alone, and emits an event; prints "emitted N"
 *   elsewhere user UID     a child, which has no files while nobody records, has a thread that becomes this user by itself; says "ready", waits for a line, emits an event by
 *                          that thread, then 10 by its first one, and waits for another line; prints "child N", 0 where it has ended by itself
 *   elsewhere limited N    N threads begin, while another one lowers and raises the limit for sizes of files
 *   elsewhere away N       N threads emit 3 events each; before each of them a thread that has a root of its own emits one
 *   elsewhere starved N    the same with a thread that may have no memory while it emits
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *word;
static volatile int is_over;

static void go(void)
{
	char path[64];
	int file;

	snprintf(path, sizeof(path), "/proc/%s/ns/mnt", word);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (unshare(CLONE_FS) || setns(file, CLONE_NEWNS)) {
		perror("setns");
		exit(1);
	}
	close(file);
}

static void *emits_there(void *emitted)
{
	go();
	RTSCOPE_EVENT(test, there, rtscope_u32(i, 1));
	*(int *)emitted = 1;
	return NULL;
}

/* Prints how a child has ended. */
static int ended(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	printf("child %d\n", status);
	return 0;
}

static int child_there(int is_user)
{
	const gid_t groups[2] = { 4711, 4712 };
	pid_t child;

	go();
	if (is_user && (setgroups(2, groups) || setgid(4711) || setuid(4711)))
		return 1;
	child = fork();
	if (!child) {
		RTSCOPE_EVENT(test, there, rtscope_u32(i, 1));
		_exit(0);
	}
	return ended(child);
}

static int thread_there(void)
{
	pthread_t thread;
	int emitted = 0;

	pthread_create(&thread, NULL, emits_there, &emitted);
	pthread_join(thread, NULL);
	printf("emitted %d\n", emitted);
	return 0;
}

static void *emits_as_user(void *unused)
{
	char byte;

	/* Not by the C library, which would change all threads. */
	if (syscall(SYS_setresuid, atoi(word), atoi(word), atoi(word)))
		exit(1);
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		exit(1);
	RTSCOPE_EVENT(test, as_user, rtscope_u32(i, 1));
	return unused;
}

static int worker(void)
{
	pid_t child = fork();
	pthread_t thread;
	char byte;

	if (child)
		return ended(child);
	pthread_create(&thread, NULL, emits_as_user, NULL);
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < 10; i++)
		RTSCOPE_EVENT(test, own, rtscope_u32(i, i));
	puts("emitted");
	fflush(stdout);
	_exit(read(0, &byte, 1) != 1);
}

static void *emits(void *unused)
{
	RTSCOPE_EVENT(test, own, rtscope_u32(i, 1));
	return unused;
}

static void *limits(void *unused)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	while (!is_over) {
		struct rlimit low = { 8192, limit.rlim_max };

		setrlimit(RLIMIT_FSIZE, &low);
		for (int i = rand() % 300; i; i--)
			sched_yield();
		setrlimit(RLIMIT_FSIZE, &limit);
		for (int i = rand() % 300; i; i--)
			sched_yield();
	}
	setrlimit(RLIMIT_FSIZE, &limit);
	return unused;
}

static int limited(int threads)
{
	pthread_t limiter, thread;

	pthread_create(&limiter, NULL, limits, NULL);
	for (int i = 0; i < threads; i++) {
		pthread_create(&thread, NULL, emits, NULL);
		pthread_join(thread, NULL);
	}
	is_over = 1;
	pthread_join(limiter, NULL);
	return 0;
}

static pthread_barrier_t turn;

/* A thread for which nothing can be made, and the others can have all. */
static void *lacks(void *is_starved)
{
	struct rlimit limit;

	getrlimit(RLIMIT_DATA, &limit);
	/* Where there is no /dev/shm. */
	if (!is_starved && (unshare(CLONE_FS) || chroot("/sys")))
		exit(1);
	for (int i = 0; i < atoi(word); i++) {
		struct rlimit low = { 4096, limit.rlim_max };

		pthread_barrier_wait(&turn);
		if (is_starved)
			setrlimit(RLIMIT_DATA, &low);
		RTSCOPE_EVENT(test, lacks, rtscope_s32(i, i));
		setrlimit(RLIMIT_DATA, &limit);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void *emits_three(void *unused)
{
	for (uint32_t i = 0; i < 3; i++)
		RTSCOPE_EVENT(test, own, rtscope_u32(i, i));
	return unused;
}

static int beside_one_that_lacks(int is_starved)
{
	pthread_t lacking, thread;

	pthread_barrier_init(&turn, NULL, 2);
	pthread_create(&lacking, NULL, lacks, is_starved ? &turn : NULL);
	for (int i = 0; i < atoi(word); i++) {
		pthread_barrier_wait(&turn);
		pthread_barrier_wait(&turn);
		pthread_create(&thread, NULL, emits_three, NULL);
		pthread_join(thread, NULL);
	}
	pthread_join(lacking, NULL);
	return 0;
}

int main(int count, char **words)
{
	if (count < 3)
		return 2;
	word = words[2];
	if (!strcmp(words[1], "user"))
		return worker();
	if (!strcmp(words[1], "limited"))
		return limited(atoi(word));
	RTSCOPE_EVENT(test, here, rtscope_u32(i, 1));
	if (!strcmp(words[1], "away") || !strcmp(words[1], "starved"))
		return beside_one_that_lacks(!strcmp(words[1], "starved"));
	if (!strcmp(words[1], "forks") || !strcmp(words[1], "serves"))
		return child_there(!strcmp(words[1], "serves"));
	if (!strcmp(words[1], "thread"))
		return thread_there();
	go();
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a program has of its own, and its recording must not take: descriptors, mappings, its limit of locked memory. Prints "wrong N".
 *
 *   own closing ROUNDS   threads begin, while the main thread closes the descriptors that it does not know, and opens files and pipes of its own
 *   own refused THREADS  one thread after the other, none of which can have a buffer; prints "mappings N" that there are more
 *   own locked THREADS   with all memory locked, and a limit for what the program itself takes
 *   own masked EVENTS    a mask that takes everything from the owner of new files, and a child that emits
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS 5
#define THREADS 8
#define FILES 8
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static pthread_barrier_t barrier;

static void *emits(void *unused)
{
	pthread_barrier_wait(&barrier);
	for (uint32_t i = 0; i < EVENTS; i++)
		RTSCOPE_EVENT(test, own, rtscope_u32(i, i));
	return unused;
}

/* Whether a file of ours is what it was. */
static int is_whole(const char *path, int file, int number)
{
	char text[64], back[64] = { 0 };
	int bytes = snprintf(text, sizeof(text), "contents of file %d\n", number);
	int again = open(path, O_RDONLY);
	struct stat status;
	int is = again >= 0 && !fstat(again, &status) && status.st_size == bytes &&
		 read(again, back, sizeof(back)) == bytes && !memcmp(text, back, (size_t)bytes) &&
		 !fstat(file, &status) && status.st_size == bytes;

	close(again);
	return is;
}

/* Threads begin, and the main thread takes each number that they might have. What is done until they have ended. */
static int closing_once(void)
{
	pthread_t threads[THREADS];
	char paths[FILES][32], text[64];
	int files[FILES], pipes[2], wrong = 0;

	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, emits, NULL);
	pthread_barrier_wait(&barrier);
	usleep((useconds_t)(rand() % 300));
	syscall(SYS_close_range, 3, ~0U, 0);
	/* First: nothing is to be read from it. */
	wrong += pipe(pipes) || write(pipes[1], "12345", 5) != 5 || fcntl(pipes[0], F_SETFL, O_NONBLOCK);
	for (int i = 0; i < FILES; i++) {
		snprintf(paths[i], sizeof(paths[i]), "own-file-%d", i);
		unlink(paths[i]);
		files[i] = open(paths[i], O_RDWR | O_CREAT | O_EXCL, 0600);
		int bytes = snprintf(text, sizeof(text), "contents of file %d\n", i);
		wrong += files[i] < 0 || write(files[i], text, (size_t)bytes) != bytes;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < FILES; i++) {
		wrong += !is_whole(paths[i], files[i], i);
		wrong += close(files[i]) != 0;
	}
	wrong += read(pipes[0], text, sizeof(text)) != 5 || memcmp(text, "12345", 5) != 0;
	wrong += close(pipes[0]) || close(pipes[1]);
	pthread_barrier_destroy(&barrier);
	return wrong;
}

static int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int lines = 0, character;

	while (maps && (character = getc(maps)) != EOF)
		lines += character == '\n';
	if (maps)
		fclose(maps);
	return lines;
}

static void *emits_once(void *unused)
{
	RTSCOPE_EVENT(test, own, rtscope_u32(i, 0));
	return unused;
}

static void one_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, emits_once, NULL);
	pthread_join(thread, NULL);
}

static int refused(int threads)
{
	struct rlimit limit = { 65536, 65536 };
	int before;

	/* Files of the process have less, and no thread's buffer has. */
	setrlimit(RLIMIT_FSIZE, &limit);
	signal(SIGXFSZ, SIG_DFL);
	for (int i = 0; i < 10; i++)
		one_thread();
	before = mappings();
	for (int i = 0; i < threads; i++)
		one_thread();
	printf("mappings %d\n", mappings() - before);
	return 0;
}

static void *stays(void *unused)
{
	RTSCOPE_EVENT(test, own, rtscope_u32(i, 0));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return unused;
}

static long locked_bytes(void)
{
	char line[128];
	FILE *status = fopen("/proc/self/status", "r");
	long kib = 0;

	while (status && fgets(line, sizeof(line), status))
		sscanf(line, "VmLck: %ld", &kib);
	if (status)
		fclose(status);
	return kib * 1024;
}

static int locked(int threads)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[2];
	const size_t own = 256 << 10;
	struct rlimit limit;
	pthread_attr_t small;
	pthread_t thread;
	void *memory;

	/* Else no limit applies. */
	if (syscall(SYS_capget, &header, sets))
		return 1;
	sets[0].effective &= ~(1u << CAP_IPC_LOCK);
	sets[0].permitted &= ~(1u << CAP_IPC_LOCK);
	if (syscall(SYS_capset, &header, sets) || mlockall(MCL_CURRENT | MCL_FUTURE))
		return printf("no right to lock memory\n"), 77;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	pthread_barrier_init(&barrier, NULL, (unsigned int)threads + 1);
	/* What the threads themselves take: stacks, and a page of ours. There is no room for a buffer (1 MiB), not even for a moment. */
	limit.rlim_cur = limit.rlim_max = (rlim_t)locked_bytes() + (rlim_t)threads * (96 << 10) + own;
	setrlimit(RLIMIT_MEMLOCK, &limit);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread, &small, stays, NULL))
			return printf("a thread cannot be made\n"), 1;
	pthread_barrier_wait(&barrier);
	memory = mmap(NULL, own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_barrier_wait(&barrier);
	return memory == MAP_FAILED;
}

static int masked(uint32_t events)
{
	int status = 0;

	umask(0777);
	if (!fork()) {
		for (uint32_t i = 0; i < events; i++)
			RTSCOPE_EVENT(test, own, rtscope_u32(i, i));
		_exit(0);
	}
	return wait(&status) < 0 || status != 0;
}

int main(int count, char **words)
{
	int number = count > 2 ? atoi(words[2]) : 0, wrong = 0;

	if (count < 3)
		return 2;
	if (!strcmp(words[1], "closing"))
		for (int round = 0; round < number; round++)
			wrong += closing_once();
	else if (!strcmp(words[1], "refused"))
		wrong = refused(number);
	else if (!strcmp(words[1], "locked"))
		wrong = locked(number);
	else if (!strcmp(words[1], "masked"))
		wrong = masked((uint32_t)number);
	printf("wrong %d\n", wrong);
	return wrong == 77 ? 77 : 0;
}

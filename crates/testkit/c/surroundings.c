/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Programs whose surroundings change: other mounts, other users, standard streams that are closed. Prints how many events it has emitted.
 *
 *   count N         N events
 *   mount COMMAND   100 events, a new /dev/shm in which COMMAND is run, an event of a new thread, 100 events
 *   sandbox         10 events; a child that gets a user namespace and emits 100, and its child, which emits 100
 *   streams         200 threads of 10 events each, while another writes to standard output and error, which are closed
 *   limited         5 events that are too large and 10 others, a limit for private memory, and 3 children of 7 events, each with a child of 3
 *   negative        an event with a count that is negative, of memory that ends there
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void emit(uint32_t count)
{
	for (uint32_t n = 0; n < count; n++)
		RTSCOPE_EVENT(test, surroundings, rtscope_u32(n, n));
}

static void *emit_in_thread(void *count)
{
	emit((uint32_t)(uintptr_t)count);
	return NULL;
}

static void thread(uint32_t count)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, emit_in_thread, (void *)(uintptr_t)count) || pthread_join(thread, NULL))
		abort();
}

static int in_new_mount(const char *command)
{
	emit(100);
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") || chmod("/dev/shm", 01777) || system(command))
		return 1;
	thread(1);
	emit(100);
	printf("emitted 201\n");
	return 0;
}

static int in_sandbox(void)
{
	pid_t child;
	int status;

	emit(10);
	child = fork();
	if (!child) {
		if (unshare(CLONE_NEWUSER))
			_exit(1);
		emit(100);
		child = fork();
		if (!child) {
			emit(100);
			_exit(0);
		}
		_exit(waitpid(child, &status, 0) != child || status);
	}
	if (waitpid(child, &status, 0) != child || status)
		return 1;
	printf("emitted 210\n");
	return 0;
}

static int is_over;

static void *write_to_streams(void *unused)
{
	char text[600];

	memset(text, 'x', sizeof(text));
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		for (int file = 1; file < 3; file++)
			if (write(file, text, sizeof(text)) == 0)
				return unused;
	return NULL;
}

static int with_closed_streams(void)
{
	int out = dup2(1, 100);
	pthread_t writer;

	close(1);
	close(2);
	if (pthread_create(&writer, NULL, write_to_streams, NULL))
		return 1;
	for (int i = 0; i < 200; i++)
		thread(10);
	__atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
	pthread_join(writer, NULL);
	dprintf(out, "emitted 2000\n");
	return 0;
}

static int with_negative_count(void)
{
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t got = read(-1, memory, 1);

	if (memory == MAP_FAILED || munmap(memory + 4096, 4096) || got >= 0)
		return 1;
	RTSCOPE_EVENT(test, negative, rtscope_bytes(data, memory + 4090, got), rtscope_u32(data_count, 7));
	printf("emitted 1\n");
	return 0;
}

static void emit_too_large(uint32_t count)
{
	static char part[1024];

	for (uint32_t n = 0; n < count; n++)
		RTSCOPE_EVENT(test, large, rtscope_bytes(a, part, 1024), rtscope_bytes(b, part, 1024),
			      rtscope_bytes(c, part, 1024), rtscope_bytes(d, part, 1024), rtscope_bytes(e, part, 1024),
			      rtscope_bytes(f, part, 1024), rtscope_bytes(g, part, 1024), rtscope_bytes(h, part, 1024));
}

static int with_little_data(void)
{
	struct rlimit limit = { 4096, 4096 };

	emit_too_large(5);
	emit(10);
	if (setrlimit(RLIMIT_DATA, &limit))
		return 1;
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			emit(7);
			child = fork();
			if (!child) {
				emit(3);
				_exit(0);
			}
			_exit(waitpid(child, &status, 0) != child || status);
		}
		if (waitpid(child, &status, 0) != child || status)
			return 1;
	}
	printf("emitted 45\n");
	return 0;
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "", *argument = count > 2 ? words[2] : "";

	if (!strcmp(mode, "mount"))
		return in_new_mount(argument);
	if (!strcmp(mode, "sandbox"))
		return in_sandbox();
	if (!strcmp(mode, "streams"))
		return with_closed_streams();
	if (!strcmp(mode, "limited"))
		return with_little_data();
	if (!strcmp(mode, "negative"))
		return with_negative_count();
	emit((uint32_t)atoi(argument));
	printf("emitted %d\n", atoi(argument));
	return strcmp(mode, "count") != 0;
}

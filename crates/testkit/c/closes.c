/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * closes NAME CALL PLACE [path]: a program that closes all descriptors that it does not know while one of its threads makes its buffer, and opens its own file or
 * directory NAME, which then has their numbers; "path": only as a place (O_PATH). A tracer stops the thread before its PLACEth system call number CALL for that.
 * Prints "met" or "not met", how many of its own descriptors were closed, and the size of the file before and after.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* Read and written by the tracer: where the thread may begin, that it is where it has to be, that it may go on. */
static int begin[2], met[2], done[2];
static pid_t thread;

static char get(int from)
{
	char byte = 0;

	if (read(from, &byte, 1) != 1)
		_exit(3);
	return byte;
}

static void put(int to, char byte)
{
	if (write(to, &byte, 1) != 1)
		_exit(4);
}

static void *emits(void *unused)
{
	__atomic_store_n(&thread, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	get(begin[0]);
	RTSCOPE_EVENT(test, here, rtscope_s32(number, 1));
	return unused;
}

/* Stops it where it makes the call. */
static void trace(pid_t tid, long call, int place)
{
	int status = 0;

	if (ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD) || ptrace(PTRACE_INTERRUPT, tid, 0, 0) ||
	    waitpid(tid, &status, __WALL) != tid)
		_exit(5);
	put(begin[1], 'b');
	for (;;) {
		struct __ptrace_syscall_info info;

		if (ptrace(PTRACE_SYSCALL, tid, 0, 0) || waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status)) {
			put(met[1], 'n');
			_exit(0);
		}
		if (WSTOPSIG(status) != (SIGTRAP | 0x80) ||
		    ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) <= 0 ||
		    info.op != PTRACE_SYSCALL_INFO_ENTRY || (long)info.entry.nr != call || --place)
			continue;
		put(met[1], 'm');
		get(done[0]);
		ptrace(PTRACE_DETACH, tid, 0, 0);
		_exit(0);
	}
}

#define FILES 8

int main(int argc, char **argv)
{
	struct stat before = { 0 }, after = { 0 };
	int own[FILES] = { 0 }, closed = 0, how;
	pthread_t made;
	pid_t tracer;
	char is_met;

	if (argc < 4 || stat(argv[1], &before))
		return 2;
	how = argc > 4 ? O_PATH : S_ISDIR(before.st_mode) ? O_RDONLY | O_DIRECTORY : O_RDWR;
	RTSCOPE_EVENT(test, here, rtscope_s32(number, 0));
	/* Now the process has its own files, and what it has opened from here on are those of the thread. */
	syscall(SYS_close_range, 3, ~0u, 0);
	if (pipe(begin) || pipe(met) || pipe(done) || pthread_create(&made, NULL, emits, NULL))
		return 2;
	while (!__atomic_load_n(&thread, __ATOMIC_SEQ_CST))
		;
	/* Where only parents trace (Yama). It fails where anybody may. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	tracer = fork();
	if (!tracer)
		trace(thread, atol(argv[2]), atoi(argv[3]));
	is_met = get(met[0]);
	if (is_met == 'm') {
		syscall(SYS_close_range, done[1] + 1, ~0u, 0);
		for (int i = 0; i < FILES; i++) {
			own[i] = open(argv[1], how | O_CLOEXEC);
			if (own[i] < 0)
				return 2;
		}
		put(done[1], 'd');
	}
	pthread_join(made, NULL);
	waitpid(tracer, NULL, 0);
	for (int i = 0; is_met == 'm' && i < FILES; i++)
		closed += fcntl(own[i], F_GETFD) < 0;
	if (stat(argv[1], &after))
		return 2;
	printf("%s %d closed %ld %ld\n", is_met == 'm' ? "met" : "not met", closed, (long)before.st_size,
	       (long)after.st_size);
	return 0;
}

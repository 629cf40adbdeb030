/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An instrumented program that does what most do not:
 *
 *   unusual MODE COUNT [LIBRARY]
 *
 * Modes: dlopen (emits in LIBRARY too, which it loads and unloads), jump (a handler jumps out of the middle of events), leave (events
 * with memory that is not there, which a handler jumps away from, here and in functions below; 100 events after each),
 * short (COUNT threads that emit 50 events each, 8 at a time), strict and filter (seccomp; a thread that starts under the filter may
 * make no system call for rtscope), locked (mlockall), closed (closefrom), root (chroot into /proc, then a new thread), late
 * (waits for a line, then emits), exits (the same after a child of vfork() has called exit(), which it must not), refused (after it is no more allowed to make files,
 * LIBRARY is loaded, which emits COUNT events).
 * Prints "emitted N"; mode jump also "begun N", since an event may or may not have been complete.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long count;
static sigjmp_buf back;

/* Emits this many events. */
static void emit(unsigned long events)
{
	for (unsigned long i = 0; i < events; i++)
		RTSCOPE_EVENT(test, count, rtscope_u64(n, i), rtscope_u64(thread, 0));
}

/* The same as a thread's function. */
static void *in_thread(void *events)
{
	emit((unsigned long)events);
	return NULL;
}

/* Emits in a new thread and waits for it; nonzero if there is no thread. */
static int thread(unsigned long events)
{
	pthread_t one;

	return pthread_create(&one, NULL, in_thread, (void *)events) || pthread_join(one, NULL);
}

/* A handler that leaves the event that it interrupts for ever. */
static void jump(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

/* Emits while a signal jumps back every 100 us, and prints both counts. Returns the exit code, as do the modes below. */
static int with_jumps(void)
{
	struct itimerval each = { { 0, 100 }, { 0, 100 } }, none = { { 0, 0 }, { 0, 0 } };
	static volatile unsigned long begun, done;
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = jump;
	sigaction(SIGALRM, &action, NULL);
	sigsetjmp(back, 1);
	setitimer(ITIMER_REAL, &each, NULL);
	while (begun < count) {
		char text[200];

		memset(text, 'x', sizeof(text));
		begun = begun + 1;
		RTSCOPE_EVENT(test, jump, rtscope_u64(n, begun), rtscope_strn(text, text, sizeof(text)));
		done = done + 1;
	}
	setitimer(ITIMER_REAL, &none, NULL);
	printf("begun %lu\nemitted %lu\n", begun, done);
	return 0;
}

/* An event that cannot be written: reading its array raises SIGSEGV. In a frame below this one, as deep as is asked for. */
static __attribute__((noinline)) void leave(const unsigned char *nothing, unsigned long depth)
{
	volatile char frame[512];

	frame[depth] = (char)depth;
	if (depth)
		leave(nothing, depth - 1);
	else
		RTSCOPE_EVENT(test, left, rtscope_array_u8(bytes, nothing, 8));
	if (frame[depth] != (char)depth)
		abort();
}

static int leave_events(void)
{
	const unsigned char *nothing =
		(const unsigned char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct timespec pause = { 0, 2000000 };
	static volatile unsigned long round;
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = jump;
	sigaction(SIGSEGV, &action, NULL);
	for (round = 0; round < count; round = round + 1) {
		if (!sigsetjmp(back, 1))
			leave(nothing, round % 3);
		emit(100);
		nanosleep(&pause, NULL);
	}
	printf("emitted %lu\n", count * 101);
	return 0;
}

/* Starts `count` threads of 50 events, 8 at a time. */
static int short_threads(void)
{
	pthread_t threads[8];
	unsigned long begun = 0;

	while (begun < count) {
		int now = 0;

		for (; now < 8 && begun < count; now++, begun++) {
			if (pthread_create(&threads[now], NULL, in_thread, (void *)50))
				return 1;
		}
		while (now > 0)
			pthread_join(threads[--now], NULL);
	}
	printf("emitted %lu\n", begun * 50);
	return 0;
}

/* From now on the kernel kills this process when it opens, makes or removes a file; nonzero on failure. */
static int confine(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlinkat, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Emits where only read(), write() and exit() are allowed. */
static int strict(void)
{
	char text[64];
	int bytes = snprintf(text, sizeof(text), "emitted %lu\n", count);

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 1;
	emit(count);
	if (write(1, text, (size_t)bytes) != bytes)
		return 1;
	syscall(SYS_exit, 0);
	return 1;
}

/* Emits here and in a library that is loaded and unloaded. */
static int with_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*emit_there)(unsigned long) = NULL;

	if (!library)
		return 1;
	*(void **)&emit_there = dlsym(library, "library_emit");
	for (unsigned long i = 0; i < count; i++) {
		emit(1);
		RTSCOPE_EVENT(test, same, rtscope_u32(number, (uint32_t)i));
		emit_there(1);
	}
	dlclose(library);
	emit(count);
	printf("emitted %lu\n", count * 5);
	return 0;
}

static int without_files(const char *path)
{
	struct rlimit limit = { 64, 64 };
	void (*emit_there)(void);
	void *library;

	emit(1);
	if (setrlimit(RLIMIT_FSIZE, &limit))
		return 1;
	library = dlopen(path, RTLD_NOW);
	if (!library)
		return 1;
	*(void **)&emit_there = dlsym(library, "library_emits");
	for (unsigned long i = 0; i < count; i++)
		emit_there();
	emit(1);
	printf("emitted %lu\n", count + 2);
	return 0;
}

static __attribute__((noinline)) void have_child_exit(void)
{
	pid_t child = vfork();

	if (!child)
		exit(127);
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	unsigned long emitted;

	count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
	emitted = 2 * count;
	if (!strcmp(mode, "dlopen"))
		return with_library(argv[3]);
	if (!strcmp(mode, "jump"))
		return with_jumps();
	if (!strcmp(mode, "leave"))
		return leave_events();
	if (!strcmp(mode, "short"))
		return short_threads();
	if (!strcmp(mode, "strict"))
		return strict();
	if (!strcmp(mode, "refused"))
		return without_files(argv[3]);
	if (!strcmp(mode, "exits"))
		have_child_exit();
	if (!strcmp(mode, "late") || !strcmp(mode, "exits")) {
		puts("ready");
		fflush(stdout);
		getchar();
	} else if (!strcmp(mode, "filter") && confine()) {
		return 1;
	} else if (!strcmp(mode, "locked") && mlockall(MCL_CURRENT | MCL_FUTURE)) {
		return 1;
	} else if (!strcmp(mode, "closed")) {
		closefrom(3);
	} else if (!strcmp(mode, "root") && (chroot("/proc") || chdir("/"))) {
		return 1;
	}
	emit(count);
	if (thread(count))
		return 1;
	printf("emitted %lu\n", emitted);
	return 0;
}

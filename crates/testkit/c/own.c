/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a program has of its own, and its recording must not take: descriptors, mappings, its limit of locked memory. Prints "wrong N".
 *
 *   own closing ROUNDS   threads begin, while the main thread closes the descriptors that it does not know, and opens files and pipes of its own
 *   own refused THREADS  one thread after the other, none of which can have a buffer; prints "mappings N" that there are more
 *   own locked THREADS   with all memory locked, and a limit for what the program itself takes
 *   own kept THREADS     the same, with the right to lock more, as far as this user namespace says
 *   own plugin ROUNDS LIBRARY     loads and unloads it; prints "grown N", KiB from the tenth time on
 *   own exchanged ROUNDS LIBRARY  the same, while another process exchanges the file of root's session in /dev/shm; prints "descriptors N" that there are more
 *   own filtered THREADS with a filter that ends the process for unlocking memory, as services have one
 *   own written THREADS  a handler of SIGSEGV finds out which pages of the program's data are written
 *   own stepped THREADS  a handler of SIGTRAP runs at each instruction (x86-64; else nothing is done)
 *   own left THREADS LIBRARY  at each moment of the making of its buffer, as often as there is one, a thread jumps out of it, or ends, from a handler of SIGTRAP; then LIBRARY
 *                        is loaded and unloaded; prints "left N", how many have had what all threads share, and "works N" of those that did not come to their end
 *                        (x86-64; else nothing is done)
 *   own idle THREADS LIBRARY  a thread jumps out of there and does nothing more, with its signals blocked or not, sleeping or running; then the same. Also prints
 *                        "longest N", the time of a load or an unload in ms
 *   own ends 0 LIBRARY   with LIBRARY loaded it emits an event, gives up all system calls but those that end it, and ends by exit(3)
 *   own masked EVENTS    a mask that takes everything from the owner of new files, and a child that emits
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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

/* Of /proc/self/status, in KiB. */
static long status_kib(const char *name)
{
	char line[128];
	FILE *status = fopen("/proc/self/status", "r");
	long kib = 0;

	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, name, strlen(name)))
			kib = atol(line + strlen(name) + 1);
	if (status)
		fclose(status);
	return kib;
}

static int locked(int threads, int keeps_right)
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
	if ((!keeps_right && syscall(SYS_capset, &header, sets)) || mlockall(MCL_CURRENT | MCL_FUTURE))
		return printf("no right to lock memory\n"), 77;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	pthread_barrier_init(&barrier, NULL, (unsigned int)threads + 1);
	/* What the threads themselves take: stacks, and a page of ours. There is no room for a buffer (1 MiB), not even for a moment. */
	limit.rlim_cur = limit.rlim_max = (rlim_t)status_kib("VmLck") * 1024 + (rlim_t)threads * (96 << 10) + own;
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

static int filtered(int threads, char **words)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the system call */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munlock, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = { sizeof(steps) / sizeof(*steps), steps };

	if (!getenv("FILTERED")) {
		setenv("FILTERED", "1", 1);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
			return printf("no filter\n"), 77;
		execv("/proc/self/exe", words);
		return 1;
	}
	for (int i = 0; i < threads; i++)
		one_thread();
	return 0;
}

static int ends_filtered(const char *library)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(steps) / sizeof(*steps), steps };

	if (!dlopen(library, RTLD_NOW))
		return 1;
	emits_once(NULL);
	printf("ends\n");
	fflush(stdout);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 77;
	return 0;
}

extern char __data_start[], _end[];
/* Not in the data that is protected. */
static volatile long *handled;

static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE);
	handled[0]++;
}

/* Protects its own data. Only for handlers of which it is known that they are called. */
static void *emits_with_data_protected(void *unused)
{
	uintptr_t from = (uintptr_t)__data_start & ~(uintptr_t)4095, to = ((uintptr_t)_end + 4095) & ~(uintptr_t)4095;

	mprotect((void *)from, to - from, PROT_READ);
	return emits_once(unused);
}

static void on_step(int number)
{
	(void)number;
	handled[0]++;
}

/* A SIGTRAP for each instruction, or no more (0x100: TF); below the red zone. Elsewhere than on x86-64 nothing is done. */
static inline __attribute__((always_inline)) void step(int is_on)
{
#if defined(__x86_64__)
	if (is_on)
		__asm__ volatile("sub $256, %%rsp; pushf; orq $0x100, (%%rsp); popf; add $256, %%rsp" ::
					 : "memory", "cc");
	else
		__asm__ volatile("sub $256, %%rsp; pushf; andq $~0x100, (%%rsp); popf; add $256, %%rsp" ::
					 : "memory", "cc");
#else
	(void)is_on;
#endif
}

static void *emits_step_by_step(void *unused)
{
	step(1);
	emits_once(unused);
	step(0);
	return unused;
}

static int handles(int threads, int is_stepped)
{
	struct sigaction action = { 0 };
	pthread_t thread;

	handled = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	action.sa_flags = is_stepped ? 0 : SA_SIGINFO;
	if (is_stepped)
		action.sa_handler = on_step;
	else
		action.sa_sigaction = on_fault;
	sigaction(is_stepped ? SIGTRAP : SIGSEGV, &action, NULL);
	for (int i = 0; i < threads; i++) {
		pthread_create(&thread, NULL, is_stepped ? emits_step_by_step : emits_with_data_protected, NULL);
		pthread_join(thread, NULL);
	}
	printf("handled %ld\n", handled[0]);
	return 0;
}

static sigjmp_buf back;
/* Whether it ends, and in the how manieth step in which somebody has what all threads share. */
static int ends, steps_left;
static long left;

static void on_step_to_leave(int number)
{
	(void)number;
	if (!rtscope__shared.busy || steps_left-- != 0)
		return;
	left++;
	if (ends)
		syscall(SYS_exit, 0);
	siglongjmp(back, 1);
}

/* Makes its buffer, and is back when it has left that, with its signals as they were (`restores`) or as they are there. */
#define LEAVE_MAKING(restores)                    \
	do {                                      \
		if (!sigsetjmp(back, restores)) { \
			step(1);                  \
			rtscope_thread_init();    \
			step(0);                  \
		}                                 \
	} while (0)

static void *leaves(void *unused)
{
	LEAVE_MAKING(1);
	for (uint32_t i = 0; i < EVENTS; i++)
		RTSCOPE_EVENT(test, own, rtscope_u32(i, i));
	return unused;
}

/* How it is left, and whether it is to end. */
static int leaves_blocked, leaves_running;
static volatile int is_over;

static void *leaves_and_idles(void *unused)
{
	LEAVE_MAKING(!leaves_blocked);
	while (!is_over) {
		if (!leaves_running)
			sleep(1);
	}
	return unused;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int idle(int threads, const char *library)
{
	struct sigaction action = { 0 };
	pthread_t idles, other;
	long longest = 0;

	/* SA_NODEFER: SIGTRAP is let through without siglongjmp(), too. */
	action.sa_flags = SA_NODEFER;
	action.sa_handler = on_step_to_leave;
	sigaction(SIGTRAP, &action, NULL);
	for (int i = 0; i < threads; i++) {
		leaves_blocked = i & 1;
		leaves_running = i & 2;
		steps_left = i;
		is_over = 0;
		pthread_create(&idles, NULL, leaves_and_idles, NULL);
		while (!rtscope__shared.busy && left == i && !is_over)
			sched_yield();
		for (int unload = 0; unload < 2; unload++) {
			static void *loaded;
			long begun = now_ms();

			if (!unload)
				loaded = dlopen(library, RTLD_NOW);
			else
				dlclose(loaded);
			if (!loaded)
				return 1;
			longest = now_ms() - begun > longest ? now_ms() - begun : longest;
		}
		pthread_create(&other, NULL, emits_once, NULL);
		pthread_join(other, NULL);
		is_over = 1;
		pthread_join(idles, NULL);
	}
	printf("left %ld\nlongest %ld\n", left, longest);
	return 0;
}

static int leave(int threads, const char *library)
{
	struct sigaction action = { 0 };
	pthread_t thread;
	long emitted = 0;

	action.sa_handler = on_step_to_leave;
	sigaction(SIGTRAP, &action, NULL);
	for (int i = 0; i < threads; i++) {
		long before = left;
		void *loaded;

		ends = i % 2;
		steps_left = i / 2 * 3;
		pthread_create(&thread, NULL, leaves, NULL);
		pthread_join(thread, NULL);
		emitted += ends && left > before ? 0 : EVENTS;
		/* Others wait for nobody. */
		loaded = dlopen(library, RTLD_NOW);
		if (!loaded)
			return 1;
		dlclose(loaded);
		pthread_create(&thread, NULL, emits_once, NULL);
		pthread_join(thread, NULL);
		emitted++;
	}
	printf("left %ld\nemitted %ld\nworks %u\n", left, emitted, rtscope__shared.workers);
	return 0;
}

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count;
}

/* KiB by which the process grows from the tenth round on, or -1. */
static long plugin(int rounds, const char *path)
{
	long before = 0;

	for (int round = 0; round < rounds; round++) {
		void *library = dlopen(path, RTLD_NOW);

		if (!library)
			return printf("%s\n", dlerror()), -1;
		dlclose(library);
		if (round == 10)
			before = status_kib("VmSize");
	}
	return status_kib("VmSize") - before;
}

static int grows(int rounds, const char *path)
{
	long kib = plugin(rounds, path);

	printf("grown %ld\n", kib);
	return kib < 0;
}

static int exchanged(int rounds, const char *path)
{
	const char *session = "/dev/shm/rtscope-session", *other = "/dev/shm/other";
	int before = descriptors(), wrong;
	pid_t child;

	if (open(session, O_CREAT | O_RDWR | O_CLOEXEC, 0644) < 0 ||
	    open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0644) < 0)
		return 1;
	before += 2;
	child = fork();
	while (!child)
		/* 2: RENAME_EXCHANGE */
		if (syscall(SYS_renameat2, AT_FDCWD, session, AT_FDCWD, other, 2) || getppid() == 1)
			_exit(1);
	wrong = plugin(rounds, path) < 0;
	printf("descriptors %d\n", descriptors() - before);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return wrong;
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
		wrong = locked(number, 0);
	else if (!strcmp(words[1], "kept"))
		wrong = locked(number, 1);
	else if (!strcmp(words[1], "filtered"))
		wrong = filtered(number, words);
	else if (!strcmp(words[1], "written"))
		wrong = handles(number, 0);
	else if (!strcmp(words[1], "stepped"))
		wrong = handles(number, 1);
	else if (!strcmp(words[1], "plugin") && count > 3)
		wrong = grows(number, words[3]);
	else if (!strcmp(words[1], "exchanged") && count > 3)
		wrong = exchanged(number, words[3]);
	else if (!strcmp(words[1], "ends") && count > 3)
		wrong = ends_filtered(words[3]);
	else if (!strcmp(words[1], "idle") && count > 3)
		wrong = idle(number, words[3]);
	else if (!strcmp(words[1], "left") && count > 3)
		wrong = leave(number, words[3]);
	else if (!strcmp(words[1], "masked"))
		wrong = masked((uint32_t)number);
	printf("wrong %d\n", wrong);
	return wrong == 77 ? 77 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The C half of rtscope-overtaken: as many threads as a mapping has channels begin, emit and end, again and again, while another one forks. The first thread
 * has a channel of its own, so each time one of them maps the device, and one gives it up. Each child looks whether it has a descriptor or a mapping of the device, which would keep channels that it never uses.
 *
 * With 0 forks: events that a handler interrupts between two stores of what a channel knows of them, and another one while they are copied. Both stand at the
 * same place of an alternate stack. One more comes where the thread has said who it is, which it does each 64 events.
 */
#define _GNU_SOURCE
void rtscope_overtaken_between(void);
void rtscope_overtaken_said(void);
#include <rtscope/rtscope.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of a CoreSight STM's mapping. */
#define THREADS 16

static volatile int stop;
static unsigned int emitted, rounds;
static pthread_barrier_t barrier;

int rtscope_overtaken(unsigned int forks, const char *device);

static void *emits(void *unused)
{
	unsigned int number = __atomic_fetch_add(&emitted, 1, __ATOMIC_RELAXED);

	RTSCOPE_EVENT(test, overtaken, rtscope_u32(number, number));
	/* All of them are there at the same time. */
	pthread_barrier_wait(&barrier);
	return unused;
}

static void *starts(void *unused)
{
	while (!stop) {
		pthread_t threads[THREADS];

		for (int i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, emits, NULL);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		rounds++;
	}
	return unused;
}

/* Whether the device has given channels to a descriptor, once the parent has gone on: it has the same. STP_POLICY_ID_GET (linux/stm.h). */
static int has_channels(int file)
{
	struct timespec pause = { 0, 300000000 };
	struct {
		unsigned int bytes;
		unsigned short master, channel, width, zero;
		unsigned int zero2;
	} policy = { sizeof(policy), 0, 0, 0, 0, 0 };

	nanosleep(&pause, NULL);
	return ioctl(file, 0x80102501, &policy) || policy.width;
}

#define DESCRIPTOR 1
#define MAPPING 2
/* A descriptor that has no channels, and will never have any. */
#define WITHOUT_CHANNELS 4
#define UNKNOWN 8

static int inherits(const char *device)
{
	DIR *files = opendir("/proc/self/fd");
	FILE *maps = fopen("/proc/self/maps", "re");
	struct dirent *file;
	char text[512];
	int found = 0;

	while (files && (file = readdir(files))) {
		ssize_t bytes = readlinkat(dirfd(files), file->d_name, text, sizeof(text) - 1);

		text[bytes > 0 ? bytes : 0] = 0;
		if (!strcmp(text, device))
			found |= has_channels(atoi(file->d_name)) ? DESCRIPTOR : WITHOUT_CHANNELS;
	}
	while (maps && fgets(text, sizeof(text), maps)) {
		if (strstr(text, device))
			found |= MAPPING;
	}
	if (!files || !maps)
		found = UNKNOWN;
	if (files)
		closedir(files);
	if (maps)
		fclose(maps);
	return found;
}

static volatile int raises;
static volatile unsigned int handled;
static unsigned char *page;

void rtscope_overtaken_between(void)
{
	if (raises) {
		raises = 0;
		raise(SIGUSR1);
	}
}

static volatile int says;

void rtscope_overtaken_said(void)
{
	if (says) {
		says = 0;
		raise(SIGUSR1);
	}
}

static void on_signal(int signal)
{
	RTSCOPE_EVENT(test, inner, rtscope_u32(number, handled));
	handled++;
	if (signal == SIGSEGV)
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

#define INTERRUPTED 200

static int interrupted(void)
{
	struct sigaction action;
	stack_t stack = { .ss_size = 1 << 16 };

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack.ss_sp = malloc(stack.ss_size);
	if (page == MAP_FAILED || !stack.ss_sp || sigaltstack(&stack, NULL))
		return 1;
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	for (unsigned int i = 0; i < INTERRUPTED; i++) {
		memset(page, (int)i, 4096);
		mprotect(page, 4096, PROT_NONE);
		raises = 1;
		says = i >= INTERRUPTED / 2;
		RTSCOPE_EVENT(test, outer, rtscope_u32(number, i), rtscope_seq_u8(bytes, page, 9));
	}
	printf("emitted %u\n", INTERRUPTED + handled);
	fflush(stdout);
	return 0;
}

int rtscope_overtaken(unsigned int forks, const char *device)
{
	unsigned int descriptors = 0, mappings = 0, unknown = 0, without = 0;
	pthread_t thread;

	if (!forks)
		return interrupted();
	pthread_barrier_init(&barrier, NULL, THREADS);
	pthread_create(&thread, NULL, starts, NULL);
	for (unsigned int i = 0; i < forks; i++) {
		/* At any time of what takes five pauses. */
		struct timespec pause = { 0, (i * 37 % 600) * 1000000L };
		int status = UNKNOWN << 8, found;
		pid_t child = fork();

		if (child == 0)
			_exit(inherits(device));
		waitpid(child, &status, 0);
		found = WIFEXITED(status) ? WEXITSTATUS(status) : UNKNOWN;
		descriptors += (found & DESCRIPTOR) != 0;
		mappings += (found & MAPPING) != 0;
		without += (found & WITHOUT_CHANNELS) != 0;
		unknown += (found & UNKNOWN) != 0;
		nanosleep(&pause, NULL);
	}
	stop = 1;
	pthread_join(thread, NULL);
	printf("emitted %u\nrounds %u\n", emitted, rounds);
	printf("children %u descriptors %u mappings %u unknown %u descriptors without channels %u\n", forks,
	       descriptors, mappings, unknown, without);
	fflush(stdout);
	return 0;
}

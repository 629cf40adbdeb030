// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * An audio engine in miniature, with a mistake that real ones have: a lock without priority inheritance.
 *
 *   driver  rt 80   every 5 ms: mixes for 0.5 ms, then takes the lock for what the screen shows
 *   midi    rt 60   now and then busy for 4 ms
 *   gui     nice 0  now and then takes the lock for 0.2 ms, and midi comes just then
 *
 * A cycle that takes longer than the limit is an xrun. The engine notes each (when its timer was due, and how long it took until it
 * was done), and prints them as JSON when it ends: the truth that a tracer has to find. The events audio:cycle_begin and
 * audio:cycle_end are around the work of a cycle; what took longer than the limit between these is noted and printed, too.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define PERIOD_NS 5000000
#define MIX_NS 500000
#define MIDI_NS 4000000
#define GUI_NS 200000
#define MAX_XRUNS 10000

static uint64_t limit_ns = 3000000;
static int cycles = 1000;
static pthread_mutex_t screen = PTHREAD_MUTEX_INITIALIZER;
static sem_t midi_comes;
static atomic_int is_over;
static volatile uint64_t shown;
static struct xrun {
	uint64_t due_ns, length_ns;
} xruns[MAX_XRUNS];
static int xruns_len;
static struct busy_cycle {
	int number;
	uint64_t length_ns;
} busy_cycles[MAX_XRUNS];
static int busy_len;

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void work(uint64_t ns)
{
	uint64_t until = cpu_ns() + ns;

	while (cpu_ns() < until)
		;
}

static void sleep_until(uint64_t ns)
{
	struct timespec time = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

/* A cycle that took longer than the limit is noted. */
static void note(int cycle, uint64_t due, uint64_t begun, uint64_t done)
{
	if (done - begun > limit_ns && busy_len < MAX_XRUNS)
		busy_cycles[busy_len++] = (struct busy_cycle){ cycle, done - begun };
	if (done - due > limit_ns && xruns_len < MAX_XRUNS)
		xruns[xruns_len++] = (struct xrun){ due, done - due };
}

static void *driver(void *unused)
{
	uint64_t due, last_due = 0, begun = 0, done = 0;

	prctl(PR_SET_NAME, "driver");
	rtscope_thread_init();
	due = now_ns() + PERIOD_NS;
	for (int cycle = 0; cycle < cycles; cycle++) {
		sleep_until(due);
		/* Not before it sleeps: that would be part of the cycle for a tracer, and not for the engine. */
		if (cycle)
			note(cycle - 1, last_due, begun, done);
		begun = now_ns();
		RTSCOPE_EVENT(audio, cycle_begin, rtscope_s32(cycle, cycle));
		work(MIX_NS);
		pthread_mutex_lock(&screen);
		shown++;
		pthread_mutex_unlock(&screen);
		RTSCOPE_EVENT(audio, cycle_end, rtscope_s32(cycle, cycle), rtscope_u64(shown, shown));
		done = now_ns();
		last_due = due;
		/* What is missed is missed: the next period that has not begun. */
		do
			due += PERIOD_NS;
		while (due < done + PERIOD_NS / 10);
	}
	note(cycles - 1, last_due, begun, done);
	/* ORDER: sequentially consistent; pairs with the loads in midi() and gui(), which end then. */
	atomic_store(&is_over, 1);
	sem_post(&midi_comes);
	return unused;
}

static void *midi(void *unused)
{
	prctl(PR_SET_NAME, "midi");
	for (;;) {
		sem_wait(&midi_comes);
		/* ORDER: sequentially consistent; pairs with the store in driver(). */
		if (atomic_load(&is_over))
			return unused;
		work(MIDI_NS);
	}
}

static void *gui(void *unused)
{
	uint64_t next = now_ns();

	prctl(PR_SET_NAME, "gui");
	/* ORDER: sequentially consistent; pairs with the store in driver(). */
	while (!atomic_load(&is_over)) {
		next += 47000000;
		sleep_until(next);
		pthread_mutex_lock(&screen);
		sem_post(&midi_comes); /* here midi takes the CPU */
		work(GUI_NS);
		pthread_mutex_unlock(&screen);
	}
	return unused;
}

static void start(pthread_t *thread, void *(*run)(void *), int cpu, int priority)
{
	struct sched_param param = { .sched_priority = priority };
	pthread_attr_t attr;
	cpu_set_t cpus;
	int error;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, priority ? SCHED_FIFO : SCHED_OTHER);
	pthread_attr_setschedparam(&attr, &param);
	pthread_attr_setaffinity_np(&attr, sizeof cpus, &cpus);
	error = pthread_create(thread, &attr, run, NULL);
	if (error) {
		errno = error;
		perror("a thread could not be started (real-time priorities need root)");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int cpu = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t threads[3];

	if (argc > 2)
		cycles = atoi(argv[2]);
	if (argc > 3)
		limit_ns = strtoull(argv[3], NULL, 10) * 1000;
	/* As an audio engine does: what it notes of a late cycle shall not make that cycle longer by a page fault. */
	mlockall(MCL_CURRENT);
	sem_init(&midi_comes, 0, 0);
	start(&threads[0], gui, cpu, 0);
	start(&threads[1], midi, cpu, 60);
	start(&threads[2], driver, cpu, 80);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < xruns_len; i++)
		printf("{\"type\": \"xrun\", \"due_ns\": %llu, \"length_ns\": %llu}\n",
		       (unsigned long long)xruns[i].due_ns, (unsigned long long)xruns[i].length_ns);
	for (int i = 0; i < busy_len; i++)
		printf("{\"type\": \"busy\", \"cycle\": %d, \"length_ns\": %llu}\n", busy_cycles[i].number,
		       (unsigned long long)busy_cycles[i].length_ns);
	printf("{\"type\": \"end\", \"cycles\": %d}\n", cycles);
	return 0;
}

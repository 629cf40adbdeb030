/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The torture program of the campaign of violence (crates/bench/src/violence): threads that do everything that a program may do
 * to the events in it, all at once, for a while. What it emitted is in a file of counters (violence.h), also when it is killed.
 *
 *   violence COUNTERS SEED MILLISECONDS THREADS DEPTH OFFSET LIBRARY...
 *
 * DEPTH: how many times its children may become this program again. OFFSET: by how many nanoseconds CLOCK_MONOTONIC is ahead here.
 * Compiled with -DVIOLENCE_PLAIN the program has no events, and its libraries have all of them.
 *
 * Exit code 0: every child ended as asked. 3: one did not; which one is in the counters.
 */
#define _GNU_SOURCE
#include "violence.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 64
#define LIBRARIES_MAX 4
#define CHILDREN_MAX 8
/* A child that lives longer than this after the end hangs. */
#define PATIENCE_NS 20000000000ULL

typedef void (*library_function)(struct violence_slot *, uint32_t, int64_t, unsigned int);

static struct violence_head *head;
static struct violence_slot *slots;
static char **arguments;
static char *libraries[LIBRARIES_MAX];
static unsigned int library_count, thread_count, depth;
static uint64_t end_ns, seed;
static int64_t offset_ns;
static int tids[THREADS_MAX];
static unsigned int living;
static pthread_key_t last_words;

/* A child: its process, and whether this program has killed it. */
static struct {
	int pid, killed;
} children[CHILDREN_MAX];

/* What a thread has, from its first instruction to its last. */
static __thread struct {
	uint32_t work, outer, inner;
	uint64_t random;
	int in_events; /* nothing that a lock protects is under way */
	int ready;
} me __attribute__((tls_model("initial-exec")));

/* ORDER: relaxed here and below; counters for people, and flags that stand for themselves. Nothing is published by them. */
#define ADD(place, number) __atomic_fetch_add(&(place), (number), __ATOMIC_RELAXED)
#define LOOK(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define PUT(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)

static uint64_t now_ns(void)
{
	return violence_now(0);
}

/* A number below the limit, by xorshift. */
static unsigned int below(unsigned int limit)
{
	me.random ^= me.random << 13;
	me.random ^= me.random >> 7;
	me.random ^= me.random << 17;
	return (unsigned int)(me.random >> 11) % limit;
}

static uint32_t new_slot(uint32_t kind)
{
	uint32_t index = ADD(head->slots, 1);

	if (index >= head->slots_max)
		_exit(9);
	slots[index].pid = (uint32_t)getpid();
	slots[index].tid = (uint32_t)gettid();
	slots[index].kind = kind;
	return index;
}

/* The calling thread is a new one, or that of a new process: what it emits is counted elsewhere from now on. */
static void new_slots(void)
{
	me.work = new_slot(VIOLENCE_WORK);
	me.outer = new_slot(VIOLENCE_OUTER);
	me.inner = new_slot(VIOLENCE_INNER);
	me.random = (seed ^ ((uint64_t)me.work + 1) * 0x9e3779b97f4a7c15ULL) | 1;
	me.ready = 1;
}

static void emit(uint32_t slot, unsigned int count)
{
#if defined(VIOLENCE_PLAIN)
	(void)slot;
	(void)count;
#else
	for (unsigned int i = 0; i < count; i++)
		VIOLENCE_EMIT(work, slots, slot, offset_ns);
#endif
}

static void block(sigset_t *before)
{
	sigset_t both;

	sigemptyset(&both);
	sigaddset(&both, SIGUSR1);
	sigaddset(&both, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &both, before);
}

static void unblock(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* A place for one more child; -1: there are enough. */
static int reserve_child(void)
{
	for (int i = 0; i < CHILDREN_MAX; i++) {
		int nobody = 0;

		/* ORDER: relaxed; the place is the flag. */
		if (__atomic_compare_exchange_n(&children[i].pid, &nobody, -1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return i;
	}
	return -1;
}

static void keep_child(int place, int pid)
{
	PUT(children[place].killed, 0);
	PUT(children[place].pid, pid > 0 ? pid : 0);
}

/* Becomes this program again, with other numbers. Returns only when that failed. */
static void become(unsigned int milliseconds, unsigned int threads)
{
	char numbers[4][24];
	char *words[7 + LIBRARIES_MAX + 1];
	int at = 7;
	sigset_t before;

	/* A signal that is on its way has no handler until begin() has run: it waits until main() lets it in. */
	block(&before);
	snprintf(numbers[0], sizeof(numbers[0]), "%llu", (unsigned long long)(seed ^ me.random));
	snprintf(numbers[1], sizeof(numbers[1]), "%u", milliseconds);
	snprintf(numbers[2], sizeof(numbers[2]), "%u", threads);
	snprintf(numbers[3], sizeof(numbers[3]), "%u", depth - 1);
	words[0] = arguments[0];
	words[1] = arguments[1];
	for (int i = 0; i < 4; i++)
		words[2 + i] = numbers[i];
	words[6] = arguments[6];
	for (unsigned int i = 0; i < library_count; i++)
		words[at++] = libraries[i];
	words[at] = NULL;
	ADD(head->executions, 1);
	execv("/proc/self/exe", words);
	unblock(&before);
}

/* What a fork's child does: as little as a fork of a threaded program allows, but with events. Does not return. */
static void child(int may_become)
{
	sigset_t none;

	new_slots();
	PUT(thread_count, 0);
	ADD(head->processes, 1);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	emit(me.work, 1 + below(20));
	if (below(4) == 0) {
		struct timespec pause = { 0, 1000 * (long)below(5000) };

		nanosleep(&pause, NULL);
		emit(me.work, below(10));
	}
	if (below(6) == 0 && fork() == 0) {
		/* The signal mask lets handlers run before these are set, which is what is wanted of the rest of this program. */
		new_slots();
		ADD(head->processes, 1);
		emit(me.work, below(20));
		_exit(0);
	}
	if (may_become && depth > 0 && below(3) == 0) {
		become(20 + below(40), 1 + below(3));
		_exit(8);
	}
	_exit(0);
}

/* A child that has this thread's stack, buffer and slots until it ends. */
static __attribute__((noinline)) int with_vfork(unsigned int count)
{
	int pid = vfork();

	if (pid == 0) {
		emit(me.work, count);
		_exit(0);
	}
	return pid;
}

/* One child of a kind: 0 fork, 1 raw clone, 2 vfork. */
static void have_child(unsigned int kind)
{
	int place = reserve_child(), pid;
	sigset_t before;

	if (place < 0)
		return;
	block(&before);
	if (kind == 0) {
		ADD(head->forks, 1);
		pid = fork();
		if (pid == 0)
			child(1);
	} else if (kind == 1) {
		ADD(head->clones, 1);
		pid = (int)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
		if (pid == 0) {
			new_slots();
			ADD(head->processes, 1);
			emit(me.work, 1 + below(10));
			_exit(0);
		}
	} else {
		ADD(head->vforks, 1);
		pid = with_vfork(below(5));
	}
	keep_child(place, pid);
	unblock(&before);
}

/* Interrupts anything, also an event, and another handler. */
static void inner(int signal)
{
	int error = errno;

	(void)signal;
	ADD(head->handled, 1);
	emit(me.inner, 1 + below(3));
	if (me.in_events && LOOK(living) > 0 && below(25) == 0) {
		int place = reserve_child();

		if (place >= 0) {
			int pid;

			ADD(head->handler_forks, 1);
			pid = fork();
			if (pid == 0)
				child(0);
			keep_child(place, pid);
		}
	}
	errno = error;
}

static void outer(int signal)
{
	int error = errno;

	(void)signal;
	ADD(head->handled, 1);
	emit(me.outer, 1 + below(5));
	errno = error;
}

static void handle(int signal, void (*handler)(int), int with_both)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	action.sa_flags = SA_RESTART;
	sigemptyset(&action.sa_mask);
	if (with_both)
		sigaddset(&action.sa_mask, SIGUSR1);
	sigaction(signal, &action, NULL);
}

/* Loads a library, emits in it, and unloads it, if nobody else uses it. */
static void load(void)
{
	void *library = dlopen(libraries[below(library_count)], RTLD_NOW);
	library_function function;

	if (!library)
		return;
	ADD(head->loads, 1);
	*(void **)&function = dlsym(library, "violence_library");
	function(slots, me.work, offset_ns, 1 + below(20));
	dlclose(library);
}

static void signal_another(void)
{
	int tid = LOOK(tids[below(thread_count ? thread_count : 1) % THREADS_MAX]);

	if (tid > 0)
		syscall(SYS_tgkill, getpid(), tid, below(2) ? SIGUSR1 : SIGUSR2);
}

/* Late in a thread's life: its buffer may be gone. */
static void speak_last(void *unused)
{
	(void)unused;
	emit(me.work, 3);
}

static int start(unsigned int index);

/* One deed. False: the thread ends. */
static int deed(void)
{
	unsigned int what = below(1000);
	struct timespec pause = { 0, 200000 + 1000 * (long)below(16000) };

	if (what < 4)
		return 0;
	if (what < 14)
		have_child(what < 9 ? 0 : what < 12 ? 1 : 2);
	else if (what < 30 && library_count)
		load();
	else if (what < 34 && depth > 0 && LOOK(thread_count) > 8 && below(40) == 0)
		become(100, 4);
	else if (what < 36)
		emit(me.work, 500 + below(1000));
	else if (what < 160)
		signal_another();
	else {
		me.in_events = 1;
		emit(me.work, 1 + below(16));
		me.in_events = 0;
	}
	me.in_events = 1;
	nanosleep(&pause, NULL);
	me.in_events = 0;
	return 1;
}

/* A thread's life. It begins with signals blocked. */
static void *live(void *index)
{
	unsigned int own = (unsigned int)(uintptr_t)index;
	sigset_t none;
	int goes_on = 1;

	new_slots();
	ADD(head->threads, 1);
	pthread_setspecific(last_words, &last_words);
	PUT(tids[own], (int)gettid());
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	if (below(4) == 0)
		rtscope_thread_init();
	while (now_ns() < end_ns && goes_on)
		goes_on = deed();
	PUT(tids[own], 0);
	if (below(4) == 0)
		rtscope_thread_exit();
	emit(me.work, below(3));
	if (now_ns() < end_ns && start(own))
		return NULL;
	ADD(living, -1U);
	return NULL;
}

/* Starts the thread with this index; false: there is none. */
static int start(unsigned int index)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t before;
	int error;

	block(&before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	error = pthread_create(&thread, &attributes, live, (void *)(uintptr_t)index);
	pthread_attr_destroy(&attributes);
	unblock(&before);
	return !error;
}

static void fail(int pid, int status)
{
	uint32_t place = ADD(head->failures, 1);

	if (place < 16) {
		head->failed_pid[place] = pid;
		head->failed_status[place] = status;
	}
}

/* Takes the ends of children, also of those that lost their parent. False: there is no child any more. */
static int reap(void)
{
	for (;;) {
		int status, killed = 1, pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0)
			return pid == 0;
		/* Not a child of this program's: one that lost its parent, which may have killed it. */
		for (int i = 0; i < CHILDREN_MAX; i++) {
			if (LOOK(children[i].pid) == pid) {
				killed = LOOK(children[i].killed);
				PUT(children[i].pid, 0);
			}
		}
		/* 3: the child has said what was wrong. */
		if (!(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3)) &&
		    !(killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			fail(pid, status);
	}
}

static void kill_a_child(void)
{
	unsigned int index = below(CHILDREN_MAX);
	int pid = LOOK(children[index].pid);
	siginfo_t unused;

	/* Only this thread takes their ends, so what is a child now still is when it is killed. */
	if (pid > 0 && !waitid(P_PID, (id_t)pid, &unused, WEXITED | WNOHANG | WNOWAIT)) {
		PUT(children[index].killed, 1);
		ADD(head->killed, 1);
		kill(pid, SIGKILL);
	}
}

/* Names the children that hang, and ends them. */
static void end_hanging(void)
{
	char path[64], text[512];
	int file;
	ssize_t bytes;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	file = open(path, O_RDONLY | O_CLOEXEC);
	bytes = file < 0 ? 0 : read(file, text, sizeof(text) - 1);
	text[bytes > 0 ? bytes : 0] = 0;
	for (char *at = text; *at;) {
		int pid = (int)strtol(at, &at, 10);
		uint32_t place;

		if (pid <= 0)
			break;
		place = ADD(head->hung, 1);
		if (place < 16)
			head->hung_pid[place] = pid;
		/* So that it can be looked at: the driver ends it. */
		while (*at == ' ')
			at++;
	}
}

static void map_counters(const char *path)
{
	int file = open(path, O_RDWR | O_CLOEXEC);
	struct stat status;
	void *map;

	if (file < 0 || fstat(file, &status))
		_exit(4);
	map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (map == MAP_FAILED)
		_exit(5);
	close(file);
	head = (struct violence_head *)map;
	if (head->magic != VIOLENCE_MAGIC)
		_exit(6);
	slots = (struct violence_slot *)(void *)((char *)map + VIOLENCE_SLOTS_AT);
}

static void begin(int count, char **words)
{
	arguments = words;
	map_counters(words[1]);
	seed = strtoull(words[2], NULL, 10);
	end_ns = now_ns() + strtoull(words[3], NULL, 10) * 1000000;
	thread_count = (unsigned int)atoi(words[4]);
	if (thread_count > THREADS_MAX)
		thread_count = THREADS_MAX;
	depth = (unsigned int)atoi(words[5]);
	offset_ns = strtoll(words[6], NULL, 10);
	for (int i = 7; i < count && library_count < LIBRARIES_MAX; i++)
		libraries[library_count++] = words[i];
	new_slots();
	ADD(head->processes, 1);
	pthread_key_create(&last_words, speak_last);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	handle(SIGUSR1, outer, 0);
	handle(SIGUSR2, inner, 1);
}

int main(int count, char **words)
{
	struct timespec pause = { 0, 1000000 };
	uint64_t patience;
	sigset_t none;

	if (count < 7)
		return 2;
	begin(count, words);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	for (unsigned int i = 0; i < thread_count; i++) {
		ADD(living, 1);
		if (!start(i))
			ADD(living, -1U);
	}
	while (now_ns() < end_ns) {
		emit(me.work, below(4));
		reap();
		if (below(20) == 0)
			kill_a_child();
		nanosleep(&pause, NULL);
	}
	patience = now_ns() + PATIENCE_NS;
	while (LOOK(living) > 0 && now_ns() < patience)
		nanosleep(&pause, NULL);
	if (LOOK(living) > 0) {
		fail((int)getpid(), -1);
		return 3;
	}
	while (reap()) {
		if (now_ns() > patience) {
			end_hanging();
			return 3;
		}
		nanosleep(&pause, NULL);
	}
	return LOOK(head->failures) ? 3 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The life of an instrumented program, for tests: what it does besides emitting, at the worst moments.
 *
 *   life MODE COUNT [LIBRARY...]
 *
 * MODE:
 *   forks     COUNT children that exit or become another program
 *   loading   threads load and unload LIBRARY while COUNT children are forked
 *   starting  threads start and emit while COUNT children are forked
 *   ending    the same with threads that end
 *   orders    threads load and unload all libraries in random order, COUNT times
 *   reload    COUNT times a library is loaded before another one is unloaded
 *   late      COUNT threads emit in destructors and handlers while they end
 *   nested    a handler that interrupts events forks, COUNT times
 *   faults    the same in the middle of writing an event, whose field's memory faults
 *   small     COUNT forks in a handler on a small stack; prints how deep it got
 *   handler   COUNT threads whose first event is in such a handler
 *   child     COUNT forks' children, of which the same is true
 *   churn     threads that emit and end, until stdin ends
 *   sleeper   says "ready", and forks COUNT children, which emit one event each when stdin has a line
 *   keys      COUNT threads; with RTSCOPE_START_BY_HAND after 40 keys have been made
 *   pointers  COUNT threads, each on a stack of its own, have a library make their buffers
 *   keyless   the same after 40 keys have been made
 *   once      a library is loaded, called and unloaded
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char **libraries;
static unsigned int library_count;
static volatile int stop;
/* Shared with children. */
static struct {
	unsigned long emitted, begun, depth;
} *counts;

static void emit(unsigned long n)
{
	__atomic_fetch_add(&counts->begun, 1, __ATOMIC_RELAXED);
	RTSCOPE_EVENT(test, life, rtscope_u64(n, n));
	__atomic_fetch_add(&counts->emitted, 1, __ATOMIC_RELAXED);
}

/* The same with several fields. */
static void emit_more(unsigned long n)
{
	__atomic_fetch_add(&counts->begun, 1, __ATOMIC_RELAXED);
	RTSCOPE_EVENT(test, fields, rtscope_u64(n, n), rtscope_str(text, "fields"), rtscope_f64(half, 0.5));
	__atomic_fetch_add(&counts->emitted, 1, __ATOMIC_RELAXED);
}

/* Waits for a child. It hangs if that takes long; then it is ended. */
static int waits_for(pid_t child)
{
	int status = 0;

	for (int i = 0; i < 100000; i++) {
		struct timespec pause = { 0, 100000 };
		pid_t ended = waitpid(child, &status, WNOHANG);

		if (ended == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) != 0 : 2;
		if (ended < 0 && errno != EINTR)
			return 3;
		nanosleep(&pause, NULL);
	}
	fprintf(stderr, "%d hangs\n", (int)child);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return 1;
}

static void forks(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child && i % 2)
			_exit(0);
		if (!child) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		waits_for(child);
	}
}

static void *loads(void *library)
{
	while (!stop) {
		void *handle = dlopen(library, RTLD_NOW);

		if (handle)
			dlclose(handle);
	}
	return NULL;
}

/* Whether a path is that of a file of this process: of a provider or a ring, "p" or "r", and the process. */
static int is_of(pid_t process, const char *text)
{
	const char *at = strstr(text, "/dev/shm/rtscope-");
	char name[32];

	snprintf(name, sizeof(name), "%d-", (int)process);
	at = at ? strchr(at + strlen("/dev/shm/rtscope-"), '/') : NULL;
	return at && !strncmp(at + 2, name, strlen(name));
}

/* Whether this child has a file of its parent's events open or mapped. */
static int inherits(pid_t parent)
{
	DIR *files = opendir("/proc/self/fd");
	FILE *maps = fopen("/proc/self/maps", "r");
	struct dirent *file;
	char text[512];
	int found = 0;

	if (!files || !maps)
		return 1;
	while ((file = readdir(files))) {
		ssize_t bytes = readlinkat(dirfd(files), file->d_name, text, sizeof(text) - 1);

		text[bytes > 0 ? bytes : 0] = 0;
		if (!is_of(parent, text))
			continue;
		found = 1;
		fprintf(stderr, "inherited %s\n", text);
	}
	while (fgets(text, sizeof(text), maps)) {
		if (!is_of(parent, text))
			continue;
		found = 1;
		fprintf(stderr, "mapped %s", text);
	}
	closedir(files);
	fclose(maps);
	return found;
}

/* How many files of events this process has. */
static unsigned long own_files(void)
{
	char text[64];
	struct dirent *file;
	unsigned long found = 0;
	DIR *files;

	snprintf(text, sizeof(text), "/dev/shm/rtscope-%u", (unsigned int)geteuid());
	files = opendir(text);
	snprintf(text, sizeof(text), "%d-", (int)getpid());
	while (files && (file = readdir(files)))
		found += !strncmp(file->d_name + 1, text, strlen(text));
	if (files)
		closedir(files);
	return found;
}

static void *emits_once(void *unused)
{
	emit(1);
	return unused;
}

/* Emits once, and stays as long as others do. */
static void *stays(void *unused)
{
	struct timespec pause = { 0, 20000000 };

	emit(1);
	while (!stop)
		nanosleep(&pause, NULL);
	return unused;
}

#define STAYING 128

/* No faster than buffers are made by headers that have been made slow on purpose: of eight at once a child is told. */
static void *starts(void *unused)
{
	struct timespec pause = { 0, 70000000 };
	pthread_t threads[STAYING];
	int count = 0;

	while (!stop) {
		if (count < STAYING)
			pthread_create(&threads[count++], NULL, stays, NULL);
		/* Not in step with children, which take a multiple of that on a quiet machine. */
		pause.tv_nsec = 70000000 + count * 7 % 50 * 1000000;
		nanosleep(&pause, NULL);
	}
	while (count)
		pthread_join(threads[--count], NULL);
	return unused;
}

static void *start_and_end(void *unused)
{
	while (!stop) {
		pthread_t thread;

		pthread_create(&thread, NULL, emits_once, NULL);
		pthread_join(thread, NULL);
	}
	return unused;
}

static unsigned long forks_while(void *(*others)(void *), char *argument, unsigned long count)
{
	pthread_t threads[2];
	unsigned long wrong = 0;
	pid_t self = getpid();

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, others, argument);
	for (unsigned long i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			emit(i);
			_exit(inherits(self));
		}
		wrong += waits_for(child) != 0;
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return wrong;
}

/* Emits from a library, if it is loaded and has the function. */
static void call(void *handle)
{
	void (*emits)(void) = NULL;

	*(void **)&emits = dlsym(handle, "library_emits");
	if (emits) {
		emits();
		__atomic_fetch_add(&counts->emitted, 1, __ATOMIC_RELAXED);
	}
}

static void *in_random_order(void *seed)
{
	unsigned int random = (unsigned int)(uintptr_t)seed;
	unsigned long count = counts->depth;
	void *handles[16] = { NULL };

	for (unsigned long i = 0; i < count; i++) {
		unsigned int which = (unsigned int)rand_r(&random) % library_count;

		if (handles[which]) {
			dlclose(handles[which]);
			handles[which] = NULL;
		} else {
			handles[which] = dlopen(libraries[which], rand_r(&random) & 1 ? RTLD_NOW : RTLD_LAZY);
			if (handles[which])
				call(handles[which]);
		}
	}
	for (unsigned int i = 0; i < library_count; i++) {
		if (handles[i])
			dlclose(handles[i]);
	}
	return NULL;
}

static void orders(unsigned long count)
{
	pthread_t threads[4];

	counts->depth = count;
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, in_random_order, (void *)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	counts->depth = 0;
}

static unsigned long reload(unsigned long count)
{
	void *loaded = dlopen(libraries[0], RTLD_NOW);
	unsigned long failed = !loaded;

	for (unsigned long i = 1; i <= count && loaded; i++) {
		void *next = dlopen(libraries[i % library_count], RTLD_NOW);

		if (!next) {
			fprintf(stderr, "%s\n", dlerror());
			failed++;
			break;
		}
		call(next);
		dlclose(loaded);
		loaded = next;
	}
	return failed;
}

static int (*library_init)(void);

static void *makes_a_buffer(void *failed)
{
	if (library_init())
		__atomic_fetch_add((unsigned long *)failed, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* No thread has the thread pointer of another. */
static unsigned long pointers(unsigned long count)
{
	const size_t bytes = 64 * 1024;
	unsigned long failed = 0;
	char *stacks =
		mmap(NULL, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	void *handle = dlopen(libraries[0], RTLD_NOW);

	if (!handle || stacks == MAP_FAILED)
		return count;
	*(void **)&library_init = dlsym(handle, "library_init");
	for (unsigned long i = 0; i < count; i++) {
		pthread_attr_t attributes;
		pthread_t thread;

		pthread_attr_init(&attributes);
		pthread_attr_setstack(&attributes, stacks + i * bytes, bytes);
		if (pthread_create(&thread, &attributes, makes_a_buffer, &failed))
			failed++;
		else
			pthread_join(thread, NULL);
		pthread_attr_destroy(&attributes);
		madvise(stacks + i * bytes, bytes, MADV_DONTNEED);
	}
	return failed;
}

static unsigned long once(void)
{
	void *handle = dlopen(libraries[0], RTLD_NOW);

	if (!handle)
		return 1;
	call(handle);
	return dlclose(handle) != 0;
}

static void make_keys(void)
{
	for (int i = 0; i < 40; i++) {
		pthread_key_t key;

		pthread_key_create(&key, NULL);
	}
}

static pthread_key_t early, late;

static void at_end(void *value)
{
	uintptr_t left = (uintptr_t)value - 1;

	emit(left);
	if (left)
		pthread_setspecific(late, (void *)left);
}

static void on_signal(int signal)
{
	int error = errno;

	(void)signal;
	emit(0);
	errno = error;
}

static void *ends(void *handled)
{
	pthread_setspecific(early, (void *)4);
	emit(1);
	pthread_setspecific(late, (void *)4);
	for (unsigned int i = 0; i < library_count; i++) {
		void *handle = dlopen(libraries[i], RTLD_NOW);

		if (handle)
			call(handle);
	}
	__atomic_fetch_add((int *)handled, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void ends_in_events(unsigned long count)
{
	struct itimerval each = { { 0, 20 }, { 0, 20 } }, none = { { 0, 0 }, { 0, 0 } };
	struct sigaction action;
	int handled = 0;

	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	for (unsigned long i = 0; i < count; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, ends, &handled))
			continue;
		/* The timer's signal goes to whichever thread has it unblocked: this one has not. */
		sigset_t alarm;
		sigemptyset(&alarm);
		sigaddset(&alarm, SIGALRM);
		pthread_sigmask(SIG_BLOCK, &alarm, NULL);
		for (int k = 0; k < 20; k++)
			pthread_kill(thread, SIGALRM);
		pthread_join(thread, NULL);
		pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	}
	setitimer(ITIMER_REAL, &none, NULL);
}

static unsigned long to_fork, forked, failed;

static void forking_handler(int signal)
{
	int error = errno;
	pid_t child;

	(void)signal;
	if (to_fork) {
		to_fork--;
		child = fork();
		if (!child) {
			struct itimerval none = { { 0, 0 }, { 0, 0 } };

			/* The event that was interrupted goes on in the child, too. */
			setitimer(ITIMER_REAL, &none, NULL);
			to_fork = 0;
			stop = 1;
		} else if (child > 0) {
			forked++;
			failed += waits_for(child) != 0;
		}
	}
	errno = error;
}

static void nested(unsigned long count)
{
	struct itimerval each = { { 0, 300 }, { 0, 300 } };
	struct sigaction action;
	pid_t self = getpid();

	to_fork = count;
	memset(&action, 0, sizeof(action));
	action.sa_handler = forking_handler;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	for (unsigned long i = 0; to_fork && !stop; i++)
		RTSCOPE_EVENT(test, life, rtscope_u64(n, i));
	if (getpid() != self) {
		emit(0);
		_exit(0);
	}
}

static unsigned char *faulting;

static void forks_on_fault(int signal)
{
	pid_t child = fork();

	(void)signal;
	if (child > 0) {
		forked++;
		failed += waits_for(child) != 0;
	}
	mprotect(faulting, 4096, PROT_READ);
}

/* Only an event that is recorded reads the field. */
static void faults(unsigned long count)
{
	struct timespec pause = { 0, 1000000 };
	struct sigaction action;
	pid_t self = getpid();

	faulting = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(&action, 0, sizeof(action));
	action.sa_handler = forks_on_fault;
	sigaction(SIGSEGV, &action, NULL);
	while (forked < count) {
		mprotect(faulting, 4096, PROT_NONE);
		RTSCOPE_EVENT(test, faults, rtscope_bytes(zeros, faulting, 500));
		if (getpid() != self) {
			emit(0);
			_exit(0);
		}
		nanosleep(&pause, NULL);
	}
}

/* How many buffers this process has. */
static unsigned long own_buffers(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long found = 0;
	char text[512], name[32];

	snprintf(name, sizeof(name), "/r%d-", (int)getpid());
	while (maps && fgets(text, sizeof(text), maps))
		found += strstr(text, name) != NULL;
	if (maps)
		fclose(maps);
	return found;
}

#define PAINT 0xa5
static unsigned char *stack;
static size_t stack_bytes;

/* How much of the small stack was ever used. */
static unsigned long depth(void)
{
	size_t clean = 0;

	while (clean < stack_bytes && stack[clean] == PAINT)
		clean++;
	return stack_bytes - clean;
}

static volatile int forks_here;

static void small_handler(int signal)
{
	(void)signal;
	if (!forks_here) {
		emit_more(0);
		return;
	}
	pid_t child = (pid_t)fork();
	if (!child) {
		emit(0);
		counts->depth = counts->depth > depth() ? counts->depth : depth();
		_exit(0);
	}
	failed += waits_for(child) != 0;
}

/* A stack of the least size for a handler, and 4 KiB; below it is nothing. */
static void use_small_stack(void)
{
	size_t least = getauxval(AT_MINSIGSTKSZ), page = 4096;
	struct sigaction action;
	stack_t small;
	unsigned char *memory;

	least = least ? least : MINSIGSTKSZ;
	stack_bytes = least + 4096;
	memory = mmap(NULL, stack_bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_bytes = (stack_bytes + page - 1) & ~(page - 1);
	stack = memory + page;
	mprotect(stack, stack_bytes, PROT_READ | PROT_WRITE);
	memset(stack, PAINT, stack_bytes);
	memset(&small, 0, sizeof(small));
	/* Not a whole page more than it should be. */
	small.ss_sp = stack + (stack_bytes - ((least + 4096 + 15) & ~(size_t)15));
	small.ss_size = least + 4096;
	sigaltstack(&small, NULL);
	memset(&action, 0, sizeof(action));
	action.sa_handler = small_handler;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
}

static void *first_event_in_handler(void *unused)
{
	use_small_stack();
	raise(SIGUSR1);
	if (depth() > counts->depth)
		counts->depth = depth();
	return unused;
}

static void first_events_in_children(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			first_event_in_handler(NULL);
			_exit(0);
		}
		failed += waits_for(child) != 0;
	}
}

static void empty_handler(int signal)
{
	(void)signal;
}

/* What a handler that does nothing takes. */
static unsigned long empty_depth(void)
{
	struct sigaction action;

	use_small_stack();
	memset(&action, 0, sizeof(action));
	action.sa_handler = empty_handler;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	return depth();
}

static void threads(unsigned long count, void *(*work)(void *))
{
	for (unsigned long i = 0; i < count; i++) {
		pthread_t thread;

		if (!pthread_create(&thread, NULL, work, NULL))
			pthread_join(thread, NULL);
	}
}

static void churn(void)
{
	struct pollfd input = { 0, POLLIN, 0 };

	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 0) == 0) {
		threads(500, emits_once);
		puts("500 threads");
		fflush(stdout);
	}
}

static void sleepers(unsigned long count)
{
	int wake[2];
	char byte;

	if (pipe(wake))
		exit(1);
	for (unsigned long i = 0; i < count; i++) {
		if (fork() == 0) {
			close(wake[1]);
			while (read(wake[0], &byte, 1) < 0)
				;
			emit(i);
			_exit(0);
		}
	}
	puts("ready");
	fflush(stdout);
	getchar();
	close(wake[1]);
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, wrong = 0;

#if defined(RTSCOPE_START_BY_HAND)
	/* The header's key comes after these, so it is one for which the C library would have to allocate. */
	make_keys();
	rtscope_start();
#endif
	libraries = argv + 3;
	library_count = argc > 3 ? (unsigned int)(argc - 3) : 0;
	counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_key_create(&early, at_end);
	pthread_key_create(&late, at_end);
	if (!strcmp(mode, "forks")) {
		forks(count);
	} else if (!strcmp(mode, "loading")) {
		wrong = forks_while(loads, libraries[0], count);
	} else if (!strcmp(mode, "starting")) {
		wrong = forks_while(starts, NULL, count);
	} else if (!strcmp(mode, "ending")) {
		wrong = forks_while(start_and_end, NULL, count);
	} else if (!strcmp(mode, "orders")) {
		orders(count);
	} else if (!strcmp(mode, "reload")) {
		wrong = reload(count);
	} else if (!strcmp(mode, "late")) {
		ends_in_events(count);
	} else if (!strcmp(mode, "nested")) {
		nested(count);
		printf("forked %lu\n", forked);
		wrong = failed;
	} else if (!strcmp(mode, "faults")) {
		faults(count);
		printf("forked %lu\n", forked);
		wrong = failed;
	} else if (!strcmp(mode, "small")) {
		unsigned long least = empty_depth();

		/* What the C library's functions take when they are first called is not to be measured. */
		struct timespec now = { 0, 0 };

		nanosleep(&now, NULL);
		forks(1);
		use_small_stack();
		forks_here = 1;
		for (unsigned long i = 0; i < count; i++)
			raise(SIGUSR1);
		printf("depth %lu\n", counts->depth - least);
		wrong = failed;
	} else if (!strcmp(mode, "handler")) {
		unsigned long least = empty_depth();

		threads(count, first_event_in_handler);
		printf("depth %lu\n", counts->depth - least);
	} else if (!strcmp(mode, "child")) {
		unsigned long least = empty_depth();

		first_events_in_children(count);
		printf("depth %lu\n", counts->depth - least);
		wrong = failed;
	} else if (!strcmp(mode, "churn")) {
		churn();
	} else if (!strcmp(mode, "sleeper")) {
		sleepers(count);
	} else if (!strcmp(mode, "keys")) {
		threads(count, emits_once);
	} else if (!strcmp(mode, "pointers")) {
		wrong = pointers(count);
	} else if (!strcmp(mode, "keyless")) {
		make_keys();
		wrong = pointers(count);
	} else if (!strcmp(mode, "once")) {
		wrong = once();
	}
	printf("emitted %lu\n", counts->emitted);
	printf("files %lu\n", own_files());
	printf("buffers %lu\n", own_buffers());
	printf("wrong %lu\n", wrong);
	return 0;
}

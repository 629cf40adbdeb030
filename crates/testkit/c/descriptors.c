/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Processes that open, copy, send and close descriptors in every way that they can, without a pause, so that whoever claims to know what is
 * open can be compared with /proc while they are stopped.
 *
 * Descriptors from LOW to HIGH are fair game for all threads at once: a thread closes what another has just opened. What a process needs for itself is
 * above. Each process has a second thread with the same table; some children have the same table, too (CLONE_FILES), some threads get one of
 * their own (unshare). All of it follows from the seed, but for the scheduling.
 *
 * It is C, as it is system calls and nothing else. Linked with rtscope-descriptors only (build.rs).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOW 10
#define HIGH 200
#define NEEDED 500 /* from here on: what a process needs for itself */

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

struct ring {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

struct churn {
	uint64_t random;
	char directory[64];
	int pair[2]; /* a socket pair: descriptors are sent to oneself */
	int listener;
	struct sockaddr_un name;
	struct ring ring;
	int with_ring;
};

static uint64_t next(struct churn *churn)
{
	uint64_t z = churn->random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static int any(struct churn *churn)
{
	return LOW + (int)(next(churn) % (HIGH - LOW));
}

/* Out of the way of the others. */
static int need(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, NEEDED);

	close(fd);
	return moved;
}

static void file_of(struct churn *churn, char path[96])
{
	snprintf(path, 96, "%s/%c", churn->directory, (char)('a' + next(churn) % 6));
}

static void open_one(struct churn *churn)
{
	char path[96];

	file_of(churn, path);
	if (open(path, O_RDWR | O_CREAT | (next(churn) & 1 ? O_CLOEXEC : 0), 0600) >= 0 && next(churn) % 16 == 0)
		unlink(path);
}

static void send_one(struct churn *churn)
{
	char room[CMSG_SPACE(2 * sizeof(int))] = { 0 }, byte = 'x';
	struct iovec iov = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)
	};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	int fds[2] = { any(churn), any(churn) };

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(head), fds, sizeof(fds));
	if (sendmsg(churn->pair[0], &message, MSG_DONTWAIT) < 0)
		return;
	close(fds[0]);
	message.msg_controllen = sizeof(room);
	recvmsg(churn->pair[1], &message, MSG_DONTWAIT | (next(churn) & 1 ? MSG_CMSG_CLOEXEC : 0));
}

static void accept_one(struct churn *churn)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (fd >= 0 && !connect(fd, (struct sockaddr *)&churn->name, sizeof(churn->name)))
		accept4(churn->listener, NULL, NULL, next(churn) & 1 ? SOCK_CLOEXEC : 0);
}

static void copy_one(struct churn *churn)
{
	int fd;

	switch (next(churn) % 6) {
	case 0:
		fd = dup(any(churn));
		break;
	case 1:
		fd = dup2(any(churn), any(churn));
		break;
	case 2:
		fd = dup3(any(churn), any(churn), O_CLOEXEC);
		break;
	case 3:
		fd = fcntl(any(churn), F_DUPFD, any(churn));
		break;
	case 4:
		fd = fcntl(any(churn), F_DUPFD_CLOEXEC, any(churn));
		break;
	default:
		fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
		if (fd >= 0) {
			syscall(SYS_pidfd_getfd, fd, any(churn), 0);
			close(fd);
		}
		return;
	}
	if (fd >= HIGH && fd < NEEDED)
		close(fd);
}

static void make_one(struct churn *churn)
{
	int fds[2];
	sigset_t set;

	sigemptyset(&set);
	switch (next(churn) % 8) {
	case 0:
		if (pipe2(fds, next(churn) & 1 ? O_CLOEXEC : 0))
			return;
		break;
	case 1:
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
			return;
		break;
	case 2:
		eventfd(0, next(churn) & 1 ? EFD_CLOEXEC : 0);
		break;
	case 3:
		epoll_create1(0);
		break;
	case 4:
		memfd_create("churn", next(churn) & 1 ? MFD_CLOEXEC : 0);
		break;
	case 5:
		timerfd_create(CLOCK_MONOTONIC, 0);
		break;
	case 6:
		signalfd(-1, &set, 0);
		break;
	default:
		inotify_init1(IN_CLOEXEC);
	}
}

static void change_one(struct churn *churn)
{
	int fd = any(churn);

	if (next(churn) & 1)
		fcntl(fd, F_SETFD, next(churn) & 1 ? FD_CLOEXEC : 0);
	else
		ioctl(fd, next(churn) & 1 ? FIOCLEX : FIONCLEX);
}

static void close_some(struct churn *churn)
{
	unsigned first = (unsigned)any(churn);

	switch (next(churn) % 4) {
	case 0:
		/* What has found no room in the range for all. */
		syscall(SYS_close_range, HIGH, NEEDED - 1, 0);
		break;
	case 1:
		syscall(SYS_close_range, NEEDED + 20, ~0U, 0);
		break;
	case 2:
		syscall(SYS_close_range, first, first + next(churn) % 60, CLOSE_RANGE_CLOEXEC);
		break;
	default:
		syscall(SYS_close_range, first, first + next(churn) % 60, 0);
	}
}

/* A child that runs another program with what it has, or just ends. */
static void fork_one(struct churn *churn)
{
	pid_t child = fork();

	if (!child) {
		close(any(churn));
		open_one(churn);
		if (next(churn) & 1)
			execl("/bin/true", "true", NULL);
		_exit(0);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

/* A process with the same table, which opens and closes in it. */
static void share_one(struct churn *churn)
{
	long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);

	if (!child) {
		for (int i = 0; i < 20; i++) {
			open_one(churn);
			close(any(churn));
		}
		_exit(0);
	}
	if (child > 0)
		waitpid((pid_t)child, NULL, 0);
}

static void *apart(void *argument)
{
	struct churn churn = *(struct churn *)argument;

	if (unshare(CLONE_FILES))
		return NULL;
	for (int i = 0; i < 30; i++) {
		open_one(&churn);
		close(any(&churn));
		copy_one(&churn);
	}
	return NULL;
}

/* A thread with a table of its own. */
static void part_one(struct churn *churn)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, apart, churn))
		pthread_join(thread, NULL);
}

static int make_ring(struct ring *ring)
{
	struct io_uring_params params = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 8, &params);
	char *memory;
	size_t size;

	if (fd < 0)
		return 0;
	ring->fd = need(fd);
	size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	if (size < params.sq_off.array + params.sq_entries * sizeof(unsigned))
		size = params.sq_off.array + params.sq_entries * sizeof(unsigned);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
	ring->sqes = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED,
			  ring->fd, IORING_OFF_SQES);
	if (memory == MAP_FAILED || ring->sqes == MAP_FAILED || !(params.features & IORING_FEAT_SINGLE_MMAP))
		return 0;
	ring->sq_tail = (unsigned *)(memory + params.sq_off.tail);
	ring->sq_mask = (unsigned *)(memory + params.sq_off.ring_mask);
	ring->sq_array = (unsigned *)(memory + params.sq_off.array);
	ring->cq_head = (unsigned *)(memory + params.cq_off.head);
	ring->cq_tail = (unsigned *)(memory + params.cq_off.tail);
	ring->cq_mask = (unsigned *)(memory + params.cq_off.ring_mask);
	ring->cqes = (struct io_uring_cqe *)(memory + params.cq_off.cqes);
	return 1;
}

/* One request, by the process's first thread only, and its completion. */
static void ring_one(struct churn *churn)
{
	struct ring *ring = &churn->ring;
	unsigned tail = *ring->sq_tail, place = tail & *ring->sq_mask;
	struct io_uring_sqe *sqe = &ring->sqes[place];
	char path[96];

	memset(sqe, 0, sizeof(*sqe));
	file_of(churn, path);
	switch (next(churn) % 3) {
	case 0:
		sqe->opcode = IORING_OP_OPENAT;
		sqe->fd = AT_FDCWD;
		sqe->addr = (uintptr_t)path;
		sqe->open_flags = O_RDWR | O_CREAT | (next(churn) & 1 ? O_CLOEXEC : 0);
		sqe->len = 0600;
		break;
	case 1:
		sqe->opcode = IORING_OP_CLOSE;
		sqe->fd = any(churn);
		break;
	default:
		/* By a thread of the kernel. */
		sqe->opcode = IORING_OP_OPENAT;
		sqe->flags = IOSQE_ASYNC;
		sqe->fd = AT_FDCWD;
		sqe->addr = (uintptr_t)path;
		sqe->open_flags = O_RDONLY | O_CREAT;
		sqe->len = 0600;
	}
	ring->sq_array[place] = place;
	/* ORDER: release; pairs with the kernel's acquire load of the tail. */
	__atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
	syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	/* ORDER: release; the kernel may use the places again. */
	__atomic_store_n(ring->cq_head, __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static void step(struct churn *churn, int is_first)
{
	uint64_t way = next(churn) % 1000;

	if (way < 300)
		open_one(churn);
	else if (way < 600)
		close(any(churn));
	else if (way < 720)
		copy_one(churn);
	else if (way < 800)
		make_one(churn);
	else if (way < 850)
		send_one(churn);
	else if (way < 880)
		accept_one(churn);
	else if (way < 930)
		change_one(churn);
	else if (way < 940)
		close_some(churn);
	else if (way < 944)
		fork_one(churn);
	else if (way < 946)
		share_one(churn);
	else if (way < 948)
		part_one(churn);
	else if (is_first && churn->with_ring)
		ring_one(churn);
}

static void *second(void *argument)
{
	struct churn churn = *(struct churn *)argument;

	churn.random ^= 0x5555555555555555ULL;
	for (;;)
		step(&churn, 0);
	return NULL;
}

static void churn_in(uint64_t seed, const char *directory, int with_ring)
{
	struct churn churn = { .random = seed, .name = { .sun_family = AF_UNIX } };
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(churn.directory, sizeof(churn.directory), "%s", directory);
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, churn.pair))
		_exit(1);
	churn.pair[0] = need(churn.pair[0]);
	churn.pair[1] = need(churn.pair[1]);
	/* In the abstract namespace: no file is left. */
	snprintf(churn.name.sun_path + 1, sizeof(churn.name.sun_path) - 1, "rtscope-churn-%d", getpid());
	churn.listener = need(socket(AF_UNIX, SOCK_STREAM, 0));
	if (bind(churn.listener, (struct sockaddr *)&churn.name, sizeof(churn.name)) || listen(churn.listener, 64))
		_exit(1);
	churn.with_ring = with_ring && make_ring(&churn.ring);
	if (pthread_create(&thread, NULL, second, &churn))
		_exit(1);
	for (;;)
		step(&churn, 1);
}

/* The number of processes that were started. They end with their parent. */
int rtscope_churn_start(uint64_t seed, const char *directory, int processes, int with_ring)
{
	int started = 0;

	for (int i = 0; i < processes; i++) {
		pid_t child = fork();

		if (!child)
			churn_in(seed + (uint64_t)i * 1000003, directory, with_ring);
		started += child > 0;
	}
	return started;
}

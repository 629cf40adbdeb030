/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The system calls that a traced program makes when it starts and when a thread's ring is made. They go to the kernel
 * directly: errno stays what it is, signal handlers may use them, and the header works under -std=c11 whatever the program has
 * defined before it included the C library's headers.
 */
#ifndef RTSCOPE_SYSTEM_H
#define RTSCOPE_SYSTEM_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "names.h"
#include "sanitize.h"

#include <asm/unistd.h>
#include <linux/stat.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The C library's, under names that cannot collide with its own declarations. */
struct rtscope__object_info;
extern int rtscope__clock_gettime(int clock, struct timespec *time) __asm__("clock_gettime");
extern char *rtscope__getenv(const char *name) __asm__("secure_getenv");
extern unsigned long rtscope__auxiliary(unsigned long type) __asm__("getauxval");
extern int rtscope__iterate_objects(int (*visit)(struct rtscope__object_info *, size_t, void *),
				    void *) __asm__("dl_iterate_phdr");
extern int rtscope__key_create(unsigned int *key, void (*end)(void *)) __asm__("pthread_key_create");
extern int rtscope__key_set(unsigned int key, const void *value) __asm__("pthread_setspecific");
extern int rtscope__at_fork(void (*before)(void), void (*parent)(void), void (*child)(void)) __asm__("pthread_atfork");
/* For libraries only: linkers warn of it in programs that are linked statically, and those have no use for it. */
#if defined(__PIC__) && !defined(__PIE__)
extern void *rtscope__load(const char *path, int mode) __asm__("dlopen") __attribute__((weak));
#endif

#ifdef __cplusplus
}
#endif

#define RTSCOPE__CLOCK_REALTIME 0
#define RTSCOPE__CLOCK_MONOTONIC 1
#define RTSCOPE__CLOCK_BOOTTIME 7
/* PTHREAD_DESTRUCTOR_ITERATIONS */
#define RTSCOPE__KEY_ROUNDS 4

/* asm-generic/fcntl.h, asm/fcntl.h */
#define RTSCOPE__O_RDONLY 0
#define RTSCOPE__O_WRONLY 1
#define RTSCOPE__O_RDWR 2
#define RTSCOPE__O_CREAT 0100
#define RTSCOPE__O_EXCL 0200
#define RTSCOPE__O_APPEND 02000
#define RTSCOPE__O_NONBLOCK 04000
#define RTSCOPE__O_DSYNC 010000
#define RTSCOPE__O_NOCTTY 0400
#define RTSCOPE__O_CLOEXEC 02000000
#define RTSCOPE__O_PATH 010000000
#if defined(__aarch64__)
#define RTSCOPE__O_NOFOLLOW 0100000
#define RTSCOPE__O_DIRECTORY 040000
#else
#define RTSCOPE__O_NOFOLLOW 0400000
#define RTSCOPE__O_DIRECTORY 0200000
#endif
#define RTSCOPE__AT_FDCWD (-100)
/* In the place of a directory's descriptor, for absolute paths, of which the kernel does not look at it: no link on the way is followed (openat2(2), since Linux 5.6). */
#define RTSCOPE__STRAIGHT (-101)
#define RTSCOPE__AT_SYMLINK_NOFOLLOW 0x100

/* asm-generic/mman-common.h */
#define RTSCOPE__PROT_RW 3
#define RTSCOPE__MAP_SHARED 1
#define RTSCOPE__MAP_PRIVATE 2
#define RTSCOPE__MAP_FIXED 0x10
#define RTSCOPE__MAP_ANONYMOUS 0x20
#define RTSCOPE__MAP_NORESERVE 0x4000
#define RTSCOPE__MAP_POPULATE 0x8000
#define RTSCOPE__MADV_WIPEONFORK 18

/* Later than some headers of the kernel. */
#if !defined(__NR_rseq) && defined(__x86_64__)
#define __NR_rseq 334
#elif !defined(__NR_rseq)
#define __NR_rseq 293
#endif

#if !defined(__NR_openat2)
#define __NR_openat2 437
#endif

/* linux/auxvec.h */
#define RTSCOPE__AT_PHDR 3
#define RTSCOPE__AT_PAGESZ 6
#define RTSCOPE__AT_SECURE 23
#define RTSCOPE__AT_SYSINFO_EHDR 33

#define RTSCOPE__RLIMIT_FSIZE 1
#define RTSCOPE__RLIMIT_MEMLOCK 8
#define RTSCOPE__PR_GET_NAME 16
#define RTSCOPE__PR_GET_SECCOMP 21
#define RTSCOPE__PR_GET_TSC 25
#define RTSCOPE__PR_GET_TIMERSLACK 30
#define RTSCOPE__PR_TSC_SIGSEGV 2
#define RTSCOPE__PR_GET_NO_NEW_PRIVS 39

/* asm-generic/errno-base.h */
#define RTSCOPE__EPERM 1
#define RTSCOPE__ENOENT 2
#define RTSCOPE__ESRCH 3
#define RTSCOPE__EINTR 4
#define RTSCOPE__ENXIO 6
#define RTSCOPE__E2BIG 7
#define RTSCOPE__EBADF 9
#define RTSCOPE__EAGAIN 11
#define RTSCOPE__ENOMEM 12
#define RTSCOPE__EACCES 13
#define RTSCOPE__EFAULT 14
#define RTSCOPE__EEXIST 17
#define RTSCOPE__EISDIR 21
#define RTSCOPE__ELOOP 40 /* asm-generic/errno.h */
#define RTSCOPE__EINVAL 22
#define RTSCOPE__ENOSYS 38
#define RTSCOPE__ENFILE 23
#define RTSCOPE__EMFILE 24
#define RTSCOPE__ENOTTY 25
#define RTSCOPE__EFBIG 27
#define RTSCOPE__ENOSPC 28
#define RTSCOPE__ENOTSUP 95

static inline int rtscope__is_error(long result)
{
	return (unsigned long)result > (unsigned long)-4096L;
}

/* For a sanitizer: what a system call has mapped or written. */
static inline void rtscope__note(long number, long b, long c, long d, long result)
{
	(void)c;
	if (number == __NR_mmap && !rtscope__is_error(result))
		RTSCOPE__FRESH(result, b);
	else if (number == __NR_mremap && !rtscope__is_error(result))
		RTSCOPE__FRESH(result, c);
	else if (number == __NR_pread64 && result > 0)
		RTSCOPE__FRESH(b, result);
	else if (number == __NR_prlimit64 && !result && d)
		RTSCOPE__FRESH(d, 16);
	(void)b;
	(void)d;
}

/* A result from -4095 to -1 is an error. */
static inline long rtscope__call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ __volatile__("syscall"
			     : "=a"(result)
			     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			     : "rcx", "r11", "memory");
	rtscope__note(number, b, c, d, result);
	return result;
#else
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ __volatile__("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	rtscope__note(number, b, c, d, x0);
	return x0;
#endif
}

/* The same, tried again when a signal came in between. Not for ever: something else may say EINTR for its own reasons. */
static inline long rtscope__call_again(long number, long a, long b, long c, long d, long e, long f)
{
	long result = -RTSCOPE__EINTR;

	for (int tries = 0; tries < 10000 && result == -RTSCOPE__EINTR; tries++)
		result = rtscope__call(number, a, b, c, d, e, f);
	return result;
}

/* ---- open files ------------------------------------------------------------------------------------------------------ */

/*
 * A program may close descriptors that it does not know (closefrom(3)) at any moment, and the next file that it opens itself has the number then. So by the number
 * of a file nothing is done that changes what it is, or whether it is still ours is asked before: what it says is read without moving its position, it gets
 * its size by its path, and its pages may be reserved, which others' files keep as they are. A mapping is one of ours if the number is still that of our file
 * behind it: nobody else opens that one. Between asking and closing a tenth of a microsecond is left.
 */
struct rtscope__file {
	int number;	   /* an error, in its place, is a small negative number */
	uint64_t identity; /* 0: the kernel does not tell */
};
#define RTSCOPE__NO_FILE (~(uint64_t)0)

/* A word of a struct stat of 64-bit Linux. */
static inline uint64_t rtscope__word_of_stat(const void *stat, int number)
{
	uint64_t word;

	__builtin_memcpy(&word, (const char *)stat + 8 * number, sizeof(word));
	return word;
}

/*
 * What struct stat says, in the same memory: of struct statx all that this header asks for. (All words are read before the first is written.)
 */
static inline void rtscope__make_statx(struct statx *status)
{
	const uint64_t device = rtscope__word_of_stat(status, 0), inode = rtscope__word_of_stat(status, 1);
	const uint64_t size = rtscope__word_of_stat(status, 6), changed_s = rtscope__word_of_stat(status, 11);
#if defined(__x86_64__)
	const uint64_t mode = rtscope__word_of_stat(status, 3), user = mode >> 32;
	const uint64_t of_device = rtscope__word_of_stat(status, 5);
#else
	const uint64_t mode = rtscope__word_of_stat(status, 2), user = rtscope__word_of_stat(status, 3);
	const uint64_t of_device = rtscope__word_of_stat(status, 4);
#endif

	status->stx_mode = (uint16_t)mode;
	status->stx_uid = (uint32_t)user;
	status->stx_ino = inode;
	status->stx_size = size;
	status->stx_mtime.tv_sec = (int64_t)changed_s;
	/* The kernel's new_encode_dev(). */
	status->stx_dev_major = (uint32_t)(device >> 8) & 0xfff;
	status->stx_dev_minor = (uint32_t)((device & 0xff) | (device >> 12 & 0xfff00));
	status->stx_rdev_major = (uint32_t)(of_device >> 8) & 0xfff;
	status->stx_rdev_minor = (uint32_t)((of_device & 0xff) | (of_device >> 12 & 0xfff00));
}

/*
 * statx(2); where that is refused, newfstatat(2): filters of system calls that are older than it (Linux 4.11) refuse it, as those of old containers and sandboxes do, and C
 * libraries ask in that way then, too.
 */
static RTSCOPE__NOT_INLINE int rtscope__ask_status(int file, const char *path, int flags, struct statx *status)
{
	long error = rtscope__call_again(__NR_statx, file, (long)path, flags, STATX_BASIC_STATS, (long)status, 0);

	if (error != -RTSCOPE__ENOSYS && error != -RTSCOPE__EPERM && error != -RTSCOPE__EACCES)
		return (int)error;
	error = rtscope__call_again(__NR_newfstatat, file, (long)path, (long)status, flags, 0, 0);
	if (!error) {
		RTSCOPE__FRESH(status, sizeof(*status));
		rtscope__make_statx(status);
	}
	return (int)error;
}

/* Of a path that is not a link, or, with path "", of an open file. */
static inline int rtscope__status(int file, const char *path, struct statx *status)
{
	/* 0x1000: AT_EMPTY_PATH */
	return rtscope__ask_status(file, path, RTSCOPE__AT_SYMLINK_NOFOLLOW | (*path ? 0 : 0x1000), status);
}

/* What tells a file from others, also of other file systems: the numbers of two can be the same. */
static inline uint64_t rtscope__identity_of_numbers(uint64_t inode, uint32_t major, uint32_t minor)
{
	return inode ^ (uint64_t)minor << 40 ^ (uint64_t)major << 60;
}

static inline uint64_t rtscope__identity(const struct statx *status)
{
	return rtscope__identity_of_numbers(status->stx_ino, status->stx_dev_major, status->stx_dev_minor);
}

/*
 * That of a path that is not a link, or, with path "", of an open file. 0: the kernel does not tell. `owner`, if not NULL: what it is and whose. Not inlined,
 * and not by statx(2), whose result is larger by 112 bytes: callers have little stack. The layout is that of struct stat of 64-bit Linux. As far as the kernel knows it:
 * the server of a file system, which the program may have opened a file of, is not asked (AT_STATX_DONT_SYNC).
 */
struct rtscope__owner {
	uint32_t mode, user;
};
static RTSCOPE__NOT_INLINE uint64_t rtscope__identity_of(int file, const char *path, struct rtscope__owner *owner)
{
	uint64_t status[18];
	int flags = RTSCOPE__AT_SYMLINK_NOFOLLOW | (*path ? 0 : 0x1000);
	long error = rtscope__call_again(__NR_newfstatat, file, (long)path, (long)status, flags | 0x4000, 0, 0);

	/* Other kernels than Linux, which have its system calls. */
	if (error == -RTSCOPE__EINVAL)
		error = rtscope__call_again(__NR_newfstatat, file, (long)path, (long)status, flags, 0, 0);
	/* EFAULT, ENOMEM: at the end of a stack, or of memory. It is not another file because of that. */
	if (error == -RTSCOPE__ENOSYS || error == -RTSCOPE__EPERM || error == -RTSCOPE__EFAULT ||
	    error == -RTSCOPE__ENOMEM)
		return 0;
	if (error)
		return RTSCOPE__NO_FILE;
	RTSCOPE__FRESH(status, sizeof(status));
#if defined(__x86_64__)
	if (owner) {
		owner->mode = (uint32_t)status[3];
		owner->user = (uint32_t)(status[3] >> 32);
	}
#else
	if (owner) {
		owner->mode = (uint32_t)status[2];
		owner->user = (uint32_t)status[3];
	}
#endif
	/* st_ino, and st_dev as the kernel's new_encode_dev() makes it. */
	return rtscope__identity_of_numbers(status[1], (uint32_t)(status[0] >> 8) & 0xfff,
					    (uint32_t)((status[0] & 0xff) | (status[0] >> 12 & 0xfff00)));
}

/* Whether the number is still that of the file that was opened. One that is closed is nobody's, and may be another one's at once. */
static inline int rtscope__is_ours(struct rtscope__file file)
{
	uint64_t identity;

	if (!file.identity || file.identity == RTSCOPE__NO_FILE)
		return !file.identity;
	identity = rtscope__identity_of(file.number, "", NULL);
	return !identity || identity == file.identity;
}

static inline void rtscope__close_number(int file)
{
	rtscope__call(__NR_close, file, 0, 0, 0, 0, 0);
}

/* Flags that change nothing where a file is only read: whoever else has them reads a file on disk in a way that has no use. */
#define RTSCOPE__MARK (RTSCOPE__O_APPEND | RTSCOPE__O_DSYNC)

static RTSCOPE__NOT_INLINE int rtscope__is_marked(int file)
{
	/* 3: F_GETFL; with how it is opened, of which RTSCOPE__O_RDONLY is 0 */
	long flags = rtscope__call(__NR_fcntl, file, 3, 0, 0, 0, 0);

	return !rtscope__is_error(flags) && (flags & (RTSCOPE__MARK | 3)) == RTSCOPE__MARK;
}

/* openat(2). */
static inline int rtscope__open_from(int directory, const char *path, int flags, int mode)
{
	/* struct open_how; 4: RESOLVE_NO_SYMLINKS. Of what is not made the kernel wants no mode. */
	const uint64_t how[3] = { (uint64_t)flags, flags & RTSCOPE__O_CREAT ? (uint64_t)mode : 0, 4 };

	if (directory == RTSCOPE__STRAIGHT)
		return (int)rtscope__call_again(__NR_openat2, RTSCOPE__AT_FDCWD, (long)path, (long)how, sizeof(how), 0,
						0);
	return (int)rtscope__call_again(__NR_openat, directory, (long)path, flags, mode, 0, 0);
}

/*
 * Opens the file at this path, which others may exchange while that happens. If the number is of neither the one before nor the one after, it is ours if it has
 * our mark, and is closed. Without one it may be the program's, and stays as it is: only files of this user have none, whose names nobody else exchanges.
 */
static inline struct rtscope__file rtscope__open_in(int directory, const char *path, int flags, int mode)
{
	struct rtscope__file file = { 0, RTSCOPE__NO_FILE };

	/* What is to be made is not there yet. */
	if (!(flags & RTSCOPE__O_EXCL))
		file.identity = rtscope__identity_of(directory, path, NULL);
	if (!(flags & (RTSCOPE__O_RDWR | RTSCOPE__O_PATH)))
		flags |= RTSCOPE__MARK;
	file.number = rtscope__open_from(directory, path, flags | RTSCOPE__O_CLOEXEC | RTSCOPE__O_NOFOLLOW, mode);
	if (file.number < 0 || rtscope__is_ours(file))
		return file;
	file.identity = rtscope__identity_of(directory, path, NULL);
	if (rtscope__is_ours(file))
		return file;
	if (rtscope__is_marked(file.number))
		rtscope__close_number(file.number);
	file.number = -RTSCOPE__EBADF;
	return file;
}

static inline struct rtscope__file rtscope__open(const char *path, int flags, int mode)
{
	return rtscope__open_in(RTSCOPE__AT_FDCWD, path, flags, mode);
}

static inline void rtscope__close(struct rtscope__file file)
{
	if (rtscope__is_ours(file))
		rtscope__close_number(file.number);
}

/* From its beginning. Of what cannot be read so, such as a pipe of the program's with the same number, nothing is taken. */
static inline long rtscope__read(struct rtscope__file file, void *to, uint64_t bytes)
{
	return rtscope__call_again(__NR_pread64, file.number, (long)to, (long)bytes, 0, 0, 0);
}

/*
 * A file that is one of the standard streams all the same, since another thread has closed what it had there: under another number. What the program has
 * written meanwhile is in it: -EBADF of a new file.
 */
static RTSCOPE__NOT_INLINE struct rtscope__file rtscope__move_behind_streams(struct rtscope__file file, int flags)
{
	struct rtscope__file moved = file;

	/* 1030: F_DUPFD_CLOEXEC */
	moved.number = (int)rtscope__call(__NR_fcntl, file.number, 1030, 3, 0, 0, 0);
	rtscope__close(file);
	if (moved.number < 0 || !(flags & RTSCOPE__O_EXCL))
		return moved;
	/* 2: SEEK_END */
	if (!rtscope__is_ours(moved) || rtscope__call(__NR_lseek, moved.number, 0, 2, 0, 0, 0)) {
		rtscope__close(moved);
		moved.number = -RTSCOPE__EBADF;
	}
	return moved;
}

/*
 * Opens a file, and not as one of the standard streams, which a program may have closed and still write to: its text would get into the
 * file. What has their numbers meanwhile cannot be written to.
 */
static inline struct rtscope__file rtscope__open_behind_streams(int directory, const char *path, int flags, int mode)
{
	struct rtscope__file file = { 0, 0 };
	int low[3], count = 0;
	uint64_t identity = 0;

	for (int stream = 0; stream < 3; stream++) {
		/* 1: F_GETFD */
		if (rtscope__call(__NR_fcntl, stream, 1, 0, 0, 0, 0) != -RTSCOPE__EBADF)
			continue;
		file = rtscope__open("/", RTSCOPE__O_PATH, 0);
		if (file.number >= 0)
			low[count++] = file.number;
		identity = file.identity;
	}
	file = rtscope__open_in(directory, path, flags, mode);
	if (file.number >= 0 && file.number < 3)
		file = rtscope__move_behind_streams(file, flags);
	while (count) {
		struct rtscope__file one = { low[--count], identity };

		rtscope__close(one);
	}
	return file;
}

static inline void rtscope__unlink_in(int directory, const char *path)
{
	rtscope__call(__NR_unlinkat, directory, (long)path, 0, 0, 0, 0);
}

/* `file` -1: private memory of no file. An error is a small negative number, as for all of these. */
static inline long rtscope__map(uint64_t bytes, int flags, int file)
{
	return rtscope__call_again(__NR_mmap, 0, (long)bytes, RTSCOPE__PROT_RW, flags, file, 0);
}

static inline void rtscope__unmap(void *memory, uint64_t bytes)
{
	rtscope__call(__NR_munmap, (long)memory, (long)bytes, 0, 0, 0, 0);
}

static inline uint64_t rtscope__whole_pages(uint64_t bytes)
{
	const uint64_t page = rtscope__auxiliary(RTSCOPE__AT_PAGESZ);

	return (bytes + page - 1) / page * page;
}

/*
 * Whether what is mapped is not to be locked. After mlockall(MCL_FUTURE) each mapping counts as locked, from when it is made until munlock(2), and where ours took
 * what the limit leaves (RLIMIT_MEMLOCK), the program's own malloc() would fail; RTSCOPE_LOCK asks for that. Also where the limit does not apply now (CAP_IPC_LOCK): what
 * was locked counts when the program gives that right up, and in a user namespace the right is none.
 */
RTSCOPE__HIDDEN uint32_t rtscope__unlocks = 0;

static inline void rtscope__unlock(void *memory, uint64_t bytes)
{
	rtscope__call(__NR_munlock, (long)memory, (long)bytes, 0, 0, 0, 0);
}

/*
 * Finds out, by a page, whether what is mapped now is locked, and has a limit. Else nothing is unlocked: a filter of system calls may end the process for that
 * (systemd's SystemCallFilter=~@memlock).
 */
static RTSCOPE__NOT_INLINE void rtscope__ask_locked(void)
{
	uint32_t unlocks = 0;
	uint64_t limit[2];
	long page = -RTSCOPE__EINVAL;

	if (!rtscope__call(__NR_prlimit64, 0, RTSCOPE__RLIMIT_MEMLOCK, 0, (long)limit, 0, 0) &&
	    limit[0] != ~(uint64_t)0)
		page = rtscope__map(4096, RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS, -1);
	if (!rtscope__is_error(page)) {
		/* 4: MADV_DONTNEED, which is refused for what is locked */
		unlocks = rtscope__call(__NR_madvise, page, 4096, 4, 0, 0, 0) == -RTSCOPE__EINVAL;
		rtscope__unmap((void *)page, 4096);
	}
	/* ORDER: relaxed; threads that find out at once find out the same. */
	__atomic_store_n(&rtscope__unlocks, unlocks, __ATOMIC_RELAXED);
}

/* Private memory of no file, which nobody has touched. Where it is not to be locked, a page that is not grows: a mapping that grows stays what it is. */
static RTSCOPE__NOT_INLINE long rtscope__map_nothing(uint64_t bytes)
{
	/* ORDER: relaxed; as in rtscope__ask_locked(). */
	const uint64_t first = __atomic_load_n(&rtscope__unlocks, __ATOMIC_RELAXED) ? 4096 : bytes;
	long memory = rtscope__map(first, RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS | RTSCOPE__MAP_NORESERVE, -1);
	void *page = (void *)memory;

	if (rtscope__is_error(memory) || first == bytes)
		return memory;
	rtscope__unlock(page, first);
	/* 1: MREMAP_MAYMOVE */
	memory = rtscope__call_again(__NR_mremap, memory, (long)first, (long)bytes, 1, 0, 0);
	if (rtscope__is_error(memory))
		rtscope__unmap(page, first);
	return memory;
}

/*
 * Private memory of zeros in the place of what is mapped there, at once: whoever stands in it, such as an event that a handler has
 * interrupted, finds memory all the time.
 */
static RTSCOPE__NOT_INLINE long rtscope__map_over(void *memory, uint64_t bytes)
{
	int flags = RTSCOPE__MAP_ANONYMOUS | RTSCOPE__MAP_NORESERVE | RTSCOPE__MAP_FIXED;
	/* ORDER: relaxed; as in rtscope__ask_locked(). */
	uint32_t unlocks = bytes > 4096 && __atomic_load_n(&rtscope__unlocks, __ATOMIC_RELAXED);
	long nothing = unlocks ? rtscope__map_nothing(bytes) : -RTSCOPE__EINVAL;
	long at = nothing;

	/* 3: MREMAP_MAYMOVE | MREMAP_FIXED */
	if (!rtscope__is_error(nothing))
		at = rtscope__call_again(__NR_mremap, nothing, (long)bytes, (long)bytes, 3, (long)memory, 0);
	if (!rtscope__is_error(at))
		return at;
	if (!rtscope__is_error(nothing))
		rtscope__unmap((void *)nothing, bytes);
	at = rtscope__call_again(__NR_mmap, (long)memory, (long)bytes, RTSCOPE__PROT_RW, flags | RTSCOPE__MAP_PRIVATE,
				 -1, 0);
	/* RLIMIT_DATA counts private memory, not this, which is as private: a fork's child maps over it again. */
	if (rtscope__is_error(at))
		at = rtscope__call_again(__NR_mmap, (long)memory, (long)bytes, RTSCOPE__PROT_RW,
					 flags | RTSCOPE__MAP_SHARED, -1, 0);
	return at;
}

/*
 * The PID namespace of the calling process, as a number; 0: there is no /proc. A process that was made into another one can have the number of the one that
 * made it: each is the first of its own. Not inlined, since callers go on to deeper stacks.
 */
static RTSCOPE__NOT_INLINE uint64_t rtscope__pid_space(void)
{
	struct statx status;

	/* Followed, unlike our own files: this link is the kernel's. */
	if (rtscope__ask_status(RTSCOPE__AT_FDCWD, "/proc/self/ns/pid", 0, &status))
		return 0;
	return status.stx_ino;
}

/* LOCK_EX | LOCK_NB: 0 when nobody else has it. */
static inline int rtscope__lock_file(int file)
{
	return (int)rtscope__call_again(__NR_flock, file, 2 | 4, 0, 0, 0, 0);
}

/* All but SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV and SIGSYS; and SIGKILL and SIGSTOP, which nobody can block. */
#define RTSCOPE__SIGNALS \
	(~(1ULL << 3 | 1ULL << 4 | 1ULL << 6 | 1ULL << 7 | 1ULL << 10 | 1ULL << 30 | 1ULL << 8 | 1ULL << 18))

/*
 * No signal of this thread from here on, until they are let through again; but for those of what it does itself. The kernel ends a process that blocks these, although
 * it has handlers: of writes to its own data (checkpoints), of each instruction (TF), of system calls (sandboxes).
 */
static inline uint64_t rtscope__block_signals(void)
{
	uint64_t others = RTSCOPE__SIGNALS, before = 0;

	/* SIG_BLOCK */
	rtscope__call(__NR_rt_sigprocmask, 0, (long)&others, (long)&before, 8, 0, 0);
	return before;
}

/* Whether this thread is where it has blocked signals, or in a handler of what it did there. It may have jumped out of that (siglongjmp() out of a handler of SIGSEGV). */
static inline int rtscope__has_blocked_signals(void)
{
	uint64_t blocked = RTSCOPE__SIGNALS;

	rtscope__call(__NR_rt_sigprocmask, 0, 0, (long)&blocked, 8, 0, 0);
	RTSCOPE__FRESH(&blocked, sizeof(blocked));
	return (blocked & RTSCOPE__SIGNALS) == RTSCOPE__SIGNALS;
}

/*
 * Takes away SIGXFSZ, before signals are let through: it would end the program. The kernel has sent it to the calling thread for a file that was to be larger than the
 * process's limit, which another thread or process has lowered since rtscope__fits_limit().
 */
static RTSCOPE__NOT_INLINE void rtscope__take_size_signal(void)
{
	/* Of the signals, as rtscope__block_signals() counts them, the 25th. */
	const uint64_t one = 1ULL << 24;
	const struct timespec now = { 0, 0 };

	rtscope__call_again(__NR_rt_sigtimedwait, (long)&one, 0, (long)&now, 8, 0, 0);
}

static inline void rtscope__let_signals(uint64_t before)
{
	rtscope__call(__NR_rt_sigprocmask, 2, (long)&before, 0, 8, 0, 0);
}

static inline uint32_t rtscope__user(void)
{
	return (uint32_t)rtscope__call(__NR_geteuid, 0, 0, 0, 0, 0, 0);
}

static inline void rtscope__thread_name(char *name)
{
	rtscope__call(__NR_prctl, RTSCOPE__PR_GET_NAME, (long)name, 0, 0, 0, 0);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An instrumented program whose child was forked while nobody recorded, and can no more be seen when somebody does:
 *
 *   hidden WAY COUNT
 *
 * Ways: nothing (it can be seen), root (chroot into /proc), memory (another /dev/shm), landlock (it may read and make no file), filter
 * (seccomp), files (it may open none). Prints "ready", waits for a line, and the child emits COUNT events; then "emitted N". Of the way "forked" nobody
 * waits, and no file can be made when the child is forked.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int other_memory(void)
{
	return unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	       mount("rtscope-test", "/dev/shm", "tmpfs", 0, "size=1m");
}

/* landlock(7): rights to read files, to write them, and to make some, and no rule that gives them anywhere. */
static int landlock(void)
{
	struct {
		uint64_t rights;
	} all = { 1 << 2 | 1 << 1 | 1 << 8 };
	long rules = syscall(444, &all, sizeof(all), 0);

	return rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(446, rules, 0);
}

static int filter(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int go(const char *way)
{
	struct rlimit none = { 0, 0 };

	if (!strcmp(way, "root"))
		return chroot("/proc") || chdir("/");
	if (!strcmp(way, "memory"))
		return other_memory();
	if (!strcmp(way, "landlock"))
		return landlock();
	if (!strcmp(way, "filter"))
		return filter();
	if (!strcmp(way, "files"))
		return setrlimit(RLIMIT_NOFILE, &none);
	return strcmp(way, "nothing") != 0 && strcmp(way, "forked") != 0;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
	int lines[2], status = 0;
	char letter;
	/* Of some bytes: a session can be read. */
	struct rlimit few = { 64, 64 };
	int waits = strcmp(way, "forked") != 0;
	pid_t child;

	if (pipe(lines) || (!waits && setrlimit(RLIMIT_FSIZE, &few)))
		return 1;
	child = fork();
	if (child < 0)
		return 1;
	if (!child) {
		if (go(way))
			_exit(7);
		if (waits) {
			puts("ready");
			fflush(stdout);
		}
		/* The parent waits for the line: it is the one whose standard input that is. */
		if (waits && read(lines[0], &letter, 1) != 1)
			_exit(1);
		for (unsigned long i = 0; i < count; i++)
			RTSCOPE_EVENT(test, hidden, rtscope_u64(n, i));
		_exit(0);
	}
	if ((waits && (read(0, &letter, 1) < 0 || write(lines[1], "x", 1) != 1)) || waitpid(child, &status, 0) != child)
		return 1;
	printf("emitted %lu\n", count);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A command whose system calls of these numbers fail with ERRNO, as a filter of system calls that is older than they are lets them: refused ERRNO NUMBER... -- COMMAND.
 * Ends with 77 where there are no filters.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MOST 64

int main(int argc, char **argv)
{
	struct sock_filter code[2 + 2 * MOST] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog program = { 1, code };
	int at = 2;

	if (argc < 3)
		return 1;
	for (; at < argc && strcmp(argv[at], "--") != 0 && at < MOST; at++) {
		struct sock_filter is_it =
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)strtoul(argv[at], NULL, 10), 0, 1);
		struct sock_filter refuse =
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)strtoul(argv[1], NULL, 10));

		code[program.len++] = is_it;
		code[program.len++] = refuse;
	}
	code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (at + 1 >= argc)
		return 1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 77;
	execv(argv[at + 1], argv + at + 1);
	return 1;
}

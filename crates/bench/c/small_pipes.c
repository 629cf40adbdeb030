// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Preloaded into a program, it makes the program's pipes one page small, so that a writer of a page has a
 * switch for each page instead of one for sixteen. See crates/bench/src/record.rs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int pipe(int ends[2])
{
	if (syscall(SYS_pipe2, ends, 0))
		return -1;
	return fcntl(ends[1], F_SETPIPE_SZ, 4096) < 0 ? -1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ten events; then a user namespace in which nobody has a number, and a child there with twenty. Prints "emitted 30".
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void emit(int count)
{
	for (int i = 0; i < count; i++)
		RTSCOPE_EVENT(test, count, rtscope_u64(n, i));
}

int main(void)
{
	int status = 0;
	pid_t child;

	emit(10);
	if (unshare(CLONE_NEWUSER))
		return 2;
	child = fork();
	if (!child) {
		emit(20);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		return 1;
	puts("emitted 30");
	return 0;
}

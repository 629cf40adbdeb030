/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Orders, for what is recorded of them to be chosen: COUNT orders (1000) with prices from 1 up in a thread named "matcher", and as many lines
 * of a log in the first thread, in turn of each level. Prints how many of each. With a second argument it does so in a child of a child, whose
 * parent waits for it.
 */
#include <rtscope/rtscope.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

RTSCOPE_ENUM(side, { 0, "buy" }, { 1, "sell" });

static int count = 1000;

static void *match(void *nothing)
{
	(void)nothing;
	prctl(PR_SET_NAME, "matcher");
	for (int i = 1; i <= count; i++)
		RTSCOPE_EVENT(test, order, rtscope_s32(id, i), rtscope_f64(price, i), rtscope_enum(side, side, i % 2),
			      rtscope_str(symbol, i % 4 ? "EURUSD" : "USDJPY"));
	return NULL;
}

static int work(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, match, NULL);
	pthread_join(thread, NULL);
	for (int i = 0; i < count; i++) {
		RTSCOPE_EVENT_LEVEL(RTSCOPE_ERR, test, error, rtscope_s32(n, i));
		RTSCOPE_EVENT_LEVEL(RTSCOPE_WARNING, test, warning, rtscope_s32(n, i));
		RTSCOPE_EVENT(test, info, rtscope_s32(n, i));
	}
	/* Long enough for a recorder to see whose child this is. */
	poll(NULL, 0, 200);
	printf("emitted %d\n", 4 * count);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		count = atoi(argv[1]);
	for (int depth = argc > 2 ? 2 : 0; depth; depth--) {
		int status = 1;
		pid_t child = fork();

		if (!child)
			continue;
		return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1;
	}
	return work();
}

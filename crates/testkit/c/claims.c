/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Lies about its losses: once somebody records it, its own count of them says that it has lost as many more as it is told. It has one event, which is
 * in the recording, and is over a moment later.
 */
#include <rtscope/rtscope.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	RTSCOPE_EVENT(test, claim, rtscope_s32(n, argc));
	if (argc > 1 && rtscope__leader && rtscope__leader->provider)
		rtscope__leader->provider->lost[RTU_LOST_NO_RING] += strtoull(argv[1], NULL, 10);
	poll(NULL, 0, 200);
	printf("emitted 1\n");
	return 0;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// A job of a test run: as many events as its first argument says, a line of output, and its second argument as exit status.
#include <rtscope/rtscope.h>

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
	long steps = count > 1 ? atol(words[1]) : 0;

	for (long step = 0; step < steps; step++)
		RTSCOPE_EVENT(job, step, rtscope_s64(number, step));
	printf("did %ld steps\n", steps);
	return count > 2 ? atoi(words[2]) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Prints which clock a program that starts now uses: a number of enum rtu_clock. */
#include <rtscope/rtscope.h>

#include <stdio.h>

int main(void)
{
	printf("clock %u\n", rtscope__clock_kind());
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that does what lines of its input say, and answers each with "ok":
 *
 *   emit N          events of its own
 *   load LIBRARY    by dlopen(3)
 *   apart LIBRARY   the same in a namespace of its own, by dlmopen(3)
 *   library N       in the library that was loaded: library_emit(N), which emits two events each (library.c)
 *   become PROGRAM  by execve(2), with no arguments
 *
 * Says "ready" when it begins, and ends with its input. Its only event has a short description: the file that tells it is as short as can be.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*library_emit)(unsigned long);

static int load(void *library)
{
	if (library)
		*(void **)&library_emit = dlsym(library, "library_emit");
	return library_emit ? 0 : 1;
}

static int obey(const char *order, char *rest)
{
	if (!strcmp(order, "emit")) {
		for (unsigned long n = strtoul(rest, NULL, 10); n; n--)
			RTSCOPE_EVENT(test, a, rtscope_u64(n, n));
		return 0;
	}
	if (!strcmp(order, "load"))
		return load(dlopen(rest, RTLD_NOW));
	if (!strcmp(order, "apart"))
		return load(dlmopen(LM_ID_NEWLM, rest, RTLD_NOW));
	if (!strcmp(order, "library") && library_emit) {
		library_emit(strtoul(rest, NULL, 10));
		return 0;
	}
	if (!strcmp(order, "become"))
		execl(rest, rest, (char *)NULL);
	return 1;
}

int main(void)
{
	static char line[4096];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		char *space = strchr(line, ' ');

		line[strcspn(line, "\n")] = 0;
		if (!space)
			return 2;
		*space = 0;
		if (obey(line, space + 1))
			return 1;
		puts("ok");
		fflush(stdout);
	}
	return 0;
}

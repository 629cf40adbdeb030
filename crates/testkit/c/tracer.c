/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A tracer of functions made of events, for tests: compiled with -finstrument-functions, or with -fsanitize-coverage=trace-pc. It calls
 * each of two functions as often as its argument says.
 */
#include <rtscope/rtscope.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define NOT_TRACED __attribute__((no_instrument_function))

static unsigned long emitted;

void __cyg_profile_func_enter(void *function, void *caller) NOT_TRACED;
void __cyg_profile_func_exit(void *function, void *caller) NOT_TRACED;
void __cyg_profile_func_enter(void *function, void *caller)
{
	(void)caller;
	emitted++;
	RTSCOPE_EVENT(test, enter, rtscope_x64(function, (uintptr_t)function));
}

void __cyg_profile_func_exit(void *function, void *caller)
{
	(void)caller;
	emitted++;
	RTSCOPE_EVENT(test, leave, rtscope_x64(function, (uintptr_t)function));
}

#if defined(COVERAGE)
void __sanitizer_cov_trace_pc(void) __attribute__((no_sanitize_coverage));
void __sanitizer_cov_trace_pc(void)
{
	emitted++;
	RTSCOPE_EVENT(test, covered);
}
#endif

static volatile unsigned long sum;

static __attribute__((noinline)) void inner(unsigned long i)
{
	sum = sum + i;
}

static __attribute__((noinline)) void outer(unsigned long i)
{
	inner(i);
	sum = sum + 1;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;

	rtscope_thread_init();
	for (unsigned long i = 0; i < count; i++)
		outer(i);
	/* That of leaving this function comes after it was printed. */
	printf("emitted %lu\n", emitted);
	fflush(stdout);
	rtscope_thread_exit();
	_Exit(0);
}

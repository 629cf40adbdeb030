/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library with events, one of which has a name that the program (unusual.c) uses with other fields. */
#include <rtscope/rtscope.h>

void library_emit(unsigned long count);

/* Emits two events `count` times. */
void library_emit(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		RTSCOPE_EVENT(test, library, rtscope_u64(n, i));
		RTSCOPE_EVENT(test, same, rtscope_str(text, "of the library"));
	}
}

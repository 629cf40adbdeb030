/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library with one event, of which tests load several (life.c). */
#include <rtscope/rtscope.h>

void library_emits(void);
int library_init(void);

/* Emits it. */
void library_emits(void)
{
	RTSCOPE_EVENT(test, library, rtscope_str(text, "of the library"));
}

/* Makes the calling thread's buffer. */
int library_init(void)
{
	return rtscope_thread_init();
}

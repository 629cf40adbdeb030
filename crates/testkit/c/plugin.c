/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library with an event, of which tests load several (life.c). */
#include <rtscope/rtscope.h>

void library_emits(void);
int library_init(void);

/* Emits it. */
void library_emits(void)
{
	RTSCOPE_EVENT(test, library, rtscope_str(text, "of the library"));
}

#if defined(MORE)
#define OTHER(provider) RTSCOPE_EVENT(provider, other, rtscope_u32(n, 0));
#define ONE OTHER(MORE)
#define TEN ONE ONE ONE ONE ONE ONE ONE ONE ONE ONE

void library_has_more(void);

/* A hundred more of the provider MORE, which it never emits: a thousand such libraries have more events than there are numbers for them. */
void library_has_more(void)
{
	TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
}
#endif

/* Makes the calling thread's buffer. */
int library_init(void)
{
	return rtscope_thread_init();
}

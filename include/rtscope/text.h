/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Texts on their way into an event: how much of one is taken, and what tells that there was more.
 */
#ifndef RTSCOPE_TEXT_H
#define RTSCOPE_TEXT_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "files.h"

/* What rtscope_str() takes of a text. */
#define RTSCOPE__TEXT_MAX 255

/* Whether a text that is as long as it may be is marked if there is more of it. */
enum rtscope__marking {
	RTSCOPE__UNMARKED = 0,
	RTSCOPE__MARKED_UNLESS_IT_ENDS = 1, /* the byte behind it can be read: it ends in NUL wherever it ends */
	RTSCOPE__MARKED = 2,
};

/* A text: where it is, and how many bytes of it are written. */
struct rtscope__text {
	const char *at;
	size_t bytes;
	enum rtscope__marking marking;
};

static inline __attribute__((always_inline)) struct rtscope__text rtscope__text_of(const char *at, size_t max,
										   int marks)
{
	struct rtscope__text text = { at ? at : "(null)", 0,
				      marks ? RTSCOPE__MARKED_UNLESS_IT_ENDS : RTSCOPE__UNMARKED };

	text.bytes = rtscope__length(text.at, max);
	return text;
}

/* The end of a text that was cut becomes U+2026, in the place of whole characters, if it is UTF-8. */
static RTSCOPE__NOT_INLINE __attribute__((cold)) void rtscope__mark_cut(unsigned char *at, struct rtscope__text text)
{
	const size_t bytes = text.bytes;
	size_t from = bytes - 3;

	/* GCC must not know how large the array is, as in rtscope__length(). */
	__asm__("" : "+r"(text.at));
	if (text.marking == RTSCOPE__MARKED_UNLESS_IT_ENDS && !text.at[bytes])
		return;
	while (from && bytes - from < 6 && (at[from] & 0xc0) == 0x80)
		from--;
	for (; from < bytes - 3; from++)
		at[from] = ' ';
	at[from] = 0xe2;
	at[from + 1] = 0x80;
	at[from + 2] = 0xa6;
}

#endif

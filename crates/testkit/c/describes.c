/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that describes as much as one may (just below 4 MiB), and records next to nothing: one event; then it waits until its standard input ends.
 *
 * EVENT: the beginning of the names of its events, so that two such programs describe different ones.
 */
#include <rtscope/rtscope.h>

#include <stdio.h>

/* Each character of a label is two in metadata: 1000 of them. */
#define B10 "\\\\\\\\\\\\\\\\\\\\"
#define B100 B10 B10 B10 B10 B10 B10 B10 B10 B10 B10
#define B1000 B100 B100 B100 B100 B100 B100 B100 B100 B100 B100

RTSCOPE_ENUM(Long, { 0, B1000 }, { 1, B1000 }, { 2, B1000 }, { 3, B1000 }, { 4, B1000 }, { 5, B1000 }, { 6, B1000 },
	     { 7, B1000 }, { 8, B1000 }, { 9, B1000 }, { 10, B1000 }, { 11, B1000 }, { 12, B1000 }, { 13, B1000 },
	     { 14, B1000 }, { 15, B1000 });

#define FIELD(name) rtscope_enum(name, Long, 0)
/* Each field has all labels of its own. */
#define DESCRIBED(event)                                                                                      \
	RTSCOPE_EVENT(describes, event, FIELD(a), FIELD(b), FIELD(c), FIELD(d), FIELD(e), FIELD(f), FIELD(g), \
		      FIELD(h), FIELD(i), FIELD(j), FIELD(k), FIELD(l), FIELD(m), FIELD(n), FIELD(o))
#define NAME(first, second) NAME_OF(first, second)
#define NAME_OF(first, second) first##second
#define EVENTS(event)              \
	DESCRIBED(NAME(event, 1)); \
	DESCRIBED(NAME(event, 2)); \
	DESCRIBED(NAME(event, 3)); \
	DESCRIBED(NAME(event, 4)); \
	DESCRIBED(NAME(event, 5)); \
	DESCRIBED(NAME(event, 6)); \
	DESCRIBED(NAME(event, 7))

int main(int arguments, char **argument)
{
	(void)argument;
	DESCRIBED(NAME(EVENT, 0));
	if (arguments > 5) {
		EVENTS(EVENT);
	}
	while (getchar() != EOF)
		;
	return 0;
}

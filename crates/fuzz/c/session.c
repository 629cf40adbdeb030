// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * How a program reads a session, for the fuzzer: the functions of the header, without a process around them.
 */
/* Nothing starts here: what would start it (life.h) is not part of this. */
#define RTSCOPE_START_BY_HAND
#include <rtscope/sessions.h>

#include <stdlib.h>

int rtscope_fuzz_session(const char *path, uint32_t owner, const char *const *events);

static struct rtscope__room room;

/* The number of events (texts, the last one NULL) that the session in a file wants; -1: it is not a session. */
int rtscope_fuzz_session(const char *path, uint32_t owner, const char *const *events)
{
	const struct rtu_session *read = (const struct rtu_session *)(const void *)room.session;
	struct rtu_session *session;
	size_t bytes;
	int wanted = 0;

	if (!rtscope__read_session(&room, path, owner, 0))
		return -1;
	/* A copy of its size: AddressSanitizer finds what is read behind it. */
	bytes = sizeof(*read) + read->bytes;
	session = malloc(bytes);
	if (!session)
		abort();
	memcpy(session, read, bytes);
	for (; *events; events++)
		wanted += rtscope__wanted(session, *events);
	free(session);
	return wanted;
}

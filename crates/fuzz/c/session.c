// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * How a program reads a session, for the fuzzer: the functions of the header, without a process around them.
 */
/* Nothing starts here: what would start it (life.h) is not part of this. */
#define RTSCOPE_START_BY_HAND
#include <rtscope/channel.h>

#include <stdlib.h>

int rtscope_fuzz_session(const char *path, uint32_t owner, const char *const *events);

static struct rtscope__room room;
/* What it says of a device, as long as it is looked into. */
static struct rtscope__device device;

/* Whether a text is in an array of this size. */
static int rtscope_fuzz_ends(const char *text, size_t bytes)
{
	return memchr(text, 0, bytes) != NULL;
}

/* A device that is not refused is one in /dev itself, and its ports are within its channels. */
static void rtscope_fuzz_device(void)
{
	uint32_t last;

	if (!rtscope__read_device(&room))
		return;
	device = room.device;
	/* PTWRITE is none: memory of nobody is mapped for its channels. */
	if (device.first == RTSCOPE__BY_PTWRITE) {
		if (device.bytes != RTSCOPE__STANDIN_BYTES || device.map_bytes != 4096)
			abort();
		return;
	}
	last = device.first > device.next ? device.first : device.next;
	last = device.last > last ? device.last : last;
	if (!rtscope_fuzz_ends(device.path, sizeof(device.path)) || !rtscope_fuzz_ends(device.id, sizeof(device.id)) ||
	    strncmp(device.path, "/dev/", 5) != 0 || strchr(device.path + 5, '/') ||
	    (uint64_t)last + 8 > device.bytes || (device.first | device.next | device.last) % 8 ||
	    device.map_bytes > RTSCOPE__DEVICE_BYTES_MAX || !device.map_bytes || device.map_bytes % device.bytes)
		abort();
}

/* The number of events (texts, the last one NULL) that the session in a file wants; -1: it is not a session. */
int rtscope_fuzz_session(const char *path, uint32_t owner, const char *const *events)
{
	const struct rtu_session *read = (const struct rtu_session *)(const void *)room.session;
	struct rtu_session *session;
	size_t bytes;
	int wanted = 0;

	if (!rtscope__read_session(&room, path, owner, 0))
		return -1;
	rtscope_fuzz_device();
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

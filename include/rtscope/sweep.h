/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What other processes of this user have left when they were killed or became other programs: a process that starts removes it,
 * so that it does not grow. Only what nobody maps (the lock tells, abi.h), only while no collector lives that would take it, and
 * only so much at a time.
 */
#ifndef RTSCOPE_SWEEP_H
#define RTSCOPE_SWEEP_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "fork.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names of files that are looked at when a process starts: they are spread over the directory, others each time. */
#define RTSCOPE__SWEPT 256

/* Calls `visit` for each name of a program's file; returns how many. Needs `busy`. */
static inline uint64_t rtscope__visit_names(struct rtscope__shared *shared, struct rtscope__file directory,
					    void (*visit)(struct rtscope__shared *, const char *, uint64_t))
{
	struct rtscope__room *room = shared->room;
	uint64_t count = 0;
	long bytes;

	if (rtscope__is_ours(directory))
		rtscope__call(__NR_lseek, directory.number, 0, 0, 0, 0, 0);
	while (rtscope__is_ours(directory) &&
	       (bytes = rtscope__call_again(__NR_getdents64, directory.number, (long)room->names, sizeof(room->names),
					    0, 0, 0)) > 0) {
		for (long at = 0; at < bytes;) {
			const struct rtscope__name *name =
				(const struct rtscope__name *)(const void *)(room->names + at);
			char kind = name->name[0];

			at += name->bytes;
			/* A digit: not `look` or `session`. */
			if ((kind == 'p' || kind == 'r' || kind == 'x') && name->name[1] >= '0' &&
			    name->name[1] <= '9' && strlen(name->name) < RTSCOPE__PATH_BYTES / 2) {
				if (visit)
					visit(shared, name->name, count);
				count++;
			}
		}
		/* A directory that somebody fills all the time has no end. */
		if (count > 65536)
			break;
	}
	return count;
}

/* The process that a name tells: its number and birth. */
static inline uint64_t rtscope__process_of(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ULL;
	int dashes = 0;

	for (const char *at = name + 1; *at; at++) {
		dashes += *at == '-';
		if (dashes == 2)
			break;
		hash = (hash ^ (unsigned char)*at) * 0x100000001b3ULL;
	}
	return hash;
}

/* Whether a ring without a thread, or a provider without a process, can go. `header`: its first bytes. */
static inline int rtscope__can_go(struct rtscope__shared *shared, const char *name, const char *header, long bytes)
{
	struct rtscope__room *room = shared->room;
	const struct rtu_provider *provider = (const struct rtu_provider *)(const void *)header;
	const struct rtu_ring *ring = (const struct rtu_ring *)(const void *)header;
	uint64_t process = rtscope__process_of(name);

	if (bytes < (long)sizeof(uint64_t) || !provider->magic) {
		struct timespec now;

		/* It is being made, or will never be finished. */
		return !rtscope__read_clock(RTSCOPE__CLOCK_REALTIME, &now) &&
		       now.tv_sec - room->status.stx_mtime.tv_sec > 60;
	}
	if (name[0] == 'r') {
		/* Version 1 has no locks. */
		if (bytes < (long)sizeof(*ring) || ring->magic != RTU_RING_MAGIC || ring->abi_version < 2)
			return 0;
		if (ring->head == ring->tail || room->sweep.kept_count == RTU_KEPT_RINGS)
			return 1;
		room->sweep.kept[room->sweep.kept_count++] = process;
		return 0;
	}
	if (bytes < (long)RTU_PROVIDER_BYTES_1 || provider->magic != RTU_PROVIDER_MAGIC || provider->abi_version < 2)
		return 0;
	for (uint32_t i = 0; i < room->sweep.kept_count; i++) {
		if (room->sweep.kept[i] == process)
			return 0;
	}
	/* Not all rings were looked at: there may be more of it. */
	return room->sweep.stride == 1 || !provider->rings_made;
}

static inline void rtscope__sweep_name(struct rtscope__shared *shared, const char *name, uint64_t number)
{
	struct rtscope__room *room = shared->room;
	struct rtscope__file file;
	long bytes;

	if (number % room->sweep.stride != room->sweep.first || (name[0] == 'r') != (room->sweep.rings != 0))
		return;
	file = rtscope__open_in(room->sweep.directory, name, RTSCOPE__O_RDONLY | RTSCOPE__O_NONBLOCK, 0);
	if (file.number < 0)
		return;
	if (!rtscope__status(file.number, "", &room->status) && (room->status.stx_mode & 0170000) == 0100000 &&
	    rtscope__identity(&room->status) == file.identity && !rtscope__lock_file(file.number)) {
		bytes = rtscope__read(file, room->session, RTU_PROVIDER_BYTES_1);
		/* An empty file of this kind is for a collector that lives, and none does. */
		if (name[0] == 'x' || rtscope__can_go(shared, name, room->session, bytes))
			rtscope__unlink_in(room->sweep.directory, name);
	}
	rtscope__close(file);
}

/* Removes what nobody has any more. Not while a collector lives: it does the same, and knows what it has taken. */
static inline void rtscope__sweep(struct rtscope__shared *shared)
{
	struct rtscope__room *room = shared->room;
	struct rtscope__file directory;
	uint64_t names;

	directory = rtscope__open_directory(shared, RTSCOPE__O_RDONLY);
	if (directory.number < 0)
		return;
	room->sweep.directory = directory.number;
	names = rtscope__visit_names(shared, directory, NULL);
	room->sweep.stride = names / RTSCOPE__SWEPT + 1;
	room->sweep.first = (shared->birth_ns >> 10) % room->sweep.stride;
	room->sweep.kept_count = 0;
	for (room->sweep.rings = 2; room->sweep.rings--;)
		rtscope__visit_names(shared, directory, rtscope__sweep_name);
	rtscope__close(directory);
}

#ifdef __cplusplus
}
#endif

#endif

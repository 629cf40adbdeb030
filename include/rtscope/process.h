/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a process shows of itself: it leaves the descriptions of its events where a collector finds them (abi.h).
 *
 * A program has its files from the start. A fork's child has none until a collector asks it to look, or its parent was being
 * recorded: most children soon become another program or end. Nothing here allocates from the heap, takes a lock of the C
 * library's or the loader's, prints or touches errno. A program that cannot be traced runs on.
 */
#ifndef RTSCOPE_PROCESS_H
#define RTSCOPE_PROCESS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "fork.h"
#include "loader.h"
#include "new_file.h"
#include "sessions.h"
#include "sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- text ------------------------------------------------------------------------------------------------------------ */

/* As a field has it, of 32 bits with a sign: labels of an enumeration without one are the same bits. */
static inline int64_t rtscope__label_value(const struct rtscope__label *label)
{
	return label->value > INT32_MAX && label->value <= (int64_t)UINT32_MAX ? (int32_t)(uint32_t)label->value :
										 label->value;
}

static inline uint64_t rtscope__text_bytes(const struct rtscope__object *object, char *out)
{
	uint64_t bytes = 0;
	char number[24];

	for (struct rtscope__event **event = object->events; event < object->events_end; event++) {
		uint64_t length = strlen((*event)->text) + 1;

		if (out)
			memcpy(out + bytes, (*event)->text, length);
		bytes += length;
	}
	for (const struct rtscope__enumeration *const *place = object->enumerations; place < object->enumerations_end;
	     place++) {
		const char *parts[4] = { (*place)->name, "\n", "", "" };

		for (uint64_t label = 0; label <= (*place)->count; label++) {
			for (int part = 0; part < 4; part++) {
				uint64_t length = strlen(parts[part]);

				/* A line break, as formats of RTSCOPE_PRINTF have it, would end the line. */
				for (uint64_t i = 0; out && i < length; i++)
					out[bytes + i] =
						part == 2 && (unsigned char)parts[part][i] < ' ' ? ' ' : parts[part][i];
				bytes += length;
			}
			if (label < (*place)->count) {
				int64_t value = rtscope__label_value(&(*place)->labels[label]);
				char *at = rtscope__put(number, value < 0 ? "-" : "");

				rtscope__put_number(at, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
				parts[0] = number;
				parts[1] = " ";
				parts[2] = (*place)->labels[label].name;
				parts[3] = "\n";
			}
		}
		if (out)
			out[bytes] = 0;
		bytes++;
	}
	return bytes;
}

/* The same number for the same descriptions, and a different one for others, as far as 64 bits can. */
static inline uint64_t rtscope__sign(const struct rtscope__object *object)
{
	uint64_t sign = 0xcbf29ce484222325ULL;
	const char *text;

	for (struct rtscope__event **event = object->events; event < object->events_end; event++) {
		for (text = (*event)->text; *text; text++)
			sign = (sign ^ (unsigned char)*text) * 0x100000001b3ULL;
		sign *= 0x100000001b3ULL;
	}
	for (const struct rtscope__enumeration *const *place = object->enumerations; place < object->enumerations_end;
	     place++) {
		for (text = (*place)->name; *text; text++)
			sign = (sign ^ (unsigned char)*text) * 0x100000001b3ULL;
		for (uint64_t label = 0; label < (*place)->count; label++) {
			sign = (sign ^ (uint64_t)(*place)->labels[label].value) * 0x100000001b3ULL;
			for (text = (*place)->labels[label].name; *text; text++)
				sign = (sign ^ (unsigned char)*text) * 0x100000001b3ULL;
		}
		sign *= 0x100000001b3ULL;
	}
	return sign;
}

/* ---- ids ------------------------------------------------------------------------------------------------------------- */

static inline uint32_t rtscope__events(const struct rtscope__object *object)
{
	return (uint32_t)(object->events_end - object->events);
}

/* Whether these ids are free of all objects that are loaded. */
static inline int rtscope__is_free(const struct rtscope__shared *shared, uint32_t first, uint32_t count)
{
	for (const struct rtscope__object *other = shared->objects; other; other = other->next) {
		if (first < other->first_id + rtscope__events(other) && other->first_id < first + count)
			return 0;
	}
	return first + count <= RTU_EVENTS_MAX;
}

/* Whether nobody can still have a record of this process that he has not understood yet. */
static inline int rtscope__is_unrecorded(const struct rtscope__shared *shared)
{
	for (uint32_t i = 0; i < shared->places; i++) {
		if (RTSCOPE__LOAD(shared->room->places[i].ring))
			return 0;
	}
	return !RTSCOPE__LOAD(shared->provider->session) && !RTSCOPE__LOAD(shared->left_rings);
}

/*
 * Ids for a new object: those of an unloaded one with the same descriptions, or new ones; when there are none left and nothing is
 * recorded, any that are free. 0: there are none. Needs `busy`.
 */
static inline int rtscope__number_events(struct rtscope__shared *shared, struct rtscope__object *object)
{
	struct rtscope__ids *ids = shared->room->ids;
	uint32_t count = rtscope__events(object), first = shared->next_id;

	for (uint32_t i = 0; i < shared->next_ids; i++) {
		if (ids[i].sign == object->sign && ids[i].count == count &&
		    rtscope__is_free(shared, ids[i].first, count)) {
			object->first_id = ids[i].first;
			return 1;
		}
	}
	if (count + first <= RTU_EVENTS_MAX) {
		shared->next_id += count;
	} else {
		/* What was given to those that are gone is forgotten. */
		if (!shared->provider || !rtscope__is_unrecorded(shared))
			return 0;
		shared->next_ids = 0;
		first = 0;
		for (const struct rtscope__object *other = shared->objects;
		     other && !rtscope__is_free(shared, first, count); other = other->next)
			first = other->first_id + rtscope__events(other);
		if (!rtscope__is_free(shared, first, count))
			return 0;
	}
	object->first_id = first;
	if (shared->next_ids < RTSCOPE__IDS) {
		ids[shared->next_ids].sign = object->sign;
		ids[shared->next_ids].first = first;
		ids[shared->next_ids++].count = count;
	}
	return 1;
}

/* ---- enabling -------------------------------------------------------------------------------------------------------- */

static inline uint32_t *rtscope__words(struct rtscope__object *object)
{
	return (uint32_t *)(void *)((char *)object->provider + sizeof(*object->provider));
}

/* All events of an object look at `words` from here on: at one of them each, or, `all`, at the first. */
static inline void rtscope__point(const struct rtscope__object *object, const uint32_t *words, int all)
{
	uint32_t events = rtscope__events(object);

	/*
	 * ORDER: relaxed; pairs with the load in RTSCOPE_EVENT (event.h), which finds the old word or the new one: both stay mapped.
	 * The ids were written before, and other threads get at a new object's events only through what ended its constructor.
	 */
	for (uint32_t i = 0; i < events; i++)
		__atomic_store_n(&object->events[i]->enabled, all ? words : &words[i], __ATOMIC_RELAXED);
}

/* Enables what the session wants. Returns how many. */
static inline uint32_t rtscope__enable(struct rtscope__object *object, const struct rtu_session *session)
{
	uint32_t *words = rtscope__words(object), events = rtscope__events(object), count = 0;

	for (uint32_t i = 0; i < events; i++) {
		if (!rtscope__wanted(session, object->events[i]->text))
			continue;
		/* ORDER: relaxed; pairs with the load in RTSCOPE_EVENT (event.h): a switch that stands for itself. */
		__atomic_store_n(&words[i], rtscope__word_of(session, object->events[i]->text), __ATOMIC_RELAXED);
		count++;
	}
	return count;
}

/* Takes back what a session that is over has enabled, and leaves what another one has enabled since. Needs `busy`. */
static inline void rtscope__disable(struct rtscope__shared *shared, uint64_t session)
{
	for (struct rtscope__object *object = shared->objects; object; object = object->next) {
		uint32_t events = rtscope__events(object);

		for (uint32_t i = 0; object->provider && i < events; i++) {
			uint32_t enabled = RTU_ENABLED(session), to_channel = enabled | RTU_TO_CHANNEL;

			/* ORDER: relaxed; as in rtscope__enable(). Swapped, since a new collector may write at the same time. */
			__atomic_compare_exchange_n(&rtscope__words(object)[i], &enabled, 0, 0, __ATOMIC_RELAXED,
						    __ATOMIC_RELAXED);
			/* ORDER: as above. */
			__atomic_compare_exchange_n(&rtscope__words(object)[i], &to_channel, 0, 0, __ATOMIC_RELAXED,
						    __ATOMIC_RELAXED);
		}
	}
}

/* ---- an object's file ------------------------------------------------------------------------------------------------ */

/* Where process numbers or times mean what they mean to this process; 0: not known. Needs `busy`. */
static inline uint64_t rtscope__namespace(struct rtscope__shared *shared, const char *path)
{
	/* Followed, unlike our own files: this link is the kernel's. */
	if (rtscope__ask_status(RTSCOPE__AT_FDCWD, path, 0, &shared->room->status))
		return 0;
	return shared->room->status.stx_ino;
}

/* A number of /proc/self/timens_offsets: "CLOCK SECONDS NANOSECONDS" in each line. */
static inline int64_t rtscope__offset_ns(const char *text, const char *clock)
{
	int64_t numbers[2] = { 0, 0 };
	size_t length = strlen(clock);
	int negative = 0;

	while (*text && strncmp(text, clock, length) != 0) {
		while (*text && *text++ != '\n')
			;
	}
	text += *text ? length : 0;
	for (int i = 0; i < 2; i++) {
		while (*text == ' ')
			text++;
		if (*text == '-') {
			negative = 1;
			text++;
		}
		while (*text >= '0' && *text <= '9')
			numbers[i] = numbers[i] * 10 + (*text++ - '0');
	}
	return (negative ? -numbers[0] : numbers[0]) * 1000000000 + numbers[1];
}

/* What only the leader's file tells: about the process. */
static inline void rtscope__describe_process(struct rtscope__shared *shared, struct rtu_provider *provider)
{
	struct rtscope__room *room = shared->room;
	struct rtscope__file file;
	long bytes = 0;

	provider->allows_blocking = shared->allows_blocking;
	provider->pid_namespace = rtscope__namespace(shared, "/proc/self/ns/pid");
	provider->time_namespace = rtscope__namespace(shared, "/proc/self/ns/time");
	file = rtscope__open("/proc/self/timens_offsets", RTSCOPE__O_RDONLY, 0);
	if (file.number < 0)
		return;
	bytes = rtscope__read(file, room->names, sizeof(room->names) - 1);
	rtscope__close(file);
	room->names[bytes > 0 ? bytes : 0] = 0;
	provider->monotonic_offset_ns = rtscope__offset_ns(room->names, "monotonic");
	provider->boottime_offset_ns = rtscope__offset_ns(room->names, "boottime");
}

static inline void rtscope__describe(struct rtscope__shared *shared, struct rtscope__object *object,
				     struct rtu_provider *provider)
{
	uint32_t events = rtscope__events(object);

	provider->abi_version = RTU_ABI_VERSION;
	provider->knows = RTU_KNOWS_CHANNELS;
	provider->birth_ns = shared->birth_ns;
	provider->pid = shared->pid;
	provider->clock = shared->clock;
	provider->seccomp = shared->seccomp;
	provider->events = events;
	provider->first_id = object->first_id;
	provider->enumerations = (uint32_t)(object->enumerations_end - object->enumerations);
	provider->enabled_offset = sizeof(*provider);
	provider->text_offset = provider->enabled_offset + events * 4;
	provider->text_bytes = (uint32_t)rtscope__text_bytes(object, (char *)provider + provider->text_offset);
	provider->build_id_bytes = object->build_id_bytes;
	memcpy(provider->build_id, object->build_id, sizeof(object->build_id));
	memcpy(provider->object, object->path, sizeof(object->path));
	rtscope__thread_name(provider->comm);
	if (object->number == 0)
		rtscope__describe_process(shared, provider);
	/* ORDER: relaxed; whoever sweeps finds a file that is being made, or one that says what it is (rtscope__can_go). */
	__atomic_store_n(&provider->magic, RTU_PROVIDER_MAGIC, __ATOMIC_RELAXED);
}

/* Memory for an object that was unloaded, which somebody may still hold a pointer to; used again for the next one. Needs `busy`. */
static inline void rtscope__retire(struct rtscope__shared *shared, void *memory, uint64_t bytes)
{
	struct rtscope__remains *retired = shared->room->retired, *oldest = &retired[RTSCOPE__RETIRED - 1];

	if (oldest->memory)
		rtscope__unmap(oldest->memory, oldest->bytes);
	for (int i = RTSCOPE__RETIRED - 1; i > 0; i--)
		retired[i] = retired[i - 1];
	retired[0].memory = memory;
	retired[0].bytes = bytes;
}

/* Memory of just this size that was retired, or NULL. Needs `busy`. */
static inline void *rtscope__reuse(struct rtscope__shared *shared, uint64_t bytes)
{
	struct rtscope__remains *retired = shared->room->retired;

	for (int i = 0; i < RTSCOPE__RETIRED; i++) {
		void *memory = retired[i].memory;

		if (memory && (retired[i].bytes + 4095) / 4096 == (bytes + 4095) / 4096) {
			retired[i].memory = NULL;
			return memory;
		}
	}
	return NULL;
}

/* Takes an object's file away, as in a fork's child: its events are enabled by the look page, and its words are zeros. Needs `busy`. */
static inline void rtscope__hide(struct rtscope__shared *shared, struct rtscope__object *object)
{
	rtscope__point(object, shared->look, 1);
	if (object->provider && !rtscope__is_error(rtscope__map_over(object->provider, object->bytes)))
		object->has_file = 0;
}

/* Memory in the place of a file: for counters, and words that nobody writes. Needs `busy`. */
static inline void rtscope__stand_in(struct rtscope__shared *shared, struct rtscope__object *object)
{
	long memory = (long)rtscope__reuse(shared, object->bytes);

	if (!memory)
		memory = rtscope__map(object->bytes, RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS, -1);
	if (!rtscope__is_error(memory))
		object->provider = (struct rtu_provider *)memory;
}

/* What was counted while there was neither a file nor a look page. */
static inline void rtscope__carry(struct rtu_provider *provider, const uint64_t *lost)
{
	for (int cause = 0; cause < RTU_LOST_ALL_CAUSES; cause++)
		*(cause < RTU_LOST_CAUSES ? &provider->lost[cause] : &provider->more_lost[cause - RTU_LOST_CAUSES]) =
			lost[cause];
}

/*
 * Makes the file of an object in the directory that was entered, and enables what is wanted at once: how many events. Negative: an error.
 * Needs `busy`, and an object with memory.
 */
static inline long rtscope__show_object(struct rtscope__shared *shared, struct rtscope__object *object,
					struct rtscope__file directory)
{
	struct rtu_provider *provider = object->provider;
	struct rtscope__remains *made;
	const struct rtu_session *session;
	uint64_t lost[RTU_LOST_ALL_CAUSES];
	uint32_t count = 0;
	long memory;

	if (object->bytes > RTU_TEXT_BYTES_MAX)
		return -RTSCOPE__E2BIG;
	if (!provider)
		return -RTSCOPE__ENOMEM;
	for (int cause = 0; cause < RTU_LOST_ALL_CAUSES; cause++)
		lost[cause] = cause < RTU_LOST_CAUSES ? RTSCOPE__LOAD(provider->lost[cause]) :
							RTSCOPE__LOAD(provider->more_lost[cause - RTU_LOST_CAUSES]);
	rtscope__path(shared, shared->room->path, 'p', object->number, 0, 0);
	made = rtscope__begin_mapping();
	memory = rtscope__new_file(shared, directory, rtscope__name_in(shared, directory, shared->room->path),
				   object->bytes, provider, made);
	rtscope__end_mapping(made);
	if (rtscope__is_error(memory))
		return memory;
	object->has_file = 1;
	rtscope__carry(provider, lost);
	rtscope__describe(shared, object, provider);
	rtscope__point(object, rtscope__words(object), 0);
	/*
	 * ORDER: seq_cst; pairs with the acquire load of `ready` in Provider::open (crates/programs/src/provider.rs), which then sees
	 * what describe() wrote. The file is complete before the session is looked for; a collector writes the session before it
	 * looks for files. So one of them sees the other; and a collector looks again at a file that was not ready.
	 */
	__atomic_store_n(&provider->ready, 1, __ATOMIC_SEQ_CST);
	/* ORDER: seq_cst; as above: arm64's store alone does not wait before what is loaded next. */
	RTSCOPE__FENCE_ALL();
	session = rtscope__find_session(shared);
	if (session) {
		uint64_t id = session->session;

		/* ORDER: relaxed; read by threads of this process (threads.h) that its constructor comes before. */
		__atomic_store_n(&shared->provider->ring_bytes, session->ring_bytes, __ATOMIC_RELAXED);
		__atomic_store_n(&shared->provider->flags, session->flags, __ATOMIC_RELAXED);
		__atomic_store_n(&shared->provider->session, id, __ATOMIC_RELAXED);
		count = rtscope__enable(object, session);
		/* It may have ended in between, and have looked here too early. */
		if (count && !rtscope__session_lives(shared, id)) {
			rtscope__disable(shared, id);
			count = 0;
		}
	}
	return count;
}

/* Says by an empty file, which needs no space and, but where no link is to be followed, no descriptor, that this process runs untraced; if there is anybody to read it. */
static inline void rtscope__give_up(struct rtscope__shared *shared, int why)
{
	char *path = shared->room->path;
	struct rtscope__file directory;

	rtscope__put_name(shared, path, "session");
	if (!rtscope__is_at_home())
		return;
	if (rtscope__call(__NR_faccessat, RTSCOPE__AT_FDCWD, (long)path, 0, 0, 0, 0) && !rtscope__has_roots_session())
		return;
	/* Once: it tries again and again. */
	if (shared->told_errno)
		return;
	shared->told_errno = (uint32_t)why;
	rtscope__path(shared, path, 'x', (uint64_t)(unsigned int)why, 0, 0);
	/* 0100000: a regular file. */
	directory = rtscope__enter_directory(shared);
	if (directory.number == RTSCOPE__STRAIGHT) {
		struct rtscope__file file = rtscope__open_in(
			directory.number, path, RTSCOPE__O_RDWR | RTSCOPE__O_CREAT | RTSCOPE__O_EXCL, 0600);

		if (file.number >= 0)
			rtscope__close(file);
	} else if (rtscope__has_entered(directory)) {
		rtscope__call_again(__NR_mknodat, directory.number, (long)rtscope__name_in(shared, directory, path),
				    0100600, 0, 0, 0);
	}
	rtscope__leave_directory(directory);
}

/* A library that cannot have a file, in a process that has: its events are lost, and the process says that there is such a library. */
static inline void rtscope__refuse_object(struct rtscope__shared *shared, struct rtscope__object *object, int error)
{
	const struct rtu_session *session;

	shared->unfiled++;
	/* ORDER: relaxed; numbers that stand for themselves, as in rtscope__lost(). */
	__atomic_fetch_add(&shared->provider->objects_refused, 1, __ATOMIC_RELAXED);
	RTSCOPE__STORE(shared->provider->object_errno, (uint32_t)error);
	if (!object->provider)
		return;
	/* Records of what nobody has described are counted as unreadable by the collector. */
	rtscope__point(object, rtscope__words(object), 0);
	session = rtscope__find_session(shared);
	if (session)
		rtscope__enable(object, session);
}

/*
 * Makes the files of this process: how many events are enabled. Negative: it could not be done, and the process is hidden. Needs `busy`.
 */
static inline long rtscope__show(struct rtscope__shared *shared)
{
	uint64_t enabled = 0;
	long error;
	struct rtscope__file directory;

	if (!shared->is_refused)
		shared->birth_ns = rtscope__monotonic(RTSCOPE__CLOCK_BOOTTIME);
	error = -rtscope__make_directory(shared);
	directory = rtscope__enter_directory(shared);
	for (struct rtscope__object *object = shared->objects; object && !error; object = object->next) {
		long result = rtscope__show_object(shared, object, directory);

		if (result >= 0)
			enabled += (uint64_t)result;
		else if (object->number == 0)
			error = result;
		else
			rtscope__refuse_object(shared, object, (int)-result);
	}
	rtscope__leave_directory(directory);
	if (!error) {
		RTSCOPE__STORE(shared->is_refused, 0);
		if (shared->told_errno) {
			rtscope__path(shared, shared->room->path, 'x', shared->told_errno, 0, 0);
			rtscope__remove_file(shared, shared->room->path);
			shared->told_errno = 0;
		}
		/* ORDER: release; pairs with the acquire in rtscope__thread_page(): what was written above is seen. */
		__atomic_store_n(&shared->state, RTSCOPE__SHOWN, __ATOMIC_RELEASE);
		return (long)enabled;
	}
	for (struct rtscope__object *object = shared->objects; object; object = object->next)
		rtscope__hide(shared, object);
	rtscope__give_up(shared, (int)-error);
	return error;
}

/*
 * No files could be made: until they can, what the session wants is counted as lost, and what it does not want costs no more. Needs
 * `busy`.
 */
static inline void rtscope__refuse_process(struct rtscope__shared *shared)
{
	const struct rtu_session *session = rtscope__find_session(shared);

	shared->state = RTSCOPE__HIDDEN_NOW;
	RTSCOPE__STORE(shared->refused_look, RTSCOPE__LOAD(*shared->look));
	RTSCOPE__STORE(shared->is_refused, 1);
	for (struct rtscope__object *object = shared->objects; object && session; object = object->next) {
		if (object->provider) {
			rtscope__enable(object, session);
			rtscope__point(object, rtscope__words(object), 0);
		}
	}
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a program does once: it leaves the descriptions of its events where a collector finds them (abi.h), and makes a ring
 * for each thread that wants to record.
 *
 * There is no library. Every program and shared library that includes this header has a copy of these functions; the first
 * copy that runs in a process is its leader, and has the files, the rings and the threads. The others find it by a note in
 * the loaded objects (dl_iterate_phdr), so a thread has one ring however many libraries write into it.
 *
 * Nothing here allocates from the heap, takes a lock, prints or touches errno. A program that cannot be traced runs on.
 */
#ifndef RTSCOPE_PROCESS_H
#define RTSCOPE_PROCESS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "ring.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call site has; made by RTSCOPE_EVENT in the section rtscope_events (event.h). */
struct rtscope__event {
	const uint32_t *enabled;
	const char *text; /* its description, as in abi.h */
	uint32_t id;
	uint16_t semaphore; /* how many debuggers and tracers want its USDT probe */
	uint16_t zero;
};

struct rtscope__label {
	int64_t value;
	const char *name;
};

struct rtscope__enumeration {
	const char *name;
	const struct rtscope__label *labels;
	uint64_t count;
};

/* One program or library that has events. */
struct rtscope__object {
	struct rtscope__object *next;
	struct rtscope__event **events, **events_end;
	const struct rtscope__enumeration *const *enumerations, *const *enumerations_end;
	struct rtu_provider *provider; /* NULL: could not be made */
	uint64_t bytes;
	uint32_t number;
	uint32_t zero;
};

/* Of a thread that waits while its ring is full (blocking mode). */
struct rtscope__waiting {
	uint64_t since_ns; /* 0: it has not waited yet. Since when the collector has been silent */
	uint64_t beat;
};

#define RTSCOPE__RINGS_MAX 4096
#define RTSCOPE__PATH_BYTES 128
#define RTSCOPE__SHARED_VERSION 1

/* What the copies of one process share. Found by a note; its begin must stay as it is. */
struct rtscope__shared {
	uint32_t version;
	uint32_t leads; /* 1: this copy is the leader */
	struct rtscope__thread *(*thread)(int asked, int *error);
	void (*add)(struct rtscope__object *object);
	void (*remove)(struct rtscope__object *object);
	void (*lost)(uint32_t cause);
	int (*wait)(struct rtscope__thread *thread, struct rtscope__waiting *state);
	void (*end)(struct rtscope__thread *thread);
	uint32_t *flags; /* of the collector */

	struct rtscope__object *objects;
	struct rtu_provider *provider; /* of the leader; NULL: untraced */
	uint32_t *alive;	       /* in a page that is zero after a fork */
	uint64_t birth_ns, ring_bytes;
	uint32_t pid, clock, next_id, next_object, next_ring, sub_buffers;
	uint32_t lazy, lock_memory, allows_blocking;
	uint32_t confined; /* by RTSCOPE_LAZY=0: no system call that nobody asked for, not even at the end */
	uint32_t seccomp, zero;
	unsigned int key;
	char directory[RTSCOPE__PATH_BYTES];
	struct rtu_ring *rings[RTSCOPE__RINGS_MAX]; /* to be unmapped in a fork's child, removed at the end */
};

RTSCOPE__HIDDEN struct rtscope__shared rtscope__shared = { RTSCOPE__SHARED_VERSION };
RTSCOPE__HIDDEN struct rtscope__object rtscope__object = { 0 };
RTSCOPE__HIDDEN uint32_t rtscope__off __attribute__((used)) = 0;
RTSCOPE__HIDDEN uint32_t rtscope__no_cpu = RTU_CPU_UNKNOWN;
/* What a thread without a page has at hand. */
RTSCOPE__HIDDEN struct rtscope__thread rtscope__none = { 0 };
RTSCOPE__HIDDEN struct rtscope__thread rtscope__in_setup = { 0 };
RTSCOPE__HIDDEN struct rtscope__thread rtscope__ended = { 0 };
/* The leader's copy of the second is the truth; the others' are copies of that pointer. */
RTSCOPE__HIDDEN __thread struct rtscope__thread *rtscope__tls __attribute__((tls_model("initial-exec"))) =
	&rtscope__none;
RTSCOPE__HIDDEN struct rtscope__shared *rtscope__leader = 0;

extern struct rtscope__event *__start_rtscope_events[] __attribute__((weak, visibility("hidden")));
extern struct rtscope__event *__stop_rtscope_events[] __attribute__((weak, visibility("hidden")));
extern const struct rtscope__enumeration *const __start_rtscope_enums[] __attribute__((weak, visibility("hidden")));
extern const struct rtscope__enumeration *const __stop_rtscope_enums[] __attribute__((weak, visibility("hidden")));

/* glibc 2.35 says where each thread's rseq area is: the kernel keeps the CPU's number there. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

__asm__(".pushsection .note.rtscope,\"a\",%note\n"
	".balign 4\n"
	".4byte 8, 8, 1\n"
	".asciz \"rtscope\"\n"
	".8byte rtscope__shared - .\n"
	".popsection\n");

/* ---- text ---------------------------------------------------------------------------------------------------------- */

static inline char *rtscope__put(char *at, const char *text)
{
	while (*text)
		*at++ = *text++;
	*at = 0;
	return at;
}

static inline char *rtscope__put_number(char *at, uint64_t value, unsigned int base)
{
	char digits[24];
	int count = 0;

	do {
		digits[count++] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	while (count)
		*at++ = digits[--count];
	*at = 0;
	return at;
}

/* Bytes before the NUL, at most `max`. */
static inline size_t rtscope__length(const char *text, size_t max)
{
	const char *end = (const char *)memchr(text, 0, max);

	return end ? (size_t)(end - text) : max;
}

/* DIRECTORY/KIND PID-BIRTH-A[-B]; returns where the numbers end. */
static inline void rtscope__path(const struct rtscope__shared *shared, char *path, char kind, uint64_t a, int has_b,
				 uint64_t b)
{
	char name[2] = { kind, 0 };
	char *at = rtscope__put(rtscope__put(path, shared->directory), name);

	at = rtscope__put(rtscope__put_number(at, shared->pid, 10), "-");
	at = rtscope__put(rtscope__put_number(at, shared->birth_ns, 16), "-");
	at = rtscope__put_number(at, a, 10);
	if (has_b)
		rtscope__put_number(rtscope__put(at, "-"), b, 10);
}

/*
 * A new file with memory behind every byte, so that a write into it can never fail; mapped. An error is a small negative
 * number.
 */
static inline long rtscope__new_file(const char *path, uint64_t bytes)
{
	uint64_t limit[2];
	long memory;
	int file;

	/* A file beyond this limit would be a signal. */
	if (!rtscope__call(__NR_prlimit64, 0, RTSCOPE__RLIMIT_FSIZE, 0, (long)limit, 0, 0) && limit[0] < bytes)
		return -RTSCOPE__EFBIG;
	file = rtscope__open(path, RTSCOPE__O_RDWR | RTSCOPE__O_CREAT | RTSCOPE__O_EXCL, 0600);
	if (file < 0)
		return file;
	memory = rtscope__call(__NR_fallocate, file, 0, 0, (long)bytes, 0, 0);
	if (!memory)
		memory = rtscope__map(bytes, RTSCOPE__MAP_SHARED | RTSCOPE__MAP_POPULATE, file);
	if (rtscope__is_error(memory))
		rtscope__unlink(path);
	rtscope__close(file);
	return memory;
}

/* ---- finding the leader -------------------------------------------------------------------------------------------- */

/* What dl_iterate_phdr(3) tells of each loaded object. */
struct rtscope__object_info {
	Elf64_Addr address;
	const char *name;
	const Elf64_Phdr *headers;
	Elf64_Half count;
};

struct rtscope__search {
	uintptr_t address; /* something in the object that is looked for, or 0 */
	struct rtscope__shared *leader;
	unsigned char build_id[20];
	uint32_t build_id_bytes;
	char object[256];
};

static inline void rtscope__look_at_note(struct rtscope__search *search, const unsigned char *note, const char *name,
					 uint64_t name_bytes, uint64_t text_bytes, uint32_t type, int mine)
{
	const unsigned char *text = note + ((name_bytes + 3) & ~3ULL);

	if (mine && type == NT_GNU_BUILD_ID && name_bytes == 4 && !memcmp(name, "GNU", 4)) {
		search->build_id_bytes = text_bytes < 20 ? (uint32_t)text_bytes : 20;
		memcpy(search->build_id, text, search->build_id_bytes);
	}
	if (type == 1 && name_bytes == 8 && text_bytes == 8 && !memcmp(name, "rtscope", 8) && !search->leader) {
		struct rtscope__shared *shared;
		int64_t offset;

		memcpy(&offset, text, 8);
		shared = (struct rtscope__shared *)(uintptr_t)(text + offset);
		if (shared->version == RTSCOPE__SHARED_VERSION && shared->leads)
			search->leader = shared;
	}
}

static inline int rtscope__look_at_object(struct rtscope__object_info *info, size_t bytes, void *data)
{
	struct rtscope__search *search = (struct rtscope__search *)data;
	int mine = 0;

	(void)bytes;
	for (int i = 0; i < info->count; i++) {
		const Elf64_Phdr *header = &info->headers[i];
		uintptr_t begin = info->address + header->p_vaddr;

		mine |= header->p_type == PT_LOAD && search->address - begin < header->p_memsz;
	}
	/* The program itself has no name here. */
	if (mine && info->name && *info->name)
		memcpy(search->object, info->name, rtscope__length(info->name, sizeof(search->object) - 1));
	else if (mine)
		rtscope__call(__NR_readlinkat, RTSCOPE__AT_FDCWD, (long)"/proc/self/exe", (long)search->object,
			      sizeof(search->object) - 1, 0, 0);
	for (int i = 0; i < info->count; i++) {
		const Elf64_Phdr *header = &info->headers[i];
		const unsigned char *at = (const unsigned char *)(uintptr_t)(info->address + header->p_vaddr);
		const unsigned char *end = at + header->p_memsz;

		/* Notes that are aligned to 8 are others'. */
		if (header->p_type != PT_NOTE || header->p_align > 4)
			continue;
		while (at + sizeof(Elf64_Nhdr) <= end) {
			Elf64_Nhdr note;
			uint64_t name_bytes;

			memcpy(&note, at, sizeof(note));
			at += sizeof(note);
			name_bytes = (note.n_namesz + 3) & ~3ULL;
			if (name_bytes + note.n_descsz > (uint64_t)(end - at))
				break;
			rtscope__look_at_note(search, at, (const char *)at, note.n_namesz, note.n_descsz, note.n_type,
					      mine);
			at += name_bytes + ((note.n_descsz + 3) & ~3ULL);
		}
	}
	return 0;
}

/* ---- patterns ------------------------------------------------------------------------------------------------------ */

/* A glob with * and ?. */
static inline int rtscope__matches(const char *pattern, const char *text, const char *text_end)
{
	const char *star = NULL, *star_text = NULL;

	while (text < text_end) {
		if (*pattern == '*') {
			star = pattern++;
			star_text = text;
		} else if (*pattern && (*pattern == '?' || *pattern == *text)) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++star_text;
		} else {
			return 0;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

/* Whether a session wants the event that `text` describes. Later patterns do not undo an exclusion. */
static inline int rtscope__wanted(const struct rtu_session *session, const char *text)
{
	const char *patterns = (const char *)(session + 1), *end = patterns + session->bytes;
	const char *name_end = strchr(text, ' ');
	int wanted = 0;

	if (!name_end || (uint32_t)atoi(name_end + 1) > session->level)
		return 0;
	while (patterns < end) {
		if (rtscope__matches(patterns + 1, text, name_end)) {
			if (*patterns == '-')
				return 0;
			wanted = 1;
		}
		patterns += strlen(patterns) + 1;
	}
	return wanted;
}

static inline int rtscope__lives(uint32_t pid)
{
	long result = rtscope__call(__NR_kill, (long)pid, 0, 0, 0, 0, 0);

	return !result || result == -RTSCOPE__EPERM;
}

/* Whether somebody else holds a lock on a file: then the collector that left it lives, whatever its number is. */
static inline int rtscope__is_locked(int file)
{
	/* struct flock of 64-bit Linux (asm-generic/fcntl.h); F_WRLCK, SEEK_SET, all of the file. */
	struct {
		int16_t type, whence;
		int32_t zero;
		int64_t start, length;
		int32_t pid, zero2;
	} lock = { 1, 0, 0, 0, 0, 0, 0 };

	/* 5: F_GETLK, 2: F_UNLCK */
	return !rtscope__call(__NR_fcntl, file, 5, (long)&lock, 0, 0, 0) && lock.type != 2;
}

/* The session of one directory, if its collector lives. */
static inline int rtscope__read_session(const char *path, uint32_t owner, char *buffer)
{
	struct rtu_session *session = (struct rtu_session *)(void *)buffer;
	struct statx status;
	long bytes = -1;
	int file = rtscope__open(path, RTSCOPE__O_RDONLY | RTSCOPE__O_NONBLOCK, 0);

	if (file < 0)
		return 0;
	/* A regular file, which only its owner may write. */
	if (!rtscope__status(file, "", &status) && (status.stx_mode & 0170000) == 0100000 && status.stx_uid == owner &&
	    !(status.stx_mode & 022))
		bytes = rtscope__call(__NR_read, file, (long)buffer, RTU_SESSION_BYTES_MAX, 0, 0, 0);
	if (bytes > (long)sizeof(*session) && !session->pid && !rtscope__is_locked(file))
		bytes = -1;
	rtscope__close(file);
	return bytes > (long)sizeof(*session) && session->magic == RTU_SESSION_MAGIC &&
	       session->abi_version == RTU_ABI_VERSION && session->bytes == (uint64_t)bytes - sizeof(*session) &&
	       !buffer[bytes - 1] && (!session->pid || rtscope__lives(session->pid));
}

/* The session of this user, else that of root. */
static inline int rtscope__find_session(const struct rtscope__shared *shared, char *buffer)
{
	char path[RTSCOPE__PATH_BYTES];

	rtscope__put(rtscope__put(path, shared->directory), "session");
	return rtscope__read_session(path, rtscope__user(), buffer) ||
	       rtscope__read_session("/dev/shm/rtscope-session", 0, buffer);
}

/* ---- a provider's file --------------------------------------------------------------------------------------------- */

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

				if (out)
					memcpy(out + bytes, parts[part], length);
				bytes += length;
			}
			if (label < (*place)->count) {
				int64_t value = (*place)->labels[label].value;
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

/* Where process numbers mean what they mean to this process; 0: not known. */
static inline uint64_t rtscope__pid_namespace(void)
{
	struct statx status;

	/* Followed, unlike our own files: this link is the kernel's. */
	if (rtscope__call(__NR_statx, RTSCOPE__AT_FDCWD, (long)"/proc/self/ns/pid", 0, STATX_BASIC_STATS, (long)&status,
			  0))
		return 0;
	return status.stx_ino;
}

static inline void rtscope__describe(struct rtscope__shared *shared, struct rtscope__object *object,
				     struct rtu_provider *provider)
{
	struct rtscope__search search;
	uint32_t *enabled;
	uint32_t events = (uint32_t)(object->events_end - object->events);

	memset(&search, 0, sizeof(search));
	search.address = (uintptr_t)object;
	rtscope__iterate_objects(rtscope__look_at_object, &search);
	provider->magic = RTU_PROVIDER_MAGIC;
	provider->abi_version = RTU_ABI_VERSION;
	provider->birth_ns = shared->birth_ns;
	provider->pid = shared->pid;
	provider->clock = shared->clock;
	provider->seccomp = shared->seccomp;
	provider->events = events;
	provider->enumerations = (uint32_t)(object->enumerations_end - object->enumerations);
	provider->enabled_offset = sizeof(*provider);
	provider->text_offset = provider->enabled_offset + events * 4;
	provider->text_bytes = (uint32_t)rtscope__text_bytes(object, (char *)provider + provider->text_offset);
	provider->build_id_bytes = search.build_id_bytes;
	memcpy(provider->build_id, search.build_id, sizeof(search.build_id));
	memcpy(provider->object, search.object, sizeof(search.object));
	rtscope__thread_name(provider->comm);
	/* A second life of the process (a fork) keeps its ids. */
	provider->first_id = events && object->provider ? object->events[0]->id : shared->next_id;
	if (!object->provider)
		shared->next_id += events;
	enabled = (uint32_t *)(void *)((char *)provider + provider->enabled_offset);
	for (uint32_t i = 0; i < events; i++)
		object->events[i]->id = provider->first_id + i;
	/*
	 * Old words, when there are some, are not looked at any more from here on. ORDER: relaxed; pairs with the load in
	 * RTSCOPE_EVENT (event.h), which finds the old word or the new one: both are there. The ids were written before, and
	 * other threads get at a new object's events only through what ended its constructor.
	 */
	for (uint32_t i = 0; i < events; i++)
		__atomic_store_n(&object->events[i]->enabled, &enabled[i], __ATOMIC_RELAXED);
}

/* Enables what the session wants. Returns how many. */
static inline uint32_t rtscope__enable(struct rtscope__object *object, const struct rtu_session *session)
{
	struct rtu_provider *provider = object->provider;
	uint32_t *enabled = (uint32_t *)(void *)((char *)provider + provider->enabled_offset);
	uint32_t count = 0;

	for (uint32_t i = 0; i < provider->events; i++) {
		uint32_t wanted = session && rtscope__wanted(session, object->events[i]->text);

		/* ORDER: relaxed; pairs with the load in RTSCOPE_EVENT (event.h): a switch that stands for itself. */
		if (wanted || !session)
			__atomic_store_n(&enabled[i], wanted, __ATOMIC_RELAXED);
		count += wanted;
	}
	return count;
}

/* Makes the file of an object, and enables what is wanted at once: how many events. Negative: an error. */
static inline long rtscope__announce(struct rtscope__shared *shared, struct rtscope__object *object)
{
	char path[RTSCOPE__PATH_BYTES], buffer[RTU_SESSION_BYTES_MAX] __attribute__((aligned(8)));
	uint64_t events = (uint64_t)(object->events_end - object->events), bytes = rtscope__text_bytes(object, NULL);
	struct rtu_provider *provider;
	uint32_t count = 0;
	long memory;

	bytes += sizeof(*provider) + events * 4;
	if (events + shared->next_id > RTU_EVENTS_MAX || bytes > RTU_TEXT_BYTES_MAX)
		return -RTSCOPE__E2BIG;
	rtscope__path(shared, path, 'p', object->number, 0, 0);
	memory = rtscope__new_file(path, bytes);
	if (rtscope__is_error(memory))
		return memory;
	provider = (struct rtu_provider *)memory;
	rtscope__describe(shared, object, provider);
	if (object->provider)
		rtscope__unmap(object->provider, object->bytes);
	object->provider = provider;
	object->bytes = bytes;
	if (object->number == 0) {
		provider->allows_blocking = shared->allows_blocking;
		provider->pid_namespace = rtscope__pid_namespace();
		shared->provider = provider;
		shared->flags = &provider->flags;
	}
	/*
	 * ORDER: seq_cst; pairs with the acquire load of `ready` in Provider::open (crates/user/src/provider.rs), which then sees
	 * what describe() wrote. The file is complete before the session is looked for; a collector writes the session before it
	 * looks for files. So one of them sees the other; and a collector looks again at a file that was not ready.
	 */
	__atomic_store_n(&provider->ready, 1, __ATOMIC_SEQ_CST);
	if (rtscope__find_session(shared, buffer)) {
		const struct rtu_session *session = (const struct rtu_session *)(void *)buffer;

		count = rtscope__enable(object, session);
		if (count && shared->provider) {
			/* ORDER: relaxed; read by threads of this process (threads.h) that its constructor comes before. */
			__atomic_store_n(&shared->provider->ring_bytes, session->ring_bytes, __ATOMIC_RELAXED);
			__atomic_store_n(&shared->provider->flags, session->flags, __ATOMIC_RELAXED);
			__atomic_store_n(&shared->provider->session, session->session, __ATOMIC_RELAXED);
		}
		/* It may have ended in between, and have looked here too early. */
		if (count && !rtscope__find_session(shared, buffer)) {
			rtscope__enable(object, NULL);
			count = 0;
		}
	}
	return count;
}

#ifdef __cplusplus
}
#endif

#include "threads.h"

#endif

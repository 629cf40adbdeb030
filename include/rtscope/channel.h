/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events that go to a channel of a system trace module (STM) instead of the thread's ring, because a recorder has asked for that: their word
 * of `enabled` has RTU_TO_CHANNEL. docs/adr/0031-events-go-to-channels-of-an-stm.md says why it is as it is.
 *
 * All of this is out of line. An event is written where it is staged, by the code that writes it into a ring, and its commit copies it
 * into the channel: into the device's memory, word by word. A thread has a channel of its own, so no lock is taken. A handler that has
 * interrupted an event stages its own one level higher, and may send it in the middle of the other: the first word of a message has a mark, so a
 * reader takes them apart.
 *
 * Opening and mapping the device are system calls; they are made where a ring would be made (rtscope__thread_page), never again for that thread.
 */
#ifndef RTSCOPE_CHANNEL_H
#define RTSCOPE_CHANNEL_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "ptwrite.h"
#include "rings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* struct stp_policy_id and STP_POLICY_ID_SET (linux/stm.h), with room for a name. */
struct rtscope__policy {
	uint32_t bytes;
	uint16_t master, channel, width, zero;
	uint32_t zero2;
	char id[RTSCOPE__POLICY_BYTES];
};
#define RTSCOPE__POLICY_ID_SET 0xc0102500UL

/* A store into the device: one instruction of this size, wherever it is. */
static inline __attribute__((always_inline)) void rtscope__store_word(unsigned char *place, uint64_t word)
{
#if defined(__x86_64__)
	__asm__ __volatile__("{movq %1, %0|mov %0, %1}" : "=m"(*(uint64_t *)(void *)place) : "r"(word));
#else
	__asm__ __volatile__("str %1, %0" : "=Q"(*(uint64_t *)(void *)place) : "r"(word));
#endif
}

static inline __attribute__((always_inline)) void rtscope__store_flag(unsigned char *place)
{
#if defined(__x86_64__)
	__asm__ __volatile__("{movl %1, %0|mov %0, %1}" : "=m"(*(uint32_t *)(void *)place) : "r"(0));
#else
	__asm__ __volatile__("str wzr, %0" : "=Q"(*(uint32_t *)(void *)place));
#endif
}

/* (*place)++ that a signal handler of this thread cannot lose, and that gives each its own number. */
static inline uint32_t rtscope__next_number(uint32_t *place)
{
#if defined(__x86_64__)
	uint32_t number = 1;

	/* ORDER: none; one instruction, so that a handler comes before or after it. */
	__asm__ __volatile__("{xaddl %0, %1|xadd %1, %0}" : "+r"(number), "+m"(*place) : : "cc");
	return number;
#else
	/* ORDER: relaxed; as above. */
	return __atomic_fetch_add(place, 1, __ATOMIC_RELAXED);
#endif
}

/* ---- the device ---------------------------------------------------------------------------------------------------------- */

/* A number of the session's line about the device, and where it goes on; NULL: there is none. */
static inline const char *rtscope__device_number(const char *text, uint32_t *number)
{
	uint32_t value = 0;

	if (!text || *text < '0' || *text > '9')
		return NULL;
	while (*text >= '0' && *text <= '9')
		value = value * 10 + (uint32_t)(*text++ - '0');
	*number = value;
	return *text == ' ' ? text + 1 : NULL;
}

/* Of a device, and of a channel, in `first`: its words go into PTWRITE. No place in a channel has it. */
#define RTSCOPE__BY_PTWRITE 1
/* So many threads share a page that stands for channels. */
#define RTSCOPE__STANDIN_BYTES 64

/*
 * What the session says of the device: "@/BYTES OF A CHANNEL, OFFSETS OF FIRST, NEXT AND LAST, BYTES OF A MAPPING, PATH, NAME", with a space between
 * them; or "@/ptwrite", which has no channels: memory of nobody stands for them, so that they are shared out, given back, and gone in a fork's child as
 * others are. False: it says nothing that makes sense. Needs `busy`, and the session in room->session.
 */
static inline int rtscope__read_device(struct rtscope__room *room)
{
	const struct rtu_session *session = (const struct rtu_session *)(const void *)room->session;
	const char *text = (const char *)(session + 1), *end = text + session->bytes;
	struct rtscope__device *device = &room->device;
	size_t at = 0;

	while (text < end && !(text[0] == '@' && text[1] == '/'))
		text += strlen(text) + 1;
	if (text >= end)
		return 0;
	text += 2;
	/* Of the file that was read last: the session's. */
	device->is_roots = !room->status.stx_uid;
	if (!strcmp(text, "ptwrite")) {
		device->bytes = RTSCOPE__STANDIN_BYTES;
		device->first = RTSCOPE__BY_PTWRITE;
		device->next = device->last = 0;
		device->map_bytes = 64 * RTSCOPE__STANDIN_BYTES;
		device->session = session->session;
		return 1;
	}
	text = rtscope__device_number(text, &device->bytes);
	text = rtscope__device_number(text, &device->first);
	text = rtscope__device_number(text, &device->next);
	text = rtscope__device_number(text, &device->last);
	text = rtscope__device_number(text, &device->map_bytes);
	/* Within a channel, aligned as a bus wants it, and a mapping has a whole number of them. */
	if (!text || device->bytes < 8 || device->bytes % 8 || device->map_bytes > RTSCOPE__DEVICE_BYTES_MAX ||
	    device->map_bytes < device->bytes || device->map_bytes % device->bytes ||
	    device->first > device->bytes - 8 || device->next > device->bytes - 8 || device->last > device->bytes - 8 ||
	    device->first % 8 || device->next % 8 || device->last % 8)
		return 0;
	/* A device is in /dev itself, and nowhere else: this path is opened for writing. */
	if (strncmp(text, "/dev/", 5) != 0 || text[5] == '/')
		return 0;
	while (text[at] && text[at] != ' ' && !(at >= 5 && text[at] == '/') && at < sizeof(device->path) - 1) {
		device->path[at] = text[at];
		at++;
	}
	device->path[at] = 0;
	if (text[at] != ' ')
		return 0;
	text += at + 1;
	for (at = 0; text[at] && at < sizeof(device->id) - 1; at++)
		device->id[at] = text[at];
	device->id[at] = 0;
	device->session = session->session;
	return !text[at];
}

/*
 * Reads what the session says of the device. 0, or an errno. Root's recorder has a session in the directory of each user, who can write it: to a program that
 * may do more than he, the one of root's own names the device. Needs `busy`.
 */
static inline int rtscope__find_device(struct rtscope__shared *shared)
{
	struct rtscope__room *room = shared->room;

	if (!rtscope__find_session(shared))
		return RTSCOPE__ENOENT;
	if (room->status.stx_uid && rtscope__overrides() && !rtscope__read_session(room, RTSCOPE__ROOTS_SESSION, 0, 1))
		return RTSCOPE__EPERM;
	/* Another session may have come: its recorder tells soon. */
	if (!rtscope__read_device(room) || room->device.session != RTSCOPE__LOAD(shared->provider->session))
		return RTSCOPE__ENOENT;
	return room->device.first == RTSCOPE__BY_PTWRITE && !rtscope__may_ptwrite() ? RTSCOPE__ENOSYS : 0;
}

/*
 * Opens the device and maps a page of its channels, noted in `made`. An error is a small negative number. A fork waits for this only for a moment, as for
 * all work; its child closes the descriptor and unmaps the page, as both are noted before they have channels. Needs `busy`.
 */
static inline long rtscope__map_device(struct rtscope__shared *shared, struct rtscope__remains *made)
{
	struct rtscope__room *room = shared->room;
	struct rtscope__device *device = &room->device;
	struct rtscope__policy *policy = (struct rtscope__policy *)(void *)room->names;
	uint32_t begun = rtscope__forks_begun();
	struct rtscope__file file;
	void *around;
	long memory;
	int error;

	if (device->first == RTSCOPE__BY_PTWRITE) {
		memory = rtscope__map_nothing(device->map_bytes);
		if (!rtscope__is_error(memory))
			rtscope__note_mapping(made, (void *)memory, device->map_bytes);
		return memory;
	}
	/* Neither a pipe, whose other end would wake, nor a file, nor what a link leads to. */
	error = rtscope__status(RTSCOPE__AT_FDCWD, device->path, &room->status);
	device->major = room->status.stx_rdev_major;
	device->minor = room->status.stx_rdev_minor;
	if (error || !rtscope__is_device(room))
		return error ? error : -RTSCOPE__ENOTTY;
	if (rtscope__is_forked_since(shared, begun))
		return -RTSCOPE__EAGAIN;
	memory = rtscope__map_nothing(device->map_bytes);
	if (rtscope__is_error(memory))
		return memory;
	around = (void *)memory;
	rtscope__note_mapping(made, around, device->map_bytes);
	/* A terminal does not become this process's. */
	file = rtscope__open_noted(shared, RTSCOPE__AT_FDCWD, device->path,
				   RTSCOPE__O_RDWR | RTSCOPE__O_NONBLOCK | RTSCOPE__O_NOCTTY);
	memory = file.number < 0 ? file.number : 0;
	/* A child that has this open, and does not know its number: so it never gets channels. */
	if (file.number >= 0 && rtscope__is_forked_since(shared, begun))
		memory = -RTSCOPE__EAGAIN;
	if (!memory && !rtscope__is_ours(file))
		memory = -RTSCOPE__EBADF;
	if (!memory) {
		/* What was put there instead is no device with channels. */
		memset(policy, 0, sizeof(*policy));
		policy->bytes = sizeof(*policy);
		policy->width = (uint16_t)(device->map_bytes / device->bytes);
		memcpy(policy->id, device->id, sizeof(policy->id));
		memory = rtscope__call_again(__NR_ioctl, file.number, RTSCOPE__POLICY_ID_SET, (long)policy, 0, 0, 0);
	}
	if (!memory)
		memory = rtscope__call_again(__NR_mmap, (long)around, device->map_bytes, RTSCOPE__PROT_RW,
					     RTSCOPE__MAP_SHARED | RTSCOPE__MAP_FIXED, file.number, 0);
	if (!rtscope__is_error(memory) && !rtscope__is_ours(file))
		memory = -RTSCOPE__EBADF;
	/* The mapping keeps the channels. */
	if (file.number >= 0)
		rtscope__close_noted(shared, file);
	if (rtscope__is_error(memory)) {
		rtscope__note_mapping(made, NULL, 1);
		rtscope__unmap(around, device->map_bytes);
	}
	return memory;
}

/* A page of channels from the device. NULL: `error` says why. Needs `busy`. */
static inline struct rtscope__port_page *rtscope__new_ports(struct rtscope__shared *shared, int *error)
{
	const struct rtscope__device *device = &shared->room->device;
	struct rtscope__port_page *page = NULL;
	struct rtscope__remains *made;
	long memory;

	for (int i = 0; i < RTSCOPE__PORT_PAGES && !page; i++) {
		if (!shared->room->port_pages[i].memory)
			page = &shared->room->port_pages[i];
	}
	*error = RTSCOPE__EMFILE;
	if (!page)
		return NULL;
	/* Its user names the device, and could not open it himself where this process may do more than he. */
	*error = RTSCOPE__EPERM;
	if (!device->is_roots && rtscope__overrides())
		return NULL;
	made = rtscope__begin_mapping();
	memory = rtscope__map_device(shared, made);
	*error = (int)-memory;
	if (!rtscope__is_error(memory)) {
		page->bytes = device->map_bytes;
		page->session = device->session;
		page->used = 0;
		/* ORDER: release; a fork's child that finds it knows its size. */
		__atomic_store_n(&page->memory, (unsigned char *)memory, __ATOMIC_RELEASE);
	}
	rtscope__end_mapping(made);
	return rtscope__is_error(memory) ? NULL : page;
}

/* Which channel of a page is free, or -1. Needs `busy`. */
static inline int rtscope__free_port(const struct rtscope__room *room, const struct rtscope__port_page *page)
{
	int count = (int)(page->bytes / room->device.bytes);

	for (int i = 0; i < count && i < 64; i++) {
		if (!(page->used >> i & 1))
			return i;
	}
	return -1;
}

/* Whether a thread's page is known by its ring: then that ends it. */
static inline int rtscope__has_place(const struct rtscope__shared *shared, const struct rtscope__thread *thread)
{
	for (uint32_t i = 0; i < shared->places; i++) {
		if (RTSCOPE__LOAD(shared->room->places[i].ring) && shared->room->places[i].thread == thread)
			return 1;
	}
	return 0;
}

/*
 * Threads without a key end without a word, as rtscope__reap() says: their channels are free again. Where a library leads, their pages may be
 * taken over, so they stay. Needs `busy`.
 */
static inline void rtscope__reap_channels(struct rtscope__shared *shared)
{
	for (uint32_t i = 0; i < RTSCOPE__CHANNELS_MAX; i++) {
		struct rtscope__channel *channel = shared->room->channels[i];

		if (channel && channel->keyless && shared->offset && rtscope__is_gone(shared, channel->tid)) {
			struct rtscope__thread *thread = channel->thread;
			int has_page = RTSCOPE__LOAD(channel->keyless) != RTSCOPE__PAGELESS;

			rtscope__drop_channel(shared, channel);
			/* With its ring, otherwise. */
			if (has_page && !rtscope__has_place(shared, thread))
				rtscope__unmap(thread, sizeof(*thread));
		}
	}
}

/* A free channel of a page that is mapped, or of a new one. False: `error` says why. Needs `busy`. */
static inline int rtscope__find_port(struct rtscope__shared *shared, struct rtscope__channel *channel, int *error)
{
	struct rtscope__room *room = shared->room;
	struct rtscope__port_page *page = NULL;
	int port = -1;

	/* It was read for another thread, if it is of this session. */
	if (room->device.session != RTSCOPE__LOAD(shared->provider->session)) {
		*error = rtscope__find_device(shared);
		if (*error) {
			room->device.session = 0;
			return 0;
		}
	}
	for (int i = 0; i < RTSCOPE__PORT_PAGES && port < 0; i++) {
		page = &room->port_pages[i];
		if (page->memory && page->session == room->device.session)
			port = rtscope__free_port(room, page);
	}
	if (port < 0) {
		page = rtscope__new_ports(shared, error);
		port = page ? 0 : -1;
	}
	if (!page || port < 0)
		return 0;
	page->used |= (uint64_t)1 << port;
	channel->page = (uint32_t)(page - room->port_pages);
	channel->port_number = (uint32_t)port;
	channel->first = room->device.first;
	channel->next = room->device.next;
	channel->last = room->device.last;
	channel->session = room->device.session;
	RTSCOPE__STORE(channel->port, page->memory + (uint64_t)port * room->device.bytes);
	return 1;
}

/* Fills what a thread's channel says of it. `thread`: its page. 0, or an errno. Needs `busy`. */
static inline int rtscope__open_channel(struct rtscope__shared *shared, struct rtscope__thread *thread)
{
	int flags = RTSCOPE__MAP_PRIVATE | RTSCOPE__MAP_ANONYMOUS | RTSCOPE__MAP_NORESERVE;
	long memory = rtscope__map(sizeof(struct rtscope__channel), flags, -1);
	struct rtscope__channel *channel = (struct rtscope__channel *)memory;
	uint32_t place = 0;
	int error = RTSCOPE__EMFILE;

	if (rtscope__is_error(memory))
		return (int)-memory;
	rtscope__reap_channels(shared);
	while (place < RTSCOPE__CHANNELS_MAX && shared->room->channels[place])
		place++;
	/* As a thread's page: a child must not write into its parent's channel. */
	if (place == RTSCOPE__CHANNELS_MAX ||
	    rtscope__call(__NR_madvise, memory, sizeof(*channel), RTSCOPE__MADV_WIPEONFORK, 0, 0, 0) ||
	    !rtscope__find_port(shared, channel, &error)) {
		rtscope__unmap(channel, sizeof(*channel));
		return error;
	}
	channel->place = place;
	channel->thread = thread;
	channel->tid = rtscope__tid();
	/* ORDER: relaxed; each only needs a number of its own. */
	channel->number = __atomic_fetch_add(&shared->next_ring, 1, __ATOMIC_RELAXED);
	if (channel->first == RTSCOPE__BY_PTWRITE)
		channel->next = rtscope__ptwrite_key(shared->birth_ns, shared->pid, channel->number);
	channel->cpu_place = rtscope__find_cpu();
	rtscope__thread_name(channel->comm);
	if (shared->lock_memory)
		rtscope__call(__NR_mlock, memory, (long)offsetof(struct rtscope__channel, levels[1]), 0, 0, 0, 0);
	RTSCOPE__STORE(shared->room->channel_threads[place], thread);
	/* ORDER: release; a fork's child that finds it finds whose it is. */
	__atomic_store_n(&shared->room->channels[place], channel, __ATOMIC_RELEASE);
	/* ORDER: release; pairs with the load in rtscope__stage() by a handler of this thread: it finds the fields above written. */
	__atomic_store_n(&thread->channel, channel, __ATOMIC_RELEASE);
	return 0;
}

/* The calling thread's channel is given back. */
static inline void rtscope__close_channel(struct rtscope__shared *shared, struct rtscope__thread *thread)
{
	struct rtscope__channel *channel = thread->channel;

	if (!channel || !rtscope__take(shared, 1000))
		return;
	RTSCOPE__STORE(thread->channel, (struct rtscope__channel *)NULL);
	rtscope__drop_channel(shared, channel);
	rtscope__give(shared);
}

/* ---- events ---------------------------------------------------------------------------------------------------------------- */

/* The levels of a channel's events that are over: this one's stack pointer is that of one of them, so nothing stands there any more. */
static inline uint32_t rtscope__level_of(const struct rtscope__channel *channel, uintptr_t stack)
{
	uint32_t depth = RTSCOPE__LOAD(channel->depth);

	for (uint32_t i = 0; i < depth && i < RTSCOPE__LEVELS; i++) {
		if (RTSCOPE__LOAD(channel->stacks[i]) == stack)
			return i;
	}
	return depth;
}

/*
 * Where an event of `bytes` is staged; NULL: it is lost, and counted. RTSCOPE__RING_INSTEAD: it goes into the ring, since this collector knows no
 * channels, or prefers that to a loss.
 */
RTSCOPE__HIDDEN_FUNCTION unsigned char *rtscope__stage(uint32_t id, uint64_t bytes, uintptr_t stack)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = rtscope__find();
	struct rtscope__channel *channel = RTSCOPE__LOAD(thread->channel);
	uint32_t flags = RTSCOPE__LOAD(*shared->flags), level;
	struct rtscope__level *place;
	uint64_t now;

	if (!(flags & RTU_CHANNELS))
		return RTSCOPE__RING_INSTEAD;
	if (!channel || channel->session != RTSCOPE__LOAD(shared->provider->session)) {
		struct rtscope__answer answer;

		thread = shared->thread(0, id | RTSCOPE__TO_CHANNEL, &answer);
		channel = RTSCOPE__LOAD(thread->channel);
		if (!channel || answer.error) {
			if (flags & RTU_OR_RING)
				return RTSCOPE__RING_INSTEAD;
			if (answer.error != RTSCOPE__UNWANTED)
				rtscope__lost(answer.cause);
			return NULL;
		}
	}
	level = rtscope__level_of(channel, stack);
	if (level >= RTSCOPE__LEVELS) {
		rtscope__count(&channel->lost);
		return NULL;
	}
	place = &channel->levels[level];
	RTSCOPE__STORE(channel->stacks[level], stack);
	/* ORDER: signal fence; a handler that comes from here on stages one level higher. */
	RTSCOPE__WRITTEN_BEFORE();
	RTSCOPE__STORE(channel->depth, level + 1);
	RTSCOPE__WRITTEN_BEFORE();
	/* One that came before had this level, and has left 0 there: until now this event's place is nobody's, so the next one does not take it. */
	RTSCOPE__STORE(channel->stacks[level], stack);
	RTSCOPE__WRITTEN_BEFORE();
	now = rtscope__now(shared->clock);
	place->time = now;
	place->words[0] = id | (bytes >> 3) << 24 | now << RTU_TIME_SHIFT;
	return (unsigned char *)&place->words[1];
}

/*
 * Writes a message. Its number is in the bits that rings have for laps: a reader sees what is missing. In a fork's child the channel's page is
 * zero, and nothing is written.
 */
static inline void rtscope__send_words(struct rtscope__channel *channel, const uint64_t *words, uint64_t count,
				       uint32_t number)
{
	uint64_t tag = (uint64_t)(number & 0x7f) << 16;

	if (channel->first == RTSCOPE__BY_PTWRITE) {
		rtscope__ptwrite_words(channel, words, count, number);
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		/* ORDER: a handler may fork: then it is gone. Read again for each store. */
		unsigned char *port = RTSCOPE__LOAD(channel->port);

		if (!port)
			return;
		if (i == 0)
			rtscope__store_word(port + channel->first, (words[0] & ~(0xffULL << 16)) | tag);
		else
			rtscope__store_word(port + channel->next, words[i]);
	}
	if (RTSCOPE__LOAD(channel->port))
		rtscope__store_flag(channel->port + channel->last);
}

/* Says whose channel it is, and when and where its thread is. */
static inline void rtscope__send_who(struct rtscope__shared *shared, struct rtscope__channel *channel, uint64_t now,
				     uint32_t cpu, uint64_t lost, uint32_t number)
{
	struct rtu_who who;

	who.word = RTU_ID_WHO | (sizeof(who) >> 3) << 24 | now << RTU_TIME_SHIFT;
	who.time = now;
	who.lost = lost;
	who.cpu = cpu;
	who.clock = shared->clock;
	who.birth_ns = shared->birth_ns;
	who.pid = shared->pid;
	who.tid = channel->tid;
	who.number = channel->number;
	who.version = RTU_CHANNEL_VERSION;
	rtscope__copy(who.comm, channel->comm, sizeof(who.comm));
	/* Nothing is said until all of this is: a handler that comes now says it for itself. */
	RTSCOPE__STORE(channel->sync, (uint64_t)0);
	RTSCOPE__WRITTEN_BEFORE();
	rtscope__send_words(channel, &who.word, sizeof(who) >> 3, number);
	channel->cpu = cpu;
	channel->lost_told = lost;
	channel->untold = 0;
	/* ORDER: signal fence; pairs with the reads in rtscope__send(). */
	RTSCOPE__WRITTEN_BEFORE();
	/*
	 * Unless a handler has, whose message has a later number: a reader counts the time of what follows from there. That is later than this event, whose
	 * thread then says it once more.
	 */
	rtscope__swap(&channel->sync, 0, now);
}

/* An event that was staged is complete. Also called for those of rings that were written inside of others: nothing is to be done. */
RTSCOPE__HIDDEN_FUNCTION void rtscope__send(const unsigned char *payload)
{
	struct rtscope__shared *shared = &rtscope__shared;
	struct rtscope__thread *thread = rtscope__find();
	struct rtscope__channel *channel = RTSCOPE__LOAD(thread->channel);
	struct rtscope__level *place;
	uint64_t offset, lost;
	uint32_t cpu, level, number;

	if (!channel)
		return;
	offset = (uint64_t)((uintptr_t)payload - (uintptr_t)channel->levels);
	level = (uint32_t)(offset / sizeof(*place));
	if (offset >= sizeof(channel->levels) || !RTSCOPE__LOAD(channel->port))
		return;
	place = &channel->levels[level];
	/*
	 * The number is taken before it is looked at what was said last. So what a handler says after that has a later one, and a reader does not
	 * take the time of this event from there.
	 */
	for (;;) {
		number = rtscope__next_number(&channel->sequence);
		lost = RTSCOPE__LOAD(channel->lost);
		cpu = RTSCOPE__LOAD(*channel->cpu_place);
		if (RTSCOPE__LOAD(channel->sync) && !((place->time - RTSCOPE__LOAD(channel->sync)) >> RTU_TIME_BITS) &&
		    cpu == channel->cpu && lost == channel->lost_told && ++channel->untold < RTU_WHO_EVERY)
			break;
		rtscope__send_who(shared, channel, place->time, cpu, lost, number);
		if (!RTSCOPE__LOAD(channel->port))
			return;
	}
	rtscope__send_words(channel, place->words, place->words[0] >> 24 & 0x3ff, number);
	/* ORDER: signal fence; a handler that comes before this has staged one level higher, and is done. */
	RTSCOPE__WRITTEN_BEFORE();
	RTSCOPE__STORE(channel->depth, level);
	/* ORDER: as above; pairs with the second store in rtscope__stage(), which this one may be a handler of. */
	RTSCOPE__WRITTEN_BEFORE();
	RTSCOPE__STORE(channel->stacks[level], (uintptr_t)0);
}

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What is found in the loaded objects when a constructor runs: the process's leader, and what this object is. Only there: the loader's
 * locks are not to be taken anywhere else.
 */
#ifndef RTSCOPE_LOADER_H
#define RTSCOPE_LOADER_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "files.h"

#include <elf.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What dl_iterate_phdr(3) tells of each loaded object. */
struct rtscope__object_info {
	Elf64_Addr address;
	const char *name;
	const Elf64_Phdr *headers;
	Elf64_Half count;
};

struct rtscope__search {
	struct rtscope__object *object;	 /* the one that searches */
	struct rtscope__shared *leader;	 /* NULL: none yet */
	struct rtscope__shared *program; /* the program's copy, which could lead */
	uint32_t has_program;		 /* 0: this is another namespace (dlmopen), with another C library */
	const char *name;		 /* of its own library, however long it is: `path` has the beginning */
	uint32_t thread;		 /* that searches, as in `leads` */
	uint32_t may_lead, has_begun;
	uint32_t is_announced;		   /* this copy will be the leader, which no other one can be now */
	struct rtscope__shared *awaited;   /* another copy, or thread of this one, that will be the leader */
	struct rtscope__shared *forgotten; /* one whose starter is not in this process, as in a fork's child */
};

/*
 * Of several objects that start at the same moment one becomes the leader, and the others wait for it. Who announces that it will lead, does it
 * while it is told of the loaded objects, which is for one thread at a time (glibc has a lock for that); and takes it back if another one has announced it before.
 */
static inline void rtscope__announce(struct rtscope__search *search)
{
	struct rtscope__shared *shared = &rtscope__shared;
	uint32_t leads = 0;

	if (!search->may_lead)
		return;
	/*
	 * ORDER: sequentially consistent, as the loads in rtscope__look_at_note(): of two that announce themselves at once, at least one sees the other, where the
	 * C library has no lock there.
	 */
	search->is_announced = (uint32_t)__atomic_compare_exchange_n(
		&shared->leads, &leads, RTSCOPE__STARTS | search->thread << 8, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline void rtscope__take_back(struct rtscope__search *search)
{
	if (search->is_announced)
		/* ORDER: relaxed; nobody uses anything of a copy that does not lead. */
		RTSCOPE__STORE(rtscope__shared.leads, 0u);
	search->is_announced = 0;
}

/* A thread's number, as `leads` has it. Where the system does not tell it, it is that of nobody. */
static inline uint32_t rtscope__starter(void)
{
	return rtscope__tid() & 0xffffff;
}

/*
 * Waits while another thread starts a copy, 10 000 rests at most in all. It looks at the copy only: who asks for the loaded objects again and again has the loader's
 * lock so often that forks' children get it taken. 0: the copy's starter is not here, or it was too long.
 */
static inline int rtscope__await(struct rtscope__shared *copy, uint32_t thread, int *rests)
{
	for (; *rests < 10000; ++*rests) {
		/* ORDER: acquire; pairs with the release in rtscope__lead(): all that a leader has is there. */
		uint32_t leads = __atomic_load_n(&copy->leads, __ATOMIC_ACQUIRE);

		if (!(leads & RTSCOPE__STARTS) || leads >> 8 == thread)
			return 1;
		if (rtscope__is_not_here(leads >> 8))
			return 0;
		rtscope__rest();
	}
	return 0;
}

static inline void rtscope__look_at_note(struct rtscope__search *search, const unsigned char *note, const char *name,
					 uint64_t name_bytes, uint64_t text_bytes, uint32_t type, int mine,
					 int is_program)
{
	const unsigned char *text = note + ((name_bytes + 3) & ~3ULL);

	if (mine && type == NT_GNU_BUILD_ID && name_bytes == 4 && !memcmp(name, "GNU", 4)) {
		search->object->build_id_bytes = text_bytes < 20 ? (uint32_t)text_bytes : 20;
		memcpy(search->object->build_id, text, search->object->build_id_bytes);
	}
	if (type == 1 && name_bytes == 8 && text_bytes == 8 && !memcmp(name, "rtscope", 8) && !search->leader) {
		struct rtscope__shared *shared;
		uint32_t leads;
		int64_t offset;

		memcpy(&offset, text, 8);
		shared = (struct rtscope__shared *)(uintptr_t)(text + offset);
		if (shared->version != RTSCOPE__SHARED_VERSION)
			return;
		/* ORDER: pairs with the release in rtscope__lead(): all that a leader has is there. And with rtscope__announce(). */
		leads = __atomic_load_n(&shared->leads, __ATOMIC_SEQ_CST);
		if (leads & RTSCOPE__LEADS)
			search->leader = shared;
		else if (leads & RTSCOPE__STARTS && leads >> 8 != search->thread && shared != search->forgotten)
			search->awaited = shared;
		else if (is_program && shared->lead)
			search->program = shared;
	}
}

static inline int rtscope__look_at_object(struct rtscope__object_info *info, size_t bytes, void *data)
{
	struct rtscope__search *search = (struct rtscope__search *)data;
	/* The program has no name here, with glibc; with musl it has one. */
	int is_program =
		!info->name || !*info->name || (uintptr_t)info->headers == rtscope__auxiliary(RTSCOPE__AT_PHDR);
	int mine = 0;

	(void)bytes;
	if (!search->has_begun)
		rtscope__announce(search);
	search->has_begun = 1;
	search->has_program |= (uint32_t)is_program;
	for (int i = 0; i < info->count; i++) {
		const Elf64_Phdr *header = &info->headers[i];
		uintptr_t begin = info->address + header->p_vaddr;

		mine |= header->p_type == PT_LOAD && (uintptr_t)search->object - begin < header->p_memsz;
	}
	if (mine && !is_program) {
		search->name = info->name;
		memcpy(search->object->path, info->name, rtscope__length(info->name, sizeof(search->object->path) - 1));
	} else if (mine)
		rtscope__call(__NR_readlinkat, RTSCOPE__AT_FDCWD, (long)"/proc/self/exe", (long)search->object->path,
			      sizeof(search->object->path) - 1, 0, 0);
	if (mine)
		search->object->is_program = (uint32_t)is_program;
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
					      mine, is_program);
			at += name_bytes + ((note.n_descsz + 3) & ~3ULL);
		}
	}
	if (search->leader || search->awaited)
		rtscope__take_back(search);
	return 0;
}

/*
 * Keeps this library loaded until the process ends: threads, the C library and other objects have pointers into the leader. False:
 * it can be unloaded.
 */
static inline int rtscope__pin(const struct rtscope__search *search)
{
#if defined(__PIC__) && !defined(__PIE__)
	/* RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE. Without dlopen() nothing is ever unloaded. */
	return search->object->is_program || !rtscope__load || rtscope__load(search->name, 0x1 | 0x4 | 0x1000) != NULL;
#else
	return search->object->is_program != 0;
#endif
}

/*
 * Looks for the leader, or announces that this copy will be it; or neither, and then this object is never recorded. A library is pinned before it
 * announces itself: that takes the loader's lock, which another thread may have while a constructor of a library that it loads waits for the
 * one that is announced.
 */
static inline void rtscope__find_leader(struct rtscope__search *search)
{
	struct rtscope__shared *program = NULL;
	int rests = 0;

#if !defined(__PIC__) || defined(__PIE__)
	search->may_lead = 1;
#endif
	for (;;) {
		search->awaited = NULL;
		search->has_begun = 0;
		rtscope__iterate_objects(rtscope__look_at_object, search);
		if (search->leader || search->is_announced)
			return;
		if (search->awaited) {
			/* Where the C library has no lock, two may take it back again and again, for each other. */
			if (rtscope__await(search->awaited, search->thread, &rests) && ++rests < 10000)
				continue;
			/* Nobody goes on with it, or it takes its time; but it is there, as far as others need it. */
			/* ORDER: acquire; pairs with the release in rtscope__lead(). */
			if (__atomic_load_n(&search->awaited->leads, __ATOMIC_ACQUIRE) & RTSCOPE__HAS_CHANNELS)
				search->leader = search->awaited;
			if (search->leader || search->forgotten || rests >= 10000)
				return;
			search->forgotten = search->awaited;
		} else if (search->program && search->program != &rtscope__shared && !program) {
			/* Libraries start before the program, but the program is there for as long as the process. */
			program = search->program;
			program->lead();
		} else if (search->may_lead || !rtscope__pin(search)) {
			return;
		} else {
			search->may_lead = 1;
		}
	}
}

#ifdef __cplusplus
}
#endif

#endif

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
};

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
		int64_t offset;

		memcpy(&offset, text, 8);
		shared = (struct rtscope__shared *)(uintptr_t)(text + offset);
		if (shared->version == RTSCOPE__SHARED_VERSION && shared->leads)
			search->leader = shared;
		else if (shared->version == RTSCOPE__SHARED_VERSION && is_program && shared->lead)
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

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library with events that the torture program (violence.c) loads and unloads while others use it. */
#define _GNU_SOURCE
#include "violence.h"

void violence_library(struct violence_slot *slots, uint32_t index, int64_t offset_ns, unsigned int count);

/* Emits `count` events of a slot. */
void violence_library(struct violence_slot *slots, uint32_t index, int64_t offset_ns, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		VIOLENCE_EMIT(library, slots, index, offset_ns);
}

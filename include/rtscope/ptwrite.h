/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Messages of a channel as operands of PTWRITE, in the stream of a processor that records Intel PT. docs/adr/0032-events-go-to-ptwrite.md says why
 * they are as they are; abi.h ("PTWRITE") says which word is what.
 *
 * A stream has the words of all threads of a CPU, so each word says whose it is. Where nothing records, the instruction does nothing.
 */
#ifndef RTSCOPE_PTWRITE_H
#define RTSCOPE_PTWRITE_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this processor has the instruction: 1, or 2 where it has not; 0: nobody has asked yet. In a virtual machine CPUID leaves the guest. */
RTSCOPE__HIDDEN uint32_t rtscope__ptwrite_state;

/* Asks the processor. A function of its own, with a name for the linker: tests put another one in its place, and execute the instruction themselves. */
RTSCOPE__HIDDEN_FUNCTION int rtscope__has_ptwrite(void)
{
#if defined(__x86_64__)
	/* Intel SDM, volume 2, CPUID: 07H EBX bit 25 is Intel PT, 14H.0 EBX bit 4 PTWRITE. */
	return rtscope__cpuid(0).a >= 0x14 && rtscope__cpuid(7).b >> 25 & 1 && rtscope__cpuid(0x14).b >> 4 & 1;
#else
	return 0;
#endif
}

/* The same, asked once. Needs `busy`. */
static inline int rtscope__may_ptwrite(void)
{
	if (!rtscope__ptwrite_state)
		rtscope__ptwrite_state = rtscope__has_ptwrite() ? 1 : 2;
	return rtscope__ptwrite_state == 1;
}

/* ptwrite rax, for assemblers of any age. */
static inline __attribute__((always_inline)) void rtscope__ptwrite(uint64_t word)
{
#if defined(__x86_64__)
	__asm__ __volatile__(".byte 0xf3, 0x48, 0x0f, 0xae, 0xe0" : : "a"(word));
#else
	(void)word;
#endif
}

/* What tells a thread's words from those of others. */
static inline uint32_t rtscope__ptwrite_key(uint64_t birth_ns, uint32_t pid, uint32_t number)
{
	uint64_t mixed = birth_ns ^ ((uint64_t)pid << 32 | number);

	mixed = (mixed ^ mixed >> 32) * RTU_PTWRITE_MIX;
	return (uint32_t)(mixed >> 33);
}

/* Writes a message. In a fork's child the channel's page is zero, and nothing is written. */
static inline void rtscope__ptwrite_words(struct rtscope__channel *channel, const uint64_t *words, uint64_t count,
					  uint32_t number)
{
	uint64_t key = channel->next, tag = (key & 0x7ff) << 48, rest = 0, check = 0, place = 0, i;
	unsigned int bits = 0;

	/* A handler may fork: then the port is gone. Looked at before each word. */
	if (!RTSCOPE__LOAD(channel->port))
		return;
	rtscope__ptwrite(1ULL << 63 | key << 32 | number);
	for (i = 0; i < count; i++) {
		uint64_t word = words[i];

		check = (check << 1 | check >> 63) ^ word;
		if (!RTSCOPE__LOAD(channel->port))
			return;
		rtscope__ptwrite((place++ & 15) << 59 | tag | ((rest | word << bits) & RTU_PTWRITE_DATA));
		rest = word >> (48 - bits);
		bits += 16;
		if (bits == 48) {
			if (!RTSCOPE__LOAD(channel->port))
				return;
			rtscope__ptwrite((place++ & 15) << 59 | tag | rest);
			rest = 0;
			bits = 0;
		}
	}
	check ^= check >> 32;
	check = (check ^ check >> 16) & 0xffff;
	if (RTSCOPE__LOAD(channel->port))
		rtscope__ptwrite((place & 15) << 59 | tag | rest | check << bits);
}

#ifdef __cplusplus
}
#endif

#endif

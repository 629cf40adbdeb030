/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * include/rtscope as functions, for Rust: the rings, the files and the leader are the same code as in a C program, so a
 * process with both has one ring a thread.
 */
#include <rtscope/rtscope.h>

struct rtscope__reserved rtscope_probe_reserve(uint32_t id, uint64_t bytes);
struct rtscope__reserved rtscope_probe_reserve_elsewhere(uint32_t id, uint64_t bytes);
void rtscope_probe_commit(const unsigned char *payload);
int rtscope_probe_thread_init(void);
void rtscope_probe_thread_exit(void);
int rtscope_probe_init(const struct rtscope_options *options);

/*
 * USDT's notes say where this symbol is, so that tools can tell by how much a file was moved (SystemTap's format). The same as
 * each probe of the C header makes, of which one stays.
 */
__asm__(".pushsection .stapsdt.base,\"aGR\",\"progbits\",.stapsdt.base,comdat\n"
	".weak _.stapsdt.base\n"
	".hidden _.stapsdt.base\n"
	"_.stapsdt.base: .space 1\n"
	".size _.stapsdt.base, 1\n"
	".popsection\n");

#if defined(__x86_64__)
#define COUNTER RTU_CLOCK_TSC
#else
#define COUNTER RTU_CLOCK_CNTVCT
#endif

static __attribute__((noinline)) struct rtscope__reserved reserve(uint32_t id, uint64_t bytes)
{
	struct rtscope__record record = rtscope__reserve(rtscope__tls, id, bytes);
	struct rtscope__reserved reserved = { record.place, record.open };

	return reserved;
}

/*
 * What nearly all events take stands here alone. A clock that has to be called, and another try after a handler came between, would make
 * this function save six registers for each event.
 */
struct rtscope__reserved rtscope_probe_reserve(uint32_t id, uint64_t bytes)
{
	struct rtscope__thread *thread = rtscope__tls;
	struct rtu_ring *ring = RTSCOPE__LOAD(thread->ring);

	if (RTSCOPE__LIKELY(ring && bytes <= RTU_RECORD_BYTES_MAX && thread->clock == COUNTER &&
			    !RTSCOPE__LOAD(thread->open))) {
		uint64_t position = RTSCOPE__LOAD(ring->head), now = rtscope__now(COUNTER);
		struct rtscope__record record = rtscope__prepare(rtscope__read_where(thread), position, id, bytes, now);
		struct rtscope__reserved reserved = { record.place, &thread->open };

		if (RTSCOPE__LIKELY(!rtscope__needs_more(thread, position, bytes, now))) {
			RTSCOPE__STORE(thread->open, rtscope__stack());
			/* ORDER: signal fence; as in rtscope__reserve(). */
			RTSCOPE__WRITTEN_BEFORE();
			if (RTSCOPE__LIKELY(rtscope__swap(&ring->head, position, position + bytes))) {
				rtscope__begin(record);
				return reserved;
			}
			RTSCOPE__STORE(thread->open, (uintptr_t)0);
		}
	}
	return reserve(id, bytes);
}

/* The same for an event that goes to a channel. */
struct rtscope__reserved rtscope_probe_reserve_elsewhere(uint32_t id, uint64_t bytes)
{
	return rtscope__reserve_slowly(id | RTSCOPE__TO_CHANNEL, bytes, rtscope__stack());
}

/* An event that was not noted is complete: of a channel, or inside of another one. */
void rtscope_probe_commit(const unsigned char *payload)
{
	rtscope__commit_slowly(payload);
}

int rtscope_probe_thread_init(void)
{
	return rtscope_thread_init();
}

void rtscope_probe_thread_exit(void)
{
	rtscope_thread_exit();
}

int rtscope_probe_init(const struct rtscope_options *options)
{
	return rtscope_init(options);
}

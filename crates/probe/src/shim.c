/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * include/rtscope as functions, for Rust: the rings, the files and the leader are the same code as in a C program, so a
 * process with both has one ring a thread.
 */
#include <rtscope/rtscope.h>

struct rtscope__record rtscope_probe_reserve(uint32_t id, uint64_t bytes);
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

static __attribute__((noinline)) struct rtscope__record reserve(uint32_t id, uint64_t bytes)
{
	return rtscope__reserve(rtscope__tls, id, bytes);
}

/*
 * What nearly all events take stands here alone. A clock that has to be called, and another try after a handler came between, would make
 * this function save six registers for each event.
 */
struct rtscope__record rtscope_probe_reserve(uint32_t id, uint64_t bytes)
{
	struct rtscope__thread *thread = rtscope__tls;
	struct rtu_ring *ring = RTSCOPE__LOAD(thread->ring);

	if (RTSCOPE__LIKELY(ring && bytes <= RTU_RECORD_BYTES_MAX && thread->clock == COUNTER)) {
		uint64_t position = RTSCOPE__LOAD(ring->head), now = rtscope__now(COUNTER);
		struct rtscope__record record = rtscope__prepare(rtscope__read_where(thread), position, id, bytes, now);

		if (RTSCOPE__LIKELY(!rtscope__needs_more(thread, position, bytes, now) &&
				    rtscope__swap(&ring->head, position, position + bytes))) {
			rtscope__begin(record);
			return record;
		}
	}
	return reserve(id, bytes);
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

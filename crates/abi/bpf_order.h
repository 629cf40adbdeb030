/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loads and stores in eBPF that order others. eBPF has none itself before Linux 6.15 and clang 20, so:
 *   - x86 keeps loads in order, and stores, so that only the compiler must be held;
 *   - elsewhere an atomic whose result is used does it, which is a full barrier there. One whose result nobody uses orders nothing
 *     (clang makes an instruction without BPF_FETCH of it, and the kernel on arm64 an STADD).
 *
 * Included after bpf/bpf_helpers.h.
 */
#ifndef RTSCOPE_BPF_ORDER_H
#define RTSCOPE_BPF_ORDER_H

#if defined(__TARGET_ARCH_x86)
/* ORDER: the compiler's; as above. */
#define STORE_RELEASE(pointer, value)                                  \
	do {                                                           \
		barrier();                                             \
		*(volatile __typeof__(*(pointer)) *)(pointer) = value; \
	} while (0)
/* ORDER: the compiler's; as above. */
#define LOAD_ACQUIRE(pointer)                                                                  \
	({                                                                                     \
		__typeof__(*(pointer)) loaded = *(volatile __typeof__(*(pointer)) *)(pointer); \
		barrier();                                                                     \
		loaded;                                                                        \
	})
#else
/* ORDER: full. An exchange always fetches. */
#define STORE_RELEASE(pointer, value) ((void)__sync_lock_test_and_set(pointer, value))
/* ORDER: full; the empty statement uses the result. It writes what was there, so other CPUs' writers must be atomic, too. */
#define LOAD_ACQUIRE(pointer)                                                     \
	({                                                                        \
		__typeof__(*(pointer)) loaded = __sync_fetch_and_add(pointer, 0); \
		__asm__ volatile("" : : "r"(loaded) : "memory");                  \
		loaded;                                                           \
	})
#endif

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * In place of libbpf's header: the eBPF sources compiled for this machine, to be stepped through by a test. Maps are memory that
 * the test gives; helpers are functions of the test. Helpers that only other programs call are not here, so they cannot be used by
 * mistake.
 */
#ifndef RTSCOPE_HOST_BPF_HELPERS_H
#define RTSCOPE_HOST_BPF_HELPERS_H

#define SEC(name)
#define __ksym
#define __weak __attribute__((weak))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name
#define barrier() __asm__ volatile("" ::: "memory")
#define bpf_ksym_exists(symbol) 0

void *host_map_lookup(const void *map, const void *key);
__u64 host_clock(void);
__u32 host_cpu(void);
struct task_struct *host_current(void);

#define bpf_map_lookup_elem(map, key) host_map_lookup(map, key)
#define bpf_ktime_get_ns() host_clock()
#define bpf_get_smp_processor_id() host_cpu()
#define bpf_get_current_task_btf() host_current()
/* The function is called with a number and the context until it returns 1, as the kernel does. */
#define bpf_loop(count, function, context, flags)                             \
	({                                                                    \
		__u32 host_i = 0;                                             \
		while (host_i < (__u32)(count) && !function(host_i, context)) \
			host_i++;                                             \
		(long)host_i;                                                 \
	})

#endif

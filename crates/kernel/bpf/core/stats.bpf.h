/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What trackers count, on each CPU.
 */
#ifndef RTSCOPE_CORE_STATS_BPF_H
#define RTSCOPE_CORE_STATS_BPF_H

#include "core/program.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rts_stats);
	__uint(max_entries, 1); /* CPUs * instances */
} stats SEC(".maps");

/* Responses and the like by thread: of a way of core/tasks.bpf.h, one for each instance. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rts_thread_count);
	__uint(max_entries, 1); /* ways of tasks * instances */
} thread_counts SEC(".maps");

/* Those of an instance on this CPU. They are written by this CPU only, so a plain increment does; a nested one may be lost by one. */
static __always_inline struct rts_stats *stats_of(const struct here *here, __u32 instance)
{
	__u32 index = here->cpu * config.instances_len + instance;

	return bpf_map_lookup_elem(&stats, &index);
}

/* What belongs to no instance is counted with the first. */
#define COUNT(here, counter)                                \
	do {                                                \
		struct rts_stats *s_ = stats_of((here), 0); \
		if (s_)                                     \
			s_->counter++;                      \
	} while (0)

#endif

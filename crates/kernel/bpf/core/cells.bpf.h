/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Histograms by key (struct rts_cell in kernel_abi.h): who or what was how slow, counted where it ends.
 *
 * A table of each CPU with a fixed number of cells, not a hash map of the kernel: there an update takes a lock, and one that is interrupted by
 * another is refused. A cell that is not found in its few places is counted as missing.
 *
 * Cost: once an operation, a hash, a look-up for each place that is tried and two atomic additions to a line of this CPU.
 */
#ifndef RTSCOPE_CORE_CELLS_BPF_H
#define RTSCOPE_CORE_CELLS_BPF_H

#include "core/program.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rts_cell);
	__uint(max_entries, 1); /* CPUs * config.cells */
} cells SEC(".maps");

/* The cell with this key on a CPU; taken if there is none yet, NULL when there is no room. What interrupts may take one, too. */
static __noinline struct rts_cell *cell_of(__u64 key, __u32 cpu, bool *is_new)
{
	/* Fibonacci hashing (Knuth, volume 3, 6.4): the upper half of the product depends on all bits of the key. */
	__u32 hash = (key * 0x9e3779b97f4a7c15ULL) >> 32;

	for (__u32 probe = 0; probe < RTS_CELL_PROBES; probe++) {
		__u32 index = cpu * config.cells + ((hash + probe) & (config.cells - 1));
		struct rts_cell *cell = bpf_map_lookup_elem(&cells, &index);
		__u64 found;

		if (!cell)
			return NULL;
		/* ORDER: none; what a cell counts begins at 0 and is added up by itself. */
		found = *(volatile __u64 *)&cell->key;
		if (!found) {
			/* ORDER: none, the same. */
			found = __sync_val_compare_and_swap(&cell->key, 0, key);
			if (!found && is_new)
				*is_new = true;
			if (!found)
				return cell;
		}
		if (found == key)
			return cell;
	}
	return NULL;
}

/* What the name of a thread or process is, said again with each new cell: names change at exec. */
static __always_inline void name_cell(__u64 key, __u32 cpu, const char *comm)
{
	struct rts_cell *cell;

	key |= (__u64)RTS_CELL_NAME << RTS_CELL_BUCKET_SHIFT;
	cell = cell_of(key, cpu, NULL);
	if (!cell)
		return;
	cell->sum_ns = *(const __u64 *)comm;
	cell->max_ns = *(const __u64 *)(comm + 8);
}

/* Counts an operation; false: there is no cell for it. `key`: without bucket. */
static __always_inline bool count_in_cell(__u64 key, __u32 bucket, __u32 cpu, __u64 duration_ns, bool *is_new)
{
	struct rts_cell *cell = cell_of(key | (__u64)bucket << RTS_CELL_BUCKET_SHIFT, cpu, is_new);
	__u64 max_ns;

	if (!cell)
		return false;
	/* ORDER: none; counters that stand for themselves, of one CPU and what interrupts it. */
	__sync_fetch_and_add(&cell->count, 1);
	/* ORDER: none, the same. */
	__sync_fetch_and_add(&cell->sum_ns, duration_ns);
	max_ns = *(volatile __u64 *)&cell->max_ns;
	if (duration_ns > max_ns)
		/* ORDER: none. What interrupts here and is longer stays. */
		__sync_val_compare_and_swap(&cell->max_ns, max_ns, duration_ns);
	return true;
}

static __always_inline __u32 cgroup_of(struct task_struct *task)
{
	__u64 id = task->cgroups->dfl_cgrp->kn->id;

	return id >> 32 ? 0 : id;
}

#endif

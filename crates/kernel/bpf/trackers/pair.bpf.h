/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `pair`: from one tracepoint to another one with the same key, whatever tasks and CPUs they are of.
 *
 * First events wait in a hash of fixed size, by key; one that finds no place is counted, and user space then makes room
 * (crates/kernel/src/ebpf/pairs.rs). A key that begins again before it has ended is counted, and the last one holds. Key and records are read from
 * where the kernel lays them out for its tracers, by the places that tracefs describes, so any tracepoint will do.
 *
 * An entry is removed only by the CPU that has claimed it, by a compare-and-swap of its begin_ns to 0, and nothing is written over it: else of an
 * end and a new beginning at once on two CPUs, the end could have the first beginning and remove the second.
 */
#ifndef RTSCOPE_TRACKERS_PAIR_BPF_H
#define RTSCOPE_TRACKERS_PAIR_BPF_H

#include "trackers/irq.bpf.h"

struct pair_key {
	__u64 parts[RTS_PAIR_PARTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct pair_key);
	__type(value, struct rts_pair);
	__uint(max_entries, 1); /* set before loading */
} pairs SEC(".maps");

/* What a report is made of: 512 bytes of stack are too few. One a CPU is enough: see hooks/pair.bpf.h. */
struct pair_scratch {
	struct rts_pair began;
	struct rts_pair earlier; /* with the same key, which is given up */
	struct pair_key key;
	__u64 values[RTS_LATE_VALUES];
	__u8 records[2][RTS_PAIR_BYTES]; /* of the two events of a report */
	struct rts_chain chain;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct pair_scratch);
	__uint(max_entries, 1);
} pair_scratches SEC(".maps");

#define PAIR_BEGIN 0
#define PAIR_END 1
#define PAIR_ERROR_NONE (-2)   /* ENOENT: user space has removed it, to make room */
#define PAIR_ERROR_FULL (-7)   /* E2BIG */
#define PAIR_ERROR_THERE (-17) /* EEXIST */

/* A field that cannot be read is 0, as the kernel's own reader would have it: the record is the kernel's, and always there. */
static __always_inline __u64 pair_part(void *ctx, const struct here *here, const volatile struct rts_pair_part *part)
{
	__u64 of_task = bpf_get_current_pid_tgid(), value = 0;
	__u32 unused = 64 - 8 * part->size;

	switch (part->kind) {
	case RTS_PAIR_TID:
		return (__u32)of_task;
	case RTS_PAIR_PID:
		return of_task >> 32;
	case RTS_PAIR_CPU:
		return here->cpu;
	case RTS_PAIR_UNSIGNED:
		bpf_probe_read_kernel(&value, part->size, ctx + part->offset);
		return value;
	case RTS_PAIR_SIGNED:
		bpf_probe_read_kernel(&value, part->size, ctx + part->offset);
		return (__u64)((__s64)(value << unused) >> unused);
	}
	return 0;
}

static __always_inline struct pair_scratch *pair_enter(void *ctx, const struct here *here, __u32 side)
{
	struct pair_scratch *scratch;
	__u32 zero = 0;

	scratch = bpf_map_lookup_elem(&pair_scratches, &zero);
	if (!scratch)
		return NULL;
#pragma unroll
	for (int i = 0; i < RTS_PAIR_PARTS; i++)
		scratch->key.parts[i] = pair_part(ctx, here, &config.pair[side].key[i]);
	return scratch;
}

enum pair_claim {
	PAIR_CLAIMED,  /* it is out of the table */
	PAIR_NOTHING,  /* none is there, or another CPU has claimed it */
	PAIR_DISTURBED /* it cannot be had: its place was given to another one, or the kernel did not let go of it */
};

/*
 * Takes the entry with this key out of the table. Its place may be given to another one meanwhile, since places are not freed but used again. A
 * writer writes an entry from the beginning to the end, so what was copied is whole where the beginning is still the same at the claim, and the
 * end is of it. On arm64 the reads may be exchanged in theory; the key and the removal are then what tells.
 */
static __always_inline enum pair_claim pair_claim(struct pair_scratch *scratch, struct rts_pair *copy)
{
	struct rts_pair *there = bpf_map_lookup_elem(&pairs, &scratch->key);
	__u64 begin_ns, key_differs;
	long failed;

	if (!there)
		return PAIR_NOTHING;
	/* ORDER: before the copy: on x86 loads stay in order. The compare-and-swap checks it behind the copy. */
	begin_ns = *(volatile __u64 *)&there->begin_ns;
	if (!begin_ns)
		return PAIR_NOTHING;
	__builtin_memcpy(copy, there, sizeof(*copy));
	/* ORDER: full; one of all that want it has it. */
	if (__sync_val_compare_and_swap(&there->begin_ns, begin_ns, 0) != begin_ns)
		return PAIR_NOTHING;
	key_differs = __builtin_memcmp(copy->key, scratch->key.parts, sizeof(copy->key));
	if (key_differs || copy->begin_ns != begin_ns || copy->check_ns != begin_ns) {
		/* ORDER: as the claim, which it takes back: it was another's. */
		__sync_val_compare_and_swap(&there->begin_ns, 0, begin_ns);
		return PAIR_DISTURBED;
	}
	failed = bpf_map_delete_elem(&pairs, &scratch->key);
	if (!failed || failed == PAIR_ERROR_NONE)
		return PAIR_CLAIMED;
	/* ORDER: as above. It stays, for a later end. */
	__sync_val_compare_and_swap(&there->begin_ns, 0, begin_ns);
	return PAIR_DISTURBED;
}

/* Another CPU that has claimed the entry removes it within some 100 ns, unless it is interrupted in between. */
#define PAIR_TRIES 8

static __always_inline void pair_on_begin(void *ctx, struct here *here)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pair_scratch *scratch = pair_enter(ctx, here, PAIR_BEGIN);
	struct rts_pair *began;
	long failed;

	if (!scratch)
		return;
	began = &scratch->began;
	began->begin_ns = now(here);
	began->check_ns = began->begin_ns;
	__builtin_memcpy(began->key, scratch->key.parts, sizeof(began->key));
	copy_comm((char *)began->comm, task);
	began->tid = task->pid;
	began->pid = task->tgid;
	began->cpu = here->cpu;
	began->targets = instances_here(RTS_TRACKER_PAIR, task->pid);
	bpf_probe_read_kernel(began->record, config.pair[PAIR_BEGIN].bytes, ctx);
	failed = bpf_map_update_elem(&pairs, &scratch->key, began, BPF_NOEXIST);
	for (int try = 0; failed == PAIR_ERROR_THERE && try < PAIR_TRIES; try++) {
		if (pair_claim(scratch, &scratch->earlier) == PAIR_CLAIMED)
			COUNT(here, begun_again);
		failed = bpf_map_update_elem(&pairs, &scratch->key, began, BPF_NOEXIST);
	}
	if (failed == PAIR_ERROR_FULL)
		COUNT(here, pairs_full);
	else if (failed)
		COUNT(here, pairs_failed);
}

/* Takes the first event of this key out of the table. */
static __always_inline bool pair_take(struct here *here, struct pair_scratch *scratch, __u8 instances)
{
	switch (pair_claim(scratch, &scratch->began)) {
	case PAIR_CLAIMED:
		return true;
	case PAIR_DISTURBED:
		COUNT(here, pairs_failed);
		return false;
	default:
		if (instances)
			COUNT(here, without_begin);
		return false;
	}
}

static __always_inline void pair_on_end(void *ctx, struct here *here)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 instances = instances_here(RTS_TRACKER_PAIR, task->pid);
	struct pair_scratch *scratch = pair_enter(ctx, here, PAIR_END);
	struct ended ended = { .tracker = RTS_TRACKER_PAIR, .end = RTS_END_EVENT };

	if (!scratch || !pair_take(here, scratch, instances) || !instances)
		return;
	__builtin_memcpy(scratch->records[PAIR_BEGIN], scratch->began.record, RTS_PAIR_BYTES);
	bpf_probe_read_kernel(scratch->records[PAIR_END], config.pair[PAIR_END].bytes, ctx);
	begin(&scratch->chain, RTS_ORIGIN_EVENT, scratch->began.tid, scratch->began.cpu, scratch->began.begin_ns);
	push(here, &scratch->chain, RTS_STEP_INTERVAL, task->pid, now(here));
	scratch->values[RTS_PAIR_VALUE_PID] = scratch->began.pid;
	__builtin_memcpy(&scratch->values[RTS_PAIR_VALUE_COMM], scratch->began.comm, sizeof(scratch->began.comm));
	__builtin_memcpy(&scratch->values[RTS_PAIR_VALUE_KEY], scratch->key.parts, sizeof(scratch->key.parts));
	ended.values = scratch->values;
	ended.records = scratch->records;
	ended.targets = instances;
	ended.cpu = here->cpu;
	detect_ended(here, &scratch->chain, task, RTS_TRACKER_PAIR, &ended);
}

#endif

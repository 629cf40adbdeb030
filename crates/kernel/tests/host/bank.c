/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The recorder as it is shipped, for the model of a bank (crates/ring/src/model.rs): one CPU, whose memory this file has. The model
 * steps through it and decides what other CPUs see of it, and when a program nests in another.
 */
#include "trackers/registry.bpf.h"

/* Twice what a stream leaves free for programs that nest, so that it is full at half of it. */
#define BANK_BYTES (16 * RTS_BANK_SLACK)
#define BANK_SHIFT 14
#define SUB_SHIFT 7

struct bank_memory {
	__u64 first[RTS_SUB_BUFFERS];
	__u8 data[BANK_BYTES + RTS_BANK_SLACK];
};

struct value_record {
	struct rts_record record;
	__u64 values[6];
};

static struct bank_memory bank_memory[RTS_BANKS];
static struct rts_cpu_control control_memory;
static void (*callback)(volatile void *address, unsigned size, int is_write);
static __u64 clock_ns;

__attribute__((no_sanitize("thread"))) void *host_map_lookup(const void *map, const void *key)
{
	if (map == &banks)
		return &bank_memory[*(const __u32 *)key & (RTS_BANKS - 1)];
	return map == &controls ? &control_memory : NULL;
}

__attribute__((no_sanitize("thread"))) __u64 host_clock(void)
{
	return ++clock_ns;
}

__u32 host_cpu(void)
{
	return 0;
}

struct task_struct *host_current(void)
{
	return NULL;
}

__attribute__((no_sanitize("thread"))) void host_step(volatile void *address, unsigned size, int is_write)
{
	if (callback)
		callback(address, size, is_write);
}

__attribute__((no_sanitize("thread"))) void model_begin(int stream, int without_nmi,
							void (*step)(volatile void *, unsigned, int))
{
	struct rts_config *settings = (struct rts_config *)&config;

	callback = NULL;
	settings->record = 1;
	settings->cpus = 1;
	settings->bank_size = BANK_BYTES;
	settings->bank_shift = BANK_SHIFT;
	settings->sub_buffer_shift = SUB_SHIFT;
	settings->stream = stream;
	settings->without_nmi = without_nmi;
	__builtin_memset(bank_memory, 0, sizeof(bank_memory));
	__builtin_memset(&control_memory, 0, sizeof(control_memory));
	__builtin_memset(&trigger, 0, sizeof(trigger));
	trigger.stop_at_ns = RTS_NEVER;
	trigger.enabled = 1;
	clock_ns = 0;
	callback = step;
}

/* 0: banks, 1: control words, 2: the trigger, 3: the clock. */
void *model_memory(int which)
{
	return which == 0 ? (void *)bank_memory :
	       which == 1 ? (void *)&control_memory :
	       which == 2 ? (void *)&trigger :
			    (void *)&clock_ns;
}

/* One record, whose payload is `words` times the same value: where it lies among the banks, plus 1; 0: there was no room. */
long model_write(__u64 value, __u32 words, int alone)
{
	struct value_record *r;
	struct here here;

	if (!enter(&here))
		return 0;
	here.alone = alone;
	r = reserve(&here, sizeof(struct rts_record) + words * 8, RTS_IRQ_ENTRY, 0);
	if (r) {
		for (__u32 at = 0; at < words; at++)
			r->values[at] = value;
		commit(&r->record);
	}
	/* What was stored last is known at the next step. */
	host_step(NULL, 0, 0);
	return r ? (char *)r - (char *)bank_memory + 1 : 0;
}

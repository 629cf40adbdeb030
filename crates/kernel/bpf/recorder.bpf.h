/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flight recorder: reserve, fill, commit, and the flip from one bank to the other.
 *
 * Cost, per record: one locked fetch-and-add on a line that only this CPU writes, two stores of the record word, the
 * payload's stores. No helper call but the clock, which the caller has read already. No wakeups, ever.
 *
 * Why a fetch-and-add although a ring has one CPU: tracepoint programs nest (softirq_entry fires with interrupts on; an
 * NMI lands anywhere), and eBPF has no non-locked one. Reserve order is the order of the records but for such nesting;
 * user space sorts.
 */
#ifndef RTSCOPE_RECORDER_BPF_H
#define RTSCOPE_RECORDER_BPF_H

#include "programs.bpf.h"

/*
 * ORDER: the commit word must not become visible before the payload. It pairs with the reader, which looks at the word of
 * a frozen bank and then at the payload (crates/ring/src/bank.rs). x86 keeps stores in order, so only the compiler must be
 * held; elsewhere an atomic exchange does it, since eBPF has no release store before 6.15.
 */
#if defined(__TARGET_ARCH_x86)
#define STORE_RELEASE(pointer, value)                                  \
	do {                                                           \
		barrier();                                             \
		*(volatile __typeof__(*(pointer)) *)(pointer) = value; \
	} while (0)
#else
#define STORE_RELEASE(pointer, value) ((void)__sync_lock_test_and_set(pointer, value))
#endif

/*
 * Leaves the current bank when a trigger's post window has passed: the first record after it, on each CPU, flips that CPU.
 * Nobody has to be woken in time for that. trigger.stop_at_ns is RTS_NEVER outside a trigger, so this costs one
 * comparison with a word on a line that is shared but hardly ever written.
 */
static __always_inline __u32 bank_for(struct here *here)
{
	struct rts_cpu_control *control = here->control;
	__u32 bank = control->active & 1;

	if (here->now_ns >= trigger.stop_at_ns && control->flipped != (__u32)trigger.generation) {
		bank ^= 1;
		control->previous_start[bank] = control->start[bank];
		control->previous_start_ns[bank] = control->start_ns[bank];
		control->start[bank] = control->head[bank];
		control->start_ns[bank] = here->now_ns;
		control->active = bank;
		/*
		 * ORDER: flipped says "the other bank is frozen", so it comes after active. Pairs with the acquire load of
		 * flipped in crates/ring/src/control.rs. A nested writer that still holds a slot of the old bank leaves an
		 * open record there, which the reader counts.
		 */
		STORE_RELEASE(&control->flipped, (__u32)trigger.generation);
	}
	return bank;
}

/* Returns the record with its word marked open, or NULL when there is no bank for this CPU (it came after the start). */
static __always_inline void *reserve(struct here *here, __u32 size, __u32 type, __u32 flags, __u64 *commit)
{
	__u32 bank = bank_for(here);
	__u32 index = here->cpu * RTS_BANKS + bank;
	struct bank *memory = bpf_map_lookup_elem(&banks, &index);
	struct rts_record *record;
	__u64 position, offset, lap;

	if (!memory)
		return NULL;
	position = __sync_fetch_and_add(&here->control->head[bank & 1], size);
	offset = position & (config.bank_size - 1);
	lap = (position >> config.bank_shift) + 1;
	if ((position ^ (position + size)) >> config.sub_buffer_shift)
		memory->first[((position + size) >> config.sub_buffer_shift) & (RTS_SUB_BUFFERS - 1)] = position + size;
	record = (void *)memory->data + offset;
	*(volatile __u64 *)&record->word = RTS_WORD(size / 8, type, RTS_OPEN, flags, (__u32)lap);
	barrier();
	record->time_ns = here->now_ns;
	*commit = RTS_WORD(size / 8, type, RTS_COMMITTED, flags, (__u32)lap);
	return record;
}

/*
 * RECORD(here, RTS_IRQ_ENTRY, rts_irq_entry, flags, { r->irq = irq; ... }): one record, if there is a recorder.
 */
#define RECORD(here, record_type, record_struct, record_flags, fill)                                             \
	do {                                                                                                     \
		__u64 commit_word;                                                                               \
		struct record_struct *r;                                                                         \
		if (config.record && (r = reserve(here, sizeof(*r), record_type, record_flags, &commit_word))) { \
			fill STORE_RELEASE(&r->record.word, commit_word);                                        \
		}                                                                                                \
	} while (0)

/* A comm as two words: the kernel's array is 16 bytes at an 8-byte boundary, and the verifier allows it. */
static __always_inline void copy_comm(char *to, const struct task_struct *task)
{
	const __u64 *from = (const void *)__builtin_preserve_access_index(&task->comm);

	((__u64 *)to)[0] = from[0];
	((__u64 *)to)[1] = from[1];
}

#endif

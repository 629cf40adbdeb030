/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flight recorder: reserve, fill, commit, and the flip from one bank to the other.
 *
 * Cost, per record: one locked fetch-and-add on a line that only this CPU writes (a plain one where nothing can come in
 * between, see advance()), two stores of the record word, the payload's stores. No helper call but the clock, which the
 * caller has read already. No wakeups, ever.
 *
 * Why a fetch-and-add although a ring has one CPU: tracepoint programs nest (softirq_entry fires with interrupts on; an
 * NMI lands anywhere), and eBPF has no non-locked one. Reserve order is the order of the records but for such nesting;
 * user space sorts.
 */
#ifndef RTSCOPE_CORE_RECORDER_BPF_H
#define RTSCOPE_CORE_RECORDER_BPF_H

#include "core/program.bpf.h"
#include "bpf_order.h"

/*
 * Leaves the current bank when a trigger's post window has passed: the first record after it, on each CPU, flips that CPU.
 * Nobody has to be woken in time for that. trigger.stop_at_ns is RTS_NEVER outside a trigger, so this costs one
 * comparison with a word on a line that is shared but hardly ever written.
 *
 * Programs nest (interrupts, NMIs), so the flip is claimed first; one that nests between the claim and the publication still
 * writes to the old bank, which is right: it is not frozen before it is published. It does not flip either, not even for a later
 * trigger (the host may have stopped this CPU for long, and then an interrupt comes first): there is one flip at a time.
 */
static __noinline int flip(struct here *here)
{
	struct rts_cpu_control *control = here->control;
	__u32 claimed = control->flip_claim;
	__u64 stop_at_ns;
	__u32 generation, bank;

	/* The usual case after a flip, while the banks are read. A generation that is just being made is seen by the next record. */
	if (claimed == trigger.generation || claimed != control->flipped)
		return 0;
	/*
	 * The generation that this stop_at belongs to: while a stop_at stands there, the generation does not change, and no two triggers have
	 * the same. ORDER: acquire, both; pairs with pull_trigger(), which stores stop_at_ns after the generation, and with re_arm() in
	 * crates/ring/src/control.rs, which takes it back before the next generation can be made.
	 */
	stop_at_ns = LOAD_ACQUIRE(&trigger.stop_at_ns);
	generation = LOAD_ACQUIRE(&trigger.generation);
	if (now(here) < stop_at_ns || *(volatile __u64 *)&trigger.stop_at_ns != stop_at_ns || claimed == generation)
		return 0;
	/* ORDER: full; pairs with itself in a program nested on this CPU: one of them flips. */
	if (__sync_val_compare_and_swap(&control->flip_claim, claimed, generation) != claimed)
		return 0;
	bank = (control->active & 1) ^ 1;
	control->previous_start[bank] = control->start[bank];
	control->previous_start_ns[bank] = control->start_ns[bank];
	control->start[bank] = control->head[bank];
	control->start_ns[bank] = now(here);
	/*
	 * ORDER: one store for active and flipped, after the starts. Pairs with the acquire load of that word in
	 * crates/ring/src/control.rs, which is repeated after a copy.
	 */
	STORE_RELEASE((__u64 *)(void *)&control->active, (__u64)generation << 32 | bank);
	return 0;
}

static __always_inline struct bank *bank_at(struct here *here, __u32 bank)
{
	/* Of a CPU before the first one with banks this is larger than any index: there is nothing at it either. */
	__u32 cpu = here->cpu - config.banks_from;
	__u32 index = config.stream ? cpu : cpu * RTS_BANKS + (bank & 1);

	return bpf_map_lookup_elem(&banks, &index);
}

/*
 * Moves a head by size, and returns where it stood. The locked instruction is 3 to 4 ns of some 55 (docs/adr/0009),
 * so it is left out where nothing can write between the load and the store (here->alone):
 *   - a head is written on its own CPU only: no program changes its CPU while it runs, also not where programs can be
 *     preempted (from Linux 7 on they run with migration disabled);
 *   - the program's tracepoint fires with interrupts off, so on this CPU only an NMI can come in;
 *   - and no loaded program runs in one (config.without_nmi; one of the flight recorder's does).
 * A program that such a one interrupts uses the locked one, a single instruction: it is before or after, never in between.
 *
 * ORDER: the locked one is full: the head is seen before what is written to the slot; pairs with end_of_copy() in
 * crates/ring/src/shared.rs. The plain one orders nothing: a stream's reader believes the record's word, not the head.
 */
static __always_inline __u64 advance(const struct here *here, __u64 *head, __u32 size)
{
	__u64 position;

	/* ORDER: as above. */
	if (!config.without_nmi || !here->alone)
		return __sync_fetch_and_add(head, size);
	position = *(volatile __u64 *)head;
	*(volatile __u64 *)head = position + size;
	return position;
}

/* Reserves in one bank and marks the record open. */
static __always_inline struct rts_record *reserve_in(struct here *here, __u32 bank, __u32 size, __u64 word)
{
	struct bank *memory = bank_at(here, bank);
	struct rts_record *record;
	__u64 position, offset, lap;

	if (!memory)
		return NULL;
	position = advance(here, &here->control->head[bank & 1], size);
	offset = position & (config.bank_size - 1);
	lap = (__u32)((position >> config.bank_shift) + 1);
	if ((position ^ (position + size)) >> config.sub_buffer_shift)
		memory->first[((position + size) >> config.sub_buffer_shift) & (RTS_SUB_BUFFERS - 1)] = position + size;
	record = (void *)memory->data + offset;
	/*
	 * ORDER: the compiler's only: an interrupt on this CPU finds the record open before any of its payload. Other CPUs need not,
	 * since the head (a flight recorder's) or the commit (a stream's) tells them; pairs with record_word() in
	 * crates/ring/src/bank.rs.
	 */
	*(volatile __u64 *)&record->word = word | lap << 32;
	barrier();
	record->time_ns = now(here);
	return record;
}

/*
 * Stateful tracing (config.while_ns): only events are recorded of a task of which something that a tracker of intervals follows has been under way
 * for longer than that: of the current task, and of the one that the event is about. That is asked of the tracker's table at each event, so nothing
 * has to be switched when the time comes; where nobody asked for it, the verifier removes all of it. Defined in trackers/while.bpf.h.
 *
 * Tasks that come, go and change their names are always recorded, or the trace would have no names.
 */
static __noinline bool is_recorded_while(__u32 about, __u64 time_ns);

static __always_inline bool is_left_out(struct here *here, __u32 type)
{
	if (!config.while_ns || type == RTS_PROCESS_FORK || type == RTS_PROCESS_EXEC || type == RTS_PROCESS_EXIT ||
	    type == RTS_TASK_RENAME)
		return false;
	/* Nothing is reported then (detect_ended()). What is asked from within trackers would count for the depth of the stack, which Linux 6.1 limits. */
	if (type == RTS_LATE_RESPONSE)
		return false;
	return !is_recorded_while(here->about, now(here));
}

/* The event is about this task, beside the current one. */
static __always_inline void about(struct here *here, const struct task_struct *task)
{
	if (config.while_ns && (__u32)task->tgid != config.own_pid)
		here->about = task->pid;
}

#define STATE_BITS(state) ((__u64)(state) << 16)

/*
 * A stream: one bank, which a reader empties; a record that finds it full is lost and counted by its type. The question
 * and the reservation are two steps, and programs nest between them: so the ring counts as full a little early, by more
 * than the records of all contexts that can nest (task, softirq, interrupt, NMI).
 *
 * ORDER: the tail is looked at before the slot is written. Pairs with the reader's release store of it, after its copy
 * (crates/ring/src/stream.rs). A control dependency: no store goes ahead of the branch.
 */
#define STREAM_MARGIN (8 * RTS_BANK_SLACK)

static __always_inline void *reserve_streamed(struct here *here, __u32 size, __u32 type, __u64 open)
{
	struct rts_cpu_control *control = here->control;
	/* ORDER: control dependency, as above. */
	__u64 used = *(volatile __u64 *)&control->head[0] - *(volatile __u64 *)&control->tail;

	if (used > config.bank_size - STREAM_MARGIN) {
		/* ORDER: none; a counter that stands for itself. Pairs with Controls::lost() in crates/ring/src/control.rs. */
		__sync_fetch_and_add(&control->lost[type & (RTS_LOST_TYPES - 1)], 1);
		return NULL;
	}
	return reserve_in(here, 0, size, open);
}

/*
 * Returns the record with its word marked open, or NULL when there is no bank for this CPU (it came after the start), or a
 * stream is full.
 */
static __always_inline void *reserve(struct here *here, __u32 size, __u32 type, __u32 flags)
{
	__u64 open = RTS_WORD(size / 8, type, RTS_OPEN, flags, 0);
	struct rts_record *record;
	__u32 bank;

	if (is_left_out(here, type))
		return NULL;
	if (config.stream)
		return reserve_streamed(here, size, type, open);
	if (now(here) >= trigger.stop_at_ns)
		flip(here);
	bank = here->control->active & 1;
	record = reserve_in(here, bank, size, open);
	/* ORDER: on this CPU only; pairs with the store in flip() by a nested program. */
	if (record && (*(volatile __u32 *)&here->control->active & 1) != bank) {
		/*
		 * A nested writer flipped between the choice and the reservation: this slot is in a bank that may have been
		 * copied already. It becomes padding; the record goes to the new bank.
		 */
		record->word = (record->word & ~(0xffULL << 8 | STATE_BITS(0xff))) | STATE_BITS(RTS_COMMITTED);
		record = reserve_in(here, bank ^ 1, size, open);
	}
	return record;
}

/* The record is complete. */
static __always_inline void commit(struct rts_record *record)
{
	__u64 word = record->word;

	/* ORDER: release; pairs with the acquire loads of the word in crates/ring/src/stream.rs and shared.rs. */
	STORE_RELEASE(&record->word, (word & ~STATE_BITS(0xff)) | STATE_BITS(RTS_COMMITTED));
}

/*
 * RECORD(here, RTS_IRQ_ENTRY, rts_irq_entry, flags, { r->irq = irq; ... }): one record, if there is a recorder.
 */
#define RECORD(here, record_type, record_struct, record_flags, fill)                               \
	do {                                                                                       \
		struct record_struct *r;                                                           \
		if (config.record && (r = reserve(here, sizeof(*r), record_type, record_flags))) { \
			fill commit(&r->record);                                                   \
		}                                                                                  \
	} while (0)

/* A comm as two words: the kernel's array is 16 bytes at an 8-byte boundary, and the verifier allows it. */
static __always_inline void copy_comm(char *to, const struct task_struct *task)
{
	const __u64 *from = (const void *)__builtin_preserve_access_index(&task->comm);

	((__u64 *)to)[0] = from[0];
	((__u64 *)to)[1] = from[1];
}

#endif

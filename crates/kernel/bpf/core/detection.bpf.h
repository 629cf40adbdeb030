/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The end of what a tracker follows: for each instance whose target it was, statistics; beyond its limit the report, the event in
 * the recording, and the trigger.
 *
 * Runs once a response, a wakeup, and so on, not once an event; a detection costs about a microsecond.
 */
#ifndef RTSCOPE_CORE_DETECTION_BPF_H
#define RTSCOPE_CORE_DETECTION_BPF_H

#include "core/cells.bpf.h"
#include "core/histogram.bpf.h"
#include "core/trigger.bpf.h"

struct late_ring {
	struct rts_late slots[RTS_LATE_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct late_ring);
	__uint(max_entries, 1); /* CPUs */
} late_rings SEC(".maps");

/* The worst that an instance has reported, where only what is worse is late. */
struct {
	__u64 worst_ns[RTS_INSTANCES];
} records SEC(".data.records");

/* What ended, in one argument: five are what a BPF function can have. Small: it is on the stack below judge(), and Linux 6.1 has 512 bytes for all. */
struct ended {
	__u8 tracker, targets, end;
	__u8 stack_skip; /* frames of ours */
	__u32 cpu;
	/* Of a system call or a lock; NULL for all others. Not the values themselves: a program has 512 bytes of stack. */
	const __u64 *values;
	__s64 result;
	/* The task is the one that made this request, whatever is current; NULL: the task that is given beside this. */
	const struct rts_request *request;
	/* Where in the kernel it ends is of interest: the context of this program. Only a report pays for the walk up the stack. */
	void *stack_of;
	/* Of RTS_TRACKER_PAIR: what the two events said; else NULL. */
	const __u8 (*records)[RTS_PAIR_BYTES];
};

/* Detections may interrupt each other: a system call's returns with interrupts on. So deep at most, and so many slots stay free. */
#define REPORTS_AT_ONCE 4

/* Several CPUs may break a record at once: one that has lost so often against others leaves it at theirs, though its own may be worse. */
#define RECORD_TRIES 4

/* Whether this is worse than all that the instance has reported; the worst of them becomes the limit that is reported. */
static __always_inline bool breaks_record(__u32 instance, __u64 duration_ns, __u64 *limit_ns)
{
	/* ORDER: none; a number that stands for itself. */
	__u64 known_ns = *(volatile __u64 *)&records.worst_ns[instance];

	if (duration_ns <= known_ns)
		return false;
	if (known_ns > *limit_ns)
		*limit_ns = known_ns;
	return true;
}

/* It has been reported: from now on it is the limit. Not before that, or a report that finds no place would keep the next one from coming. */
static __always_inline void raise_record(__u32 instance, __u64 duration_ns)
{
	__u64 *worst_ns = &records.worst_ns[instance];
	/* ORDER: none; a guess, which the compare-and-swap checks. */
	__u64 known_ns = *(volatile __u64 *)worst_ns, found_ns;

#pragma unroll
	for (int try = 0; try < RECORD_TRIES; try++) {
		if (duration_ns <= known_ns)
			return;
		/* ORDER: none; a number that stands for itself. */
		found_ns = __sync_val_compare_and_swap(worst_ns, known_ns, duration_ns);
		if (found_ns == known_ns)
			return;
		known_ns = found_ns;
	}
}

/*
 * The full report of a detection, for user space, which polls late_head. One that interrupts another ends before that one goes on: the
 * outermost, after which none is under way, shows all.
 */
static __always_inline __u64 report(struct here *here, const struct rts_chain *chain, struct task_struct *task,
				    const struct ended *ended, __u32 instance, __u64 limit_ns, __u64 generation)
{
	struct rts_cpu_control *control = here->control;
	struct late_ring *ring = bpf_map_lookup_elem(&late_rings, &here->cpu);
	__u64 position, committed, head;
	struct rts_late *late;

	if (!ring)
		return 0;
	/* ORDER: control dependency; pairs with set_late_tail() in crates/ring/src/control.rs: the slot has been read. */
	if (*(volatile __u64 *)&control->late_reserved - *(volatile __u64 *)&control->late_tail >
	    RTS_LATE_SLOTS - REPORTS_AT_ONCE) {
		/* ORDER: none; a counter that stands for itself, of one CPU and what interrupts it. */
		__sync_fetch_and_add(&control->late_lost, 1);
		return 0;
	}
	/* ORDER: none but that of one CPU, with what interrupts it. */
	position = __sync_fetch_and_add(&control->late_reserved, 1);
	/* Here, where little else is kept: judge() is as deep as the stack of Linux 6.1 allows. */
	if (config.instances[instance].records && ended->end != RTS_END_REWOKEN)
		raise_record(instance, chain->last_ns - chain->origin_ns);
	late = &ring->slots[position & (RTS_LATE_SLOTS - 1)];
	late->end_ns = chain->last_ns;
	late->threshold_ns = limit_ns;
	late->trigger_generation = generation;
	late->tid = ended->request ? ended->request->tid : (__u32)task->pid;
	late->pid = ended->request ? ended->request->pid : (__u32)task->tgid;
	late->prio = ended->request ? ended->request->prio : task->prio;
	late->cpu = ended->cpu;
	late->end = ended->end;
	late->tracker = ended->tracker;
	late->instance = instance;
	late->pad = 0;
	/* Of other trackers that report in the same program it is not. */
	late->stack = config.stacks_ns[ended->tracker & (RTS_TRACKERS_MAX - 1)] ? here->stack : 0;
	late->waker_stack = config.stacks_ns[ended->tracker & (RTS_TRACKERS_MAX - 1)] ? here->waker_stack : 0;
	if (ended->request)
		__builtin_memcpy(late->comm, ended->request->comm, sizeof(late->comm));
	else
		copy_comm(late->comm, task);
	if (ended->values)
		__builtin_memcpy(late->values, ended->values, sizeof(late->values));
	else
		__builtin_memset(late->values, 0, sizeof(late->values));
	if (ended->stack_of)
		bpf_get_stack(ended->stack_of, late->values, sizeof(late->values), ended->stack_skip);
	if (ended->records) {
		__builtin_memcpy(late->records[0], ended->records[0], RTS_PAIR_BYTES);
		__builtin_memcpy(late->records[1], ended->records[1], RTS_PAIR_BYTES);
	}
	late->result = ended->result;
	late->chain = *chain;
	late->sequence = position + 1;
	/* ORDER: none for the number, which is this CPU's. */
	committed = __sync_fetch_and_add(&control->late_committed, 1) + 1;
	head = *(volatile __u64 *)&control->late_head;
	/*
	 * A report that comes just here shows itself and this one, and its number stays. ORDER: full; the slots before the head. Pairs with the
	 * acquire load of late_head in crates/ring/src/late.rs.
	 */
	if (committed == *(volatile __u64 *)&control->late_reserved && head < committed)
		__sync_val_compare_and_swap(&control->late_head, head, committed);
	return position + 1;
}

/* One more of this thread's. Under the lock of its way, or where it is current: one writer. But requests of one end on several CPUs. */
static __always_inline void count_for_thread(struct rts_stats *s, __u32 tid, __u32 instance, bool anywhere)
{
	struct rts_thread_count *count = NULL;
	struct slot slot;
	__u32 index;

	/* The idle task has no way: tid 0 is that of a free one. */
	if (tid && find_task(tid, &slot)) {
		index = slot.index * config.instances_len + instance;
		count = bpf_map_lookup_elem(&thread_counts, &index);
	}
	if (!count) {
		s->uncounted++;
		return;
	}
	if (count->tid != tid) {
		s->uncounted += count->seen;
		count->seen = 0;
		count->tid = tid;
	}
	if (anywhere)
		/* ORDER: none; a counter that stands for itself. */
		__sync_fetch_and_add(&count->seen, 1);
	else
		count->seen++;
}

/* Of what kind an operation is: which call, which request, with what it began. */
static __always_inline __u64 kind_of(const struct rts_chain *chain, const struct ended *ended)
{
	switch (ended->tracker) {
	case RTS_TRACKER_SYSCALL:
	case RTS_TRACKER_LOCK:
		return chain->origin_id & (RTS_SYSCALLS - 1);
	case RTS_TRACKER_BLOCK:
		if (!ended->values)
			return 0;
		/* Its operation: the lower byte of cmd_flags (REQ_OP_MASK). A write (1) of nothing is a flush (2). */
		return (ended->values[3] & 0xff) == 1 && !ended->values[2] ? 2 : ended->values[3] & 0xff;
	default:
		return chain->origin_kind;
	}
}

/* The key of an operation, without its bucket. */
static __always_inline __u64 key_of(struct here *here, const struct rts_chain *chain, struct task_struct *task,
				    const struct ended *ended, __u32 instance)
{
	const volatile struct rts_instance *of = &config.instances[instance & (RTS_INSTANCES - 1)];
	const struct rts_request *request = ended->request;
	__u64 key = RTS_CELL_USED | (__u64)(instance & (RTS_INSTANCES - 1)) << RTS_CELL_INSTANCE_SHIFT;

	if (of->kind)
		key |= kind_of(chain, ended) << RTS_CELL_KIND_SHIFT;
	switch (of->id) {
	case RTS_CELL_THREAD:
		return key | (request ? request->tid : (__u32)task->pid);
	case RTS_CELL_PROCESS:
		return key | (request ? request->pid : (__u32)task->tgid);
	case RTS_CELL_ORIGIN:
		return key | chain->origin_id;
	case RTS_CELL_CPU:
		return key | ended->cpu;
	case RTS_CELL_CGROUP:
		return key | (request ? request->cgroup : cgroup_of(task));
	case RTS_CELL_DEVICE:
		return key | (!ended->values ? 0 :
			      request	     ? (__u32)ended->values[0] :
					       (__u32)ended->values[RTS_LATE_VALUES - 1]);
	case RTS_CELL_FIELD:
		return key | (!ended->values ? 0 : (__u32)ended->values[RTS_PAIR_VALUE_KEY]);
	default:
		return key;
	}
}

/* Counts an operation of a keyed instance in its cell. */
static __always_inline void count_by_key(struct here *here, struct rts_stats *s, const struct rts_chain *chain,
					 struct task_struct *task, const struct ended *ended, __u32 instance)
{
	__u8 id = config.instances[instance & (RTS_INSTANCES - 1)].id;
	__u64 duration_ns = chain->last_ns - chain->origin_ns;
	__u64 key = key_of(here, chain, task, ended, instance);
	char comm[RTS_COMM_LEN] __attribute__((aligned(8)));
	bool is_new = false;

	if (!count_in_cell(key, histogram_bucket(duration_ns), here->cpu, duration_ns, &is_new))
		/* ORDER: none; a counter that stands for itself. */
		__sync_fetch_and_add(&s->unkeyed, 1);
	if (!is_new || (id != RTS_CELL_THREAD && id != RTS_CELL_PROCESS))
		return;
	if (ended->request)
		__builtin_memcpy(comm, ended->request->comm, sizeof(comm));
	else
		copy_comm(comm, task);
	name_cell(key, here->cpu, comm);
}

/* Counts for one instance, and reports what is beyond its limit. */
static __always_inline int judge(struct here *here, struct rts_chain *chain, struct task_struct *task,
				 const struct ended *ended, __u32 instance)
{
	struct rts_stats *s = stats_of(here, instance & (RTS_INSTANCES - 1));
	const volatile struct rts_instance *of = &config.instances[instance & (RTS_INSTANCES - 1)];
	__u64 duration_ns = chain->last_ns - chain->origin_ns;
	__u64 limit_ns = of->threshold_ns;
	__u32 bucket = histogram_bucket(duration_ns);
	__u32 tid = ended->request ? ended->request->tid : (__u32)task->pid;
	__u64 sequence, generation;

	if (!s)
		return 0;
	s->seen++;
	count_for_thread(s, tid, instance & (RTS_INSTANCES - 1), ended->request);
	s->merged += chain->merged;
	s->sum_ns += duration_ns;
	if (duration_ns < s->min_ns || s->seen == 1)
		s->min_ns = duration_ns;
	if (duration_ns > s->max_ns)
		s->max_ns = duration_ns;
	if (bucket < RTS_HIST_BUCKETS)
		s->histogram[bucket]++;
	/* Asked as a whole first: the verifier knows that it is 0, and not which instance this is. */
	if (config.keyed && config.keyed >> (instance & (RTS_INSTANCES - 1)) & 1)
		count_by_key(here, s, chain, task, ended, instance);
	if (duration_ns <= limit_ns)
		return 0;
	if (of->records && ended->end != RTS_END_REWOKEN &&
	    !breaks_record(instance & (RTS_INSTANCES - 1), duration_ns, &limit_ns))
		return 0;
	s->late++;
	generation = of->snapshot ? claim_trigger(here, s, tid) : 0;
	sequence = report(here, chain, task, ended, instance & (RTS_INSTANCES - 1), limit_ns, generation);
	RECORD(here, RTS_LATE_RESPONSE, rts_late_response, 0, {
		r->origin_ns = chain->origin_ns;
		r->response_ns = duration_ns;
		r->threshold_ns = limit_ns;
		r->sequence = sequence;
		r->tid = tid;
		r->pid = ended->request ? ended->request->pid : (__u32)task->tgid;
		r->origin_id = chain->origin_id;
		r->origin_kind = chain->origin_kind;
		r->end = ended->end;
		r->tracker = ended->tracker;
		r->instance = instance;
	});
	if (generation)
		pull_trigger(here);
	return 0;
}

static __always_inline bool has_three_bits(__u8 mask)
{
	mask &= mask - 1;
	mask &= mask - 1;
	return mask;
}

/* What judge_one() has of detect_ended(). */
struct detection {
	struct here *here;
	struct rts_chain *chain;
	struct task_struct *task;
	const struct ended *ended;
};

static int judge_one(__u32 instance, struct detection *detection)
{
	if (detection->ended->targets >> (instance & (RTS_INSTANCES - 1)) & 1)
		judge(detection->here, detection->chain, detection->task, detection->ended, instance);
	return 0;
}

/*
 * chain->last_ns is the end of something that a tracker follows, in a task that is a target of these instances. With bpf_loop(), so that the
 * verifier looks at one of them: unrolled, many of a kind were more than it takes. One or two of a kind are unrolled: what is not there it removes,
 * since it knows the mask, and that of Linux 7.2 goes further into loops.
 */
static __always_inline void detect_ended(struct here *here, struct rts_chain *chain, struct task_struct *task,
					 __u8 tracker, struct ended *ended)
{
	struct detection detection = { .here = here, .chain = chain, .task = task, .ended = ended };

	/* Then what is under way chooses what is recorded; what has ended is of no interest, and its report would be too deep for Linux 6.1's stack. */
	if (config.while_ns)
		return;
	ended->targets &= config.of_tracker[tracker];
	if (has_three_bits(config.of_tracker[tracker])) {
		if (ended->targets)
			bpf_loop(RTS_INSTANCES, judge_one, &detection, 0);
		return;
	}
#pragma unroll
	for (__u32 instance = 0; instance < RTS_INSTANCES; instance++) {
		if (config.of_tracker[tracker] >> instance & 1)
			judge_one(instance, &detection);
	}
}

static __always_inline void detect(struct here *here, struct rts_chain *chain, struct task_struct *task, __u8 tracker,
				   __u8 targets, __u8 end, __u32 end_cpu)
{
	struct ended ended = { .tracker = tracker, .targets = targets, .end = end, .cpu = end_cpu };

	detect_ended(here, chain, task, tracker, &ended);
}

#endif

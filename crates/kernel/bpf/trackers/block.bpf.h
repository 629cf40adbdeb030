/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker `block`: from where a request to a block device is made until the device has done with it, in two steps: it is queued, the
 * device works. A request that comes back to the queue has them again.
 *
 * Requests are found by their address in a hash that is filled before anything is attached; one that finds no place is counted as untracked.
 * One whose end was not seen stays until its address is used again, of which a device has a fixed number.
 */
#ifndef RTSCOPE_TRACKERS_BLOCK_BPF_H
#define RTSCOPE_TRACKERS_BLOCK_BPF_H

#include "trackers/irq.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, struct rts_request);
	__uint(max_entries, 1); /* set before loading */
} requests SEC(".maps");

/* What a request is made from; nobody writes to it. (512 bytes of stack are too few.) */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct rts_request);
	__uint(max_entries, 1);
} no_request SEC(".maps");

static __always_inline struct rts_request *find_request(struct request *rq)
{
	__u64 key = (__u64)rq;

	return bpf_map_lookup_elem(&requests, &key);
}

static __always_inline void forget_request(struct request *rq)
{
	__u64 key = (__u64)rq;

	bpf_map_delete_elem(&requests, &key);
}

/* As the kernel's own tracepoints say it: the disk, not a partition. A queue without one has the number 0. */
static __always_inline __u32 disk_of(struct request *rq)
{
	struct gendisk *disk = rq->q->disk;

	return disk ? (__u32)disk->major << 20 | (disk->first_minor & 0xfffff) : 0;
}

static __always_inline void note_request(struct rts_request *request, struct request *rq)
{
	request->values[0] = disk_of(rq);
	request->values[1] = rq->__sector;
	request->values[2] = rq->__data_len;
	request->values[3] = rq->cmd_flags;
	request->chain.origin_id = request->values[0];
}

/* By the task that is current: where a file system writes later, one of the kernel's. */
static __noinline int request_begins(struct here *here, struct request *rq)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 instances = instances_here(RTS_TRACKER_BLOCK, task->pid);
	struct rts_request *request, *empty;
	__u64 key = (__u64)rq;
	__u32 zero = 0;

	empty = bpf_map_lookup_elem(&no_request, &zero);
	if (!empty)
		return 0;
	/* The one before at this address has ended, and the kernel did not report that. */
	request = bpf_map_lookup_elem(&requests, &key);
	if (request) {
		COUNT(here, unended);
		if (!instances)
			bpf_map_delete_elem(&requests, &key);
	}
	if (!instances)
		return 0;
	if (bpf_map_update_elem(&requests, &key, empty, BPF_ANY)) {
		COUNT(here, untracked);
		return 0;
	}
	request = bpf_map_lookup_elem(&requests, &key);
	if (!request)
		return 0;
	begin(&request->chain, RTS_ORIGIN_BLOCK, 0, here->cpu, now(here));
	note_request(request, rq);
	request->tid = task->pid;
	request->pid = task->tgid;
	request->prio = task->prio;
	request->targets = instances;
	request->cgroup = config.keyed ? cgroup_of(task) : 0;
	copy_comm(request->comm, task);
	request->link = RTS_REQUEST_QUEUED;
	return 0;
}

/* It goes into a queue: where the kernel has not said so before, it begins here. */
static __always_inline void request_on_insert(struct here *here, struct request *rq)
{
	if (!find_request(rq))
		request_begins(here, rq);
}

static __always_inline void request_on_issue(struct here *here, struct request *rq)
{
	struct rts_request *request = find_request(rq);

	if (!request) {
		request_begins(here, rq);
		request = find_request(rq);
	}
	if (!request)
		return;
	/* It may have grown by merges since it was made; when it comes back, a part of it may be done. */
	if (!request->chain.steps_len)
		note_request(request, rq);
	push(here, &request->chain, RTS_STEP_QUEUE, request->chain.origin_id, now(here));
	request->link = RTS_REQUEST_ISSUED;
}

static __always_inline void request_on_requeue(struct here *here, struct request *rq)
{
	struct rts_request *request = find_request(rq);

	if (!request || request->link != RTS_REQUEST_ISSUED)
		return;
	push(here, &request->chain, RTS_STEP_DEVICE, request->chain.origin_id, now(here));
	request->link = RTS_REQUEST_QUEUED;
}

static __noinline int request_ended(struct here *here, struct rts_request *request, __u32 status)
{
	struct ended ended = { .tracker = RTS_TRACKER_BLOCK, .end = RTS_END_COMPLETED, .result = status };

	/* A write of nothing is a flush. It is not issued itself: others, of the kernel's, are issued for it. */
	bool with_device = request->link == RTS_REQUEST_ISSUED || !request->values[2];

	push(here, &request->chain, with_device ? RTS_STEP_DEVICE : RTS_STEP_QUEUE, request->chain.origin_id,
	     now(here));
	request->link = RTS_REQUEST_NONE;
	ended.values = request->values;
	ended.targets = request->targets;
	ended.cpu = here->cpu;
	ended.request = request;
	detect_ended(here, &request->chain, bpf_get_current_task_btf(), RTS_TRACKER_BLOCK, &ended);
	return 0;
}

/* A part of it is done, or all that is left. */
static __always_inline void request_on_complete(struct here *here, struct request *rq, __u32 status, __u32 bytes)
{
	struct rts_request *request;

	if (bytes < rq->__data_len)
		return;
	request = find_request(rq);
	if (!request)
		return;
	request_ended(here, request, status);
	forget_request(rq);
}

#endif

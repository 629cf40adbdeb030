/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Requests to block devices; loaded only for the tracker `block`. Devices without requests (zram, device-mapper and md before they reach
 * their disks) are not seen here, and neither is the time under a limit of a cgroup (blk-throttle): it passes before the request is made.
 *
 * Cost: a look-up in a hash at each of three or four tracepoints of a request, and one insertion and removal; some 100 ns each.
 */
#ifndef RTSCOPE_HOOKS_BLOCK_BPF_H
#define RTSCOPE_HOOKS_BLOCK_BPF_H

#include "trackers/registry.bpf.h"

/* Optional: since Linux 6.5. Without it a request begins where it is queued, or goes to the device at once. */
SEC("tp_btf/block_io_start")
int BPF_PROG(block_io_start, struct request *rq)
{
	struct here here;

	if (enter(&here))
		request_begins(&here, rq);
	return 0;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(block_rq_insert, struct request *rq)
{
	struct here here;

	if (enter(&here))
		request_on_insert(&here, rq);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *rq)
{
	struct here here;

	if (enter(&here))
		request_on_issue(&here, rq);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(block_rq_requeue, struct request *rq)
{
	struct here here;

	if (enter(&here))
		request_on_requeue(&here, rq);
	return 0;
}

/* It is a part of another request from now on. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(block_rq_merge, struct request *rq)
{
	struct here here;

	if (enter(&here))
		forget_request(rq);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, __u32 status, __u32 bytes)
{
	struct here here;

	if (enter(&here))
		request_on_complete(&here, rq, status, bytes);
	return 0;
}

#endif

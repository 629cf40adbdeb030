/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Workqueues. Queueing fires with interrupts off; beginning and ending fire in the worker, with interrupts on: only another
 * worker that preempts it right there (from Linux 7) can be missed, and is counted by the kernel.
 */
#ifndef RTSCOPE_HOOKS_WORKQUEUE_BPF_H
#define RTSCOPE_HOOKS_WORKQUEUE_BPF_H

#include "trackers/registry.bpf.h"

/* A pointer as a number: verifiers differ in what arithmetic they allow on a pointer, so it goes through memory. */
static __always_inline __u64 address_of(const void *pointer)
{
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &pointer);
	return address;
}

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(workqueue_queue_work, int req_cpu, void *pwq, struct work_struct *work)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_WORK_QUEUE, rts_work_queue, 0, {
		r->work = (__u64)work;
		r->function = (__u64)work->func;
		r->req_cpu = req_cpu;
		r->pad = 0;
	});
	if (config.track)
		track_work_queue(&here, address_of(work));
	return 0;
}

static __always_inline void on_workqueue_execute_start(struct work_struct *work)
{
	struct here here;

	if (!enter(&here))
		return;
	RECORD(&here, RTS_WORK_START, rts_work, 0, {
		r->work = (__u64)work;
		r->function = (__u64)work->func;
	});
	if (config.track)
		track_work_start(&here, address_of(work));
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(workqueue_execute_start, struct work_struct *work)
{
	stay_here();
	on_workqueue_execute_start(work);
	may_go();
	return 0;
}

/*
 * The item may be freed by now: only its address is used. The arguments are read as memory, because verifiers refuse to
 * load a pointer to a function.
 */
static __always_inline void on_workqueue_execute_end(void *context)
{
	__u64 arguments[2] = {};
	struct here here;

	if (!enter(&here))
		return;
	bpf_probe_read_kernel(arguments, sizeof(arguments), context);
	RECORD(&here, RTS_WORK_END, rts_work, 0, {
		r->work = arguments[0];
		r->function = arguments[1];
	});
	if (config.track)
		track_work_end(&here);
}

SEC("tp_btf/workqueue_execute_end")
int workqueue_execute_end(void *context)
{
	stay_here();
	on_workqueue_execute_end(context);
	may_go();
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Workqueues. Queueing fires with interrupts off; beginning and ending fire in the worker, with interrupts on: only another
 * worker that preempts it right there (from Linux 7) can be missed, and is counted by the kernel.
 */

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
		track_work_queue(&here, (__u64)work);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(workqueue_execute_start, struct work_struct *work)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_WORK_START, rts_work, 0, {
		r->work = (__u64)work;
		r->function = (__u64)work->func;
	});
	if (config.track)
		track_work_start(&here, (__u64)work);
	return 0;
}

/* The item may be freed by now: only its address is used. */
SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(workqueue_execute_end, void *work, void *function)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_WORK_END, rts_work, 0, {
		r->work = (__u64)work;
		r->function = (__u64)function;
	});
	if (config.track)
		track_work_end(&here);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The end of a response.
 */
#ifndef RTSCOPE_RESPONSE_COMPLETE_BPF_H
#define RTSCOPE_RESPONSE_COMPLETE_BPF_H

#include "core/detection.bpf.h"
#include "trackers/response/context.bpf.h"

static __always_inline bool origin_matches(const struct rts_chain *chain)
{
	if (!begins_with(chain->origin_kind & 7))
		return false;
	if (chain->origin_kind != RTS_ORIGIN_IRQ || !config.origin_irqs)
		return true;
	for (__u32 i = 0; i < 16; i++) {
		if (i >= config.origin_irqs)
			break;
		if (config.irqs[i] == chain->origin_id)
			return true;
	}
	return false;
}

/* A target's response has ended: chain->last_ns is its end. */
static __always_inline void complete(struct here *here, const struct task_way *way, struct rts_chain *chain,
				     struct task_struct *task, __u32 end, __u32 end_cpu)
{
	if (origin_matches(chain))
		detect(here, chain, task, RTS_TRACKER_RESPONSE, way->targets, end, end_cpu);
	else
		COUNT(here, filtered);
}

#endif

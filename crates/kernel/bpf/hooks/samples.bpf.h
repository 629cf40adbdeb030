/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Samples of the software event `cpu-clock`, a high-resolution timer of each CPU; loaded only for the tracker `irqoff`. It needs no PMU.
 *
 * Cost: an interrupt of each CPU after each sample_ns, idle ones too, about a microsecond; user space says so when it sets sample_ns.
 */
#ifndef RTSCOPE_HOOKS_SAMPLES_BPF_H
#define RTSCOPE_HOOKS_SAMPLES_BPF_H

#include "trackers/registry.bpf.h"

SEC("perf_event")
int irqoff_sample(void *ctx)
{
	struct here here;

	if (!enter(&here))
		return 0;
	here.alone = true;
	irqoff_on_sample(ctx, &here);
	return 0;
}

#endif

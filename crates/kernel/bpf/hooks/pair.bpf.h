/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The two tracepoints of the tracker `pair`, which user space names; loaded only for it.
 *
 * These are classic tracepoint programs, unlike all others: they are given the record that tracefs describes, so that any tracepoint and any
 * field will do. The price: all programs of this type on a CPU, whoever loaded them, share one guard, so an event in an interrupt that came while
 * one of them ran is skipped. The kernel counts that by program since Linux 6.7, and rtscope reports it with what was lost. In return none is
 * interrupted by another, so one scratch a CPU is enough, and an event that both begins and ends is seen by both, one after the other.
 *
 * Cost: the kernel makes a record for its tracers, some 100 ns; reading it, and an insertion into a hash or a look-up and a removal, as much again.
 */
#ifndef RTSCOPE_HOOKS_PAIR_BPF_H
#define RTSCOPE_HOOKS_PAIR_BPF_H

#include "trackers/registry.bpf.h"

SEC("tracepoint")
int pair_ends(void *ctx)
{
	struct here here;

	if (enter(&here))
		pair_on_end(ctx, &here);
	return 0;
}

SEC("tracepoint")
int pair_begins(void *ctx)
{
	struct here here;

	if (enter(&here))
		pair_on_begin(ctx, &here);
	return 0;
}

#endif

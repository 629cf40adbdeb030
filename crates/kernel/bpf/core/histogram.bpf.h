/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Log-linear histograms: which bucket a value belongs to (RTS_HIST_... in kernel_abi.h).
 */
#ifndef RTSCOPE_COREISTOGRAM_BPF_H
#define RTSCOPE_COREISTOGRAM_BPF_H

#include "core/program.bpf.h"

/* Position of the highest bit set, 0 for 0 and 1. */
static __always_inline __u32 log2_floor(__u64 value)
{
	__u32 bit = 0;

#pragma unroll
	for (int shift = 32; shift > 0; shift >>= 1) {
		if (value >> shift) {
			value >>= shift;
			bit += shift;
		}
	}
	return bit;
}

static __always_inline __u32 histogram_bucket(__u64 value)
{
	__u32 power, bucket;

	if (value < RTS_HIST_SUB)
		return value;
	power = log2_floor(value);
	bucket = (power - RTS_HIST_SUB_BITS + 1) * RTS_HIST_SUB +
		 ((value >> (power - RTS_HIST_SUB_BITS)) & (RTS_HIST_SUB - 1));
	return bucket < RTS_HIST_BUCKETS ? bucket : RTS_HIST_BUCKETS - 1;
}

#endif

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * rtscope's built-in events: one eBPF program for each tracepoint, which records the event and feeds the response tracker.
 *
 * Recorder and tracker share a program because entering one costs more than either does (dispatch, clock), and because a
 * detection must stand in the recording exactly where it happened. What a configuration does not use, the verifier removes.
 *
 * All are typed raw tracepoints: each has its private recursion guard, whose misses the kernel counts (recursion_misses),
 * while classic tracepoint programs share one guard per CPU and lose events without a trace.
 */
#include "hooks/block.bpf.h"
#include "hooks/calls.bpf.h"
#include "hooks/contention.bpf.h"
#include "hooks/irq.bpf.h"
#include "hooks/pair.bpf.h"
#include "hooks/preemption.bpf.h"
#include "hooks/process.bpf.h"
#include "hooks/samples.bpf.h"
#include "hooks/sched.bpf.h"
#include "hooks/stacks.bpf.h"
#include "hooks/syscall.bpf.h"
#include "hooks/timer.bpf.h"
#include "hooks/workqueue.bpf.h"
#include "tools/bench.bpf.h"
#include "tools/expiry.bpf.h"
#include "tools/test.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

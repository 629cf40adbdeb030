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
#include "tracker_work.bpf.h"

#include "sched.bpf.h"
#include "irq.bpf.h"
#include "timer.bpf.h"
#include "workqueue.bpf.h"
#include "process.bpf.h"
#include "syscall.bpf.h"
#include "expiry.bpf.h"
#include "bench.bpf.h"
#include "test.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

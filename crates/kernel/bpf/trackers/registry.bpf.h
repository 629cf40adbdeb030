/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All trackers. A hook (hooks/) records its event and then calls what trackers have for it, from here.
 */
#ifndef RTSCOPE_TRACKERS_REGISTRY_BPF_H
#define RTSCOPE_TRACKERS_REGISTRY_BPF_H

#include "trackers/block.bpf.h"
#include "trackers/intervals.bpf.h"
#include "trackers/irqoff.bpf.h"
#include "trackers/pair.bpf.h"
#include "trackers/preemptoff.bpf.h"
#include "trackers/response/interrupts.bpf.h"
#include "trackers/response/softirqs.bpf.h"
#include "trackers/response/switch.bpf.h"
#include "trackers/response/tasks.bpf.h"
#include "trackers/response/waking.bpf.h"
#include "trackers/response/work.bpf.h"
#include "trackers/while.bpf.h"

#endif

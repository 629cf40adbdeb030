/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When the interrupt came for which a certain thread sleeps: `rtscope shield table` alone loads these.
 *
 * The thread says for what it waits before it sleeps, to the nanosecond, so that one comparison tells its timer from all
 * others; the thread in the timer's sleeper is the proof. What is found is read by the thread itself: no ring, no loss.
 */
#ifndef RTSCOPE_TOOLS_EXPIRY_BPF_H
#define RTSCOPE_TOOLS_EXPIRY_BPF_H

#include "hooks/timer.bpf.h"

struct rts_expiry expiry SEC(".data.expiry") = { .wanted_ns = RTS_NEVER };

/* When this CPU's timer interrupt was entered last. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} expiry_entered SEC(".maps");

SEC("tp_btf/local_timer_entry")
int BPF_PROG(expiry_entry, int vector)
{
	__u32 only = 0;
	__u64 *entered = bpf_map_lookup_elem(&expiry_entered, &only);

	if (entered)
		*entered = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(expiry_timer, struct hrtimer *timer)
{
	/* ORDER: the load once, so that one value is compared and stored; pairs with Expiry::want() in crates/ring/src/expiry.rs. */
	__u64 wanted_ns = *(volatile __u64 *)&expiry.wanted_ns, now_ns, *entered;
	struct hrtimer_sleeper *sleeper = (void *)timer;
	__u32 only = 0;

	if ((__u64)(timer->_softexpires - clock_offset(timer)) != wanted_ns)
		return 0;
	/* Should another timer expire in the same nanosecond, it is in no sleeper, and what is read there is nobody's number. */
	if ((__u32)BPF_CORE_READ(sleeper, task, pid) != expiry.tid)
		return 0;
	now_ns = bpf_ktime_get_ns();
	entered = bpf_map_lookup_elem(&expiry_entered, &only);
	/*
	 * One interrupt can serve many timers, this one as the last: the time of its entry counts. One of before the wanted
	 * time is another interrupt's, or this one's that came early and was still at work.
	 */
	expiry.entered_ns = entered && *entered >= wanted_ns ? *entered : now_ns;
	expiry.cpu = bpf_get_smp_processor_id();
	/* ORDER: last. Pairs with the acquire load in crates/ring/src/expiry.rs. */
	STORE_RELEASE(&expiry.fired_ns, wanted_ns);
	return 0;
}

#endif

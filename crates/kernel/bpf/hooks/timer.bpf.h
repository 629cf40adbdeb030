/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* High-resolution timers: where the chains of periodic programs begin. */
#ifndef RTSCOPE_HOOKS_TIMER_BPF_H
#define RTSCOPE_HOOKS_TIMER_BPF_H

#include "trackers/registry.bpf.h"

/* What turns the timer's own clock into CLOCK_MONOTONIC: 0 for monotonic, else the base's offset (REALTIME, TAI, BOOTTIME). */
static __always_inline __s64 clock_offset(struct hrtimer *timer)
{
	return timer->base->offset;
}

static __always_inline void on_hrtimer_expire_entry(struct hrtimer *timer, __s64 *now)
{
	struct here here;
	__s64 offset, softexpires_ns, expires_ns;

	if (!enter(&here))
		return;
	offset = clock_offset(timer);
	softexpires_ns = timer->_softexpires - offset;
	expires_ns = timer->node.expires - offset;
	RECORD(&here, RTS_HRTIMER_ENTRY, rts_hrtimer_entry, 0, {
		r->timer = (__u64)timer;
		r->function = (__u64)timer->function;
		r->softexpires_ns = softexpires_ns;
		r->expires_ns = expires_ns;
	});
	if (config.track)
		track_hrtimer_entry(&here, softexpires_ns, expires_ns);
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(hrtimer_expire_entry, struct hrtimer *timer, __s64 *now)
{
	stay_here();
	on_hrtimer_expire_entry(timer, now);
	may_go();
	return 0;
}

static __always_inline void on_hrtimer_expire_exit(struct hrtimer *timer)
{
	struct here here;

	if (!enter(&here))
		return;
	RECORD(&here, RTS_HRTIMER_EXIT, rts_hrtimer_exit, 0, { r->timer = (__u64)timer; });
	if (config.track)
		track_hrtimer_exit(&here);
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(hrtimer_expire_exit, struct hrtimer *timer)
{
	stay_here();
	on_hrtimer_expire_exit(timer);
	may_go();
	return 0;
}

#endif

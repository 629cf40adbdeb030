/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Interrupts, system vectors, softirqs, IPIs, NMIs and idle. softirq_entry, softirq_exit and (often) ipi_send_cpu fire with
 * interrupts on, so an interrupt's records may nest in theirs, and an IPI that such an interrupt sends is skipped by the
 * program's own guard (counted by the kernel as a recursion miss); the others fire with interrupts off.
 */
#ifndef RTSCOPE_HOOKS_IRQ_BPF_H
#define RTSCOPE_HOOKS_IRQ_BPF_H

#include "trackers/registry.bpf.h"

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq, struct irqaction *action)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_IRQ_ENTRY, rts_irq_entry, 0, {
		r->irq = irq;
		r->pad = 0;
	});
	if (config.track)
		track_irq_entry(&here, irq);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq, struct irqaction *action, int ret)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_IRQ_EXIT, rts_irq_exit, 0, {
		r->irq = irq;
		r->ret = ret;
	});
	if (config.track)
		track_irq_exit(&here, irq, ret);
	return 0;
}

static __always_inline int vector_entry(__u32 kind, __u32 vector)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_VECTOR_ENTRY, rts_vector, 0, {
		r->kind = kind;
		r->vector = vector;
	});
	if (config.track)
		track_vector_entry(&here, kind);
	return 0;
}

static __always_inline int vector_exit(__u32 kind, __u32 vector)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_VECTOR_EXIT, rts_vector, 0, {
		r->kind = kind;
		r->vector = vector;
	});
	if (config.track)
		track_vector_exit(&here, kind);
	return 0;
}

/* Optional programs: crates/kernel/src/ebpf.rs leaves out those whose tracepoint the kernel does not have. */
#define VECTOR(name, kind)                         \
	SEC("tp_btf/" #name "_entry")              \
	int BPF_PROG(name##_entry, int vector)     \
	{                                          \
		return vector_entry(kind, vector); \
	}                                          \
	SEC("tp_btf/" #name "_exit")               \
	int BPF_PROG(name##_exit, int vector)      \
	{                                          \
		return vector_exit(kind, vector);  \
	}

VECTOR(local_timer, RTS_VECTOR_LOCAL_TIMER)
VECTOR(reschedule, RTS_VECTOR_RESCHEDULE)
VECTOR(call_function, RTS_VECTOR_CALL_FUNCTION)
VECTOR(call_function_single, RTS_VECTOR_CALL_FUNCTION_SINGLE)
VECTOR(irq_work, RTS_VECTOR_IRQ_WORK)
VECTOR(thermal_apic, RTS_VECTOR_THERMAL)
VECTOR(threshold_apic, RTS_VECTOR_THRESHOLD)
VECTOR(deferred_error_apic, RTS_VECTOR_DEFERRED_ERROR)
VECTOR(error_apic, RTS_VECTOR_ERROR)
VECTOR(spurious_apic, RTS_VECTOR_SPURIOUS)
VECTOR(x86_platform_ipi, RTS_VECTOR_PLATFORM_IPI)

#define RECORD_SOFTIRQ(here, type, number)   \
	RECORD(here, type, rts_softirq, 0, { \
		r->vec = number;             \
		r->pad = 0;                  \
	})

SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raise, unsigned int vec)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD_SOFTIRQ(&here, RTS_SOFTIRQ_RAISE, vec);
	if (config.track)
		track_softirq_raise(&here, vec);
	return 0;
}

static __always_inline void on_softirq_entry(unsigned int vec)
{
	struct here here;

	if (!enter(&here))
		return;
	RECORD_SOFTIRQ(&here, RTS_SOFTIRQ_ENTRY, vec);
	if (config.track)
		track_softirq_entry(&here, vec);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	stay_here();
	on_softirq_entry(vec);
	may_go();
	return 0;
}

static __always_inline void on_softirq_exit(unsigned int vec)
{
	struct here here;

	if (!enter(&here))
		return;
	RECORD_SOFTIRQ(&here, RTS_SOFTIRQ_EXIT, vec);
	if (config.track)
		track_softirq_exit(&here, vec);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	stay_here();
	on_softirq_exit(vec);
	may_go();
	return 0;
}

SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(ipi_send_cpu, const unsigned int cpu, unsigned long callsite, void *callback)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_IPI_SEND, rts_ipi_send, 0, {
		r->target_cpu = cpu;
		r->call = callback != NULL; /* a reschedule IPI has no callback */
		r->callsite = callsite;
		r->callback = (__u64)callback;
	});
	if (config.track)
		track_ipi_send(&here, cpu, callback != NULL);
	return 0;
}

#define MASK_WORDS (RTS_MASK_CPUS / 64)

/* The bits of the CPUs that there are: behind them, the kernel's mask may end. */
static __always_inline void read_mask(__u64 *mask, const void *cpumask)
{
#pragma unroll
	for (__u32 word = 0; word < MASK_WORDS; word++) {
		mask[word] = 0;
		if (word * 64 >= config.cpus)
			continue;
		bpf_probe_read_kernel(&mask[word], sizeof(mask[word]), (const __u64 *)cpumask + word);
		if (config.cpus - word * 64 < 64)
			mask[word] &= (1ULL << (config.cpus - word * 64)) - 1;
	}
}

SEC("tp_btf/ipi_send_cpumask")
int BPF_PROG(ipi_send_cpumask, const void *cpumask, unsigned long callsite, void *callback)
{
	__u64 mask[MASK_WORDS];
	struct here here;

	if (!enter(&here))
		return 0;
	read_mask(mask, cpumask);
	RECORD(&here, RTS_IPI_SEND_MASK, rts_ipi_send_mask, config.cpus > RTS_MASK_CPUS ? RTS_MASK_CUT : 0, {
		__builtin_memcpy(r->targets, mask, sizeof(mask));
		r->callsite = callsite;
		r->callback = (__u64)callback;
		r->call = callback != NULL;
		r->pad = 0;
	});
	if (config.track)
		track_ipi_send_mask(&here, mask, callback != NULL);
	return 0;
}

SEC("tp_btf/nmi_handler")
int BPF_PROG(nmi_handler, void *handler, __s64 delta_ns, int handled)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_NMI_HANDLER, rts_nmi_handler, 0, {
		r->handler = (__u64)handler;
		r->duration_ns = delta_ns;
		r->handled = handled;
		r->pad = 0;
	});
	return 0;
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int cpu_id)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_CPU_IDLE, rts_cpu_idle, 0, {
		r->state = state;
		r->cpu = cpu_id;
	});
	if (config.track)
		track_idle(&here);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's functions for schedulers. Their names changed from release to release; all that are not in every kernel are weak,
 * and what the verifier can know to be absent it removes.
 */
#ifndef RTSCOPE_ARTIS_KFUNCS_H
#define RTSCOPE_ARTIS_KFUNCS_H

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) __ksym __weak;
bool scx_bpf_dsq_insert___v2(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, __u64 dsq, __u64 slice, __u64 vtime, __u64 flags) __ksym __weak;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
bool scx_bpf_dsq_move_to_local(__u64 dsq) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v2(__u64 dsq, __u64 flags) __ksym __weak;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq, __u64 flags) __ksym __weak;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, __u64 slice) __ksym __weak;
bool scx_bpf_task_set_slice(struct task_struct *p, __u64 slice) __ksym __weak;
void scx_bpf_dsq_reenq(__u64 dsq, __u64 flags) __ksym __weak;
void scx_bpf_reenqueue_local___v2(void) __ksym __weak;
__s32 scx_bpf_create_dsq(__u64 dsq, __s32 node) __ksym __weak;
void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym __weak;
__s32 scx_bpf_dsq_nr_queued(__u64 dsq) __ksym __weak;
bool scx_bpf_test_and_clear_cpu_idle(__s32 cpu) __ksym __weak;
__s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym __weak;
bool scx_bpf_task_running(const struct task_struct *p) __ksym __weak;
void scx_bpf_exit_bstr(__s64 code, char *format, unsigned long long *data, __u32 size) __ksym __weak;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, __u64 dsq, __u64 flags) __ksym __weak;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym __weak;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym __weak;
struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
void bpf_task_release(struct task_struct *p) __ksym __weak;
bool bpf_cpumask_test_cpu(__u32 cpu, const struct cpumask *mask) __ksym __weak;

#define LOCAL bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define LOCAL_ON bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL_ON)
#define ENQ_PREEMPT bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_PREEMPT)
#define KICK_IDLE bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_IDLE)
#define KICK_PREEMPT bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_PREEMPT)

static __always_inline void insert(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2))
		scx_bpf_dsq_insert___v2(p, dsq, slice, flags);
	else
		scx_bpf_dsq_insert(p, dsq, slice, flags);
}

static __always_inline void insert_by(struct task_struct *p, __u64 dsq, __u64 slice, __u64 vtime, __u64 flags)
{
	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq, .slice = slice, .vtime = vtime, .enq_flags = flags
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else {
		scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, flags);
	}
}

static __always_inline bool take(__u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2))
		return scx_bpf_dsq_move_to_local___v2(dsq, 0);
	return scx_bpf_dsq_move_to_local(dsq);
}

/* Only for the task that a CPU is about to leave, in dispatch. */
static __always_inline void refill(struct task_struct *p, __u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

#endif

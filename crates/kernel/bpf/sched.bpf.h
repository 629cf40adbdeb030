/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler's tracepoints. They fire with interrupts off, so these programs never nest but for NMIs; except the wakeup
 * of the current task itself, which needs preemption off only, and which the tracker ignores.
 */

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct here here;

	if (!enter(&here))
		return 0;
	here.alone = true;
	RECORD(&here, RTS_SCHED_SWITCH, rts_sched_switch,
	       (preempt ? RTS_SWITCH_PREEMPT : 0) | (is_kthread(prev) ? RTS_SWITCH_PREV_KTHREAD : 0) |
		       (is_kthread(next) ? RTS_SWITCH_NEXT_KTHREAD : 0),
	       {
		       r->prev_tid = prev->pid;
		       r->next_tid = next->pid;
		       r->prev_prio = prev->prio;
		       r->next_prio = next->prio;
		       r->prev_state = prev_state;
	       });
	if (config.track)
		track_switch(&here, preempt, prev, next, prev_state);
	return 0;
}

#define RECORD_WAKING(here, type, p, cpu)                                              \
	RECORD(here, type, rts_sched_waking, is_kthread(p) ? RTS_WAKING_KTHREAD : 0, { \
		r->tid = (p)->pid;                                                     \
		r->prio = (p)->prio;                                                   \
		r->target_cpu = cpu;                                                   \
	})

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	struct here here;

	if (!enter(&here))
		return 0;
	/* Another task is woken under its pi_lock, taken with interrupts off; the current one is not. */
	here.alone = p != bpf_get_current_task_btf();
	RECORD_WAKING(&here, RTS_SCHED_WAKING, p, task_cpu(p));
	if (config.track)
		track_waking(&here, p);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD_WAKING(&here, RTS_SCHED_WAKEUP_NEW, p, task_cpu(p));
	if (config.track)
		track_waking(&here, p);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int dest_cpu)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_SCHED_MIGRATE_TASK, rts_sched_migrate_task, 0, {
		r->tid = p->pid;
		r->prio = p->prio;
		r->pad = 0;
		r->orig_cpu = task_cpu(p);
		r->dest_cpu = dest_cpu;
	});
	return 0;
}

SEC("tp_btf/sched_pi_setprio")
int BPF_PROG(sched_pi_setprio, struct task_struct *task, struct task_struct *pi_task)
{
	struct here here;

	if (!enter(&here))
		return 0;
	RECORD(&here, RTS_SCHED_PI_SETPRIO, rts_sched_pi_setprio, 0, {
		int prio = task->normal_prio;

		/* As the tracepoint's own text does: the boosted priority, or the normal one when nobody boosts. */
		if (pi_task && pi_task->prio < prio)
			prio = pi_task->prio;
		r->tid = task->pid;
		r->old_prio = task->prio;
		r->new_prio = prio;
	});
	return 0;
}

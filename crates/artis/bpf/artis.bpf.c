// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * An asymmetric scheduler: real-time CPUs are lent to other tasks while these are in user mode.
 *
 * A task that enters the kernel on a real-time CPU is kicked off it (hooks.bpf.h): the kernel then calls `enqueue`, which hands
 * the task over through a ring that only this CPU writes. One of the other CPUs takes it from there in its `dispatch`. The way
 * back is theirs, too: they push tasks in user mode to real-time CPUs that are idle. Real-time CPUs never pull, and never take
 * another CPU's run-queue lock for a task of ours.
 *
 * No bpf_timer: the verifier refuses it on PREEMPT_RT. What must happen after a time happens in the ticks of the other CPUs.
 */
#include "hooks.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Linux tasks come first in one of this many dispatches, so that RT1 cannot starve them. */
#define LINUX_FIRST_EVERY 8
/* How often a real-time CPU that is idle asks for work. */
#define ASK_NS 1000000
/*
 * Tasks that one dispatch takes over of all rings together, and those in a queue that it looks at for one to lend. More than 32
 * (SCX_DSP_DFL_MAX_BATCH) would end the scheduler: "dispatch buffer overflow".
 */
#define TAKE_OVER 32
#define LOOK_AT 16

static __always_inline void queue(struct task_struct *p, struct task_state *state, __u64 flags)
{
	__u64 oldest = vtime_now - config.slice_ns, latest = vtime_now + config.slice_ns * 100 / (p->scx.weight ?: 1);

	if (is_rt1(p)) {
		insert_by(p, QUEUE_RT1, config.slice_ns, rank_of(p), flags);
		return;
	}
	/* A task that slept gets at most one time slice ahead of the others. */
	if ((__s64)(state->vtime - oldest) < 0)
		state->vtime = oldest;
	/* And a task that long had an idle CPU, while no other wanted it, waits for at most one time slice of the others. */
	if ((__s64)(state->vtime - latest) > 0)
		state->vtime = latest;
	insert_by(p, QUEUE_LINUX, config.slice_ns, state->vtime, flags);
}

/* Somebody has to look at the queues: an idle CPU, or one with less important work. */
static __always_inline void call_for(struct task_struct *p, __s32 first)
{
	__s32 cpu;

	/* See kick(). Where the task is, the kernel finds out. */
	if (cpus[index(bpf_get_smp_processor_id())].offline)
		return;
	cpu = claim_idle_other(p, first);

	if (cpu >= 0) {
		kick(cpu, KICK_IDLE);
		return;
	}
	cpu = less_important(p, config.others, config.nr_others);
	if (cpu >= 0)
		kick(cpu, KICK_PREEMPT);
	else if (first >= 0)
		/* Nobody was idle; but one may be going to be just now. */
		kick(first, KICK_IDLE);
}

static __always_inline void send(struct task_struct *p, __s32 cpu)
{
	struct rts_artis_cpu *there = counts_of(cpu);

	if (there)
		count(&there->classes[class_of(p)].moved_here);
}

SEC("struct_ops/artis_select_cpu")
__s32 BPF_PROG(artis_select_cpu, struct task_struct *p, __s32 before, __u64 flags)
{
	__s32 first = first_other(p), cpu;

	/* A task that wakes up is in the kernel. */
	if (first < 0)
		return before;
	cpu = claim_idle_other(p, before);
	if (cpu >= 0) {
		insert(p, LOCAL, config.slice_ns, 0);
		return cpu;
	}
	return is_rt(before) || !may_use(p, before) ? first : before;
}

/*
 * Sends a task that is being queued to a real-time CPU, if there is one for it. The kick is for older kernels, which lose
 * SCX_ENQ_PREEMPT on the way to another CPU; where it comes late, dispatch lets RT1 go on.
 */
static __always_inline bool lend(struct task_struct *p, struct task_state *state, __u64 flags)
{
	__s32 cpu;

	if (!is_lendable(p, state))
		return false;
	cpu = claim_idle_rt(p);
	if (cpu >= 0) {
		send(p, cpu);
		insert(p, LOCAL_ON | cpu, config.lent_slice_ns, flags);
		return true;
	}
	cpu = claim_lent_rt(p, state);
	if (cpu < 0)
		return false;
	send(p, cpu);
	insert(p, LOCAL_ON | cpu, config.lent_slice_ns, flags | ENQ_PREEMPT);
	kick(cpu, KICK_PREEMPT);
	return true;
}

SEC("struct_ops/artis_enqueue")
void BPF_PROG(artis_enqueue, struct task_struct *p, __u64 flags)
{
	struct task_state *state = state_of(p);
	__s32 cpu = scx_bpf_task_cpu(p), first;
	struct rts_artis_cpu *here = counts_of(cpu);
	struct rts_artis_counts *class;

	first = first_other(p);
	if (!state || !here || first < 0) {
		/* It has been bound to real-time CPUs since. */
		if (state && state->evicting)
			end_eviction(state, RTS_ARTIS_CHANGED);
		insert(p, LOCAL, config.slice_ns, flags);
		return;
	}
	class = &here->classes[class_of(p)];
	if (is_pinned(p)) {
		if (is_rt(cpu))
			count(&class->refused[RTS_ARTIS_PINNED]);
		/* For a short while: it may be pinned for less. */
		insert(p, LOCAL, config.grace_ns, flags);
		return;
	}
	/* Also when somebody else took it off the CPU: its own affinity's change, or the CPU's end. */
	if (state->evicting)
		end_eviction(state, RTS_ARTIS_MOVED);
	if (flags & SCX_ENQ_WAKEUP)
		state->in_kernel |= is_at_user_mode(p, state);
	if (!is_rt(cpu)) {
		if (lend(p, state, flags)) {
			state->leaving = 0;
			return;
		}
		state->leaving = 0;
		queue(p, state, flags);
		call_for(p, cpu);
		return;
	}
	if (cpu == (__s32)bpf_get_smp_processor_id()) {
		if (hand_over(cpu, p->pid)) {
			call_for(p, first);
			return;
		}
		count(&here->ring_full);
	}
	queue(p, state, flags);
	call_for(p, first);
}

/* Adds what a task has run since the last time to its own time and to its class'. */
static __always_inline void charge(struct task_struct *p, struct task_state *state, struct rts_artis_counts *class,
				   __u64 now)
{
	__u64 ran = state->ran_since ? now - state->ran_since : 0;

	state->ran_since = now;
	class->ran_ns += ran;
	state->vtime += ran * 100 / (p->scx.weight ?: 1);
}

/*
 * Whether a task whose slice is over comes before all that wait. It is not in a queue yet, so always taking the first of a queue
 * would let two tasks alternate whatever their nice values are.
 */
static __always_inline bool is_still_first(struct task_struct *p, __s32 cpu)
{
	__u64 dsq = is_rt1(p) ? QUEUE_RT1 : QUEUE_LINUX;
	struct task_state *state = state_of(p), *waiting;
	struct rts_artis_cpu *here = counts_of(cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *next;
	bool first = true;

	if (!state || !here || (dsq == QUEUE_LINUX && scx_bpf_dsq_nr_queued(QUEUE_RT1) > 0))
		return false;
	charge(p, state, &here->classes[class_of(p)], bpf_ktime_get_ns());
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		next = bpf_iter_scx_dsq_next(&it);
		if (next) {
			waiting = state_of(next);
			if (dsq == QUEUE_RT1)
				first = rank_of(p) < rank_of(next);
			else
				first = waiting && (__s64)(state->vtime - waiting->vtime) < 0;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return first;
}

/* Takes over at most this many tasks of one real-time CPU; returns how many it looked at. */
static __always_inline __u32 take_over_from(struct ring *ring, __u32 most)
{
	__u32 number;

	bpf_for(number, 0, most)
	{
		__u32 pid = take_over(ring);
		struct task_struct *p = pid ? bpf_task_from_pid(pid) : NULL;
		struct task_state *state;

		if (!pid)
			return number;
		/* It has ended on its way. */
		if (!p)
			continue;
		state = state_of(p);
		if (state)
			queue(p, state, 0);
		bpf_task_release(p);
	}
	return most;
}

/*
 * Takes over what real-time CPUs handed over. One CPU at a time does so for each ring; the others need not wait: a CPU that finds
 * a reader leaves the tasks to it, so a reader looks again after it has given up being one.
 */
static __always_inline void take_over_all(__u32 dispatch)
{
	__u32 at, left = TAKE_OVER;

	bpf_for(at, 0, config.nr_rt)
	{
		/* Another ring comes first each time, since the kernel takes only so many tasks of one dispatch. */
		__u32 key = config.rt[index((at + dispatch) % config.nr_rt)], again;
		struct ring *ring = bpf_map_lookup_elem(&rings, &key);

		if (!ring)
			continue;
		bpf_for(again, 0, TAKE_OVER)
		{
			/* ORDER: none; a hint. The claim below orders, and take_over() looks again. Pairs with hand_over(). */
			if (!left || *(volatile __u64 *)&ring->tail == *(volatile __u64 *)&ring->head)
				break;
			/* ORDER: full; pairs with the release below by the reader before: its tail is seen. */
			if (__sync_val_compare_and_swap(&ring->reader, 0, 1))
				break;
			left -= take_over_from(ring, left);
			/* ORDER: full; pairs with the claim above: what was taken was read before. */
			__sync_val_compare_and_swap(&ring->reader, 1, 0);
		}
	}
}

/* Sends a task that waits in a queue to a real-time CPU, if there is one for it. */
static __always_inline void lend_waiting(struct bpf_iter_scx_dsq *it, struct task_struct *p)
{
	struct task_state *state = state_of(p);
	__s32 cpu;
	bool idle;

	if (!is_lendable(p, state))
		return;
	cpu = claim_idle_rt(p);
	idle = cpu >= 0;
	if (!idle)
		cpu = claim_lent_rt(p, state);
	if (cpu < 0)
		return;
	if (bpf_ksym_exists(scx_bpf_dsq_move_set_slice))
		scx_bpf_dsq_move_set_slice(it, config.lent_slice_ns);
	if (scx_bpf_dsq_move(it, p, LOCAL_ON | cpu, idle ? 0 : ENQ_PREEMPT))
		send(p, cpu);
	else if (!idle)
		/* Somebody else took it; what runs there is known again at the next end of its slice. */
		cpus[index(cpu)].rank = RANK_NONE;
	if (!idle)
		kick(cpu, KICK_PREEMPT);
}

/* Sends waiting tasks that are in user mode to real-time CPUs that are to be had; Linux tasks to idle ones alone. */
static __always_inline void lend_from(__u64 dsq)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 number;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0 || (dsq == QUEUE_LINUX && !has_idle_rt()))
		return;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_for(number, 0, LOOK_AT)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p || (dsq == QUEUE_LINUX && !has_idle_rt()))
				break;
			if (is_rt_to_be_had(p, state_of(p)))
				lend_waiting(&it, p);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
}

/* Tasks that wait on a real-time CPU that RT0 has held for longer than this go elsewhere. */
static __always_inline void empty_held(__u64 longer_ns)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 at;

	if (!bpf_ksym_exists(scx_bpf_dsq_reenq))
		return;
	bpf_for(at, 0, config.nr_rt)
	{
		__s32 cpu = config.rt[index(at)];
		struct rts_artis_cpu *there = counts_of(cpu);
		/* ORDER: none; a time that stands for itself. Pairs with watch_switch() in hooks.bpf.h. */
		__u64 since = there ? *(volatile __u64 *)&there->rt0_since_ns : 0;

		if (!since || now - since < longer_ns || scx_bpf_dsq_nr_queued(LOCAL_ON | cpu) <= 0)
			continue;
		count(&there->emptied);
		scx_bpf_dsq_reenq(LOCAL_ON | cpu, SCX_REENQ_ANY);
	}
}

/* Whether a task may go on on a real-time CPU when its slice is over. */
static __always_inline bool may_stay(struct task_struct *p)
{
	if (first_other(p) < 0)
		return true;
	if (!is_lendable(p, state_of(p)) || scx_bpf_dsq_nr_queued(QUEUE_RT1) > 0)
		return false;
	return is_rt1(p) || scx_bpf_dsq_nr_queued(QUEUE_LINUX) <= 0;
}

SEC("struct_ops/artis_dispatch")
void BPF_PROG(artis_dispatch, __s32 cpu, struct task_struct *prev)
{
	bool goes_on = prev && (prev->scx.flags & SCX_TASK_QUEUED);

	/* When the last other CPU has gone offline, those that wait have only this one, until the scheduler has ended. */
	if (is_rt(cpu) && offline_others < config.nr_others) {
		/* It never pulls. The task that has it may retain it, unless others wait for it. */
		if (goes_on && may_stay(prev)) {
			refill(prev, config.lent_slice_ns);
			/* A claim that came to nothing is forgotten. */
			cpus[index(cpu)].rank = rank_on(prev, cpu);
		}
		return;
	}
	take_over_all(cpus[index(cpu)].dispatches);
	lend_from(QUEUE_RT1);
	lend_from(QUEUE_LINUX);
	/* It was stopped to be lent a real-time CPU: enqueue does that. */
	if (goes_on && is_rt1(prev) && is_rt_to_be_had(prev, state_of(prev)) && is_lendable(prev, state_of(prev))) {
		if (!take(QUEUE_RT1))
			take(QUEUE_LINUX);
		return;
	}
	if (!(++cpus[index(cpu)].dispatches % LINUX_FIRST_EVERY) && prev && is_rt1(prev) && take(QUEUE_LINUX))
		return;
	if (goes_on && is_still_first(prev, cpu)) {
		refill(prev, config.slice_ns);
		return;
	}
	if (take(QUEUE_RT1) || take(QUEUE_LINUX))
		return;
	if (goes_on)
		refill(prev, config.slice_ns);
	else
		empty_held(0);
}

SEC("struct_ops/artis_tick")
void BPF_PROG(artis_tick, struct task_struct *p)
{
	__s32 cpu = bpf_get_smp_processor_id();
	struct task_state *state = state_of(p);
	struct rts_artis_cpu *here = counts_of(cpu);

	if (is_rt(cpu)) {
		/* Alone here it may never stop. */
		if (state && here)
			charge(p, state, &here->classes[class_of(p)], bpf_ktime_get_ns());
		/* It could not be moved when it entered the kernel. */
		if (state && state->evicting)
			kick(cpu, KICK_PREEMPT);
		return;
	}
	empty_held(config.grace_ns);
	if ((has_idle_rt() && scx_bpf_dsq_nr_queued(QUEUE_RT1) + scx_bpf_dsq_nr_queued(QUEUE_LINUX) > 0) ||
	    (is_rt1(p) && is_rt_to_be_had(p, state) && is_lendable(p, state)))
		kick(cpu, KICK_PREEMPT);
}

SEC("struct_ops/artis_running")
void BPF_PROG(artis_running, struct task_struct *p)
{
	struct task_state *state = state_of(p);
	__s32 cpu = bpf_get_smp_processor_id();

	cpus[index(cpu)].rank = rank_on(p, cpu);
	if (!state)
		return;
	state->ran_since = bpf_ktime_get_ns();
	state->leaving = 0;
	if (is_rt(cpu) || (is_rt1(p) && !state->lent_since))
		state->lent_since = state->ran_since;
	if (!is_rt1(p) && (__s64)(state->vtime - vtime_now) > 0)
		vtime_now = state->vtime;
}

SEC("struct_ops/artis_stopping")
void BPF_PROG(artis_stopping, struct task_struct *p, bool runnable)
{
	struct task_state *state = state_of(p);
	__s32 cpu = bpf_get_smp_processor_id();
	struct rts_artis_cpu *here = counts_of(cpu);
	struct rts_artis_counts *class;
	__u64 now = bpf_ktime_get_ns(), delay;

	cpus[index(cpu)].rank = RANK_NONE;
	if (!state || !here)
		return;
	class = &here->classes[class_of(p)];
	charge(p, state, class, now);
	state->ran_since = 0;
	if (!state->evicting || !is_rt(cpu))
		return;
	if (state->entered_ns) {
		delay = now - state->entered_ns;
		state->entered_ns = 0;
		count(&here->delays[bucket(delay)]);
		if (delay > here->delay_max_ns)
			here->delay_max_ns = delay;
	}
	if (!runnable)
		end_eviction(state, p->flags & PF_EXITING ? RTS_ARTIS_EXITED :
				    p->__state		  ? RTS_ARTIS_SLEPT :
							    RTS_ARTIS_CHANGED);
}

SEC("struct_ops/artis_update_idle")
void BPF_PROG(artis_update_idle, __s32 cpu, bool idle)
{
	struct cpu_state *own = &cpus[index(cpu)];
	__u64 now;
	__u32 at;

	own->idle = idle && !own->offline;
	if (!is_rt(cpu) || !own->idle)
		return;
	if (scx_bpf_dsq_nr_queued(QUEUE_RT1) + scx_bpf_dsq_nr_queued(QUEUE_LINUX) <= 0)
		return;
	now = bpf_ktime_get_ns();
	if (now - own->asked < ASK_NS)
		return;
	own->asked = now;
	bpf_for(at, 0, config.nr_others)
	{
		__s32 other = config.others[index(at)];

		if (!cpus[index(other)].offline) {
			kick(other, KICK_PREEMPT);
			break;
		}
	}
}

SEC("struct_ops.s/artis_init_task")
__s32 BPF_PROG(artis_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_state *state = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!state)
		return -ENOMEM;
	/* After those that wait: else a fork bomb comes before all that have had their time slice, also before the kernel's threads. */
	state->vtime = vtime_now + config.slice_ns;
	state->burst_ns = config.min_burst_ns;
	/* What it does is not known before it stops or enters the kernel. */
	state->in_kernel = 1;
	if (args->fork && bpf_task_storage_get(&grants, bpf_get_current_task_btf(), 0, 0) &&
	    !bpf_task_storage_get(&grants, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return -ENOMEM;
	return 0;
}

/* It has another policy from now on, or inherits a priority. */
SEC("struct_ops/artis_disable")
void BPF_PROG(artis_disable, struct task_struct *p)
{
	struct task_state *state = state_of(p);
	bool exits = p->flags & PF_EXITING;
	__s32 cpu = scx_bpf_task_cpu(p);
	struct rts_artis_cpu *there;

	if (state && state->evicting)
		end_eviction(state, exits ? RTS_ARTIS_EXITED : RTS_ARTIS_CHANGED);
	/*
	 * A task that has the CPU and goes on as a real-time task: no switch shows it, perhaps never. All other policies are ours. Its new priority is
	 * not there yet on newer kernels; its run queue is locked, so that watch_switch is not in between.
	 */
	if (exits || !is_rt(cpu) || !bpf_ksym_exists(scx_bpf_task_running) || !scx_bpf_task_running(p))
		return;
	there = counts_of(cpu);
	if (there && !there->rt0_since_ns)
		there->rt0_since_ns = bpf_ktime_get_ns();
}

SEC("struct_ops/artis_cpu_online")
void BPF_PROG(artis_cpu_online, __s32 cpu)
{
	if (cpus[index(cpu)].offline && !is_rt(cpu))
		/* ORDER: none; the kernel switches one CPU at a time. Pairs with artis_cpu_offline(). */
		__sync_fetch_and_sub(&offline_others, 1);
	cpus[index(cpu)].offline = 0;
}

/* Not constant: the kernel function says it may write there. */
static char no_cpu_left[] = "the last CPU that is not for real-time work goes offline";

static __always_inline void end_without_cpus()
{
	unsigned long long none[1] = {};

	scx_bpf_exit_bstr(0, no_cpu_left, none, 0);
}

/*
 * The first step of a CPU on its way offline. `cpu_offline` comes too late for the last other CPU: the kernel waits for a grace
 * period of RCU before it, and RCU's thread for a CPU that takes it, which this one does not any more. Ending the scheduler here
 * makes all tasks ordinary ones before that, which then go to the CPUs that are left.
 */
SEC("?tp_btf/cpuhp_enter")
int BPF_PROG(watch_hotplug, unsigned int cpu, int target, int step)
{
	if (target < step && !is_rt(cpu) && !cpus[index(cpu)].offline && offline_others + 1 >= config.nr_others)
		end_without_cpus();
	return 0;
}

SEC("struct_ops/artis_cpu_offline")
void BPF_PROG(artis_cpu_offline, __s32 cpu)
{
	if (!cpus[index(cpu)].offline && !is_rt(cpu))
		/* ORDER: none; as in artis_cpu_online(). */
		__sync_fetch_and_add(&offline_others, 1);
	cpus[index(cpu)].offline = 1;
	cpus[index(cpu)].idle = 0;
	if (offline_others >= config.nr_others)
		end_without_cpus();
}

SEC("struct_ops.s/artis_init")
__s32 BPF_PROG(artis_init)
{
	__u32 cpu;
	__s32 error;

	bpf_for(cpu, 0, RTS_ARTIS_CPUS)
	{
		cpus[index(cpu)].rank = RANK_NONE;
		cpus[index(cpu)].offline = config.is_offline[index(cpu)];
		/* Nothing reports CPUs that are idle already; the kernel, too, begins with all of them. */
		cpus[index(cpu)].idle = is_rt(cpu) && !cpus[index(cpu)].offline;
	}
	bpf_for(cpu, 0, config.nr_others) if (cpus[index(config.others[index(cpu)])].offline) offline_others++;
	error = scx_bpf_create_dsq(QUEUE_RT1, -1);
	return error ?: scx_bpf_create_dsq(QUEUE_LINUX, -1);
}

SEC("struct_ops/artis_exit")
void BPF_PROG(artis_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(ended.reason, sizeof(ended.reason), info->reason);
	bpf_probe_read_kernel_str(ended.message, sizeof(ended.message), info->msg);
	bpf_probe_read_kernel_str(dump.text, sizeof(dump.text), info->dump);
	ended.code = info->exit_code;
	ended.kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops artis_ops = {
	.select_cpu = (void *)artis_select_cpu,
	.enqueue = (void *)artis_enqueue,
	.dispatch = (void *)artis_dispatch,
	.tick = (void *)artis_tick,
	.running = (void *)artis_running,
	.stopping = (void *)artis_stopping,
	.update_idle = (void *)artis_update_idle,
	.init_task = (void *)artis_init_task,
	.disable = (void *)artis_disable,
	.cpu_online = (void *)artis_cpu_online,
	.cpu_offline = (void *)artis_cpu_offline,
	.init = (void *)artis_init,
	.exit = (void *)artis_exit,
	.flags = OPS_ENQ_LAST | OPS_KEEP_BUILTIN_IDLE,
	/* The longest that the kernel allows: a task that is bound to a CPU that RT0 holds cannot go elsewhere. */
	.timeout_ms = 30000,
	.name = "rtscope_artis",
};

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracker's table of tasks, as it is shipped, with tasks that are born, renamed and found by the iterator while they die on other
 * CPUs: at any access to memory another CPU may come in and do its work to the end. At last all tasks have died, and no way may be
 * taken any more. tests/it/table.rs runs it: OPERATIONS SEED.
 */
#include "trackers/registry.bpf.h"

int printf(const char *format, ...);
unsigned long strtoul(const char *text, char **end, int base);

/* All in one set, which has four ways. */
#define TASKS 6
#define NEST_MAX 3

static struct task_set sets[1];
static struct task_chain chains[TASK_WAYS];
static struct cpu_state states[1];
static struct rts_stats stats_memory[1];
/* Two of each number: one that is dead for good while the next one with its number lives. */
static struct task_struct bodies[TASKS][2];
static volatile bool alive[TASKS];
static volatile bool in_birth[TASKS];
static volatile __u32 born[TASKS];
static __u64 random_state;
/* Volatile: the compiler does not know that host_step() looks at them. */
static volatile int nested;
static volatile bool quiet = true;
static unsigned long nestings;

static __u32 any(__u32 below)
{
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (__u32)(random_state >> 33) % below;
}

void *host_map_lookup(const void *map, const void *key)
{
	__u32 index = *(const __u32 *)key;

	if (map == &tasks)
		return &sets[0];
	if (map == &task_chains)
		return &chains[index % TASK_WAYS];
	if (map == &cpu_states)
		return &states[0];
	if (map == &stats)
		return &stats_memory[0];
	return NULL;
}

__u64 host_clock(void)
{
	static __u64 clock;

	return ++clock;
}

__u32 host_cpu(void)
{
	return 0;
}

struct task_struct *host_current(void)
{
	return &bodies[0][0];
}

static struct task_struct *body(__u32 task)
{
	return &bodies[task][born[task] & 1];
}

static void die(__u32 task)
{
	struct task_struct *dying = body(task);

	if (!alive[task])
		return;
	alive[task] = false;
	dying->exit_state = 0x20;
	free_task(dying->pid);
}

static void operate(void)
{
	__u32 task = any(TASKS);
	const char *name = any(2) ? "target" : "other";

	if (any(3) == 0) {
		die(task);
		return;
	}
	if (alive[task] || any(2)) {
		/* The iterator, a rename, a switch in; of a living task, or of one that has left for good. */
		track_task(body(task), name, false);
		return;
	}
	if (in_birth[task])
		return;
	in_birth[task] = true;
	born[task]++;
	body(task)->exit_state = 0;
	/* It runs, and can die, only after its fork. */
	track_task(body(task), name, true);
	alive[task] = true;
	in_birth[task] = false;
}

__attribute__((no_sanitize("thread"))) void host_step(volatile void *address, unsigned size, int is_write)
{
	(void)size;
	(void)is_write;
	/* Other CPUs come in where the table is touched, or a task's end is asked. */
	if (quiet || nested == NEST_MAX ||
	    !(((char *)address >= (char *)sets && (char *)address < (char *)(sets + 1)) ||
	      ((char *)address >= (char *)bodies && (char *)address < (char *)bodies + sizeof(bodies))))
		return;
	/* A CPU that has a way's lock is waited for. */
	for (int way = 0; way < TASK_WAYS; way++) {
		if (*(volatile __u32 *)&sets[0].ways[way].lock)
			return;
	}
	if (any(8))
		return;
	nested++;
	nestings++;
	operate();
	nested--;
}

int main(int argc, char **argv)
{
	unsigned long operations = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	struct rts_config *settings = (struct rts_config *)&config;

	random_state = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	settings->set_mask = 0;
	/* One tracker of responses, of any task. */
	settings->instances_len = 1;
	settings->of_tracker[RTS_TRACKER_RESPONSE] = 1;
	settings->instances[0].tracker = RTS_TRACKER_RESPONSE;
	for (__u32 task = 0; task < TASKS; task++) {
		bodies[task][0].pid = bodies[task][1].pid = 1 + (int)task;
		bodies[task][0].exit_state = bodies[task][1].exit_state = 0x20;
	}
	for (unsigned long number = 0; number < operations; number++) {
		quiet = false;
		operate();
		quiet = true;
		if (number % 16)
			continue;
		for (__u32 task = 0; task < TASKS; task++)
			die(task);
		for (int way = 0; way < TASK_WAYS; way++) {
			struct task_way *left = &sets[0].ways[way];

			if (left->tid || left->sched || left->link || left->targets || left->lock) {
				printf("after %lu operations: way %d has task %u\n", number + 1, way, left->tid);
				return 1;
			}
		}
	}
	printf("%lu operations, %lu of another CPU within one\n", operations, nestings);
	return 0;
}

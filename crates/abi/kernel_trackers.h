/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 OR MIT */
/*
 * The part of the contract between rtscope's eBPF programs and its user space that trackers have: what they follow, and what they report. It is
 * included by kernel_abi.h, whose rules hold here, too; nobody else includes it.
 */
#ifndef RTSCOPE_KERNEL_TRACKERS_H
#define RTSCOPE_KERNEL_TRACKERS_H

/* ---- response chains ------------------------------------------------------------------------------------------ */

enum rts_origin_kind {
	RTS_ORIGIN_NONE = 0,
	RTS_ORIGIN_TIMER = 1,	/* origin_ns is softexpires; id 0 */
	RTS_ORIGIN_IRQ = 2,	/* origin_ns is irq_handler_entry; id is the interrupt number */
	RTS_ORIGIN_VECTOR = 3,	/* origin_ns is the vector's entry; id is enum rts_vector_kind */
	RTS_ORIGIN_TASK = 4,	/* origin_ns is when that task woke, raised or queued something; id is its tid */
	RTS_ORIGIN_OFF_CPU = 5, /* origin_ns is when the task left its CPU; id is its tid */
	RTS_ORIGIN_SOFTIRQ =
		6, /* of wakeups: a softirq woke the task; of softirqs: origin_ns is the raise; id is its vec */
	RTS_ORIGIN_SYSCALL = 7, /* origin_ns is sys_enter; id is the call's number */
	RTS_ORIGIN_LOCK =
		8, /* origin_ns is contention_begin; id is the number of the system call, ~0 where there is none */
	RTS_ORIGIN_BLOCK = 9, /* origin_ns is when the request was made; id is the disk's dev_t */
	RTS_ORIGIN_RESCHED =
		10, /* origin_ns is when the CPU was asked to take another task; id is the tid of the one it then took */
	RTS_ORIGIN_IRQS_OFF = 11, /* origin_ns is when a sample was due; id 0 */
	RTS_ORIGIN_EVENT = 12, /* origin_ns is the first event of a pair; id is the tid of the task that was current */
};

/* A step is the time until the event that ends it, since the step before ended. Steps add up to the response. */
enum rts_step_kind {
	RTS_STEP_TIMER_SLACK = 1,     /* softexpires -> expires. */
	RTS_STEP_TIMER_LATENESS = 2,  /* expires -> the interrupt is being handled */
	RTS_STEP_TIMER_INTERRUPT = 3, /* vector entry -> this timer's handler (other timers were served first) */
	RTS_STEP_HANDLER = 4, /* handler entry -> raise, IPI, wakeup or exit. id: interrupt, vector kind, 0: a timer */
	RTS_STEP_SOFTIRQ_WAIT = 5, /* raise -> softirq entry. id: vec */
	RTS_STEP_SOFTIRQ = 6,	   /* softirq entry -> raise, IPI, wakeup or exit. id: vec */
	RTS_STEP_IPI = 7,	   /* IPI sent -> vector entry on the other CPU. id: vector kind */
	RTS_STEP_WAKEUP = 8,	   /* wakeup -> switch in. id: tid of the task woken */
	RTS_STEP_RUN = 9,	   /* switch in -> wakeup of the next, out, or blocked. id: tid */
	RTS_STEP_PREEMPTED = 10,   /* switched out runnable -> switch in. id: tid */
	RTS_STEP_BUSY = 11,	   /* the wakeup met a task that had not left its CPU: no wait. id: tid */
	RTS_STEP_MORE = 12,	 /* the chain had more steps than fit: the time of all further ones. id: their number */
	RTS_STEP_WORK_WAIT = 13, /* work queued -> a worker begins with it. id: the worker's tid */
	RTS_STEP_LOCK_WAIT = 14, /* PREEMPT_RT: switched out for a spinlock -> switch in. id: tid */
	RTS_STEP_HIDDEN_SWITCH = 15, /* wakeup or switched out -> seen to leave: its switch in was hidden. id: tid */
	RTS_STEP_WAIT =
		16, /* in the middle of a cycle: blocked -> woken. id: the waker's tid, 0: an interrupt; detail: enum rts_wait_kind */
	RTS_STEP_QUEUE = 17, /* a block request is made, or comes back to the queue -> given to the device. id: dev_t */
	RTS_STEP_DEVICE = 18, /* given to the device -> completed, or back to the queue. id: dev_t */
	RTS_STEP_NOT_PREEMPTED =
		19,		/* the CPU was asked to take another task -> the switch. id: tid of the one that left */
	RTS_STEP_IRQS_OFF = 20, /* a sample was due -> it came. id: tid of the current task */
	RTS_STEP_INTERVAL = 21, /* the first event of a pair -> the second. id: tid of the task that was current then */
};

struct rts_step {
	rts_u64 duration_ns;
	rts_u32 id;
	rts_u16 cpu; /* where the step ended */
	rts_u8 kind;
	rts_u8 detail; /* of a wait; else 0 */
};

#define RTS_CHAIN_STEPS 12
#define RTS_CHAIN_OTHERS 2

#define RTS_CHAIN_BUSY 0x01 /* its last wakeup met a task that had not left its CPU */

/* Another origin that was merged into a chain that is older. */
struct rts_other_origin {
	rts_u64 origin_ns;
	rts_u32 id;
	rts_u8 kind;
	rts_u8 pad[3];
};

struct rts_chain {
	rts_u64 origin_ns;
	rts_u64 last_ns; /* origin_ns + the sum of the steps */
	rts_u32 origin_id;
	rts_u16 origin_cpu;
	rts_u8 origin_kind;
	rts_u8 steps_len;
	rts_u32 merged; /* origins that were merged into this one; the first RTS_CHAIN_OTHERS are listed */
	rts_u8 others_len;
	rts_u8 flags;
	rts_u16 pad;
	struct rts_other_origin others[RTS_CHAIN_OTHERS];
	struct rts_step steps[RTS_CHAIN_STEPS];
};

enum rts_end {
	RTS_END_RUNNING = 1,   /* the target was switched in */
	RTS_END_BLOCKED = 2,   /* the target went back to waiting */
	RTS_END_REWOKEN = 3,   /* the target had declared its wait and was woken again before it left the CPU */
	RTS_END_CYCLE = 4,     /* the target went back to waiting for that with which its cycle began */
	RTS_END_RETURNED = 5,  /* the target's system call returned */
	RTS_END_ACQUIRED = 6,  /* the target has the lock, or has given up */
	RTS_END_HANDLED = 7,   /* the handler returned */
	RTS_END_COMPLETED = 8, /* the device has done with the request */
	RTS_END_SWITCHED = 9,  /* the CPU has taken another task */
	RTS_END_IRQS_ON = 10,  /* interrupts came through again */
	RTS_END_EVENT = 11,    /* the second event of a pair */
};

/* ---- trackers ------------------------------------------------------------------------------------------------ */

enum rts_tracker {
	RTS_TRACKER_NONE = 0,
	RTS_TRACKER_RESPONSE = 1,   /* an interrupt, a timer or a task -> the end of the response to it */
	RTS_TRACKER_WAKEUP = 2,	    /* woken -> on a CPU */
	RTS_TRACKER_OFFCPU = 3,	    /* off its CPU -> on a CPU again */
	RTS_TRACKER_SYSCALL = 4,    /* sys_enter -> sys_exit */
	RTS_TRACKER_LOCK = 5,	    /* contention_begin -> contention_end */
	RTS_TRACKER_IRQ = 6,	    /* the entry of an interrupt's handler -> its exit */
	RTS_TRACKER_SOFTIRQ = 7,    /* softirq_raise -> softirq_exit */
	RTS_TRACKER_BLOCK = 8,	    /* a block request is made -> it is completed */
	RTS_TRACKER_PREEMPTOFF = 9, /* a CPU is asked to take another task -> it does */
	RTS_TRACKER_IRQOFF = 10,    /* a sample is due -> interrupts let it through */
	RTS_TRACKER_PAIR = 11,	    /* a tracepoint -> another one with the same key */
	RTS_TRACKERS
};

/* A power of two: it makes a mask. */
#define RTS_TRACKERS_MAX 16

/* Trackers that run at once; of one tracker there can be several, with limits, targets and counters of their own. */
#define RTS_INSTANCES 8

/* What the kernel says of a lock that is waited for: LCB_F_* of include/trace/events/lock.h. */
enum rts_lock_flags {
	RTS_LOCK_SPINS = 1,
	RTS_LOCK_READ = 2,
	RTS_LOCK_WRITE = 4,
	RTS_LOCK_RT = 8,
	RTS_LOCK_PERCPU = 16,
	RTS_LOCK_MUTEX = 32,
};

#define RTS_LATE_VALUES 10

/* ---- pairs of tracepoints -------------------------------------------------------------------------------------- */

/* Parts of a key, and bytes of an event that are kept. */
#define RTS_PAIR_PARTS 3
#define RTS_PAIR_BYTES 128
/* Where in rts_late.values: the process of the first event's task, its name (two words), the key. */
#define RTS_PAIR_VALUE_PID 0
#define RTS_PAIR_VALUE_COMM 1
#define RTS_PAIR_VALUE_KEY 3

enum rts_pair_part_kind {
	RTS_PAIR_NOTHING = 0, /* the key has no further part: 0 */
	RTS_PAIR_UNSIGNED = 1,
	RTS_PAIR_SIGNED = 2,
	RTS_PAIR_TID = 3, /* of the current task, as are the next */
	RTS_PAIR_PID = 4,
	RTS_PAIR_CPU = 5,
};

/* A part of a key: a field, by its place in the event's record, or what is known of the moment. */
struct rts_pair_part {
	rts_u16 offset;
	rts_u8 size; /* 1, 2, 4 or 8 */
	rts_u8 kind; /* enum rts_pair_part_kind */
};

/* One of the two tracepoints. */
struct rts_pair_side {
	struct rts_pair_part key[RTS_PAIR_PARTS];
	rts_u32 bytes; /* of its record, that are kept: at most RTS_PAIR_BYTES */
};

/* A first event that waits for its second. Written from the beginning to the end, so that a reader can tell whether it is whole. */
struct rts_pair {
	rts_u64 begin_ns; /* first */
	rts_u64 key[RTS_PAIR_PARTS];
	rts_u64 comm[2];
	rts_u32 tid, pid, cpu;
	rts_u32 targets; /* the instances of which its task was a target */
	rts_u8 record[RTS_PAIR_BYTES];
	rts_u64 check_ns; /* as begin_ns; last */
};

/* A detection: an instance's full report, in the per-CPU ring of detections. */
struct rts_late {
	rts_u64 sequence; /* per CPU, from 1, stored last: a slot is valid when sequence == position + 1 */
	rts_u64 end_ns;
	rts_u64 threshold_ns;
	rts_u64 trigger_generation; /* of the snapshot that this response triggered, 0 when it triggered none */
	rts_u32 tid, pid;
	rts_s16 prio;
	rts_u16 cpu;
	rts_u8 end;	 /* enum rts_end */
	rts_u8 tracker;	 /* enum rts_tracker */
	rts_u8 instance; /* index into config.instances */
	rts_u8 pad;
	/* The copies of its task's stack and of its last waker's: struct rts_stack.id. 0: none was taken. */
	rts_u32 stack, waker_stack;
	char comm[RTS_COMM_LEN];
	/*
	 * As in struct rts_interval or rts_request, and what the call, the lock or the device returned. Of RTS_TRACKER_PREEMPTOFF and RTS_TRACKER_IRQOFF
	 * the return addresses of the kernel where it ended, innermost first, up to a 0. Of RTS_TRACKER_PAIR: RTS_PAIR_VALUE_... Of other trackers 0.
	 */
	rts_u64 values[RTS_LATE_VALUES];
	rts_s64 result;
	struct rts_chain chain;
	/* Of RTS_TRACKER_PAIR: both events, as far as rts_pair_side.bytes says. Of others what was there before. */
	rts_u8 records[2][RTS_PAIR_BYTES];
};

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

/* Copies of stacks that user space has not read yet, a power of two. */
#define RTS_STACKS 64
/* Of a user's stack, at most; a multiple of the page size that is taken for granted here. */
#define RTS_STACK_BYTES 65536
#define RTS_STACK_PAGE 4096
#define RTS_STACK_FRAMES 32
/* General registers as DWARF numbers them, then the program counter: 17 on x86-64; 31, the stack pointer and the program counter on arm64. */
#define RTS_STACK_REGS 33

enum rts_stack_state {
	RTS_STACK_FREE = 0,
	RTS_STACK_CLAIMED = 1, /* being written, or about to be */
	RTS_STACK_FULL = 2,    /* user space reads it, and frees it */
};

/* Why a copy of a user's stack ends where it does. */
enum rts_stack_end {
	RTS_STACK_NOT_TAKEN =
		0, /* the rest of the copy is not there: a thread of the kernel, or it has no memory any more */
	RTS_STACK_LIMIT = 1,  /* as much as was asked for */
	RTS_STACK_ABSENT = 2, /* the next page is not in memory, or not there: most often the stack's end */
	RTS_STACK_COMPAT = 3, /* a 32-bit program: only its registers */
};

/* What is needed to find out where a task is: its registers in user mode and its stack, copied while it was current; and the kernel's part. */
struct rts_stack {
	rts_u32 state; /* enum rts_stack_state; RTS_STACK_FULL is stored last */
	rts_u32 id;    /* from 1 */
	rts_u64 time_ns;
	rts_u32 tid, pid;
	rts_u32 bytes; /* of memory that are valid; the first one is where the stack pointer points */
	rts_u8 end;    /* enum rts_stack_end */
	rts_u8 frames; /* of kernel[] */
	rts_u8 pad[2];
	char comm[RTS_COMM_LEN];
	rts_u64 regs[RTS_STACK_REGS];
	rts_u64 kernel[RTS_STACK_FRAMES]; /* return addresses, innermost first; those of the tracepoint, too */
	rts_u64 reserved;
	rts_u8 memory[RTS_STACK_BYTES];
};

/* How far what a tracker of intervals follows is. EARLY: woken before it left its CPU, it seems. RUNNING: it ends on a CPU. */
enum rts_interval_link {
	RTS_INTERVAL_NONE = 0, /* nothing is under way */
	RTS_INTERVAL_WAITING = 1,
	RTS_INTERVAL_WAKING = 2,
	RTS_INTERVAL_PREEMPTED = 3,
	RTS_INTERVAL_EARLY = 4,
	RTS_INTERVAL_RUNNING = 5,
};

/*
 * What a tracker of intervals follows in a task: by its slot in the table and, there, by tracker (rts_config.interval_kind). User space reads what
 * has not ended when the trackers have been switched off.
 */
struct rts_interval {
	struct rts_chain chain;
	/*
	 * RTS_TRACKER_SYSCALL: what the call was given; its registers can be others at its end. RTS_TRACKER_LOCK: the lock's address, enum rts_lock_flags,
	 * and the return addresses of those who want it, innermost first, up to a 0. The last value of a system call is the dev_t of its file where an
	 * instance counts by device.
	 */
	rts_u64 values[RTS_LATE_VALUES];
	rts_u32 tid;
	rts_u32 waker; /* of a waking before it left its CPU: a tid, 0: an interrupt */
	rts_u8 link;   /* enum rts_interval_link; first, with what follows, in its word */
	rts_u8 wait;   /* enum rts_wait_kind: for what it waits */
	rts_u8 woken;  /* there was one since it came; it is told when the task has left, or come back */
	rts_u8 pad;
	rts_u32 waker_stack; /* rts_stack.id: of its last waker, where it had waited beyond the limit by then; 0: none was taken */
};

enum rts_request_link {
	RTS_REQUEST_NONE = 0,
	RTS_REQUEST_QUEUED = 1,
	RTS_REQUEST_ISSUED = 2,
};

/* A block request that the tracker `block` follows, by its address. The task is the one that made it, as it was then. */
struct rts_request {
	struct rts_chain chain;
	rts_u64 values[RTS_LATE_VALUES]; /* the disk's dev_t, sector, bytes, cmd_flags of the kernel; the rest 0 */
	rts_u32 tid, pid;
	rts_s16 prio;
	rts_u8 targets; /* instances that follow it */
	rts_u8 link;	/* enum rts_request_link */
	rts_u32 cgroup; /* of the task, where an instance counts by it; else 0 */
	char comm[RTS_COMM_LEN];
};

/* The same detection as an event in the trace: the entry point for analysis. */
struct rts_late_response {
	struct rts_record record;
	rts_u64 origin_ns, response_ns, threshold_ns;
	rts_u64 sequence; /* of the struct rts_late on this CPU */
	rts_u32 tid, pid;
	rts_u32 origin_id;
	rts_u8 origin_kind, end;
	rts_u8 tracker, instance;
};

#endif /* RTSCOPE_KERNEL_TRACKERS_H */

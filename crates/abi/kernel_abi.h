/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 OR MIT */
/*
 * The contract between rtscope's eBPF programs and its user space: every byte that crosses that border is described
 * here, or for trackers in kernel_trackers.h, and nowhere else. The eBPF programs include this header; bindgen turns the same header into Rust (crates/abi),
 * and the assertions at the end hold on both sides.
 *
 * Rules: fixed-width fields, natural alignment, no hidden padding, sizes a multiple of 8 bytes. A change of any layout
 * is a change of RTS_ABI_VERSION.
 *
 * Shape of the data:
 *
 *   bank      one ring of records. As a flight recorder each CPU has two: one is written in a circle, the other is frozen or
 *             old history. As a stream (rtscope record) each CPU has one, which a reader empties: a record that finds
 *             it full is not written, but counted by type.
 *             A position ("pos") is a byte count that only grows; pos & (size-1) is the offset in the bank.
 *             A record may run past the end of the ring into RTS_BANK_SLACK bytes, so that no record is ever split.
 *   record    struct rts_record + payload. The first word is stored twice: with RTS_OPEN before the payload and with
 *             RTS_COMMITTED after it, so that a reader can step over a record whose writer was interrupted.
 *             lap = (pos >> log2(size)) + 1, so that a reader can tell this lap's record from an old one.
 *   first[]   for each sub-buffer (RTS_SUB_BUFFERS equal parts of a bank) the position of the first record that begins
 *             in it: where a reader starts, and where it finds the way again.
 */
#ifndef RTSCOPE_KERNEL_ABI_H
#define RTSCOPE_KERNEL_ABI_H

typedef unsigned char rts_u8;
typedef unsigned short rts_u16;
typedef short rts_s16;
typedef unsigned int rts_u32;
typedef int rts_s32;
typedef unsigned long long rts_u64;
typedef long long rts_s64;

#define RTS_ABI_VERSION 13

#define RTS_COMM_LEN 16
#define RTS_FILENAME_LEN 64
#define RTS_BANKS 2
#define RTS_SUB_BUFFERS 128
#define RTS_BANK_SLACK 1024
#define RTS_NEVER 0xffffffffffffffffULL

/* ---- records -------------------------------------------------------------------------------------------------- */

/* State byte of the record word. Neither is 0, so that untouched memory is never a record. */
#define RTS_OPEN 0x5a
#define RTS_COMMITTED 0xa5

/* word = length_in_8_bytes | type << 8 | state << 16 | flags << 24 | lap << 32 */
#define RTS_WORD(len8, type, state, flags, lap)                                                     \
	((rts_u64)(len8) | (rts_u64)(type) << 8 | (rts_u64)(state) << 16 | (rts_u64)(flags) << 24 | \
	 (rts_u64)(lap) << 32)

struct rts_record {
	rts_u64 word;
	rts_u64 time_ns; /* CLOCK_MONOTONIC */
};

enum rts_record_type {
	RTS_PADDING = 0, /* a slot that its writer gave up */
	RTS_SCHED_SWITCH = 1,
	RTS_SCHED_WAKING = 2,
	RTS_SCHED_WAKEUP_NEW = 3,
	RTS_SCHED_MIGRATE_TASK = 4,
	RTS_SCHED_PI_SETPRIO = 5,
	RTS_PROCESS_FORK = 6,
	RTS_PROCESS_EXEC = 7,
	RTS_PROCESS_EXIT = 8,
	RTS_TASK_RENAME = 9,
	RTS_IRQ_ENTRY = 10,
	RTS_IRQ_EXIT = 11,
	RTS_VECTOR_ENTRY = 12,
	RTS_VECTOR_EXIT = 13,
	RTS_SOFTIRQ_RAISE = 14,
	RTS_SOFTIRQ_ENTRY = 15,
	RTS_SOFTIRQ_EXIT = 16,
	RTS_HRTIMER_ENTRY = 17,
	RTS_HRTIMER_EXIT = 18,
	RTS_CPU_IDLE = 19,
	RTS_NMI_HANDLER = 20,
	RTS_IPI_SEND = 21,
	RTS_LATE_RESPONSE = 22,
	RTS_SYSCALL_PATH = 23,
	RTS_IPI_SEND_MASK = 24,
	RTS_WORK_QUEUE = 25,
	RTS_WORK_START = 26,
	RTS_WORK_END = 27,
	RTS_SYSCALL_ENTRY = 28,
	RTS_SYSCALL_EXIT = 29,
	RTS_SIGNAL_GENERATE = 30,
	RTS_RECORD_TYPES
};

/* Flags byte of the record word, by type. */
#define RTS_SWITCH_PREEMPT 0x01	     /* sched_switch: prev was preempted, so it is runnable whatever its state says */
#define RTS_SWITCH_PREV_KTHREAD 0x02 /* sched_switch */
#define RTS_SWITCH_NEXT_KTHREAD 0x04 /* sched_switch */
#define RTS_SWITCH_WAIT 0xf8	     /* sched_switch: enum rts_wait_kind of prev, when it blocks */
#define RTS_WAKING_KTHREAD 0x01	     /* sched_waking, sched_wakeup_new */
#define RTS_WAKING_WAIT 0xf8	     /* while cycles are followed: the wait that it has declared, if signals end it */
#define RTS_WAIT_SHIFT 3

/*
 * For what kind of thing a user-space task waits, by the system call that it is in. Five bits. The kinds of system calls are in
 * crates/kernel/src/waits.rs.
 */
enum rts_wait_kind {
	RTS_WAIT_NONE = 0,	 /* it does not wait, is a kernel thread, or the kernel does not tell */
	RTS_WAIT_PAGE_FAULT = 1, /* in no system call: a page fault, or another exception */
	RTS_WAIT_FUTEX = 2,
	RTS_WAIT_SLEEP = 3,
	RTS_WAIT_POLL = 4,
	RTS_WAIT_EPOLL = 5,
	RTS_WAIT_READ = 6,
	RTS_WAIT_WRITE = 7,
	RTS_WAIT_RECEIVE = 8,
	RTS_WAIT_SEND = 9,
	RTS_WAIT_ACCEPT = 10,
	RTS_WAIT_CONNECT = 11,
	RTS_WAIT_CHILD = 12,
	RTS_WAIT_SIGNAL = 13,
	RTS_WAIT_IO_URING = 14,
	RTS_WAIT_FILE_LOCK = 15,
	RTS_WAIT_SEMAPHORE = 16,
	RTS_WAIT_SYNC = 17,
	RTS_WAIT_MEMORY = 18,
	RTS_WAIT_FILE = 19,
	RTS_WAIT_IOCTL = 20,
	RTS_WAIT_OTHER = 21,
	RTS_WAIT_STOP = 22, /* stopped by a signal or a debugger, in whatever system call */
};

/* Kinds of which the first argument says on what: a descriptor, a futex's address. */
#define RTS_WAITS_ON                                                                                \
	(1U << RTS_WAIT_FUTEX | 1U << RTS_WAIT_EPOLL | 1U << RTS_WAIT_READ | 1U << RTS_WAIT_WRITE | \
	 1U << RTS_WAIT_RECEIVE | 1U << RTS_WAIT_SEND | 1U << RTS_WAIT_ACCEPT | 1U << RTS_WAIT_IO_URING)

/* prio fields are the kernel's task->prio: -1 deadline, 0..98 = real-time 99..1, 100..139 = nice -20..19. */
struct rts_sched_switch {
	struct rts_record record;
	rts_u32 prev_tid, next_tid;
	rts_s16 prev_prio, next_prio;
	rts_u32 prev_state;   /* task->__state as the tracepoint got it: 0 runnable, 1 interruptible, ... */
	rts_u32 prev_wait_on; /* on what prev waits: low half of the first argument, of RTS_WAITS_ON; else 0 */
	rts_u32 pad;
};

struct rts_sched_waking { /* also sched_wakeup_new */
	struct rts_record record;
	rts_u32 tid;
	rts_s16 prio;
	rts_u16 target_cpu; /* where the task last ran; sched_migrate_task says when it goes elsewhere */
};

struct rts_sched_migrate_task {
	struct rts_record record;
	rts_u32 tid;
	rts_s16 prio;
	rts_u16 pad;
	rts_u32 orig_cpu, dest_cpu;
};

struct rts_sched_pi_setprio {
	struct rts_record record;
	rts_u32 tid;
	rts_s16 old_prio, new_prio;
};

struct rts_process_fork {
	struct rts_record record;
	rts_u32 parent_tid, parent_pid, child_tid, child_pid;
	char child_comm[RTS_COMM_LEN];
};

struct rts_process_exec {
	struct rts_record record;
	rts_u32 tid, old_tid;
	char filename[RTS_FILENAME_LEN];
};

struct rts_process_exit {
	struct rts_record record;
	rts_u32 tid, pid;
	rts_s16 prio;
	rts_u16 pad0;
	rts_u32 pad1;
	char comm[RTS_COMM_LEN];
};

struct rts_task_rename {
	struct rts_record record;
	rts_u32 tid, pid;
	char old_comm[RTS_COMM_LEN], new_comm[RTS_COMM_LEN];
};

struct rts_irq_entry {
	struct rts_record record;
	rts_u32 irq, pad;
};

struct rts_irq_exit {
	struct rts_record record;
	rts_u32 irq;
	rts_s32 ret; /* bit 1 (value 2): IRQ_WAKE_THREAD */
};

/* x86 system vectors with entry/exit tracepoints. */
enum rts_vector_kind {
	RTS_VECTOR_LOCAL_TIMER = 1,
	RTS_VECTOR_RESCHEDULE = 2,
	RTS_VECTOR_CALL_FUNCTION = 3,
	RTS_VECTOR_CALL_FUNCTION_SINGLE = 4,
	RTS_VECTOR_IRQ_WORK = 5,
	RTS_VECTOR_THERMAL = 6,
	RTS_VECTOR_THRESHOLD = 7,
	RTS_VECTOR_DEFERRED_ERROR = 8,
	RTS_VECTOR_ERROR = 9,
	RTS_VECTOR_SPURIOUS = 10,
	RTS_VECTOR_PLATFORM_IPI = 11,
	RTS_VECTOR_KINDS
};

struct rts_vector { /* entry and exit */
	struct rts_record record;
	rts_u32 kind, vector;
};

struct rts_softirq { /* raise, entry and exit */
	struct rts_record record;
	rts_u32 vec, pad;
};

struct rts_hrtimer_entry {
	struct rts_record record;
	rts_u64 timer, function; /* addresses: only their equality means something */
	rts_s64 softexpires_ns;	 /* CLOCK_MONOTONIC, whatever the timer's own clock: what the program asked for */
	rts_s64 expires_ns;	 /* softexpires + slack: when the hardware was asked to interrupt */
};

struct rts_hrtimer_exit {
	struct rts_record record;
	rts_u64 timer;
};

#define RTS_IDLE_EXIT 0xffffffffU

struct rts_cpu_idle {
	struct rts_record record;
	rts_u32 state, cpu; /* state RTS_IDLE_EXIT: the CPU left idle */
};

struct rts_nmi_handler { /* fires at the handler's end */
	struct rts_record record;
	rts_u64 handler;
	rts_s64 duration_ns;
	rts_s32 handled;
	rts_u32 pad;
};

struct rts_ipi_send {
	struct rts_record record;
	rts_u32 target_cpu;
	rts_u32 call; /* 1: a function call interrupt, 0: reschedule */
	rts_u64 callsite, callback;
};

/*
 * A system call, where eBPF records it. As many arguments follow the entry as the call has (config.calls), up to six, as the
 * 64-bit words that they are: the record's length tells how many.
 */
#define RTS_SYSCALL_ARGS_MAX 6

struct rts_syscall_entry {
	struct rts_record record;
	rts_u32 number, tid;
};

struct rts_syscall_exit {
	struct rts_record record;
	rts_u32 number, tid;
	rts_s64 ret;
};

/*
 * The text behind a system call's argument: a path. The call itself is a separate record, or an event of ftrace (which
 * loses nothing where eBPF programs can be preempted); this is found by tid, pointer and time. The path itself
 * follows the structure, with its NUL, filled up to whole words with zeros.
 */
struct rts_syscall_path {
	struct rts_record record;
	rts_u64 pointer;  /* the argument */
	rts_u64 entry_ns; /* when the call was entered; record.time_ns is when the text was read */
	rts_u32 tid;
	rts_u16 syscall; /* its number */
	rts_u8 arg;	 /* which argument, from 0 */
	rts_u8 flags;	 /* RTS_PATH_... */
};

#define RTS_PATH_MAX 512	/* bytes of a path that are kept, with the NUL */
#define RTS_PATH_TRUNCATED 0x01 /* it was longer */
#define RTS_PATH_AT_EXIT 0x02	/* its memory was not there at the call's entry; read at the exit */
#define RTS_PATH_ADDRESS 0x04	/* no text, but a socket's address: bytes of a struct sockaddr, filled up with zeros */
#define RTS_ADDRESS_MAX 128	/* bytes of an address: sizeof(struct sockaddr_storage) */

/* One IPI to many CPUs. CPUs from RTS_MASK_CPUS on are not in the mask, and flagged. */
#define RTS_MASK_CPUS 256
#define RTS_MASK_CUT 0x01 /* flag of ipi_send_mask: the machine has more CPUs than the mask */

struct rts_ipi_send_mask {
	struct rts_record record;
	rts_u64 targets[RTS_MASK_CPUS / 64];
	rts_u64 callsite, callback;
	rts_u32 call; /* as in rts_ipi_send */
	rts_u32 pad;
};

struct rts_work_queue {
	struct rts_record record;
	rts_u64 work, function; /* addresses: only their equality means something */
	rts_u32 req_cpu;	/* which CPU was asked for: WORK_CPU_UNBOUND (the kernel's NR_CPUS) for any */
	rts_u32 pad;
};

struct rts_work { /* workqueue_execute_start and _end, on the worker's CPU */
	struct rts_record record;
	rts_u64 work, function;
};

struct rts_signal_generate {
	struct rts_record record;
	rts_u32 tid; /* whose signal it is; with group, any thread of its process may take it */
	rts_u8 signal, group;
	rts_u8 result; /* enum of the kernel's TRACE_SIGNAL_*: 0 queued, 1 ignored, 2 already pending */
	rts_u8 pad;
};

#include "kernel_trackers.h"

/* ---- control, mapped by user space ---------------------------------------------------------------------------- */

/* Counters of a stream's losses. The eBPF programs mask a record's type with RTS_LOST_TYPES - 1, for the verifier. */
#define RTS_LOST_TYPES 32

/* One per CPU. Written by that CPU only (with interrupts off or atomically), except late_tail and tail (user space). */
struct rts_cpu_control {
	rts_u64 head[RTS_BANKS];	      /* next position to reserve */
	rts_u64 start[RTS_BANKS];	      /* position at which the bank was last switched to */
	rts_u64 start_ns[RTS_BANKS];	      /* and when; 0 before the first flip */
	rts_u64 previous_start[RTS_BANKS];    /* the same of the time before that: a bank that is written again still */
	rts_u64 previous_start_ns[RTS_BANKS]; /* holds what is older than its new start */
	/* One word, stored at once and after the starts: the bank being written, and the trigger generation of the last flip. */
	rts_u32 active, flipped;
	rts_u32 flip_claim, pad; /* generation whose flip has been begun: nested writers flip once */
	rts_u64 late_head;	 /* late responses written */
	rts_u64 late_reserved; /* late responses begun: more than that while one is being written, and one that interrupts it */
	rts_u64 late_committed;	      /* late responses whose writer has finished */
	rts_u64 late_tail;	      /* late responses read */
	rts_u64 late_lost;	      /* late responses that found the ring full */
	rts_u64 tail;		      /* a stream's reader has read up to here */
	rts_u64 lost[RTS_LOST_TYPES]; /* a stream's records that found the ring full, by type */
	rts_u64 reserved[6];	      /* whole cache lines: no CPU's words share one with another's */
};

#define RTS_LATE_SLOTS 256

#define RTS_TRIGGER_IDLE 0
#define RTS_TRIGGER_ARMED 1

/* One for all CPUs: the trigger of the flight recorder. */
struct rts_trigger {
	rts_u64 stop_at_ns; /* RTS_NEVER, or when each CPU leaves its bank; stored last */
	rts_u64 generation; /* +1 for each snapshot */
	rts_u64 detected_ns;
	rts_u64 next_allowed_ns;
	rts_u32 state;	 /* RTS_TRIGGER_ARMED until user space has copied the frozen banks */
	rts_u32 enabled; /* 0: programs return at once (benchmarks toggle it; a stopped recorder) */
	rts_u32 adopt;	 /* the task iterator takes tasks in; only while the eBPF programs are switched on */
	rts_u32 pad;
	/* Threads are served in turn: each that is late gets a snapshot before another gets its second one. */
	rts_u32 turn;	 /* from 1 */
	rts_u32 waiting; /* a thread was late in this turn that has not had its snapshot */
	rts_u64 reserved;
};

/*
 * A thread that sleeps until a known time, and when the timer's interrupt came for it (rtscope shield table). The thread
 * says for what it waits, and reads when it has been woken by what is written here: nobody else does.
 */
struct rts_expiry {
	rts_u64 wanted_ns;  /* the time for which the timer is programmed; CLOCK_MONOTONIC */
	rts_u64 fired_ns;   /* the wanted time of the last one that expired; stored last */
	rts_u64 entered_ns; /* when the interrupt's handler was entered, or the timer's own where that is not seen */
	rts_u32 tid;
	rts_u32 cpu; /* where the interrupt came */
};

/* ---- configuration, constant while the programs are loaded ------------------------------------------------------ */

#define RTS_SYSCALLS 512
#define RTS_PATH_ENTRY_ONLY 0x80 /* not to be read at the exit: the call replaces the memory */
#define RTS_PATH_SOCKET 0x40	 /* its argument is a socket's address, and the one behind it the size of that */
/* What is recorded of a system call. */
#define RTS_CALL_ARGS 0x07  /* how many arguments its entry's record has */
#define RTS_CALL_ENTRY 0x08 /* its entry is recorded */
#define RTS_CALL_EXIT 0x10  /* its exit is recorded */
#define RTS_CALL_PATHS 0x20 /* paths[] has something for it */
#define RTS_GLOB_MAX 31	    /* pattern characters other than '*' */

/* One tracker with its limit and its targets. */
struct rts_instance {
	rts_u64 threshold_ns;
	rts_u32 target_pid; /* 0: any process */
	rts_u32 target_tid; /* 0: any thread */
	rts_u8 records;	    /* what is late becomes the limit: only what is worse than all before is late */
	rts_u8 id;	    /* enum rts_cell_id: by what its operations are counted apart */
	rts_u8 kind;	    /* its operations are counted apart by rts_cell_key's kind as well */
	rts_u8 pad[1];
	rts_u8 tracker;	   /* enum rts_tracker */
	rts_u8 snapshot;   /* its detections pull the trigger */
	rts_u8 match_comm; /* targets are tasks whose name matches the pattern below */
	rts_u8 command;	   /* the target process was forked by rtscope: what it does before it execs is not COMMAND's */
	/*
	 * The name pattern as a bit-parallel automaton: bit i of the state means "the first i pattern characters matched".
	 * glob_any: states with a '*', which take any character and stay. glob_accept: the final state's bit.
	 * glob[c]: states that take character c and go on. (Shift-and, Baeza-Yates and Gonnet, 1992.)
	 */
	rts_u32 glob_any, glob_accept;
	rts_u32 glob[256];
};

struct rts_config {
	rts_u64 bank_size; /* bytes, a power of two */
	rts_u32 bank_shift, sub_buffer_shift;
	rts_u64 post_ns;   /* how long recording goes on after a detection */
	rts_u64 rate_ns;   /* least time between two snapshots */
	rts_u64 sample_ns; /* RTS_TRACKER_IRQOFF: the time between two samples; else 0 */
	rts_u64 while_ns; /* only tasks are recorded of which something is under way for longer than this; 0: all are */
	rts_u32 set_mask; /* number of task sets - 1 */
	rts_u32 own_pid;  /* the process whose system calls are left out: rtscope itself; 0: none */
	rts_u16 stream;	  /* a reader empties the rings: full means lost; else they are written in a circle */
	rts_u16 without_nmi; /* no loaded eBPF program runs in a non-maskable interrupt */
	rts_u8 record;	     /* the flight recorder is on */
	rts_u8 track;	     /* a tracker is on */
	rts_u8 snapshot;     /* detections may pull the trigger */
	rts_u8 end;	     /* of responses: RTS_END_RUNNING, RTS_END_BLOCKED or RTS_END_CYCLE */
	rts_u8 begin;	     /* with which origins a response may begin: bit 1 << enum rts_origin_kind */
	rts_u8 instances_len;
	rts_u8 intervals; /* the instances of trackers of intervals (bpf/trackers/interval.bpf.h): bit 1 << index */
	rts_u8 interval_kinds; /* how many such trackers are on */
	rts_u8 untargeted;     /* instances that count whatever task is concerned: bit 1 << index */
	rts_u8 keyed;	       /* instances whose operations are counted in cells, too: bit 1 << index */
	rts_u8 pad[2];
	rts_u32 cells; /* of each CPU: a power of two; 1 where no instance needs any */
	rts_u32 pad2;
	rts_u32 origin_irqs; /* of responses: number of entries of irqs that are used; 0: any interrupt */
	rts_u32 irqs[16];
	rts_u32 sources; /* RTS_END_CYCLE: with waits of which kinds a cycle may begin: bit 1 << enum rts_wait_kind */
	rts_u16 cpus;	 /* CPUs that there is memory for */
	rts_u16 banks_from; /* the first CPU with banks; without them a CPU records nothing */
	/* By enum rts_tracker: which instances are of it, bit 1 << index. */
	rts_u8 of_tracker[RTS_TRACKERS_MAX];
	/* By enum rts_tracker: of a tracker of intervals, which of interval_kinds it is. */
	rts_u8 interval_kind[RTS_TRACKERS_MAX];
	struct rts_instance instances[RTS_INSTANCES];
	/* By system call number: bit i says that argument i (0 to 4) is to be read: a path, or with RTS_PATH_SOCKET an address; and RTS_PATH_ENTRY_ONLY. */
	rts_u8 paths[RTS_SYSCALLS];
	/* By system call number: RTS_CALL_... */
	rts_u8 calls[RTS_SYSCALLS];
	/* By system call number: enum rts_wait_kind of a task that waits in it. */
	rts_u8 waits[RTS_SYSCALLS];
	/* By system call number: which instances of RTS_TRACKER_SYSCALL follow it, bit 1 << index. */
	rts_u8 call_instances[RTS_SYSCALLS];
	/* RTS_TRACKER_PAIR: the tracepoint that begins a pair, and the one that ends it. */
	struct rts_pair_side pair[2];
	/* By system call number: enum rts_call_file, where an instance counts by device; else 0. */
	rts_u8 call_files[RTS_SYSCALLS];
	/* By enum rts_tracker: from which time on what it follows has stacks: the shortest limit of its instances. 0: never. */
	rts_u64 stacks_ns[RTS_TRACKERS_MAX];
	rts_u32 stack_bytes; /* of a user's stack that are copied: a multiple of RTS_STACK_PAGE, at most RTS_STACK_BYTES */
	rts_u32 pad3;
};

/* ---- statistics, one per CPU and instance --------------------------------------------------------------------- */

/*
 * Response histogram: values below RTS_HIST_SUB are their own bucket; above, each power of two has RTS_HIST_SUB
 * buckets, so a bucket is at most 1/32 = 3.2 % wide. The last bucket takes all that is larger than 2^40 ns (18 min).
 */
#define RTS_HIST_SUB_BITS 5
#define RTS_HIST_SUB (1 << RTS_HIST_SUB_BITS)
#define RTS_HIST_BUCKETS ((40 - RTS_HIST_SUB_BITS + 1) * RTS_HIST_SUB)

struct rts_stats {
	rts_u64 seen; /* responses of the target that ended, whatever their length */
	rts_u64 late;
	rts_u64 filtered; /* responses whose origin the --irq / --timer filter left out */
	rts_u64 merged;	  /* origins merged into an older chain */
	rts_u64 unlinked; /* wakeups of the target that could be linked to nothing: by another task, unless RTS_ORIGIN_TASK counts */
	rts_u64 untracked; /* wakeups, switches, softirqs and work items for which no state could be had (table full) */
	rts_u64 busy;	   /* wakeups that met a task which had not left its CPU */
	rts_u64 healed;	   /* interrupt states found open where they cannot be: an exit event was missed */
	rts_u64 folded;	   /* chains with more than RTS_CHAIN_STEPS steps */
	rts_u64 sum_ns, min_ns, max_ns;
	rts_u64 too_long;	 /* branches not followed because their chain was full */
	rts_u64 suppressed_rate; /* triggers that came too soon after the last snapshot */
	rts_u64 suppressed_busy; /* triggers that came while no bank was free */
	rts_u64 raced;		 /* transitions given up because another CPU held the task's state for too long */
	rts_u64 hidden;		 /* switches in of the target that the kernel did not report */
	rts_u64 uncounted;	 /* of `seen`, those that no struct rts_thread_count has */
	rts_u64 abandoned;	 /* cycles given up, since the wait that they began with did not come back */
	rts_u64 unended;	 /* block requests whose end the kernel did not report: their place was used again */
	rts_u64 begun_again;	 /* RTS_TRACKER_PAIR: first events after which another one with the same key came */
	rts_u64 without_begin;	 /* second events without a first */
	rts_u64 pairs_full;	 /* first events that found no place: the table was full */
	rts_u64 pairs_failed;	 /* events that could not be paired since another CPU changed their entry */
	rts_u64 unkeyed;	 /* of `seen` in a keyed instance, those for which no cell was free */
	rts_u64 histogram[RTS_HIST_BUCKETS];
};

/*
 * Histograms by key: of each CPU a table of cells, each of which counts the operations of one key in one bucket. A cell is found by its key, in
 * one of RTS_CELL_PROBES places from where its hash leads; it is never given up. So user space reads it while it grows, and what came between two
 * readings is their difference.
 *
 * The key: bits 0 to 31 the id, 32 to 40 the kind, 41 to 51 the bucket, 52 to 54 the instance, 63 is set.
 */
struct rts_cell {
	rts_u64 key; /* 0: free */
	rts_u64 count;
	rts_u64 sum_ns;
	rts_u64 max_ns; /* in bucket RTS_CELL_NAME this and sum_ns are the name of a task, count is 0 */
};

#define RTS_CELL_PROBES 16
#define RTS_CELL_KIND_SHIFT 32
#define RTS_CELL_BUCKET_SHIFT 41
#define RTS_CELL_INSTANCE_SHIFT 52
#define RTS_CELL_USED (1ULL << 63)
#define RTS_CELL_NAME 2047

_Static_assert(RTS_HIST_BUCKETS <= RTS_CELL_NAME, "the last buckets have no number in a cell's key");

/* What the id in a cell's key is. */
enum rts_cell_id {
	RTS_CELL_ALL = 0,     /* 0 */
	RTS_CELL_THREAD = 1,  /* the tid of the task that the report would name */
	RTS_CELL_PROCESS = 2, /* its pid */
	RTS_CELL_ORIGIN = 3,  /* origin_id: interrupt, softirq, system call, disk */
	RTS_CELL_CPU = 4,     /* where it ended */
	RTS_CELL_CGROUP = 5,  /* of the task, in the default hierarchy; 0 where its number has more than 32 bits */
	RTS_CELL_DEVICE = 6,  /* dev_t: of a request, or of the file of a system call; 0: it has none */
	RTS_CELL_FIELD = 7,   /* the first part of a pair's key, its low 32 bits */
};

/* Where a system call has its file. */
enum rts_call_file {
	RTS_CALL_NO_FILE = 0,
	RTS_CALL_FILE_GIVEN = 1,    /* the first argument */
	RTS_CALL_FILE_RETURNED = 2, /* the result */
};

/*
 * The responses of one thread, by its slot in the tracker's table. It outlives the thread, until another one that responds needs the slot: then
 * its responses are among those of rts_stats.uncounted.
 */
struct rts_thread_count {
	rts_u32 tid; /* 0: none has responded in this slot */
	rts_u32 pad;
	rts_u64 seen;
};

/* ---- state dump (task iterator) ------------------------------------------------------------------------------- */

struct rts_task_dump {
	rts_u32 tid, pid, ppid;
	rts_u32 state;	/* task->__state */
	rts_u32 policy; /* SCHED_OTHER 0, FIFO 1, RR 2, BATCH 3, IDLE 5, DEADLINE 6, EXT 7 */
	rts_s16 prio;
	rts_u16 cpu;
	rts_u32 kthread;
	rts_u32 pad;
	char comm[RTS_COMM_LEN];
};

_Static_assert(RTS_TRACKERS <= RTS_TRACKERS_MAX, "rts_config.of_tracker has no place for the newest");

/* ---- both sides check ----------------------------------------------------------------------------------------- */

_Static_assert(RTS_RECORD_TYPES <= RTS_LOST_TYPES, "a loss of the newest type would be counted as another type's");
_Static_assert((RTS_LOST_TYPES & (RTS_LOST_TYPES - 1)) == 0, "RTS_LOST_TYPES must be a power of two: it makes a mask");

#define RTS_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " changed its size")
RTS_ASSERT_SIZE(struct rts_record, 16);
RTS_ASSERT_SIZE(struct rts_sched_switch, 40);
RTS_ASSERT_SIZE(struct rts_sched_waking, 24);
RTS_ASSERT_SIZE(struct rts_sched_migrate_task, 32);
RTS_ASSERT_SIZE(struct rts_sched_pi_setprio, 24);
RTS_ASSERT_SIZE(struct rts_process_fork, 48);
RTS_ASSERT_SIZE(struct rts_process_exec, 88);
RTS_ASSERT_SIZE(struct rts_process_exit, 48);
RTS_ASSERT_SIZE(struct rts_task_rename, 56);
RTS_ASSERT_SIZE(struct rts_irq_entry, 24);
RTS_ASSERT_SIZE(struct rts_irq_exit, 24);
RTS_ASSERT_SIZE(struct rts_vector, 24);
RTS_ASSERT_SIZE(struct rts_softirq, 24);
RTS_ASSERT_SIZE(struct rts_hrtimer_entry, 48);
RTS_ASSERT_SIZE(struct rts_hrtimer_exit, 24);
RTS_ASSERT_SIZE(struct rts_cpu_idle, 24);
RTS_ASSERT_SIZE(struct rts_nmi_handler, 40);
RTS_ASSERT_SIZE(struct rts_ipi_send, 40);
RTS_ASSERT_SIZE(struct rts_ipi_send_mask, 72);
RTS_ASSERT_SIZE(struct rts_work_queue, 40);
RTS_ASSERT_SIZE(struct rts_work, 32);
RTS_ASSERT_SIZE(struct rts_signal_generate, 24);
RTS_ASSERT_SIZE(struct rts_step, 16);
RTS_ASSERT_SIZE(struct rts_other_origin, 16);
RTS_ASSERT_SIZE(struct rts_chain, 256);
RTS_ASSERT_SIZE(struct rts_pair_side, 16);
RTS_ASSERT_SIZE(struct rts_pair, 200);
RTS_ASSERT_SIZE(struct rts_late, 672);
RTS_ASSERT_SIZE(struct rts_stack, 66112);
RTS_ASSERT_SIZE(struct rts_interval, 352);
RTS_ASSERT_SIZE(struct rts_request, 368);
RTS_ASSERT_SIZE(struct rts_late_response, 64);
RTS_ASSERT_SIZE(struct rts_syscall_entry, 24);
RTS_ASSERT_SIZE(struct rts_syscall_exit, 32);
RTS_ASSERT_SIZE(struct rts_syscall_path, 40);
RTS_ASSERT_SIZE(struct rts_cpu_control, 448);
_Static_assert(sizeof(struct rts_cpu_control) % 64 == 0, "CPUs would share cache lines");
RTS_ASSERT_SIZE(struct rts_trigger, 64);
RTS_ASSERT_SIZE(struct rts_expiry, 32);
RTS_ASSERT_SIZE(struct rts_task_dump, 48);
RTS_ASSERT_SIZE(struct rts_thread_count, 16);
RTS_ASSERT_SIZE(struct rts_cell, 32);

#endif /* RTSCOPE_KERNEL_ABI_H */

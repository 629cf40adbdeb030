/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 OR MIT */
/*
 * What the scheduler and its user space share: how it is set up, and what it counts. The eBPF programs include this header,
 * and bindgen turns it into Rust.
 *
 * Classes: RT0 has a real-time policy and one of the real-time CPUs; the scheduler never sees it. RT1 has the policy SCHED_EXT
 * and a grant, which only root gives. All other tasks are LINUX, those with SCHED_EXT and without a grant, too.
 */
#ifndef RTSCOPE_ARTIS_ABI_H
#define RTSCOPE_ARTIS_ABI_H

typedef unsigned char rts_u8;
typedef unsigned short rts_u16;
typedef unsigned int rts_u32;
typedef unsigned long long rts_u64;
typedef long long rts_s64;

/* CPU numbers are below it; a power of two. */
#define RTS_ARTIS_CPUS 256
/* Tasks that a real-time CPU may have handed over and nobody has taken yet; a power of two. */
#define RTS_ARTIS_RING 256
/* Four buckets for each power of two: a delay's bucket is known to a quarter. */
#define RTS_ARTIS_BUCKETS 160

enum rts_artis_class { RTS_ARTIS_RT0, RTS_ARTIS_RT1, RTS_ARTIS_LINUX, RTS_ARTIS_CLASSES };

/* Why a task has to leave a real-time CPU: how it entered the kernel. */
enum rts_artis_cause { RTS_ARTIS_SYSCALL, RTS_ARTIS_FAULT, RTS_ARTIS_SIGNAL, RTS_ARTIS_CAUSES };

/* How an eviction ended; all that were begun end in one of these, or are still on their way. */
enum rts_artis_end {
	RTS_ARTIS_MOVED,    /* it went to another CPU */
	RTS_ARTIS_SLEPT,    /* it blocked before that: its next CPU is another one */
	RTS_ARTIS_EXITED,   /* it ended before that */
	RTS_ARTIS_CHANGED,  /* its policy or its CPUs were changed, or it inherited a priority */
	RTS_ARTIS_RETURNED, /* it came to the end of its system call: nothing moved it in time */
	RTS_ARTIS_ENDS
};

/* Why a task was not moved although it entered the kernel. */
enum rts_artis_refusal {
	RTS_ARTIS_BOUND,  /* it may use no other CPU */
	RTS_ARTIS_PINNED, /* it was within a section in which the kernel moves no task */
	RTS_ARTIS_REFUSALS
};

struct rts_artis_counts {
	rts_u64 ran_ns;			     /* on a real-time CPU: lent time; RT0: the time that it had the CPU */
	rts_u64 moved_here;		     /* times that another CPU sent a task here */
	rts_u64 evictions[RTS_ARTIS_CAUSES]; /* begun */
	rts_u64 ended[RTS_ARTIS_ENDS];	     /* how they ended */
	rts_u64 refused[RTS_ARTIS_REFUSALS]; /* entries without an eviction */
};

struct rts_artis_cpu {
	struct rts_artis_counts classes[RTS_ARTIS_CLASSES];
	rts_u64 ring_full; /* hand-overs that went through the shared queue, since the ring was full */
	rts_u64 emptied;   /* times that waiting tasks were taken from this CPU, since RT0 held it */
	rts_u64 delay_max_ns;
	rts_u64 rt0_since_ns; /* RT0 has had the CPU since then, which is not in its ran_ns yet; 0: it has not */
	rts_u64 delays[RTS_ARTIS_BUCKETS]; /* from the entry to leaving the CPU, of all classes */
};

/* Set before loading. */
struct rts_artis_config {
	rts_u32 nr_rt, nr_others;
	rts_u16 rt[RTS_ARTIS_CPUS];	/* the real-time CPUs */
	rts_u16 others[RTS_ARTIS_CPUS]; /* all others that may come online */
	rts_u8 is_rt[RTS_ARTIS_CPUS];
	rts_u8 is_offline[RTS_ARTIS_CPUS]; /* when the scheduler is loaded */
	rts_u64 slice_ns;		   /* how long a task runs while others wait */
	rts_u64 lent_slice_ns;		   /* and on a real-time CPU: changing places there costs more */
	rts_u64 grace_ns;		   /* how long RT0 may hold a CPU before tasks that wait there are moved */
	rts_u64 min_burst_ns; /* a task that stays in user mode for less on average is not lent a CPU at once */
};

/* What the kernel has to say about all CPUs and the tasks that wait, when it ends the scheduler; more of it is cut. */
#define RTS_ARTIS_DUMP 16384
struct rts_artis_dump {
	char text[RTS_ARTIS_DUMP];
};

/* How the scheduler ended. */
struct rts_artis_exit {
	rts_u64 kind; /* the kernel's; 0: it has not */
	rts_s64 code;
	char reason[64];
	char message[192];
};

#endif

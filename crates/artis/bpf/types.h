/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the scheduler reads, each with only the fields that it reads. Offsets and values are relocated when
 * the object is loaded (CO-RE).
 */
#ifndef RTSCOPE_ARTIS_TYPES_H
#define RTSCOPE_ARTIS_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum { ENOMEM = 12 };
enum bpf_map_type_used { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_TASK_STORAGE = 29 };
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_LOCAL_STORAGE_GET_F_CREATE (1ULL << 0)

#define PF_EXITING 0x00000004 /* include/linux/sched.h */
#define PF_KTHREAD 0x00200000
#define SCHED_EXT 7	/* include/uapi/linux/sched.h */
#define MAX_RT_PRIO 100 /* include/linux/sched/prio.h: a priority below it is a real-time one */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Not only its name: kfuncs are compared by their types. */
struct cpumask {
	unsigned long bits[1];
};
struct callback_head;

struct sched_ext_entity {
	__u32 flags;
	__u32 weight; /* 100: nice 0 */
	__u64 slice;
};

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	unsigned int policy;
	int prio;
	int static_prio;
	int pid;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	struct callback_head *task_works;
	struct sched_ext_entity scx;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long orig_ax;
};
#else
struct pt_regs {
	int syscallno;
};
#endif

enum scx_exit_kind { SCX_EXIT_NONE };

struct scx_init_task_args {
	bool fork;
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	__s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};

struct scx_bpf_dsq_insert_vtime_args {
	__u64 dsq_id;
	__u64 slice;
	__u64 vtime;
	__u64 enq_flags;
};

#pragma clang attribute pop

/* Of the kernel's size: the program has it on its stack. */
struct bpf_iter_scx_dsq {
	__u64 opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 0x8000000000000002ULL,
	SCX_DSQ_LOCAL_ON = 0xc000000000000000ULL,
};
enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1ULL,
	SCX_ENQ_PREEMPT = 1ULL << 32,
	SCX_ENQ_LAST = 1ULL << 41,
};
enum scx_kick_flags { SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2 };
enum scx_reenq_flags { SCX_REENQ_ANY = 1 };
enum scx_ent_flags { SCX_TASK_QUEUED = 1 };
/* Constants, since they are written into the table of operations at compile time. */
#define OPS_KEEP_BUILTIN_IDLE 1
#define OPS_ENQ_LAST 2

/* The operations that we have. libbpf finds each by its name in the kernel's own table. */
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *, __s32, __u64);
	void (*enqueue)(struct task_struct *, __u64);
	void (*dispatch)(__s32, struct task_struct *);
	void (*tick)(struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*update_idle)(__s32, bool);
	__s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*disable)(struct task_struct *);
	void (*cpu_online)(__s32);
	void (*cpu_offline)(__s32);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	__u64 flags;
	__u32 timeout_ms;
	char name[128];
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs read, each with only the fields that they read. Offsets are relocated when the
 * object is loaded (CO-RE), so these need not match any kernel's layout: no generated vmlinux.h of 130 000 lines, and
 * what rtscope depends on can be read in a minute. `rtscope caps` tries whether they fit, by loading the programs.
 */
#ifndef RTSCOPE_CORE_KERNEL_TYPES_H
#define RTSCOPE_CORE_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef short __s16;
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

enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { EFAULT = 14 };
/* From include/uapi/linux/bpf.h, which cannot be included together with the types here. */
enum bpf_map_type_used {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29
};
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_LOCAL_STORAGE_GET_F_CREATE (1ULL << 0)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	unsigned long flags;
	__u32 cpu;
	__u32 status; /* x86 */
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	__u32 i_rdev;
	unsigned long i_ino;
	__u32 i_generation;
	struct super_block *i_sb;
};

struct qstr {
	const unsigned char *name;
};

struct hlist_bl_node {
	struct hlist_bl_node *next, **pprev;
};

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	const void *f_op;
	unsigned int f_flags;
	struct path f_path;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *close_on_exec;
	unsigned long *open_fds;
};

struct files_struct {
	struct fdtable *fdt;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	struct thread_info thread_info;
	void *stack;
	int pid;
	int tgid;
	int prio;
	int normal_prio;
	unsigned int __state;
	unsigned int flags;
	int exit_state;
	unsigned int policy;
	int on_cpu;
	unsigned short migration_disabled;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	__u64 start_time;
	struct files_struct *files;
	struct css_set *cgroups;
	char comm[16];
};

/* The registers with which a task came into the kernel: of a system call, its arguments among them. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, sp;
};
#else
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
	__u64 orig_x0;
	int syscallno;
};
#endif

struct linux_binprm {
	const char *filename;
};

struct timerqueue_node {
	__s64 expires;
};

struct hrtimer_clock_base {
	__s64 offset;
};

struct hrtimer {
	struct timerqueue_node node;
	__s64 _softexpires;
	void *function;
	struct hrtimer_clock_base *base;
};

/* What a sleeping thread's timer is inside of. */
struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
};

struct work_struct {
	void *func;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk; /* since Linux 5.15 */
};

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
};

struct seq_file;
struct irqaction;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

struct io_cqe {
	__s32 res;
};

struct io_cmd_data {
	struct file *file;
};

/* A request of io_uring. */
struct io_kiocb {
	struct io_cmd_data cmd;
	__u8 opcode;
	struct io_cqe cqe;
};

/* One to close: its command. */
struct io_close {
	int fd;
};

#pragma clang attribute pop

#define TS_COMPAT 0x0002	  /* arch/x86/include/asm/thread_info.h: a 32-bit system call, with separate numbers */
#define USER_CS 0x33		  /* arch/x86/include/asm/segment.h: __USER_CS, code of 64 bits */
#define PSR_MODE32_BIT 0x10	  /* arch/arm64/include/uapi/asm/ptrace.h */
#define PF_EXITING 0x00000004	  /* gives up what it has; unchanged since 2.6 */
#define PF_FORKNOEXEC 0x00000040  /* forked, and no exec since; unchanged since 2.6 */
#define PF_KTHREAD 0x00200000	  /* include/linux/sched.h, unchanged since 2.6.27 */
#define PF_IO_WORKER 0x00000010	  /* since Linux 5.12; has no system call of its own */
#define PF_USER_WORKER 0x00004000 /* since Linux 6.3; the same */

#endif

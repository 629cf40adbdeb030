/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 OR MIT */
/*
 * The contract between the eBPF programs that follow file descriptors (crates/kernel/bpf/fds.bpf.c) and user space. The rules of
 * kernel_abi.h hold here, too.
 *
 * The records are in one ring of all CPUs. None says "this was closed": each says what a slot of a table has *now*, read after the record
 * was reserved. So whatever runs at the same time, the last record about a slot is right once nothing changes it any more.
 */
#ifndef RTSCOPE_KERNEL_FDS_H
#define RTSCOPE_KERNEL_FDS_H

#include "kernel_abi.h"

#define RTS_FDS_PATH 256     /* bytes of a path: what is nearest to its end */
#define RTS_FDS_NAME 32	     /* of what has no path: sockets, pipes, anonymous files */
#define RTS_FDS_CHUNK 64     /* slots of a chunk */
#define RTS_FDS_NONE 0xffffU /* no system call */

#define RTS_FDS_CALLS 512 /* system calls that have a way; a power of two */

/* What is done behind a system call. */
enum rts_fds_way {
	RTS_FDS_WAY_NONE = 0,
	RTS_FDS_WAY_RESULT = 1, /* its result is a descriptor */
	RTS_FDS_WAY_CLOSE = 2,	/* its first argument was one */
	RTS_FDS_WAY_FCNTL = 3,
	RTS_FDS_WAY_IOCTL = 4,
	RTS_FDS_WAY_RANGE = 5, /* close_range */
	RTS_FDS_WAY_UNSHARE = 6,
	RTS_FDS_WAY_COMPARE = 7,  /* it may give some in any other way */
	RTS_FDS_WAY_FANOTIFY = 8, /* its result is a descriptor from which others are read */
	RTS_FDS_WAY_READ = 9,	  /* it may be such a read */
};

enum rts_fds_kind {
	RTS_FDS_SLOT = 1,	 /* struct rts_fds_slot */
	RTS_FDS_FILE = 2,	 /* struct rts_fds_file without a path */
	RTS_FDS_FILE_PATH = 3,	 /* struct rts_fds_file_path */
	RTS_FDS_CHUNK_FILES = 4, /* struct rts_fds_chunk */
	RTS_FDS_CHUNK_NONE = 5,	 /* struct rts_fds_chunk_none */
	RTS_FDS_TASK = 6,	 /* struct rts_fds_task */
	RTS_FDS_KINDS = 7,
};

/* Flags of a record. */
enum {
	RTS_FDS_SCANNED =
		1, /* somebody asked for it: nothing has happened. pid and tid are those of the table's task */
	RTS_FDS_CLOEXEC = 2,	/* the slot is closed by exec */
	RTS_FDS_FIRST = 4,	/* of a chunk: the table is new, or was not told before */
	RTS_FDS_LAST = 8,	/* of a chunk: the slots behind it are empty */
	RTS_FDS_IO_WORKER = 16, /* by a thread of io_uring, which has no system call */
	RTS_FDS_DELETED = 32,	/* the file has no name any more */
	RTS_FDS_PSEUDO = 64,	/* the file never had a place in a directory: path is its name */
	RTS_FDS_CUT = 128,	/* the path is longer: its beginning is missing */
	RTS_FDS_RESULT =
		512, /* the call gave this number. Else it was found behind a call, of this thread or of another one */
	RTS_FDS_COMPAT = 256, /* by a 32-bit system call: call is a number of that table */
};

struct rts_fds_head {
	rts_u64 time_ns; /* CLOCK_MONOTONIC */
	rts_u64 table;	 /* which files_struct: a number without other meaning */
	rts_u32 tid;
	rts_u32 pid;
	rts_u16 kind;
	rts_u16 call; /* the system call that did it, RTS_FDS_NONE: none */
	rts_u32 flags;
};

/* What a slot has. */
struct rts_fds_slot {
	struct rts_fds_head head;
	rts_u64 file; /* which struct file; 0: none */
	rts_u32 fd;
	rts_u32 pad;
};

/* And what that is. */
struct rts_fds_file {
	struct rts_fds_slot slot;
	rts_u64 inode;
	rts_u32 device;	    /* of the file system, as the kernel has it: 20 bits for the minor number */
	rts_u32 rdev;	    /* that a special file is for */
	rts_u32 mode;	    /* i_mode */
	rts_u32 open_flags; /* O_... */
	rts_u32 magic;	    /* s_magic of the file system */
	rts_u32 path_length;
	rts_u8 name[RTS_FDS_NAME]; /* the last part, or its beginning */
};

/* The parts of a path, the last one first, with a NUL behind each. */
struct rts_fds_file_path {
	struct rts_fds_file file;
	rts_u8 path[RTS_FDS_PATH];
};

/* What the slots from `first` on have. */
struct rts_fds_chunk {
	struct rts_fds_head head;
	rts_u32 first;
	rts_u32 pad;
	rts_u64 cloexec; /* a bit for each */
	rts_u64 files[RTS_FDS_CHUNK];
};

/* None of them had a file when this was begun. */
struct rts_fds_chunk_none {
	struct rts_fds_head head;
	rts_u32 first;
	rts_u32 pad;
	rts_u64 open; /* a bit for each that was given since: a later record tells what it has */
};

enum rts_fds_task_kind {
	RTS_FDS_TASK_SEEN = 0,
	RTS_FDS_TASK_FORK = 1,
	RTS_FDS_TASK_EXEC = 2,
	RTS_FDS_TASK_EXIT = 3,
	RTS_FDS_TASK_UNSHARE = 4,
};

/* A task and its table: head has both. Of an exit it is the table that it leaves. */
struct rts_fds_task {
	struct rts_fds_head head;
	rts_u32 what;	   /* enum rts_fds_task_kind */
	rts_u32 other_tid; /* of a fork: the parent; of an exec: its number before */
	rts_u32 parent_pid;
	rts_u32 pad;
	rts_u64 start_ns;
	rts_u8 comm[RTS_COMM_LEN];
};

/* Constant while loaded. */
struct rts_fds_config {
	rts_u32 own_pid;     /* not followed */
	rts_u32 selective;   /* only processes in the map `followed`, and their children */
	rts_u32 most_chunks; /* of a table that are told at once */
	rts_u32 pad;
	rts_u8 calls[RTS_FDS_CALLS]; /* enum rts_fds_way, by number */
	rts_u8 compat_calls[RTS_FDS_CALLS];
};

/* What is missing, by cause; counters that only grow. */
struct rts_fds_losses {
	rts_u64 lost[8];    /* records that found the ring full, by kind */
	rts_u64 unfollowed; /* children for which the map `followed` had no room */
	rts_u64 beyond;	    /* tables with more than most_chunks */
	rts_u64 records;    /* not lost */
	rts_u64 large;	    /* comparisons of tables with more numbers than are compared */
	rts_u64 remote; /* descriptors that one process put into another (seccomp): their tables are to be told again */
	rts_u64 reads_give; /* not a counter: set once read() may give descriptors (fanotify) */
	rts_u64 unsettled;  /* slots that others changed each time that they were looked at */
	rts_u64 pad[1];
};

RTS_ASSERT_SIZE(struct rts_fds_head, 32);
RTS_ASSERT_SIZE(struct rts_fds_slot, 48);
RTS_ASSERT_SIZE(struct rts_fds_file, 112);
RTS_ASSERT_SIZE(struct rts_fds_file_path, 368);
RTS_ASSERT_SIZE(struct rts_fds_chunk, 560);
RTS_ASSERT_SIZE(struct rts_fds_chunk_none, 48);
RTS_ASSERT_SIZE(struct rts_fds_task, 72);
RTS_ASSERT_SIZE(struct rts_fds_config, 1040);
RTS_ASSERT_SIZE(struct rts_fds_losses, 128);

#endif /* RTSCOPE_KERNEL_FDS_H */

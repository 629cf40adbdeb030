/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The contract between instrumented programs and the collector: every byte of shared memory that both of them look at. Programs
 * get it through rtscope.h; bindgen turns it into Rust (crates/abi). Sizes are asserted on both sides.
 *
 * A program never contacts the collector. It leaves files in a directory of its user, and the collector finds them:
 *
 *   /dev/shm/rtscope-UID/          0700, owned by UID
 *     session                      written by the collector: what programs that start now are to enable. It lives as long as this
 *                                  file is locked (F_OFD_SETLK), whatever it says
 *     look                         one page, made by programs: the collector asks those to look that have no file yet (below)
 *     p<PID>-<BIRTH>-<N>           a provider: a program (N = 0) or a library in it, with the descriptions of its events
 *     r<PID>-<BIRTH>-<TID>-<N>     the ring of one thread
 *     x<PID>-<BIRTH>-<ERRNO>       empty: this program runs untraced, and why. Made only while there is a session
 *
 * PID and TID are decimal, as the program sees them; BIRTH is the CLOCK_BOOTTIME nanoseconds at which the program made its
 * files, in hexadecimal. Together they name a process for as long as the machine runs.
 *
 * Locks. A program locks each p and r file that it makes (flock(2), exclusive) and keeps the lock by its mapping alone: the
 * descriptor is closed. So the lock is held exactly as long as the file is mapped: it goes with the process however that ends, with
 * execve(2), and when a thread or a library gives its file up; a fork's child maps other memory over it at once. Of version 2 a
 * process is alive exactly if the lock of its p file with N = 0 is held (flock LOCK_SH | LOCK_NB fails). PIDs tell nothing:
 * containers may share /dev/shm, and a process may have two leaders with two births (dlmopen).
 *   - A name is removed only by somebody who has the exclusive lock at that moment, or by its program.
 *   - The maker opens the file with O_EXCL, locks it, and then looks whether it still has a name; if not, it starts again.
 *   - Whoever finds a file of version 2 unlocked may remove it, with these exceptions: while a collector lives (its session is
 *     locked), only that collector removes a ring in which head != tail, and the p files of such a process; without one, some of
 *     them are kept for the next one (RTU_KEPT_RINGS for each user).
 *   - Files of version 1 are not locked, so only a collector removes them. A file without a magic number is being made; it is left
 *     alone for a minute.
 *
 * Root's session, /dev/shm/rtscope-session, is for programs of all users. Where root has no number (user namespaces) its owner tells nothing, and it counts if
 * there is /run/rtscope/session-<IDENTITY>, and nobody with a number there may write it, or what is above it. IDENTITY is rtscope__identity().
 *
 * Looking. A fork's child has no file as long as there is no session. All its events are enabled by the word `look` of the user's
 * look page. The collector, after its session can be read and before it lists the directory, writes a number other than 0 into
 * the look pages of the users that it serves. The child's next event then makes its files, as if it started now. The number is
 * RTU_ENABLED(session). At its end the collector writes 0, after the session is gone; programs that find a number and no
 * session that lives write 0 themselves.
 *
 * Enabling. A word of `enabled` is RTU_ENABLED(session), with RTU_TO_CHANNEL if its event goes to a channel of the session's device, or 0. A
 * program that finds the session of its collector dead takes back what that session has enabled, and nothing else: by compare-and-swap.
 * Numbers of sessions leave RTU_TO_CHANNEL free; those of collectors from before there were channels may not, but have no RTU_CHANNELS.
 *
 * Channels. The session of a collector with RTU_CHANNELS has patterns ">/GLOB" and "</GLOB": of the events that are enabled, those whose last such
 * pattern is the first kind go to a channel; and one line "@/..." about the device (channel.h). Programs that know no channels find no
 * event with these names. Each thread that has such events has a channel for itself. A message there is a record as rings have it: its first word
 * has a mark, a flag ends it, and its tag counts messages. RTU_ID_WHO says whose channel it is, before the first event and at
 * least every RTU_WHO_EVERY messages; a message may come within another one, of the thread that a signal handler has interrupted, or
 * overtake it. A message counts its time from the newest RTU_ID_WHO with an earlier number.
 *
 * PTWRITE. The line about the device is "@/ptwrite": a message is written by that instruction, and its words are those of no channel. The first
 * one has bit 63, then the thread's key (31 bits, of its process's birth and pid and its number), then the message's number (32 bits). The others
 * have where they are (bits 62 to 59: from 0, modulo 16), the lowest 11 bits of the key, and 48 bits of what the message says: the words of the
 * record, and a check of 16 bits (channel.h). The record's first word says how many words it has.
 *
 * Silence. `beat` changes about twice a second while somebody takes records, also of flight recorders. After RTU_QUIET_NS
 * without a change, a program makes no more than RTU_SILENT_RINGS more rings; what their threads emit is counted as
 * RTU_LOST_NOBODY. Between two changes it makes RTU_BEAT_RINGS at most, of RTU_BEAT_BYTES together: what threads that come and go can
 * pile up until then. It goes on when the beat does. A collector that finds rings of a process faster than it can open them leaves out that
 * process's beats until it has caught up.
 *
 * Event ids. An id belongs to one description at a time. Ids of an unloaded library are given again: to an object with exactly the same
 * descriptions at any time; to others only when no ring holds a record. So the newest provider that has been found says what an
 * id means.
 *
 * Versions. RTU_ABI_VERSION is that of p and r files; each has its number at the same place. A collector takes versions 1 and 2, and
 * refuses others by name. Version 2 has the locks, the look page and the fields from `more_lost` on; what was there in version
 * 1 has stayed where it was. Sessions have a number of their own (RTU_SESSION_VERSION), so old programs read new sessions.
 *
 * The ring. Positions are byte counts that only grow; position & (ring_bytes - 1) is the place. A record begins at a multiple
 * of 8 and never crosses the end of a sub-buffer (one of sub_buffers equal parts). Each sub-buffer begins with a sync record,
 * so a reader can start at any of them.
 *
 *   header word   event id (16) | tag (8) | length in 8 bytes (10) | low bits of the time (30)
 *   tag           low 7 bits of lap + key, where lap = position / ring_bytes; bit 7 is set while the payload is being
 *                 written. So a record of an earlier lap is distinguished from one of this lap, and an unfinished one can be stepped over.
 *   time          in units of the program's clock; the whole of it is that of the sync record before it plus
 *                 ((low bits - the sync record's low bits) modulo 2^30).
 *   payload       the event's fields as CTF has them (little endian, byte-aligned), then zeros up to a multiple of 8.
 */
#ifndef RTSCOPE_ABI_H
#define RTSCOPE_ABI_H

#include <stdint.h>

#define RTU_ABI_VERSION 2
#define RTU_SESSION_VERSION 1

#define RTU_PROVIDER_MAGIC 0x31564f5250535452ULL /* "RTSPROV1" */
#define RTU_RING_MAGIC 0x31474e4952535452ULL	 /* "RTSRING1" */
#define RTU_SESSION_MAGIC 0x3153534553535452ULL	 /* "RTSSESS1" */
#define RTU_LOOK_MAGIC 0x314b4f4f4c535452ULL	 /* "RTSLOOK1" */

#define RTU_SUB_BUFFERS_DEFAULT 16
#define RTU_SUB_BYTES_MIN (16 * 1024)
#define RTU_RING_BYTES_MIN (64 * 1024)
#define RTU_RING_BYTES_MAX (1024 * 1024 * 1024)
#define RTU_RING_BYTES_DEFAULT (1024 * 1024)
/* A record's length has 10 bits. */
#define RTU_RECORD_BYTES_MAX (1023 * 8)
#define RTU_EVENTS_MAX 65000
#define RTU_TEXT_BYTES_MAX (16 * 1024 * 1024)
#define RTU_SESSION_BYTES_MAX 16384
#define RTU_LOOK_BYTES 4096

/* What a session writes into the words that it enables: never 0. */
#define RTU_ENABLED(session) ((uint32_t)((session) >> 16) | 1)
/* Beside it: the event goes to a channel of an STM. */
#define RTU_TO_CHANNEL 0x80000000U

#define RTU_TIME_BITS 30
#define RTU_TIME_SHIFT 34
#define RTU_OPEN 0x80

/* Ids that are not events. The event ids of a process are 0 to RTU_EVENTS_MAX - 1. */
#define RTU_ID_PADDING 0xffff /* up to the end of the sub-buffer, whatever its length says */
#define RTU_ID_SYNC 0xfffe    /* struct rtu_sync */
#define RTU_ID_WHO 0xfffd     /* struct rtu_who; in channels, where there is no RTU_ID_SYNC */

/* struct rtu_sync.cpu and wherever the CPU is not known. */
#define RTU_CPU_UNKNOWN 0xffffffffU

struct rtu_sync {
	uint64_t word;
	uint64_t time; /* the clock, whole */
	uint64_t lost; /* events that did not fit into this ring before this record */
	uint32_t cpu;  /* where the thread runs from here on */
	uint32_t zero;
};

/* In a channel: whose it is from here on. */
struct rtu_who {
	uint64_t word;
	uint64_t time; /* the clock, whole */
	uint64_t lost; /* events that this channel's thread could not write before this */
	uint32_t cpu;  /* where the thread runs from here on */
	uint32_t clock;
	uint64_t birth_ns;
	uint32_t pid, tid;
	uint32_t number;  /* among the rings and channels of the process */
	uint32_t version; /* RTU_CHANNEL_VERSION */
	char comm[16];
};
#define RTU_CHANNEL_VERSION 1
/* Messages between two of them, at most: what is read may begin anywhere. */
#define RTU_WHO_EVERY 64
/* PTWRITE: what a key is mixed with, and the bits that are no tag. */
#define RTU_PTWRITE_MIX 0x1e3779b97f4a7c15ULL
#define RTU_PTWRITE_DATA 0xffffffffffffULL

enum rtu_clock {
	RTU_CLOCK_MONOTONIC = 1, /* CLOCK_MONOTONIC, ns */
	RTU_CLOCK_TSC = 2,	 /* x86's time stamp counter */
	RTU_CLOCK_CNTVCT = 3,	 /* arm64's generic counter */
};

/* Why events of a process were lost outside of its rings. */
enum rtu_cause {
	RTU_LOST_NO_RING = 0,  /* the thread has no ring: it could not be made, or was not to be made now */
	RTU_LOST_IN_SETUP = 1, /* a signal handler's event while the thread's ring was being made */
	RTU_LOST_TOO_LARGE = 2,
	RTU_LOST_IN_CHILD = 3,	 /* in a child that has no files (a raw clone) */
	RTU_LOST_CAUSES = 4,	 /* of version 1: in `lost`. The others are in `more_lost`, from its begin */
	RTU_LOST_NOBODY = 4,	 /* the thread was to have no ring, since nobody has emptied any for a while */
	RTU_LOST_NO_FILE = 5,	 /* of a library, or a child, whose file could not be made */
	RTU_LOST_NO_CHANNEL = 6, /* the thread has no channel of the STM that the event is to go to */
	RTU_LOST_ALL_CAUSES = 7,
};

enum rtu_flag {
	RTU_FLIGHT = 1, /* rings are overwritten, not filled */
	/* Set for programs that must make no system call: no new rings, unless a thread asks for one. */
	RTU_NO_LAZY = 2,
	RTU_BLOCKING = 4, /* a full ring is waited for, where the program allows it */
	RTU_CHANNELS = 8, /* some events go to channels */
	RTU_OR_RING = 16, /* those of threads that can have none go to their rings, instead of being lost */
	/* Somebody takes every record; what is left when that one is killed is the next one's. Who ends in order takes the flag away. */
	RTU_STREAMED = 32,
};

/* Blocking mode: after this time without a beat of the collector, threads wait no more. A disk may hold it up for seconds. */
#define RTU_SILENCE_NS 10000000000
/* Rings that a process makes at most while the collector is silent, and rings with records that are kept for each user without one. */
#define RTU_QUIET_NS 2000000000
#define RTU_SILENT_RINGS 64
#define RTU_BEAT_RINGS 4096
#define RTU_BEAT_BYTES (1024ULL * 1024 * 1024)
#define RTU_KEPT_RINGS 64

/*
 * A provider's file: this, then enabled[events], then the text: one description behind the other, each ending in NUL, in the
 * order of their ids: "PROVIDER:EVENT LEVEL\n" and for each field "TYPE NAME\n"; then, as many as enumerations says,
 * "ENUMERATION\n" and for each label "VALUE LABEL\n".
 */
struct rtu_provider {
	uint64_t magic;
	uint32_t abi_version;
	uint32_t ready;	   /* 1, with release, when all of what does not change is there; 2: unloaded */
	uint64_t birth_ns; /* CLOCK_BOOTTIME */
	uint32_t pid;
	uint32_t clock; /* enum rtu_clock */
	uint32_t first_id, events;
	uint32_t enumerations, text_bytes;
	uint32_t enabled_offset, text_offset;
	char comm[16];
	uint8_t build_id[20];
	uint32_t build_id_bytes;
	char object[256]; /* path of the program or library; "" is the program */
	uint32_t seccomp; /* its mode when it started; when that changes, a system call might end it */

	/* Written by the program. Only N = 0 has them. */
	uint64_t lost[RTU_LOST_CAUSES] __attribute__((aligned(64)));
	uint64_t rings_made;
	uint64_t rings_refused;
	uint32_t refused_errno; /* of the last one */
	uint32_t allows_blocking;
	uint64_t pid_namespace; /* inode number of /proc/self/ns/pid: where pid is a number; 0: not known */

	/* Written by the collector. Only N = 0 has them. */
	uint64_t session __attribute__((aligned(64))); /* which session enables; 0: none */
	uint32_t flags;				       /* enum rtu_flag */
	uint32_t ring_bytes;			       /* for new rings; 0: as the program likes */
	uint64_t lost_told[RTU_LOST_CAUSES];	       /* how much of `lost` is in some recording */
	uint64_t beat; /* changes about twice a second while somebody empties the rings */
	uint64_t zero;

	/* From here on: version 2 only. Written by the program. Only N = 0 has them. */
	uint64_t more_lost[3] __attribute__((aligned(64))); /* of RTU_LOST_CAUSES + i */
	uint32_t channels;				    /* how many channels threads got; */
	uint16_t channel_errno;				    /* why the last that got none did not */
	uint16_t knows;		     /* RTU_KNOWS_CHANNELS; 0 in earlier headers of this version */
	uint64_t time_namespace;     /* inode number of /proc/self/ns/time; 0: not known */
	int64_t monotonic_offset_ns; /* what that namespace adds to CLOCK_MONOTONIC, */
	int64_t boottime_offset_ns;  /* and to CLOCK_BOOTTIME */
	uint32_t objects_refused;    /* libraries that have no file, */
	uint32_t object_errno;	     /* and why the last one has none */

	/* Written by the collector. Only N = 0 has them. */
	uint64_t more_told[4] __attribute__((aligned(64))); /* how much of `more_lost` is in some recording */
	uint32_t refused_told, zero3;			    /* the same of `objects_refused` */
	uint64_t zero2[3];
};

#define RTU_KNOWS_CHANNELS 1

/* Of version 1: up to more_lost. */
#define RTU_PROVIDER_BYTES_1 512

/* A ring's file: this, padded to RTU_RING_OFFSET, then the ring. */
#define RTU_RING_OFFSET 4096

struct rtu_ring {
	uint64_t magic;
	uint32_t abi_version;
	uint32_t ready; /* 1, with release */
	uint64_t birth_ns;
	uint32_t pid, tid;
	uint32_t ring_bytes;
	uint32_t key; /* of the tags */
	uint32_t clock;
	uint32_t sub_buffers; /* a power of two */
	char comm[16];

	/* Written by the thread. */
	uint64_t head __attribute__((aligned(64))); /* as far as records were reserved */
	uint64_t lost;				    /* events that did not fit */
	uint64_t waits;				    /* blocking mode: how often it waited */
	uint64_t ended;				    /* 1: the thread writes no more */
	uint64_t number;			    /* N of the file's name */
	uint64_t settled;  /* what begins before this and is open stays so: its thread has jumped away from it */
	uint64_t doubtful; /* the same, most likely: it may also have been interrupted for long */
	uint64_t reserved;

	/* Written by the collector. */
	uint64_t tail __attribute__((aligned(64))); /* as far as records were taken */
	uint64_t lost_told;			    /* how much of `lost` is in some recording */
	uint64_t reserved2[6];
};

/* The look page, padded to RTU_LOOK_BYTES. */
struct rtu_look {
	uint64_t magic;
	uint32_t abi_version;
	uint32_t zero;
	/* RTU_ENABLED(session): look whether there is a session for you; 0: there is none */
	uint32_t look __attribute__((aligned(64)));
	uint32_t zero2[15];
	/* Events that processes lost while they had no file to count them in. */
	uint64_t lost __attribute__((aligned(64)));
	uint64_t zero3[7];
};

/* What programs that start now are to enable: this, then patterns, each ending in NUL: '+' or '-' and a glob of PROVIDER:EVENT. */
struct rtu_session {
	uint64_t magic;
	uint32_t abi_version; /* RTU_SESSION_VERSION */
	uint32_t bytes;	      /* of the patterns */
	uint64_t session;
	uint32_t pid; /* of the collector; 0: it has none here, and lives as long as this file is locked */
	uint32_t flags;
	uint32_t ring_bytes;
	uint32_t level; /* the highest level that is enabled */
};

#if defined(__cplusplus)
#define RTU_ASSERT(condition, text) static_assert(condition, text)
#else
#define RTU_ASSERT(condition, text) _Static_assert(condition, text)
#endif
RTU_ASSERT(sizeof(struct rtu_sync) == 32, "size of rtu_sync");
RTU_ASSERT(sizeof(struct rtu_who) == 72, "size of rtu_who");
RTU_ASSERT(sizeof(struct rtu_provider) == 640, "size of rtu_provider");
RTU_ASSERT(sizeof(struct rtu_look) == 192, "size of rtu_look");
RTU_ASSERT(sizeof(struct rtu_ring) == 192, "size of rtu_ring");
RTU_ASSERT(sizeof(struct rtu_session) == 40, "size of rtu_session");
#undef RTU_ASSERT

#endif

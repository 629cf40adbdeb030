/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the copies of this header in one process share, and what each of them has.
 *
 * There is no library. Every program and shared library that includes this header has a copy of these functions; one copy is the
 * process's leader, and has the files, the rings and the threads. The leader is the program itself, if it has events; else the
 * first library, which then stays loaded until the process ends. The others find it by a note in the loaded objects
 * (loader.h), so a thread has one ring however many libraries write into it.
 */
#ifndef RTSCOPE_STATE_H
#define RTSCOPE_STATE_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "ring.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call site has; made by RTSCOPE_EVENT in the section RTSCOPE__EVENTS_SECTION (event.h). */
struct rtscope__event {
	const uint32_t *enabled;
	const char *text; /* its description, as in abi.h */
	uint32_t id;
	uint16_t semaphore; /* how many debuggers and tracers want its USDT probe */
	uint16_t zero;
};

struct rtscope__label {
	int64_t value;
	const char *name;
};

struct rtscope__enumeration {
	const char *name;
	const struct rtscope__label *labels;
	uint64_t count;
};

/*
 * One program or library that has events. What has to be searched for is found when it is loaded, and kept: a fork's child must not
 * search, since locks of the loader and the C library may be held by threads that it does not have.
 */
struct rtscope__object {
	struct rtscope__object *next;
	struct rtscope__event **events, **events_end;
	const struct rtscope__enumeration *const *enumerations, *const *enumerations_end;
	/* The mapped file; while there is none, memory of the same size, or NULL. It stays where it is, in forks' children, too. */
	struct rtu_provider *provider;
	uint64_t bytes, text_bytes;
	uint64_t sign; /* of all descriptions: equal for equal ones */
	uint32_t number, first_id;
	uint32_t has_file, is_program;
	uint32_t build_id_bytes;
	unsigned char build_id[20];
	char path[256]; /* "" is the program */
};

/* Of a thread that waits while its ring is full (blocking mode). */
struct rtscope__waiting {
	uint64_t since_ns; /* 0: it has not waited yet. Since when the collector has been silent */
	uint64_t beat;
};

/* A ring that this process has mapped. */
struct rtscope__place {
	struct rtu_ring *ring; /* NULL: free */
	struct rtscope__thread *thread;
	uint64_t bytes;
	uint32_t tid;
	uint32_t keyless; /* nobody will tell when the thread ends */
	uint32_t entry;	  /* of the thread, where a library leads */
	uint32_t zero;
};

/*
 * A thread by its thread pointer, where no variable of the thread can be had. It stays when the thread ends, and another thread takes it
 * over: with a compare-and-swap of `thread`, since yet another one may have come to the same thread pointer.
 */
struct rtscope__entry {
	uintptr_t pointer; /* 0: free */
	struct rtscope__thread *thread;
	uint32_t tid;
	uint32_t keyless; /* as in its place */
};

/* Memory that the process has no use for, but that something interrupted may still stand in. */
struct rtscope__remains {
	void *memory;
	uint64_t bytes;
};

/* Ids of an object that is or was loaded. */
struct rtscope__ids {
	uint64_t sign;
	uint32_t first, count;
	uint32_t used, zero;
};

/* An event that is being written for a channel. */
struct rtscope__level {
	uint64_t time;
	uint64_t words[RTU_RECORD_BYTES_MAX / 8 + 1];
};

#define RTSCOPE__LEVELS 8
/* Of a channel's `keyless`: the thread's page is gone, too. */
#define RTSCOPE__PAGELESS 2
#define RTSCOPE__POLICY_BYTES 112

/* A thread's channel of an STM. Its memory is zero after a fork, as a thread's page is. */
struct rtscope__channel {
	unsigned char *port;	    /* in the device's memory; NULL: it is another process's */
	uint32_t first, next, last; /* where in it the words of a message are stored */
	uint32_t
		depth; /* levels in which an event is being written: those of handlers are above what they have interrupted */
	uint64_t sync;		   /* time of the newest RTU_ID_WHO; 0: none */
	const uint32_t *cpu_place; /* as the thread's page has it */
	uint32_t cpu, untold, sequence, keyless;
	uint64_t lost, lost_told;
	uint64_t session;
	struct rtscope__thread *thread;
	uint32_t tid, number, place, page, port_number;
	char comm[16];
	uintptr_t stacks[RTSCOPE__LEVELS];
	struct rtscope__level levels[RTSCOPE__LEVELS];
};

/* Channels that this process has got from the device: as many as one mapping has. */
struct rtscope__port_page {
	unsigned char *memory; /* NULL: none */
	uint64_t bytes, session;
	uint64_t used; /* a bit for each */
};

/* The device of a session, as that describes it. */
struct rtscope__device {
	uint64_t session;
	uint32_t bytes, first, next, last, map_bytes, is_roots;
	uint32_t major, minor; /* of what is at the path */
	char path[64], id[RTSCOPE__POLICY_BYTES];
};

#define RTSCOPE__PORT_PAGES 64
#define RTSCOPE__DEVICE_BYTES_MAX (1 << 20)
#define RTSCOPE__CHANNELS_MAX 1024
#define RTSCOPE__RINGS_MAX 4096
#define RTSCOPE__ENTRIES 16384
#define RTSCOPE__PROBES 256 /* how many of them a thread may look at */
#define RTSCOPE__REMAINS 128
#define RTSCOPE__RETIRED 64
#define RTSCOPE__MAPPINGS 64
#define RTSCOPE__OPENED 128
#define RTSCOPE__IDS 1024
#define RTSCOPE__PATH_BYTES 128
/* Of a file that a process makes, on stacks: /dev/shm/rtscope-10/r10-16-10-10, where each number is so many digits. */
#define RTSCOPE__OWN_PATH_BYTES 80
#define RTSCOPE__SHARED_VERSION 2

/* The leader's memory, which costs only what is touched. */
struct rtscope__room {
	/* Of a leader with RTSCOPE__HAS_CHANNELS, for other copies; these two stay at its begin. */
	unsigned char *(*stage)(uint32_t id, uint64_t bytes, uintptr_t stack);
	void (*send)(const unsigned char *payload);
	struct rtscope__place places[RTSCOPE__RINGS_MAX];
	struct rtscope__entry entries[RTSCOPE__ENTRIES];
	struct rtscope__remains remains[RTSCOPE__REMAINS]; /* of fork upon fork: the oldest are given back */
	struct rtscope__remains retired[RTSCOPE__RETIRED]; /* of libraries that were unloaded: for the next ones */
	struct rtscope__ids ids[RTSCOPE__IDS];
	/* From here on: only for whoever has `busy`. Not on the stack, which may be a signal handler's small one. */
	struct statx status;
	char path[RTSCOPE__PATH_BYTES];
	char session[RTU_SESSION_BYTES_MAX + 8] __attribute__((aligned(8)));
	char names[8192] __attribute__((aligned(8)));
	int session_errno; /* why it could not be told whether there is a session; 0: it could */
	struct {
		uint64_t kept[RTU_KEPT_RINGS]; /* processes of rings that are kept, by hash */
		uint64_t stride, first;	       /* every so many names are looked at, from this on */
		uint32_t kept_count, rings;    /* rings: this round is for rings, the next for the others */
		int directory;		       /* open */
	} sweep;
	struct rtscope__device device;
	struct rtscope__port_page port_pages[RTSCOPE__PORT_PAGES];
	/* Of this process, and the page of each one's thread: its own memory may be zero. */
	struct rtscope__channel *channels[RTSCOPE__CHANNELS_MAX];
	struct rtscope__thread *channel_threads[RTSCOPE__CHANNELS_MAX];
};

/*
 * A descriptor that a thread has while it makes something, and a fork's child is not to have (fork.h). It is in no other place: it stays here,
 * after it was closed, until no fork goes on that may have begun before.
 */
struct rtscope__opened {
	uint32_t file;	 /* RTSCOPE__OPENING, or the descriptor and RTSCOPE__OPENING + 1; 0: this is free */
	uint32_t closed; /* while a fork went on: how many had begun, and 1 */
};
#define RTSCOPE__OPENING 1u

/* What a fork's child has to know (fork.h). Not in what copies share, which must stay as an earlier header of this version has it. */
struct rtscope__forking {
	uint64_t works, works_before; /* how often work began: ever, and before the fork that goes on */
	struct rtscope__remains
		mappings[RTSCOPE__MAPPINGS]; /* of rings, and of a device's channels, that are being made */
	uint32_t begun;			     /* how many forks ever began */
	uint32_t unnoted;		     /* how many descriptors were not noted, since there were too many */
	struct rtscope__opened opened[RTSCOPE__OPENED];
};

/* What became of a wish for a ring. */
struct rtscope__answer {
	int error;	/* an errno, or RTSCOPE__UNWANTED */
	uint32_t cause; /* enum rtu_cause: how its loss counts */
};
/* The event was only enabled to make this process look, and no session wants it. */
#define RTSCOPE__UNWANTED (-1)

enum rtscope__state {
	RTSCOPE__UNTRACED = 0, /* and never will be */
	RTSCOPE__HIDDEN_NOW,   /* without files: the look page tells when somebody wants some */
	RTSCOPE__SHOWN,	       /* with files */
};

/* In `leads`. Others than RTSCOPE__LEADS are newer than this version. */
#define RTSCOPE__LEADS 1
#define RTSCOPE__HAS_CHANNELS 2
#define RTSCOPE__STARTS \
	4u /* it will lead: the thread that makes it the leader has the number from bit 8 on (loader.h) */
/* A place that an event has in its thread's ring, and not in a channel. */
#define RTSCOPE__RING_INSTEAD ((unsigned char *)1)

/* What the copies of one process share. Found by a note; its begin must stay as it is. */
struct rtscope__shared {
	uint32_t version;
	uint32_t leads;	    /* not 0: this copy is the leader, or will be */
	void (*lead)(void); /* makes it the leader; NULL: it must not be yet */
	struct rtscope__thread *(*find)(void);
	struct rtscope__thread *(*thread)(int asked, uint32_t id, struct rtscope__answer *answer);
	void (*add)(struct rtscope__object *object);
	void (*remove)(struct rtscope__object *object);
	void (*lost)(uint32_t cause);
	int (*wait)(struct rtscope__thread *thread, struct rtscope__waiting *state);
	void (*end)(struct rtscope__thread *thread);
	uint32_t *flags;  /* of the collector */
	ptrdiff_t offset; /* from the thread pointer to the variable that has the thread's page; 0: ask find() */

	struct rtscope__object *objects;
	struct rtu_provider *provider; /* of the leader: its file, or memory in its place; NULL: untraced */
	struct rtscope__room *room;
	const uint32_t *look; /* in the look page; &rtscope__off: there is none */
	uint64_t look_file;   /* its inode number; 0: a page of this process's own is in its place */
	uint32_t *alive;      /* in a page that is zero after a fork */
	uint64_t birth_ns, ring_bytes;
	uint64_t beat, beat_since_ns; /* when the collector's beat was last seen to change */
	uint64_t quiet_session;	      /* the session that made no sound at that beat */
	uint32_t busy;	     /* the thread that changes what is here from `objects` on; 1: in a child's beginning */
	uint32_t state;	     /* enum rtscope__state */
	uint32_t life;	     /* how many forks it is away from the first process */
	uint32_t is_refused; /* 1: no file could be made the last time, at this look: */
	uint32_t refused_look;
	uint32_t told_errno; /* of the file that says that this process runs untraced; 0: there is none */
	uint32_t pid, clock, next_id, next_ids, next_object, next_ring, sub_buffers;
	uint32_t places; /* how many of room->places were ever used */
	uint32_t next_remains, silent_rings, quiet_events, left_rings, unfiled, beat_rings;
	uint32_t lazy, lock_memory, allows_blocking;
	uint32_t confined; /* by RTSCOPE_LAZY=0: no system call that nobody asked for, not even at the end */
	uint32_t seccomp, no_new_privs; /* at the start */
	uint32_t has_key, filters;	/* of seccomp, at the start */
	unsigned int key;
	char directory[RTSCOPE__PATH_BYTES];
	uint32_t forks, workers; /* threads that fork, and that have files open or half made (fork.h) */
	uintptr_t forker;	 /* thread pointer of the one that has come last */
	uint64_t pageless;	 /* the session in which a thread could last not have a page (rtscope__pageless) */
	uint64_t silent_beat;	 /* blocking mode, if `was_silent`: the beat after which nothing came any more */
	uint32_t was_silent;
};

/* The leader's functions (threads.h, life.h). */
struct rtscope__thread *rtscope__thread_page(int asked, uint32_t id, struct rtscope__answer *answer);
struct rtscope__thread *rtscope__find(void);
void rtscope__lead(void);
void rtscope__add(struct rtscope__object *object);
void rtscope__remove(struct rtscope__object *object);
void rtscope__lost(uint32_t cause);
int rtscope__wait(struct rtscope__thread *thread, struct rtscope__waiting *state);
void rtscope__end_ring(struct rtscope__thread *thread);
unsigned char *rtscope__stage(uint32_t id, uint64_t bytes, uintptr_t stack);
void rtscope__send(const unsigned char *payload);

/* The rest is 0, which C and C++ have no common way to say. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
RTSCOPE__HIDDEN struct rtscope__shared rtscope__shared = {
	RTSCOPE__SHARED_VERSION,
	0,
#if defined(RTSCOPE_START_BY_HAND)
	NULL,
#else
	rtscope__lead,
#endif
};
RTSCOPE__HIDDEN struct rtscope__object rtscope__object = { 0 };
RTSCOPE__HIDDEN struct rtscope__forking rtscope__forking = { 0 };
RTSCOPE__HIDDEN uint32_t rtscope__off __attribute__((used)) = 0;
RTSCOPE__HIDDEN uint32_t rtscope__no_cpu = RTU_CPU_UNKNOWN;
/* In which PID namespace the leader's number is what it is (rtscope__pid_space). */
RTSCOPE__HIDDEN uint64_t rtscope__own_space = 0;
/* What a thread without a page has at hand. */
RTSCOPE__HIDDEN struct rtscope__thread rtscope__none = { 0 };
RTSCOPE__HIDDEN struct rtscope__thread rtscope__in_setup = { 0 };
RTSCOPE__HIDDEN struct rtscope__thread rtscope__ended = { 0 };
/* Of a thread that could not have one, in the session shared->pageless. Others may: it may be without memory, or in another root, alone. */
RTSCOPE__HIDDEN struct rtscope__thread rtscope__pageless = { 0 };
#pragma GCC diagnostic pop
/*
 * The thread's page. Only that of a program is ever used. Not of the model initial-exec: each library would then take some of the space
 * that the loader has for such variables of libraries loaded later; it does not get all of it back, so a host that loads its
 * plug-ins anew would sooner or later load no library any more (glibc 2.36: after 213 times).
 */
RTSCOPE__HIDDEN __thread struct rtscope__thread *rtscope__own = &rtscope__none;
RTSCOPE__HIDDEN struct rtscope__shared *rtscope__leader = 0;
/* The thread that makes this object known to the leader; then RTSCOPE__STARTED, which no thread's number and no error is. */
RTSCOPE__HIDDEN uint32_t rtscope__started = 0;
#define RTSCOPE__STARTED 0x80000000u
/* The leader's, in each copy. */
RTSCOPE__HIDDEN ptrdiff_t rtscope__offset = 0;

extern struct rtscope__event *__start_rtscope_events[] __attribute__((weak, visibility("hidden")));
extern struct rtscope__event *__stop_rtscope_events[] __attribute__((weak, visibility("hidden")));
extern const struct rtscope__enumeration *const __start_rtscope_enums[] __attribute__((weak, visibility("hidden")));
extern const struct rtscope__enumeration *const __stop_rtscope_enums[] __attribute__((weak, visibility("hidden")));

/* glibc 2.35 says where each thread's rseq area is: the kernel keeps the CPU's number there. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/*
 * Events' entries, which hold USDT's semaphores, begin on a page of their own. lld makes two writable segments that share a page of the
 * file; the kernel would then count the users of a probe in the copy that nobody reads, and the probe would never fire. Once for each
 * program or library. Cost: up to a page.
 */
__asm__(".pushsection .probes,\"awGR\",@progbits,rtscope_probes_page,comdat\n"
	".balign 4096\n"
	".popsection\n");

__asm__(".pushsection .note.rtscope,\"a\",%note\n"
	".balign 4\n"
	".4byte 8, 8, 1\n"
	".asciz \"rtscope\"\n"
	".8byte " RTSCOPE__TEXT(rtscope__shared) " - .\n"
						 ".popsection\n");

/* The word of this thread at an offset from its thread pointer. */
static inline __attribute__((always_inline)) struct rtscope__thread *rtscope__tls_word(ptrdiff_t offset)
{
#if defined(__x86_64__)
	struct rtscope__thread *thread;

	__asm__ __volatile__("{movq %%fs:(%1), %0|mov %0, qword ptr fs:[%1]}" : "=r"(thread) : "r"(offset));
	return thread;
#else
	return RTSCOPE__LOAD(*(struct rtscope__thread **)(void *)((char *)__builtin_thread_pointer() + offset));
#endif
}

/* The thread pointer. */
static inline uintptr_t rtscope__thread_pointer(void)
{
#if defined(__x86_64__)
	uintptr_t pointer;

	__asm__("{movq %%fs:0, %0|mov %0, qword ptr fs:[0]}" : "=r"(pointer));
	return pointer;
#else
	return (uintptr_t)__builtin_thread_pointer();
#endif
}

/*
 * The thread's page, as far as that can be had at once: otherwise a page without a ring, and rtscope__reserve_slowly() finds the thread. All
 * copies look at the same variable, so none of them can have an old value of it.
 */
static inline __attribute__((always_inline)) struct rtscope__thread *rtscope__current(void)
{
	ptrdiff_t offset = RTSCOPE__LOAD(rtscope__offset);

	return RTSCOPE__LIKELY(offset != 0) ? rtscope__tls_word(offset) : &rtscope__none;
}
#define rtscope__tls rtscope__current()

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A thread that the C library does not know: made by clone(2), with thread-local values of its own.
 *
 *   bare COUNT
 *
 * It runs on each CPU in turn that this process may use, emits COUNT events there, and each event says by the kernel's word on which one. The C
 * library would have registered where the kernel writes that (rseq); the bytes at that place are zeros here: "CPU 0". Prints "emitted
 * N". With one CPU, or on a processor other than x86-64, it emits nothing.
 */
#define _GNU_SOURCE
#include <rtscope/rtscope.h>

#include <link.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)

static unsigned long count, emitted;
static uint32_t tid;
static cpu_set_t cpus;

/* Without the C library, which would look for its own of this thread. */
static long call(long number, long a, long b, long c)
{
	long result;

	__asm__ __volatile__("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

static int run(void *none)
{
	(void)none;
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
		static cpu_set_t one;
		unsigned int here = 0;

		if (!CPU_ISSET(cpu, &cpus))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (call(SYS_sched_setaffinity, 0, sizeof(one), (long)&one))
			return 1;
		for (unsigned long i = 0; i < count; i++) {
			call(SYS_getcpu, (long)&here, 0, 0);
			RTSCOPE_EVENT(test, bare, rtscope_u32(here, here));
			emitted++;
		}
	}
	return 0;
}

/* The program's thread-local values at the start, before the thread pointer. */
static int fill(struct dl_phdr_info *info, size_t bytes, void *pointer)
{
	(void)bytes;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		size_t size = (part->p_memsz + part->p_align - 1) & ~(part->p_align - 1);

		if (part->p_type == PT_TLS)
			memcpy((char *)pointer - size, (const char *)info->dlpi_addr + part->p_vaddr, part->p_filesz);
	}
	/* The program comes first. */
	return 1;
}

int main(int argc, char **argv)
{
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
		    CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	int how = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
	char *memory = (char *)mmap(NULL, 1 << 20, how, kind, -1, 0), *pointer = memory + 65536;

	count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10;
	if (memory == (char *)MAP_FAILED || sched_getaffinity(0, sizeof(cpus), &cpus))
		return 1;
	if (CPU_COUNT(&cpus) > 1) {
		dl_iterate_phdr(fill, pointer);
		/* The thread's descriptor: itself, twice, and the guard of the stack. */
		((char **)pointer)[0] = ((char **)pointer)[2] = pointer;
		__asm__("movq %%fs:0x28, %0" : "=r"(((char **)pointer)[5]));
		tid = 1;
		if (clone(run, memory + (1 << 20), flags, NULL, &tid, pointer, &tid) < 0)
			return 1;
		while (__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
			usleep(1000);
	}
	printf("emitted %lu\n", emitted);
	return 0;
}

#else

int main(void)
{
	RTSCOPE_EVENT(test, bare, rtscope_u32(here, 0));
	puts("emitted 0");
	return 0;
}

#endif

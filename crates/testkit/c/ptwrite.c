/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * PTWRITE where no processor has it: the instruction is none there, its signal handler does what it would do, and what would go into the stream
 * goes into a file. The file is opened for appending, so words of threads and processes are in the order of their instructions.
 *
 * The program's header asks the function below instead of CPUID: it is of the same name, and this one is not weak. It is asked before main().
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

int rtscope__has_ptwrite_2(void);
void rtscope_execute_ptwrite(void);
int rtscope_emulate_ptwrite(const char *path);

static int file = -1;

int rtscope__has_ptwrite_2(void)
{
	return 1;
}

#if defined(__x86_64__)
/* A word, and who wrote it. */
struct written {
	uint64_t value;
	uint32_t pid, tid;
};

/* F3 REX.W 0F AE /4 with a register: the only form that is emulated. */
static void on_illegal(int signal, siginfo_t *info, void *context)
{
	static const int registers[] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
					 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
	greg_t *all = ((ucontext_t *)context)->uc_mcontext.gregs;
	const unsigned char *at = (const unsigned char *)all[REG_RIP];
	struct written written;

	(void)info;
	if (at[0] != 0xf3 || (at[1] & 0xfe) != 0x48 || at[2] != 0x0f || at[3] != 0xae || (at[4] & 0xf8) != 0xe0) {
		/* Again, and for good. */
		sigaction(signal, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
		return;
	}
	written.value = (uint64_t)all[registers[(at[4] & 7) | (at[1] & 1) << 3]];
	written.pid = (uint32_t)getpid();
	written.tid = (uint32_t)gettid();
	if (write(file, &written, sizeof(written)) != sizeof(written))
		_exit(99);
	all[REG_RIP] += 5;
}
#endif

/* Ends the program where there is none. */
void rtscope_execute_ptwrite(void)
{
#if defined(__x86_64__)
	__asm__ volatile(".byte 0xf3, 0x48, 0x0f, 0xae, 0xe0" : : "a"(0)); /* ptwrite %rax */
#endif
}

/* False: not here. */
int rtscope_emulate_ptwrite(const char *path)
{
#if defined(__x86_64__)
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_illegal;
	action.sa_flags = SA_SIGINFO;
	/* No other handler within this one: its events would have the same instruction. */
	sigfillset(&action.sa_mask);
	if (sigaction(SIGILL, &action, NULL))
		return 0;
	file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return file != -1;
#else
	(void)path;
	return 0;
#endif
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts the instructions of a piece of code, by stepping over each of them (x86's trap flag): what a processor executes, wherever it is and
 * however long it takes. A program that includes this needs _GNU_SOURCE before all else.
 */
#ifndef STEPS_H
#define STEPS_H

#include <signal.h>
#include <string.h>
#include <ucontext.h>

static volatile unsigned long steps_all, steps_jumps;

static void steps_one(int signal, siginfo_t *information, void *context)
{
	const unsigned char *code = (const unsigned char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	(void)signal;
	(void)information;
	steps_all++;
	/* Conditional jumps. */
	steps_jumps += (code[0] & 0xf0) == 0x70 || (code[0] == 0x0f && (code[1] & 0xf0) == 0x80);
}

/* Instructions and conditional jumps of a call, with the few that make it. */
static void steps_of(void (*code)(void), unsigned long *all, unsigned long *jumps)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = steps_one;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &action, NULL);
	steps_all = steps_jumps = 0;
	__asm__ __volatile__("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" : : : "memory", "cc");
	code();
	__asm__ __volatile__("pushfq\n\tandq $-257, (%%rsp)\n\tpopfq" : : : "memory", "cc");
	*all = steps_all;
	*jumps = steps_jumps;
}

#endif

// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Waits for a byte of standard input in nested functions, with a system call of its own: for builds without unwind information, which the C library
 * has. Prints "ready" and then "over". With -DFRAME all functions have a frame pointer.
 */
static long call(long number, long first, const void *second, long third)
{
	long result;

#if defined(__x86_64__)
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third)
			 : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = first, x2 __asm__("x2") = third;
	register const void *x1 __asm__("x1") = second;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	result = x0;
#endif
	return result;
}

#if defined(__x86_64__)
#define READ 0
#define WRITE 1
#else
#define READ 63
#define WRITE 64
#endif

static volatile long done;

__attribute__((noinline)) long inner(char *byte)
{
#ifdef FRAME
	/* A function that calls none has no frame pointer else, and the one above it would be missed. */
	done = (long)__builtin_frame_address(0);
#endif
	done = call(READ, 0, byte, 1);
	return done + 1;
}

__attribute__((noinline)) long middle(char *byte)
{
	done = inner(byte);
	return done + 1;
}

int main(void)
{
	char byte;

	call(WRITE, 1, "ready\n", 6);
	while (middle(&byte) > 2)
		call(WRITE, 1, "over\n", 5);
	return 0;
}

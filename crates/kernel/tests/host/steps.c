/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a compiler calls at each access to memory with -fsanitize=thread, without that sanitizer: the test's own step comes first. So
 * the sources as they are shipped are stepped through, access by access. Accesses as such are made by the instrumented code itself;
 * atomic ones are made here.
 */
#include <stdint.h>

void host_step(volatile void *address, unsigned size, int is_write);

#define PLAIN(size)                                      \
	void __tsan_read##size(void *address)            \
	{                                                \
		host_step(address, size, 0);             \
	}                                                \
	void __tsan_write##size(void *address)           \
	{                                                \
		host_step(address, size, 1);             \
	}                                                \
	void __tsan_unaligned_read##size(void *address)  \
	{                                                \
		host_step(address, size, 0);             \
	}                                                \
	void __tsan_unaligned_write##size(void *address) \
	{                                                \
		host_step(address, size, 1);             \
	}                                                \
	void __tsan_volatile_read##size(void *address)   \
	{                                                \
		host_step(address, size, 0);             \
	}                                                \
	void __tsan_volatile_write##size(void *address)  \
	{                                                \
		host_step(address, size, 1);             \
	}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *address, unsigned long size)
{
	host_step(address, (unsigned)size, 0);
}

void __tsan_write_range(void *address, unsigned long size)
{
	host_step(address, (unsigned)size, 1);
}

void __tsan_func_entry(void *address)
{
	(void)address;
}

void __tsan_func_exit(void)
{
}

void __tsan_init(void)
{
}

/* 2: an atomic access, which is a full barrier in eBPF when its result is used. */
#define ATOMIC(bits, type)                                                                                             \
	type __tsan_atomic##bits##_fetch_add(volatile type *address, type value, int order)                            \
	{                                                                                                              \
		(void)order;                                                                                           \
		host_step(address, sizeof(type), 2);                                                                   \
		return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);                                           \
	}                                                                                                              \
	type __tsan_atomic##bits##_fetch_or(volatile type *address, type value, int order)                             \
	{                                                                                                              \
		(void)order;                                                                                           \
		host_step(address, sizeof(type), 2);                                                                   \
		return __atomic_fetch_or(address, value, __ATOMIC_SEQ_CST);                                            \
	}                                                                                                              \
	type __tsan_atomic##bits##_fetch_and(volatile type *address, type value, int order)                            \
	{                                                                                                              \
		(void)order;                                                                                           \
		host_step(address, sizeof(type), 2);                                                                   \
		return __atomic_fetch_and(address, value, __ATOMIC_SEQ_CST);                                           \
	}                                                                                                              \
	type __tsan_atomic##bits##_exchange(volatile type *address, type value, int order)                             \
	{                                                                                                              \
		(void)order;                                                                                           \
		host_step(address, sizeof(type), 2);                                                                   \
		return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                          \
	}                                                                                                              \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile type *address, type *expected, type desired,        \
							  int order, int failure)                                      \
	{                                                                                                              \
		(void)order;                                                                                           \
		(void)failure;                                                                                         \
		host_step(address, sizeof(type), 2);                                                                   \
		return __atomic_compare_exchange_n(address, expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	}                                                                                                              \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *address, type expected, type desired,           \
							int order, int failure)                                        \
	{                                                                                                              \
		(void)order;                                                                                           \
		(void)failure;                                                                                         \
		host_step(address, sizeof(type), 2);                                                                   \
		__atomic_compare_exchange_n(address, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
		return expected;                                                                                       \
	}                                                                                                              \
	type __tsan_atomic##bits##_load(const volatile type *address, int order)                                       \
	{                                                                                                              \
		(void)order;                                                                                           \
		host_step((volatile void *)address, sizeof(type), 2);                                                  \
		return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                     \
	}                                                                                                              \
	void __tsan_atomic##bits##_store(volatile type *address, type value, int order)                                \
	{                                                                                                              \
		(void)order;                                                                                           \
		host_step(address, sizeof(type), 2);                                                                   \
		__atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                    \
	}

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

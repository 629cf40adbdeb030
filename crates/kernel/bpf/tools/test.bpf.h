/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program for tests only: one that the kernel has to skip, each time it runs.
 *
 * Real skips need an interrupt or a task that comes at the wrong moment. This one brings its own: it hangs on the
 * kernel's page faults and causes one, which would run it again while it runs. The kernel counts that as a recursion miss
 * and goes on. Debug builds load it when they are asked to (crates/kernel/src/ebpf.rs).
 */
#ifndef RTSCOPE_TOOLS_TEST_BPF_H
#define RTSCOPE_TOOLS_TEST_BPF_H

#include "core/program.bpf.h"

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(test_miss, unsigned long address, struct pt_regs *regs, unsigned long error_code)
{
	char byte;

	/* Nobody may map the first page (vm.mmap_min_addr), so there is nothing to read, and the helper says so. */
	bpf_probe_read_user(&byte, sizeof(byte), (void *)8);
	return 0;
}

#endif

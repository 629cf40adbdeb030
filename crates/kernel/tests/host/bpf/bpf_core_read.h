/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In place of libbpf's header: on the host a type has the layout that it is declared with. */
#ifndef RTSCOPE_HOST_BPF_CORE_READ_H
#define RTSCOPE_HOST_BPF_CORE_READ_H

#define __builtin_preserve_access_index(expression) (expression)
#define bpf_core_field_exists(field) 1

#endif

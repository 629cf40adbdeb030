/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In place of libbpf's header: no program is attached on the host, so there is nothing to declare. */

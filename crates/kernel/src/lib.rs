// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel can do, and rtscope's eBPF programs in it.

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of a C library that is linked into a Rust program (c/linked.c).

unsafe extern "C" {
    // It takes a number and records events.
    safe fn rtscope_testkit_linked_c(count: u64);
}

/// Emits this many events `test:linked_c` from C.
pub fn emit(count: u64) {
    rtscope_testkit_linked_c(count);
}

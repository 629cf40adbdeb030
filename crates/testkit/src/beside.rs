// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of a C library that is linked into a Rust program (c/beside.c).

unsafe extern "C" {
    // It takes a number and records events.
    safe fn rtscope_testkit_beside(count: u64);
}

/// Emits so many events `test:beside` from C.
pub fn emit(count: u64) {
    rtscope_testkit_beside(count);
}

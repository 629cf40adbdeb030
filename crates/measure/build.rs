// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the loop of the non-preempt test: it is C, so that its events are those that every C program gets.

fn main() {
    for file in ["c/npt.c", "c/npt.h", "../../include/rtscope"] {
        println!("cargo:rerun-if-changed={file}");
    }
    // Always optimized: an unoptimized loop would measure itself.
    cc::Build::new()
        .file("c/npt.c")
        .include("../../include")
        .std("c11")
        .opt_level(2)
        .warnings(true)
        .warnings_into_errors(true)
        .compile("rtscope_npt");
}
